//! A plain GET goes back in time on a healthy cluster.
//!
//! The cluster has replicas.
//!
//! A bulk is visible on the primary before the replicas have it, and any copy answers. Transactions
//! and verified reads never show such a state.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::json;
use txn_core::store::{Key, Outcome, Read, Source, Store, Version, Write, WriteOp};
use txn_core::{Collection, Domain, Error, Options, Typed};
use txn_es::EsConfig;
use txn_fixtures::fixture::Fixture;
use txn_testkit::env;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Count {
    n: u64,
}

type Counts = Collection<Typed<Count>>;

/// The number of further documents in a bulk, which make it slow.
const BESIDE: usize = 300;

/// The minimum number of transactions.
const LEAST: u64 = 15;

/// The maximum time until a GET goes back.
const BOUND: Duration = Duration::from_secs(120);

/// The state that the tasks of a run share.
struct Run {
    store: Arc<dyn Store>,
    domain: Domain,
    counts: Counts,
    over: AtomicBool,
    /// The number of plain GETs, and of those that went back.
    gets: AtomicU64,
    backwards: AtomicU64,
    /// The number of acknowledged increments of `tally`.
    tallied: AtomicU64,
    written: AtomicU64,
}

impl Run {
    fn goes_on(&self) -> bool {
        !self.over.load(Ordering::SeqCst)
    }

    /// Writes `hot` and `twin` together, among many documents.
    ///
    /// The write counts itself in `tally`.
    async fn write(&self) {
        while self.goes_on() {
            let n = self
                .domain
                .transact::<_, Error, _>(async |tx| {
                    let found = tx.get_many(&self.counts, ["hot", "twin", "tally"]).await?;
                    let [Some(hot), Some(twin), Some(tally)] = found[..] else {
                        panic!("all exist: {found:?}")
                    };
                    let next = Count { n: hot.n.max(twin.n) + 1 };
                    tx.put(&self.counts, "hot", &next)?;
                    tx.put(&self.counts, "twin", &next)?;
                    tx.put(&self.counts, "tally", &Count { n: tally.n + 1 })?;
                    for beside in 0..BESIDE {
                        tx.put(&self.counts, format!("beside-{beside:03}"), &next)?;
                    }
                    Ok(next.n)
                })
                .await
                .expect("writes");
            self.tallied.fetch_add(1, Ordering::SeqCst);
            let before = self.written.fetch_add(1, Ordering::SeqCst);
            assert_eq!(n, before + 1, "it was read and written, and no other task writes it");
        }
    }

