//! Verbs on the outbox, on locks and on requests.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::json;
use txn_core::{Error, Raw, Transaction};
use txn_lock::{LockConfig, LockService};
use txn_outbox::{Delivery, Failure, Outbox, OutboxConfig, OutboxError, ProcessorConfig, Topics};
use txn_requests::{Companion, Request, RequestError, Requests, RequestsConfig};

use super::desk::Desk;
use super::ran::{CANARY, codes};

#[test]
fn verbs_on_systems_create_no_collection() {
    let desk = Desk::new();
    for verb in ["outbox", "dead list", "lock ls", "requests stuck"] {
        desk.run(verb).fails(2, "no process has used it");
    }
    let status = desk.run("--json status").json(0);
    assert_eq!(status["collections"], json!(["orders", "stock"]));
}

#[test]
fn backlog_of_the_outbox_is_shown() {
    let desk = Desk::new();
    desk.beside(async |domain| {
        let outbox = Outbox::open(&domain, OutboxConfig::default()).await.expect("opens");
        let emit = domain
            .transact::<_, OutboxError, _>(async |tx| outbox.emit(tx, "mails", "a", CANARY).await);
        emit.await.expect("emits");
    });
    desk.run("outbox").says(0, &["1 events of 1 keys wait"]);
    assert_eq!(desk.run("--json outbox").json(0)["events"], 1);
    desk.run("status").says(0, &["Outbox: 1 events wait, 0 dead letters"]);
    desk.run("dead list").says(0, &["No dead letter."]);
    assert_eq!(desk.run("--json dead list").json(0)["dead_letters"], json!([]));
    desk.run("dead retry mails/a/1").fails(2, "mails/a/1");
    desk.run("dead drop --all --dry-run").says(0, &["0 dead letters", "Nothing was changed"]);
}

#[test]
fn lock_is_listed_and_broken() {
    let desk = Desk::new();
    desk.beside(async |domain| {
        let service = LockService::open(&domain, LockConfig::default()).await.expect("opens");
        let guard = service.lock("nightly", "report", Duration::from_secs(5)).await.expect("locks");
        // A process that dies does not release its lock.
        std::mem::forget(guard);
        let guard = service.lock("nightly", "backup", Duration::from_secs(5)).await.expect("locks");
        std::mem::forget(guard);
    });
    desk.run("--limit 1 lock ls").says(0, &["token", "More than 1: raise --limit"]);
    let cut = desk.run("--json --limit 1 lock ls").json(0);
    assert_eq!((cut["locks"].as_array().map(Vec::len), &cut["truncated"]), (Some(1), &true.into()));
    desk.run("lock break nightly backup").says(0, &["Taken from"]);
    desk.run("lock ls").says(0, &["nightly", "report", "token"]);
    let locks = desk.run("--json lock ls").json(0);
    assert_eq!(locks["locks"].as_array().map(Vec::len), Some(1));
    desk.run("lock break nightly report --dry-run").says(0, &["Would be taken from"]);
    desk.run("lock break nightly report").says(0, &["Taken from"]);
    let broken = desk.run("--json lock break nightly report").json(0);
    assert_eq!(broken["broken"], json!(null));
    desk.run("lock ls").says(0, &["No lock is held."]);
    desk.run("lock break re/port nightly").fails(2, "cannot name a lock");
}

#[test]
fn request_of_a_file_is_executed_once() {
    let desk = Desk::new();
    let document =
        json!({ "target": { "collection": "stock", "id": "new" }, "document": { "text": CANARY } });
    let request = json!({ "operations": [{ "insert": document }] });
    desk.write_file("request.json", &request.to_string());
    for _ in 0..2 {
        let ran = desk.run("run request.json --id first --execute");
        ran.says(0, &["first: ", "Next: "]);
    }
    desk.run("why stock new").says(0, &["stock/new exists"]);
    let again = desk.run("--json run request.json --id second --execute").json(1);
    assert_eq!(codes(&again), ["refused"], "the document exists");
    desk.write_file("request.json", "{}");
    desk.run("run request.json --id third").fails(2, "is no request");
    desk.run("requests status first").says(0, &["first: "]);
    assert_eq!(desk.run("--json requests status first").json(0)["operations"], 1);
    desk.run("requests status nowhere").fails(2, "nowhere");
}

