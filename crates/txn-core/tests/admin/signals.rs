//! Signals for operators: labels, waits for locks, and the registry of processes.

use std::sync::Arc;
use std::time::Duration;

use txn_core::event::{Event, WaitEnd};
use txn_core::store::{Filter, Key, MemoryStore, Store};
use txn_core::{Config, Domain, Error, ErrorKind, LockMode, Options, Typed, WaitFor};
use txn_sim::{FaultPlan, FaultStore};

use crate::support::script::close_at_commit;
use crate::support::{Item, Plain, Setup, Wall, World, config, drained, fresh_tid};

async fn open(config: Config) -> World {
    Setup::default().config(config).open().await
}

async fn put(shop: &World, options: &Options, ids: &[&str]) -> Result<(), Error> {
    let put = shop.domain.run::<_, Error, _>(options, async |tx| {
        ids.iter().try_for_each(|id| tx.put(&shop.items, *id, &Item { n: 1 }))
    });
    put.await.map(drop)
}

/// Returns the ids of documents in the registry that begin with `prefix`.
async fn registry(shop: &World, prefix: &str) -> Vec<String> {
    let page = shop.memory.scan("txn-registry", &Filter::All, 100, None).await.expect("scans");
    let ids = page.documents.into_iter().map(|(key, ..)| key.id.to_string());
    ids.filter(|id| id.starts_with(prefix)).collect()
}

fn labelled(label: &str) -> Options {
    Options::default().with_label(label)
}

fn pessimistic(label: &str) -> Options {
    labelled(label).with_lock_mode(LockMode::AtRead).with_own_record(true)
}

/// A younger transaction waits 100 ms for an older one's lock.
async fn wait_once(shop: &World) {
    let older = shop.domain.begin(&pessimistic("restock")).expect("begins");
    older.get(&shop.items, "a").await.expect("locks");
    let releases = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        older.rollback().await;
    };
    let options = labelled("checkout");
    let (put, ()) = tokio::join!(put(shop, &options, &["a", "b"]), releases);
    put.expect("commits in the end");
}

#[tokio::test(start_paused = true)]
async fn label_is_in_record_events_and_reports() {
    let shop = open(config()).await;
    put(&shop, &Options::default().with_wait_for(WaitFor::Apply), &["a", "b"])
        .await
        .expect("writes");
    let tx = shop.domain.begin(&labelled("checkout").with_own_record(true)).expect("begins");
    let tid = tx.tid().expect("has its own record");
    for id in ["a", "b"] {
        tx.put(&shop.items, id, &Item { n: 2 }).expect("buffers");
    }
    close_at_commit(&shop.store, "items");
    tx.commit().await.expect("commits");
    shop.domain.shutdown(Duration::from_secs(60)).await;
    shop.store.reopen("items");

    let admin = Domain::open(shop.store.clone(), "shop", config()).await.expect("opens");
    let open = admin.admin().transactions(10).await.expect("lists");
    let labels: Vec<_> = open.transactions.iter().map(|one| one.label.as_deref()).collect();
    assert_eq!(labels, [Some("checkout")]);
    let report = admin.admin().transaction(tid, 10).await.expect("reports");
    assert_eq!(report.label.as_deref(), Some("checkout"));
    let locks = admin.admin().locks(10).await.expect("lists");
    assert!(locks.locks.iter().all(|lock| lock.label.as_deref() == Some("checkout")));
    let committed = |event: &Event| match event {
        Event::Committed { tid: of, label, .. } if *of == tid => label.clone(),
        _ => None,
    };
    assert_eq!(shop.log.of(committed), ["checkout".into()]);
}

#[tokio::test(start_paused = true)]
async fn invalid_label_is_refused_before_any_lock() {
    let shop = open(config()).await;
    let long = "x".repeat(65);
    for label in ["", "a b", "ü", "a+b", long.as_str()] {
        let options = pessimistic(label);
        let error = put(&shop, &options, &["a", "b"]).await.expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{label:?}");
        let error = shop.domain.begin(&options).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{label:?}");
    }
    assert_eq!(shop.log.count(|event| matches!(event, Event::Started { .. })), 0);
    put(&shop, &labelled("Check-out_2.b:c/d"), &["a"]).await.expect("commits");
}

