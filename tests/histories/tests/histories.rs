//! Recorded histories in memory and in an embedded file.
//!
//! Some runs in memory have faults.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use txn_core::clock::Entropy;
use txn_core::event::{Event, Observer};
use txn_core::store::{MemoryStore, Store};
use txn_core::{Config, Domain};
use txn_histories::history::{Kind, Micro, Model};
use txn_histories::{Fleet, Stop, Workload, WorkloadConfig, check};
use txn_redb::RedbStore;
use txn_sim::{FaultPlan, FaultStore};

const MODELS: [Model; 2] = [Model::ListAppend, Model::Register];

/// Randomness of the engine that a seed repeats.
#[derive(Debug)]
struct Dice(AtomicU64);

impl Entropy for Dice {
    fn next_u64(&self) -> u64 {
        let mut z = self.0.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

async fn process(store: &Arc<dyn Store>, number: u64, seed: u64) -> Domain {
    process_with(Config::default(), store, number, seed).await
}

async fn process_with(config: Config, store: &Arc<dyn Store>, number: u64, seed: u64) -> Domain {
    let config = config
        .with_janitor_interval(Some(Duration::from_secs(3)))
        .with_timeout(Duration::from_secs(60))
        .with_entropy(Arc::new(Dice(AtomicU64::new(seed ^ (number << 32)))))
        .with_process_name(format!("process {number}"));
    Domain::open_or_create(store.clone(), "histories", config).await.expect("opens")
}

/// Runs a workload, settles it, and checks it. Another process must find no remains.
async fn holds(store: Arc<dyn Store>, config: WorkloadConfig, transactions: u64, least: u64) {
    let seed = config.seed;
    let mut processes = Vec::new();
    for number in 0..3 {
        processes.push(process(&store, number, seed).await);
    }
    let workload = Workload::new(config);
    let until = Stop::default().after_transactions(transactions);
    let history = workload.run(&Fleet::new(processes.clone()), &until).await.expect("runs");
    ends_well(store, workload, history, processes, least).await;
}

async fn ends_well(
    store: Arc<dyn Store>,
    workload: Workload,
    mut history: txn_histories::History,
    processes: Vec<Domain>,
    least: u64,
) {
    for process in &processes {
        process.shutdown(Duration::from_secs(120)).await;
    }
    let witness = process(&store, 99, workload.config().seed).await;
    workload.settle(&mut history, &witness).await.expect("settles");
    let verdict = check(&history);
    assert!(verdict.judges_agree(), "{verdict}\nseed {}", workload.config().seed);
    assert!(verdict.holds_with(least), "{verdict}\nseed {}", workload.config().seed);
    let counts = workload.counters().now();
    assert_eq!(counts.damaged, 0, "{counts:?}");
    assert_eq!(counts.unknown, history.count(Kind::Info));
    let open = history.entries.iter().filter(|entry| entry.tid.is_some() && entry.is_open());
    assert_eq!(open.count(), 0, "each record has an outcome");
    let only_reads = |micro: &Micro| matches!(micro, Micro::Read { .. });
    let in_doubt =
        history.entries.iter().filter(|entry| entry.error.is_some() && !entry.is_abandoned());
    let mut in_doubt = in_doubt.filter(|entry| entry.kind == Kind::Info);
    let reader = in_doubt.find(|entry| entry.value.iter().all(only_reads));
    assert_eq!(reader, None, "a reader is never in doubt, seed {}", workload.config().seed);
    let report = witness.admin().janitor_pass().await.expect("passes");
    assert!(report.is_clean(), "left over: {report:?}");
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

/// The number of seeds. `TXN_HISTORIES=100 cargo test …` runs more seeds.
fn seeds(few: u64) -> std::ops::Range<u64> {
    let count = std::env::var("TXN_HISTORIES").ok().and_then(|count| count.parse().ok());
    0..count.unwrap_or(few)
}

#[test]
fn on_a_sound_store() {
    for seed in seeds(2) {
        for model in MODELS {
            let config = WorkloadConfig::new(model).with_seed(seed);
            in_virtual_time(holds(Arc::new(MemoryStore::new()), config, 300, 250));
        }
    }
}

/// Runs half of the seeds with short deadlines and a slow store.
///
/// These seeds give many refusals and unknown outcomes.
#[test]
fn on_a_rough_store() {
    let mut unknown = 0;
    for seed in seeds(4) {
        for model in MODELS {
            let usual = FaultPlan::rough(seed ^ 0xFA17);
            let (millis, faults) = if seed % 2 == 0 {
                (60_000, usual)
            } else {
                (60, usual.with_applied_unknown(0.25).with_delay(0.8, Duration::from_millis(25)))
            };
            let config = WorkloadConfig::new(model)
                .with_seed(seed)
                .with_workers(5)
                .with_timeout(Duration::from_millis(millis));
            in_virtual_time(async { unknown += Box::pin(rough(config, faults, 150, 15)).await });
        }
    }
    assert!(unknown > 0, "nothing was unknown: there was nothing to find out");
}

/// Returns the number of unknown outcomes.
async fn rough(config: WorkloadConfig, faults: FaultPlan, transactions: u64, least: u64) -> u64 {
    under_faults(vec![Config::default(); 3], config, faults, (transactions, least)).await
}

/// Runs transactions of processes with these configurations, under faults.
///
/// At least `least` of `transactions` must commit. Returns the number of unknown outcomes.
async fn under_faults(
    each: Vec<Config>,
    config: WorkloadConfig,
    faults: FaultPlan,
    (transactions, least): (u64, u64),
) -> u64 {
    let seed = config.seed;
    let faults = Arc::new(FaultStore::new(Arc::new(MemoryStore::new()), faults));
    faults.set_enabled(false);
    let store: Arc<dyn Store> = faults.clone();
    let mut fleet = Vec::new();
    for (number, config) in (0..).zip(each) {
        fleet.push(process_with(config, &store, number, seed).await);
    }
    let workload = Workload::new(config);
    // Made without faults: only the transactions meet faults.
    for process in &fleet {
        workload.open(process).await.expect("opens");
    }
    faults.set_enabled(true);
    let until = Stop::default().after_transactions(transactions);
    let history = workload.run(&Fleet::new(fleet.clone()), &until).await.expect("runs");
    faults.set_enabled(false);
    for process in &fleet {
        process.shutdown(Duration::from_secs(120)).await;
    }
    faults.settle().await;
    assert!(faults.injected().total() > 100, "{}", faults.injected());
    let unknown = history.count(Kind::Info);
    ends_well(store, workload, history, fleet, least).await;
    unknown
}

/// Runs many clients on few keys, with groups.
///
/// The clients are in one or two processes.
///
/// Half of the clients only read. The store is sound and slow, or has faults.
#[test]
fn on_hot_keys_by_groups() {
    for seed in seeds(4) {
        for model in MODELS {
            let delay = Duration::from_millis(2);
            let faults = match seed % 2 {
                0 => FaultPlan::none(seed).with_delay(1.0, delay),
                _ => FaultPlan::rough(seed ^ 0xFA17).with_delay(0.8, delay),
            };
            let config = WorkloadConfig::new(model)
                .with_seed(seed)
                .with_workers(24)
                .with_keys(3)
                .with_max_operations(3)
                .with_read_only(0.5)
                .with_lock_reads(0.05)
                .with_pessimistic(0.05)
                .with_max_pause(Duration::ZERO);
            in_virtual_time(by_groups(config, faults, 1 + seed / 2 % 2));
        }
    }
}

/// Random workloads of processes with and without groups.
///
/// The seed draws the clients, their conflicts, readers, errors of closures, and dropped futures.
#[test]
fn on_hot_keys_by_groups_of_all_kinds() {
    let mut composed = 0;
    for seed in seeds(12) {
        for model in MODELS {
            in_virtual_time(async { composed += Box::pin(of_all_kinds(model, seed)).await });
        }
    }
    assert!(composed > 300, "{composed} transactions were merged into groups");
}

/// Returns the number of transactions that were merged into groups.
async fn of_all_kinds(model: Model, seed: u64) -> u64 {
    let dice = Dice(AtomicU64::new(seed ^ 0xD1CE));
    let below = |n: u64| dice.next_u64() % n;
    let share = |most: f64| most * below(1_000) as f64 / 1_000.0;
    let delay = Duration::from_millis(1 + below(4));
    let rough = FaultPlan::rough(seed ^ 0xFA17);
    // A third of the seeds has short deadlines, and a store with many unknown answers.
    let (millis, faults) = match below(3) {
        0 => (60_000, rough.with_delay(0.8, delay)),
        1 => (60, rough.with_applied_unknown(0.25).with_delay(0.8, 4 * delay)),
        _ => (60_000, FaultPlan::none(seed).with_delay(1.0, delay)),
    };
    // The longest pauses exceed the time that a group has for another run of a closure.
    let most_pause = [0, 3, 40][below(3) as usize];
    let config = WorkloadConfig::new(model)
        .with_seed(seed)
        .with_timeout(Duration::from_millis(millis))
        .with_workers(4 + below(60) as usize)
        .with_keys(1 + below(8) as usize)
        .with_max_operations(1 + below(6) as usize)
        .with_reads(share(0.9))
        .with_read_only(share(0.9))
        .with_lock_reads(share(0.3))
        .with_pessimistic(share(0.3))
        .with_given_up(share(0.4))
        .with_abandoned(share(0.3))
        .with_max_pause(Duration::from_micros(most_pause * below(1_000)));
    let counts = Arc::new(Composed::default());
    let (processes, lone) = (1 + below(3), below(2));
    let each = (0..processes)
        .map(|process| {
            let composes = process < processes.saturating_sub(lone).max(1);
            Config::default().with_group_commit(Some(composes)).with_observer(Some(counts.clone()))
        })
        .collect();
    under_faults(each, config, faults, (400, 10)).await;
    counts.0.load(Ordering::Relaxed)
}

async fn by_groups(config: WorkloadConfig, faults: FaultPlan, processes: u64) {
    let (seed, counts) = (config.seed, Arc::new(Composed::default()));
    let composes = Config::default().with_group_commit(Some(true));
    let composes = composes.with_observer(Some(counts.clone()));
    let each = vec![composes; usize::try_from(processes).expect("few")];
    under_faults(each, config, faults, (400, 100)).await;
    let composed = counts.0.load(Ordering::Relaxed);
    assert!(composed > 40, "{composed} transactions were merged into groups, seed {seed}");
}

/// The number of transactions that were merged into groups.
#[derive(Debug, Default)]
struct Composed(AtomicU64);

impl Observer for Composed {
    fn on_event(&self, event: &Event) {
        if let Event::GroupFormed { transactions, .. } = event {
            self.0.fetch_add(*transactions as u64, Ordering::Relaxed);
        }
    }
}

/// Threads instead of virtual time: real races.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn on_many_threads() {
    for model in MODELS {
        let config = WorkloadConfig::new(model).with_workers(12).with_max_pause(Duration::ZERO);
        holds(Arc::new(MemoryStore::new()), config, 500, 400).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_one_embedded_file() {
    for model in MODELS {
        let directory = tempfile::tempdir().expect("a directory");
        let store = RedbStore::open(directory.path().join("histories.redb")).expect("opens");
        let config = WorkloadConfig::new(model).with_max_pause(Duration::ZERO);
        holds(Arc::new(store), config, 100, 80).await;
    }
}

/// Processes that die in the middle of their work, and are replaced.
#[test]
fn with_processes_that_die() {
    for seed in seeds(3) {
        in_virtual_time(async move {
            let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
            let fleet =
                Fleet::new([process(&store, 0, seed).await, process(&store, 1, seed).await]);
            let config =
                WorkloadConfig::new(Model::ListAppend).with_seed(seed).with_verified_reads(0.2);
            let workload = Arc::new(Workload::new(config));
            let token = tokio_util::sync::CancellationToken::new();
            let until = Stop::default().after_transactions(5_000).when(token.clone());
            let run = tokio::spawn({
                let (workload, fleet) = (workload.clone(), fleet.clone());
                async move { workload.run(&fleet, &until).await }
            });
            for number in 2..6 {
                let before = workload.counters().now().acknowledged;
                while workload.counters().now().acknowledged < before + 60 {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                let next = process(&store, number, seed).await;
                workload.open(&next).await.expect("opens");
                let gone = fleet.replace(usize::try_from(number).expect("small"), next);
                gone.shutdown(Duration::ZERO).await;
            }
            token.cancel();
            let history = run.await.expect("no panic").expect("runs");
            let processes = vec![fleet.domain(0), fleet.domain(1)];
            let workload = Arc::into_inner(workload).expect("no other owner");
            ends_well(store, workload, history, processes, 200).await;
        });
    }
}
