//! Carries out writes and administration inside one write transaction.
//!
//! Each operation reads and checks everything that it needs before it changes anything. So a
//! [`Fault::Damaged`] leaves the transaction unchanged and concerns only its operation, while a
//! [`Fault::Storage`] ends the transaction.

use redb::{ReadableTable, Table, WriteTransaction};
use txn_store::embedded;
use txn_store::{CollectionInfo, CollectionSpec, Outcome, StoreError, Version, Write};

use crate::codec::{self, Record};
use crate::error::Fault;
use crate::file::{ALIASES, CLOCK, COLLECTIONS, DOCUMENTS, META};
use crate::read;
use crate::view::{Bytes, Resolved, Step, View};

/// The only term: this store has one primary.
const TERM: u64 = 1;

/// An administrative change.
#[derive(Debug)]
pub(crate) enum Command {
    /// See [`txn_store::Store::open_collection`].
    Open(CollectionSpec),
    /// See [`txn_store::Store::drop_collection`].
    Drop(String),
    /// See [`txn_store::Store::add_alias`].
    Alias {
        /// The new name.
        alias: String,
        /// The target of the alias.
        collection: String,
    },
    /// See [`txn_store::Store::block_writes`].
    Block {
        collection: String,
        /// Whether to set the block, or to lift it.
        blocked: bool,
    },
    /// See [`txn_store::Store::release_collection`].
    Release(String),
}

/// The result of a [`Command`]; [`Command::Open`] returns the collection.
pub(crate) type Administered = Result<Option<CollectionInfo>, StoreError>;

/// The tables of one write transaction, and its changes.
pub(crate) struct Changes<'t> {
    view: View<Table<'t, Bytes, Bytes>>,
    meta: Table<'t, Bytes, Bytes>,
    clock: &'t mut u64,
    changed: bool,
}

impl<'t> Changes<'t> {
    /// Opens the tables. `clock` is the last assigned number.
    pub(crate) fn new(writer: &'t WriteTransaction, clock: &'t mut u64) -> Result<Self, Fault> {
        let view = View {
            collections: writer.open_table(COLLECTIONS)?,
            aliases: writer.open_table(ALIASES)?,
            documents: writer.open_table(DOCUMENTS)?,
        };
        Ok(Self { view, meta: writer.open_table(META)?, clock, changed: false })
    }

    /// Writes the counter and closes the tables. Returns whether there is anything to commit.
    pub(crate) fn finish(mut self) -> Result<bool, Fault> {
        if self.changed {
            self.meta.insert(CLOCK, self.clock.to_be_bytes().as_slice())?;
        }
        Ok(self.changed)
    }

    /// Returns a new number, which is never reused, even if the transaction fails.
    fn tick(&mut self) -> Result<u64, Fault> {
        let next = self.clock.checked_add(1);
        *self.clock = next.ok_or_else(|| Fault::damaged("the counter of versions is used up"))?;
        Ok(*self.clock)
    }

    /// Carries out a write that was not refused ([`embedded::refuse`]).
    pub(crate) fn write(&mut self, write: &Write) -> Result<Outcome, Fault> {
        let (key, source) = match self.view.judge(write)? {
            Step::Answer(outcome) => return Ok(outcome),
            Step::Put(key, source) => (key, Some(source)),
            Step::Remove(key) => (key, None),
        };
        let incarnation = codec::collection_of(&key)?;
        let version = Version { incarnation, term: TERM, seq_no: self.tick()? };
        self.changed = true;
        match source {
            Some(source) => {
                let value = codec::document_value(version, source);
                self.view.documents.insert(key.as_slice(), value.as_slice())?;
            }
            None => drop(self.view.documents.remove(key.as_slice())?),
        }
        Ok(Outcome::Applied(version))
    }

    /// Carries out an administrative change.
    pub(crate) fn administer(&mut self, command: &Command) -> Result<Administered, Fault> {
        match command {
            Command::Open(spec) => self.open(spec),
            Command::Drop(name) => self.drop_collection(name),
            Command::Alias { alias, collection } => self.alias(alias, collection),
            Command::Block { collection, blocked } => self.block(collection, *blocked),
            Command::Release(collection) => self.release(collection),
        }
    }

    fn open(&mut self, spec: &CollectionSpec) -> Result<Administered, Fault> {
        let found = self.view.resolve(&spec.name)?;
        let made = found.is_none();
        let mut found = match found {
            Some(found) => found,
            None if !spec.create => return Ok(Err(embedded::not_found(&spec.name))),
            None => {
                let record = Record { uid: self.tick()?, blocked: false, owner: None };
                Resolved { name: spec.name.as_str().into(), record, by_alias: false }
            }
        };
        let owner = spec.role.owner();
        let owned = owner.is_some() && found.record.owner.as_deref() != owner;
        if owned {
            found.record.owner = owner.map(str::to_owned);
        }
        if made || owned {
            self.store(&found)?;
        }
        Ok(Ok(Some(read::info(found))))
    }

    fn drop_collection(&mut self, name: &str) -> Result<Administered, Fault> {
        let record = self.view.record(name)?;
        let mut aliases = Vec::new();
        for entry in self.view.aliases.iter()? {
            let (alias, target) = entry?;
            if target.value() == name.as_bytes() {
                aliases.push(alias.value().to_vec());
            }
        }
        self.changed |= record.is_some() || !aliases.is_empty();
        for alias in aliases {
            self.view.aliases.remove(alias.as_slice())?;
        }
        if let Some(record) = record {
            self.view.collections.remove(name.as_bytes())?;
            let (below, above) = codec::document_bounds(record.uid);
            self.view.documents.retain_in(below.as_slice()..above.as_slice(), |_, _| false)?;
        }
        Ok(Ok(None))
    }

    fn alias(&mut self, alias: &str, collection: &str) -> Result<Administered, Fault> {
        let Some(found) = self.view.resolve(collection)? else {
            return Ok(Err(embedded::not_found(collection)));
        };
        self.changed = true;
        self.view.aliases.insert(alias.as_bytes(), found.name.as_bytes())?;
        Ok(Ok(None))
    }

    fn block(&mut self, collection: &str, blocked: bool) -> Result<Administered, Fault> {
        let Some(mut found) = self.view.resolve(collection)? else {
            return Ok(Err(embedded::not_found(collection)));
        };
        if found.record.blocked != blocked {
            found.record.blocked = blocked;
            self.store(&found)?;
        }
        Ok(Ok(None))
    }

    fn release(&mut self, collection: &str) -> Result<Administered, Fault> {
        let Some(mut found) = self.view.resolve(collection)? else {
            return Ok(Err(embedded::not_found(collection)));
        };
        if found.record.owner.take().is_some() {
            self.store(&found)?;
        }
        Ok(Ok(None))
    }

    fn store(&mut self, found: &Resolved) -> Result<(), Fault> {
        self.changed = true;
        self.view.collections.insert(found.name.as_bytes(), found.record.encode().as_slice())?;
        Ok(())
    }
}
