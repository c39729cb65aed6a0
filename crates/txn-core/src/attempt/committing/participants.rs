//! The participants of a record, from held locks and buffered mutations.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use crate::attempt::locking::verify::verify_locks;
use crate::attempt::{Attempt, HeldLock, Locks, Mutation};
use crate::engine::attempt_error::AttemptError;
use crate::engine::history::HistorySettings;
use crate::engine::history::heads::read_head;
use crate::error::{Error, ErrorKind};
use txn_protocol::document::{Image, View};
use txn_protocol::history;
use txn_protocol::ids::CommitVersion;
use txn_protocol::machines::attempt::{Change, operation};
use txn_protocol::machines::invariant::Invariant;
use txn_protocol::record::{Op, Participant};
use txn_store::{Key, Version};

/// The participants of a record, with their contents.
#[derive(Default)]
pub(in crate::attempt) struct Participants {
    pub(in crate::attempt) list: Vec<Participant>,
    /// The new contents, in the same order.
    pub(in crate::attempt) images: Vec<Option<Image>>,
    /// The documents as the acknowledged locks show them.
    pub(in crate::attempt) known: BTreeMap<Key, View>,
    /// The overwritten versions, for collections with history.
    ///
    /// Their writes precede the commit.
    pub(in crate::attempt) past: Past,
}

/// The overwritten versions that the history keeps.
#[derive(Default)]
pub(in crate::attempt) struct Past {
    versions: Vec<(Key, Image)>,
    /// Whether the versions depend on locks held at one moment.
    has_to_be_verified: bool,
}

/// Returns the key of a document's history head, which is written, too.
///
/// The content of the head is known under the locks.
pub(in crate::attempt) fn head_of(attempt: &Attempt, key: &Key) -> Result<Option<Key>, Error> {
    let Some(history) = history_of(attempt, key) else { return Ok(None) };
    let longest = history.version(key, Some(CommitVersion::STAND_IN));
    attempt.engine.store.limits().check(&longest, 0).map_err(|refusal| {
        let message = format!("its past versions cannot be kept: {}", refusal.reason);
        Error::invalid(message).at(key)
    })?;
    Ok(Some(history.head(key)))
}

/// Returns the heads among the writes.
///
/// A head is not written without its document.
pub(in crate::attempt) fn heads_among(
    attempt: &Attempt,
    writes: &BTreeMap<Key, Mutation>,
) -> BTreeSet<Key> {
    writes.keys().filter_map(|key| Some(history_of(attempt, key)?.head(key))).collect()
}

fn history_of(attempt: &Attempt, key: &Key) -> Option<Arc<HistorySettings>> {
    attempt.engine.histories.of(&key.collection)
}

/// Builds the participants of the record from the held locks.
pub(in crate::attempt) fn participants(
    attempt: &Attempt,
    writes: &BTreeMap<Key, Mutation>,
) -> Result<Participants, Error> {
    let Locks { held, uncertain } = &*attempt.locks.lock();
    let acknowledged = held.keys().all(|key| !uncertain.contains(key));
    Invariant::HeldLockAcknowledged.check(acknowledged).map_err(Error::broken)?;
    let mut come_to = Participants::default();
    let heads = heads(attempt, held, writes, &mut come_to.past)?;
    for (key, lock) in held {
        let absent = lock.before.absent;
        let mutation = match heads.get(key) {
            Some(head) => head.as_ref(),
            None => writes.get(key),
        };
        if mutation.and_then(Mutation::image).is_some_and(|image| *image == stand_in()) {
            return Err(opened_again(key));
        }
        let change = mutation.map_or(Change::Read, Mutation::change);
        let op = operation(change, !absent).map_err(|_| Attempt::exists(key))?;
        let placeholder = absent.then_some(lock.version);
        let participant = participant_of(key, op, lock.expected, lock.before.commit_version);
        come_to.list.push(Participant { placeholder, ..participant });
        come_to.images.push(mutation.and_then(|mutation| mutation.image().cloned()));
        come_to.known.insert(key.clone(), lock.view(attempt.tid));
    }
    Ok(come_to)
}

/// Writes the overwritten versions.
///
/// Returns after each version is acknowledged, even if another process wrote the version.
pub(in crate::attempt) async fn keep(attempt: &Attempt, past: Past) -> Result<(), AttemptError> {
    if past.has_to_be_verified {
        // A lock that was lost before the other lock was taken would show a state that never
        // existed.
        verify_locks(attempt).await?;
    }
    attempt.engine.histories.keep_versions(past.versions, &attempt.deadline).await
}

/// Returns the changes of the history heads.
///
/// `None` for the head of a document that is not written.
fn heads(
    attempt: &Attempt,
    held: &BTreeMap<Key, HeldLock>,
    writes: &BTreeMap<Key, Mutation>,
    past: &mut Past,
) -> Result<BTreeMap<Key, Option<Mutation>>, Error> {
    let mut heads = BTreeMap::new();
    for (key, mutation) in writes {
        let Some(kept) = history_of(attempt, key) else { continue };
        let at = kept.head(key);
        let Some(document) = held.get(key) else { continue };
        // The history began after the closure wrote the document.
        let head = held.get(&at).ok_or_else(|| opened_again(key))?;
        let exists = !document.before.absent;
        let op = operation(mutation.change(), exists).map_err(|_| Attempt::exists(key))?;
        if op == Op::Read {
            heads.insert(at, None);
            continue;
        }
        let head = match head.before.absent {
            true => None,
            false => Some((read_head(&at, &head.before.image)?, head.before.commit_version)),
        };
        let known = head.as_ref().map(|(head, tid)| (head, *tid));
        let image = exists.then_some(&document.before.image);
        let before = history::Before { commit_version: document.before.commit_version, image };
        let change = history::Change::of(known, before, op != Op::Delete);
        let damaged = |what: String| Error::damaged(what).at(&at);
        past.has_to_be_verified |= !change.agrees;
        if let Some(version) = change.past {
            let version_at = kept.version(key, change.overwritten);
            past.versions.push((version_at, version.encode().map_err(damaged)?));
        }
        let head = change.head.encode().map_err(damaged)?;
        heads.insert(at.clone(), Some(Mutation::Put(head)));
    }
    Ok(heads)
}

/// The stand-in for a head until its document is locked, never written.
pub(in crate::attempt) fn stand_in() -> Image {
    static STAND_IN: LazyLock<Image> = LazyLock::new(|| {
        Image::parse(r#"{"stands for":"the head of a document"}"#).unwrap_or_default()
    });
    STAND_IN.clone()
}

fn opened_again(key: &Key) -> Error {
    let message = "its collection was opened again meanwhile, with or without its history: run the transaction again";
    Error::new(ErrorKind::Conflict, message).at(key)
}

/// An upper bound for the bytes of a head.
///
/// The links in a head reach back some billions of versions within this bound.
pub(in crate::attempt) const HEAD_BYTES: usize = 4 * 1024;

/// Returns a participant that is no placeholder.
pub(in crate::attempt) fn participant_of(
    key: &Key,
    op: Op,
    expected: Option<Version>,
    before: Option<CommitVersion>,
) -> Participant {
    let (collection, id) = (key.collection.clone(), key.id.clone());
    let routing = key.routing.clone();
    Participant { collection, id, routing, op, expected, placeholder: None, before }
}
