//! The position of a queue in another database, stored with the effects.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use txn_core::scan::candidates;
use txn_core::store::Filter;
use txn_core::{Collection, Domain, Transaction};
use txn_lock::stored::{Format, Stored, Versioned};

use crate::error::{OutboxError, Result};
use crate::queue::event::Event;
use crate::queue::model::{MAPPINGS, known};
use crate::queue::name::QueueName;
use crate::queue::source::Claim;

/// The newest format of these documents.
const NEWEST: u32 = 1;

type Documents = Versioned<Cursor, NEWEST>;

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Cursor {
    kind: Kind,
    format: Format<NEWEST>,
    source: String,
    epoch: String,
    topic: String,
    key: String,
    handled: u64,
    /// The mark of the last handled event.
    #[serde(skip_serializing_if = "Option::is_none")]
    mark: Option<Arc<str>>,
}

/// The last event of a queue that a transaction handled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) handled: u64,
    pub(crate) mark: Option<Arc<str>>,
}

impl Position {
    /// Whether this position has this event.
    pub(crate) fn matches(&self, event: &Event) -> bool {
        event.mark.is_some() && (self.handled, &self.mark) == (event.sequence, &event.mark)
    }
}

txn_lock::document_kinds! {
    Kind: Cursor;
}

/// The cursors of one source.
#[derive(Debug)]
pub(crate) struct Cursors {
    domain: Domain,
    documents: Collection<Documents>,
    source: String,
    /// The epoch of the database.
    pub(crate) epoch: String,
}

impl Cursors {
    pub(crate) async fn open(domain: &Domain, source: &str, epoch: String) -> Result<Self> {
        let name = domain.collection_name("outbox");
        let documents = domain.create_system_collection(&name, MAPPINGS).await?;
        Ok(Self { domain: domain.clone(), documents, source: source.to_owned(), epoch })
    }

    fn id(&self, queue: &QueueName) -> String {
        format!("cursor:{}/{queue}", self.source)
    }

    fn position_of(&self, id: &str, found: Option<Stored<Cursor>>) -> Result<Position> {
        let cursor = found.map(|found| known(id, found)).transpose()?;
        let cursor = cursor.filter(|cursor| cursor.epoch == self.epoch);
        Ok(cursor.map_or_else(Position::default, |Cursor { handled, mark, .. }| Position {
            handled,
            mark,
        }))
    }

    /// The position of the last event that a transaction handled.
    pub(crate) async fn position(&self, queue: &QueueName) -> Result<Position> {
        let id = self.id(queue);
        let found = self.domain.reader().verified().get(&self.documents, &id).await?;
        self.position_of(&id, found)
    }

    /// Notes in a transaction that an event is handled.
    pub(crate) async fn advance(&self, tx: &Transaction, event: &Event) -> Result<()> {
        let id = self.id(&event.queue);
        let found = tx.get(&self.documents, &id).await?;
        if self.position_of(&id, found)?.handled >= event.sequence {
            return Err(OutboxError::NotNext(event.id.clone()));
        }
        let position = Position { handled: event.sequence, mark: event.mark.clone() };
        self.put(tx, id, &event.queue, position)
    }

    /// Whether a transaction in the background has handled an event after all.
    ///
    /// The check writes the same document. A commit that is still under way therefore commits
    /// earlier, or never.
    pub(crate) async fn is_handled(&self, claim: &Claim, event: &Event) -> Result<bool> {
        let id = self.id(&event.queue);
        self.domain
            .transact(async |tx| {
                claim.check(tx).await?;
                let found = tx.get(&self.documents, &id).await?;
                let position = self.position_of(&id, found)?;
                if position.handled >= event.sequence {
                    return Ok(true);
                }
                self.put(tx, id.clone(), &event.queue, position)?;
                Ok::<_, OutboxError>(false)
            })
            .await
    }

    /// The queues with a cursor.
    pub(crate) async fn queues(&self) -> Result<Vec<QueueName>> {
        let filter = Filter::any_of("kind", ["cursor"]);
        let ids = candidates(&self.domain, self.documents.name(), filter, usize::MAX).await?;
        let ours = format!("cursor:{}/", self.source);
        let queues = ids.iter().filter_map(|id| {
            let (topic, key) = id.strip_prefix(&*ours)?.split_once('/')?;
            QueueName::new(topic, key).ok()
        });
        Ok(queues.collect())
    }

    /// As [`Cursors::position`], for several queues.
    pub(crate) async fn positions(&self, queues: &[QueueName]) -> Result<Vec<Position>> {
        let ids: Vec<String> = queues.iter().map(|queue| self.id(queue)).collect();
        let found = self.domain.reader().verified().get_many(&self.documents, &ids).await?;
        ids.iter().zip(found).map(|(id, found)| self.position_of(id, found)).collect()
    }

    /// Deletes a cursor that has not moved since `seen`. Returns whether it was deleted.
    pub(crate) async fn delete_unmoved(&self, queue: &QueueName, seen: &Position) -> Result<bool> {
        let id = self.id(queue);
        self.domain
            .transact(async |tx| {
                let found = tx.get(&self.documents, &id).await?;
                // A cursor of another epoch has no meaning any more.
                if found.is_none() || self.position_of(&id, found)? != *seen {
                    return Ok(false);
                }
                tx.delete(&self.documents, &id)?;
                Ok::<_, OutboxError>(true)
            })
            .await
    }

    fn put(
        &self,
        tx: &Transaction,
        id: String,
        queue: &QueueName,
        position: Position,
    ) -> Result<()> {
        let cursor = Cursor {
            kind: Kind::Cursor,
            format: Format,
            source: self.source.clone(),
            epoch: self.epoch.clone(),
            topic: queue.topic().to_owned(),
            key: queue.key().to_owned(),
            handled: position.handled,
            mark: position.mark,
        };
        Ok(tx.put(&self.documents, id, &Stored::Known(cursor))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An event may be handled between the read and the deletion.
    #[tokio::test]
    async fn moved_cursor_is_not_deleted() {
        let store = std::sync::Arc::new(txn_core::store::MemoryStore::new());
        let domain =
            Domain::open_or_create(store, "test", txn_core::Config::default()).await.unwrap();
        let cursors = Cursors::open(&domain, "rows", "e".to_owned()).await.unwrap();
        let queue = QueueName::new("orders", "x").unwrap();
        let handle = async |handled| {
            let position = Position { handled, mark: None };
            let put = domain.transact::<_, OutboxError, _>(async |tx| {
                cursors.put(tx, cursors.id(&queue), &queue, position.clone())
            });
            put.await.unwrap();
        };
        let seen =
            async || cursors.positions(std::slice::from_ref(&queue)).await.unwrap().remove(0);
        handle(2).await;
        let before = seen().await;
        handle(3).await;
        assert!(!cursors.delete_unmoved(&queue, &before).await.unwrap());
        let now = seen().await;
        assert_eq!(now.handled, 3);
        assert!(cursors.delete_unmoved(&queue, &now).await.unwrap());
        assert_eq!(seen().await, Position::default());
    }

    #[test]
    fn the_mappings_know_every_field() {
        let cursor = Cursor {
            kind: Kind::Cursor,
            format: Format,
            source: String::new(),
            epoch: String::new(),
            topic: String::new(),
            key: String::new(),
            handled: 1,
            mark: Some("".into()),
        };
        let mappings: serde_json::Value = serde_json::from_str(MAPPINGS).unwrap();
        for field in serde_json::to_value(cursor).unwrap().as_object().unwrap().keys() {
            assert!(mappings["properties"][field].is_object(), "{field} is not mapped");
        }
    }
}
