//! `Domain::idempotent`: one effect and one answer for each key.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::support::{Calendar, Item, Items, Plain, Setup, World, config};
use txn_core::store::{Key, MemoryStore};
use txn_core::{Answer, Answered, Domain, Error, ErrorKind, IdempotencyKey, Options};
use txn_sim::{FaultPlan, FaultStore};

const DAY: Duration = Duration::from_secs(86_400);

struct Counter {
    domain: Domain,
    items: Items,
    calls: AtomicU32,
    calendar: Arc<Calendar>,
}

impl Counter {
    async fn open(memory: Arc<MemoryStore>) -> Self {
        let calendar = Arc::new(Calendar::default());
        let setup = Setup::on(memory).config(config().with_clock(calendar.clone()));
        let World { domain, items, .. } = setup.open().await;
        Self { domain, items, calls: AtomicU32::new(0), calendar }
    }

    /// Counts up, and refuses to count beyond `most`.
    async fn count(&self, key: &IdempotencyKey, most: i64) -> Result<Answered<i64>, Error> {
        let options = Options::default();
        let counted = self.domain.idempotent(key, &options, async |tx| {
            self.calls.fetch_add(1, Ordering::Relaxed);
            let n = tx.get(&self.items, "a").await?.map_or(0, |item: Item| item.n);
            tx.put(&self.items, "a", &Item { n: n + 1 })?;
            Ok::<_, Error>(match n < most {
                true => Answer::Commit(n + 1),
                false => Answer::Refuse(n),
            })
        });
        counted.await
    }

    /// Purges, and returns the number of deleted answers.
    async fn purge(&self) -> usize {
        let purged = self.domain.purge_answers().await.expect("purges");
        assert_eq!((purged.unreadable, purged.unreadable_total), (Vec::new(), 0));
        purged.deleted
    }

    async fn counted(&self) -> i64 {
        let found = self.domain.reader().verified().get(&self.items, "a").await.expect("reads");
        found.map_or(0, |item| item.n)
    }
}

#[tokio::test]
async fn repetition_receives_the_first_answer() {
    let store = Arc::new(MemoryStore::new());
    let shop = Counter::open(store.clone()).await;
    let key = IdempotencyKey::new("k", DAY).for_request("count");
    let first = shop.count(&key, 9).await.expect("counts");
    assert_eq!((first.value, first.repeated), (1, false));
    assert!(first.receipt.is_some());
    // Another process repeats the call.
    let other = Counter::open(store).await;
    let again = other.count(&key, 9).await.expect("answers");
    assert_eq!((again.value, again.repeated, again.receipt), (1, true, None));
    assert_eq!((shop.counted().await, other.calls.load(Ordering::Relaxed)), (1, 0));
}

#[tokio::test]
async fn refusal_is_stored_without_its_writes() {
    let shop = Counter::open(Arc::default()).await;
    let key = IdempotencyKey::new("k", DAY);
    let refused = shop.count(&key, 0).await.expect("answers");
    assert_eq!((refused.value, refused.repeated, refused.receipt), (0, false, None));
    // The second call would be admitted, and receives the refusal of the first.
    let again = shop.count(&key, 9).await.expect("answers");
    assert_eq!((again.value, again.repeated), (0, true));
    assert_eq!((shop.counted().await, shop.calls.load(Ordering::Relaxed)), (0, 1));
}

#[tokio::test]
async fn another_request_under_the_key_fails() {
    let shop = Counter::open(Arc::default()).await;
    let key = |request: &str| IdempotencyKey::new("k", DAY).for_request(request);
    shop.count(&key("count"), 9).await.expect("counts");
    let error = shop.count(&key("count more"), 9).await.expect_err("another request");
    assert_eq!(error.kind(), ErrorKind::KeyReused);
    assert!(!error.kind().is_transient_or_unknown());
    assert_eq!(shop.counted().await, 1);
}

