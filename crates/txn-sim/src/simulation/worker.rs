//! The view that a workload has of its process.

use std::cell::RefCell;
use std::ops::Range;

use txn_core::Domain;

/// A process of a [`Simulation`](crate::Simulation), as its workload sees it.
///
/// ```
/// use std::time::Duration;
///
/// use txn_sim::{BoxError, Worker};
///
/// async fn workload(worker: &Worker) -> Result<(), BoxError> {
///     // The first life of the second process comes later than the others.
///     if worker.number() == 1 && worker.restarts() == 0 {
///         tokio::time::sleep(Duration::from_millis(worker.random(0..1_000))).await;
///     }
///     let _collection = worker.domain().collection::<txn_core::Raw>("stock").await?;
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct Worker {
    pub(super) domain: Domain,
    pub(super) number: usize,
    pub(super) restarts: u64,
    pub(super) dice: RefCell<fastrand::Rng>,
}

impl Worker {
    /// Returns the domain that this process opened.
    ///
    /// ```
    /// # async fn workload(worker: &txn_sim::Worker) -> Result<(), txn_sim::BoxError> {
    /// let stock = worker.domain().collection::<txn_core::Raw>("stock").await?;
    /// # drop(stock);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn domain(&self) -> &Domain {
        &self.domain
    }

    /// Returns the number of the process, from 0 on. A process that starts again keeps its number.
    ///
    /// ```
    /// # fn workload(worker: &txn_sim::Worker) {
    /// let id = format!("order-{}-{}", worker.number(), worker.restarts());
    /// # drop(id);
    /// # }
    /// ```
    #[must_use]
    pub fn number(&self) -> usize {
        self.number
    }

    /// Returns how often the process died or failed before.
    ///
    /// ```
    /// # fn workload(worker: &txn_sim::Worker) {
    /// let is_first_start = worker.restarts() == 0;
    /// # let _ = is_first_start;
    /// # }
    /// ```
    #[must_use]
    pub fn restarts(&self) -> u64 {
        self.restarts
    }

    /// Returns a random number of this range, by the seed of the run.
    ///
    /// ```
    /// # fn workload(worker: &txn_sim::Worker) {
    /// let article = ["apple", "pear", "plum"][worker.random(0..3) as usize];
    /// # let _ = article;
    /// # }
    /// ```
    ///
    /// # Panics
    /// If the range is empty.
    #[must_use]
    pub fn random(&self, range: Range<u64>) -> u64 {
        self.dice.borrow_mut().u64(range)
    }
}
