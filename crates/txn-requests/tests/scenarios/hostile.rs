//! Requests that harm the processes that execute them.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use txn_core::{Error, Raw, Transaction};
use txn_fixtures::process::Process;
use txn_requests::{
    Companion, Document, Operation, Reason, Request, RequestError, Requests, Result, Selection,
    State, Status, Why,
};

use super::{PATIENCE, World};

/// A hook that obeys words in the metadata of requests.
#[derive(Debug)]
struct Obedient {
    hangs: mpsc::UnboundedSender<()>,
}

#[async_trait]
impl Companion for Obedient {
    async fn accompany(&self, _: &Transaction, request: &Request) -> Result<()> {
        match request.metadata.as_ref().and_then(Value::as_str) {
            Some("hang") => {
                let _ = self.hangs.send(());
                std::future::pending().await
            }
            Some("panic") => panic!("as the request asks"),
            _ => Ok(()),
        }
    }
}

async fn decided(requests: &Requests, id: &str) -> Status {
    requests.wait(id, PATIENCE).await.expect("decided")
}

pub(crate) async fn patch_that_multiplies_a_document_is_refused(world: &World) {
    let domain = world.fund(&[("alice", 1), ("bob", 0)]).await;
    let requests = world.requests().await;
    let target = json!({"collection": "C", "id": "alice"});
    let patch =
        |steps: Vec<Value>| world.parse(json!([{"patch": {"target": target, "patch": steps}}]));
    let double = |at: usize| json!({"op": "copy", "from": "", "path": format!("/x{at}")});
    let nest =
        |at: u32| json!({"op": "copy", "from": "/a", "path": "/a".repeat(2_usize.pow(at) + 1)});
    let nested =
        std::iter::once(json!({"op": "add", "path": "/a", "value": {}})).chain((0..10).map(nest));
    let bombs = [
        ("doubles", patch((0..48).map(double).collect()), Why::CopiesTooMuch),
        ("nests", patch(nested.collect()), Why::TooDeep),
    ];
    for (id, bomb, why) in &bombs {
        let refused = requests.execute(bomb, &format!("{id}-at-once")).await.expect_err("refused");
        assert!(matches!(&refused, RequestError::Refused(found) if found.why == *why), "{refused}");
        requests.submit(bomb, id).await.expect("stored");
    }
    requests.submit(&world.transfer("alice", "bob", 1), "sound").await.expect("stored");
    let tally = requests.process_open(None).await.expect("looks");
    assert_eq!((tally.rolled_back, tally.committed), (2, 1));
    for (id, _, why) in &bombs {
        let status = decided(&requests, id).await;
        assert!(
            matches!(&status.reason, Some(Reason::Refused(found)) if found.why == *why),
            "{status:?}"
        );
    }
    assert_eq!(world.balance(&domain, "bob").await, 1);
    // Each step counts as an operation.
    let test = json!({"op": "test", "path": "/balance", "value": 0});
    let refused = requests.execute(&patch(vec![test; 1_001]), "long").await.expect_err("refused");
    assert!(matches!(refused, RequestError::Invalid(_)), "{refused}");
}

pub(crate) async fn request_that_kills_processes_is_quarantined(world: &World) {
    let domain = world.fund(&[("alice", 100), ("bob", 0)]).await;
    let client = world.requests().await;
    let mut poison = world.transfer("alice", "bob", 50);
    poison = poison.with_metadata(json!("hang"));
    client.submit(&poison, "poison").await.expect("stored");
    let sound = ["a", "b", "c"];
    for id in sound {
        client.submit(&world.transfer("alice", "bob", 1), id).await.expect("stored");
    }
    for _ in 0..2 {
        let process = Process::new();
        process
            .run(async {
                let (hangs, mut hung) = mpsc::unbounded_channel();
                let domain = world.domain().await;
                let companion = Arc::new(Obedient { hangs });
                let requests = Requests::open_with(&domain, world.config(), companion).await;
                let requests = requests.expect("opens");
                let processor = requests.start(None);
                hung.recv().await.expect("it is carried out");
                std::mem::forget((processor, requests));
            })
            .await;
        drop(process);
    }
    let survivor = world.requests().await;
    let processor = survivor.start(None);
    let status = decided(&survivor, "poison").await;
    assert_eq!((status.state, status.deaths, status.failures), (State::Quarantined, 2, 0));
    assert_eq!(status.reason, Some(Reason::Died));
    for id in sound {
        let status = decided(&survivor, id).await;
        assert!(status.state.is_committed() && status.deaths < 2, "{status:?}");
    }
    assert_eq!(world.balance(&domain, "bob").await, 3);
    // A release resets the request: this process can execute it.
    survivor.release("poison").await.expect("released");
    let status = decided(&survivor, "poison").await;
    assert!(status.state.is_committed() && status.deaths == 0, "{status:?}");
    assert!(processor.stop(PATIENCE).await);
}

pub(crate) async fn panic_counts_as_a_failure(world: &World) {
    let domain = world.fund(&[("alice", 100), ("bob", 0)]).await;
    let (hangs, _hung) = mpsc::unbounded_channel();
    let config = world.config().with_max_failures(2);
    let requests = Requests::open_with(&domain, config, Arc::new(Obedient { hangs })).await;
    let requests = requests.expect("opens");
    let panics = world.transfer("alice", "bob", 50).with_metadata(json!("panic"));
    requests.submit(&panics, "panics").await.expect("stored");
    requests.submit(&world.transfer("alice", "bob", 1), "sound").await.expect("stored");
    let processor = requests.start(None);
    let status = decided(&requests, "panics").await;
    assert_eq!((status.state, status.failures), (State::Quarantined, 2));
    assert!(decided(&requests, "sound").await.state.is_committed());
    assert_eq!(world.balance(&domain, "bob").await, 1);
    assert!(processor.stop(PATIENCE).await);
}

