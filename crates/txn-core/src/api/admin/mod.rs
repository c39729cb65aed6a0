//! The operator's calls of a domain.

mod abort;
mod commits;
mod locks;
mod maintenance;
mod rebuild;
mod release;
pub(crate) mod report;
mod scan;
pub(crate) mod signals;
mod transactions;

use crate::engine::SharedEngine;

/// The operator's calls of a domain: inspection, recovery, repair and removal.
///
/// Applications need none of these calls. The processes of a domain recover transactions, and drop
/// old days, without an operator.
///
/// ```
/// # use txn_core::{Domain, Error};
/// # async fn look_after(domain: &Domain) -> Result<(), Error> {
/// let admin = domain.admin();
/// for lock in admin.locks(100).await?.locks {
///     println!("{lock:?}");
/// }
/// let inspected = admin.inspect().await?; // changes nothing
/// let recovered = admin.janitor_pass().await?; // recovers transactions of dead processes
/// println!("{inspected:?} {recovered:?}");
/// for open in admin.transactions(100).await?.transactions {
///     println!("{}: {:?}", open.tid, admin.participants(open.tid).await?);
/// }
/// for process in admin.processes().await? {
///     println!("{process:?}");
/// }
/// println!("{:?}", admin.waiters(10).await?); // with `Config::with_write_contention`
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Admin<'a> {
    engine: &'a SharedEngine,
}

impl<'a> Admin<'a> {
    pub(super) fn new(engine: &'a SharedEngine) -> Self {
        Self { engine }
    }
}
