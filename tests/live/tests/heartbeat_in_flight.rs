//! A heartbeat at the end of its transaction leaves no live record.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::json;
use tokio::sync::watch;
use txn_core::store::{MemoryStore, Store, Write, WriteOp};
use txn_core::{Config, Domain, Error, LockMode, Options, Raw};
use txn_sim::tapped::{Delivery, Tap, Tapped};

/// Delays the first heartbeat until the test releases it.
///
/// The answer of the heartbeat is dropped.
#[derive(Debug)]
struct Late {
    store: Arc<MemoryStore>,
    sent: watch::Sender<bool>,
    arrives: watch::Sender<bool>,
    arrived: watch::Sender<bool>,
}

async fn wait(signal: &watch::Sender<bool>) {
    drop(signal.subscribe().wait_for(|set| *set).await);
}

#[async_trait]
impl Tap for Late {
    async fn on_write(&self, writes: &[Write]) -> Delivery {
        let [Write { op: WriteOp::Create(source), require_alias: true, .. }] = writes else {
            return Delivery::Pass;
        };
        let record: serde_json::Value = serde_json::from_str(source).expect("a record");
        if record["state"] != "pending" {
            return Delivery::Pass;
        }
        // A sent request arrives even if no caller waits for the answer.
        let (store, beat) = (self.store.clone(), writes.to_vec());
        let (arrives, arrived) = (self.arrives.clone(), self.arrived.clone());
        tokio::spawn(async move {
            wait(&arrives).await;
            store.write_many(&beat).await;
            arrived.send_replace(true);
        });
        self.sent.send_replace(true);
        std::future::pending().await
    }
}

/// Ends a transaction during its first heartbeat.
///
/// The heartbeat arrives before or after the end.
async fn ends(commit: bool, arrives_first: bool) {
    let store = Arc::new(MemoryStore::new());
    let signal = || watch::channel(false).0;
    let late = Late { store: store.clone(), sent: signal(), arrives: signal(), arrived: signal() };
    let late = Arc::new(late);
    let tapped = Arc::new(Tapped::new(store.clone(), late.clone()));
    // Long enough that no process takes the transaction for dead in the meantime.
    let lease = Duration::from_millis(500);
    let config = || Config::default().with_janitor_interval(None).with_lease(lease);
    let domain = Domain::open_or_create(tapped, "bank", config()).await.expect("opens");
    let things = domain.create_collection::<Raw>("things", None).await.expect("opens");
    let context = format!("commit: {commit}, arrives first: {arrives_first}");

    let tx = domain.begin(&Options::default().with_lock_mode(LockMode::AtRead)).expect("begins");
    tx.get_many(&things, ["a", "b"]).await.expect("locks");
    for id in ["a", "b"] {
        tx.put(&things, id, &Raw::new(json!({"n": 1}).to_string())).expect("takes it");
    }
    wait(&late.sent).await;
    if arrives_first {
        late.arrives.send_replace(true);
        wait(&late.arrived).await;
    }
    if commit {
        tx.commit().await.expect("commits");
    } else {
        tx.rollback().await;
    }
    late.arrives.send_replace(true);
    wait(&late.arrived).await;

    assert!(domain.shutdown(Duration::from_secs(60)).await, "{context}");
    let report = domain.admin().inspect().await.expect("looks");
    assert!(report.is_clean(), "left over: {report:?}, {context}");
    let witness = Domain::open_or_create(store, "bank", config()).await.expect("opens");
    let found = witness
        .run::<_, Error, _>(&Options::default().with_read_only(true), async |tx| {
            tx.get_many(&things, ["a", "b"]).await
        })
        .await
        .expect("reads");
    assert!(found.value.iter().all(|thing| thing.is_some() == commit), "{context}");
    witness.shutdown(Duration::from_secs(60)).await;
}

#[tokio::test]
async fn rollback_during_a_heartbeat_leaves_no_live_record() {
    ends(false, false).await;
    ends(false, true).await;
}

#[tokio::test]
async fn commit_during_a_heartbeat_leaves_no_live_record() {
    ends(true, false).await;
    ends(true, true).await;
}

/// A transaction that waited in vain holds no lock.
///
/// The transaction has a record.
///
/// The heartbeat wrote the record. The test runs in virtual time, so that a pause of the machine
/// does not make the older transaction seem dead.
#[tokio::test(start_paused = true)]
async fn handle_dropped_after_a_vain_wait_leaves_nothing() {
    let store = Arc::new(MemoryStore::new());
    let lease = Duration::from_millis(200);
    let config = || Config::default().with_janitor_interval(None).with_lease(lease);
    let first = Domain::open_or_create(store.clone(), "bank", config()).await.expect("opens");
    let things = first.create_collection::<Raw>("things", None).await.expect("opens");
    let pessimistic = Options::default().with_lock_mode(LockMode::AtRead);
    let older = first.begin(&pessimistic).expect("begins");
    older.get(&things, "a").await.expect("locks");

    let second = Domain::open_or_create(store, "bank", config()).await.expect("opens");
    let brief = pessimistic.clone().with_timeout(Some(4 * lease));
    let younger = second.begin(&brief).expect("begins");
    let refused = younger.get(&things, "a").await.expect_err("the older one holds it");
    assert_eq!(refused.kind(), txn_core::ErrorKind::Conflict, "{refused}");
    drop(younger);
    assert!(second.shutdown(Duration::from_secs(10)).await, "its heartbeat goes on");

    older.rollback().await;
    assert!(first.shutdown(Duration::from_secs(60)).await);
    let report = first.admin().inspect().await.expect("looks");
    assert!(report.is_clean(), "left over: {report:?}");
}
