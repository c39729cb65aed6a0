//! The way of documents against a server that answers as told.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use txn_core::store::Store;

use super::*;
use crate::{EsConfig, EsStore};

type Handler = Box<dyn Fn(&str, &str) -> (u16, String) + Send + Sync>;

/// A server that answers with the handler's status and body, and what it was asked.
struct Fake {
    store: EsStore,
    asked: Arc<Mutex<Vec<String>>>,
}

const ROOT: &str = r#"{"version":{"number":"8.19.0"}}"#;

impl Fake {
    /// There is one index, `a`, with its guard, and `b`, without; the handler answers bulk requests and reads.
    async fn new(handler: impl Fn(&str, &str) -> (u16, String) + Send + Sync + 'static) -> Self {
        let guard = crate::target::guard_name("u");
        let index = format!(
            r#"{{"a":{{"aliases":{{"{guard}":{{}}}},"mappings":{{}},"settings":{{"index.uuid":"u"}}}}}}"#
        );
        let missing = r#"{"error":{"type":"index_not_found_exception","reason":"r"},"status":404}"#;
        let handler: Handler = Box::new(move |path, body| match path {
            "/" => (200, ROOT.to_owned()),
            "/a?flat_settings=true" => (200, index.clone()),
            "/b?flat_settings=true" => {
                let index = index.replace(r#"{"a":"#, r#"{"b":"#).replace(&guard, "other");
                (200, index.replace(r#""u""#, r#""v""#))
            }
            path if path.ends_with("?flat_settings=true") => (404, missing.to_owned()),
            path => handler(path, body),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (handler, log) = (Arc::new(handler), asked.clone());
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(socket, handler.clone(), log.clone()));
            }
        });
        let config = EsConfig::from_url(&url).unwrap();
        let config = config.with_request_timeout(Duration::from_millis(500));
        Self { store: EsStore::connect(config).await.unwrap(), asked }
    }

    fn bulks(&self) -> usize {
        self.asked.lock().iter().filter(|path| path.starts_with("/_bulk")).count()
    }
}

/// Status 0 closes the connection without an answer.
async fn serve(socket: TcpStream, handler: Arc<Handler>, log: Arc<Mutex<Vec<String>>>) {
    let mut socket = BufReader::new(socket);
    loop {
        let (mut line, mut path, mut length) = (String::new(), String::new(), 0);
        while socket.read_line(&mut line).await.unwrap_or(0) > 2 {
            let lower = line.to_ascii_lowercase();
            if let Some(value) = lower.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            } else if path.is_empty() {
                path = line.split(' ').nth(1).unwrap_or_default().to_owned();
            }
            line.clear();
        }
        if path.is_empty() {
            return;
        }
        let mut body = vec![0; length];
        socket.read_exact(&mut body).await.unwrap();
        let (status, answer) = handler(&path, std::str::from_utf8(&body).unwrap());
        log.lock().push(path);
        if status == 0 {
            return;
        }
        let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n", answer.len());
        socket.write_all(format!("{head}{answer}").as_bytes()).await.unwrap();
    }
}

fn create(id: &str) -> Write {
    Write::new(Key::new("a", id), WriteOp::Create("{}".into()))
}

fn three() -> [Write; 3] {
    ["1", "2", "3"].map(create)
}

/// The answer of a healthy server to creates.
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
async fn one_item_that_is_not_valid_does_not_fail_the_others() {
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
    assert_eq!(fake.bulks(), 4);
}

#[tokio::test]
async fn what_has_no_answer_is_unknown_and_never_sent_again() {
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
async fn a_large_request_that_is_refused_whole_is_in_doubt() {
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
async fn what_can_not_be_valid_is_not_sent() {
    let fake = Fake::new(|_, _| panic!("asked")).await;
    let replace = |version| WriteOp::Replace("{}".into(), version);
    let version = |term, seq_no| txn_core::store::Version { term, seq_no };
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
async fn an_account_that_may_not_add_the_guard_reads_only() {
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
    let guards = fake.asked.lock().iter().filter(|path| path.starts_with("/_aliases")).count();
    assert_eq!(guards, 1, "known by now");
    let reads = fake.store.read_primary(std::slice::from_ref(&key)).await;
    let Read::Unavailable(error) = &reads[0] else { panic!("{reads:?}") };
    assert_eq!(error.kind, StoreErrorKind::Denied);
    let write = Write::new(key, WriteOp::Create("{}".into()));
    let outcome = fake.store.write_many(&[write]).await.remove(0);
    let Outcome::Invalid(refusal) = outcome else { panic!("{outcome:?}") };
    assert!(refusal.kind == RefusalKind::Denied && refusal.reason.contains("manage on b"));
}
