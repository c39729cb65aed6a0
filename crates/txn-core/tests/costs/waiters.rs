//! The requests of transactions that wait for one locked document.

use std::time::Duration;

use futures::future::join_all;
use txn_core::{Error, LockMode, Options};

use crate::support::{Dice, Dies, Item, Setup, SharedStore, World, config};

/// The maximum number of requests of a waiter in a second. Found: 12 to 19.
const EACH_SECOND: u64 = 22;

/// The maximum requests of a waiter after the lock's release. Found: 5 to 12.
const AFTER_RELEASE: u64 = 16;

/// The time in which requests are counted, while all transactions wait.
const COUNTED: Duration = Duration::from_secs(6);

fn requests(all: &[World]) -> u64 {
    all.iter().map(|process| process.counting.counts().requests()).sum()
}

/// Lets transactions wait for an older one, and checks both bounds. The older transaction runs in
/// another process.
async fn are_bounded(processes: usize, waiters_of_each: usize) {
    let shared = SharedStore::of(1).await;
    let holder = shared.process(Dies::Never).await;
    let mut all: Vec<World> = Vec::new();
    for seed in 0..processes as u64 {
        let setup = Setup::on(shared.memory.clone()).below(shared.store.clone());
        all.push(setup.config(config().with_entropy(Dice::new(seed))).open().await);
    }
    let pessimistic = Options::default().with_lock_mode(LockMode::AtRead);
    let tx = holder.domain.begin(&pessimistic).expect("begins");
    tx.get(&holder.items, "d0000").await.expect("locks");
    let options = Options::default();
    let waits = all.iter().flat_map(|process| std::iter::repeat_n(process, waiters_of_each));
    let waits = waits.map(async |process| {
        let increment = process.domain.run::<_, Error, _>(&options, async |tx| {
            let found = tx.get(&process.items, "d0000").await?.expect("exists");
            tx.put(&process.items, "d0000", &Item { n: found.n + 1 })
        });
        increment.await.map(drop)
    });
    let holds = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let before = requests(&all);
        tokio::time::sleep(COUNTED).await;
        let waited = requests(&all);
        tx.rollback().await;
        (waited - before, waited)
    };
    let (committed, (while_waiting, waited)) = tokio::join!(join_all(waits), holds);
    assert!(committed.iter().all(Result::is_ok), "{committed:?}");
    let after = requests(&all) - waited;
    let k = committed.len() as u64;
    let what = format!("{processes} processes with {waiters_of_each} waiters each");
    println!("{what}: {while_waiting} requests in {COUNTED:?}, {after} after the release");
    assert!(while_waiting <= EACH_SECOND * k * COUNTED.as_secs(), "{what}: {while_waiting}");
    assert!(after <= AFTER_RELEASE * k, "{what}: {after}");
}

/// At most 22 k requests a second, 16 k after the release.
#[tokio::test(start_paused = true)]
async fn k_waiters_of_one_process_send_o_k_requests() {
    for k in [1, 10, 100] {
        are_bounded(1, k).await;
    }
}

/// The same bounds, with a process for each waiter.
#[tokio::test(start_paused = true)]
async fn k_waiting_processes_send_o_k_requests() {
    for k in [1, 10, 100] {
        are_bounded(k, 1).await;
    }
}