#[test]
fn stuck_request_is_listed_and_cancelled() {
    let desk = Desk::new();
    let target = json!({ "collection": "stock", "id": "new" });
    let put = json!({ "put": { "target": target, "document": { "text": CANARY } } });
    desk.write_file("request.json", &json!({ "operations": [put] }).to_string());
    desk.run("run request.json --id left").says(0, &["left: created", "wait for a processor"]);
    assert_eq!(desk.run("--json run request.json --id left").json(0)["state"], "created");
    desk.run("requests ls").says(0, &["left: created", "Next: "]);
    let list = desk.run("--json requests ls").json(0);
    assert_eq!((&list["requests"][0]["id"], &list["truncated"]), (&"left".into(), &false.into()));
    desk.run("requests ls --application other").says(0, &["No request is open."]);
    desk.run("requests stuck --older 0").says(1, &["left: created", "requests cancel"]);
    let stuck = desk.run("--json requests stuck --older 0").json(1);
    assert_eq!(stuck["stuck"][0]["request"]["id"], "left");
    desk.run("requests stuck").says(0, &["No request is stuck."]);
    desk.run("requests cancel left --why late").says(1, &["left: ", "late"]);
    desk.run("requests stuck --older 0").says(0, &["No request is stuck."]);
    desk.run("requests release left").fails(1, "left");
}

/// A companion that fails, so that each request is set aside.
#[derive(Debug)]
struct Fails;

#[async_trait]
impl Companion for Fails {
    async fn accompany(&self, _: &Transaction, _: &Request) -> Result<(), RequestError> {
        panic!("the companion fails")
    }
}

#[test]
fn quarantined_request_is_released_and_cancelled() {
    let desk = Desk::new();
    let target = json!({ "collection": "stock", "id": "new" });
    let put = json!({ "put": { "target": target, "document": { "text": CANARY } } });
    desk.write_file("request.json", &json!({ "operations": [put] }).to_string());
    desk.run("run request.json --id doomed").says(0, &["doomed: created"]);
    desk.beside(async |domain| {
        let config = RequestsConfig::default().with_max_failures(1);
        let requests = Requests::open_with(&domain, config, Arc::new(Fails)).await.expect("opens");
        assert_eq!(requests.process_open(None).await.expect("looks").quarantined, 1);
        requests.shutdown(Duration::from_secs(5)).await;
    });
    desk.run("requests status doomed").says(1, &["doomed: quarantined"]);
    let words =
        ["NOT WELL [requests_stuck]: 1 requests are quarantined", "doomed", "requests release"];
    desk.run("status").says(1, &words);
    let status = desk.run("--json status").json(1);
    assert_eq!((codes(&status), &status["requests"]["stuck"]), (vec!["requests_stuck"], &1.into()));
    let states = &status["requests"]["states"];
    assert_eq!((&states["quarantined"], &states["created"]), (&1.into(), &0.into()));
    desk.run("requests stuck").says(1, &["doomed: quarantined", "requests release"]);
    desk.run("run request.json --id late").says(0, &["late: created"]);
    desk.run("--limit 1 requests stuck --older 0").says(1, &["More than 1: raise --limit"]);
    let cut = desk.run("--json --limit 1 requests stuck --older 0").json(1);
    assert_eq!((cut["stuck"].as_array().map(Vec::len), &cut["truncated"]), (Some(1), &true.into()));
    let all = desk.run("--json requests stuck --older 0").json(1);
    let rows = all["stuck"].as_array().expect("a list").iter();
    let why: Vec<_> = rows.map(|row| (&row["request"]["id"], &row["why"])).collect();
    let failed = (&"doomed".into(), &"it failed: the execution panicked".into());
    assert_eq!(why, [failed, (&"late".into(), &"no processor has claimed it".into())]);
    let released = desk.run("--json requests release doomed").json(0);
    assert_eq!((&released["id"], &released["state"]), (&"doomed".into(), &"created".into()));
    let open = ["Requests: 2 created, 0 pending", "0 quarantined; the oldest waits for"];
    desk.run("status").says(0, &open);
    desk.run("requests release doomed").fails(1, "doomed");
    assert_eq!(codes(&desk.run("--json requests release doomed").json(1)), ["refused"]);
    let cancelled = desk.run("--json requests cancel doomed --why late").json(1);
    assert_eq!(cancelled["state"], "rolled-back");
}

