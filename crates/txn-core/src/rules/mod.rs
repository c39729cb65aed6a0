//! The decisions of the protocol: pure functions over plain data, without clocks, tasks or stores.
//! The driver asks them and carries out what they say; models and simulations ask the same ones.
//!
//! - [`conflict`]: somebody else's lock is in the way: wait, or put its holder aside?
//! - [`resolve`]: what a reader answers and what a recoverer does, by the holder's record.
//! - [`lock`]: what stands there after one's own lock was not acknowledged.
//! - [`validate`]: is a read still what it was?
//! - [`apply`]: what remains to be done to one member of a committed or aborted transaction.
//! - [`single`]: did a write without a record happen?
//! - [`staged`]: parallel commit. The models use it; the driver does not yet, so it is there with the feature `testing` only.

pub(crate) mod apply;
pub(crate) mod conflict;
pub(crate) mod lock;
pub(crate) mod resolve;
pub(crate) mod single;
#[cfg(feature = "testing")]
pub(crate) mod staged;
pub(crate) mod validate;

#[cfg(test)]
pub(crate) mod testing {
    //! Plain data for the tables.

    use crate::document::{Image, Stored, View};
    use crate::store::Version;
    use crate::tid::Tid;

    /// The tid of a transaction: less is older.
    pub(crate) fn tid(age: u8, attempt: u16) -> Tid {
        let base: Tid =
            format!("5e1f00{age:02x}-c6a1-11f0-8000-0123456789ab").parse().expect("a tid");
        base.with_attempt(attempt)
    }

    pub(crate) fn version(seq_no: u64) -> Version {
        Version { term: 1, seq_no }
    }

    pub(crate) fn image(n: u64) -> Image {
        Image::parse(&format!("{{\"n\":{n}}}")).expect("valid")
    }

    pub(crate) fn view(seq_no: u64, stored: Stored) -> View {
        View::Present { version: version(seq_no), source: stored.encode(), stored }
    }
}
