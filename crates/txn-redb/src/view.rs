//! Queries on the tables of the file, for readers and the writer.

use std::sync::Arc;

use redb::ReadableTable;
use txn_store::embedded::{self, Decision};
use txn_store::{Outcome, Read, Source, Write};

use crate::codec::{self, Record};
use crate::error::Fault;

/// Every table maps bytes to bytes.
///
/// Typed keys would make redb panic on damaged entries.
pub(crate) type Bytes = &'static [u8];

/// The tables for queries, open in one transaction.
pub(crate) struct View<T> {
    /// Records by collection name.
    pub(crate) collections: T,
    /// Collection names by alias.
    pub(crate) aliases: T,
    /// Documents by their keys.
    pub(crate) documents: T,
}

/// A collection that was found by its name or an alias.
#[derive(Debug)]
pub(crate) struct Resolved {
    /// The physical name.
    pub(crate) name: Arc<str>,
    /// The record of the collection.
    pub(crate) record: Record,
    /// Whether the requested name is an alias.
    pub(crate) by_alias: bool,
}

/// The action for a [`Write`].
#[derive(Debug)]
pub(crate) enum Step<'a> {
    /// Change nothing, and return this outcome.
    Answer(Outcome),
    /// Store the source under the key, at a new version.
    Put(Vec<u8>, &'a Source),
    /// Remove the document with the key.
    Remove(Vec<u8>),
}

impl<T: ReadableTable<Bytes, Bytes>> View<T> {
    /// Returns the record of a collection, by its physical name.
    pub(crate) fn record(&self, name: &str) -> Result<Option<Record>, Fault> {
        let found = self.collections.get(name.as_bytes())?;
        found.map(|bytes| Record::decode(name, bytes.value())).transpose()
    }

    /// Returns the collection with this name or alias. An alias has priority.
    pub(crate) fn resolve(&self, name: &str) -> Result<Option<Resolved>, Fault> {
        let target = self.aliases.get(name.as_bytes())?;
        let (physical, by_alias): (Arc<str>, _) = match &target {
            Some(bytes) => {
                let damaged = |_| Fault::damaged(format!("the target of the alias {name:?}"));
                (str::from_utf8(bytes.value()).map_err(damaged)?.into(), true)
            }
            None => (name.into(), false),
        };
        let record = self.record(&physical)?;
        Ok(record.map(|record| Resolved { name: physical, record, by_alias }))
    }

    /// Reads the document with this key.
    pub(crate) fn read(&self, key: &[u8]) -> Result<Read, Fault> {
        let Some(value) = self.documents.get(key)? else { return Ok(Read::Absent) };
        let (version, source) = codec::read_document(key, value.value())?;
        Ok(Read::Found { version, source })
    }

    /// Decides on a write from the stored state.
    ///
    /// The write was not refused before ([`embedded::refuse`]).
    pub(crate) fn judge<'a>(&self, write: &'a Write) -> Result<Step<'a>, Fault> {
        let Write { key, require_alias, op } = write;
        let Some(collection) = self.resolve(&key.collection)? else {
            return Ok(Step::Answer(Outcome::MissingCollection));
        };
        if *require_alias && !collection.by_alias {
            return Ok(Step::Answer(Outcome::MissingCollection));
        }
        if collection.record.blocked {
            return Ok(Step::Answer(embedded::blocked(write)));
        }
        let place = codec::document_key(collection.record.uid, &key.id, key.routing.as_deref());
        let current = self.documents.get(place.as_slice())?;
        let version = |value: &[u8]| codec::decode_version(&place, value);
        let current = current.map(|value| version(value.value())).transpose()?;
        Ok(match embedded::decide(op, current) {
            Decision::Answer(outcome) => Step::Answer(outcome),
            Decision::Put(source) => Step::Put(place, source),
            Decision::Remove => Step::Remove(place),
        })
    }
}
