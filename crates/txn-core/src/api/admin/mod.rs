//! The operator's calls of a domain.

mod abort;
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
#[derive(Clone, Copy, Debug)]
pub struct Admin<'a> {
    engine: &'a SharedEngine,
}

impl<'a> Admin<'a> {
    pub(super) fn new(engine: &'a SharedEngine) -> Self {
        Self { engine }
    }
}
