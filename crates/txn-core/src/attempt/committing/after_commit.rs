//! Hand-off or apply of the documents after the commit.
//!
//! A record is marked as finished once all of its documents are applied.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::FuturesUnordered;

use crate::attempt::Attempt;
use crate::attempt::committing::commit_outcome::CommittedRecord;
use crate::config::WaitFor;
use crate::engine::apply::progress::Unapplied;
use crate::engine::attempt_error::AttemptError;
use crate::engine::deadline::Deadline;
use crate::engine::hot::handoff::{LINGER, MAX_DEPTH, Published};
use crate::engine::table::own_record::OwnRecord;
use crate::error::ErrorKind;
use crate::event::{DamageCause, Event};
use txn_protocol::document::View;
use txn_protocol::record::{Participant, Record};
use txn_store::Key;

/// Applies the commit and finishes its record. Returns whether all is done.
///
/// `hands_off`: the next transactions may take over the documents before they are applied.
pub(in crate::attempt) async fn complete(
    attempt: &Arc<Attempt>,
    committed: CommittedRecord,
    hands_off: bool,
) -> bool {
    let hands_off = hands_off && attempt.engine.hot.has_groups;
    let published = hands_off.then(|| publish(attempt, &committed)).flatten();
    apply_and_finish(attempt, committed, published).await
}

/// Applies the commit, off the critical path. Returns whether all is done.
#[tracing::instrument(
    name = "apply",
    parent = &attempt.span,
    level = "debug",
    skip_all,
    fields(tid = %attempt.tid, attempt = attempt.tid.attempt(), db.operation.batch.size = committed.record.participants.len())
)]
async fn apply_and_finish(
    attempt: &Arc<Attempt>,
    committed: CommittedRecord,
    published: Option<Published>,
) -> bool {
    let engine = &attempt.engine;
    let CommittedRecord { record, version, may_be_seen, known } = committed;
    let own_record = (!may_be_seen).then(|| Arc::new(OwnRecord::new(record.clone(), version)));
    let keys: BTreeSet<Key> = record.participants.iter().map(Participant::key).collect();
    let deadline = engine.context.deadline(engine.context.config.timeout);
    // Only evicted members used the other documents.
    attempt.hot.reservations.give_back(&|key| !keys.contains(key));
    let applied = async {
        let is_later = |key: &Key| published.as_ref().is_some_and(|it| it.keys.contains(key));
        let at_once = keys.iter().filter(|key| !is_later(key)).cloned().collect();
        let apply = ApplyContext { record: &record, own_record, deadline: &deadline };
        let at_once = apply_documents(attempt, &apply, at_once, &known);
        let later = async {
            match &published {
                Some(published) => apply_untaken(attempt, &apply, published, &known).await,
                None => Ok(Unapplied::new()),
            }
        };
        let (at_once, later) = futures::future::join(at_once, later).await;
        attempt.hot.reservations.free_all();
        // The documents are free, so the turn of the process does not wait for the record.
        attempt.hot.under_way.lock().take();
        let mut unapplied = at_once?;
        unapplied.extend(later?);
        if attempt.options.wait_for == WaitFor::Refresh {
            refresh(attempt, &keys).await?;
        }
        if unapplied.is_empty() {
            engine.applier.finish(&record, version, &deadline).await?;
            engine.context.emit(&Event::Finished { tid: attempt.tid });
        }
        Ok::<bool, AttemptError>(unapplied.is_empty())
    };
    let done = applied.await;
    if let Err(error) = &done {
        tell_unfinished(attempt, error);
    }
    engine.live_attempts.forget(attempt.tid);
    engine.hot.lock_queues.release(&keys);
    let done = done.unwrap_or(false);
    if !done {
        engine.context.lifecycle.leave_over();
    }
    done
}

/// Reports why the commit is not applied.
fn tell_unfinished(attempt: &Attempt, error: &AttemptError) {
    let why = error.to_string();
    tracing::warn!(tid = %attempt.tid, why, "committed, and left to the janitor to apply");
    if let AttemptError::Fail(error) = error
        && error.kind() == ErrorKind::Damaged
    {
        // The caller received a success, so that only this event reports the damage.
        let document = error.document().cloned();
        let document = document.unwrap_or_else(|| attempt.engine.table.record_key(attempt.tid));
        let (tid, cause) = (attempt.tid, DamageCause::NotApplicable);
        attempt.engine.context.emit(&Event::Damaged { tid, document, cause, what: why });
    }
}

