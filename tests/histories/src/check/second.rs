//! The judgement of the second judge.

use std::collections::BTreeMap;

use txn_judge::{Fate, Judgement, Operation, Ruling, Transaction, judge};

use crate::history::{Entry, History, Kind, Micro, Model, Outcome, Seen};

/// Judges a history by `txn_judge`.
pub(super) fn judged(history: &History) -> Judgement {
    match transactions(history) {
        Ok(transactions) => judge(&txn_judge::History {
            model: match history.model {
                Model::ListAppend => txn_judge::Model::List,
                Model::Register => txn_judge::Model::Register,
            },
            transactions,
            finals: history.finals.clone(),
        }),
        Err(why) => {
            Judgement { ruling: Ruling::Undecided, anomalies: Vec::new(), undecided: Some(why) }
        }
    }
}

/// Joins the beginning and the end of each transaction. Positions are those of the entries.
fn transactions(history: &History) -> Result<Vec<Transaction>, String> {
    let mut begun: BTreeMap<u64, u64> = BTreeMap::new();
    let mut found = Vec::new();
    for (position, entry) in (0..).zip(&history.entries) {
        if entry.kind == Kind::Invoke {
            if begun.insert(entry.process, position).is_some() {
                return Err(format!("process {} begins twice at once", entry.process));
            }
            continue;
        }
        let Some(began) = begun.remove(&entry.process) else {
            return Err(format!("process {} ends nothing", entry.process));
        };
        found.push(Transaction {
            id: began,
            began,
            acknowledged: (entry.kind == Kind::Ok).then_some(position),
            fate: match (entry.kind, entry.outcome) {
                (Kind::Ok, _) | (Kind::Info, Some(Outcome::Committed)) => Fate::Committed,
                (Kind::Info, None) => Fate::Unknown,
                _ => Fate::Aborted,
            },
            operations: operations(history.model, entry)?,
        });
    }
    match begun.first_key_value() {
        Some((process, _)) => Err(format!("the last transaction of process {process} never ends")),
        None => Ok(found),
    }
}

fn operations(model: Model, entry: &Entry) -> Result<Vec<Operation>, String> {
    let operation = |micro: &Micro| match (model, micro) {
        (Model::ListAppend, Micro::Append { key, value })
        | (Model::Register, Micro::Write { key, value }) => {
            Ok(Operation::Write { key: *key, value: *value })
        }
        (_, Micro::Read { key, seen }) => {
            let seen = match seen {
                Seen::Nil => Vec::new(),
                Seen::List(list) => list.clone(),
                Seen::Value(value) => vec![*value],
            };
            // Only the answer of a committed transaction has its reads.
            let seen = (entry.kind == Kind::Ok).then_some(seen);
            Ok(Operation::Read { key: *key, seen })
        }
        (_, other) => Err(format!("an operation of another model: {other:?}")),
    };
    entry.value.iter().map(operation).collect()
}