pub(crate) async fn unreadable_request_delays_no_other_request(world: &World) {
    let domain = world.fund(&[("alice", 100), ("bob", 0)]).await;
    let requests = world.requests().await;
    let raw = domain.collection::<Raw>(&domain.collection_name("requests")).await.expect("opens");
    let broken = Raw::new(r#"{"format":2,"id":"broken","state":"created"}"#);
    let written = domain.transact::<_, Error, _>(async |tx| tx.put(&raw, "broken", &broken)).await;
    written.expect("written");
    requests.submit(&world.transfer("alice", "bob", 1), "sound").await.expect("stored");
    assert_eq!(requests.process_open(None).await.expect("looks").committed, 1);
    requests.recover(None).await.expect("looks");
    requests.purge(Duration::ZERO).await.expect("purges");
    let told = requests.list(&Selection::default()).await.expect_err("one cannot be read");
    assert!(told.to_string().contains("broken"), "{told}");
}

pub(crate) async fn requests_differ_to_the_last_digit(world: &World) {
    let domain = world.fund(&[]).await;
    let requests = world.requests().await;
    let put = |document: &str| {
        let document = Document::parse(document).expect("JSON");
        Request::new(vec![Operation::put(world.target("alice"), document)])
    };
    let first = put(r#"{"balance": 123456789012345678901, "owner": "alice"}"#);
    let other = put(r#"{"balance": 123456789012345678902, "owner": "alice"}"#);
    requests.submit(&first, "submitted").await.expect("stored");
    requests.execute(&first, "executed").await.expect("done");
    for id in ["submitted", "executed"] {
        for refused in [requests.submit(&other, id).await, requests.execute(&other, id).await] {
            assert!(matches!(refused, Err(RequestError::IdReused(_))), "{id}: {refused:?}");
        }
        let same = put(r#"{"owner":"alice","balance":123456789012345678901}"#);
        requests.submit(&same, id).await.expect("the same one");
    }
    let raw = domain.collection::<Raw>(&world.accounts_name()).await.expect("opens");
    let kept = domain.reader().verified().get(&raw, "alice").await.expect("reads");
    assert!(kept.expect("there").as_str().contains("123456789012345678901"));
    let merge = |patch: Value| {
        world.parse(
            json!([{"merge": {"target": {"collection": "C", "id": "alice"}, "patch": patch}}]),
        )
    };
    requests
        .execute(&merge(json!({"owner": "bob"})), "other-field")
        .await
        .expect("it keeps its bytes");
    let list = put(r#"{"balance": 123456789012345678901, "list": [123456789012345678901],
            "inner": {"n": 1, "big": 123456789012345678901}}"#);
    requests.execute(&list, "list").await.expect("done");
    let add = |path: &str| json!([{"add": {"target": {"collection": "C", "id": "alice"}, "path": path, "amount": 1}}]);
    requests
        .execute(&world.parse(add("/inner/n")), "inner")
        .await
        .expect("only the number changes");
    let kept = domain.reader().verified().get(&raw, "alice").await.expect("reads");
    let kept = kept.expect("there");
    assert!(kept.as_str().contains(r#"{"n": 2, "big": 123456789012345678901}"#), "{kept:?}");
    let append = json!([{"patch": {"target": {"collection": "C", "id": "alice"}, "patch": [
        {"op": "add", "path": "/list/-", "value": 1}]}}]);
    for (path, change) in [("/list", append), ("/balance", add("/balance"))] {
        let refused =
            requests.execute(&world.parse(change), path).await.expect_err("it would be rounded");
        let RequestError::Refused(refusal) = refused else { panic!("{refused}") };
        assert_eq!((refusal.why, refusal.path.as_deref()), (Why::WouldRound, Some(path)));
    }
    let expect = json!([{"expect": {"target": {"collection": "C", "id": "alice"},
        "that": {"field": {"path": "/balance", "equals": 1.2345678901234568e20}}}}]);
    let refused = requests.execute(&world.parse(expect), "expect").await.expect_err("not the same");
    assert!(
        matches!(&refused, RequestError::Refused(found) if found.why == Why::FieldDiffers),
        "{refused}"
    );
    requests.execute(&merge(json!({"list": null})), "removed").await.expect("nothing is rounded");
    // A request with a number that would be rounded is not read at all.
    for part in [
        r#"{"merge": {"target": T, "patch": {"a": N}}}"#,
        r#"{"patch": {"target": T, "patch": [{"op": "add", "path": "/a", "value": N}]}}"#,
        r#"{"add": {"target": T, "path": "/a", "amount": N}}"#,
        r#"{"expect": {"target": T, "that": {"field": {"path": "/a", "equals": N}}}}"#,
    ] {
        let read = |number: &str| {
            let operation =
                part.replace('T', r#"{"collection": "c", "id": "i"}"#).replace('N', number);
            serde_json::from_str::<Request>(&format!(r#"{{"operations": [{operation}]}}"#))
        };
        read("1234567890123456789").expect("it fits");
        let refused = read("123456789012345678901").expect_err("it would be rounded");
        assert!(refused.to_string().contains("more digits"), "{refused}");
    }
}
