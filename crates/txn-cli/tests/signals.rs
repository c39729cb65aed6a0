//! Verbs on processes and past waits for locks.

use std::sync::Arc;
use std::time::Duration;

use txn_core::{Config, Domain, Error, LockMode, Options, Raw};

use super::desk::Desk;

/// A process that waits for a lock once, and dies or ends in order.
fn process(desk: &Desk, dies: bool) {
    desk.with_file(async |file| {
        let config = Config::default()
            .with_process_name("till-7".to_owned())
            .with_application_name(Some("tills".to_owned()))
            .with_janitor_interval(Some(Duration::from_millis(100)))
            .with_group_commit(Some(false))
            .with_write_contention(true);
        let domain = Domain::open(Arc::new(file), "shop", config).await.expect("opens");
        let stock = domain.create_collection::<Raw>("stock", None).await.expect("opens");
        let restock = Options::default().with_label("restock").with_lock_mode(LockMode::AtRead);
        let older = domain.begin(&restock).expect("begins");
        older.get(&stock, "shelf").await.expect("locks");
        let checkout = Options::default().with_label("checkout");
        let younger = domain.run::<_, Error, _>(&checkout, async |tx| {
            tx.get(&stock, "shelf").await?;
            tx.put(&stock, "shelf", &Raw::new("{}"))
        });
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
    desk.run("processes").says(0, &["tills in till-7", env!("CARGO_PKG_VERSION"), "pid "]);
    let json = desk.run("processes --json").json(0);
    let listed = &json["processes"][0];
    assert_eq!(
        (&listed["process"], &listed["pid"]),
        (&"till-7".into(), &std::process::id().into())
    );
    assert_eq!(json["libraries"].as_array().map(Vec::len), Some(1));
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
