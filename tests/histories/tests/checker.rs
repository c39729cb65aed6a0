//! Tests of the checker with known histories.
//!
//! The checker must reject bad histories by the right name, and accept good ones.

use txn_histories::history::{Entry, History, Kind, Micro, Model, Outcome, Seen, Transactional};
use txn_histories::{Answer, check};

fn append(key: u64, value: u64) -> Micro {
    Micro::Append { key, value }
}

fn list(key: u64, values: &[u64]) -> Micro {
    Micro::Read { key, seen: Seen::List(values.to_vec()) }
}

fn write(key: u64, value: u64) -> Micro {
    Micro::Write { key, value }
}

fn register(key: u64, value: Option<u64>) -> Micro {
    Micro::Read { key, seen: value.map_or(Seen::Nil, Seen::Value) }
}

/// A transaction: its end and its operations.
type Done = (Kind, Vec<Micro>);

fn ok(value: Vec<Micro>) -> Done {
    (Kind::Ok, value)
}

fn push(entries: &mut Vec<Entry>, kind: Kind, process: u64, value: Vec<Micro>) {
    let index = entries.len() as u64;
    entries.push(Entry {
        index,
        kind,
        process,
        time: index,
        f: Transactional::Txn,
        value,
        error: None,
        tid: None,
        outcome: None,
    });
}

fn asked(value: &[Micro]) -> Vec<Micro> {
    let forget = |micro: &Micro| match micro {
        Micro::Read { key, .. } => Micro::Read { key: *key, seen: Seen::Nil },
        other => other.clone(),
    };
    value.iter().map(forget).collect()
}

/// A history of overlapping transactions.
fn together(model: Model, transactions: Vec<Done>) -> History {
    let mut entries = Vec::new();
    for (process, (_, value)) in transactions.iter().enumerate() {
        push(&mut entries, Kind::Invoke, process as u64, asked(value));
    }
    for (process, (kind, value)) in transactions.into_iter().enumerate() {
        push(&mut entries, kind, process as u64, value);
    }
    History { model, entries, finals: None }
}

/// A history of transactions one after the other.
fn in_turn(model: Model, transactions: Vec<Done>) -> History {
    let mut entries = Vec::new();
    for (process, (kind, value)) in transactions.into_iter().enumerate() {
        push(&mut entries, Kind::Invoke, process as u64, asked(&value));
        push(&mut entries, kind, process as u64, value);
    }
    History { model, entries, finals: None }
}

fn lists(transactions: Vec<Done>) -> History {
    together(Model::ListAppend, transactions)
}

#[track_caller]
fn rejected(history: &History, name: &str) {
    let verdict = check(history);
    assert_eq!(verdict.answer, Answer::Violated, "{verdict}");
    assert!(verdict.judges_agree(), "{verdict}");
    assert!(verdict.names().contains(&name), "not {name}: {verdict}");
}

#[track_caller]
fn accepted(history: &History) {
    let verdict = check(history);
    assert!(verdict.holds_with(1), "{verdict}");
}

#[test]
fn g0_dirty_write() {
    // Two lists have the appends of two transactions in opposite orders.
    rejected(
        &lists(vec![
            ok(vec![append(1, 11), append(2, 12)]),
            ok(vec![append(1, 21), append(2, 22)]),
            ok(vec![list(1, &[11, 21]), list(2, &[22, 12])]),
        ]),
        "G0",
    );
}

#[test]
fn g1a_aborted_read() {
    let history = lists(vec![(Kind::Fail, vec![append(1, 11)]), ok(vec![list(1, &[11])])]);
    rejected(&history, "G1a");
    let history = together(
        Model::Register,
        vec![(Kind::Fail, vec![write(1, 11)]), ok(vec![register(1, Some(11)), write(2, 1)])],
    );
    rejected(&history, "G1a");
}

