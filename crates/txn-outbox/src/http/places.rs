//! How many calls may be under way: in all, and to one destination.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use txn_core::clock::Clock;
use url::Url;

use crate::http::config::HttpConfig;

/// How long a call waits for a place at most. Meanwhile it keeps a processor from other queues.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// Places for calls. A destination that does not answer holds its own, and none of others.
#[derive(Debug)]
pub(crate) struct Places {
    all: Semaphore,
    each: BTreeMap<(String, u16), Semaphore>,
    wait: Duration,
}

/// A place, until it is dropped.
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

    /// A place for a call to a destination that is listed; `None` if there was none in time. Cancel safe.
    pub(crate) async fn enter(&self, url: &Url, clock: &dyn Clock) -> Option<Place<'_>> {
        let of = (url.host_str()?.to_owned(), url.port_or_known_default()?);
        let each = self.each.get(&of)?;
        let entered = async {
            // First the one that may be long in coming: nobody waits for it with a place of all.
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
