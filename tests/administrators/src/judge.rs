//! The judge: the final invariants, written from the definitions.
//!
//! The judge knows the outcomes of callers ([`Book`]), the reads of a plain client ([`Found`]), and
//! the documents that the library reported by name ([`Named`]). The judge asks the library nothing.
//! Each transaction is whole or absent: an acknowledged one is whole, a refused one absent.
//! Otherwise a report names the document.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::book::{self, Book, Document, Fate, Pair, Role, Told, Transfer};
use crate::found::Found;

/// The reports of the library by name.
///
/// Events, errors, and results of janitor and audit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) documents: BTreeSet<Document>,
}

impl Named {
    fn document(&self, role: Role, id: &str) -> bool {
        self.documents.contains(&(role, id.to_owned()))
    }
}

/// Compares, and returns the violations.
#[must_use]
pub(crate) fn judge(book: &Book, found: &Found, named: &Named) -> Vec<String> {
    let mut case = Judge { book, found, named, wrong: Vec::new() };
    case.anomalies();
    case.leftovers();
    for (key, transfer) in &book.transfers {
        case.transfer(key, transfer);
    }
    for (key, pair) in &book.pairs {
        case.pair(key, pair);
    }
    case.balances();
    case.counters();
    case.owned();
    case.strangers();
    case.wrong
}

struct Judge<'a> {
    book: &'a Book,
    found: &'a Found,
    named: &'a Named,
    wrong: Vec<String>,
}

impl Judge<'_> {
    /// A read of a reported document may show the reported damage.
    fn anomalies(&mut self) {
        if self.named.documents.is_empty() {
            self.wrong.extend(self.book.anomalies.iter().cloned());
        }
    }

    fn leftovers(&mut self) {
        for ((role, id), source) in &self.found.documents {
            if self.named.document(*role, id) {
                continue;
            }
            if source.is_placeholder() {
                self.wrong.push(format!("{id} is still a placeholder"));
            } else if source.is_locked() {
                self.wrong.push(format!("{id} is still locked"));
            }
        }
    }

    fn transfer(&mut self, key: &str, transfer: &Transfer) {
        let entry = self.found.visible(Role::Entries, key);
        if self.named.document(Role::Entries, key) {
            return;
        }
        match (transfer.told, entry) {
            (Told::Acknowledged, None) => {
                self.wrong
                    .push(format!("the transfer {key} was acknowledged, and its entry is gone"));
            }
            (Told::Refused, Some(_)) => {
                self.wrong.push(format!("the transfer {key} was refused, and its entry is there"));
            }
            (_, Some(entry)) if *entry.field("moves") != json!(transfer.moves) => {
                self.wrong.push(format!("the entry of the transfer {key} has another content"));
            }
            _ => {}
        }
    }

    fn pair(&mut self, key: &str, pair: &Pair) {
        let ids = book::pair(key);
        if ids.iter().any(|id| self.named.document(Role::Entries, id)) {
            return;
        }
        let [left, right] = ids.map(|id| self.found.visible(Role::Entries, &id).is_some());
        if left != right {
            let (there, gone) = if left { ("left", "right") } else { ("right", "left") };
            self.wrong.push(format!(
                "of the pair {key} the {there} half is there, the {gone} one is gone"
            ));
            return;
        }
        let (told, absent) = match (pair.inserted, pair.deleted) {
            (_, Some(Told::Acknowledged)) => ("its deletion was acknowledged", Some(true)),
            (_, Some(Told::Refused)) => ("its deletion was refused", Some(false)),
            (_, Some(Told::Unknown)) | (Told::Unknown, None) => ("", None),
            (Told::Acknowledged, None) => ("its insertion was acknowledged", Some(false)),
            (Told::Refused, None) => ("its insertion was refused", Some(true)),
        };
        if absent.is_some_and(|absent| absent == left) {
            let is = if left { "there" } else { "gone" };
            self.wrong.push(format!("the pair {key} is {is}, and {told}"));
        }
    }

    /// Checks that each account holds its opening balance and its transfers.
    ///
    /// A transfer with an unknown outcome happened if its entry exists.
    fn balances(&mut self) {
        let mut balances = vec![self.book.opening; self.book.accounts];
        // Without an entry, and with a report, the outcome of the transfer is open.
        let mut open = vec![false; self.book.accounts];
        for (key, transfer) in &self.book.transfers {
            let is_there = self.found.visible(Role::Entries, key).is_some();
            let is_named = self.named.document(Role::Entries, key);
            let happened = match transfer.told {
                Told::Acknowledged => Some(true),
                Told::Refused if !is_named => Some(false),
                Told::Refused | Told::Unknown if is_there => Some(true),
                Told::Refused | Told::Unknown if is_named => None,
                Told::Refused | Told::Unknown => Some(false),
            };
            for (account, amount) in &transfer.moves {
                match happened {
                    Some(true) => balances[*account] += amount * (1 + transfer.again),
                    Some(false) => {}
                    None => open[*account] = true,
                }
            }
        }
        for (number, expected) in balances.into_iter().enumerate() {
            let id = book::account(number);
            if open[number] || self.named.document(Role::Accounts, &id) {
                continue;
            }
            let balance = self.number(&id);
            if balance != Some(expected) {
                let balance = balance.map_or("nothing".to_owned(), |balance| balance.to_string());
                self.wrong.push(format!("the account {id} holds {balance} instead of {expected}"));
            }
        }
    }

    fn counters(&mut self) {
        for (number, counter) in self.book.counters.iter().enumerate() {
            let ids = book::counter(number);
            if ids.iter().any(|id| self.named.document(Role::Accounts, id)) {
                continue;
            }
            let [left, right] = ids.map(|id| self.number(&id).and_then(|n| u64::try_from(n).ok()));
            let most = counter.acknowledged + counter.unknown;
            let holds = left == right
                && left.is_some_and(|count| (counter.acknowledged..=most).contains(&count));
            if !holds {
                self.wrong.push(format!(
                    "the counter {number} shows {left:?} and {right:?} after {} acknowledged and {} \
                     unknown increments",
                    counter.acknowledged, counter.unknown
                ));
            }
        }
    }

    fn owned(&mut self) {
        for ((role, id), fate) in &self.book.owned {
            match (fate, self.found.visible(*role, id)) {
                (Fate::Stays, None) => {
                    self.wrong.push(format!("{id}, which no transaction writes, is gone"));
                }
                (Fate::Goes, Some(_)) => {
                    self.wrong.push(format!("{id}, which the administrator deleted, is there"));
                }
                _ => {}
            }
        }
    }

    fn strangers(&mut self) {
        let mut known: BTreeSet<Document> = self.book.owned.keys().cloned().collect();
        let accounts = (0..self.book.accounts).map(book::account);
        let counters = (0..self.book.counters.len()).flat_map(book::counter);
        known.extend(accounts.chain(counters).map(|id| (Role::Accounts, id)));
        let pairs = self.book.pairs.keys().flat_map(|key| book::pair(key));
        let entries = self.book.transfers.keys().cloned().chain(pairs);
        known.extend(entries.map(|id| (Role::Entries, id)));
        for document in self.found.documents.keys().filter(|document| !known.contains(document)) {
            self.wrong.push(format!("{} is a document that no transaction wrote", document.1));
        }
    }

    /// Returns the number in an account or a counter.
    fn number(&self, id: &str) -> Option<i64> {
        self.found
            .visible(Role::Accounts, id)
            .map(|source| source.field("balance"))
            .and_then(Value::as_i64)
    }
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
