//! After the commit: the documents are handed off to the next transactions or applied, and the
//! record is marked as finished.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::FuturesUnordered;

use super::Attempt;
use super::commit::CommittedRecord;
use crate::config::Acknowledge;
use crate::engine::apply::Unapplied;
use crate::engine::attempt_error::AttemptError;
use crate::engine::deadline::Deadline;
use crate::engine::hot::handoff::{self, LINGER, MAX_DEPTH, Published};
use crate::engine::own_record::OwnRecord;
use crate::error::ErrorKind;
use crate::event::Event;
use crate::store::Key;
use txn_protocol::document::View;
use txn_protocol::record::{Participant, Record};

impl Attempt {
    /// Applies the commit and marks its record. `hands_off`: the next transactions may lock the
    /// documents over this commit. Returns whether all of it is done.
    pub(super) async fn complete(
        self: &Arc<Self>,
        committed: CommittedRecord,
        hands_off: bool,
    ) -> bool {
        let hands_off = hands_off && self.engine.hot.has_groups;
        let published = hands_off.then(|| self.publish(&committed)).flatten();
        self.finish(committed, published).await
    }

    /// Applies what was committed, off the critical path. Returns whether all of it is done.
    #[tracing::instrument(name = "apply", level = "debug", skip_all, fields(tid = %self.tid, attempt = self.tid.attempt()))]
    async fn finish(
        self: &Arc<Self>,
        committed: CommittedRecord,
        published: Option<Published>,
    ) -> bool {
        let engine = &self.engine;
        let CommittedRecord { record, version, first, known } = committed;
        let own_record = first.map(|version| Arc::new(OwnRecord::new(record.clone(), version)));
        let keys: BTreeSet<Key> = record.participants.iter().map(Participant::key).collect();
        let deadline = engine.deadline(engine.config.deadline);
        // Only members that were evicted wanted the other documents.
        self.hot.seat.give_back(&|key| !keys.contains(key));
        let applied = async {
            let is_later = |key: &Key| published.as_ref().is_some_and(|it| it.keys.contains(key));
            let at_once = keys.iter().filter(|key| !is_later(key)).cloned().collect();
            let apply = Application { record: &record, own_record, deadline: &deadline };
            let at_once = self.apply_documents(&apply, at_once, &known);
            let later = async {
                match &published {
                    Some(published) => self.apply_untaken(&apply, &published.commit, &known).await,
                    None => Ok(Unapplied::new()),
                }
            };
            let (at_once, later) = futures::future::join(at_once, later).await;
            self.hot.seat.leave();
            let mut unapplied = at_once?;
            unapplied.extend(later?);
            if self.options.acknowledge == Acknowledge::Searchable {
                self.refresh(&keys).await?;
            }
            if unapplied.is_empty() {
                engine.finish(&record, version, &deadline).await?;
                engine.emit(&Event::Finished { tid: self.tid });
            }
            Ok::<bool, AttemptError>(unapplied.is_empty())
        };
        let done = applied.await;
        if let Err(error) = &done {
            self.tell_unfinished(error);
        }
        engine.live_attempts.forget(self.tid);
        engine.live_attempts.release(&keys);
        self.hot.under_way.lock().take();
        let done = done.unwrap_or(false);
        if !done {
            engine.lifecycle.leave_over();
        }
        done
    }

    /// Says why what is committed is not applied.
    fn tell_unfinished(&self, error: &AttemptError) {
        let why = error.to_string();
        tracing::warn!(tid = %self.tid, why, "committed, and left to the janitor to apply");
        if let AttemptError::Fail(error) = error
            && error.kind() == ErrorKind::Damaged
        {
            // The caller was told that it is committed: nobody else would learn of this.
            let document = error.document().cloned();
            let document = document.unwrap_or_else(|| self.engine.table.record_key(self.tid));
            self.engine.emit(&Event::Damaged { tid: self.tid, document, what: why });
        }
    }

