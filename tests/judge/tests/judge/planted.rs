//! Planted anomalies, each by its name.

use txn_judge::AnomalyKind::*;
use txn_judge::{
    AnomalyKind, Fate, History, Model, Ruling, Transaction, judge, judge_serialisable,
};

use crate::{committed, in_turn, read, together, write};

use Model::{List, Register};

#[track_caller]
fn rejected(history: &History, kind: AnomalyKind) {
    let judgement = judge(history);
    assert_eq!(judgement.ruling, Ruling::Invalid, "{judgement}");
    assert!(judgement.has(kind), "not {}: {judgement}", kind.name());
}

#[track_caller]
fn accepted(history: &History) {
    let judgement = judge(history);
    assert_eq!(judgement.ruling, Ruling::Valid, "{judgement}");
}

/// A transaction without an answer.
fn unanswered(
    id: u64,
    began: u64,
    fate: Fate,
    operations: Vec<txn_judge::Operation>,
) -> Transaction {
    Transaction { id, began, acknowledged: None, fate, operations }
}

#[test]
fn g0_dirty_write() {
    let history = together(
        List,
        vec![
            vec![write(1, 11), write(2, 12)],
            vec![write(1, 21), write(2, 22)],
            vec![read(1, &[11, 21]), read(2, &[22, 12])],
        ],
    );
    rejected(&history, G0);
    let cycle = judge(&history).anomalies.into_iter().find(|found| found.kind == G0).unwrap();
    let mut transactions = cycle.transactions;
    transactions.sort_unstable();
    assert_eq!(transactions, [0, 1], "the cycle has its transactions");
}

#[test]
fn g1a_aborted_read() {
    for model in [List, Register] {
        let mut history = together(model, vec![vec![read(1, &[11])]]);
        history.transactions.push(unanswered(50, 50, Fate::Aborted, vec![write(1, 11)]));
        rejected(&history, G1a);
        history.transactions[1].fate = Fate::Unknown;
        accepted(&history);
    }
}

#[test]
fn g1b_intermediate_read() {
    for model in [List, Register] {
        let writer = vec![write(1, 11), write(1, 12)];
        rejected(&together(model, vec![writer, vec![read(1, &[11])]]), G1b);
    }
}

#[test]
fn g1c_circular_information_flow() {
    for model in [List, Register] {
        let (one, two) = (vec![write(1, 11), read(2, &[22])], vec![write(2, 22), read(1, &[11])]);
        rejected(&together(model, vec![one, two]), G1c);
    }
}

#[test]
fn g_single_read_skew() {
    for model in [List, Register] {
        let writer = vec![write(1, 11), write(2, 12)];
        rejected(&together(model, vec![writer, vec![read(1, &[]), read(2, &[12])]]), GSingle);
    }
}

#[test]
fn g_nonadjacent_and_long_fork() {
    for model in [List, Register] {
        // Long fork: two readers see two writes in opposite orders.
        let (one, two) = (vec![read(1, &[11]), read(2, &[])], vec![read(1, &[]), read(2, &[22])]);
        let fork = vec![vec![write(1, 11)], vec![write(2, 22)], one, two];
        rejected(&together(model, fork), GNonadjacent);
        // The same with three writes, so that the cycle has three `rw`.
        let readers =
            [(1, 2), (2, 3), (3, 1)].map(|(new, old)| vec![read(new, &[10 + new]), read(old, &[])]);
        let mut fork: Vec<_> = (1..4).map(|key| vec![write(key, 10 + key)]).collect();
        fork.extend(readers.clone());
        rejected(&together(model, fork.clone()), GNonadjacent);
        // Without one reader an order exists.
        fork.pop();
        accepted(&together(model, fork));
    }
}

