//! A second judge of recorded histories.
//!
//! The judge decides strict serialisability from the definitions alone: dependencies and anomalies
//! of Adya, Liskov and O'Neil (*Generalized isolation level definitions*, 2000), and the inference
//! of list orders by Kingsbury and Alvaro (*Elle*, 2020). It shares no code with the first judge in
//! `tests/histories`, and depends on no other crate. So a mistake of one judge shows as a
//! disagreement of the two.
//!
//! # Dependencies
//! - `ww`: a transaction installs the version after that of another transaction.
//! - `wr`: a transaction reads the version of another transaction.
//! - `rw`: a transaction reads a version, and another transaction installs the next one.
//! - real time: a transaction begins after the acknowledgement of another transaction.
//!
//! Lists show the order of their versions, so their dependencies are exact. The order of a
//! register's versions is inferred as far as the known dependencies force it, until nothing new
//! follows. A ruling [`Ruling::Invalid`] is therefore always right; for registers
//! [`Ruling::Valid`] means that no contradiction follows. An exact decision would be NP-complete.
//!
//! ```
//! use txn_judge::{AnomalyKind, Fate, History, Model, Operation, Transaction, judge};
//!
//! // Two transactions read both lists as empty, and each appends to another list: write skew.
//! let skew = |id, key| Transaction {
//!     id,
//!     began: id,
//!     acknowledged: Some(10 + id),
//!     fate: Fate::Committed,
//!     operations: vec![
//!         Operation::Read { key: 1, seen: Some(vec![]) },
//!         Operation::Read { key: 2, seen: Some(vec![]) },
//!         Operation::Write { key, value: id },
//!     ],
//! };
//! let transactions = vec![skew(1, 1), skew(2, 2)];
//! let judgement = judge(&History { model: Model::List, transactions, finals: None });
//! assert!(judgement.has(AnomalyKind::G2Item), "{judgement}");
//! ```

mod cycles;
mod graph;
mod history;
mod judgement;
mod lists;
mod reads;
mod registers;
mod time;

pub use history::{Fate, History, Model, Operation, Transaction};
pub use judgement::{Anomaly, AnomalyKind, Judgement, Ruling};

/// Judges a history.
#[must_use]
pub fn judge(history: &History) -> Judgement {
    judge_with(history, true)
}

/// Judges serialisability, without real-time order.
///
/// The final contents still follow every transaction.
#[must_use]
pub fn judge_serialisable(history: &History) -> Judgement {
    judge_with(history, false)
}

fn judge_with(history: &History, is_strict: bool) -> Judgement {
    let facts = match reads::Facts::gather(history) {
        Ok(facts) => facts,
        Err(why) => return Judgement::undecided(why),
    };
    let mut anomalies = reads::anomalies(&facts);
    let mut graph = graph::Graph::of_transactions(facts.transactions.len());
    time::add_order(&facts, is_strict, &mut graph);
    match history.model {
        Model::List => lists::add_dependencies(&facts, &mut graph, &mut anomalies),
        Model::Register => registers::add_dependencies(&facts, &mut graph),
    }
    anomalies.extend(cycles::anomalies(&graph, &facts));
    Judgement::of(anomalies)
}
