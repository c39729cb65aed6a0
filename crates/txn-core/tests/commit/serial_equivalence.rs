//! Random concurrent transactions on a store with faults.
//!
//! Commits are whole, are never undone, and have an equivalent serial order. No lock and no open
//! record remains.
//!
//! Every document is a list. A transaction reads some documents and appends its own number to other
//! documents. So the order of each document's versions is known, and a read shows its version.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use txn_core::store::MemoryStore;
use txn_core::{
    Collection, Config, Domain, Error, ErrorKind, LockMode, Options, ReadMode, TransactionOutcome,
    Typed,
};
use txn_sim::{FaultPlan, FaultStore};

use crate::support::Dice;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct List {
    entries: Vec<u64>,
}

type Lists = Collection<Typed<List>>;

/// The reads and writes of one transaction, on the keys `0..KEYS`.
#[derive(Clone, Debug)]
struct Plan {
    reads: BTreeSet<u8>,
    appends: BTreeSet<u8>,
    lock_mode: LockMode,
    read_mode: ReadMode,
    pause_millis: u64,
}

const KEYS: u8 = 4;

fn plan() -> impl Strategy<Value = Plan> {
    let keys = |most| prop::collection::btree_set(0..KEYS, 0..=most);
    let lock_mode = prop_oneof![4 => Just(LockMode::AtCommit), 1 => Just(LockMode::AtRead)];
    let read_mode = prop_oneof![4 => Just(ReadMode::Validate), 1 => Just(ReadMode::Lock)];
    (keys(3), keys(3), lock_mode, read_mode, 0_u64..30).prop_map(
        |(reads, appends, lock_mode, read_mode, pause_millis)| Plan {
            reads,
            appends,
            lock_mode,
            read_mode,
            pause_millis,
        },
    )
}

/// The known outcome of one transaction.
#[derive(Clone, Debug, PartialEq)]
enum Fate {
    Committed,
    Aborted,
    /// Not known, or not known yet. The transaction is applied whole or not at all.
    Unknown(Option<txn_core::AttemptId>),
}

#[derive(Clone, Debug)]
struct Done {
    number: u64,
    plan: Plan,
    fate: Fate,
    /// The lists that the last attempt read.
    seen: BTreeMap<u8, Vec<u64>>,
}

fn key(k: u8) -> String {
    format!("list-{k}")
}

async fn run_one(domain: &Domain, lists: &Lists, number: u64, plan: Plan) -> Done {
    let options = Options::default()
        .with_lock_mode(plan.lock_mode)
        .with_read_mode(plan.read_mode)
        .with_timeout(Some(Duration::from_secs(60)));
    let seen = parking_lot::Mutex::new(BTreeMap::new());
    let result = domain
        .run::<_, Error, _>(&options, async |tx| {
            seen.lock().clear();
            for k in plan.reads.union(&plan.appends) {
                let list = tx.get(lists, key(*k)).await?.unwrap_or_default();
                seen.lock().insert(*k, list.entries);
            }
            tokio::time::sleep(Duration::from_millis(plan.pause_millis)).await;
            for k in &plan.appends {
                let mut entries = seen.lock()[k].clone();
                entries.push(number);
                tx.put(lists, key(*k), &List { entries })?;
            }
            Ok(())
        })
        .await;
    let fate = match result {
        Ok(_) => Fate::Committed,
        Err(error) if error.kind() == ErrorKind::Unknown => Fate::Unknown(error.tid()),
        Err(error) => {
            assert!(
                matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Unavailable),
                "transaction {number}: {error}"
            );
            Fate::Aborted
        }
    };
    Done { number, plan, fate, seen: seen.into_inner() }
}

/// Returns a cycle in the order of the committed transactions, if any.
///
/// Nodes are transactions. An edge leads from a transaction to a later one.
fn cycle(done: &[Done], finals: &BTreeMap<u8, Vec<u64>>) -> Option<Vec<u64>> {
    let mut edges: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    let mut edge = |a: u64, b: u64| {
        if a != b {
            edges.entry(a).or_default().insert(b);
        }
    };
    for order in finals.values() {
        for pair in order.windows(2) {
            edge(pair[0], pair[1]);
        }
    }
    for d in done.iter().filter(|d| d.fate == Fate::Committed) {
        for (k, seen) in &d.seen {
            if let Some(last) = seen.last() {
                edge(*last, d.number);
            }
            // The writer of the first unseen version comes later in the order.
            if let Some(next) = finals[k].get(seen.len()) {
                edge(d.number, *next);
            }
        }
    }
    // Kahn's algorithm: the nodes that remain lie on a cycle or after one.
    let mut left: BTreeSet<u64> = done.iter().map(|d| d.number).collect();
    loop {
        let free: Vec<u64> = left
            .iter()
            .copied()
            .filter(|n| !left.iter().any(|m| edges.get(m).is_some_and(|to| to.contains(n))))
            .collect();
        if free.is_empty() {
            break;
        }
        for n in free {
            left.remove(&n);
        }
    }
    (!left.is_empty()).then(|| left.into_iter().collect())
}

