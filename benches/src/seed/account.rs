//! The peer's changes of one account, each as one atomic write.
//!
//! The marks in `pending_transactions` make a change happen once.

use serde::{Deserialize, Serialize};

/// An account of the peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marked {
    /// The balance in minor units.
    pub balance: i64,
    /// The transactions that have changed the balance and are not cleaned up.
    pub pending_transactions: Vec<String>,
}

/// A change of one account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Adds an amount and a mark.
    ///
    /// Does nothing if the mark exists or the balance would be negative.
    Apply(i64),
    /// Reverts amount and mark, if the mark exists.
    Undo(i64),
    /// Removes the mark.
    Unmark,
}

impl Change {
    /// Returns the stored script of the change, and its amount.
    pub(super) fn script(self) -> (&'static str, i64) {
        match self {
            Self::Apply(amount) => ("apply", amount),
            Self::Undo(amount) => ("undo", amount),
            Self::Unmark => ("unmark", 0),
        }
    }

    /// Returns the changed account; `None` if nothing changes.
    pub(super) fn of(self, account: &Marked, transaction: &str) -> Option<Marked> {
        let mark = account.pending_transactions.iter().position(|of| of == transaction);
        let mut after = account.clone();
        match (self, mark) {
            (Self::Apply(amount), None) if account.balance + amount >= 0 => {
                after.balance += amount;
                after.pending_transactions.push(transaction.to_owned());
            }
            (Self::Undo(amount), Some(mark)) => {
                after.balance -= amount;
                after.pending_transactions.remove(mark);
            }
            (Self::Unmark, Some(mark)) => {
                after.pending_transactions.remove(mark);
            }
            (Self::Apply(_), _) | (Self::Undo(_) | Self::Unmark, None) => return None,
        }
        Some(after)
    }
}

/// The stored scripts of the changes and a state change. Each script has its name.
pub(super) const SCRIPTS: [(&str, &str); 4] = [
    (
        "apply",
        "def s = ctx._source; \
         if (s.pending_transactions.contains(params.id) || s.balance + params.amount < 0) { ctx.op = 'noop' } \
         else { s.balance += params.amount; s.pending_transactions.add(params.id) }",
    ),
    (
        "undo",
        "def s = ctx._source; def at = s.pending_transactions.indexOf(params.id); \
         if (at < 0) { ctx.op = 'noop' } \
         else { s.balance -= params.amount; s.pending_transactions.remove(at) }",
    ),
    (
        "unmark",
        "def s = ctx._source; def at = s.pending_transactions.indexOf(params.id); \
         if (at < 0) { ctx.op = 'noop' } else { s.pending_transactions.remove(at) }",
    ),
    (
        "enter",
        "def s = ctx._source; \
         if (s.transaction_state != params.from) { ctx.op = 'noop' } \
         else { s.transaction_state = params.to; s.modification_time = params.now }",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_happens_once() {
        let account = Marked { balance: 100, pending_transactions: vec!["other".to_owned()] };
        assert_eq!(Change::Apply(-101).of(&account, "t"), None, "not enough");
        assert_eq!(
            (Change::Undo(1).of(&account, "t"), Change::Unmark.of(&account, "t")),
            (None, None)
        );
        let applied = Change::Apply(-100).of(&account, "t").expect("changes");
        assert_eq!((applied.balance, applied.pending_transactions.len()), (0, 2));
        assert_eq!(Change::Apply(-100).of(&applied, "t"), None, "once");
        assert_eq!(Change::Undo(-100).of(&applied, "t").as_ref(), Some(&account));
        let unmarked = Change::Unmark.of(&applied, "t").expect("changes");
        assert_eq!(
            (unmarked.balance, unmarked.pending_transactions),
            (0, account.pending_transactions)
        );
    }
}
