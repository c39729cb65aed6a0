//! Requests that would harm the processes that carry them out.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use txn_core::{Error, Raw, Transaction};
use txn_fixtures::process::Process;
use txn_requests::{
    Companion, Reason, Request, RequestError, Requests, Result, Selection, State, Status, Why,
};

use super::{PATIENCE, World};

/// Carries out requests with these words in their metadata as they ask.
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
    // Many steps are many operations.
    let test = json!({"op": "test", "path": "/balance", "value": 0});
    let refused = requests.execute(&patch(vec![test; 1_001]), "long").await.expect_err("refused");
    assert!(matches!(refused, RequestError::Invalid(_)), "{refused}");
}

pub(crate) async fn request_that_kills_its_process_is_found_out(world: &World) {
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
    // Released, it is tried as if it were new: this process can carry it out.
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

pub(crate) async fn unreadable_request_holds_up_no_other(world: &World) {
    let domain = world.fund(&[("alice", 100), ("bob", 0)]).await;
    let requests = world.requests().await;
    let raw = domain.collection::<Raw>(&format!("{}-requests", world.name)).await.expect("opens");
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
