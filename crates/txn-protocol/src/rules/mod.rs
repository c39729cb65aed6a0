//! The decisions of the protocol: pure functions over plain data, without clocks, tasks or stores.
//! The driver asks them and carries out what they say; models and simulations ask the same ones.
//!
//! - [`conflict`]: somebody else's lock is in the way: wait, or put its holder aside?
//! - [`resolve`]: what a reader answers and what a recoverer does, by the holder's record.
//! - [`lock`]: what stands there after one's own lock was not acknowledged.
//! - [`validate`]: is a read still what it was?
//! - [`apply`]: what remains to be done to one participant of a committed or aborted transaction.
//! - [`single`]: did a write without a record happen?
//! - [`recent`]: which of its last commits does a document keep, to tell?

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
    //! Plain data for the tables.

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

    /// A content.
    ///
    /// # Panics
    /// Never.
    #[must_use]
    pub fn image(n: u64) -> Image {
        Image::parse(&format!("{{\"n\":{n}}}")).expect("valid")
    }

    /// A document as it is seen.
    #[must_use]
    pub fn view(seq_no: u64, stored: Stored) -> View {
        View::Present { version: version(seq_no), source: stored.encode(), stored }
    }
}
