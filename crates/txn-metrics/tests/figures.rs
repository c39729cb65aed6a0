//! Metrics of real transactions, in virtual time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use metrics::Unit;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use txn_core::store::{MemoryStore, Store, Write, WriteOp};
use txn_core::{Collection, Config, Domain, Error, ErrorKind, LockMode, Options, Raw, WaitFor};
use txn_metrics::figures::{self, FIGURES};
use txn_metrics::{Metrics, OutboxLevels};
use txn_sim::tapped::{Delivery, Tap, Tapped};
use txn_sim::{FaultPlan, FaultStore};

/// A process with its own recorder.
struct Process {
    domain: Domain,
    things: Collection<Raw>,
    metrics: Arc<Metrics>,
    snapshotter: Snapshotter,
}

impl Process {
    async fn open(store: Arc<dyn Store>, config: Config) -> Self {
        let recorder = DebuggingRecorder::new();
        let snapshotter = recorder.snapshotter();
        let metrics = metrics::with_local_recorder(&recorder, || Arc::new(Metrics::new("shop")));
        let config = config.with_janitor_interval(None).with_observer(Some(metrics.clone()));
        let domain = Domain::open_or_create(store, "shop", config).await.expect("opens");
        let things = domain.create_collection("things", None).await.expect("opens");
        Self { domain, things, metrics, snapshotter }
    }

    async fn put(&self, ids: &[&str]) -> Result<(), Error> {
        let options = Options::default().with_wait_for(WaitFor::Apply);
        let put = self.domain.run(&options, async |tx| {
            for id in ids {
                tx.get(&self.things, *id).await?;
            }
            ids.iter().try_for_each(|id| tx.put(&self.things, *id, &Raw::new("{}")))
        });
        put.await.map(|_| ())
    }

    /// The metrics since the last call, by name and second label.
    async fn figures(&self) -> Figures {
        // The `finished` marks are written after the acknowledgement.
        tokio::time::sleep(Duration::from_secs(20)).await;
        let snapshot = self.snapshotter.snapshot().into_vec().into_iter();
        Figures(
            snapshot
                .map(|(key, unit, about, value)| {
                    let key = key.key();
                    let mut name = key.name().to_owned();
                    for label in key.labels() {
                        match (label.key(), label.value()) {
                            ("domain", domain) => assert_eq!(domain, "shop"),
                            (_, value) => name = format!("{name} {value}"),
                        }
                    }
                    let figure = FIGURES.iter().find(|figure| figure.name == key.name());
                    let figure = figure.unwrap_or_else(|| panic!("{name} is not in the list"));
                    assert_eq!((unit, about.as_deref()), (Some(figure.unit), Some(figure.about)));
                    (name, value)
                })
                .collect(),
        )
    }
}

#[derive(Debug)]
struct Figures(BTreeMap<String, DebugValue>);

impl Figures {
    fn count(&self, name: &str) -> u64 {
        match self.0.get(name) {
            Some(DebugValue::Counter(n)) => *n,
            other => panic!("{name}: {other:?}"),
        }
    }

    fn values(&self, name: &str) -> Vec<f64> {
        match self.0.get(name) {
            Some(DebugValue::Histogram(values)) => values.iter().map(|value| value.0).collect(),
            other => panic!("{name}: {other:?}"),
        }
    }

    /// The counters above 0.
    fn counted(&self) -> BTreeMap<&str, u64> {
        let counted = self.0.iter().filter_map(|(name, value)| match value {
            DebugValue::Counter(n) if *n > 0 => Some((name.as_str(), *n)),
            _ => None,
        });
        counted.collect()
    }
}

/// A store that loses all writes of a dying process.
///
/// The loss starts at the commit, or at the first write.
#[derive(Debug)]
struct Dies {
    after_commit: bool,
    dead: AtomicBool,
}

impl Dies {
    fn before(inner: Arc<dyn Store>, after_commit: bool) -> Arc<dyn Store> {
        let tap = Self { after_commit, dead: AtomicBool::new(false) };
        Arc::new(Tapped::new(inner, Arc::new(tap)))
    }
}

