//! The store in memory with the delay of a network, so that a worker can be ended between two requests.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use txn_core::store::{Key, Layer, Outcome, Read, Store, Write};

/// How long a request takes on its way there, and on its way back.
const DELAY: Duration = Duration::from_millis(1);

/// A store whose reads and writes take a while.
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
