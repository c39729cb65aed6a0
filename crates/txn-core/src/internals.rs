//! The decisions of the protocol and the data that they take, for the models in `tests/models`. No part of
//! the public API: it changes without notice.

pub use crate::document::{Stored, View};
pub use crate::record::Member;
pub use crate::rules::apply::{Applying, applying, is_locked_by, is_members_lock, voiding};
pub use crate::rules::conflict::{Conflict, HolderState, Requester, conflict};
pub use crate::rules::lock::{Locking, locking};
pub use crate::rules::resolve::{Reading, Recovery, reading, recovery, writes};
pub use crate::rules::single::{Settling, settling};
pub use crate::rules::staged::{
    Answer, Owning, Probed, Probing, StagedReading, Verdict, is_locked, own_record, owning,
    probing, staged_reading, verdict,
};
pub use crate::rules::validate::{Observed, Validity, validity};