#[async_trait]
impl Tap for Dies {
    async fn on_write(&self, writes: &[Write]) -> Delivery {
        let is_commit = writes.iter().any(|write| {
            let (WriteOp::Create(source) | WriteOp::Replace(source, _)) = &write.op else {
                return false;
            };
            source.contains("\"state\":\"committed\"")
        });
        if self.dead.load(Ordering::SeqCst) {
            return Delivery::Swallow;
        }
        if is_commit {
            self.dead.store(true, Ordering::SeqCst);
        }
        match is_commit && !self.after_commit {
            true => Delivery::Swallow,
            false => Delivery::Pass,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn commit_is_counted_with_documents_and_time() {
    let shop = Process::open(Arc::new(MemoryStore::new()), Config::default()).await;
    shop.put(&["a", "b"]).await.expect("commits");
    shop.put(&["a"]).await.expect("commits");
    let figures = shop.figures().await;
    let expected = [
        (figures::ATTEMPTS, 2),
        ("txn_commits_total none", 2),
        (figures::DOCUMENTS_WRITTEN, 3),
        (figures::LOCKS, 2),
        // The one-document write has no record.
        (figures::FINISHED, 1),
    ];
    assert_eq!(figures.counted(), expected.into());
    assert_eq!(figures.values(figures::FINISHED_SECONDS).len(), 1);
    let seconds = figures.values(figures::COMMIT_SECONDS);
    assert!(seconds.len() == 2 && seconds.iter().all(|seconds| (0.0..60.0).contains(seconds)));
    let Some(DebugValue::Gauge(last)) = figures.0.get(figures::LAST_COMMIT) else {
        panic!("{figures:?}")
    };
    assert!(last.0 > 1.7e9, "{last}");
}

#[tokio::test(start_paused = true)]
async fn all_metrics_are_registered_at_the_start() {
    let shop = Process::open(Arc::new(MemoryStore::new()), Config::default()).await;
    let figures = shop.figures().await;
    for figure in FIGURES {
        let mut series = vec![figure.name.to_owned()];
        for (_, values) in figure.labels {
            let of = |one: &String| values.iter().map(|value| format!("{one} {value}")).collect();
            series = series.iter().flat_map(|one| -> Vec<String> { of(one) }).collect();
        }
        for one in series {
            assert!(figures.0.contains_key(&one), "{one}");
        }
        // The names already have the suffixes that exporters may add.
        let is_seconds = figure.unit == Unit::Seconds;
        assert_eq!(figure.name.ends_with("_seconds"), is_seconds, "{}", figure.name);
    }
}

#[tokio::test(start_paused = true)]
async fn conflicts_are_waits_wounds_and_aborts() {
    let shop = Process::open(Arc::new(MemoryStore::new()), Config::default()).await;
    let pessimistic = Options::default().with_lock_mode(LockMode::AtRead);
    let older = shop.domain.begin(&pessimistic).expect("begins");
    let younger = shop.domain.begin(&pessimistic).expect("begins");
    younger.get(&shop.things, "a").await.expect("locks");
    older.get(&shop.things, "a").await.expect("takes the lock");
    younger.commit().await.expect_err("it is wounded");
    // An older transaction holds the lock now.
    let put = shop.put(&["a", "b"]);
    let lets_go = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        older.rollback().await;
    };
    tokio::join!(put, lets_go).0.expect("commits in the end");
    let figures = shop.figures().await;
    assert_eq!(figures.count("txn_wounds_total none"), 1, "{figures:?}");
    assert_eq!(figures.count("txn_waits_total none"), 1, "{figures:?}");
    assert_eq!(
        figures.count("txn_aborts_total rolled_back false"),
        1,
        "it was rolled back: {figures:?}"
    );
    assert_eq!(figures.count("txn_aborts_total wounded true"), 1, "it was wounded: {figures:?}");
    assert_eq!(figures.count("txn_commits_total none"), 1, "{figures:?}");
    assert_eq!(figures.values("txn_lock_wait_seconds released").len(), 1, "{figures:?}");
}

#[tokio::test(start_paused = true)]
async fn stale_read_is_counted_as_a_retry() {
    let shop = Process::open(Arc::new(MemoryStore::new()), Config::default()).await;
    let first = AtomicBool::new(true);
    let transaction = shop.domain.transact::<_, Error, _>(async |tx| {
        tx.get(&shop.things, "a").await?;
        if first.swap(false, Ordering::SeqCst) {
            shop.put(&["a"]).await?;
        }
        tx.put(&shop.things, "b", &Raw::new("{}"))
    });
    transaction.await.expect("commits");
    let figures = shop.figures().await;
    assert_eq!(figures.count("txn_aborts_total changed true"), 1, "{figures:?}");
    assert_eq!(figures.count(figures::ATTEMPTS), 3, "{figures:?}");
}

#[tokio::test(start_paused = true)]
async fn a_group_is_one_commit_of_many() {
    let plan = FaultPlan::none(1).with_delay(1.0, Duration::from_millis(2));
    let slow = Arc::new(FaultStore::new(Arc::new(MemoryStore::new()), plan));
    let shop = Process::open(slow, Config::default().with_group_commit(Some(true))).await;
    let puts = futures::future::join_all((0..16).map(|_| shop.put(&["a", "b"])));
    assert!(puts.await.iter().all(Result::is_ok));
    let figures = shop.figures().await;
    let sizes = figures.values(figures::GROUP_TRANSACTIONS);
    assert!(!sizes.is_empty() && sizes.iter().all(|size| *size >= 2.0), "{sizes:?}");
    let alone = 16.0 - sizes.iter().sum::<f64>();
    let commits = u32::try_from(figures.count("txn_commits_total none")).expect("few");
    assert!(f64::from(commits) - alone - 1.0 < sizes.len() as f64, "{figures:?}");
}

#[tokio::test(start_paused = true)]
async fn recovery_is_counted_by_the_recovering_process() {
    for after_commit in [true, false] {
        let memory = Arc::new(MemoryStore::new());
        let alive = Process::open(memory.clone(), Config::default()).await;
        alive.put(&["a", "b"]).await.expect("commits");
        alive.figures().await;
        let dead = Process::open(Dies::before(memory, after_commit), Config::default()).await;
        let tx = dead.domain.begin(&Options::default()).expect("begins");
        for id in ["a", "b"] {
            tx.get(&dead.things, id).await.expect("reads");
            tx.put(&dead.things, id, &Raw::new(r#"{"n":2}"#)).expect("takes it");
        }
        assert_eq!(tx.commit().await.is_ok(), after_commit);
        alive.domain.admin().janitor_pass().await.expect("passes");
        let figures = alive.figures().await;
        let expected = match after_commit {
            true => [(figures::ROLL_FORWARDS, 1)].into(),
            false => [("txn_recovery_aborts_total false", 1), (figures::UNLOCKS, 2)].into(),
        };
        assert_eq!(figures.counted(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn overloaded_call_is_counted_by_its_result() {
    let config =
        Config::default().with_max_concurrent_transactions(1).with_timeout(Duration::from_secs(4));
    let shop = Process::open(Arc::new(MemoryStore::new()), config).await;
    let slow = || async {
        let slow = shop.domain.transact::<_, Error, _>(async |tx| {
            tokio::time::sleep(Duration::from_secs(3)).await;
            tx.put(&shop.things, "a", &Raw::new("{}"))
        });
        let result = slow.await;
        shop.metrics.result(&result);
        result
    };
    let (first, second) = tokio::join!(slow(), slow());
    first.expect("commits");
    assert_eq!(second.expect_err("waits in vain").kind(), ErrorKind::Overloaded);
    let figures = shop.figures().await;
    assert_eq!(figures.count("txn_results_total committed"), 1, "{figures:?}");
    assert_eq!(figures.count("txn_results_total overloaded"), 1, "{figures:?}");
    assert_eq!(figures.count(figures::ATTEMPTS), 1, "it never began");
}

#[tokio::test(start_paused = true)]
async fn listed_labels_have_series_of_their_own() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let metrics = metrics::with_local_recorder(&recorder, || {
        Arc::new(Metrics::new("shop").with_labels(["checkout", "none"]))
    });
    let config = Config::default().with_janitor_interval(None).with_observer(Some(metrics.clone()));
    let store = Arc::new(MemoryStore::new());
    let domain = Domain::open_or_create(store, "shop", config).await.expect("opens");
    let things = domain.create_collection("things", None).await.expect("opens");
    let shop = Process { domain, things, metrics, snapshotter };
    let put = async |options: Options| {
        let put = shop.domain.run(&options, async |tx| {
            tx.put(&shop.things, "a", &Raw::new("{}"))?;
            tx.put(&shop.things, "b", &Raw::new("{}"))
        });
        put.await.map(drop).expect("commits");
    };
    put(Options::default().with_label("checkout")).await;
    put(Options::default().with_label("unlisted")).await;
    put(Options::default()).await;
    let figures = shop.figures().await;
    for value in ["checkout", "other", "none"] {
        assert_eq!(figures.count(&format!("txn_commits_total {value}")), 1, "{figures:?}");
    }
    assert_eq!(figures.count("txn_commits_total several"), 0, "{figures:?}");
}

#[tokio::test(start_paused = true)]
async fn levels_are_taken_from_the_application() {
    let shop = Process::open(Arc::new(MemoryStore::new()), Config::default()).await;
    let levels = OutboxLevels { events: 7, lag: Duration::from_secs(3), blocked: 1, dead: 2 };
    shop.metrics.outbox(levels);
    shop.metrics.requests("quarantined", 4);
    shop.metrics.requests("of a later version", 5);
    shop.metrics.requests_lag(Duration::from_secs(9));
    shop.metrics.nodes((1, 3));
    shop.metrics.sample(&shop.domain);
    let figures = shop.figures().await;
    let level = |name: &str| match figures.0.get(name) {
        Some(DebugValue::Gauge(level)) => level.0,
        other => panic!("{name}: {other:?}"),
    };
    for (name, expected) in [
        (figures::OUTBOX_EVENTS, 7.0),
        (figures::OUTBOX_LAG_SECONDS, 3.0),
        (figures::OUTBOX_BLOCKED, 1.0),
        (figures::DEAD_LETTERS, 2.0),
        ("txn_requests quarantined", 4.0),
        ("txn_requests other", 5.0),
        (figures::REQUESTS_LAG_SECONDS, 9.0),
        (figures::NODES_LEFT_OUT, 1.0),
        (figures::NODES, 3.0),
        (figures::RUNNING, 0.0),
    ] {
        assert!((level(name) - expected).abs() < f64::EPSILON, "{name}: {figures:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn shared_requests_have_a_batch_size() {
    let config = Config::default().with_request_batching(Some(true));
    let shop = Process::open(Arc::new(MemoryStore::new()), config).await;
    shop.put(&["a", "b"]).await.expect("commits");
    shop.metrics.sample(&shop.domain);
    let figures = shop.figures().await;
    let requests = figures.count(figures::REQUESTS);
    assert!(requests > 0, "{figures:?}");
    assert!(figures.count(figures::REQUEST_OPERATIONS) > requests, "{figures:?}");
}

#[tokio::test(start_paused = true)]
async fn unknown_commit_is_counted_with_its_outcome() {
    let memory = Arc::new(MemoryStore::new());
    let config = || Config::default().with_timeout(Duration::from_secs(2));
    let shop = Process::open(Dies::before(memory.clone(), false), config()).await;
    let other = Process::open(memory, config()).await;
    let tx = shop.domain.begin(&Options::default().with_own_record(true)).expect("begins");
    let tid = tx.tid().expect("has its own record");
    for id in ["a", "b"] {
        tx.put(&shop.things, id, &Raw::new("{}")).expect("buffers");
    }
    let error = tx.commit().await.expect_err("no answer");
    assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
    other.domain.outcome(tid).await.expect("answers");
    let figures = shop.figures().await;
    assert_eq!(figures.count(figures::UNKNOWNS), 1, "{figures:?}");
    let figures = other.figures().await;
    assert_eq!(figures.count("txn_outcomes_total aborted"), 1, "{figures:?}");
}
