//! Verbs on a sound domain, and on what dead processes leave.

use std::time::Duration;

use serde_json::json;
use txn_core::store::Store;
use txn_core::{Config, LockMode, Options};
use txn_lock::{LockConfig, LockService};
use txn_outbox::{Delivery, Failure, Outbox, OutboxConfig, OutboxError, ProcessorConfig, Topics};

use super::desk::{ServerDesk, wait_until};
use super::owners;
use super::ran::{CANARY, codes};

pub(crate) fn sound_domain_is_well_beside_a_load(desk: &ServerDesk) {
    let (stock, domain) = (&desk.names.stock, &desk.names.domain);
    let load = desk.load();
    desk.run("status").says(0, &["is well", "A read took", "Locks: "]);
    let status = desk.run("--json status").json(0);
    assert_eq!(status["well"], true);
    assert!(status["clock_ahead_ms"].is_i64(), "{status}");
    desk.run("doctor").says(0, &["ok  index templates", "ok  limit of shards", "ok  disks"]);
    let doctor = desk.run("--json doctor").json(0);
    // A retried attempt of the load may leave a lock for a moment.
    let silent = codes(&doctor).iter().all(|code| *code == "void_lock");
    assert!(silent, "{doctor}");
    desk.run(&format!("doctor {stock}")).says(0, &["ok  collection"]);
    for verb in ["ls", "locks", "hanging", "verify", "status --probe"] {
        desk.run(verb).says(0, &[]);
        desk.run(&format!("--json {verb}")).json(0);
    }
    let of_waits = ["processes", "hot", "history", "locks --waiting", "hot --minutes 5"];
    for verb in of_waits.into_iter().chain(["history --minutes 5 --against 10"]) {
        desk.run(verb).says(0, &[]);
        desk.run(&format!("--json {verb}")).json(0);
    }
    desk.run(&format!("why {stock} shelf")).says(0, &["Last commit: "]);
    assert_eq!(desk.run(&format!("--json why {stock} shelf")).json(0)["exists"], true);
    desk.run("recover --dry-run").says(0, &["are locked"]);
    desk.run("--json recover --dry-run").json(0);
    desk.run("rebuild").says(0, &["nothing to rebuild"]);
    assert_eq!(desk.run("--json rebuild").json(0)["lost"], json!([]));
    load.goes_on();
    drop(load);
    desk.run("verify").says(0, &["Each lock has an owner"]);
    desk.run("recover").says(0, &["Left: 0 locked documents"]);
    let roles = desk.run(&format!("--json roles {stock}")).json(0);
    assert_eq!(roles["domain"], domain.as_str());
    desk.run("init").says(0, &["is ready"]);
    assert_eq!(desk.run("--json init").json(0)["collections"], json!([]));
    for verb in ["outbox", "dead list", "lock ls", "requests ls"] {
        desk.run(verb).fails(2, "no process has used it");
    }
}

pub(crate) fn unapplied_commit_is_found_and_recovered(desk: &ServerDesk) {
    let stock = &desk.names.stock;
    let tid = desk.wait(owners::die_after_commit(desk.store.clone(), &desk.names)).to_string();
    desk.run("status").says(1, &["NOT WELL [commit_unapplied]", &tid, "till-7", "`txn recover`"]);
    let status = desk.run("--json status").json(1);
    assert_eq!(
        (codes(&status), &status["open"]["committed"]),
        (vec!["commit_unapplied"], &json!(1))
    );
    desk.run("ls").says(0, &[&tid, "committed", "tills in till-7"]);
    assert_eq!(desk.run("--json ls --state committed").json(0)["transactions"][0]["tid"], tid);
    desk.run(&format!("show {tid}")).says(0, &["Verdict: unapplied: 1 of 2"]);
    assert_eq!(desk.run(&format!("--json show {tid}")).json(0)["verdict"], "unapplied");
    desk.run(&format!("why {stock} shelf")).says(0, &[&tid, "the lock is unapplied"]);
    desk.run("locks").says(0, &["shelf", "unapplied"]);
    assert_eq!(desk.run("--json locks").json(0)["locks"][0]["holder"], tid);
    desk.run("hanging").says(1, &["commit_unapplied"]);
    assert_eq!(desk.run("--json hanging").json(1)["hanging"][0]["code"], "commit_unapplied");
    desk.run("verify").says(1, &["2 participants of 1 commits"]);
    assert_eq!(desk.run("--json verify").json(1)["participants"], 2);
    desk.run("doctor").says(1, &["commit_unapplied"]);
    desk.run(&format!("abort {tid}")).says(1, &["cannot be aborted"]);
    desk.run(&format!("outcome {tid} --dry-run")).says(0, &["committed now"]);
    assert_eq!(desk.run(&format!("--json outcome {tid}")).json(0)["outcome"], "committed");
    assert_eq!(desk.run("--json recover").json(0)["open"], 0);
    desk.run("status").says(0, &["is well"]);
    desk.run(&format!("show {tid}")).says(0, &["Verdict: finished"]);
}

