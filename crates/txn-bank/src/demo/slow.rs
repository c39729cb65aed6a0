//! The memory store with a network delay.
//!
//! A kill can then hit between two requests.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use txn_core::store::{Key, Layer, Outcome, Read, Store, Write};

/// The delay of a request, and of its answer.
const DELAY: Duration = Duration::from_millis(1);

/// A store with delayed reads and writes.
#[derive(Debug)]
pub(crate) struct SlowStore(pub(crate) Arc<dyn Store>);

#[async_trait]
impl Layer for SlowStore {
    fn inner(&self) -> &dyn Store {
        &*self.0
    }

    async fn get_many(&self, keys: &[Key]) -> Vec<Read> {
        tokio::time::sleep(DELAY).await;
        self.0.get_many(keys).await
    }

    async fn read_primary(&self, keys: &[Key]) -> Vec<Read> {
        tokio::time::sleep(DELAY).await;
        self.0.read_primary(keys).await
    }

    async fn write_many(&self, writes: &[Write]) -> Vec<Outcome> {
        tokio::time::sleep(DELAY).await;
        let outcomes = self.0.write_many(writes).await;
        tokio::time::sleep(DELAY).await;
        outcomes
    }
}
