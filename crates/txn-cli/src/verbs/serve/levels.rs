//! The metrics of a gateway that no event reports.
//!
//! The levels of this process cost no request. The levels of the outbox and of the submitted
//! requests cost searches, and have a pause of their own. No caller waits for a level.

use std::sync::Arc;
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusHandle;
use tokio::sync::OnceCell;
use tokio::time::{sleep, timeout};
use txn_core::Domain;
use txn_core::admin::Overview;
use txn_es::EsStore;
use txn_metrics::{Metrics, OutboxLevels};
use txn_outbox::{Outbox, OutboxConfig};
use txn_requests::{Requests, RequestsConfig};

use crate::answer::Failure;

/// The pause between two samples of this process.
const SAMPLE: Duration = Duration::from_secs(5);

/// How long one count of events and requests may take.
const COUNT: Duration = Duration::from_secs(30);

/// How long the end may take. The levels start no work.
const END: Duration = Duration::from_secs(1);

/// Passes levels to the metrics while the gateway runs.
pub(super) struct Levels<'a> {
    domain: &'a Domain,
    metrics: Arc<Metrics>,
    recorder: &'a PrometheusHandle,
    servers: Option<&'a EsStore>,
    /// The pause between two counts of events and requests; `None`: none are counted.
    pause: Option<Duration>,
    systems: OpenSystems,
}

/// The systems that were found.
#[derive(Default)]
struct OpenSystems {
    outbox: OnceCell<Outbox>,
    requests: OnceCell<Requests>,
}

impl<'a> Levels<'a> {
    pub(super) fn new(
        domain: &'a Domain,
        metrics: Arc<Metrics>,
        recorder: &'a PrometheusHandle,
        servers: Option<&'a EsStore>,
        pause: Option<Duration>,
    ) -> Self {
        let systems = OpenSystems::default();
        Self { domain, metrics, recorder, servers, pause, systems }
    }

    /// Passes levels without an end.
    pub(super) async fn run(&self) {
        tokio::join!(self.sample(), self.count());
    }

    /// Ends the tasks of the systems.
    pub(super) async fn end(&self) {
        if let Some(requests) = self.systems.requests.get() {
            requests.shutdown(END).await;
        }
    }

    async fn sample(&self) {
        loop {
            self.metrics.sample(self.domain);
            if let Some(servers) = self.servers {
                self.metrics.nodes(servers.nodes_left_out());
            }
            sleep(SAMPLE).await;
            self.recorder.run_upkeep();
        }
    }

    async fn count(&self) {
        let Some(pause) = self.pause else { return };
        let mut failing = false;
        loop {
            let counted = timeout(COUNT, self.count_once()).await;
            let failed = match counted {
                Ok(Ok(())) => None,
                Ok(Err(failure)) => Some(failure.line()),
                Err(_) => Some(format!("the count took over {} s", COUNT.as_secs())),
            };
            // Only the first of several failures is a line.
            if let (Some(why), false) = (&failed, failing) {
                tracing::warn!(why, "the levels of events and requests are old");
            }
            failing = failed.is_some();
            sleep(pause).await;
        }
    }

    async fn count_once(&self) -> Result<(), Failure> {
        let (domain, systems) = (self.domain, &self.systems);
        let Overview { now_ms, collections, .. } = domain.admin().overview().await?;
        let has_system = |of: &str| collections.contains(&domain.collection_name(of));
        if has_system("outbox") {
            let open = || Outbox::open(domain, OutboxConfig::default());
            let backlog = systems.outbox.get_or_try_init(open).await?.source().backlog().await?;
            self.metrics.outbox(OutboxLevels {
                events: backlog.events,
                lag: Duration::from_millis(backlog.lag_ms(now_ms)),
                blocked: backlog.blocked,
                dead: backlog.dead,
            });
        }
        if has_system("requests") {
            let open = || Requests::open(domain, RequestsConfig::default());
            let counts = systems.requests.get_or_try_init(open).await?.counts().await?;
            for (state, count) in &counts.states {
                self.metrics.requests(state.name(), *count);
            }
            self.metrics.requests_lag(Duration::from_millis(counts.lag_ms(now_ms)));
        }
        Ok(())
    }
}