#[test]
fn g1a_of_a_transaction_found_aborted() {
    let mut history = lists(vec![
        (Kind::Info, vec![append(1, 11)]),
        ok(vec![list(1, &[11])]),
        ok(vec![append(1, 12)]),
    ]);
    accepted(&history);
    history.entries[3].outcome = Some(Outcome::Aborted);
    rejected(&history, "G1a");
}

#[test]
fn g1b_intermediate_read() {
    let history = lists(vec![ok(vec![append(1, 11), append(1, 12)]), ok(vec![list(1, &[11])])]);
    rejected(&history, "G1b");
    let history = together(
        Model::Register,
        vec![ok(vec![write(1, 11), write(1, 12)]), ok(vec![register(1, Some(11))])],
    );
    rejected(&history, "G1b");
}

#[test]
fn g1c_circular_information_flow() {
    rejected(
        &lists(vec![
            ok(vec![append(1, 11), list(2, &[22])]),
            ok(vec![append(2, 22), list(1, &[11])]),
        ]),
        "G1c",
    );
    let history = together(
        Model::Register,
        vec![
            ok(vec![write(1, 11), register(2, Some(22))]),
            ok(vec![write(2, 22), register(1, Some(11))]),
        ],
    );
    rejected(&history, "G1c");
}

#[test]
fn g_single_read_skew() {
    rejected(
        &lists(vec![
            ok(vec![append(1, 11), append(2, 12)]),
            ok(vec![list(1, &[]), list(2, &[12])]),
            ok(vec![list(1, &[11])]),
        ]),
        "G-single-item",
    );
    let history = together(
        Model::Register,
        vec![
            ok(vec![write(1, 11), write(2, 12)]),
            ok(vec![register(1, None), register(2, Some(12))]),
        ],
    );
    rejected(&history, "G-single-item");
}

#[test]
fn g2_write_skew() {
    rejected(
        &lists(vec![
            ok(vec![list(1, &[]), list(2, &[]), append(1, 11)]),
            ok(vec![list(1, &[]), list(2, &[]), append(2, 22)]),
        ]),
        "G2-item",
    );
    let history = together(
        Model::Register,
        vec![
            ok(vec![register(1, None), register(2, None), write(1, 11)]),
            ok(vec![register(1, None), register(2, None), write(2, 22)]),
        ],
    );
    rejected(&history, "G2-item");
}

#[test]
fn long_fork() {
    // Two readers see two independent writes in opposite orders.
    let (mine, yours) = (append(1, 11), append(2, 22));
    let (first, second) = (vec![list(1, &[11]), list(2, &[])], vec![list(1, &[]), list(2, &[22])]);
    let forked = vec![ok(vec![mine]), ok(vec![yours]), ok(first), ok(second)];
    rejected(&lists(forked), "G-nonadjacent-item");
    let (mine, yours) = (write(1, 11), write(2, 22));
    let first = vec![register(1, Some(11)), register(2, None)];
    let second = vec![register(1, None), register(2, Some(22))];
    let forked = vec![ok(vec![mine]), ok(vec![yours]), ok(first), ok(second)];
    rejected(&together(Model::Register, forked), "G-nonadjacent-item");
}

#[test]
fn lost_update() {
    rejected(
        &lists(vec![
            ok(vec![list(1, &[]), append(1, 11)]),
            ok(vec![list(1, &[]), append(1, 12)]),
            ok(vec![list(1, &[11, 12])]),
        ]),
        "lost-update",
    );
    let history = together(
        Model::Register,
        vec![ok(vec![register(1, None), write(1, 11)]), ok(vec![register(1, None), write(1, 12)])],
    );
    rejected(&history, "lost-update");
}

#[test]
fn dirty_update() {
    rejected(
        &lists(vec![
            (Kind::Fail, vec![append(1, 11)]),
            ok(vec![append(1, 12)]),
            ok(vec![list(1, &[11, 12])]),
        ]),
        "dirty-update",
    );
}

#[test]
fn reads_that_fit_no_order() {
    rejected(
        &lists(vec![
            ok(vec![append(1, 11)]),
            ok(vec![append(1, 12)]),
            ok(vec![list(1, &[11, 12])]),
            ok(vec![list(1, &[12, 11])]),
        ]),
        "incompatible-order",
    );
}