#[tokio::test(start_paused = true)]
async fn group_has_the_labels_of_its_members() {
    let plan = FaultPlan::none(1).with_delay(1.0, Duration::from_millis(2));
    let memory = Arc::new(MemoryStore::new());
    let slow = Arc::new(FaultStore::new(memory.clone(), plan));
    let config = config().with_group_commit(Some(true));
    let World { log, domain, items, .. } =
        Setup::on(memory).below(slow).config(config).open::<Typed<Item>>().await;
    let puts = (0..16).map(|n| {
        let (domain, items) = (&domain, &items);
        async move {
            let options = labelled(if n % 2 == 0 { "checkout" } else { "restock" });
            let put = domain.run::<_, Error, _>(&options, async |tx| {
                tx.put(items, "a", &Item { n })?;
                tx.put(items, "b", &Item { n })
            });
            put.await.map(drop)
        }
    });
    assert!(futures::future::join_all(puts).await.iter().all(Result::is_ok));
    let groups = log.of(|event| match event {
        Event::GroupFormed { tid, .. } => Some(*tid),
        _ => None,
    });
    let labels = log.of(|event| match event {
        Event::Started { tid, label } if groups.contains(tid) => label.clone(),
        _ => None,
    });
    assert!(labels.contains(&"checkout+restock".into()), "{labels:?}");
}

#[tokio::test(start_paused = true)]
async fn error_of_a_waiter_names_the_holders_label() {
    let shop = open(config()).await;
    let older = shop.domain.begin(&pessimistic("restock")).expect("begins");
    older.get(&shop.items, "a").await.expect("locks");
    let options = labelled("checkout").with_timeout(Some(Duration::from_secs(1)));
    let error = put(&shop, &options, &["a", "b"]).await.expect_err("waits in vain");
    assert!(error.to_string().contains("(restock)"), "{error}");
    older.rollback().await;
    drained(&shop.domain).await;
}

#[tokio::test(start_paused = true)]
async fn present_wait_is_listed_until_its_end() {
    let shop = open(config()).await;
    let older = shop.domain.begin(&pessimistic("restock")).expect("begins");
    older.get(&shop.items, "a").await.expect("locks");
    let holder = older.tid().expect("has its own record");
    let present = |limit| shop.domain.admin().present_waits(limit);
    let looks = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let waits = (present(10), present(0));
        older.rollback().await;
        waits
    };
    let options = labelled("checkout");
    let (put, (waits, none)) = tokio::join!(put(&shop, &options, &["a", "b"]), looks);
    put.expect("commits in the end");
    let [wait] = &waits[..] else { panic!("{waits:?}") };
    let labels = (wait.label.as_deref(), wait.holder_label.as_deref());
    assert_eq!(labels, (Some("checkout"), Some("restock")));
    assert_eq!((&*wait.collection, &*wait.id, wait.holder), ("items", "a", holder));
    assert!(none.is_empty() && present(10).is_empty());
}

#[tokio::test(start_paused = true)]
async fn ended_wait_is_remembered_with_both_labels() {
    let shop = open(config()).await;
    wait_once(&shop).await;
    let contention = shop.domain.admin().contention(10);
    let [wait] = &contention.waits[..] else { panic!("{contention:?}") };
    assert_eq!(
        (wait.label.as_deref(), wait.holder_label.as_deref()),
        (Some("checkout"), Some("restock"))
    );
    assert_eq!((&*wait.collection, &*wait.id, wait.end), ("items", "a", WaitEnd::Released));
    assert!((90..1_000).contains(&wait.waited_ms), "{wait:?}");
    let ended = |event: &Event| matches!(event, Event::WaitEnded { end: WaitEnd::Released, .. });
    assert_eq!(shop.log.count(ended), 1);
    drained(&shop.domain).await;
}

