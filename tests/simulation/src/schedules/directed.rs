//! The access of one process to the server, with directed writes.
//!
//! A schedule chooses the fate of single writes.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::Notify;
use txn_core::store::{Layer, Outcome, Store, StoreError, Write};
use txn_sim::server::Server;

/// The fate of a request.
pub(super) enum Fate {
    /// The request is carried out, and has no answer.
    Unanswered,
    /// The request is kept on its way, without an answer. [`Directed::deliver`] sends it.
    Kept,
    /// The request is carried out. Its answer waits until it is [released](Directed::release).
    Held,
    /// As `Held`, but the answer is lost.
    HeldAndLost,
    /// The request waits until it is released, before it is carried out.
    HeldBefore,
    /// The first item is carried out; the other items wait. The other items wait until they are
    /// released. No bulk is carried out at once.
    HeldBetween,
}

type Picks = Box<dyn Fn(&Write) -> bool + Send + Sync>;

/// The access to the server.
pub(super) struct Directed {
    server: Arc<Server>,
    /// The fate of the next request with such a write.
    cue: Mutex<Option<(Picks, Fate)>>,
    kept: Mutex<Vec<Write>>,
    /// Whether blocks stay, although a process lifts them.
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

    /// Gives the next request with such a write this fate. Later requests have none.
    pub(super) fn cue(&self, fate: Fate, picks: impl Fn(&Write) -> bool + Send + Sync + 'static) {
        *self.cue.lock() = Some((Box::new(picks), fate));
    }

    /// Returns once that request has met its fate.
    pub(super) async fn reached(&self) {
        self.reached.notified().await;
    }

    /// Releases the request that was held.
    pub(super) fn release(&self) {
        self.released.notify_one();
    }

    /// From now on no lift of a block arrives or is answered.
    pub(super) fn keep_lifts(&self) {
        self.keeps_lifts.store(true, Ordering::Relaxed);
    }

    /// Sends the writes that were kept.
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
                // The request arrives before the next read.
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
