//! Verbs on processes and past waits for locks.

use std::sync::Arc;
use std::time::Duration;

use txn_core::{Collection, Config, Domain, Error, LockMode, Options, Raw, Transaction};

use super::desk::Desk;

fn config() -> Config {
    Config::default()
        .with_process_name("till-7".to_owned())
        .with_application_name(Some("tills".to_owned()))
        .with_janitor_interval(Some(Duration::from_millis(100)))
        .with_group_commit(Some(false))
        .with_write_contention(true)
        .with_metrics_address(Some("http://till-7:9000/metrics".to_owned()))
}

/// Begins a transaction that locks the shelf.
async fn restock(
    domain: &Domain,
    stock: &Collection<Raw>,
    timeout: Option<Duration>,
) -> Transaction {
    let options = Options::default().with_label("restock").with_lock_mode(LockMode::AtRead);
    let restock = domain.begin(&options.with_timeout(timeout)).expect("begins");
    restock.get(stock, "shelf").await.expect("locks");
    restock
}

/// Writes the shelf, after a wait for its lock.
async fn checkout(domain: &Domain, stock: &Collection<Raw>) -> Result<(), Error> {
    let options = Options::default().with_label("checkout");
    let written = domain.run::<_, Error, _>(&options, async |tx| {
        tx.get(stock, "shelf").await?;
        tx.put(stock, "shelf", &Raw::new("{}"))
    });
    written.await.map(drop)
}

/// A process that waits for a lock once. The process then dies or ends in order.
fn process(desk: &Desk, dies: bool) {
    process_of(desk, config(), dies);
}

fn process_of(desk: &Desk, config: Config, dies: bool) {
    desk.with_file(async |file| {
        let domain = Domain::open(Arc::new(file), "shop", config).await.expect("opens");
        let stock = domain.create_collection::<Raw>("stock", None).await.expect("opens");
        let older = restock(&domain, &stock, None).await;
        let younger = checkout(&domain, &stock);
        let releases = async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            older.rollback().await;
        };
        tokio::join!(younger, releases).0.expect("commits in the end");
        // The turns of the janitor write the wait.
        tokio::time::sleep(Duration::from_secs(1)).await;
        if !dies {
            domain.shutdown(Duration::from_secs(60)).await;
        }
    });
}

#[test]
fn dead_process_is_listed_with_its_program() {
    let desk = Desk::new();
    desk.run("processes").says(0, &["No process is registered."]);
    process(&desk, true);
    let words =
        ["tills in till-7", env!("CARGO_PKG_VERSION"), "pid ", "http://till-7:9000/metrics"];
    desk.run("processes").says(0, &words);
    process(&desk, true);
    desk.run("--limit 1 processes").says(0, &["More than 1: raise --limit"]);
    let cut = desk.run("--json --limit 1 processes").json(0);
    assert_eq!(
        (cut["processes"].as_array().map(Vec::len), &cut["truncated"]),
        (Some(1), &true.into())
    );
    let json = desk.run("processes --json").json(0);
    let listed = &json["processes"][0];
    assert_eq!(
        (&listed["process"], &listed["pid"]),
        (&"till-7".into(), &std::process::id().into())
    );
    assert_eq!(json["libraries"].as_array().map(Vec::len), Some(1));
    desk.run("status").says(0, &["Processes: 2 registered"]);
    assert_eq!(desk.run("--json --limit 1 status").json(0)["processes"]["registered"], 2);
}

#[test]
fn past_wait_is_listed_after_the_end_of_its_process() {
    let desk = Desk::new();
    desk.run("history").says(0, &["No wait is recorded."]);
    process(&desk, false);
    desk.run("processes").says(0, &["No process is registered."]);
    desk.run("history").says(0, &["stock/shelf", "checkout", "restock", "released"]);
    let json = desk.run("history --json").json(0);
    let wait = &json["waits"][0];
    assert_eq!((&wait["label"], &wait["holder_label"]), (&"checkout".into(), &"restock".into()));
    assert!(wait["waited_ms"].as_u64().is_some_and(|waited| waited > 100), "{json}");
}

