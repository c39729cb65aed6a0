//! The decisions of the protocol: pure functions over plain data.
//!
//! Decisions have no clock, no task and no store. The engine carries the decisions out; models and
//! simulations call the same functions.
//!
//! - [`conflict`]: whether to wait for the holder of a lock, or to decide the holder.
//! - [`resolve`]: what a reader answers and what a recovery writes, by the holder's record.
//! - [`lock`]: the next step towards a lock.
//! - [`validate`]: whether a read is still current.
//! - [`apply`]: the next step of one participant of a committed or aborted transaction.
//! - [`single`]: whether a write without a record happened.
//! - [`recent`]: the last commits that a document keeps as evidence.

pub mod apply;
pub mod conflict;
pub mod lock;
pub mod recent;
#[cfg(test)]
mod recent_histories;
pub mod resolve;
pub mod single;
pub mod validate;

#[cfg(any(test, feature = "testing"))]
pub mod testing {
    //! Plain data for the tables of the tests.

    use crate::document::{Image, Stored, View};
    use crate::ids::{AttemptId, CommitVersion};
    use txn_store::Version;

    /// The tid of a transaction: less is older.
    ///
    /// # Panics
    /// Never.
    #[must_use]
    pub fn tid(age: u8, attempt: u16) -> AttemptId {
        let base: AttemptId =
            format!("5e1f00{age:02x}-c6a1-11f0-8000-0123456789ab").parse().expect("a tid");
        base.with_attempt(attempt)
    }

    /// The version of a commit: less is earlier.
    ///
    /// # Panics
    /// Never.
    #[must_use]
    pub fn commit(age: u8) -> CommitVersion {
        commit_of(0xab, age)
    }

    /// The version of a commit of this process.
    ///
    /// # Panics
    /// Never.
    #[must_use]
    pub fn commit_of(process: u8, age: u8) -> CommitVersion {
        let text = format!("5e1f00{age:02x}-c6a1-11f0-8000-0123456789{process:02x}");
        text.parse().expect("a version")
    }

    /// A version of the first term.
    #[must_use]
    pub fn version(seq_no: u64) -> Version {
        Version::new(1, seq_no)
    }

    /// A content with the number `n`.
    ///
    /// # Panics
    /// Never.
    #[must_use]
    pub fn image(n: u64) -> Image {
        Image::parse(&format!("{{\"n\":{n}}}")).expect("valid")
    }

    /// A read of a document at this version.
    #[must_use]
    pub fn view(seq_no: u64, stored: Stored) -> View {
        View::Present { version: version(seq_no), source: stored.encode(), stored }
    }
}
