//! How far a queue of another database is handled, as a document of the domain: written with the effects.

use serde::{Deserialize, Serialize};
use txn_core::{Collection, Domain, Transaction};
use txn_lock::stored::{Format, Stored, Versioned};

use crate::error::{OutboxError, Result};
use crate::event::Event;
use crate::model::{MAPPINGS, known};
use crate::name::QueueName;

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
    /// Which database counts.
    epoch: String,
}

impl Cursors {
    pub(crate) async fn open(domain: &Domain, source: &str, epoch: String) -> Result<Self> {
        let name = format!("{}-outbox", domain.name());
        let documents = domain.create_collection(&name, Some(MAPPINGS)).await?;
        Ok(Self { domain: domain.clone(), documents, source: source.to_owned(), epoch })
    }

    fn id(&self, queue: &QueueName) -> String {
        format!("cursor:{}/{queue}", self.source)
    }

    fn handled_of(&self, id: &str, found: Option<Stored<Cursor>>) -> Result<u64> {
        let cursor = found.map(|found| known(id, found)).transpose()?;
        Ok(cursor.filter(|cursor| cursor.epoch == self.epoch).map_or(0, |cursor| cursor.handled))
    }

    /// The place of the last event that a transaction handled.
    pub(crate) async fn handled(&self, queue: &QueueName) -> Result<u64> {
        let id = self.id(queue);
        let found = self.domain.reader().verified().get(&self.documents, &id).await?;
        self.handled_of(&id, found)
    }

    /// Notes in a transaction that an event is handled.
    pub(crate) async fn advance(&self, tx: &Transaction, event: &Event) -> Result<()> {
        let id = self.id(&event.queue);
        let found = tx.get(&self.documents, &id).await?;
        if self.handled_of(&id, found)? >= event.sequence {
            return Err(OutboxError::NotNext(event.id.clone()));
        }
        let cursor = Cursor {
            kind: Kind::Cursor,
            format: Format,
            source: self.source.clone(),
            epoch: self.epoch.clone(),
            topic: event.queue.topic().to_owned(),
            key: event.queue.key().to_owned(),
            handled: event.sequence,
        };
        Ok(tx.put(&self.documents, id, &Stored::Known(cursor))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        };
        let mappings: serde_json::Value = serde_json::from_str(MAPPINGS).unwrap();
        for field in serde_json::to_value(cursor).unwrap().as_object().unwrap().keys() {
            assert!(mappings["properties"][field].is_object(), "{field} is not mapped");
        }
    }
}
