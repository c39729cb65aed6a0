//! The end of a run: outcomes and final contents.

use std::collections::BTreeMap;

use txn_core::{Domain, Error, Options, TransactionOutcome};

use super::worker::seen_of;
use super::{Workload, WorkloadConfig};
use crate::history::{History, Micro, Outcome, Seen};
use crate::recorder::Recorder;

/// How many keys one of the final transactions reads.
const TOGETHER: usize = 20;

impl Workload {
    /// Finds out unknown outcomes, and reads all keys.
    ///
    /// Each transaction with an unknown outcome and a record is looked up. The final reads are
    /// transactions that become a part of the history. Call this function when the faults are over;
    /// `witness` is any process of the domain. A history can be settled again after an error.
    ///
    /// # Errors
    /// As the store says.
    pub async fn settle(&self, history: &mut History, witness: &Domain) -> Result<(), Error> {
        let documents = self.documents(witness).await?;
        for entry in &mut history.entries {
            if let (Some(tid), None) = (entry.tid, entry.outcome) {
                entry.outcome = match witness.outcome(tid).await? {
                    TransactionOutcome::Committed { .. } => Some(Outcome::Committed),
                    TransactionOutcome::Aborted => Some(Outcome::Aborted),
                    _ => None,
                };
            }
        }
        let config: &WorkloadConfig = &self.config;
        let keys: Vec<u64> = history.keys().into_iter().collect();
        let last_process = history.entries.iter().map(|entry| entry.process).max();
        let process = last_process.map_or(0, |last| last + 1);
        let options = Options::default().with_read_only(true);
        let recorder = Recorder::after(std::mem::take(&mut history.entries));
        let mut finals = BTreeMap::new();
        let result = async {
            for (nth, keys) in keys.chunks(TOGETHER).enumerate() {
                let read = |key: &u64| Micro::Read { key: *key, seen: Seen::Nil };
                let call = recorder.invoke(process + nth as u64, keys.iter().map(read).collect());
                let ids: Vec<String> = keys.iter().map(|key| config.id(*key)).collect();
                let found = witness
                    .run::<_, Error, _>(&options, async |tx| {
                        tx.get_many(&documents, ids.iter().cloned()).await
                    })
                    .await?;
                let mut value = Vec::with_capacity(keys.len());
                for (key, found) in keys.iter().zip(found.value) {
                    let found = found.unwrap_or_default();
                    value.push(Micro::Read { key: *key, seen: seen_of(config.model, &found) });
                    finals.insert(*key, found.values);
                }
                call.ok(value);
            }
            Ok(())
        };
        let result = result.await;
        history.entries = recorder.finish();
        if result.is_ok() {
            history.finals = Some(finals);
        }
        result
    }
}
