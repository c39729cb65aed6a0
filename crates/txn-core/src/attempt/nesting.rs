//! Detects a nested transaction that would wait for its outer transaction.
//!
//! A nested transaction may use documents that the outer transaction does not hold. A lock of the
//! outer transaction lasts until the nested one ends, so the engine refuses that wait. A cycle
//! through a third transaction is not detected: the outer attempt reaches its time limit and starts
//! again.

use std::sync::Arc;

use txn_protocol::ids::AttemptId;

tokio::task_local! {
    /// The attempts whose closures run around this point, outermost first.
    static ENCLOSING: Arc<[AttemptId]>;
}

/// The attempts whose closures the caller runs in.
pub(crate) fn enclosing() -> Arc<[AttemptId]> {
    ENCLOSING.try_with(Arc::clone).unwrap_or_default()
}

/// Runs the closure of an attempt.
pub(crate) fn within<F: Future>(tid: AttemptId, closure: F) -> impl Future<Output = F::Output> {
    let attempts: Arc<[AttemptId]> = enclosing().iter().copied().chain([tid]).collect();
    ENCLOSING.scope(attempts, closure)
}