#[tokio::test]
async fn error_of_the_closure_is_not_stored() {
    let shop = Counter::open(Arc::default()).await;
    let key = IdempotencyKey::new("k", DAY);
    let options = Options::default();
    let failed = shop.domain.idempotent(&key, &options, async |tx| {
        tx.insert(&shop.items, "a", &Item { n: 1 })?;
        // The second insert of a document fails.
        tx.insert(&shop.items, "a", &Item { n: 2 })?;
        Ok::<_, Error>(Answer::Commit(2_i64))
    });
    assert_eq!(failed.await.expect_err("exists").kind(), ErrorKind::Exists);
    assert_eq!(shop.count(&key, 9).await.expect("counts").value, 1);
}

#[tokio::test]
async fn answer_of_another_type_is_an_error() {
    let shop = Counter::open(Arc::default()).await;
    let key = IdempotencyKey::new("k", DAY);
    shop.count(&key, 9).await.expect("counts");
    let options = Options::default();
    let other = shop
        .domain
        .idempotent(&key, &options, async |_| Ok::<_, Error>(Answer::Commit("text".to_owned())));
    assert_eq!(other.await.expect_err("a number").kind(), ErrorKind::WrongType);
}

#[tokio::test]
async fn expired_answers_are_replaced_and_purged() {
    let shop = Counter::open(Arc::default()).await;
    let (short, long) = (IdempotencyKey::new("short", DAY), IdempotencyKey::new("long", DAY * 9));
    shop.count(&short, 9).await.expect("counts");
    shop.count(&long, 9).await.expect("counts");
    assert_eq!(shop.purge().await, 0);
    shop.calendar.advance(DAY * 2);
    assert_eq!(shop.count(&long, 9).await.expect("answers").value, 2);
    let again = shop.count(&short, 9).await.expect("counts");
    assert_eq!((again.value, again.repeated), (3, false));
    assert_eq!(shop.purge().await, 0);
    shop.calendar.advance(DAY * 2);
    assert_eq!(shop.purge().await, 1);
    assert_eq!(shop.count(&short, 9).await.expect("counts").value, 4);
    assert_eq!(shop.count(&long, 9).await.expect("answers").value, 2);
}

/// Writes a document like a client without the library.
async fn write_answer(store: &MemoryStore, id: &str, source: &str) {
    store.create(Key::new("shop-idempotency", id), source).await;
}

#[tokio::test]
async fn purge_goes_on_after_unreadable_answers() {
    let store = Arc::new(MemoryStore::new());
    let shop = Counter::open(store.clone()).await;
    for n in 0..120 {
        shop.count(&IdempotencyKey::new(format!("k{n:03}"), DAY), 9).await.expect("counts");
    }
    // Two answers have a wrong part.
    write_answer(&store, "k050-bad", r#"{"format":1,"expires_ms":1,"answer":5}"#).await;
    write_answer(&store, "bad", r#"{"format":"1","expires_ms":1,"answer":"1"}"#).await;
    shop.calendar.advance(DAY * 2);
    for deleted in [120, 0] {
        let purged = shop.domain.purge_answers().await.expect("purges");
        let mut names: Vec<&str> = purged.unreadable.iter().map(|it| &*it.subject).collect();
        names.sort_unstable();
        let bad = ["shop-idempotency/bad", "shop-idempotency/k050-bad"];
        assert_eq!((purged.deleted, &names[..]), (deleted, &bad[..]));
        assert_eq!(purged.unreadable_total, 2);
    }
}

#[tokio::test]
async fn time_beyond_all_dates_is_refused_before_a_lock() {
    let shop = Counter::open(Arc::default()).await;
    for days in [3_000_000, u32::MAX] {
        let key = IdempotencyKey::new("k", DAY * days);
        let error = shop.count(&key, 9).await.expect_err("too long");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("year 9999"), "{error}");
    }
    let error =
        shop.count(&IdempotencyKey::new("k", Duration::MAX), 9).await.expect_err("too long");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_eq!(shop.calls.load(Ordering::Relaxed), 0);
    assert_eq!(
        shop.count(&IdempotencyKey::new("k", DAY * 2_000_000), 9).await.expect("counts").value,
        1
    );
}

#[tokio::test]
async fn concurrent_repetitions_have_one_effect() {
    let store = Arc::new(MemoryStore::new());
    let shops =
        [Arc::new(Counter::open(store.clone()).await), Arc::new(Counter::open(store).await)];
    let tasks: Vec<_> = (0..12)
        .map(|n| {
            let shop = shops[n % 2].clone();
            let key = IdempotencyKey::new(format!("k{}", n / 6), DAY);
            tokio::spawn(async move { shop.count(&key, 1).await.expect("answers") })
        })
        .collect();
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.expect("no panic"));
    }
    // One key counts, and the other one is refused. All repetitions agree with their first call.
    assert!(answers.iter().all(|answer| answer.value == 1));
    assert_eq!(answers.iter().filter(|answer| !answer.repeated).count(), 2);
    assert_eq!(shops[0].counted().await, 1);
}

