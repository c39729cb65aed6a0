//! The judge rejects each planted anomaly, and accepts sound histories.

mod planted;
mod random;

use txn_judge::{Fate, History, Model, Operation, Transaction};

fn write(key: u64, value: u64) -> Operation {
    Operation::Write { key, value }
}

fn read(key: u64, seen: &[u64]) -> Operation {
    Operation::Read { key, seen: Some(seen.to_vec()) }
}

/// A committed transaction that begins and ends at these positions.
fn committed(began: u64, acknowledged: u64, operations: Vec<Operation>) -> Transaction {
    let (id, fate) = (began, Fate::Committed);
    Transaction { id, began, acknowledged: Some(acknowledged), fate, operations }
}

/// Committed transactions that all overlap.
fn together(model: Model, transactions: Vec<Vec<Operation>>) -> History {
    let transactions = (0..).zip(transactions);
    let transactions =
        transactions.map(|(nth, operations)| committed(nth, 1_000_000 + nth, operations)).collect();
    History { model, transactions, finals: None }
}

/// Committed transactions one after the other.
fn in_turn(model: Model, transactions: Vec<Vec<Operation>>) -> History {
    let transactions = (0..).zip(transactions);
    let transactions =
        transactions.map(|(nth, operations)| committed(2 * nth, 2 * nth + 1, operations)).collect();
    History { model, transactions, finals: None }
}
