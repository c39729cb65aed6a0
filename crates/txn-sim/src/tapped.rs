//! A store that can delay, drop, or observe every call.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use txn_store::{Key, Layer, Outcome, Read, Store, StoreError, StoreErrorKind, Write};

/// How a call is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The call is carried out.
    Pass,
    /// Nothing is sent, and the answer is unknown.
    Swallow,
    /// Only this many writes are sent, and all outcomes are unknown.
    Part(usize),
    /// The call is carried out, and its answer is lost.
    Lose,
}

/// Decides about calls. May wait without a limit.
#[async_trait]
pub trait Tap: fmt::Debug + Send + Sync + 'static {
    /// Decides about a call of [`Store::write_many`].
    async fn on_write(&self, writes: &[Write]) -> Delivery {
        let _ = writes;
        self.on_call().await
    }

    /// Decides about any other call.
    async fn on_call(&self) -> Delivery {
        Delivery::Pass
    }
}

/// Passes calls to another store, as its [`Tap`] decides.
#[derive(Debug)]
pub struct Tapped<T> {
    inner: Arc<dyn Store>,
    tap: Arc<T>,
}

impl<T: Tap> Tapped<T> {
    /// Lets `tap` decide about every call of `inner`.
    pub fn new(inner: Arc<dyn Store>, tap: Arc<T>) -> Self {
        Self { inner, tap }
    }

    async fn read(&self, keys: &[Key], call: impl Future<Output = Vec<Read>> + Send) -> Vec<Read> {
        match self.tap.on_call().await {
            Delivery::Pass => call.await,
            _ => keys.iter().map(|_| Read::Unavailable(cut_off())).collect(),
        }
    }
}

fn cut_off() -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, "cut off by the test")
}

#[async_trait]
impl<T: Tap> Layer for Tapped<T> {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn around<V: Send>(
        &self,
        call: impl Future<Output = Result<V, StoreError>> + Send,
    ) -> Result<V, StoreError> {
        match self.tap.on_call().await {
            Delivery::Pass => call.await,
            Delivery::Lose => {
                drop(call.await);
                Err(cut_off())
            }
            Delivery::Swallow | Delivery::Part(_) => Err(cut_off()),
        }
    }

    async fn get_many(&self, keys: &[Key]) -> Vec<Read> {
        self.read(keys, self.inner.get_many(keys)).await
    }

    async fn read_primary(&self, keys: &[Key]) -> Vec<Read> {
        self.read(keys, self.inner.read_primary(keys)).await
    }

    async fn write_many(&self, writes: &[Write]) -> Vec<Outcome> {
        let sent = match self.tap.on_write(writes).await {
            Delivery::Pass => return self.inner.write_many(writes).await,
            Delivery::Swallow => 0,
            Delivery::Part(sent) => sent.min(writes.len()),
            Delivery::Lose => writes.len(),
        };
        if sent > 0 {
            self.inner.write_many(&writes[..sent]).await;
        }
        writes.iter().map(|_| Outcome::Unknown("cut off by the test".to_owned())).collect()
    }
}

/// Stops the writes of the apply phase, which release locks.
///
/// The gate recognises them by their operation: a replace whose source has no lock, or a delete.
/// Writes to partitions of a transaction table pass.
#[derive(Debug)]
pub struct ApplyGate {
    open: tokio::sync::watch::Sender<bool>,
    held: tokio::sync::watch::Sender<usize>,
}

impl Default for ApplyGate {
    fn default() -> Self {
        Self { open: tokio::sync::watch::channel(true).0, held: tokio::sync::watch::channel(0).0 }
    }
}

impl ApplyGate {
    /// Makes applies wait from now on.
    pub fn close(&self) {
        self.open.send_replace(false);
    }

    /// Lets applies continue.
    pub fn open(&self) {
        self.open.send_replace(true);
    }

    /// Returns after an apply has reached the gate, now or before.
    pub async fn reached(&self) {
        // The sender lives as long as the gate.
        drop(self.held.subscribe().wait_for(|held| *held > 0).await);
    }

    fn applies(write: &Write) -> bool {
        use txn_store::WriteOp;
        let unlocked = match &write.op {
            WriteOp::Replace(source, _) => !source.contains(txn_store::fields::TRANSACTION_TID),
            WriteOp::Delete(_) => true,
            _ => false,
        };
        unlocked && !write.require_alias && &*write.key.collection != "txn-registry"
    }
}

#[async_trait]
impl Tap for ApplyGate {
    async fn on_write(&self, writes: &[Write]) -> Delivery {
        if !*self.open.borrow() && writes.iter().any(Self::applies) {
            self.held.send_modify(|held| *held += 1);
            drop(self.open.subscribe().wait_for(|open| *open).await);
        }
        Delivery::Pass
    }
}
