//! Transactions, their writes, and the versions that they read.

use std::collections::{HashMap, HashSet};

use crate::history::{Fate, History, Model, Operation};
use crate::judgement::{Anomaly, AnomalyKind};

/// A committed transaction, or the read of the final contents.
#[derive(Debug)]
pub(crate) struct Committed<'h> {
    /// `None` for the read of the final contents.
    pub(crate) id: Option<u64>,
    pub(crate) began: u64,
    pub(crate) acknowledged: Option<u64>,
    /// Whether the client knew of the commit, at once or later.
    pub(crate) is_known_committed: bool,
    operations: &'h [Operation],
}

/// A write of any transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    id: u64,
    began: u64,
    is_aborted: bool,
    /// Whether the transaction writes the key no more after this write.
    is_last: bool,
    /// `None` if the transaction is not known to have committed.
    pub(crate) writer: Option<usize>,
}

/// A read with a known result.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Read<'h> {
    pub(crate) reader: usize,
    pub(crate) key: u64,
    pub(crate) seen: &'h [u64],
    /// The version without the reader's own writes.
    ///
    /// Only the first read of a key has it, and only before a write to a register.
    pub(crate) version: Option<&'h [u64]>,
}

/// Knowledge that both models share.
#[derive(Debug)]
pub(crate) struct Facts<'h> {
    pub(crate) transactions: Vec<Committed<'h>>,
    /// The node of the final contents.
    pub(crate) final_read: Option<usize>,
    pub(crate) writes: HashMap<(u64, u64), Written>,
    pub(crate) reads: Vec<Read<'h>>,
    /// The values that each committed transaction wrote to a key, in order.
    pub(crate) writes_of: HashMap<(usize, u64), Vec<u64>>,
    /// Reads that contradict their own transaction.
    contradictions: Vec<(usize, u64, String)>,
}

impl<'h> Facts<'h> {
    /// Gathers the facts of a history.
    ///
    /// Returns the reason if the history cannot be judged.
    pub(crate) fn gather(history: &'h History) -> Result<Self, String> {
        check_form(history)?;
        let seen = seen_values(history);
        let mut facts = Self {
            transactions: Vec::new(),
            final_read: None,
            writes: HashMap::new(),
            reads: Vec::new(),
            writes_of: HashMap::new(),
            contradictions: Vec::new(),
        };
        for transaction in &history.transactions {
            let writes: Vec<_> = written_by(&transaction.operations).collect();
            let is_committed = match transaction.fate {
                Fate::Committed => true,
                Fate::Aborted => false,
                // A visible write proves the commit.
                Fate::Unknown => writes.iter().any(|write| seen.contains(write)),
            };
            let writer = is_committed.then_some(facts.transactions.len());
            let mut last = HashMap::new();
            for (key, value) in &writes {
                last.insert(*key, *value);
                if let Some(writer) = writer {
                    facts.writes_of.entry((writer, *key)).or_default().push(*value);
                }
            }
            for (key, value) in writes {
                let written = Written {
                    id: transaction.id,
                    began: transaction.began,
                    is_aborted: transaction.fate == Fate::Aborted,
                    is_last: last.get(&key) == Some(&value),
                    writer,
                };
                if let Some(other) = facts.writes.insert((key, value), written) {
                    let (one, other) = (transaction.id, other.id);
                    return Err(format!("T{other} and T{one} both write {value} to key {key}"));
                }
            }
            if is_committed {
                facts.transactions.push(Committed {
                    id: Some(transaction.id),
                    began: transaction.began,
                    acknowledged: transaction.acknowledged,
                    is_known_committed: transaction.fate == Fate::Committed,
                    operations: &transaction.operations,
                });
            }
        }
        if !facts.transactions.iter().any(|transaction| transaction.acknowledged.is_some()) {
            return Err("no transaction was acknowledged".to_owned());
        }
        for reader in 0..facts.transactions.len() {
            match history.model {
                Model::List => facts.read_lists(reader),
                Model::Register => facts.read_registers(reader),
            }
        }
        if let Some(finals) = &history.finals {
            let reader = facts.transactions.len();
            facts.final_read = Some(reader);
            facts.transactions.push(Committed {
                id: None,
                began: u64::MAX,
                acknowledged: None,
                is_known_committed: false,
                operations: &[],
            });
            facts.reads.extend(finals.iter().map(|(key, seen)| Read {
                reader,
                key: *key,
                seen,
                version: Some(seen),
            }));
        }
        Ok(facts)
    }