#[test]
fn own_writes_that_are_not_seen() {
    rejected(
        &lists(vec![ok(vec![append(1, 11), list(1, &[])]), ok(vec![list(1, &[11])])]),
        "internal",
    );
}

#[test]
fn a_stale_read_violates_real_time() {
    // Serialisable, but not in this order.
    let transactions =
        || vec![ok(vec![append(1, 11)]), ok(vec![list(1, &[])]), ok(vec![list(1, &[11])])];
    let history = in_turn(Model::ListAppend, transactions());
    rejected(&history, "G-single-item-realtime");
    rejected(&history, "stale-read");
    accepted(&lists(transactions()));
    let transactions = || vec![ok(vec![write(1, 11)]), ok(vec![register(1, None), write(2, 1)])];
    rejected(&in_turn(Model::Register, transactions()), "G-single-item-realtime");
    accepted(&together(Model::Register, transactions()));
}

#[test]
fn real_time_counts_across_keys() {
    // Each list alone is fine. The reader sees the later append, and misses the earlier one of
    // another key.
    let mut entries = Vec::new();
    push(&mut entries, Kind::Invoke, 9, vec![list(1, &[]), list(2, &[])]);
    for (process, key) in [(0, 1), (1, 2)] {
        push(&mut entries, Kind::Invoke, process, vec![append(key, 10 + key)]);
        push(&mut entries, Kind::Ok, process, vec![append(key, 10 + key)]);
    }
    push(&mut entries, Kind::Ok, 9, vec![list(1, &[]), list(2, &[12])]);
    let history = History { model: Model::ListAppend, entries, finals: None };
    rejected(&history, "G-single-item-realtime");
}

#[test]
fn unknown_outcome_allows_both_at_any_time() {
    for seen in [vec![list(1, &[])], vec![list(1, &[11])]] {
        let history = in_turn(
            Model::ListAppend,
            vec![
                (Kind::Info, vec![append(1, 11)]),
                ok(seen),
                ok(vec![list(2, &[]), append(2, 5)]),
                ok(vec![list(2, &[5])]),
            ],
        );
        accepted(&history);
    }
}

#[test]
fn sound_histories_pass() {
    accepted(&in_turn(
        Model::ListAppend,
        vec![
            ok(vec![append(1, 11), append(2, 12), list(1, &[11])]),
            (Kind::Fail, vec![append(1, 99)]),
            ok(vec![list(1, &[11]), append(1, 13), append(1, 14)]),
            ok(vec![list(1, &[11, 13, 14]), list(2, &[12])]),
        ],
    ));
    accepted(&in_turn(
        Model::Register,
        vec![
            ok(vec![write(1, 11), write(2, 12)]),
            ok(vec![register(1, Some(11)), write(1, 13)]),
            ok(vec![register(1, Some(13)), register(2, Some(12))]),
        ],
    ));
}

#[test]
fn empty_history_is_undecided() {
    for model in [Model::ListAppend, Model::Register] {
        assert_eq!(check(&together(model, Vec::new())).answer, Answer::Unknown);
        let failed = vec![(Kind::Fail, vec![register(1, None)])];
        assert_eq!(check(&together(model, failed)).answer, Answer::Unknown);
    }
    let sound = in_turn(Model::ListAppend, vec![ok(vec![append(1, 1)]), ok(vec![list(1, &[1])])]);
    assert!(check(&sound).holds_with(2) && !check(&sound).holds_with(3));
}

