//! Operations on documents against a scripted server.

use std::sync::Arc;

use parking_lot::Mutex;
use txn_store::{Filter, Key, Outcome, Read, RefusalKind, Store, StoreErrorKind, Write, WriteOp};

use super::bulk::{Item, Op};
use super::bulk_requests::{WHOLE_BYTES, are_independent};
use crate::EsConfig;
use crate::answers::classify::MOST_REFUSED;
use crate::fake::Fake;
use crate::identity::target::Target;
use crate::identity::uuid::samples::uuid;

fn create(id: &str) -> Write {
    Write::new(Key::new("a", id), WriteOp::Create("{}".into()))
}

fn three() -> [Write; 3] {
    ["1", "2", "3"].map(create)
}

/// Returns the answer of a healthy server to creates.
fn created(body: &str) -> String {
    let ids = body.lines().step_by(2).map(|line| line.split('"').nth(9).unwrap());
    let items: Vec<_> = ids
        .map(|id| {
            format!(
                r#"{{"create":{{"_index":"a","_id":"{id}","result":"created","_seq_no":1,"_primary_term":1,"status":201}}}}"#
            )
        })
        .collect();
    format!(r#"{{"took":1,"errors":false,"items":[{}]}}"#, items.join(","))
}

fn applied(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Applied(_))
}

#[tokio::test]
async fn one_request_for_all() {
    let fake = Fake::new(|path, body| {
        assert!(path.contains("pipeline=_none") && path.contains("timeout=375ms"), "{path}");
        (200, created(body))
    })
    .await;
    assert!(fake.store.write_many(&three()).await.iter().all(applied));
    assert_eq!(fake.bulks(), 1);
    assert!(fake.store.write_many(&[]).await.is_empty() && fake.bulks() == 1);
}

