//! Random serial executions, and single mutations of them.

use std::collections::BTreeMap;

use proptest::prelude::*;
use txn_judge::{Fate, History, Model, Operation, Ruling, Transaction, judge};

use crate::committed;

/// The plan of a transaction: its operations and its overlap. The operations are pairs of key and
/// kind.
type Plan = (Vec<(u64, bool)>, u64, u64);

fn plans() -> impl Strategy<Value = Vec<Plan>> {
    let operations = prop::collection::vec((0_u64..4, any::<bool>()), 1..6);
    prop::collection::vec((operations, 0_u64..60, 0_u64..60), 2..40)
}

fn models() -> impl Strategy<Value = Model> {
    prop_oneof![Just(Model::List), Just(Model::Register)]
}

/// Runs the plans one after the other. Each is recorded as longer than it was.
fn run(model: Model, plans: &[Plan], has_finals: bool) -> History {
    let mut state: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    let (mut transactions, mut count) = (Vec::new(), 0);
    for (nth, (operations, early, late)) in (0_u64..).zip(plans) {
        let operations = operations.iter().map(|(key, is_write)| {
            let values = state.entry(*key).or_default();
            if *is_write {
                count += 1;
                if model == Model::Register {
                    values.clear();
                }
                values.push(count);
                Operation::Write { key: *key, value: count }
            } else {
                Operation::Read { key: *key, seen: Some(values.clone()) }
            }
        });
        // Positions stay unique: the last three digits are the transaction's own.
        let moment = 100 + 10 * nth;
        let began = (moment - early.min(&moment)) * 1_000 + 2 * nth;
        let acknowledged = (moment + late) * 1_000 + 2 * nth + 1;
        let mut one = committed(began, acknowledged, operations.collect());
        one.id = nth;
        transactions.push(one);
    }
    History { model, transactions, finals: has_finals.then_some(state) }
}

fn reads(history: &History) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for (nth, transaction) in history.transactions.iter().enumerate() {
        for (at, operation) in transaction.operations.iter().enumerate() {
            if matches!(operation, Operation::Read { .. }) {
                found.push((nth, at));
            }
        }
    }
    found
}

