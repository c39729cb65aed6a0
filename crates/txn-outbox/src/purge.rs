//! The removal of the state of unused keys.

use std::time::Duration;

use serde::Serialize;
use txn_core::scan::{PAGE, candidates};
use txn_core::store::Filter;
use txn_lock::instance::wall_ms;
use txn_lock::stored::Stored;

use crate::error::{OutboxError, Result};
use crate::outbox::{Inner, Outbox};
use crate::queue::model::{Floor, QUEUE};
use crate::queue::name::QueueName;

/// The counts of deleted documents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Purged {
    /// The number of deleted queues.
    pub queues: usize,
    /// The number of deleted results of HTTP requests.
    pub results: usize,
}

impl Outbox {
    /// Deletes the state of keys without waiting and recent events.
    ///
    /// A key is deleted if it had no emit for `age`, by the wall clock. Results of HTTP requests of
    /// this age are deleted, too. New events of a deleted key get larger positions, so that event
    /// ids never repeat. Dead letters stay. Other processes may emit during the purge.
    ///
    /// # Errors
    /// [`OutboxError::Store`], or an error of the engine. Deleted documents stay deleted.
    pub async fn purge(&self, age: Duration) -> Result<Purged> {
        let inner = &self.inner;
        let age = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        let before = wall_ms(&inner.domain).saturating_sub(age);
        let queues = inner.purge(before).await?;
        #[cfg(feature = "http-requests")]
        let results = crate::http::purge_results(&inner.domain, before).await?;
        #[cfg(not(feature = "http-requests"))]
        let results = 0;
        Ok(Purged { queues, results })
    }
}

impl Inner {
    /// Deletes the documents of idle queues, each in its own transaction.
    async fn purge(&self, before: u64) -> Result<usize> {
        let filter = Filter::any_of("kind", ["queue"]);
        let ids = candidates(&self.domain, self.queues.name(), filter, usize::MAX).await?;
        let ids: Vec<_> = ids.into_iter().filter(|id| id.starts_with(QUEUE)).collect();
        let mut purged = 0;
        for ids in ids.chunks(PAGE) {
            let found = self.domain.reader().get_many(&self.queues, ids).await?;
            for queue in found.into_iter().flatten() {
                // Only a newer version of this program can judge this queue.
                let Stored::Known(queue) = queue else { continue };
                if queue.is_idle(before) {
                    let Ok(name) = QueueName::new(&queue.topic, &queue.key) else { continue };
                    purged += usize::from(self.forget(&name, before).await?);
                }
            }
        }
        Ok(purged)
    }

    /// Deletes the document of a queue that is still idle.
    async fn forget(&self, name: &QueueName, before: u64) -> Result<bool> {
        self.domain
            .transact(async |tx| {
                let queue = self.queue(tx, name).await?.filter(|queue| queue.is_idle(before));
                let Some(queue) = queue else { return Ok(false) };
                if self.floor(tx).await? < queue.appended {
                    tx.put(&self.floors, Floor::ID, &Stored::Known(Floor::new(queue.appended)))?;
                }
                tx.delete(&self.queues, name.document())?;
                Ok::<_, OutboxError>(true)
            })
            .await
    }
}
