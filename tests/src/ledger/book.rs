//! What has to be true in the end, by what is known to have happened.

use std::collections::BTreeMap;

use txn_core::Tid;

/// What a transfer does.
#[derive(Clone, Debug, Default)]
pub(super) struct Entry {
    /// Numbers of accounts, and by how much they change. The sum is zero.
    pub(super) moves: Vec<(usize, i64)>,
    /// A slip, and what is in it afterwards; `None`: it is deleted.
    pub(super) slip: Option<(String, Option<i64>)>,
    /// Later transfers of the same worker have larger numbers.
    pub(super) turn: u64,
}

/// What is known of one slip.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slip {
    pub(super) content: Option<i64>,
    turn: u64,
}

/// What is known of one tick.
#[derive(Clone, Debug, Default)]
pub(super) struct Tick {
    /// The last count that was acknowledged.
    pub(super) certain: i64,
    /// Later ones whose outcome is unknown.
    pub(super) possible: Vec<i64>,
}

/// The books.
#[derive(Debug)]
pub(super) struct Book {
    pub(super) balances: Vec<i64>,
    pub(super) slips: BTreeMap<String, Slip>,
    pub(super) ticks: BTreeMap<String, Tick>,
    pub(super) unsettled: Vec<(Tid, Entry)>,
    pub(super) violations: Vec<String>,
}

impl Book {
    pub(super) fn new(accounts: usize, opening: i64) -> Self {
        Self {
            balances: vec![opening; accounts],
            slips: BTreeMap::new(),
            ticks: BTreeMap::new(),
            unsettled: Vec::new(),
            violations: Vec::new(),
        }
    }

    /// It happened.
    pub(super) fn enter(&mut self, entry: Entry) {
        for (account, amount) in entry.moves {
            self.balances[account] += amount;
        }
        if let Some((name, content)) = entry.slip {
            let slip = self.slips.entry(name).or_default();
            // One that was unknown for long may have been followed by others.
            if entry.turn >= slip.turn {
                *slip = Slip { content, turn: entry.turn };
            }
        }
    }

    /// Its outcome has to be asked for.
    pub(super) fn doubt(&mut self, tid: Tid, entry: Entry) {
        if let Some((name, _)) = &entry.slip {
            self.slips.entry(name.clone()).or_default();
        }
        self.unsettled.push((tid, entry));
    }

    pub(super) fn total(&self) -> i64 {
        self.balances.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_what_its_latest_transfer_left() {
        let mut book = Book::new(2, 10);
        let entry = |turn, content| Entry {
            moves: vec![(0, -1), (1, 1)],
            slip: Some(("s".to_owned(), content)),
            turn,
        };
        book.enter(entry(1, Some(1)));
        book.enter(entry(3, None));
        book.enter(entry(2, Some(2)));
        assert_eq!(book.slips["s"].content, None);
        assert_eq!(book.balances, [7, 13]);
        assert_eq!(book.total(), 20);
    }
}