/// Publishes the documents in the hand-off table, up to `MAX_DEPTH` hand-offs.
fn publish(attempt: &Attempt, committed: &CommittedRecord) -> Option<Published> {
    let CommittedRecord { record, known, .. } = committed;
    let engine = &attempt.engine;
    // The limit counts for all documents together: another process may request several of them.
    let depth = attempt.locks.lock().held.values().map(|held| held.depth).max().unwrap_or(0);
    if depth >= MAX_DEPTH {
        return None;
    }
    let view = |(index, participant): (usize, &Participant)| {
        let key = participant.key();
        let view = engine.recent.under_next_lock(record, index, known.get(&key)?)?;
        Some((key, view))
    };
    let views: BTreeMap<Key, View> =
        record.participants.iter().enumerate().filter_map(view).collect();
    let published = Published::new(&engine.hot, views, depth + 1);
    engine.hot.lock_queues.release(&published.keys);
    attempt.hot.reservations.give_back(&|key| published.keys.contains(key));
    Some(published)
}

/// Applies the published documents that no later transaction locks.
///
/// A document is applied if no transaction takes the document within `LINGER`, or if the taker
/// did not lock the document.
async fn apply_untaken(
    attempt: &Arc<Attempt>,
    apply: &ApplyContext<'_>,
    published: &Published,
    known: &BTreeMap<Key, View>,
) -> Result<Unapplied, AttemptError> {
    let engine = &attempt.engine;
    let (published, mut untold) = (&published.commit, published.keys.clone());
    tokio::select! {
        biased;
        () = published.returned() => {}
        () = engine.context.config.clock.sleep(LINGER) => {}
    }
    let mut under_way = FuturesUnordered::new();
    let mut unapplied = Unapplied::new();
    loop {
        engine.hot.handoffs.decline(&attempt.hot.reservations.reclaim(published.untaken()));
        let returned = published.take_returned();
        untold.retain(|key| !returned.contains(key));
        let taken_over: Vec<Key> = untold.extract_if(.., |key| !published.contains(key)).collect();
        release_turn(attempt, &taken_over);
        if !returned.is_empty() {
            under_way.push(apply_documents(attempt, apply, returned, known));
        } else if published.is_settled() && under_way.is_empty() {
            return Ok(unapplied);
        }
        tokio::select! {
            biased;
            Some(applied) = under_way.next() => unapplied.extend(applied?),
            () = published.changed() => {}
            () = engine.context.config.clock.sleep(engine.context.config.lease / 4) => {
                engine.hot.handoffs.overdue(published);
            }
        }
    }
}

/// Applies documents, and returns each to the queue after its apply.
async fn apply_documents(
    attempt: &Arc<Attempt>,
    apply: &ApplyContext<'_>,
    keys: BTreeSet<Key>,
    known: &BTreeMap<Key, View>,
) -> Result<Unapplied, AttemptError> {
    if keys.is_empty() {
        return Ok(Unapplied::new());
    }
    let ApplyContext { record, own_record, deadline } = apply;
    let known = |key: &Key| Some((key.clone(), known.get(key)?.clone()));
    let known = keys.iter().filter_map(known).collect();
    let (record, own_record) = ((*record).clone(), own_record.clone());
    let this = attempt.clone();
    let give_back = move |keys: &BTreeSet<Key>| {
        release_turn(&this, keys);
        this.engine.hot.lock_queues.release(keys);
        this.hot.reservations.give_back(&|key| keys.contains(key));
        if !this.hot.reservations.has_documents() {
            this.engine.hot.start_groups();
        }
    };
    let on_settled = Box::new(give_back.clone());
    let applied = attempt.engine.recovery.apply(
        &record,
        known,
        keys.clone(),
        own_record,
        on_settled,
        deadline,
    );
    let unapplied = applied.await;
    give_back(&keys);
    unapplied
}

/// Ends the wait of the process's turn for documents of the commit.
fn release_turn<'k>(attempt: &Attempt, keys: impl IntoIterator<Item = &'k Key>) {
    if let Some(under_way) = &mut *attempt.hot.under_way.lock() {
        under_way.release_turn(keys);
    }
}

async fn refresh(
    attempt: &Attempt,
    keys: impl IntoIterator<Item = &Key>,
) -> Result<(), AttemptError> {
    let deadline = attempt.engine.context.deadline(attempt.engine.context.config.timeout);
    let collections: BTreeSet<Arc<str>> =
        keys.into_iter().map(|key| key.collection.clone()).collect();
    for collection in collections {
        attempt.engine.store.refresh(&collection, &deadline).await?;
    }
    Ok(())
}

pub(in crate::attempt) async fn refresh_if_asked(
    attempt: &Attempt,
    keys: impl IntoIterator<Item = &Key>,
) {
    if attempt.options.wait_for == WaitFor::Refresh
        && let Err(error) = refresh(attempt, keys).await
    {
        tracing::warn!(tid = %attempt.tid, why = %error.into_error(), "committed, but not refreshed");
    }
}

/// The parts that each apply of a commit shares.
struct ApplyContext<'a> {
    record: &'a Arc<Record>,
    own_record: Option<Arc<OwnRecord>>,
    deadline: &'a Deadline,
}
