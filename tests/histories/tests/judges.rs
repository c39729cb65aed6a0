//! Both judges agree on recorded histories with one planted fault.

use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use txn_core::store::MemoryStore;
use txn_core::{Config, Domain};
use txn_histories::history::{Kind, Micro, Model, Seen};
use txn_histories::{Answer, Fleet, History, Stop, Workload, WorkloadConfig, check};

/// Runs transactions in one process, in virtual time.
fn recorded(seed: u64) -> History {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        let store = Arc::new(MemoryStore::new());
        let domain = Domain::open_or_create(store, "judges", Config::default()).await;
        let domain = domain.expect("opens");
        let config = WorkloadConfig::new(Model::ListAppend).with_seed(seed).with_keys(6);
        let workload = Workload::new(config);
        let until = Stop::default().after_transactions(60);
        let fleet = Fleet::new([domain.clone()]);
        let mut history = workload.run(&fleet, &until).await.expect("runs");
        workload.settle(&mut history, &domain).await.expect("settles");
        history
    })
}

/// Changes one read. Returns whether the read is another one then.
fn mutate(history: &mut History, random: &mut SmallRng) -> bool {
    let mut lists: Vec<&mut Vec<u64>> = Vec::new();
    for entry in history.entries.iter_mut().filter(|entry| entry.kind == Kind::Ok) {
        for micro in &mut entry.value {
            if let Micro::Read { seen: Seen::List(list), .. } = micro {
                lists.push(list);
            }
        }
    }
    let count = lists.len();
    let list = &mut lists[random.random_range(0..count)];
    let before = list.clone();
    match random.random_range(0..5) {
        0 => {
            list.pop();
        }
        1 if list.len() > 1 => {
            let at = random.random_range(1..list.len());
            list.swap(at - 1, at);
        }
        2 => list.push(1_000_000_007),
        3 => list.clear(),
        _ if !list.is_empty() => {
            let at = random.random_range(0..list.len());
            list.remove(at);
        }
        _ => {}
    }
    **list != before
}

#[test]
fn judges_agree_on_planted_faults() {
    let (mut rejected, mut accepted) = (0, 0);
    for seed in 0..4 {
        let history = recorded(seed);
        assert!(check(&history).judges_agree(), "{}", check(&history));
        let mut random = SmallRng::seed_from_u64(seed);
        for nth in 0..60 {
            let mut broken = history.clone();
            if !mutate(&mut broken, &mut random) {
                continue;
            }
            let verdict = check(&broken);
            assert!(verdict.judges_agree(), "seed {seed}, fault {nth}: {verdict}");
            match verdict.answer {
                Answer::Violated => rejected += 1,
                _ => accepted += 1,
            }
        }
    }
    // A read may miss a concurrent append, so some changes leave a sound history.
    assert!(rejected > 150 && rejected > accepted, "{rejected} rejected, {accepted} accepted");
}
