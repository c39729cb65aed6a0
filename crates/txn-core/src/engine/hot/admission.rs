//! How many transactions run at once. Whoever offers more than can be carried is told so early: what waits costs the store nothing,
//! and what runs gets through.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::clock::Clock;
use crate::error::{Error, ErrorKind};

/// For each transaction that may run so many may wait.
const WAITING_FOR_EACH: usize = 16;

/// The places of running transactions.
#[derive(Debug)]
pub(crate) struct Admission {
    places: Semaphore,
    most: usize,
    waiting: AtomicUsize,
}

/// A transaction that waits.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Admission {
    pub(crate) fn new(most: usize) -> Self {
        let most = most.min(Semaphore::MAX_PERMITS);
        Self { places: Semaphore::new(most), most, waiting: AtomicUsize::new(0) }
    }

    /// Takes a place, in the order of arrival, and gives it back when it is dropped. Waits for a quarter of the transaction's
    /// time at most, so that whoever gets a place has time to use it.
    pub(crate) async fn enter(
        &self,
        clock: &dyn Clock,
        deadline: Duration,
    ) -> Result<SemaphorePermit<'_>, Error> {
        if let Ok(place) = self.places.try_acquire() {
            return Ok(place);
        }
        let waiting = Waiting(&self.waiting);
        if self.waiting.fetch_add(1, Ordering::Relaxed)
            >= self.most.saturating_mul(WAITING_FOR_EACH)
        {
            cov_mark::hit!(too_many_wait_already);
            return Err(self.overloaded());
        }
        let place = tokio::select! {
            biased;
            place = self.places.acquire() => place,
            () = clock.sleep(deadline / 4) => {
                cov_mark::hit!(waited_for_a_place_in_vain);
                return Err(self.overloaded());
            }
        };
        drop(waiting);
        place.map_err(|_| Error::unavailable("the domain is closed"))
    }

    fn overloaded(&self) -> Error {
        let message = format!(
            "{} transactions of this process run already, and more wait than can be carried: nothing was sent; offer fewer, or try \
             again later (max_running)",
            self.most
        );
        Error::new(ErrorKind::Overloaded, message)
    }
}
