//! The limits of concurrent calls, in total and per destination.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use txn_core::clock::Clock;
use url::Url;

use crate::http::config::HttpConfig;

/// The longest wait of a call for a permit. The wait occupies a worker of the processor.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// The permits of calls. A silent destination occupies only its own permits.
#[derive(Debug)]
pub(crate) struct CallLimits {
    total: Semaphore,
    per_destination: BTreeMap<(String, u16), Semaphore>,
    wait: Duration,
}

/// The permits of one call, held until the drop.
#[derive(Debug)]
pub(crate) struct CallPermit<'a> {
    _of_destination: SemaphorePermit<'a>,
    _of_total: SemaphorePermit<'a>,
}

impl CallLimits {
    pub(crate) fn new(config: &HttpConfig) -> Self {
        let per_destination = config.destinations.iter().map(|destination| {
            (destination.host_and_port(), Semaphore::new(config.most_of_destination()))
        });
        let total = Semaphore::new(config.concurrency);
        Self {
            total,
            per_destination: per_destination.collect(),
            wait: LONGEST_WAIT.min(config.limit),
        }
    }

    /// Takes the permits of a call to a listed destination.
    ///
    /// `None` if the permits are not free in time. Cancel safe.
    pub(crate) async fn acquire(&self, url: &Url, clock: &dyn Clock) -> Option<CallPermit<'_>> {
        let of = (url.host_str()?.to_owned(), url.port_or_known_default()?);
        let destination = self.per_destination.get(&of)?;
        let acquired = async {
            // The destination first, because its permit may take long, and must not occupy a total
            // permit.
            let _of_destination = destination.acquire().await.ok()?;
            let _of_total = self.total.acquire().await.ok()?;
            Some(CallPermit { _of_destination, _of_total })
        };
        tokio::select! {
            biased;
            acquired = acquired => acquired,
            () = clock.sleep(self.wait) => None,
        }
    }
}
