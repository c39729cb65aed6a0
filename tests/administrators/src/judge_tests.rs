//! Each test plants one fault in a correct state.
//!
//! The judge has to report this fault and no other.

use serde_json::{Value, json};

use super::*;
use crate::book::{Counter, Moves};
use crate::found::Source;

fn transfer(moves: Moves, told: Told) -> Transfer {
    Transfer { moves, told, again: 0 }
}

fn pair(inserted: Told, deleted: Option<Told>) -> Pair {
    Pair { inserted, deleted }
}

/// Two accounts, transfers, pairs, and one counter.
///
/// There is a transfer and a pair of each kind.
fn world() -> (Book, Found) {
    let mut book = Book::new(2, 100, 1);
    for (key, told) in [("t-yes", Told::Acknowledged), ("t-no", Told::Refused)] {
        book.transfers.insert(key.to_owned(), transfer(vec![(0, -5), (1, 5)], told));
    }
    for key in ["t-maybe-yes", "t-maybe-no"] {
        book.transfers.insert(key.to_owned(), transfer(vec![(0, 1), (1, -1)], Told::Unknown));
    }
    for (key, inserted, deleted) in [
        ("p-yes", Told::Acknowledged, None),
        ("p-no", Told::Refused, None),
        ("p-maybe", Told::Unknown, None),
        ("p-deleted", Told::Acknowledged, Some(Told::Acknowledged)),
        ("p-kept", Told::Acknowledged, Some(Told::Refused)),
        ("p-perhaps", Told::Acknowledged, Some(Told::Unknown)),
    ] {
        book.pairs.insert(key.to_owned(), pair(inserted, deleted));
    }
    book.counters[0] = Counter { acknowledged: 7, unknown: 1 };
    book.owned.insert((Role::Entries, "old".to_owned()), Fate::Goes);
    book.owned.insert((Role::Entries, "kept".to_owned()), Fate::Stays);
    let mut found = Found::default();
    let mut put = |role, id: &str, source| {
        found.documents.insert((role, id.to_owned()), Source::new(source));
    };
    put(Role::Accounts, "a0", json!({"balance": 96}));
    put(Role::Accounts, "a1", json!({"balance": 104}));
    put(Role::Accounts, "counter-0-left", json!({"balance": 8}));
    put(Role::Accounts, "counter-0-right", json!({"balance": 8}));
    put(Role::Entries, "t-yes", json!({"moves": [[0, -5], [1, 5]]}));
    put(Role::Entries, "t-maybe-yes", json!({"moves": [[0, 1], [1, -1]]}));
    for id in ["p-yes-left", "p-yes-right", "p-kept-left", "p-kept-right", "kept"] {
        put(Role::Entries, id, json!({"moves": []}));
    }
    (book, found)
}

fn put(found: &mut Found, role: Role, id: &str, source: Value) {
    found.documents.insert((role, id.to_owned()), Source::new(source));
}

fn named(role: Role, id: &str) -> Named {
    Named { documents: [(role, id.to_owned())].into() }
}

#[test]
fn correct_state_passes() {
    let (book, found) = world();
    assert_eq!(judge(&book, &found, &Named::default()), Vec::<String>::new());
}

/// A fault: its action, and the expected report of the judge.
type Plant = (fn(&mut Book, &mut Found), &'static str);

fn remove(found: &mut Found, role: Role, id: &str) {
    assert!(found.documents.remove(&(role, id.to_owned())).is_some(), "{id}");
}

const PLANTS: [Plant; 17] = [
    (|_, found| remove(found, Role::Entries, "t-yes"), "t-yes was acknowledged"),
    (|_, found| put(found, Role::Entries, "t-yes", json!({"transaction_absent": true})), "t-yes"),
    (|_, found| put(found, Role::Entries, "t-yes", json!({"moves": [[0, -5]]})), "another content"),
    (
        |_, found| put(found, Role::Entries, "t-no", json!({"moves": [[0, -5], [1, 5]]})),
        "was refused",
    ),
    (|_, found| remove(found, Role::Entries, "p-yes-left"), "right half is there"),
    (|_, found| remove(found, Role::Entries, "p-kept-right"), "left half is there"),
    (|_, found| put(found, Role::Entries, "p-maybe-left", json!({})), "left half is there"),
    (
        |_, found| {
            remove(found, Role::Entries, "p-yes-left");
            remove(found, Role::Entries, "p-yes-right");
        },
        "p-yes is gone",
    ),
    (
        |_, found| {
            put(found, Role::Entries, "p-deleted-left", json!({}));
            put(found, Role::Entries, "p-deleted-right", json!({}));
        },
        "p-deleted is there",
    ),
    (
        |_, found| put(found, Role::Accounts, "a0", json!({"balance": 97})),
        "a0 holds 97 instead of 96",
    ),
    (|_, found| remove(found, Role::Accounts, "a1"), "a1 holds nothing"),
    (|_, found| put(found, Role::Accounts, "counter-0-left", json!({"balance": 7})), "counter 0"),
    (|book, _| book.counters[0].acknowledged = 9, "counter 0"),
    (
        |_, found| {
            let locked = json!({"balance": 96, "transaction_tid": "x"});
            put(found, Role::Accounts, "a0", locked);
        },
        "a0 is still locked",
    ),
    (|_, found| put(found, Role::Entries, "stranger", json!({})), "stranger is a document"),
    (
        |_, found| put(found, Role::Entries, "old", json!({})),
        "old, which the administrator deleted",
    ),
    (|book, _| book.anomalies.push("a read saw 199".to_owned()), "a read saw 199"),
];

#[test]
fn each_planted_fault_is_seen() {
    for (plant, words) in PLANTS {
        let (mut book, mut found) = world();
        plant(&mut book, &mut found);
        let wrong = judge(&book, &found, &Named::default());
        assert!(wrong.iter().any(|line| line.contains(words)), "{words} is not in {wrong:?}");
    }
}

#[test]
fn transfer_with_second_effect_is_seen() {
    let (book, mut found) = world();
    put(&mut found, Role::Accounts, "a0", json!({"balance": 91}));
    put(&mut found, Role::Accounts, "a1", json!({"balance": 109}));
    let wrong = judge(&book, &found, &Named::default());
    assert_eq!(wrong.len(), 2, "{wrong:?}");
}

#[test]
fn reported_loss_excuses_no_other_loss() {
    let (book, mut found) = world();
    remove(&mut found, Role::Entries, "t-yes");
    assert!(judge(&book, &found, &named(Role::Entries, "t-yes")).is_empty());
    // The moves of the transfer are still expected.
    put(&mut found, Role::Accounts, "a0", json!({"balance": 101}));
    let wrong = judge(&book, &found, &named(Role::Entries, "t-yes"));
    assert_eq!(wrong, ["the account a0 holds 101 instead of 96"]);

    let (book, mut found) = world();
    remove(&mut found, Role::Entries, "p-yes-left");
    assert!(judge(&book, &found, &named(Role::Entries, "p-yes-left")).is_empty());
    assert_eq!(judge(&book, &found, &named(Role::Entries, "p-kept-left")).len(), 1);
}