async fn check(clients: Vec<Vec<Plan>>, seed: u64, rough: bool) {
    let plan = if rough { FaultPlan::rough(seed) } else { FaultPlan::none(seed) };
    let store = Arc::new(FaultStore::new(Arc::new(MemoryStore::new()), plan));
    store.set_enabled(false);
    let config = |n: u64| {
        Config::default()
            .with_janitor_interval(Some(Duration::from_secs(3)))
            .with_entropy(Dice::new(seed ^ (n << 32)))
            .with_process_name(format!("client {n}"))
    };
    let mut domains = Vec::new();
    for n in 0..clients.len() as u64 {
        domains
            .push(Domain::open_or_create(store.clone(), "lists", config(n)).await.expect("opens"));
    }
    let lists: Lists = domains[0].create_collection("lists", None).await.expect("opens");
    store.set_enabled(true);
    let mut number = 0;
    let mut tasks = Vec::new();
    for (domain, plans) in domains.iter().zip(clients) {
        for plan in plans {
            number += 1;
            let (domain, lists) = (domain.clone(), lists.clone());
            tasks.push(tokio::spawn(async move { run_one(&domain, &lists, number, plan).await }));
        }
    }
    let mut done = Vec::new();
    for task in tasks {
        done.push(task.await.expect("no panic"));
    }
    store.set_enabled(false);
    for domain in &domains {
        domain.shutdown(Duration::from_secs(120)).await;
    }
    store.settle().await;
    // A fresh process cleans up.
    let witness = Domain::open_or_create(store.clone(), "lists", config(99)).await.expect("opens");
    let report = witness.admin().janitor_pass().await.expect("passes");
    assert!(report.is_clean(), "left over: {report:?}; faults: {}", store.injected());
    let mut finals = BTreeMap::new();
    for k in 0..KEYS {
        let list = witness.reader().get(&lists, key(k)).await.expect("reads").unwrap_or_default();
        finals.insert(k, list.entries);
    }
    for d in &mut done {
        if let Fate::Unknown(Some(tid)) = d.fate {
            d.fate = match witness.outcome(tid).await.expect("known") {
                TransactionOutcome::Committed { .. } => Fate::Committed,
                _ => Fate::Aborted,
            };
        }
        for k in 0..KEYS {
            let count = finals[&k].iter().filter(|n| **n == d.number).count();
            let wrote = usize::from(d.plan.appends.contains(&k));
            match d.fate {
                Fate::Committed => assert_eq!(count, wrote, "{d:?} in list {k}: {finals:?}"),
                Fate::Aborted => assert_eq!(count, 0, "{d:?} in list {k}: {finals:?}"),
                // A transaction without a record writes one document, and so is whole.
                Fate::Unknown(_) => assert!(count <= wrote, "{d:?} in list {k}: {finals:?}"),
            }
        }
        if d.fate == Fate::Committed {
            for (k, seen) in &d.seen {
                assert!(finals[k].starts_with(seen), "{d:?} read uncommitted content: {finals:?}");
            }
        }
    }
    if let Some(cycle) = cycle(&done, &finals) {
        panic!("not serialisable: {cycle:?} in {done:#?}, {finals:?}");
    }
    witness.shutdown(Duration::from_secs(10)).await;
}

fn in_virtual_time(future: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime")
        .block_on(future);
}

fn clients() -> impl Strategy<Value = Vec<Vec<Plan>>> {
    prop::collection::vec(prop::collection::vec(plan(), 1..5), 1..4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(
        std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(150)
    ))]

    #[test]
    fn commits_are_serialisable_on_a_healthy_store(clients in clients(), seed in any::<u64>()) {
        in_virtual_time(check(clients, seed, false));
    }

    #[test]
    fn commits_are_serialisable_on_a_rough_store(clients in clients(), seed in any::<u64>()) {
        in_virtual_time(check(clients, seed, true));
    }
}
