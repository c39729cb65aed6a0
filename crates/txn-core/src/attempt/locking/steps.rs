//! The next step towards one lock.

use crate::attempt::Attempt;
use crate::attempt::locking::lock_request::{LockRequest, LockStep};
use crate::engine::attempt_error::{AttemptError, RetryReason};
use crate::engine::recovery::roll_forward::Resolution;
use crate::error::Error;
use txn_protocol::document::{Stored, View};
use txn_protocol::rules::lock::{Locking, locking};
use txn_store::{Key, WriteOp};

/// Returns the next step towards one lock.
///
/// `resolved`: the resolution of the lock that blocks the document, if there is one.
pub(super) fn step(
    attempt: &Attempt,
    key: &Key,
    request: &mut LockRequest,
    resolved: Option<&Resolution>,
) -> Result<LockStep, AttemptError> {
    let Some(view) = &request.view else { return Ok(LockStep::LookAgain) };
    match (locking(&attempt.engine.context.rules, attempt.tid, request.read.as_ref(), view), view) {
        (Locking::CreatePlaceholder, _) => {
            Ok(LockStep::Write(WriteOp::Create(Stored::placeholder(attempt.tid).encode())))
        }
        (Locking::LockAt(version), View::Present { stored, .. }) => {
            if stored.absent && !stored.is_bare_placeholder() {
                cov_mark::hit!(placeholder_was_filled);
                let message = "another client wrote content into the placeholder of a transaction";
                return Err(Error::damaged(message).at(key).into());
            }
            let locked = stored.locked_by(Some(attempt.tid)).encode();
            Ok(LockStep::Write(WriteOp::Replace(locked, version)))
        }
        (Locking::Settle(version), View::Present { source, .. }) => {
            cov_mark::hit!(lost_lock_found_again);
            Ok(LockStep::Write(WriteOp::Replace(source.clone(), version)))
        }
        (Locking::Changed, _) => Err(AttemptError::Retry(RetryReason::Changed(key.clone()))),
        (Locking::Held(holder), View::Present { .. }) => {
            request.view = None;
            let busy = resolved == Some(&Resolution::Blocked);
            Ok(if busy { LockStep::Blocked(holder) } else { LockStep::LookAgain })
        }
        (Locking::LockAt(_) | Locking::Settle(_) | Locking::Held(_), View::Absent) => {
            Err(Error::damaged("an absent document has no lock").at(key).into())
        }
    }
}