#[tokio::test]
async fn a_whole_request_refused_as_too_large_is_halved() {
    let fake = Fake::new(|_, body| match body.lines().count() {
        2 if body.contains(r#""_id":"2""#) => (413, String::new()),
        2 => (200, created(body)),
        _ => (413, String::new()),
    })
    .await;
    let outcomes = fake.store.write_many(&three()).await;
    assert!(applied(&outcomes[0]) && applied(&outcomes[2]), "{outcomes:?}");
    let Outcome::Invalid(refusal) = &outcomes[1] else { panic!("{outcomes:?}") };
    assert_eq!(refusal.kind, RefusalKind::TooLarge);
}

#[tokio::test]
async fn invalid_item_does_not_fail_the_request() {
    let fake = Fake::new(|_, body| match body.contains(r#""_id":"2""#) {
        true => {
            let error = r#"{"error":{"type":"action_request_validation_exception","reason":"Validation Failed"},"status":400}"#;
            (400, error.to_owned())
        }
        false => (200, created(body)),
    })
    .await;
    let outcomes = fake.store.write_many(&three()).await;
    assert!(applied(&outcomes[0]) && applied(&outcomes[2]), "{outcomes:?}");
    assert!(matches!(&outcomes[1], Outcome::Invalid(_)), "{outcomes:?}");
    assert_eq!(fake.bulks(), 5);
    let many: Vec<Write> = (1..=256).map(|id| create(&id.to_string())).collect();
    let outcomes = fake.store.write_many(&many).await;
    assert_eq!(outcomes.iter().filter(|outcome| applied(outcome)).count(), 255);
    assert!(fake.bulks() <= 5 + 17, "halves, not one by one: {}", fake.bulks());
}

/// A firewall that refuses the document `2`.
fn firewall(body: &str) -> (u16, String) {
    match body.contains(r#""_id":"2""#) {
        true => (403, "<html>forbidden</html>".to_owned()),
        false => (200, created(body)),
    }
}

#[tokio::test]
async fn document_refused_by_a_firewall_fails_alone() {
    let fake = Fake::new(|path, body| match path {
        "/_mget" if body.contains(r#""_id":"2""#) => (403, String::new()),
        "/_mget" => (200, documents(body)),
        _ => firewall(body),
    })
    .await;
    let many: Vec<Write> = (1..=256).map(|id| create(&id.to_string())).collect();
    let outcomes = fake.store.write_many(&many).await;
    assert_eq!(outcomes.iter().filter(|outcome| applied(outcome)).count(), 255);
    let Outcome::Invalid(refusal) = &outcomes[1] else { panic!("{:?}", outcomes[1]) };
    assert_eq!(refusal.kind, RefusalKind::Denied);
    assert_eq!(fake.bulks(), 17);

    let keys: Vec<Key> = many.iter().map(|write| write.key.clone()).collect();
    let reads = fake.store.get_many(&keys).await;
    let found = reads.iter().filter(|read| matches!(read, Read::Found { .. })).count();
    assert_eq!(found, 255);
    let Read::Unavailable(error) = &reads[1] else { panic!("{:?}", reads[1]) };
    assert_eq!(error.kind, StoreErrorKind::Denied);
}

#[tokio::test]
async fn write_that_a_firewall_may_pass_is_in_doubt() {
    let busy = r#"{"error":{"type":"es_rejected_execution_exception","reason":"r"}}"#;
    let malformed = r#"{"error":{"type":"action_request_validation_exception","reason":"r"}}"#;
    for (status, answer) in [(429, busy), (400, malformed), (413, "")] {
        let fake = Fake::new(move |_, body| match body.lines().count() {
            2 => (status, answer.to_owned()),
            _ => (403, String::new()),
        })
        .await;
        for outcome in fake.store.write_many(&three()).await {
            assert!(matches!(outcome, Outcome::RejectedInDoubt(_)), "{status}: {outcome:?}");
        }
        // A dry run writes nothing, so nothing is in doubt.
        let check = |id: &str| Write::new(Key::new("a", id), WriteOp::Check("{}".into()));
        for outcome in fake.store.write_many(&["1", "2"].map(check)).await {
            assert!(!matches!(outcome, Outcome::RejectedInDoubt(_)), "{status}: {outcome:?}");
        }
    }
}

#[tokio::test]
async fn server_that_refuses_everything_gets_few_requests() {
    let own = r#"{"error":{"type":"security_exception","reason":"r"},"status":403}"#;
    for (status, answer, kind, most) in [
        (403, "", "Invalid(Refusal { kind: Denied", 2 * MOST_REFUSED + 1),
        (403, own, "Invalid(Refusal { kind: Denied", 1),
        (401, "", "Invalid(Refusal { kind: Denied", 1),
    ] {
        let fake = Fake::new(move |_, _| (status, answer.to_owned())).await;
        let many: Vec<Write> = (1..=256).map(|id| create(&id.to_string())).collect();
        for outcome in fake.store.write_many(&many).await {
            assert!(format!("{outcome:?}").starts_with(kind), "{status}: {outcome:?}");
        }
        assert!(fake.bulks() <= most, "{status}: {}", fake.bulks());
    }
}

#[tokio::test]
async fn unanswered_write_is_unknown_and_not_repeated() {
    let rejected = r#"{"error":{"type":"es_rejected_execution_exception","reason":"r"}}"#;
    for (status, body, expected) in [
        (0, "", "Unknown"),
        (502, "<html>", "Unknown"),
        (503, "", "Unknown"),
        (504, "{}", "Unknown"),
        (500, "{}", "Unknown"),
        (429, "<html>", "Unknown"),
        (429, rejected, "Rejected("),
        (503, rejected, "Rejected("),
        (401, "", "Invalid(Refusal { kind: Denied"),
        (200, "{}", "Unknown"),
        (200, r#"{"items":[]}"#, "Unknown"),
    ] {
        let fake = Fake::new(move |_, _| (status, body.to_owned())).await;
        let mut writes = three().to_vec();
        writes.push(Write::new(Key::new("a", "4"), WriteOp::Verify(None)));
        for outcome in fake.store.write_many(&writes).await {
            assert!(format!("{outcome:?}").starts_with(expected), "{status} {body}: {outcome:?}");
        }
        assert_eq!(fake.bulks(), 1, "{status} {body}");
        for reads in [
            fake.store.get_many(&[Key::new("a", "1")]).await,
            fake.store.read_primary(&[Key::new("a", "1")]).await,
        ] {
            assert!(matches!(reads[0], Read::Unavailable(_)), "{status} {body}: {reads:?}");
        }
    }
}

#[tokio::test]
async fn large_refused_request_is_in_doubt() {
    let fake = Fake::new(|_, _| {
        let error = r#"{"error":{"type":"es_rejected_execution_exception","reason":"r"}}"#;
        (429, error.to_owned())
    })
    .await;
    let source = format!(r#"{{"pad":"{}"}}"#, "x".repeat(WHOLE_BYTES));
    let large = Write::new(Key::new("a", "1"), WriteOp::Create(source.into()));
    let outcomes = fake.store.write_many(&[large, create("2")]).await;
    for outcome in outcomes {
        assert!(matches!(outcome, Outcome::RejectedInDoubt(_)), "{outcome:?}");
    }
    assert_eq!(fake.bulks(), 1);
}

#[tokio::test]
async fn invalid_write_is_not_sent() {
    let fake = Fake::new(|_, _| panic!("asked")).await;
    let replace = |version| WriteOp::Replace("{}".into(), version);
    let version = |term, seq_no| txn_store::Version::new(term, seq_no);
    let a = Key::new("a", "1");
    let cases = [
        (Key::new("a", ""), WriteOp::Create("{}".into()), "Invalid(Refusal { kind: Id"),
        (Key::new("a", "x".repeat(513)), WriteOp::Verify(None), "Invalid(Refusal { kind: Id"),
        (a.clone().routed(""), WriteOp::Verify(None), "Invalid(Refusal { kind: Id"),
        (a.clone(), WriteOp::Create("[]".into()), "Invalid(Refusal { kind: Document"),
        (a.clone(), WriteOp::Create("{\n}".into()), "Invalid(Refusal { kind: Document"),
        (a.clone(), WriteOp::Check("{} {}".into()), "Invalid(Refusal { kind: Document"),
        (a.clone(), replace(version(0, 1)), "Conflict"),
        (a.clone(), replace(version(1, u64::MAX)), "Conflict"),
        (a.clone(), WriteOp::Verify(Some(version(u64::MAX, 1))), "Conflict"),
        (Key::new("c", "1"), WriteOp::Create("{}".into()), "MissingCollection"),
        (Key::new("a*", "1"), WriteOp::Create("{}".into()), "MissingCollection"),
        (Key::new("", "1"), WriteOp::Create("{}".into()), "MissingCollection"),
    ];
    let writes: Vec<_> = cases.iter().map(|(k, op, _)| Write::new(k.clone(), op.clone())).collect();
    let outcomes = fake.store.write_many(&writes).await;
    for ((key, op, expected), outcome) in cases.iter().zip(outcomes) {
        assert!(format!("{outcome:?}").starts_with(expected), "{key:?} {op:?}: {outcome:?}");
    }
    let keys = [Key::new("a", ""), Key::new("c", "1"), Key::new("a,b", "1")];
    let expected = [Read::Absent, Read::MissingCollection, Read::MissingCollection];
    assert_eq!(fake.store.get_many(&keys).await, expected);
    assert_eq!(fake.store.read_primary(&keys).await, expected);
}

#[tokio::test]
async fn account_without_alias_privilege_only_reads() {
    let fake = Fake::new(|path, body| match path {
        "/_mget" => {
            assert!(body.contains(r#""_index":"b""#), "{body}");
            let doc = r#"{"_index":"b","_id":"1","_seq_no":1,"_primary_term":1,"found":true,"_source":{}}"#;
            (200, format!(r#"{{"docs":[{doc}]}}"#))
        }
        path if path.starts_with("/_aliases") => {
            let error = r#"{"error":{"type":"security_exception","reason":"unauthorized"},"status":403}"#;
            (403, error.to_owned())
        }
        _ => panic!("{path}"),
    })
    .await;
    let key = Key::new("b", "1");
    for _ in 0..2 {
        let reads = fake.store.get_many(std::slice::from_ref(&key)).await;
        assert!(matches!(reads[0], Read::Found { .. }), "{reads:?}");
    }
    let added = fake.asked.lock().iter().filter(|path| path.starts_with("/_aliases")).count();
    assert_eq!(added, 1, "known by now");
    let reads = fake.store.read_primary(std::slice::from_ref(&key)).await;
    let Read::Unavailable(error) = &reads[0] else { panic!("{reads:?}") };
    assert_eq!(error.kind, StoreErrorKind::Denied);
    let write = Write::new(key, WriteOp::Create("{}".into()));
    let outcome = fake.store.write_many(&[write]).await.remove(0);
    let Outcome::Invalid(refusal) = outcome else { panic!("{outcome:?}") };
    assert!(refusal.kind == RefusalKind::Denied && refusal.reason.contains("manage on b"));
}

/// Returns the answer of a healthy server to `_mget`.
fn documents(body: &str) -> String {
    let asked: serde_json::Value = serde_json::from_str(body).unwrap();
    let docs = asked["docs"].as_array().unwrap().iter().map(|doc| {
        let id = doc["_id"].as_str().unwrap();
        format!(
            r#"{{"_index":"a","_id":"{id}","_seq_no":1,"_primary_term":1,"found":true,"_source":{{}}}}"#
        )
    });
    format!(r#"{{"docs":[{}]}}"#, docs.collect::<Vec<_>>().join(","))
}

#[tokio::test]
async fn reads_with_too_large_answers_are_split() {
    let pad = " ".repeat(2 << 20);
    let small = |config: EsConfig| config.with_max_bulk_bytes(1_000);
    let fake = Fake::with(small, move |path, body| match path {
        "/_mget" if body.matches("_id").count() > 1 => (200, documents(body) + &pad),
        "/_mget" => (200, documents(body)),
        // A single document is too large, too.
        _ => (200, pad.clone()),
    })
    .await;
    let keys = ["1", "2", "3"].map(|id| Key::new("a", id));
    let reads = fake.store.get_many(&keys).await;
    assert!(reads.iter().all(|read| matches!(read, Read::Found { .. })), "{reads:?}");
    for read in fake.store.read_primary(&keys).await {
        let Read::Unavailable(error) = read else { panic!("{read:?}") };
        assert_eq!(error.kind, StoreErrorKind::Misconfigured);
        assert!(error.message.contains("with_max_bulk_bytes"), "{error}");
    }
    let bulks = fake.bulks();
    for outcome in fake.store.write_many(&three()).await {
        assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
    }
    assert_eq!(fake.bulks(), bulks + 1, "a write is never sent again");
}

#[tokio::test]
async fn scan_with_too_large_pages_restarts_with_smaller() {
    let page = |ids: &[u32], pad: usize| {
        let hits = ids.iter().map(|id| {
            format!(r#"{{"_index":"a","_id":"{id}","_seq_no":1,"_primary_term":1,"_source":{{}}}}"#)
        });
        let hits = hits.collect::<Vec<_>>().join(",");
        let pad = " ".repeat(pad);
        (
            200,
            format!(
                r#"{{"_scroll_id":"s","timed_out":false,"_shards":{{"failed":0}},"hits":{{"hits":[{hits}]}}}}{pad}"#
            ),
        )
    };
    let small = |config: EsConfig| config.with_max_bulk_bytes(1_000);
    let sizes: Arc<Mutex<Vec<u64>>> = Arc::default();
    let asked = sizes.clone();
    let fake = Fake::with(small, move |path, body| {
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        let size = body["size"].as_u64();
        asked.lock().extend(size);
        match (path, size) {
            ("/_search/scroll", _) => page(&[3], 0),
            (_, Some(2)) => page(&[1, 2], 0),
            _ => page(&[1, 2, 3], 2 << 20),
        }
    })
    .await;
    for tried in [vec![9, 4, 2], vec![2]] {
        let first = fake.store.scan("a", &Filter::All, 9, None).await.unwrap();
        assert_eq!(first.documents.len(), 2);
        let second = fake.store.scan("a", &Filter::All, 9, first.next).await.unwrap();
        assert_eq!((second.documents.len(), second.next), (1, None));
        // The store may repeat a search, because an answer that is too large ends its connection.
        let mut sizes = std::mem::take(&mut *sizes.lock());
        sizes.dedup();
        assert_eq!(sizes, tried, "9 and 4 are too large, 2 is remembered");
    }
}

#[tokio::test]
async fn no_error_repeats_the_login() {
    let reason = "rejected: POST with Authorization: Basic c2hvcDpodW50ZXIy for shop:hunter2";
    for (status, kind) in [(403, "security_exception"), (400, "parsing_exception"), (500, "x")] {
        let error = format!(
            r#"{{"error":{{"type":"{kind}","reason":"{reason}","caused_by":{{"type":"Basic c2hvcDpodW50ZXIy"}}}}}}"#
        );
        let item =
            format!(r#"{{"create":{{"_index":"a","_id":"1","status":{status},"#) + &error[1..];
        let login = |config: EsConfig| config.with_basic_auth("shop", "hunter2");
        for item in [None, Some(item)] {
            let error = error.clone();
            let fake = Fake::with(login, move |path, _| match (path, &item) {
                (path, Some(item)) if path.starts_with("/_bulk") => {
                    (200, format!(r#"{{"items":[{item}}}]}}"#))
                }
                _ => (status, error.clone()),
            })
            .await;
            let key = Key::new("a", "1");
            let store = &fake.store;
            let told = format!(
                "{:?} {:?} {:?} {:?} {:?} {:?} {store:?}",
                store.write_many(&[create("1")]).await,
                store.get_many(std::slice::from_ref(&key)).await,
                store.read_primary(std::slice::from_ref(&key)).await,
                store.scan("a", &Filter::All, 1, None).await,
                store.drop_collection("a").await,
                store.add_alias("b", "a").await,
            );
            assert!(told.contains("rejected"), "{told}");
            assert!(!told.contains("hunter2") && !told.contains("c2hvcDpod"), "{told}");
        }
    }
}

#[test]
fn dry_run_and_lock_of_a_document_run_in_any_order() {
    let item = |id, op| Item {
        at: 0,
        route: "a".into(),
        require_alias: false,
        target: Arc::new(Target::new("a", &uuid("uu"), true)),
        id,
        routing: None,
        op,
    };
    let condition = Some(crate::identity::target::Condition { seq_no: 1, primary_term: 1 });
    let verify = || item("1", Op::Verify(condition));
    assert!(are_independent(&[item("1", Op::Check("{}")), item("1", Op::Create("{}"))]));
    assert!(are_independent(&[item("1", Op::Create("{}")), item("2", Op::Create("{}"))]));
    assert!(!are_independent(&[item("1", Op::Create("{}")), verify()]));
}

#[tokio::test]
async fn primary_read_waits_for_the_routing_from_a_copy() {
    let found =
        |routing: &str| format!(r#"{{"docs":[{{"_index":"d","_id":"1",{routing}"found":true}}]}}"#);
    let absent = r#"{"docs":[{"_index":"d","_id":"1","found":false}]}"#.to_owned();
    let (own, other) = (found(""), found(r#""_routing":"r","#));
    for (copies, expected) in [
        (vec![own.clone()], "Found"),
        (vec![absent.clone(), own], "Found"),
        (vec![absent.clone(), absent.clone()], "Unavailable(StoreError { kind: Unavailable"),
        (vec![other.clone()], "Unavailable(StoreError { kind: Misconfigured"),
        (vec![absent, other], "Unavailable(StoreError { kind: Misconfigured"),
        (vec![String::new()], "Unavailable(StoreError { kind: Unavailable"),
    ] {
        let asked = copies.len();
        let copies = Mutex::new(copies.into_iter());
        let fake = Fake::new(move |path, _| match path {
            "/_mget?stored_fields=_routing" => (200, copies.lock().next().unwrap()),
            _ => {
                let item = r#"{"update":{"_index":"d","_id":"1","result":"noop","_seq_no":1,"_primary_term":1,"status":200,"get":{"_source":{}}}}"#;
                (200, format!(r#"{{"items":[{item}]}}"#))
            }
        })
        .await;
        let read = fake.store.read_primary(&[Key::new("d", "1")]).await.remove(0);
        assert!(format!("{read:?}").starts_with(expected), "{expected}: {read:?}");
        let asks = fake.asked.lock().iter().filter(|path| path.starts_with("/_mget")).count();
        assert_eq!((asks, fake.bulks()), (asked, 1));
    }
}

/// A data node that lacks an index of the cluster refuses operations on it as missing.
#[tokio::test]
async fn answer_of_a_lagging_node_is_no_proof_of_absence() {
    const ERROR: &str = r#""error":{"type":"index_not_found_exception","reason":"no such index"}"#;
    let fake = Fake::new(|path, body| {
        let answer = match (path.contains("/_mget"), body.starts_with(r#"{"create""#)) {
            (true, _) => format!(r#"{{"docs":[{{"_index":"a","_id":"1",{ERROR}}}]}}"#),
            (false, creates) => {
                let op = if creates { "create" } else { "update" };
                let item = format!(r#"{{"{op}":{{"_index":"a","_id":"1",{ERROR},"status":404}}}}"#);
                format!(r#"{{"took":1,"errors":true,"items":[{item}]}}"#)
            }
        };
        (200, answer)
    })
    .await;
    let looks = || fake.asked.lock().iter().filter(|path| path.starts_with("/a?")).count();
    let outcomes = fake.store.write_many(&[create("1")]).await;
    assert!(matches!(&outcomes[..], [Outcome::RejectedInDoubt(_)]), "{outcomes:?}");
    assert_eq!(looks(), 2, "the index is asked for again");
    let keys = [Key::new("a", "1")];
    for reads in [fake.store.get_many(&keys).await, fake.store.read_primary(&keys).await] {
        let later = matches!(&reads[..], [Read::Unavailable(error)] if error.kind == StoreErrorKind::Unavailable);
        assert!(later, "{reads:?}");
    }
}
