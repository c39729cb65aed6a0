//! Transactions that are begun inside the closure of another one. Such a transaction may use other documents; one that
//! the outer transaction holds would be waited for until the deadline, for the outer one goes on only when
//! the inner one has ended. That is refused. A circle through a third transaction (the inner one waits for a stranger,
//! who waits for the outer one) is not seen: the outer one comes to the limit of an attempt, and starts again.

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
