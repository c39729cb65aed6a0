//! Processes with wrong clocks, on a store with a server time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use txn_core::clock::{Clock, Entropy};
use txn_core::store::MemoryStore;
use txn_core::{
    Collection, CommitVersion, Config, Domain, Error, ErrorKind, LockMode, Options, Raw,
};
use txn_sim::{Call, Scripted, Step};

use crate::support::{Setup, World, config, recorded};

const HOUR: i64 = 3_600;
const DRIFT: Duration = Duration::from_secs(60);
const REQUEST: Duration = Duration::from_millis(2);

/// The true time, driven by the virtual clock of the test.
#[derive(Debug)]
struct TrueTime {
    origin: tokio::time::Instant,
    /// The time for which every monotonic clock stood still.
    suspended: Mutex<Duration>,
}

impl TrueTime {
    fn now(&self) -> Duration {
        Duration::from_secs(1_790_000_000) + self.origin.elapsed() + *self.suspended.lock()
    }
}

/// A store that tells the true time, or tells no time.
struct Server {
    time: Arc<TrueTime>,
    memory: Arc<MemoryStore>,
    store: Arc<Scripted>,
    asked: Arc<AtomicUsize>,
}

impl Server {
    fn new(tells_time: bool) -> Self {
        let (origin, memory) = (tokio::time::Instant::now(), Arc::new(MemoryStore::new()));
        let time = Arc::new(TrueTime { origin, suspended: Mutex::default() });
        let store = Scripted::slow(memory.clone(), REQUEST);
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        store.before(move |call| match call {
            Call::ServerTime => {
                count.fetch_add(1, Ordering::SeqCst);
                Step::delay(REQUEST)
            }
            _ => Step::pass(),
        });
        let told = time.clone();
        store.tell_time(move || tells_time.then(|| told.now()));
        Self { time, memory, store: Arc::new(store), asked }
    }

    fn now(&self) -> Duration {
        self.time.now()
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    fn suspend(&self, span: Duration) {
        *self.time.suspended.lock() = span;
    }

    /// Opens a process whose wall clock is wrong by `off` seconds.
    async fn process(&self, off: i64) -> Process {
        self.process_with(off, config()).await
    }

    async fn process_with(&self, off: i64, config: Config) -> Process {
        let wall = Arc::new(Wall { time: self.time.clone(), off: Mutex::new(off) });
        let setup = Setup::on(self.memory.clone()).below(self.store.clone());
        let World { domain, items, .. } =
            setup.config(config.with_clock(wall.clone())).open().await;
        Process { wall, domain, items }
    }
}

/// The entropy of a process that was copied while running.
///
/// Each copy draws the same numbers. Only the randomness of the operating system differs.
#[derive(Debug)]
struct Copied;

impl Entropy for Copied {
    fn next_u64(&self) -> u64 {
        0x1234_5678_9abc_def0
    }
}

#[derive(Debug)]
struct Wall {
    time: Arc<TrueTime>,
    off: Mutex<i64>,
}

impl Wall {
    fn set(&self, off: i64) {
        *self.off.lock() = off;
    }
}

#[async_trait]
impl Clock for Wall {
    fn wall(&self) -> Duration {
        let off = *self.off.lock();
        let by = Duration::from_secs(off.unsigned_abs());
        if off < 0 { self.time.now() - by } else { self.time.now() + by }
    }

    fn monotonic(&self) -> Duration {
        self.time.origin.elapsed()
    }

    async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

struct Process {
    wall: Arc<Wall>,
    domain: Domain,
    items: Collection<Raw>,
}

impl Process {
    async fn write(&self, n: i64) -> Result<CommitVersion, Error> {
        let options = Options::default();
        let committed = self.domain.run::<_, Error, _>(&options, async |tx| {
            tx.get_many(&self.items, ["a", "b"]).await?;
            tx.put(&self.items, "a", &raw(n))?;
            tx.put(&self.items, "b", &raw(n))
        });
        Ok(committed.await?.receipt.commit_version.expect("a commit version"))
    }

