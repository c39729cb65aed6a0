//! Behind the commit: the documents are applied, or left to the next group to be locked over the commit, and the record is marked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Attempt;
use super::commit::CommittedRecord;
use crate::config::Acknowledge;
use crate::engine::apply::Unapplied;
use crate::engine::attempt_error::AttemptError;
use crate::engine::deadline::Deadline;
use crate::engine::own_record::OwnRecord;
use crate::engine::succession::{LONGEST_CHAIN, LockedOver};
use crate::error::ErrorKind;
use crate::event::Event;
use crate::store::Key;
use txn_protocol::document::View;
use txn_protocol::record::{Participant, Record};

/// How many rounds of the runtime somebody is waited for who takes documents over.
const ROUNDS: usize = 4;

impl Attempt {
    /// Applies the commit and marks its record. `hands_over`: the next group may lock documents over
    /// this commit. Returns whether all of it is done.
    pub(super) async fn complete(
        self: &Arc<Self>,
        committed: CommittedRecord,
        hands_over: bool,
    ) -> bool {
        let left = match hands_over {
            true => self.leave_to_next(&committed).await,
            false => BTreeMap::new(),
        };
        self.finish(committed, left).await
    }

    /// Applies what was committed, off the critical path. Returns whether all of it is done.
    #[tracing::instrument(name = "apply", level = "debug", skip_all, fields(tid = %self.tid, attempt = self.tid.attempt()))]
    async fn finish(
        self: &Arc<Self>,
        committed: CommittedRecord,
        left: BTreeMap<Key, LockedOver>,
    ) -> bool {
        let engine = &self.engine;
        let CommittedRecord { record, version, first, mut known } = committed;
        let own_record = first.map(|version| Arc::new(OwnRecord::new(record.clone(), version)));
        let keys: Vec<Key> = record.participants.iter().map(Participant::key).collect();
        let deadline = engine.deadline(engine.config.deadline);
        let applied = async {
            let left_keys: BTreeSet<Key> = left.keys().cloned().collect();
            let is_own = |key: &Key| !left_keys.contains(key);
            let own = known.extract_if(.., |key, _| is_own(key)).collect();
            let own = async {
                let wanted = keys.iter().filter(|key| is_own(key)).cloned().collect();
                let unapplied =
                    engine.apply(&record, own, wanted, own_record.clone(), &deadline).await;
                engine.live_attempts.release(keys.iter().filter(|key| is_own(key)));
                self.seat.give_back(&is_own);
                unapplied
            };
            let left = self.apply_unless_locked_over(&record, known, left, &own_record, &deadline);
            let (own, left) = futures::future::join(own, left).await;
            self.seat.leave();
            let mut unapplied = own?;
            unapplied.extend(left?);
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

    /// Leaves documents to the group that comes next, as far as one is ready: it locks them over this commit. Returns which it
    /// took, and who tells of the lock.
    async fn leave_to_next(&self, committed: &CommittedRecord) -> BTreeMap<Key, LockedOver> {
        let CommittedRecord { record, known, .. } = committed;
        let successions = &self.engine.successions;
        let mut left = BTreeMap::new();
        if !self.seat.has_documents() {
            return left;
        }
        // All of them at once: others may want several, too.
        let chain = self.locks.lock().held.values().map(|held| held.chain).max().unwrap_or(0);
        if chain >= LONGEST_CHAIN || !self.is_followed().await {
            return left;
        }
        for (index, participant) in record.participants.iter().enumerate() {
            let key = participant.key();
            let view = known.get(&key).and_then(|v| self.engine.under_next_lock(record, index, v));
            if let Some(view) = view {
                let locked_over = successions.leave(&key, view, chain + 1);
                left.insert(key, locked_over);
            }
        }
        let taken = self.seat.hand_over(&left.keys().cloned().collect(), chain + 1).await;
        successions.withdraw(left.keys().filter(|key| !taken.contains(*key)));
        left.retain(|key, _| taken.contains(key));
        left
    }

    /// Whether somebody wants to write some of its documents next: whoever was just told that it is committed may begin anew. Where
    /// nobody is ready to run, this takes no time.
    async fn is_followed(&self) -> bool {
        for _ in 0..ROUNDS {
            if self.seat.is_awaited() {
                return true;
            }
            tokio::task::yield_now().await;
        }
        self.seat.is_awaited()
    }

    /// Of what was left to the next group, applies what it does not lock, each document as soon as that is known.
    async fn apply_unless_locked_over(
        &self,
        record: &Arc<Record>,
        mut known: BTreeMap<Key, View>,
        left: BTreeMap<Key, LockedOver>,
        own: &Option<Arc<OwnRecord>>,
        deadline: &Deadline,
    ) -> Result<Unapplied, AttemptError> {
        let engine = &self.engine;
        let each = left.into_iter().map(|(key, locked_over)| {
            let known = known.remove_entry(&key).into_iter().collect();
            async move {
                let unapplied = match self.is_locked_over(&key, locked_over).await {
                    true => Ok(Unapplied::new()),
                    false => {
                        let wanted = [key.clone()].into();
                        engine.apply(record, known, wanted, own.clone(), deadline).await
                    }
                };
                engine.live_attempts.release([&key]);
                self.seat.give_back(&|given| *given == key);
                unapplied
            }
        });
        let each: Vec<_> = each.collect();
        let mut unapplied = Unapplied::new();
        for one in futures::future::join_all(each).await {
            unapplied.extend(one?);
        }
        Ok(unapplied)
    }

    /// Waits until it is known whether the next group has locked a document that was left to it.
    async fn is_locked_over(&self, key: &Key, locked_over: LockedOver) -> bool {
        let longest = self.engine.config.lease / 4;
        tokio::select! {
            biased;
            locked = locked_over => locked.is_ok(),
            () = self.engine.config.clock.sleep(longest) => {
                // Whatever it does now, a write on what was locked finds out.
                self.engine.successions.withdraw([key]);
                false
            }
        }
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