/// Repeats each call until it is answered. The store loses answers and applies writes late.
async fn run(seed: u64) -> u32 {
    let mut plan = FaultPlan::rough(seed).with_late_unknown(0.2).with_lost_unknown(0.2);
    plan.max_late = Duration::from_secs(2);
    let memory = Arc::new(MemoryStore::new());
    let store = Arc::new(FaultStore::new(memory.clone(), plan));
    store.set_enabled(false);
    let setup = Setup::on(memory).below(store.clone());
    let config = config().with_lease(Duration::from_millis(100));
    let World { domain, items, .. }: World = setup.config(config).open().await;
    assert_eq!(domain.purge_answers().await.expect("purges").deleted, 0);
    let options = Options::default();
    let key = IdempotencyKey::new("first", DAY);
    let created = domain.idempotent(&key, &options, async |_| Ok::<_, Error>(Answer::Commit(())));
    created.await.expect("creates the collection");
    store.set_enabled(true);
    let unknown = Arc::new(AtomicU32::new(0));
    let tasks: Vec<_> = (0..6_i64)
        .map(|n| {
            let (domain, items, unknown) = (domain.clone(), items.clone(), unknown.clone());
            tokio::spawn(async move {
                let key = IdempotencyKey::new(format!("k{n}"), DAY);
                for tries in 1..100 {
                    let timeout = Some(Duration::from_millis(30) * tries);
                    let options = Options::default().with_timeout(timeout);
                    let counted = domain.idempotent(&key, &options, async |tx| {
                        let count = tx.get(&items, "a").await?.map_or(0, |item: Item| item.n);
                        tx.put(&items, "a", &Item { n: count + 1 })?;
                        // Half of the calls are refused.
                        Ok::<_, Error>(match n % 2 == 1 {
                            true => Answer::Refuse(count),
                            false => Answer::Commit(count + 1),
                        })
                    });
                    match counted.await {
                        Ok(_) => return,
                        Err(error) if error.kind() == ErrorKind::Unknown => {
                            unknown.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(error) => assert!(error.kind().is_transient(), "{error}"),
                    }
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                panic!("k{n} was never answered");
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
    store.set_enabled(false);
    store.settle().await;
    let found = domain.reader().verified().get(&items, "a").await.expect("reads");
    assert_eq!(found.map(|item| item.n), Some(3), "seed {seed}");
    unknown.load(Ordering::Relaxed)
}

#[test]
fn effect_repeated_after_unknown_happens_once() {
    let mut unknown = 0;
    for seed in 0..200 {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().expect("a runtime");
        unknown += runtime.block_on(run(seed));
    }
    assert!(unknown > 0, "no outcome was unknown: the test shows nothing");
}