    async fn read_at(&self, moment: Duration) -> Vec<Option<String>> {
        let reader = self.domain.history().at(moment).expect("readable");
        let mut found = Vec::new();
        for id in ["a", "b"] {
            let content = reader.get(&self.items, id).await.expect("reads");
            found.push(content.map(|raw| raw.as_str().to_owned()));
        }
        found
    }
}

fn raw(n: i64) -> Raw {
    Raw::new(format!(r#"{{"n":{n}}}"#))
}

#[tokio::test(start_paused = true)]
async fn snapshot_does_not_change_after_later_commits() {
    for (reader, writer) in [(50, -50), (-50, 50), (50, 50), (59, -59)] {
        let server = Server::new(true);
        let reader = server.process(reader).await;
        reader.domain.history().enable(&reader.items, DRIFT * 60).await.expect("enables history");
        reader.write(1).await.expect("writes");
        tokio::time::sleep(DRIFT * 15).await;
        let writer = server.process(writer).await;
        let moment = reader.domain.history().latest_timestamp();
        let before = reader.read_at(moment).await;
        let version = writer.write(2).await.expect("the clock is within the limit");
        assert!(version.unix_time() > moment, "{version:?} at {moment:?}");
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(reader.read_at(moment).await, before);
    }
}

#[tokio::test(start_paused = true)]
async fn clock_ahead_for_a_moment_leaves_no_trace() {
    for hours in [1, 72] {
        let server = Server::new(true);
        let (sick, sound) = (server.process(0).await, server.process(0).await);
        sound.write(1).await.expect("writes");
        sick.wall.set(hours * HOUR);
        let error = sick.write(2).await.expect_err("the clock is ahead");
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
        sick.wall.set(0);
        let version = sick.write(3).await.expect("the clock is right again");
        assert!(version.unix_time() <= server.now(), "{version:?}");
        sound.write(4).await.expect("no version is in the future");
    }
}

#[tokio::test(start_paused = true)]
async fn source_of_ids_recovers_without_a_server_time() {
    let server = Server::new(false);
    let process = server.process(0).await;
    process.wall.set(HOUR);
    let tx = process.domain.begin(&recorded()).expect("begins");
    let ahead = tx.tid().expect("has its own record");
    tx.rollback().await;
    process.wall.set(0);
    let version = process.write(1).await.expect("writes");
    assert!(version.unix_time() <= server.now() + DRIFT, "{version:?}");
    let tx = process.domain.begin(&recorded()).expect("begins");
    assert!(tx.tid().expect("has its own record") < ahead);
}

#[tokio::test(start_paused = true)]
async fn drift_within_the_limit_starves_no_transaction() {
    for tells_time in [true, false] {
        let server = Server::new(tells_time);
        let fast = server.process(59).await;
        let (slow, busy) = (server.process(0).await, server.process(0).await);
        busy.write(0).await.expect("writes");
        let ahead = fast.domain.transact::<_, Error, _>(async |tx| {
            ["x", "y"].iter().try_for_each(|id| tx.put(&fast.items, *id, &raw(1)))
        });
        ahead.await.expect("writes");
        // The version that `slow` reads is 59 s ahead. The next transaction of `slow` must not
        // become younger than all other transactions.
        let follows = slow.domain.transact::<_, Error, _>(async |tx| {
            tx.get(&slow.items, "x").await?;
            ["z", "w"].iter().try_for_each(|id| tx.put(&slow.items, *id, &raw(1)))
        });
        follows.await.expect("writes");
        tokio::time::sleep(Duration::from_secs(1)).await;
        let stop = AtomicBool::new(false);
        let load = async {
            let loads = (0..4).map(|_| async {
                while !stop.load(Ordering::Relaxed) {
                    busy.write(1).await.expect("writes");
                }
            });
            futures::future::join_all(loads).await;
        };
        let long = async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            let options = Options::default().with_lock_mode(LockMode::AtRead);
            let long = slow.domain.run::<_, Error, _>(&options, async |tx| {
                tx.get_many(&slow.items, ["a", "b"]).await?;
                tokio::time::sleep(Duration::from_millis(100)).await;
                tx.put(&slow.items, "a", &raw(-1))?;
                tx.put(&slow.items, "b", &raw(-1))
            });
            let result = long.await;
            stop.store(true, Ordering::Relaxed);
            result
        };
        let ((), long) = tokio::join!(load, long);
        long.expect("a retried transaction becomes the oldest");
    }
}

#[tokio::test(start_paused = true)]
async fn resumed_process_commits_at_once() {
    let server = Server::new(true);
    let process = server.process(0).await;
    process.write(1).await.expect("writes");
    let asked = server.asked();
    process.write(2).await.expect("writes");
    assert_eq!(server.asked(), asked, "no request while the clocks agree");
    server.suspend(Duration::from_secs(7_200));
    let version = process.write(3).await.expect("the clock is right");
    assert!(version.unix_time() + DRIFT > server.now(), "{version:?}");
    assert_eq!(server.asked(), asked + 1, "the server is asked before a refusal");
}

/// A caller waits for the server time and is never polled again.
#[tokio::test(start_paused = true)]
async fn unpolled_caller_does_not_block_the_clock_check() {
    let server = Server::new(true);
    let process = server.process(0).await;
    server.suspend(Duration::from_secs(7_200));
    let asked = server.asked();
    let mut unpolled = Box::pin(process.domain.admin().janitor_pass());
    while server.asked() == asked {
        assert!(futures::poll!(&mut unpolled).is_pending());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let other = tokio::time::timeout(Duration::from_secs(60), process.write(2)).await;
    other.expect("waits for no other caller").expect("writes");
    unpolled.await.expect("the clock is right");
}

#[tokio::test(start_paused = true)]
async fn wrong_clock_asks_the_server_with_pauses() {
    let server = Server::new(true);
    let process = server.process(0).await;
    process.write(1).await.expect("writes");
    process.wall.set(HOUR);
    let asked = server.asked();
    for _ in 0..10 {
        let error = process.write(2).await.expect_err("the clock is ahead");
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    }
    assert!(server.asked() <= asked + 2);
}

#[tokio::test(start_paused = true)]
async fn clock_far_behind_is_refused_for_writes_only() {
    let server = Server::new(true);
    let sound = server.process(0).await;
    sound.write(1).await.expect("writes");
    let behind = server.process(-300).await;
    let error = behind.write(2).await.expect_err("one clock is wrong");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    assert!(error.to_string().contains("behind"), "{error}");
    let read = behind.domain.transact::<_, Error, _>(async |tx| tx.get(&behind.items, "a").await);
    assert!(read.await.expect("reads").is_some());
}

/// Two copies of a virtual machine start together, with one node id.
#[tokio::test(start_paused = true)]
async fn copies_of_a_process_never_share_a_tid() {
    let server = Server::new(true);
    let config = || config().with_entropy(Arc::new(Copied));
    let (one, two) =
        tokio::join!(server.process_with(0, config()), server.process_with(0, config()));
    for round in 0..10 {
        let put = async |copy: &Process, ids: [&str; 2]| {
            let options = Options::default();
            let run = copy.domain.run::<_, Error, _>(&options, async |tx| {
                ids.iter().try_for_each(|id| tx.put(&copy.items, *id, &raw(round)))
            });
            run.await.expect("commits").receipt.tid
        };
        let (first, second) = tokio::join!(put(&one, ["a", "b"]), put(&two, ["c", "d"]));
        assert!(first.is_some() && first != second);
    }
    let reader = server.process(0).await;
    let read = reader
        .domain
        .transact::<_, Error, _>(async |tx| tx.get_many(&reader.items, ["a", "b", "c", "d"]).await);
    let found: Vec<_> = read.await.expect("reads").into_iter().flatten().collect();
    assert!(found.len() == 4 && found.iter().all(|found| *found == raw(9)), "{found:?}");
}
