//! Reads of a transaction, and the lock-free reading of locked documents.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::{Attempt, ReadEntry};
use crate::attempt_error::AttemptError;
use crate::deadline::Deadline;
use crate::engine::{Engine, ReadPreference};
use crate::error::{Error, ErrorKind};
use crate::store::Key;
use crate::table::RecordLookup;
use txn_protocol::document::{Image, View};
use txn_protocol::rule::Rules;
use txn_protocol::rules::apply::is_locked_by;
use txn_protocol::rules::resolve::{Reading, reading, writes};
use txn_protocol::rules::validate::Observed;
use txn_protocol::tid::Tid;

impl Attempt {
    /// The committed content of documents, or what the transaction itself wrote; one per key, in order.
    pub(crate) async fn read(
        self: &Arc<Self>,
        keys: &[Key],
    ) -> Result<Vec<Option<Image>>, AttemptError> {
        self.engine.check_readable(keys)?;
        let missing: Vec<Key> = {
            let working = self.working.lock();
            let missing: BTreeSet<&Key> = keys.iter().filter(|key| !working.uses(key)).collect();
            missing.into_iter().cloned().collect()
        };
        if !missing.is_empty() {
            self.check_count(&self.working.lock(), missing.len())?;
            self.fetch(missing).await?;
        }
        let working = self.working.lock();
        let content = |key: &Key| match working.writes.get(key) {
            Some(mutation) => mutation.image().cloned(),
            None => working.reads.get(key).and_then(|read| read.observed.image.clone()),
        };
        Ok(keys.iter().map(content).collect())
    }

    async fn fetch(self: &Arc<Self>, keys: Vec<Key>) -> Result<(), AttemptError> {
        if self.pessimistic {
            // A read that its caller does not wait for any more holds up neither the next one nor the commit.
            let given_up = CancellationToken::new();
            let _guard = given_up.clone().drop_guard();
            let this = self.clone();
            let acquire = async move { this.acquire_for_reading(keys, &given_up).await };
            return self.spawn_tracked(acquire).await;
        }
        let read = async {
            let read_documents =
                self.engine.read_documents(&keys, ReadPreference::AnyCopy, &self.deadline).await?;
            self.engine
                .observe(&keys, read_documents, ReadPreference::AnyCopy, &self.deadline)
                .await
        };
        let entries = self.by_deadline(read).await?;
        let mut working = self.working.lock();
        for (key, entry) in keys.into_iter().zip(entries) {
            working.note_read(key, entry);
        }
        Ok(())
    }
}

impl Engine {
    /// Refuses keys that no document can have.
    pub(crate) fn check_readable(&self, keys: &[Key]) -> Result<(), Error> {
        let limits = self.store.limits();
        keys.iter().try_for_each(|key| {
            limits.check(key, 0).map_err(|refusal| {
                Error::invalid(format!("cannot read it: {}", refusal.reason)).at(key)
            })
        })
    }

    /// What readers, who never lock, answer for documents as they were seen.
    pub(crate) async fn observe(
        &self,
        keys: &[Key],
        read_documents: Vec<View>,
        from: ReadPreference,
        deadline: &Deadline,
    ) -> Result<Vec<ReadEntry>, AttemptError> {
        let read_at = self.now();
        let holders: BTreeSet<Tid> = read_documents.iter().filter_map(View::holder).collect();
        let records = if holders.is_empty() {
            BTreeMap::new()
        } else {
            self.records(&holders, from, deadline).await?
        };
        let participants: BTreeMap<Tid, BTreeMap<Key, usize>> = records
            .iter()
            .filter_map(|(tid, found)| Some((*tid, found.record.as_ref()?.by_key())))
            .collect();
        let mut entries = Vec::with_capacity(keys.len());
        for (key, view) in keys.iter().zip(read_documents) {
            let mut observed = Observed::of(&view);
            if let Some((holder, found)) = view.holder().and_then(|h| Some((h, records.get(&h)?))) {
                let participant =
                    participants.get(&holder).and_then(|participants| participants.get(key));
                resolve_observed(
                    &self.rules,
                    &mut observed,
                    key,
                    &view,
                    found,
                    participant.copied(),
                )?;
            }
            entries.push(ReadEntry { observed, view, read_at });
        }
        Ok(entries)
    }
}

/// Puts the record's content in the place of the document's own, where the holder is committed.
fn resolve_observed(
    rules: &Rules,
    observed: &mut Observed,
    key: &Key,
    view: &View,
    found: &RecordLookup,
    participant: Option<usize>,
) -> Result<(), AttemptError> {
    let record = found.record.as_ref();
    let written = record.zip(participant).filter(|(record, index)| {
        let participant = &record.participants[*index];
        writes(participant.op) && is_locked_by(rules, participant, record.tid, view)
    });
    match reading(rules, found.state, written.is_some()) {
        Reading::CommittedImage => {}
        Reading::RecordImage => {
            observed.image = written.and_then(|(record, index)| record.images[index].clone());
            observed.tid = record.and_then(|record| record.commit_tid);
            // The content is not that of this version: only the commit identifies it.
            observed.version = None;
        }
        Reading::Staged => {
            let message = "it is locked by a coordinator that commits in parallel, by a newer version \
                           of this library; this version cannot read its state";
            return Err(Error::new(ErrorKind::Misconfigured, message).at(key).into());
        }
    }
    Ok(())
}
