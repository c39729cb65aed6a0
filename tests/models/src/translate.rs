//! Translates the data of the models into that of the engine.
//!
//! The models have plain data. The engine's data is that of its decisions.

use std::fmt::Debug;
use std::str::FromStr;
use std::sync::{Arc, LazyLock};

use txn_protocol::document::Image;
use txn_protocol::document::{Stored, View};
use txn_protocol::ids::{AttemptId, CommitVersion};
use txn_protocol::machines::attempt::Change;
use txn_protocol::machines::record::RecordVersion;
use txn_protocol::record::Participant;
use txn_protocol::record::{Op, State};
use txn_protocol::rules::conflict::HolderState;
use txn_protocol::rules::validate::Observed;
use txn_store::{Source, Version};

use crate::scenario::Use;
use crate::state::{ATTEMPTS, Deed, Doc, Mark, RECORDS, Rec, Seen, TXNS, Who};

/// The maximum number of commits in one causal chain of a model.
const COMMITS: usize = 8;

static TIDS: LazyLock<Vec<AttemptId>> = LazyLock::new(|| {
    (0..RECORDS).map(|r| timeuuid(0x10 + r / ATTEMPTS, r % ATTEMPTS, 0)).collect()
});
static STAMPS: LazyLock<Vec<CommitVersion>> = LazyLock::new(|| {
    (0..COMMITS * TXNS).map(|stamp| timeuuid(0x40 + stamp, 0, stamp % TXNS)).collect()
});
static IMAGES: LazyLock<Vec<Image>> = LazyLock::new(|| {
    (0..=TXNS).map(|n| Image::parse(&format!("{{\"n\":{n}}}")).unwrap_or_default()).collect()
});
static SOURCE: LazyLock<Source> = LazyLock::new(|| "{}".into());
static NAME: LazyLock<Arc<str>> = LazyLock::new(|| "d".into());

fn timeuuid<Id: FromStr<Err: Debug>>(ticks: usize, attempt: usize, process: usize) -> Id {
    let text = format!("5e1f00{ticks:02x}-c6a1-11f0-80{attempt:02x}-0123456789{process:02x}");
    text.parse().expect("a version 1 UUID")
}

/// The tid of an attempt. A transaction with a lower number is older.
pub(crate) fn tid(who: Who) -> AttemptId {
    TIDS[usize::from(who) - 1]
}

/// The attempt of a tid.
pub(crate) fn who(tid: AttemptId) -> Who {
    let at = TIDS.iter().position(|t| *t == tid).expect("a tid of the model");
    u8::try_from(at + 1).unwrap_or_default()
}

/// The version of a stamp. Each transaction is committed by a process of its own.
pub(crate) fn commit_version(stamp: u8) -> CommitVersion {
    STAMPS[usize::from(stamp)]
}

/// The stamp of a commit: the least one later than all reads. Every clock is slow.
pub(crate) fn stamp(after: u8, txn: usize) -> u8 {
    let txns = u8::try_from(TXNS).unwrap_or_default();
    (after / txns + 1) * txns + u8::try_from(txn).unwrap_or_default()
}

/// A version of the store.
pub(crate) fn version(number: u8) -> Version {
    Version::new(1, u64::from(number))
}

/// A version of a document in a collection made again.
///
/// The collection was made again `era` times.
pub(crate) fn version_in(era: u8, number: u8) -> Version {
    Version { incarnation: 1 + u64::from(era), ..version(number) }
}

fn lock(who: Who) -> Option<AttemptId> {
    (who > 0).then(|| tid(who))
}

fn image(doc: bool, writer: u8) -> Image {
    if doc { IMAGES[usize::from(writer)].clone() } else { Image::default() }
}

/// A document as the engine reads it.
pub(crate) fn view(doc: &Doc) -> View {
    if doc.version == 0 {
        return View::Absent;
    }
    let stored = Stored {
        lock: lock(doc.lock),
        commit_version: (!doc.absent).then(|| commit_version(doc.stamp)),
        recent: (0..u8::try_from(STAMPS.len()).unwrap_or_default())
            .filter(|stamp| doc.recent & (1 << *stamp) != 0)
            .map(commit_version)
            .collect(),
        absent: doc.absent,
        image: image(!doc.absent, doc.writer),
    };
    View::Present { version: version_in(doc.era, doc.version), source: SOURCE.clone(), stored }
}