#[test]
fn hot_document_has_its_labels_and_processes() {
    let desk = Desk::new();
    desk.run("hot").says(0, &["No wait is recorded.", "Config::with_write_contention(true)"]);
    process(&desk, false);
    let words = ["stock/shelf", "checkout 1", "restock 1", "till-7 1", "Next: `txn why"];
    desk.run("hot").says(0, &words);
    desk.run("hot --minutes 60").says(0, &["stock/shelf"]);
    let json = desk.run("hot --json --minutes 60 --limit 1").json(0);
    let hot = &json["documents"][0];
    assert_eq!((&hot["id"], &hot["waits"]), (&"shelf".into(), &1.into()));
    assert_eq!(hot["waiting_labels"][0]["label"], "checkout");
    assert_eq!(hot["blocking_labels"][0]["label"], "restock");
    assert_eq!(hot["waiting_processes"][0]["process"], "till-7");
    assert_eq!(hot["total_ms"], hot["longest_ms"]);
    assert_eq!((&json["complete"], &json["truncated"]), (&true.into(), &false.into()));
    desk.run("hot --minutes 0").fails_by_usage("minutes");
}

#[test]
fn process_without_record_of_waits_is_hinted_at() {
    let desk = Desk::new();
    process_of(&desk, config().with_write_contention(false), true);
    let hint = "Next: switch the record of waits on in 1 of 1 processes";
    for verb in ["hot", "history", "locks --waiting"] {
        desk.run(verb).says(0, &["is recorded", hint, "Config::with_write_contention(true)"]);
    }
    let json = desk.run("hot --json").json(0);
    assert_eq!(json["processes"][0]["recorded"], false);
    let listed = desk.run("processes --json").json(0);
    assert_eq!(listed["processes"][0]["writes_contention"], false);
}

#[test]
fn two_ranges_of_waits_stand_side_by_side() {
    let desk = Desk::new();
    process(&desk, false);
    let compared = desk.run("history --minutes 60 --against 60");
    compared.says(0, &["Later, from ", "1 waits", "Earlier, from ", "0 waits", "stock/shelf"]);
    let json = desk.run("history --json --minutes 60 --against 120").json(0);
    assert_eq!((&json["later"]["waits"], &json["earlier"]["waits"]), (&1.into(), &0.into()));
    assert_eq!(json["documents"][0]["earlier"]["total_ms"], 0);
    let json = desk.run("history --json --minutes 60").json(0);
    assert_eq!(json["waits"].as_array().map(Vec::len), Some(1));
    desk.run("history --minutes 60").says(0, &["stock/shelf", "till-7"]);
    desk.run("history --minutes 60 --against 5").fails(2, "is less than");
    desk.run("history --against 5").fails_by_usage("minutes");
}

/// A process that dies while it waits for a lock. The process has written the wait before.
fn die_in_a_wait(desk: &Desk) {
    desk.with_file(async |file| {
        let (store, interval) = (Arc::new(file), Duration::from_secs(3));
        let config = config().with_janitor_interval(Some(interval));
        let domain = Domain::open(store.clone(), "shop", config).await.expect("opens");
        let stock = domain.create_collection::<Raw>("stock", None).await.expect("opens");
        let older = restock(&domain, &stock, Some(Duration::from_secs(300))).await;
        let younger = checkout(&domain, &stock);
        let seen = async {
            let config = Config::default().with_janitor_interval(None);
            let other = Domain::open(store.clone(), "shop", config).await.expect("opens");
            while other.admin().waiters(10).await.expect("reads").waiters.is_empty() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::select! {
            _ = younger => panic!("the wait has ended"),
            () = seen => {}
        }
        std::mem::forget(older);
    });
}

#[test]
fn waiter_is_listed_with_its_blocker() {
    let desk = Desk::new();
    desk.run("locks --waiting").says(0, &["No wait for a lock is recorded."]);
    die_in_a_wait(&desk);
    // The process is silent after four intervals.
    let waiting = desk.run("locks --waiting");
    waiting.says(0, &["stock/shelf", "checkout", "restock", "till-7", "Next: `txn show TID`"]);
    let json = desk.run("locks --waiting --json").json(0);
    let waiter = &json["waiters"][0];
    assert_eq!((&waiter["label"], &waiter["process"]), (&"checkout".into(), &"till-7".into()));
    assert_eq!(waiter["holder_label"], "restock");
    desk.run("why stock shelf").says(0, &["Waiting: ", "(checkout) in till-7, for "]);
    let story = desk.run("--json why stock shelf").json(0);
    assert_eq!(story["waiters"][0]["tid"], waiter["tid"]);
}