#[test]
fn g2_write_skew() {
    for model in [List, Register] {
        let one = vec![read(1, &[]), read(2, &[]), write(1, 11)];
        let two = vec![read(1, &[]), read(2, &[]), write(2, 22)];
        let history = together(model, vec![one, two]);
        rejected(&history, G2Item);
        assert!(!judge(&history).has(GNonadjacent));
    }
}

#[test]
fn lost_update() {
    for model in [List, Register] {
        let (one, two) = (vec![read(1, &[]), write(1, 11)], vec![read(1, &[]), write(1, 12)]);
        rejected(&together(model, vec![one, two]), LostUpdate);
        let one = vec![read(1, &[11]), write(1, 12)];
        let two = vec![read(1, &[11]), write(1, 13)];
        rejected(&together(model, vec![vec![write(1, 11)], one, two]), LostUpdate);
    }
}

#[test]
fn values_out_of_thin_air() {
    for model in [List, Register] {
        rejected(&together(model, vec![vec![write(2, 1)], vec![read(1, &[77])]]), ThinAir);
        // A write that begins only after the read.
        rejected(&in_turn(model, vec![vec![read(1, &[11])], vec![write(1, 11)]]), ThinAir);
    }
    rejected(&together(List, vec![vec![write(1, 11)], vec![read(1, &[11, 77])]]), ThinAir);
    let mut history = together(List, vec![vec![write(1, 11)]]);
    history.finals = Some([(1, vec![11, 77])].into());
    rejected(&history, ThinAir);
}

#[test]
fn internal_consistency() {
    for model in [List, Register] {
        let unseen = vec![vec![write(1, 11), read(1, &[])]];
        rejected(&together(model, unseen), Internal);
        let unrepeatable = vec![vec![write(1, 11)], vec![read(1, &[]), read(1, &[11])]];
        rejected(&together(model, unrepeatable), Internal);
    }
    let reordered = vec![vec![write(1, 11), write(1, 12), read(1, &[12, 11])]];
    rejected(&together(List, reordered), Internal);
    let overwritten = vec![vec![write(1, 11), write(1, 12), read(1, &[11])]];
    rejected(&together(Register, overwritten), Internal);
}

#[test]
fn lists_that_fit_no_order() {
    let writes = || vec![vec![write(1, 11)], vec![write(1, 12)]];
    let with = |reads: Vec<_>| together(List, writes().into_iter().chain(reads).collect());
    rejected(&with(vec![vec![read(1, &[11, 12, 11])]]), DuplicateElements);
    let both = vec![vec![read(1, &[11, 12])], vec![read(1, &[12, 11])]];
    rejected(&with(both), IncompatibleOrder);
    rejected(&with(vec![vec![read(1, &[11])], vec![read(1, &[12])]]), IncompatibleOrder);
    accepted(&with(vec![vec![read(1, &[11])], vec![read(1, &[11, 12])]]));
}

#[test]
fn torn_writes_of_one_list() {
    let twice = || vec![write(1, 11), write(1, 12)];
    let with =
        |seen: &[u64]| together(List, vec![twice(), vec![write(1, 13)], vec![read(1, seen)]]);
    rejected(&with(&[12]), TornWrite);
    rejected(&with(&[12, 11]), TornWrite);
    rejected(&with(&[11, 13]), TornWrite);
    rejected(&with(&[11, 13, 12]), G0);
    accepted(&with(&[13, 11, 12]));
}

