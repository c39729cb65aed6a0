//! Committed content of locked documents, for readers without locks.

use std::collections::{BTreeMap, BTreeSet};

use txn_protocol::document::View;
use txn_protocol::ids::AttemptId;
use txn_protocol::record::State;
use txn_protocol::rule::Rules;
use txn_protocol::rules::apply::is_held_by;
use txn_protocol::rules::resolve::{Reading, reading, writes};
use txn_protocol::rules::validate::Observed;

use crate::engine::attempt_error::AttemptError;
use crate::engine::deadline::Deadline;
use crate::engine::read_entry::ReadEntry;
use crate::engine::reads::Reads;
use crate::engine::store::store_access::ReadPreference;
use crate::engine::table::record_lookup::RecordLookup;
use crate::error::Error;
use txn_store::Key;

impl Reads {
    /// Refuses keys that no document can have.
    pub(crate) fn check_readable(&self, keys: &[Key]) -> Result<(), Error> {
        let limits = self.store.documents().limits();
        keys.iter().try_for_each(|key| {
            limits.check(key, 0).map_err(|refusal| {
                Error::invalid(format!("cannot read it: {}", refusal.reason)).at(key)
            })
        })
    }

    /// Finds the committed content of documents, for readers without locks.
    pub(crate) async fn observe(
        &self,
        keys: &[Key],
        views: Vec<View>,
        from: ReadPreference,
        deadline: &Deadline,
    ) -> Result<Vec<ReadEntry>, AttemptError> {
        let read_at = self.context.now();
        let holders: BTreeSet<AttemptId> = views.iter().filter_map(View::holder).collect();
        let records = if holders.is_empty() {
            BTreeMap::new()
        } else {
            self.table.records(&holders, from, deadline).await?
        };
        let participants: BTreeMap<AttemptId, BTreeMap<Key, usize>> = records
            .iter()
            .filter_map(|(tid, found)| Some((*tid, found.record.as_ref()?.by_key())))
            .collect();
        let mut entries = Vec::with_capacity(keys.len());
        for (key, view) in keys.iter().zip(views) {
            let mut observed = Observed::of(&view);
            if let Some((holder, found)) = view.holder().and_then(|h| Some((h, records.get(&h)?))) {
                let participant =
                    participants.get(&holder).and_then(|participants| participants.get(key));
                resolve_observed(
                    &self.context.rules,
                    &mut observed,
                    &view,
                    found,
                    participant.copied(),
                );
            }
            entries.push(ReadEntry { observed, view, read_at });
        }
        Ok(entries)
    }
}

/// Takes the content from the record, if the holder is committed.
fn resolve_observed(
    rules: &Rules,
    observed: &mut Observed,
    view: &View,
    found: &RecordLookup,
    participant: Option<usize>,
) {
    let record = found.record.as_ref();
    let written = record.zip(participant).filter(|(record, index)| {
        let participant = &record.participants[*index];
        let is_open = record.state == State::Committed;
        writes(participant.op) && is_held_by(rules, participant, record.tid, is_open, view)
    });
    if reading(rules, found.state(), written.is_some()) == Reading::RecordImage {
        observed.image = written.and_then(|(record, index)| record.images[index].clone());
        observed.commit_version = record.and_then(|record| record.commit_version);
        // The content of the record has no document version: only the commit identifies it.
        observed.version = None;
    }
}