    /// Returns the name of a transaction.
    pub(crate) fn name(&self, node: usize) -> String {
        match self.transactions[node].id {
            Some(id) => format!("T{id}"),
            None => "the final read".to_owned(),
        }
    }

    /// Returns the committed writer of a value.
    pub(crate) fn writer(&self, key: u64, value: u64) -> Option<usize> {
        self.writes.get(&(key, value)).and_then(|written| written.writer)
    }

    pub(crate) fn anomaly(
        &self,
        kind: AnomalyKind,
        nodes: &[usize],
        explanation: String,
    ) -> Anomaly {
        let transactions = nodes.iter().filter_map(|node| self.transactions[*node].id).collect();
        Anomaly { kind, transactions, explanation }
    }

    fn read_lists(&mut self, reader: usize) {
        // Of each key: the list if a read showed it, and the appends since.
        let mut known: HashMap<u64, (Option<&'h [u64]>, Vec<u64>)> = HashMap::new();
        for operation in self.transactions[reader].operations {
            match operation {
                Operation::Write { key, value } => known.entry(*key).or_default().1.push(*value),
                Operation::Read { seen: None, .. } => {}
                Operation::Read { key, seen: Some(seen) } => {
                    let (base, own) = known.entry(*key).or_default();
                    let (expects_all, start) = (base.is_some(), base.unwrap_or_default());
                    let version = seen.strip_suffix(own.as_slice());
                    if version.is_none_or(|version| expects_all && version != start) {
                        let why = format!("read key {key} as {seen:?} after {start:?} and {own:?}");
                        self.contradictions.push((reader, *key, why));
                    }
                    let version = version.filter(|_| !expects_all);
                    self.reads.push(Read { reader, key: *key, seen, version });
                    known.insert(*key, (Some(seen), Vec::new()));
                }
            }
        }
    }

    fn read_registers(&mut self, reader: usize) {
        let mut known: HashMap<u64, Vec<u64>> = HashMap::new();
        for operation in self.transactions[reader].operations {
            match operation {
                Operation::Write { key, value } => {
                    known.insert(*key, vec![*value]);
                }
                Operation::Read { seen: None, .. } => {}
                Operation::Read { key, seen: Some(seen) } => {
                    let before = known.insert(*key, seen.clone());
                    let version = before.is_none().then_some(seen.as_slice());
                    if let Some(before) = before.filter(|before| before != seen) {
                        let why = format!("read key {key} as {seen:?} after {before:?}");
                        self.contradictions.push((reader, *key, why));
                    }
                    self.reads.push(Read { reader, key: *key, seen, version });
                }
            }
        }
    }
}

fn written_by(operations: &[Operation]) -> impl Iterator<Item = (u64, u64)> + '_ {
    operations.iter().filter_map(|operation| match operation {
        Operation::Write { key, value } => Some((*key, *value)),
        Operation::Read { .. } => None,
    })
}

fn check_form(history: &History) -> Result<(), String> {
    let mut ids = HashSet::new();
    for transaction in &history.transactions {
        let id = transaction.id;
        if !ids.insert(id) {
            return Err(format!("two transactions have the id {id}"));
        }
        if transaction.acknowledged.is_some_and(|end| end <= transaction.began) {
            return Err(format!("T{id} ends before it begins"));
        }
        if transaction.acknowledged.is_some() && transaction.fate != Fate::Committed {
            return Err(format!("T{id} is acknowledged, and not committed"));
        }
        for operation in &transaction.operations {
            if let Operation::Read { key, seen: Some(seen) } = operation
                && history.model == Model::Register
                && seen.len() > 1
            {
                return Err(format!("T{id} read several values of the register {key}"));
            }
        }
    }
    Ok(())
}

