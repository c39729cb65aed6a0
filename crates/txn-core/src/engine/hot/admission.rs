//! The bound on transactions that run at once in a process.
//!
//! The engine refuses excess transactions early. A waiting transaction costs the store nothing, and
//! the running transactions finish.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::clock::Clock;
use crate::error::{Error, ErrorKind};

/// The number of waiting transactions per running one.
const WAITING_FOR_EACH: usize = 16;

/// The permits of running transactions.
#[derive(Debug)]
pub(crate) struct Admission {
    places: Semaphore,
    most: usize,
    waiting: AtomicUsize,
}

/// Counts a waiting transaction.
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

    /// Takes a permit, in the order of arrival. Dropping the permit releases it.
    ///
    /// Waits for at most a quarter of the transaction's time, so that the transaction has time left
    /// to run.
    pub(crate) async fn enter(
        &self,
        clock: &dyn Clock,
        timeout: Duration,
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
            () = clock.sleep(timeout / 4) => {
                cov_mark::hit!(waited_for_a_place_in_vain);
                return Err(self.overloaded());
            }
        };
        drop(waiting);
        place.map_err(|_| Error::unavailable("the domain is closed"))
    }

    /// The number of transactions that have a permit.
    pub(crate) fn running(&self) -> usize {
        self.most.saturating_sub(self.places.available_permits())
    }

    /// The number of transactions that wait for a permit.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    fn overloaded(&self) -> Error {
        let message = format!(
            "{} transactions of this process run already, and more wait than can be carried: nothing was sent; offer fewer, or try \
             again later (max_concurrent_transactions)",
            self.most
        );
        Error::new(ErrorKind::Overloaded, message)
    }
}
