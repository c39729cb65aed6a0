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
pub(crate) struct Places {
    all: Semaphore,
    each: BTreeMap<(String, u16), Semaphore>,
    wait: Duration,
}

/// The permits of one call, held until the drop.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    _of_destination: SemaphorePermit<'a>,
    _of_all: SemaphorePermit<'a>,
}

impl Places {
    pub(crate) fn new(config: &HttpConfig) -> Self {
        let each = config.destinations.iter().map(|destination| {
            (destination.host_and_port(), Semaphore::new(config.most_of_destination()))
        });
        let all = Semaphore::new(config.concurrency);
        Self { all, each: each.collect(), wait: LONGEST_WAIT.min(config.limit) }
    }

    /// Takes the permits of a call to a listed destination.
    ///
    /// `None` if the permits are not free in time. Cancel safe.
    pub(crate) async fn enter(&self, url: &Url, clock: &dyn Clock) -> Option<Place<'_>> {
        let of = (url.host_str()?.to_owned(), url.port_or_known_default()?);
        let each = self.each.get(&of)?;
        let entered = async {
            // The destination first, because its permit may take long, and must not occupy a total
            // permit.
            let _of_destination = each.acquire().await.ok()?;
            let _of_all = self.all.acquire().await.ok()?;
            Some(Place { _of_destination, _of_all })
        };
        tokio::select! {
            biased;
            entered = entered => entered,
            () = clock.sleep(self.wait) => None,
        }
    }
}
