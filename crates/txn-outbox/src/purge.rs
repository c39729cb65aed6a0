//! What is kept of keys that are not used any more goes with time.

use std::time::Duration;

use serde::Serialize;
use txn_core::store::Filter;
use txn_lock::instance::wall_ms;
use txn_lock::scan::{PAGE, candidates};
use txn_lock::stored::Stored;

use crate::error::{OutboxError, Result};
use crate::model::{Floor, QUEUE};
use crate::name::QueueName;
use crate::outbox::{Inner, Outbox};

/// What was deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Purged {
    /// Keys of which nothing is kept any more.
    pub queues: usize,
    /// Results of HTTP requests.
    pub results: usize,
}

impl Outbox {
    /// Deletes what is kept of keys that no event waits of and none was emitted of for `age`, by the wall clock, and results of
    /// HTTP requests of that age. Events of these keys go on to be numbered behind all that there ever were, so that none gets
    /// the id of another. Dead letters stay. Anybody may emit meanwhile.
    ///
    /// # Errors
    /// [`OutboxError::Store`], or the engine's; what was deleted stays so.
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
    /// Deletes the documents of idle queues, each in a transaction of its own.
    async fn purge(&self, before: u64) -> Result<usize> {
        let filter = Filter::any_of("kind", ["queue"]);
        let ids = candidates(&self.domain, self.queues.name(), filter, usize::MAX).await?;
        let ids: Vec<_> = ids.into_iter().filter(|id| id.starts_with(QUEUE)).collect();
        let mut purged = 0;
        for ids in ids.chunks(PAGE) {
            let found = self.domain.reader().get_many(&self.queues, ids).await?;
            for queue in found.into_iter().flatten() {
                // What is newer is left to those who know it.
                let Stored::Known(queue) = queue else { continue };
                if queue.is_idle(before) {
                    let Ok(name) = QueueName::new(&queue.topic, &queue.key) else { continue };
                    purged += usize::from(self.forget(&name, before).await?);
                }
            }
        }
        Ok(purged)
    }

    /// Deletes the document of a queue, if that is still idle.
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