/// A read of a transaction.
pub(crate) fn observed(seen: &Seen) -> Observed {
    Observed {
        version: (seen.version > 0).then(|| version_in(seen.era, seen.version)),
        commit_version: (!seen.absent).then(|| commit_version(seen.stamp)),
        image: (!seen.absent).then(|| image(true, seen.writer)),
        holder: lock(seen.holder),
    }
}

/// The document as it was read, for the comparison of its lock.
pub(crate) fn stored(seen: &Seen) -> Stored {
    let tid = (!seen.absent).then(|| commit_version(seen.stamp));
    Stored {
        lock: lock(seen.holder),
        commit_version: tid,
        absent: seen.absent,
        ..Stored::default()
    }
}

/// A participant of a record.
pub(crate) fn participant(rec: &Rec, d: usize) -> Option<Participant> {
    let placed = version_in(rec.eras[d], rec.versions[d]);
    let (op, expected, placeholder) = match rec.deeds[d] {
        Deed::None => return None,
        Deed::Write => (Op::Write, Some(placed), None),
        Deed::Delete => (Op::Delete, Some(placed), None),
        Deed::Insert => (Op::Insert, None, Some(placed)),
        Deed::Read => (Op::Read, None, (rec.versions[d] > 0).then_some(placed)),
    };
    // The lock is on a document, or on a placeholder.
    let before = placeholder.is_none().then(|| commit_version(rec.before[d]));
    Some(Participant {
        collection: NAME.clone(),
        id: NAME.clone(),
        routing: None,
        op,
        expected,
        placeholder,
        before,
    })
}

/// A record, as a process that finds its locks reads it.
pub(crate) fn holder_state(mark: Mark) -> HolderState {
    match mark {
        Mark::Missing => HolderState::Missing,
        Mark::Pending => HolderState::Record(State::Pending),
        Mark::Committed => HolderState::Record(State::Committed),
        Mark::Finished => HolderState::Record(State::Finished),
        Mark::Aborted => HolderState::Record(State::Aborted),
    }
}

/// The same, with its version.
pub(crate) fn standing(rec: &Rec) -> RecordVersion {
    RecordVersion {
        state: holder_state(rec.mark),
        version: (rec.version > 0).then(|| version(rec.version)),
    }
}

/// The intended change of a document.
pub(crate) fn change(what: Use) -> Change {
    match what {
        Use::Put => Change::Put,
        Use::Insert => Change::Insert,
        Use::Delete => Change::Delete,
        Use::Read | Use::No => Change::Read,
    }
}

/// The operation on a participant, in the terms of the models.
pub(crate) fn deed(op: Op) -> Deed {
    match op {
        Op::Write => Deed::Write,
        Op::Delete => Deed::Delete,
        Op::Insert => Deed::Insert,
        Op::Read => Deed::Read,
    }
}

#[cfg(test)]
mod tests {
    use txn_protocol::rule::Rules;
    use txn_protocol::rules::apply::{Applying, Committed, applying};

    use super::*;
    use crate::state::{Body, World};

    /// No case reaches this verdict, because no case has plain clients. The lists of the documents
    /// would reveal it.
    #[test]
    fn write_that_skips_a_commit_is_detected() {
        let mut world = World::default();
        let mut write = |writer: u8, stamp: u8| {
            let doc = Doc { version: 1, writer, stamp, ..Doc::default() };
            world.carry_out(Body::Doc(0, doc), false);
            world.docs[0].now
        };
        let mut rec = Rec { stamp: stamp(0, 0), ..Rec::default() };
        rec.deeds[0] = Deed::Write;
        let participant = participant(&rec, 0).unwrap();
        let commit = commit_version(rec.stamp);
        let committed = Committed { tid: tid(1), commit, applied: false, elsewhere: false };
        write(0, 0);
        let passed_over = view(&write(2, stamp(0, 1)));
        let step = applying(&Rules::all(), committed, &participant, None, &passed_over);
        assert!(matches!(step, Applying::Overtaken(_)), "{step:?}");
        write(1, rec.stamp);
        let followed = view(&write(2, stamp(rec.stamp, 1)));
        let step = applying(&Rules::all(), committed, &participant, None, &followed);
        assert!(matches!(step, Applying::Touch(_)), "{step:?}");
    }
}