    /// Publishes the documents in the hand-off table, if they were not handed on too often.
    fn publish(&self, committed: &CommittedRecord) -> Option<Published> {
        let CommittedRecord { record, known, .. } = committed;
        let engine = &self.engine;
        // All documents together: other processes may want several of them.
        let depth = self.locks.lock().held.values().map(|held| held.depth).max().unwrap_or(0);
        if depth >= MAX_DEPTH {
            return None;
        }
        let view = |(index, participant): (usize, &Participant)| {
            let key = participant.key();
            let view = engine.under_next_lock(record, index, known.get(&key)?)?;
            Some((key, view))
        };
        let views: BTreeMap<Key, View> =
            record.participants.iter().enumerate().filter_map(view).collect();
        let published = Published::new(engine, views, depth + 1);
        engine.live_attempts.release(&published.keys);
        self.hot.seat.give_back(&|key| published.keys.contains(key));
        Some(published)
    }

    /// Applies published documents: those that no transaction takes within a moment, and those
    /// whose taker did not lock them.
    async fn apply_untaken(
        self: &Arc<Self>,
        apply: &Application<'_>,
        published: &handoff::Unapplied,
        known: &BTreeMap<Key, View>,
    ) -> Result<Unapplied, AttemptError> {
        let engine = &self.engine;
        tokio::select! {
            biased;
            () = published.returned() => {}
            () = engine.config.clock.sleep(LINGER) => {}
        }
        let mut under_way = FuturesUnordered::new();
        let mut unapplied = Unapplied::new();
        loop {
            engine.hot.handoffs.decline(&self.hot.seat.reclaim(published.untaken()));
            let returned = published.take_returned();
            if !returned.is_empty() {
                under_way.push(self.apply_documents(apply, returned, known));
            } else if published.is_settled() && under_way.is_empty() {
                return Ok(unapplied);
            }
            tokio::select! {
                biased;
                Some(applied) = under_way.next() => unapplied.extend(applied?),
                () = published.changed() => {}
                () = engine.config.clock.sleep(engine.config.lease / 4) => {
                    engine.hot.handoffs.overdue(published);
                }
            }
        }
    }

    /// Applies documents, and gives each back to the queue as soon as it is applied.
    async fn apply_documents(
        self: &Arc<Self>,
        apply: &Application<'_>,
        keys: BTreeSet<Key>,
        known: &BTreeMap<Key, View>,
    ) -> Result<Unapplied, AttemptError> {
        if keys.is_empty() {
            return Ok(Unapplied::new());
        }
        let Application { record, own_record, deadline } = apply;
        let known = |key: &Key| Some((key.clone(), known.get(key)?.clone()));
        let known = keys.iter().filter_map(known).collect();
        let (record, own_record) = ((*record).clone(), own_record.clone());
        let this = self.clone();
        let give_back = move |keys: &BTreeSet<Key>| {
            this.engine.live_attempts.release(keys);
            this.hot.seat.give_back(&|key| keys.contains(key));
            if !this.hot.seat.has_documents() {
                this.engine.call_members();
            }
        };
        let on_settled = Box::new(give_back.clone());
        let applied =
            self.engine.apply(&record, known, keys.clone(), own_record, on_settled, deadline);
        let unapplied = applied.await;
        give_back(&keys);
        unapplied
    }

    async fn refresh(&self, keys: impl IntoIterator<Item = &Key>) -> Result<(), AttemptError> {
        let deadline = self.engine.deadline(self.engine.config.deadline);
        let collections: BTreeSet<Arc<str>> =
            keys.into_iter().map(|key| key.collection.clone()).collect();
        for collection in collections {
            self.engine.refresh(&collection, &deadline).await?;
        }
        Ok(())
    }

    pub(super) async fn refresh_if_asked(&self, keys: impl IntoIterator<Item = &Key>) {
        if self.options.acknowledge == Acknowledge::Searchable
            && let Err(error) = self.refresh(keys).await
        {
            tracing::warn!(tid = %self.tid, why = %error.into_error(), "committed, but not refreshed");
        }
    }
}

/// The parts that each apply of a commit shares.
struct Application<'a> {
    record: &'a Arc<Record>,
    own_record: Option<Arc<OwnRecord>>,
    deadline: &'a Deadline,
}