#[tokio::test(start_paused = true)]
async fn wait_past_the_deadline_has_timed_out() {
    let shop = open(config()).await;
    let older = shop.domain.begin(&pessimistic("restock")).expect("begins");
    older.get(&shop.items, "a").await.expect("locks");
    let options = labelled("checkout").with_timeout(Some(Duration::from_secs(1)));
    put(&shop, &options, &["a", "b"]).await.expect_err("waits in vain");
    let ends: Vec<_> =
        shop.domain.admin().contention(10).waits.iter().map(|wait| wait.end).collect();
    assert_eq!(ends, [WaitEnd::TimedOut]);
    older.rollback().await;
}

#[tokio::test(start_paused = true)]
async fn remembered_waits_are_bounded() {
    for most in [0, 2] {
        let shop = open(config().with_contention_waits(most)).await;
        for _ in 0..4 {
            wait_once(&shop).await;
            drained(&shop.domain).await;
        }
        let contention = shop.domain.admin().contention(10);
        assert_eq!(contention.waits.len(), most, "{contention:?}");
        assert_eq!(contention.truncated, most > 0);
        let of_all = shop.domain.admin().contention_of_all(10).await.expect("reads");
        assert_eq!((of_all.waits, of_all.truncated), (contention.waits, contention.truncated));
    }
    let config = config().with_contention_waits(1_000_000);
    let store = Arc::new(MemoryStore::new());
    let error = Domain::open_or_create(store, "shop", config).await.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

#[tokio::test(start_paused = true)]
async fn waits_are_written_for_other_processes() {
    let with_janitor = || Config::default().with_process_name("till-7".to_owned());
    let shop = open(with_janitor().with_write_contention(true)).await;
    wait_once(&shop).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let other = Domain::open(shop.store.clone(), "shop", config()).await.expect("opens");
    assert!(other.admin().contention(10).waits.is_empty());
    let of_all = other.admin().contention_of_all(10).await.expect("reads");
    assert_eq!(of_all.waits, shop.domain.admin().contention(10).waits);
    assert_eq!((of_all.waits.len(), of_all.truncated), (1, false));
    // The waits of an ended process stay for a while.
    shop.domain.shutdown(Duration::from_secs(5)).await;
    assert_eq!(registry(&shop, "contention:").await.len(), 1);

    let quiet = open(with_janitor()).await;
    wait_once(&quiet).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(registry(&quiet, "contention:").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn processes_of_waits_are_named() {
    let with_janitor = || Config::default().with_process_name("till-7".to_owned());
    let shop = open(with_janitor().with_write_contention(true)).await;
    wait_once(&shop).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let other = Domain::open(shop.store.clone(), "shop", config()).await.expect("opens");
    for domain in [&shop.domain, &other] {
        let of_all = domain.admin().contention_of_all(10).await.expect("reads");
        let wait = &of_all.waits[0];
        assert_eq!(of_all.process_of(wait.tid.process()), Some("till-7"));
        assert!(of_all.processes.iter().all(|source| source.recorded), "{of_all:?}");
        assert_eq!(of_all.complete_since_ms, 0);
        assert!(wait.ended_ms() <= of_all.now_ms, "{of_all:?}");
    }
    assert!(shop.domain.admin().processes().await.expect("lists")[0].entry.writes_contention);

    let quiet = open(with_janitor()).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let other = Domain::open(quiet.store.clone(), "shop", config()).await.expect("opens");
    let of_all = other.admin().contention_of_all(10).await.expect("reads");
    let recorded: Vec<bool> = of_all.processes.iter().map(|source| source.recorded).collect();
    assert_eq!(recorded, [false]);
}

#[tokio::test(start_paused = true)]
async fn missing_waits_have_an_end() {
    let shop = open(config().with_contention_waits(2)).await;
    for _ in 0..3 {
        wait_once(&shop).await;
        drained(&shop.domain).await;
    }
    let two = shop.domain.admin().contention(10);
    let ends: Vec<u64> = two.waits.iter().map(txn_core::LockWait::ended_ms).collect();
    assert_eq!(ends.iter().min().map(|oldest| oldest + 1), Some(two.complete_since_ms));
    let one = shop.domain.admin().contention(1);
    assert!(one.complete_since_ms >= two.complete_since_ms, "{one:?}");
}

#[tokio::test(start_paused = true)]
async fn present_waits_are_written_for_other_processes() {
    let wall = Wall::ahead(Duration::ZERO);
    let long = Duration::from_secs(600);
    let config_of =
        || Config::default().with_clock(wall.clone()).with_attempt_timeout(long).with_timeout(long);
    let till = config_of().with_process_name("till-7".to_owned()).with_write_contention(true);
    let shop = open(till).await;
    let other = config_of().with_janitor_interval(None);
    let other = Domain::open(shop.store.clone(), "shop", other).await.expect("opens");
    let hold = || async {
        let tx = shop.domain.begin(&pessimistic("restock")).expect("begins");
        tx.get(&shop.items, "a").await.expect("locks");
        tx
    };
    let options = labelled("checkout");
    let older = hold().await;
    let looks = async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        let waiters = other.admin().waiters(10).await.expect("reads");
        let one = waiters.waiters.first().expect("a wait");
        assert_eq!(one.process, "till-7");
        assert!(waiters.processes.iter().any(|process| process.number == one.number));
        assert_eq!(
            (one.wait.label.as_deref(), one.wait.holder_label.as_deref()),
            (Some("checkout"), Some("restock"))
        );
        assert_eq!((&*one.wait.collection, &*one.wait.id), ("items", "a"));
        let own = shop.domain.admin().waiters(10).await.expect("reads");
        assert_eq!((own.waiters.len(), own.waiters[0].seen_ms), (1, 0), "{own:?}");
        older.rollback().await;
    };
    tokio::join!(put(&shop, &options, &["a", "b"]), looks).0.expect("commits");
    // A jump of the clock gives the process a further entry. The earlier one becomes silent.
    wall.set_ahead(Duration::from_secs(100));
    tokio::time::sleep(Duration::from_secs(60)).await;
    let waiters = other.admin().waiters(10).await.expect("reads");
    assert!(waiters.waiters.is_empty(), "{waiters:?}");

    // The wait of a process that has become silent is left out.
    let older = hold().await;
    let dies = tokio::time::timeout(Duration::from_secs(60), put(&shop, &options, &["a", "b"]));
    dies.await.expect_err("waits");
    let waiters = other.admin().waiters(10).await.expect("reads");
    assert!(!waiters.waiters.is_empty(), "{waiters:?}");
    wall.set_ahead(Duration::from_secs(1_000));
    let waiters = other.admin().waiters(10).await.expect("reads");
    assert!(waiters.waiters.is_empty(), "{waiters:?}");
    older.rollback().await;
}

#[tokio::test(start_paused = true)]
async fn waits_beyond_the_answer_are_reported() {
    let with_waits =
        |most| Config::default().with_write_contention(true).with_contention_waits(most);
    let shop = open(with_waits(2)).await;
    for n in 1..=3 {
        wait_once(&shop).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        // The process remembers two waits, and another process reads only the written ones.
        let other = Domain::open(shop.store.clone(), "shop", config()).await.expect("opens");
        for domain in [&shop.domain, &other] {
            let of_all = domain.admin().contention_of_all(10).await.expect("reads");
            // A jump of the clock gives the process a further entry, with earlier waits.
            assert!(of_all.waits.len() >= n.min(2), "{of_all:?}");
            assert_eq!(of_all.truncated, n > 2);
            let one = domain.admin().contention_of_all(1).await.expect("reads");
            assert_eq!((one.waits.len(), one.truncated), (1, n > 1));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn unreadable_waits_are_reported_as_missing() {
    let shop = open(config()).await;
    let all = shop.domain.admin().contention_of_all(10).await.expect("reads");
    assert!(!all.truncated);
    let key = Key::new("txn-registry", "contention:shop:ffffffffffff");
    shop.memory.create(key, r#"{"waits":"none"}"#).await;
    let all = shop.domain.admin().contention_of_all(10).await.expect("reads");
    assert!(all.waits.is_empty() && all.truncated, "{all:?}");
}

#[tokio::test(start_paused = true)]
async fn process_is_listed_until_its_shutdown() {
    let config = Config::default()
        .with_process_name("till-7".to_owned())
        .with_application_name(Some("tills".to_owned()))
        .with_metrics_address(Some("10.0.0.7:9000".to_owned()));
    let shop = open(config).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let processes = shop.domain.admin().processes().await.expect("lists");
    let [one] = &processes[..] else { panic!("{processes:?}") };
    assert_eq!((&*one.entry.process, one.silent), ("till-7", false));
    assert_eq!(one.entry.application.as_deref(), Some("tills"));
    assert_eq!(one.entry.metrics_address.as_deref(), Some("10.0.0.7:9000"));
    assert_eq!(one.entry.library, env!("CARGO_PKG_VERSION"));
    assert_eq!(one.entry.pid, std::process::id());
    let number = fresh_tid(&shop.domain).process();
    assert_eq!(one.number, number.to_string());
    shop.domain.shutdown(Duration::from_secs(5)).await;
    assert!(shop.domain.admin().processes().await.expect("lists").is_empty());
}

#[tokio::test(start_paused = true)]
async fn domain_without_janitor_registers_no_process() {
    let shop = open(config().with_write_contention(true)).await;
    wait_once(&shop).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    shop.domain.shutdown(Duration::from_secs(5)).await;
    assert!(registry(&shop, "process:").await.is_empty());
    assert!(registry(&shop, "contention:").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn janitor_drops_entries_of_dead_processes() {
    cov_mark::check!(entries_of_dead_processes_are_dropped);
    let wall = Wall::ahead(Duration::ZERO);
    let dead = open(Config::default().with_clock(wall.clone())).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    // The process dies with its tasks: it drops its handles without a shutdown.
    let memory = dead.memory.clone();
    drop(dead);
    wall.set_ahead(Duration::from_secs(1_800));
    let alive = Setup::on(memory).config(Config::default().with_clock(wall.clone()));
    let alive: World = alive.open().await;
    tokio::time::sleep(Duration::from_secs(1_300)).await;
    let silent =
        |all: &[txn_core::admin::ProcessReport]| all.iter().filter(|one| one.silent).count();
    let processes = alive.domain.admin().processes().await.expect("lists");
    assert_eq!((processes.len(), silent(&processes)), (2, 1), "{processes:?}");
    wall.set_ahead(Duration::from_secs(5_000));
    tokio::time::sleep(Duration::from_secs(1_300)).await;
    let processes = alive.domain.admin().processes().await.expect("lists");
    assert_eq!((processes.len(), silent(&processes)), (1, 0), "{processes:?}");
}

#[tokio::test(start_paused = true)]
async fn lock_without_record_names_its_program() {
    let shop = open(Config::default().with_process_name("till-7".to_owned())).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let tx = shop.domain.begin(&pessimistic("checkout")).expect("begins");
    tx.get(&shop.items, "a").await.expect("locks");
    let locks = shop.domain.admin().locks(10).await.expect("lists");
    let [lock] = &locks.locks[..] else { panic!("{locks:?}") };
    let named = lock.process.as_deref().is_some_and(|process| process.starts_with("till-7, "));
    assert!(named, "{lock:?}");
    let report = shop.domain.admin().transaction(lock.holder, 10).await.expect("reports");
    assert_eq!(report.process, lock.process);
    tx.rollback().await;
}

#[tokio::test(start_paused = true)]
async fn unreadable_entry_of_a_process_is_left_out() {
    let shop = open(Config::default()).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let key = Key::new("txn-registry", "process:shop:ffffffffffff");
    shop.memory.create(key, r#"{"node":5}"#).await;
    assert_eq!(shop.domain.admin().processes().await.expect("lists").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn removal_of_a_domain_removes_its_entries() {
    let shop = open(Config::default().with_write_contention(true)).await;
    wait_once(&shop).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(registry(&shop, "process:").await.len(), 1);
    shop.domain.admin().remove().await.expect("removes");
    assert!(registry(&shop, "process:").await.is_empty());
    assert!(registry(&shop, "contention:").await.is_empty());
}
