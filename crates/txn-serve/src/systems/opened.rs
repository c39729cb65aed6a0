//! The systems of the domain, opened at their first use.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OnceCell, Semaphore, SemaphorePermit};
use txn_core::Domain;
use txn_lock::Leases;
use txn_outbox::http::{Dispatcher, HttpConfig, HttpResults, TOPIC};
use txn_outbox::{Outbox, OutboxConfig, Processor, ProcessorConfig, Topics};
use txn_requests::{Requests, RequestsConfig};

use crate::config::ServeConfig;
use crate::http::problem::{Code, Problem};

/// A system of the domain.
///
/// A system exists once any process has used it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum System {
    Locks,
    Outbox,
    Requests,
    HttpResults,
}

impl System {
    fn name(self) -> &'static str {
        match self {
            Self::Locks => "locks",
            Self::Outbox => "outbox",
            Self::Requests => "requests",
            Self::HttpResults => "http-results",
        }
    }
}

/// The systems of a domain. A gateway that never uses one creates no collection for it.
pub(crate) struct Systems {
    domain: Domain,
    leases: OnceCell<Arc<Leases>>,
    outbox: OnceCell<Outbox>,
    requests: OnceCell<Requests>,
    http_results: OnceCell<HttpResults>,
    /// The processors that send HTTP requests, one for each listener.
    dispatchers: Mutex<Vec<Processor>>,
    /// The permits of requests that wait for a lock. Other requests keep the remaining permits.
    waits: Semaphore,
}

impl fmt::Debug for Systems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Systems").field("domain", &self.domain.name()).finish_non_exhaustive()
    }
}

impl Systems {
    pub(crate) fn new(domain: &Domain, config: &ServeConfig) -> Self {
        Self {
            domain: domain.clone(),
            leases: OnceCell::new(),
            outbox: OnceCell::new(),
            requests: OnceCell::new(),
            http_results: OnceCell::new(),
            dispatchers: Mutex::default(),
            waits: Semaphore::new((config.max_requests / 4).clamp(1, Semaphore::MAX_PERMITS)),
        }
    }

    /// Whether a process has used the system.
    pub(crate) async fn exists(&self, system: System) -> Result<bool, Problem> {
        let is_open = match system {
            System::Locks => self.leases.initialized(),
            System::Outbox => self.outbox.initialized(),
            System::Requests => self.requests.initialized(),
            System::HttpResults => self.http_results.initialized(),
        };
        if is_open {
            return Ok(true);
        }
        let name = self.domain.collection_name(system.name());
        Ok(self.domain.admin().overview().await?.collections.contains(&name))
    }

    /// Refuses a request about a system that no process has used.
    pub(crate) async fn need(&self, system: System) -> Result<(), Problem> {
        match self.exists(system).await? {
            true => Ok(()),
            false => {
                let detail = format!("the domain has no {}: no process has used it", system.name());
                Err(Problem::new(Code::NotFound, detail))
            }
        }
    }

    /// The locks of the domain.
    pub(crate) async fn leases(&self) -> Result<Arc<Leases>, Problem> {
        let open = async || Leases::open(&self.domain).await.map(Arc::new);
        Ok(self.leases.get_or_try_init(open).await?.clone())
    }

    /// The outbox of the domain.
    pub(crate) async fn outbox(&self) -> Result<&Outbox, Problem> {
        let open = || Outbox::open(&self.domain, OutboxConfig::default());
        Ok(self.outbox.get_or_try_init(open).await?)
    }

    /// The submitted requests of the domain. Their events enter the outbox.
    pub(crate) async fn requests(&self) -> Result<&Requests, Problem> {
        let outbox = self.outbox().await?.clone();
        let config = RequestsConfig::default().with_outbox(Some(outbox));
        let open = || Requests::open(&self.domain, config);
        Ok(self.requests.get_or_try_init(open).await?)
    }

    /// The results of HTTP requests.
    pub(crate) async fn http_results(&self) -> Result<&HttpResults, Problem> {
        Ok(self.http_results.get_or_try_init(|| HttpResults::open(&self.domain)).await?)
    }

    /// Sends HTTP requests until the shutdown of this listener.
    pub(crate) async fn start_dispatcher(&self, http: &HttpConfig) -> Result<(), Problem> {
        let dispatcher = Dispatcher::open(&self.domain, http.clone()).await?;
        let topics = Topics::new().with(TOPIC, dispatcher);
        let processor = self.outbox().await?.start(ProcessorConfig::default(), topics).await?;
        self.dispatchers.lock().push(processor);
        Ok(())
    }

    /// A permit to wait for a lock.
    pub(crate) fn admit_wait(&self) -> Result<SemaphorePermit<'_>, Problem> {
        self.waits.try_acquire().map_err(|_| {
            let detail = "too many requests wait for locks: send it again later";
            Problem::new(Code::Overloaded, detail)
        })
    }

    /// Ends the tasks of the systems. Returns whether all of them ended in time.
    pub(crate) async fn shutdown(&self, deadline: Duration) -> bool {
        let dispatcher = self.dispatchers.lock().pop();
        let requests = async {
            match self.requests.get() {
                Some(requests) => requests.shutdown(deadline).await,
                None => true,
            }
        };
        let calls = async {
            match dispatcher {
                Some(dispatcher) => dispatcher.stop(deadline).await,
                None => true,
            }
        };
        let (requests, calls) = tokio::join!(requests, calls);
        requests && calls
    }
}