#[test]
fn final_contents_are_a_last_read() {
    let ends = |fate, acknowledged, finals: [(u64, &[u64]); 2]| {
        let operations = vec![write(1, 11), write(2, 12)];
        let one = Transaction { id: 0, began: 0, acknowledged, fate, operations };
        let transactions = vec![one, committed(1, 9, vec![write(1, 13)])];
        let finals = Some(finals.map(|(key, seen)| (key, seen.to_vec())).into());
        History { model: List, transactions, finals }
    };
    let whole: [(u64, &[u64]); 2] = [(1, &[11, 13]), (2, &[12])];
    let nothing: [(u64, &[u64]); 2] = [(1, &[13]), (2, &[])];
    let half: [(u64, &[u64]); 2] = [(1, &[11, 13]), (2, &[])];
    for (fate, acknowledged) in
        [(Fate::Committed, Some(8)), (Fate::Committed, None), (Fate::Unknown, None)]
    {
        accepted(&ends(fate, acknowledged, whole));
        rejected(&ends(fate, acknowledged, half), GSingle);
    }
    accepted(&ends(Fate::Unknown, None, nothing));
    accepted(&ends(Fate::Aborted, None, nothing));
    rejected(&ends(Fate::Aborted, None, whole), G1a);
    rejected(&ends(Fate::Committed, Some(8), nothing), GSingleRealtime);
    // Found out later, and not there.
    rejected(&ends(Fate::Committed, None, nothing), GSingleRealtime);
}

#[test]
fn stale_read_violates_only_real_time() {
    for model in [List, Register] {
        let transactions = || vec![vec![write(1, 11)], vec![read(1, &[])], vec![read(1, &[11])]];
        let history = in_turn(model, transactions());
        rejected(&history, GSingleRealtime);
        // The judge without real-time edges accepts it, so the edges are needed.
        assert_eq!(judge_serialisable(&history).ruling, Ruling::Valid);
        accepted(&together(model, transactions()));
    }
}

#[test]
fn real_time_counts_across_keys_and_transactions() {
    for model in [List, Register] {
        // The reader overlaps both writers, and sees the later one only.
        let reader = committed(0, 99, vec![read(1, &[]), read(2, &[12])]);
        let (one, two) = (committed(1, 2, vec![write(1, 11)]), committed(3, 4, vec![write(2, 12)]));
        let history = History { model, transactions: vec![reader, one, two], finals: None };
        rejected(&history, GSingleRealtime);
        assert_eq!(judge_serialisable(&history).ruling, Ruling::Valid);
        // Two stale readers, ordered by time only.
        let fork = vec![
            committed(0, 99, vec![write(1, 11)]),
            committed(1, 2, vec![read(1, &[11])]),
            committed(3, 4, vec![read(1, &[])]),
        ];
        rejected(&History { model, transactions: fork, finals: None }, GSingleRealtime);
    }
}

#[test]
fn register_order_follows_over_several_steps() {
    // Each inference needs the previous one: W1 < W2 of key 1 by a read of key 2, and so on.
    let transactions = vec![
        vec![write(1, 11)],
        vec![read(1, &[11]), write(1, 12), write(2, 21)],
        vec![read(2, &[21]), write(2, 22), write(3, 31)],
        vec![read(3, &[31]), read(1, &[11])],
    ];
    rejected(&together(Register, transactions), GSingle);
}

#[test]
fn unknown_outcome_allows_both_at_any_time() {
    for model in [List, Register] {
        for seen in [&[][..], &[11]] {
            let mut history = in_turn(model, vec![vec![write(9, 1)], vec![read(1, seen)]]);
            history.transactions.push(unanswered(50, 1, Fate::Unknown, vec![write(1, 11)]));
            history.transactions[1].began = 60;
            history.transactions[1].acknowledged = Some(61);
            accepted(&history);
        }
    }
}

#[test]
fn histories_without_evidence_are_undecided() {
    let undecided = |history: &History| {
        let judgement = judge(history);
        assert_eq!(judgement.ruling, Ruling::Undecided, "{judgement}");
    };
    undecided(&together(List, vec![]));
    undecided(&together(List, vec![vec![write(1, 1)], vec![write(1, 1)]]));
    undecided(&together(Register, vec![vec![read(1, &[1, 2])]]));
    let mut history = together(List, vec![vec![write(1, 1)]]);
    history.transactions[0].acknowledged = Some(0);
    undecided(&history);
    history.transactions[0].acknowledged = None;
    undecided(&history);
}
