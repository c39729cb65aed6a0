//! The file: opening, checks, tables, and closing during reads.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;
use redb::{
    Builder, Database, DatabaseError, ReadOnlyTable, ReadTransaction, ReadableDatabase,
    StorageBackend, TableDefinition, TableError, TableHandle,
};

use crate::codec;
use crate::config::RedbConfig;
use crate::error::{Fault, OpenError, OpenErrorKind, caught};
use crate::view::{Bytes, View};

pub(crate) type Definition = TableDefinition<'static, Bytes, Bytes>;

/// The format and the counter.
pub(crate) const META: Definition = TableDefinition::new("txn_meta");
/// See [`View::collections`].
pub(crate) const COLLECTIONS: Definition = TableDefinition::new("txn_collections");
/// See [`View::aliases`].
pub(crate) const ALIASES: Definition = TableDefinition::new("txn_aliases");
/// See [`View::documents`].
pub(crate) const DOCUMENTS: Definition = TableDefinition::new("txn_documents");

/// The entry of [`META`] with the last assigned version or identity.
pub(crate) const CLOCK: &[u8] = b"clock";
/// The entry of [`META`] with the layout of the file.
const FORMAT: &[u8] = b"format";
const THIS_FORMAT: u64 = 1;

/// A committed state of the file.
pub(crate) type Snapshot = View<ReadOnlyTable<Bytes, Bytes>>;

/// One open file, shared by the readers and the writer thread.
#[derive(Debug)]
pub(crate) struct File {
    path: PathBuf,
    /// `None` after the close.
    ///
    /// Readers and the writer hold the lock while they work. So closing waits for them, and the
    /// lock of the operating system is released when it returns.
    database: RwLock<Option<Database>>,
    closing: AtomicBool,
    /// The first damage.
    damage: OnceLock<Fault>,
}

impl File {
    /// Opens or creates the file, and reads its counter.
    pub(crate) fn open(path: &Path, config: &RedbConfig) -> Result<(Self, u64), OpenError> {
        let exists = path.exists();
        let opened = Self::open_with(path, || builder(config).create(path))?;
        if !exists {
            sync_directory(path).map_err(|e| OpenError::io(path, e))?;
        }
        Ok(opened)
    }

    /// Opens or creates the store on a backend, and reads its counter. Errors have the name.
    pub(crate) fn open_backend(
        name: &Path,
        backend: impl StorageBackend,
        config: &RedbConfig,
    ) -> Result<(Self, u64), OpenError> {
        Self::open_with(name, || builder(config).create_with_backend(backend))
    }

    fn open_with(
        path: &Path,
        create: impl FnOnce() -> Result<Database, DatabaseError>,
    ) -> Result<(Self, u64), OpenError> {
        caught(|| Self::open_unguarded(path, create))
            .unwrap_or_else(|fault| Err(OpenError::fault(path, fault)))
    }

    fn open_unguarded(
        path: &Path,
        create: impl FnOnce() -> Result<Database, DatabaseError>,
    ) -> Result<(Self, u64), OpenError> {
        let database = create().map_err(|e| OpenError::database(path, e))?;
        let fault = |fault: Fault| OpenError::fault(path, fault);
        let reader = database.begin_read().map_err(Fault::from).map_err(fault)?;
        let tables = reader.list_tables().map_err(Fault::from).map_err(fault)?;
        let tables: Vec<_> = tables.map(|table| table.name().to_owned()).collect();
        let clock = if tables.is_empty() {
            drop(reader);
            initialize(&database).map_err(fault)?;
            0
        } else {
            check(path, &reader)?
        };
        let database = RwLock::new(Some(database));
        let (closing, damage) = (AtomicBool::new(false), OnceLock::new());
        Ok((Self { path: path.to_owned(), database, closing, damage }, clock))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Runs an action on the database, which stays open in the meantime.
    pub(crate) fn with<R>(
        &self,
        action: impl FnOnce(&Database) -> Result<R, Fault>,
    ) -> Result<R, Fault> {
        let database = self.database.read();
        let database = database.as_ref().ok_or(Fault::Closed)?;
        caught(|| action(database)).flatten().map_err(|fault| self.explain(fault))
    }

    /// Returns the fault with its cause.
    ///
    /// After a failed read, for example beyond the end of a file that was cut off, redb refuses
    /// every operation without the cause.
    pub(crate) fn explain(&self, fault: Fault) -> Fault {
        match fault {
            Fault::Corrupt(_) => self.damage.get_or_init(|| fault).clone(),
            Fault::Storage(_) => self.damage.get().cloned().unwrap_or(fault),
            Fault::Damaged(_) | Fault::Closed => fault,
        }
    }

    /// Reads the last committed state.
    pub(crate) fn look<R>(
        &self,
        action: impl FnOnce(&Snapshot) -> Result<R, Fault>,
    ) -> Result<R, Fault> {
        self.with(|database| {
            let reader = database.begin_read()?;
            action(&View {
                collections: reader.open_table(COLLECTIONS)?,
                aliases: reader.open_table(ALIASES)?,
                documents: reader.open_table(DOCUMENTS)?,
            })
        })
    }

    /// Whether [`close`](Self::close) waits, so that long work should end.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// Closes the file after all running work.
    ///
    /// Returns when the file is closed.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
        let mut database = self.database.write();
        if let Err(fault) = caught(|| *database = None) {
            tracing::error!(%fault, file = %self.path.display(), "the store was not closed cleanly");
        }
    }
}

fn builder(config: &RedbConfig) -> Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(config.cache_bytes);
    builder
}

/// Creates the tables of a new file.
fn initialize(database: &Database) -> Result<(), Fault> {
    let writer = database.begin_write()?;
    {
        let mut meta = writer.open_table(META)?;
        meta.insert(FORMAT, THIS_FORMAT.to_be_bytes().as_slice())?;
        meta.insert(CLOCK, 0_u64.to_be_bytes().as_slice())?;
        for table in [COLLECTIONS, ALIASES, DOCUMENTS] {
            writer.open_table(table)?;
        }
    }
    Ok(writer.commit()?)
}

/// Reads the counter, and checks that the file is a store.
///
/// The store must have this format.
fn check(path: &Path, reader: &ReadTransaction) -> Result<u64, OpenError> {
    let fault = |fault: Fault| OpenError::fault(path, fault);
    let table = |definition: Definition| {
        reader.open_table(definition).map_err(|error| match error {
            TableError::Storage(error) => fault(error.into()),
            error => {
                let message = format!(
                    "it is a redb file of another application ({error}); name another file"
                );
                OpenError::new(OpenErrorKind::NotAStore, path, message)
            }
        })
    };
    let meta = table(META)?;
    for definition in [COLLECTIONS, ALIASES, DOCUMENTS] {
        table(definition)?;
    }
    let number = |what: &str, key: &[u8]| -> Result<u64, Fault> {
        let value = meta.get(key)?.ok_or_else(|| Fault::damaged(format!("{what} is missing")))?;
        codec::decode_number(what, value.value())
    };
    let format = number("the format number", FORMAT).map_err(fault)?;
    if format != THIS_FORMAT {
        let message = format!(
            "it has format {format}, this release reads format {THIS_FORMAT}; use the release \
             that wrote it"
        );
        return Err(OpenError::new(OpenErrorKind::NotAStore, path, message));
    }
    number("the counter of versions", CLOCK).map_err(fault)
}

/// Makes the name of a new file durable.
fn sync_directory(path: &Path) -> std::io::Result<()> {
    if cfg!(not(unix)) {
        return Ok(());
    }
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    std::fs::File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}