    /// Increments `tally` alone.
    async fn tally(&self) {
        while self.goes_on() {
            self.domain
                .transact::<_, Error, _>(async |tx| {
                    let tally = tx.get(&self.counts, "tally").await?.expect("exists");
                    tx.put(&self.counts, "tally", &Count { n: tally.n + 1 })
                })
                .await
                .expect("counts");
            self.tallied.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }

    /// Sends large bulks without transactions, which contain `plain`.
    async fn flood(&self) {
        let name: Arc<str> = self.counts.name().into();
        let mut versions = vec![None; BESIDE + 1];
        for n in 1.. {
            let source: Source = format!(r#"{{"n":{n}}}"#).into();
            let write = |(at, version): (usize, &Option<Version>)| {
                let id = if at == BESIDE { "plain".to_owned() } else { format!("flood-{at:03}") };
                let op = match version {
                    None => WriteOp::Create(source.clone()),
                    Some(version) => WriteOp::Replace(source.clone(), *version),
                };
                Write::new(Key::new(name.clone(), id), op)
            };
            let writes: Vec<Write> = versions.iter().enumerate().map(write).collect();
            for (version, outcome) in versions.iter_mut().zip(self.store.write_many(&writes).await)
            {
                let Outcome::Applied(at) = outcome else { panic!("{outcome:?}") };
                *version = Some(at);
            }
            if !self.goes_on() {
                return;
            }
        }
    }

    /// Sends plain GETs, which any copy may answer.
    async fn get(&self) {
        let keys = ["hot", "plain"].map(|id| self.counts.key(id));
        let mut last = [0; 2];
        while self.goes_on() {
            for (read, last) in self.store.get_many(&keys).await.into_iter().zip(&mut last) {
                // `plain` appears a little later, and the other document is a placeholder at first.
                let Read::Found { source, .. } = read else { continue };
                let Ok(Count { n }) = serde_json::from_str(&source) else { continue };
                self.gets.fetch_add(1, Ordering::SeqCst);
                if n < *last {
                    self.backwards.fetch_add(1, Ordering::SeqCst);
                }
                *last = n;
            }
        }
    }

    /// Checks that verified reads never go back.
    async fn verify(&self) {
        let mut last = 0;
        while self.goes_on() {
            let read = self.domain.reader().verified().get(&self.counts, "hot").await;
            let Count { n } = read.expect("reads").expect("exists");
            assert!(n >= last, "{n} after {last}");
            last = n;
        }
    }

    /// Checks that read-only transactions see complete writes.
    ///
    /// Each transaction sees both documents of one write, and never goes back.
    async fn look(&self) {
        let read_only = Options::default().with_read_only(true);
        let mut last = 0;
        while self.goes_on() {
            let committed = self.written.load(Ordering::SeqCst);
            let look = self.domain.run::<_, Error, _>(&read_only, async |tx| {
                // One request per document, so that different copies may answer.
                let hot = tx.get(&self.counts, "hot").await?.expect("exists");
                let twin = tx.get(&self.counts, "twin").await?.expect("exists");
                Ok((hot.n, twin.n))
            });
            let (hot, twin) = look.await.expect("reads").value;
            assert_eq!(hot, twin);
            assert!(hot >= last, "{hot} after {last}");
            assert!(hot >= committed, "{hot}, but {committed} was acknowledged before");
            last = hot;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gets_go_back_in_time_and_transactions_do_not() {
    let urls = env::cluster_urls();
    let config = EsConfig::new(&urls).expect("addresses").with_max_bulk_items(1_000);
    let fixture = Fixture::of(&urls[0], config).await;
    let name = fixture.name("counts");
    let settings = json!({"number_of_shards": 1, "number_of_replicas": 2});
    let mappings = json!({"properties": {"n": {"type": "long"}}});
    fixture.plain.make(&name, &json!({"settings": settings, "mappings": mappings})).await;
    let health = format!("/_cluster/health/{name}?wait_for_status=green&timeout=60s");
    fixture.plain.ok("GET", &health, None).await;

    let domain = fixture.domain().await;
    let counts: Counts = domain.collection(&name).await.expect("opens");
    domain
        .transact::<_, Error, _>(async |tx| {
            for id in ["hot", "twin", "tally"] {
                tx.insert(&counts, id, &Count { n: 0 })?;
            }
            Ok(())
        })
        .await
        .expect("inserts");
    let run = Arc::new(Run {
        store: fixture.store(),
        domain: domain.clone(),
        counts: counts.clone(),
        over: AtomicBool::new(false),
        gets: AtomicU64::new(0),
        backwards: AtomicU64::new(0),
        tallied: AtomicU64::new(0),
        written: AtomicU64::new(0),
    });
    let mut tasks = tokio::task::JoinSet::new();
    macro_rules! start {
        ($($task:ident)*) => {$(
            let part = run.clone();
            tasks.spawn(async move { part.$task().await });
        )*};
    }
    start!(write flood tally tally get get get verify verify look look);
    let began = Instant::now();
    let seen =
        || run.backwards.load(Ordering::SeqCst) > 10 && run.written.load(Ordering::SeqCst) >= LEAST;
    while !seen() && began.elapsed() < BOUND && tasks.len() == 11 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        while let Some(ended) = tasks.try_join_next() {
            ended.expect("no part fails");
        }
    }
    run.over.store(true, Ordering::SeqCst);
    while let Some(ended) = tasks.join_next().await {
        ended.expect("no part fails");
    }
    let number = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
    let (gets, backwards) = (number(&run.gets), number(&run.backwards));
    println!("{backwards} of {gets} GETs went back during {} writes", number(&run.written));
    let tally = domain.reader().verified().get(&counts, "tally").await.expect("reads");
    assert_eq!(tally, Some(Count { n: number(&run.tallied) }), "every increment, once");
    assert!(backwards > 0, "none of {gets} GETs went back: this shows nothing");
    fixture.settle(&domain).await;
    fixture.clear().await;
}