fn seen(history: &mut History, (nth, at): (usize, usize)) -> Option<&mut Vec<u64>> {
    match &mut history.transactions[nth].operations[at] {
        Operation::Read { seen, .. } => seen.as_mut(),
        Operation::Write { .. } => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn serial_executions_are_valid(model in models(), plans in plans(), finals: bool) {
        let judgement = judge(&run(model, &plans, finals));
        prop_assert_eq!(judgement.ruling, Ruling::Valid, "{}", judgement);
    }

    #[test]
    fn answers_that_were_lost_stay_valid(
        model in models(),
        plans in plans(),
        lost in prop::collection::vec(any::<bool>(), 40),
    ) {
        let mut history = run(model, &plans, true);
        for (transaction, is_lost) in history.transactions.iter_mut().zip(lost).skip(1) {
            if is_lost {
                transaction.acknowledged = None;
                transaction.fate = Fate::Unknown;
            }
        }
        let judgement = judge(&history);
        prop_assert_eq!(judgement.ruling, Ruling::Valid, "{}", judgement);
    }

    #[test]
    fn invented_values_are_rejected(
        model in models(),
        plans in plans(),
        which: prop::sample::Index,
    ) {
        let mut history = run(model, &plans, false);
        let reads = reads(&history);
        prop_assume!(!reads.is_empty());
        let values = seen(&mut history, reads[which.index(reads.len())]).unwrap();
        if model == Model::Register {
            values.clear();
        }
        values.push(1_000_000);
        prop_assert_eq!(judge(&history).ruling, Ruling::Invalid);
    }

    #[test]
    fn dropped_appends_are_rejected(plans in plans(), which: prop::sample::Index) {
        // The final contents lack one value of an acknowledged transaction.
        let mut history = run(Model::List, &plans, true);
        let finals = history.finals.as_mut().unwrap();
        let held: Vec<(u64, usize)> = finals
            .iter()
            .flat_map(|(key, values)| (0..values.len()).map(|at| (*key, at)))
            .collect();
        prop_assume!(!held.is_empty());
        let (key, at) = held[which.index(held.len())];
        finals.get_mut(&key).unwrap().remove(at);
        prop_assert_eq!(judge(&history).ruling, Ruling::Invalid);
    }

    #[test]
    fn swapped_elements_are_rejected(plans in plans(), which: prop::sample::Index) {
        // Another read, at the end, has the order of the execution.
        let mut history = run(Model::List, &plans, true);
        let long: Vec<_> = reads(&history)
            .into_iter()
            .filter(|at| seen(&mut history, *at).is_some_and(|values| values.len() > 1))
            .collect();
        prop_assume!(!long.is_empty());
        let values = seen(&mut history, long[which.index(long.len())]).unwrap();
        let at = which.index(values.len() - 1);
        values.swap(at, at + 1);
        prop_assert_eq!(judge(&history).ruling, Ruling::Invalid);
    }

    #[test]
    fn swapped_reads_of_one_transaction_are_rejected(
        plans in plans(),
        which: prop::sample::Index,
    ) {
        // Two reads of one key with different results have a write between them.
        let mut history = run(Model::List, &plans, true);
        let mut pairs = Vec::new();
        for (nth, transaction) in history.transactions.iter().enumerate() {
            for (one, first) in transaction.operations.iter().enumerate() {
                for (two, second) in transaction.operations.iter().enumerate().skip(one) {
                    let (Operation::Read { key: a, seen: x }, Operation::Read { key: b, seen: y }) =
                        (first, second) else { continue };
                    if a == b && x != y {
                        pairs.push((nth, one, two));
                    }
                }
            }
        }
        prop_assume!(!pairs.is_empty());
        let (nth, one, two) = pairs[which.index(pairs.len())];
        history.transactions[nth].operations.swap(one, two);
        prop_assert_eq!(judge(&history).ruling, Ruling::Invalid);
    }

    #[test]
    fn stale_reads_are_rejected(model in models(), plans in plans(), which: prop::sample::Index) {
        // Strictly one after the other, so that only one result is right.
        let plans: Vec<Plan> = plans.into_iter().map(|(operations, ..)| (operations, 0, 0)).collect();
        let mut history = run(model, &plans, true);
        let full: Vec<_> = reads(&history)
            .into_iter()
            .filter(|at| seen(&mut history, *at).is_some_and(|values| !values.is_empty()))
            .collect();
        prop_assume!(!full.is_empty());
        seen(&mut history, full[which.index(full.len())]).unwrap().pop();
        prop_assert_eq!(judge(&history).ruling, Ruling::Invalid);
    }
}

/// Ten thousand transactions, with and without an anomaly.
#[test]
fn large_histories_are_judged() {
    for (model, keys) in [(Model::List, 400), (Model::Register, 30)] {
        let mut random = 1_u64;
        let mut next = move |n: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % n
        };
        let plans: Vec<Plan> = (0..10_000)
            .map(|_| {
                let operations = (0..4).map(|_| (next(keys), next(2) == 0)).collect();
                (operations, next(60), next(60))
            })
            .collect();
        let mut history = spread(run(model, &plans, true));
        let judgement = judge(&history);
        assert_eq!(judgement.ruling, Ruling::Valid, "{judgement}");
        let stale = reads(&history)
            .into_iter()
            .rev()
            .find(|at| seen(&mut history, *at).is_some_and(|values| !values.is_empty()))
            .unwrap();
        seen(&mut history, stale).unwrap().clear();
        assert_eq!(judge(&history).ruling, Ruling::Invalid);
    }
}

/// Gives each moment of a large history a position of its own.
fn spread(mut history: History) -> History {
    let ends = |one: &Transaction| one.acknowledged.unwrap_or_default();
    let count = history.transactions.len();
    let moments = |history: &History| {
        let mut moments: Vec<(u64, bool, usize)> = Vec::new();
        for (nth, one) in history.transactions.iter().enumerate() {
            moments.push((one.began / 1_000, false, nth));
            moments.push((ends(one) / 1_000, true, nth));
        }
        moments.sort_unstable();
        moments
    };
    for (position, (_, is_end, nth)) in (0..).zip(moments(&history)) {
        let one = &mut history.transactions[nth % count];
        if is_end {
            one.acknowledged = Some(position);
        } else {
            one.began = position;
        }
    }
    history
}