pub(crate) fn dead_owner_without_record_is_aborted(desk: &ServerDesk) {
    let tid = desk.wait(owners::die_before_commit(desk.store.clone(), &desk.names)).to_string();
    desk.run("status").says(1, &["lock_without_record", "shelf", "`txn recover`"]);
    desk.run("ls").says(0, &[&tid, "no_record (overdue)"]);
    desk.run(&format!("show {tid}")).says(0, &["Verdict: overdue"]);
    assert_eq!(desk.run(&format!("--json abort {tid} --dry-run")).json(0)["aborts"], true);
    desk.run(&format!("abort {tid} --why stuck")).says(0, &["is aborted for good"]);
    desk.run(&format!("show {tid}")).says(0, &["Verdict: aborted", "stuck"]);
    desk.run("status").says(0, &["note [void_lock]"]);
    desk.run("recover").says(0, &["Left: 0 locked documents"]);
}

pub(crate) fn live_transaction_is_aborted_by_hand(desk: &ServerDesk) {
    // On a busy machine the commands take longer than an attempt may.
    let domain = desk.domain(Config::default().with_attempt_timeout(Duration::from_secs(300)));
    let (stock, _) = desk.wait(owners::collections(&domain, &desk.names));
    let options = Options::default().with_lock_mode(LockMode::AtRead).with_own_record(true);
    let options = options.with_timeout(Some(Duration::from_secs(300)));
    let tx = desk.runtime.block_on(async { domain.begin(&options) }).expect("begins");
    desk.wait(tx.get(&stock, "shelf")).expect("reads");
    let tid = tx.tid().expect("has its own record").to_string();
    // A live owner writes its record within a lease.
    wait_until("a heartbeat", || desk.run("ls").out.contains("pending"));
    desk.run("hanging").says(0, &["Nothing hangs"]);
    // A heartbeat on a busy machine may be late.
    let shown = desk.run(&format!("--json show {tid}")).json(0);
    assert!(shown["verdict"] == "running" || shown["verdict"] == "overdue", "{shown}");
    desk.run(&format!("abort {tid}")).says(0, &["is aborted for good"]);
    tx.put(&stock, "shelf", &owners::body()).expect("buffers");
    let error = desk.wait(tx.commit()).expect_err("aborted");
    assert_eq!(error.kind(), txn_core::ErrorKind::Conflict, "{error}");
    desk.wait(domain.shutdown(Duration::from_secs(60)));
}

pub(crate) fn systems_are_operated(desk: &ServerDesk) {
    let domain = desk.domain(Config::default());
    let guard = desk.wait(async {
        let service = LockService::open(&domain, LockConfig::default()).await.expect("opens");
        service.lock("nightly", "report", Duration::from_secs(60)).await.expect("locks")
    });
    desk.run("lock ls").says(0, &["nightly", "report", "token"]);
    desk.run("--json lock ls").json(0);
    desk.run("lock break nightly report --dry-run").says(0, &["Would be taken from"]);
    desk.run("lock break nightly report").says(0, &["Taken from"]);
    assert_eq!(desk.run("--json lock break nightly report").json(0)["broken"], json!(null));
    drop(guard);

    desk.wait(set_aside(&domain));
    desk.run("status").says(1, &["dead_letters", "Outbox: "]);
    desk.run("outbox").says(1, &["1 dead letters"]);
    assert_eq!(desk.run("--json outbox").json(1)["dead"], 1);
    desk.run("dead list").says(1, &["no such address"]);
    desk.run("--json dead list").json(1);
    desk.run("--json dead retry --all --dry-run").json(0);
    desk.run("dead drop --all").says(0, &["dropped: "]);
    desk.run("dead list").says(0, &["No dead letter."]);

    let target = json!({ "collection": desk.names.stock, "id": "new" });
    let insert = json!({ "insert": { "target": target, "document": { "text": CANARY } } });
    desk.write_file("request.json", &json!({ "operations": [insert] }).to_string());
    desk.run("run request.json --id first --execute").says(0, &["first: "]);
    let put = json!({ "put": { "target": target, "document": { "text": CANARY } } });
    desk.write_file("request.json", &json!({ "operations": [put] }).to_string());
    desk.run("--json run request.json --id left").json(0);
    desk.run("requests ls").says(0, &["left: created"]);
    desk.run("--json requests ls").json(0);
    desk.run("requests stuck --older 0").says(1, &["left: created"]);
    desk.run("--json requests stuck --older 0").json(1);
    desk.run("requests status first").says(0, &["first: "]);
    desk.run("--json requests cancel left").json(1);
    desk.run("requests release left").fails(1, "left");
    desk.run(&format!("why {} new", desk.names.stock)).says(0, &["exists"]);
    desk.wait(domain.shutdown(Duration::from_secs(60)));
    assert!(desk.wait(desk.store.server_time()).expect("a time").is_some());
}

/// Emits an event that a processor sets aside.
async fn set_aside(domain: &txn_core::Domain) {
    let outbox = Outbox::open(domain, OutboxConfig::default()).await.expect("opens");
    let emit = domain
        .transact::<_, OutboxError, _>(async |tx| outbox.emit(tx, "mails", "a", CANARY).await);
    emit.await.expect("emits");
    let refuse = |_: Delivery| async { Err(Failure::permanent("no such address")) };
    let topics = Topics::new().with("mails", refuse);
    let processor = outbox.start(ProcessorConfig::default(), topics).await.expect("starts");
    while outbox.source().backlog().await.expect("counts").dead == 0 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    processor.stop(Duration::from_secs(5)).await;
}
