//! The way of one process to the server, on which a schedule says what becomes of single writes.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::Notify;
use txn_core::store::{Layer, Outcome, Store, StoreError, Write};
use txn_sim::server::Server;

/// What becomes of a request.
pub(super) enum Fate {
    /// It is carried out, and nobody waits for its answer.
    Unanswered,
    /// It is kept on the way, and not answered: [`Directed::deliver`] sends it.
    Kept,
    /// It is carried out; then its answer waits until it is [released](Directed::release).
    Held,
    /// The same, and the answer is lost.
    HeldAndLost,
    /// It waits until it is released, before it is carried out.
    HeldBefore,
    /// Its first item is carried out; the others wait until it is released. No bulk is carried out at once.
    HeldBetween,
}

type Picks = Box<dyn Fn(&Write) -> bool + Send + Sync>;

/// The way to the server.
pub(super) struct Directed {
    server: Arc<Server>,
    /// The next request with such a write has this fate.
    cue: Mutex<Option<(Picks, Fate)>>,
    kept: Mutex<Vec<Write>>,
    /// Whether blocks stay, whoever lifts them.
    keeps_lifts: AtomicBool,
    reached: Notify,
    released: Notify,
}

impl fmt::Debug for Directed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("directed")
    }
}

impl Directed {
    pub(super) fn new(server: Arc<Server>) -> Arc<Self> {
        Arc::new(Self {
            server,
            cue: Mutex::default(),
            kept: Mutex::default(),
            keeps_lifts: AtomicBool::default(),
            reached: Notify::new(),
            released: Notify::new(),
        })
    }

    /// The next request with such a write has this fate, those behind it have none.
    pub(super) fn cue(&self, fate: Fate, picks: impl Fn(&Write) -> bool + Send + Sync + 'static) {
        *self.cue.lock() = Some((Box::new(picks), fate));
    }

    /// Returns once that request has met its fate.
    pub(super) async fn reached(&self) {
        self.reached.notified().await;
    }

    /// What was held goes on.
    pub(super) fn release(&self) {
        self.released.notify_one();
    }

    /// From now on nothing that lifts a block arrives, or is answered.
    pub(super) fn keep_lifts(&self) {
        self.keeps_lifts.store(true, Ordering::Relaxed);
    }

    /// What was kept arrives.
    pub(super) async fn deliver(&self) {
        let kept = std::mem::take(&mut *self.kept.lock());
        self.server.write_many(&kept).await;
    }

    fn fate(&self, writes: &[Write]) -> Option<Fate> {
        let mut cue = self.cue.lock();
        let picked = cue.as_ref().is_some_and(|(picks, _)| writes.iter().any(picks));
        cue.take_if(|_| picked).map(|(_, fate)| fate)
    }
}

fn unanswered(writes: &[Write]) -> Vec<Outcome> {
    writes.iter().map(|_| Outcome::Unknown("the connection was reset".to_owned())).collect()
}

#[async_trait]
impl Layer for Directed {
    fn inner(&self) -> &dyn Store {
        &*self.server
    }

    async fn block_writes(&self, collection: &str, blocked: bool) -> Result<(), StoreError> {
        if !blocked && self.keeps_lifts.load(Ordering::Relaxed) {
            self.reached.notify_one();
            return std::future::pending().await;
        }
        self.server.block_writes(collection, blocked).await
    }

    async fn write_many(&self, writes: &[Write]) -> Vec<Outcome> {
        match self.fate(writes) {
            None => self.server.write_many(writes).await,
            Some(Fate::Unanswered) => {
                let (server, sent) = (self.server.clone(), writes.to_vec());
                tokio::spawn(async move { server.write_many(&sent).await });
                // It arrives before anybody looks.
                tokio::task::yield_now().await;
                self.reached.notify_one();
                unanswered(writes)
            }
            Some(Fate::Kept) => {
                self.kept.lock().extend_from_slice(writes);
                self.reached.notify_one();
                unanswered(writes)
            }
            Some(Fate::Held) => {
                let outcomes = self.server.write_many(writes).await;
                self.reached.notify_one();
                self.released.notified().await;
                outcomes
            }
            Some(Fate::HeldAndLost) => {
                self.server.write_many(writes).await;
                self.reached.notify_one();
                self.released.notified().await;
                unanswered(writes)
            }
            Some(Fate::HeldBefore) => {
                self.reached.notify_one();
                self.released.notified().await;
                self.server.write_many(writes).await
            }
            Some(Fate::HeldBetween) => {
                let (first, others) = writes.split_at(1);
                let mut outcomes = self.server.write_many(first).await;
                self.reached.notify_one();
                self.released.notified().await;
                if !others.is_empty() {
                    outcomes.extend(self.server.write_many(others).await);
                }
                outcomes
            }
        }
    }
}