#[test]
fn malformed_history_is_undecided() {
    let flawed = |history: &History, why: &str| {
        let verdict = check(history);
        assert_eq!(verdict.answer, Answer::Unknown, "{verdict}");
        assert_eq!(verdict.names(), ["malformed"], "{verdict}");
        assert!(verdict.findings[0].explanation.contains(why), "not {why}: {verdict}");
    };
    let twice = || vec![ok(vec![append(1, 11)]), ok(vec![append(1, 11)]), ok(vec![list(1, &[11])])];
    flawed(&lists(twice()), "as another one did");
    let mixed = vec![ok(vec![append(1, 11)]), ok(vec![register(1, Some(11))])];
    flawed(&lists(mixed), "another model");
    let sound =
        || in_turn(Model::ListAppend, vec![ok(vec![append(1, 11)]), ok(vec![append(1, 12)])]);
    let mut history = sound();
    history.entries[1].kind = Kind::Info;
    history.entries[2].process = 0;
    flawed(&history, "cannot begin");
    let mut history = sound();
    history.entries.pop();
    flawed(&history, "never ends");
    let mut history = sound();
    history.entries[3].process = 7;
    flawed(&history, "nothing to end");
    let mut history = sound();
    history.entries[3].value = vec![append(1, 13)];
    flawed(&history, "something else");
    let mut history = sound();
    history.entries.swap(0, 2);
    flawed(&history, "says that it is");
}

fn ends(kind: Kind, outcome: Option<Outcome>, finals: [(u64, &[u64]); 2]) -> History {
    let wrote = vec![append(1, 11), append(2, 12)];
    let mut history = lists(vec![(kind, wrote), ok(vec![append(1, 13)]), ok(vec![list(1, &[])])]);
    history.entries[3].outcome = outcome;
    history.finals = Some(finals.map(|(key, values)| (key, values.to_vec())).into());
    history
}

#[test]
fn final_state_is_whole_or_nothing() {
    let (committed, aborted) = (Some(Outcome::Committed), Some(Outcome::Aborted));
    let whole = [(1, &[11, 13][..]), (2, &[12][..])];
    let nothing = [(1, &[13][..]), (2, &[][..])];
    let half = [(1, &[11, 13][..]), (2, &[][..])];
    accepted(&ends(Kind::Ok, None, whole));
    accepted(&ends(Kind::Info, committed, whole));
    accepted(&ends(Kind::Info, None, whole));
    accepted(&ends(Kind::Info, None, nothing));
    accepted(&ends(Kind::Info, aborted, nothing));
    accepted(&ends(Kind::Fail, None, nothing));
    rejected(&ends(Kind::Ok, None, half), "lost-write");
    rejected(&ends(Kind::Info, committed, nothing), "lost-write");
    rejected(&ends(Kind::Info, None, half), "torn-write");
    rejected(&ends(Kind::Info, aborted, whole), "aborted-write");
    rejected(&ends(Kind::Fail, None, half), "aborted-write");
    rejected(&ends(Kind::Ok, None, [(1, &[11, 11, 13]), (2, &[12])]), "repeated-write");
    rejected(&ends(Kind::Ok, None, [(1, &[11, 13, 77]), (2, &[12])]), "thin-air");
}

#[test]
fn read_of_an_unwritten_value_is_rejected() {
    // At the end of the list, and in this read only.
    let invented = vec![ok(vec![append(1, 11)]), ok(vec![list(1, &[11, 77])])];
    rejected(&in_turn(Model::ListAppend, invented), "thin-air");
    // In a list without any write.
    rejected(&lists(vec![ok(vec![append(1, 11)]), ok(vec![list(2, &[77])])]), "thin-air");
    let invented = vec![ok(vec![write(1, 11)]), ok(vec![register(1, Some(77))])];
    rejected(&in_turn(Model::Register, invented), "thin-air");
    // A write that another transaction requests only later cannot be read.
    let future = vec![ok(vec![list(1, &[11])]), (Kind::Info, vec![append(1, 11)])];
    rejected(&in_turn(Model::ListAppend, future), "thin-air");
    // The write of this transaction, or of one with an unknown outcome, may be read.
    let unknown =
        vec![(Kind::Info, vec![append(1, 11)]), ok(vec![append(1, 12), list(1, &[11, 12])])];
    accepted(&in_turn(Model::ListAppend, unknown));
}