/// Emits one event per key; a processor sets all aside.
fn set_aside(desk: &Desk, keys: &[&str]) {
    desk.beside(async |domain| {
        let outbox = Outbox::open(&domain, OutboxConfig::default()).await.expect("opens");
        for key in keys {
            let emit = domain.transact::<_, OutboxError, _>(async |tx| {
                outbox.emit(tx, "mails", key, CANARY).await
            });
            emit.await.expect("emits");
        }
        let refuse = |_: Delivery| async { Err(Failure::permanent("no such address")) };
        let topics = Topics::new().with("mails", refuse);
        let processor = outbox.start(ProcessorConfig::default(), topics).await.expect("starts");
        while outbox.source().backlog().await.expect("counts").dead < keys.len() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        processor.stop(Duration::from_secs(5)).await;
    });
}

#[test]
fn dead_letters_are_retried_and_dropped() {
    let desk = Desk::new();
    set_aside(&desk, &["a", "b"]);
    let status = desk.run("--json status").json(1);
    assert_eq!(codes(&status), ["dead_letters"]);
    desk.run("dead list").says(1, &["no such address", "Next: "]);
    desk.run("--limit 1 dead list").says(1, &["More than 1: raise --limit"]);
    desk.run("dead list --where topic=other")
        .says(0, &["No dead letter where topic is \"other\"."]);
    let dead = desk.run("--json dead list --where topic=mails").json(1);
    let id = dead["dead_letters"][0]["id"].as_str().expect("an id").to_owned();
    for dry in ["retry --all --dry-run", "drop --all --dry-run"] {
        let dry =
            desk.run(&format!("dead {dry}")).says(0, &["2 dead letters", "Nothing was changed"]);
        assert_eq!(dry.out.lines().filter(|line| line.starts_with("would be ")).count(), 2);
    }
    desk.run(&format!("dead drop {id} --where topic=mails")).fails_by_usage("--where");
    let some = "dead drop --dry-run --where key=none --where error=address --where older=0";
    let words = ["0 dead letters where key is", "and error contains", "age is at least 0 s"];
    desk.run(some).says(0, &words);
    desk.run("dead drop --dry-run --where error=address").says(0, &["2 dead letters where error"]);
    desk.run("dead list --where older=1h").fails_by_usage("older");
    let dry = desk.run(&format!("--json dead drop {id} --dry-run")).json(0);
    assert_eq!(
        (&dry["dry_run"], &dry["changed"][0]["action"]),
        (&json!(true), &json!("would be dropped"))
    );
    desk.run(&format!("dead drop {id}")).says(0, &["dropped: ", "Done."]);
    desk.run(&format!("dead drop {id}")).fails(2, "no dead letter");
    desk.run("dead retry").fails_by_usage("ID");
    let retried = desk.run("--json dead retry --where topic=mails").json(0);
    assert_eq!(retried["changed"][0]["action"], "to be tried again");
    desk.run("outbox").says(0, &["1 events of 1 keys wait"]);
}

/// An unreadable queue does not block the dead letters of other queues.
#[test]
fn dead_letter_stays_if_the_retry_fails() {
    let desk = Desk::new();
    set_aside(&desk, &["a", "b"]);
    desk.beside(async |domain| {
        let outbox = domain.collection::<Raw>("shop-outbox").await.expect("opens");
        let newer = Raw::new(r#"{"kind":"queue","format":9,"topic":"mails","key":"a"}"#);
        let write =
            domain.transact::<_, Error, _>(async |tx| tx.put(&outbox, "queue:mails/a", &newer));
        write.await.expect("writes");
    });
    let retried = desk.run("dead retry --all");
    let retried = retried.says(1, &["left: mails/", "newer", "to be tried again: mails/"]);
    assert_eq!(retried.err, "");
    assert_eq!(
        desk.run("--json dead list").json(1)["dead_letters"].as_array().map(Vec::len),
        Some(1)
    );
}