/// Returns the values in committed reads and final contents.
fn seen_values(history: &History) -> HashSet<(u64, u64)> {
    let mut found = HashSet::new();
    for transaction in &history.transactions {
        if transaction.fate != Fate::Committed {
            continue;
        }
        for operation in &transaction.operations {
            if let Operation::Read { key, seen: Some(seen) } = operation {
                found.extend(seen.iter().map(|value| (*key, *value)));
            }
        }
    }
    for (key, seen) in history.finals.iter().flatten() {
        found.extend(seen.iter().map(|value| (*key, *value)));
    }
    found
}

/// Returns the anomalies of single reads, and lost updates.
pub(crate) fn anomalies(facts: &Facts<'_>) -> Vec<Anomaly> {
    let mut found = Vec::new();
    for (reader, _, why) in &facts.contradictions {
        let why = format!("{} {why}", facts.name(*reader));
        found.push(facts.anomaly(AnomalyKind::Internal, &[*reader], why));
    }
    for read in &facts.reads {
        found.extend(in_read(facts, read));
    }
    found.extend(lost_updates(facts));
    found
}

fn in_read(facts: &Facts<'_>, read: &Read<'_>) -> Vec<Anomaly> {
    let Read { reader, key, seen, version } = *read;
    let name = facts.name(reader);
    let mut found = Vec::new();
    let mut find = |kind, why| found.push(facts.anomaly(kind, &[reader], why));
    let end = facts.transactions[reader].acknowledged.unwrap_or(u64::MAX);
    let mut before = HashSet::new();
    for value in seen {
        if !before.insert(*value) {
            let why = format!("{name} read {value} in key {key} twice");
            find(AnomalyKind::DuplicateElements, why);
        }
        match facts.writes.get(&(key, *value)) {
            None => {
                let why = format!("{name} read {value} in key {key}, which is not written");
                find(AnomalyKind::ThinAir, why);
            }
            Some(write) if write.began > end => {
                let why = format!("{name} read {value} in key {key} before T{} began", write.id);
                find(AnomalyKind::ThinAir, why);
            }
            Some(write) if write.is_aborted => {
                let why = format!("{name} read {value} in key {key} of T{}, aborted", write.id);
                find(AnomalyKind::G1a, why);
            }
            Some(_) => {}
        }
    }
    if let Some(last) = version.and_then(<[u64]>::last)
        && let Some(write) = facts.writes.get(&(key, *last))
        && !write.is_last
        && write.writer != Some(reader)
    {
        let why = format!("{name} read the intermediate {last} in key {key} of T{}", write.id);
        find(AnomalyKind::G1b, why);
    }
    found
}

/// Returns the transactions that read and wrote the same version.
///
/// Each of the transactions read the same version of a key, and wrote the key.
fn lost_updates(facts: &Facts<'_>) -> Vec<Anomaly> {
    let mut updates: HashMap<(u64, &[u64]), usize> = HashMap::new();
    let mut found = Vec::new();
    for read in &facts.reads {
        let (key, reader) = (read.key, read.reader);
        let Some(version) = read.version else { continue };
        if !facts.writes_of.contains_key(&(reader, key)) {
            continue;
        }
        if let Some(other) = updates.insert((key, version), reader) {
            let (one, two) = (facts.name(other), facts.name(reader));
            let why = format!("{one} and {two} both read key {key} as {version:?}, and wrote it");
            found.push(facts.anomaly(AnomalyKind::LostUpdate, &[other, reader], why));
        }
    }
    found
}
