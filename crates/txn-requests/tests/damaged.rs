//! Recovery of requests while a document is damaged by a plain client.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use txn_core::store::{Key, Layer, MemoryStore, Outcome, Read, Store, Write, WriteOp};
use txn_core::{Config, Domain};
use txn_requests::{Document, Operation, Request, Requests, RequestsConfig, State, Target};

/// A store that fails from its next commit on, once armed.
#[derive(Debug)]
struct Mortal {
    inner: Arc<MemoryStore>,
    armed: AtomicBool,
    dead: AtomicBool,
}

#[async_trait]
impl Layer for Mortal {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn write_many(&self, writes: &[Write]) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        for write in writes {
            if self.dead.load(Ordering::SeqCst) && write.op.changes() {
                outcomes.push(Outcome::Rejected("the process is dead".to_owned()));
                continue;
            }
            outcomes.extend(self.inner.write_many(std::slice::from_ref(write)).await);
            let (WriteOp::Create(source) | WriteOp::Replace(source, _)) = &write.op else {
                continue;
            };
            let commits = write.require_alias && source.contains("\"state\":\"committed\"");
            if commits && self.armed.load(Ordering::SeqCst) {
                self.dead.store(true, Ordering::SeqCst);
            }
        }
        outcomes
    }
}

async fn process(memory: &Arc<MemoryStore>) -> (Arc<Mortal>, Requests) {
    let (armed, dead) = (AtomicBool::new(false), AtomicBool::new(false));
    let store = Arc::new(Mortal { inner: memory.clone(), armed, dead });
    let config = Config::default().with_janitor_interval(None);
    let domain = Domain::open_or_create(store.clone(), "shop", config).await.expect("opens");
    let _: txn_core::Collection<txn_core::Raw> =
        domain.create_collection("items", None).await.expect("opens");
    let config = RequestsConfig::default().with_recover_after(Duration::ZERO);
    (store, Requests::open(&domain, config).await.expect("opens"))
}

fn insert(id: &str) -> Request {
    let document: Document = serde_json::from_str("{\"n\":1}").expect("a document");
    Request::new(vec![Operation::insert(Target::new("items", id), document)])
}

#[tokio::test(start_paused = true)]
async fn damaged_effect_delays_no_other_request() {
    let memory = Arc::new(MemoryStore::new());
    for id in ["damaged", "healthy"] {
        let (store, requests) = process(&memory).await;
        store.armed.store(true, Ordering::SeqCst);
        requests.execute(&insert(id), id).await.expect("committed");
        assert!(store.dead.load(Ordering::SeqCst));
    }
    let key = Key::new("items", "damaged");
    let stands = memory.get_many(std::slice::from_ref(&key)).await.pop();
    let Some(Read::Found { version, .. }) = stands else { panic!("{stands:?}") };
    let deleted = memory.write_many(&[Write::new(key, WriteOp::Delete(version))]).await;
    assert!(matches!(deleted[..], [Outcome::Applied(_)]), "{deleted:?}");

    let (_, survivor) = process(&memory).await;
    let state = async |id: &str| survivor.status(id).await.expect("known").state;
    let tally = survivor.recover(None).await.expect("recovers");
    assert_eq!((tally.finished, tally.failed), (1, 1), "{tally:?}");
    assert_eq!(state("healthy").await, State::Finished);
    assert_eq!(state("damaged").await, State::Committed, "its effect is not there");
    let tally = survivor.recover(None).await.expect("recovers");
    assert_eq!((tally.finished, tally.failed), (0, 0), "it is left alone for a while");
}
