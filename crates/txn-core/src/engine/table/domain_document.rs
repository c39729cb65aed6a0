//! The domain document, and the other documents of the registry.
//!
//! [`Domain::open_or_create`](crate::Domain::open_or_create) creates the domain document once, and
//! only conditional writes change the document. The engine never replaces a lost domain document by
//! itself, because the domain would lose its partitions.

use txn_protocol::machines::domain::{ChangeDomain, Changing, DomainDocument};

use crate::engine::attempt_error::AttemptError;
use crate::engine::deadline::Deadline;
use crate::engine::store::settle::SettleTarget;
use crate::engine::store::store_access::StoreAccess;
use crate::engine::table::Table;
use crate::engine::table::format::unreadable;
use crate::engine::wait_reason::WaitReason;
use crate::error::Error;
use txn_store::{Key, Outcome, Read, Source, StoreErrorKind, Version, Write, WriteOp};

impl Table {
    /// Reads the domain document from the primary.
    pub(crate) async fn domain_document(
        &self,
        deadline: &Deadline,
    ) -> Result<(DomainDocument, Version, Source), AttemptError> {
        match self.read_domain(deadline).await? {
            Some(found) => Ok(found),
            None => Err(self.lost_document().into()),
        }
    }

    /// The error of a domain that lost its document or the registry.
    pub(crate) fn lost_document(&self) -> Error {
        let message = "the domain document is lost, and parts of the domain are still there: restore it, or have it \
                       rebuilt by Admin::rebuild (docs/operations.md, \"When a part is lost\")";
        Error::damaged(message).at(&self.domain_key())
    }

    /// Reads the domain document from the primary, if it exists.
    pub(crate) async fn read_domain(
        &self,
        deadline: &Deadline,
    ) -> Result<Option<(DomainDocument, Version, Source)>, AttemptError> {
        let key = self.domain_key();
        let Some((version, source)) = self.read_registry(&key, deadline).await? else {
            return Ok(None);
        };
        let document =
            DomainDocument::parse(&source).map_err(|fault| unreadable(&key, &source, &fault))?;
        Ok(Some((document, version, source)))
    }

    /// Reads a document of the registry from the primary, if it exists.
    pub(crate) async fn read_registry(
        &self,
        key: &Key,
        deadline: &Deadline,
    ) -> Result<Option<(Version, Source)>, AttemptError> {
        let mut backoff = self.context.backoff();
        loop {
            let read = self.store.documents().read_primary(std::slice::from_ref(key)).await;
            let why = match read.into_iter().next() {
                Some(Read::Found { version, source }) => return Ok(Some((version, source))),
                Some(Read::Absent | Read::MissingCollection) => return Ok(None),
                Some(Read::Unavailable(error)) if error.kind != StoreErrorKind::Unavailable => {
                    return Err(Error::from(error).into());
                }
                Some(Read::Unavailable(error)) => error.message,
                None => "the store gave no answer".to_owned(),
            };
            self.context.pause(deadline, &mut backoff, WaitReason::Store(why)).await?;
        }
    }

    /// Changes the domain document, and returns the acknowledged document.
    ///
    /// `change` returns whether a write is needed. After each write without an acknowledgement the
    /// engine reads again, and calls `change` again. If no write is needed, the engine touches the
    /// document.
    pub(crate) async fn change_domain(
        &self,
        deadline: &Deadline,
        change: impl Fn(&mut DomainDocument) -> bool + Send + Sync,
    ) -> Result<(DomainDocument, Version), AttemptError> {
        let place = TheDomain { table: self, change };
        let found = place.look(deadline).await?;
        let content = |found: &Changed| encode(&found.document);
        let settled = self.store.settle(&place, &ChangeDomain, found, content, deadline).await;
        let settled = settled.map_err(|e| e.while_doing("change the domain document"))?;
        let Changed { document, changing, .. } = settled.found;
        if let Some(through) = document.dropped_through {
            self.days.note_dropped(through);
        }
        Ok((document, settled.written.unwrap_or(changing.version)))
    }
}

/// The domain document with a change to write.
struct TheDomain<'a, F> {
    table: &'a Table,
    change: F,
}

/// The domain document after a change that is not written yet.
struct Changed {
    document: DomainDocument,
    changing: Changing,
    /// The stored bytes, for a touch.
    source: Source,
}

impl<F: Fn(&mut DomainDocument) -> bool + Send + Sync> SettleTarget for TheDomain<'_, F> {
    type Found = Changed;
    type Seen = Changing;

    fn seen(found: &Changed) -> &Changing {
        &found.changing
    }

    fn source(found: &Changed) -> Option<Source> {
        Some(found.source.clone())
    }

    fn store(&self) -> &StoreAccess {
        &self.table.store
    }

    fn key(&self) -> Key {
        self.table.domain_key()
    }

    async fn look(&self, deadline: &Deadline) -> Result<Changed, AttemptError> {
        let (mut document, version, source) = self.table.domain_document(deadline).await?;
        let changes = (self.change)(&mut document);
        Ok(Changed { document, changing: Changing { version, changes }, source })
    }
}

/// A document of the registry that never changes after its creation.
///
/// The first process that needs the document creates it.
pub(crate) struct RegistryDocument<'a> {
    pub(crate) table: &'a Table,
    pub(crate) key: &'a Key,
}

impl SettleTarget for RegistryDocument<'_> {
    type Found = (Option<Version>, Option<Source>);
    type Seen = Option<Version>;

    fn seen((version, _): &Self::Found) -> &Option<Version> {
        version
    }

    fn source((_, source): &Self::Found) -> Option<Source> {
        source.clone()
    }

    fn store(&self) -> &StoreAccess {
        &self.table.store
    }

    fn key(&self) -> Key {
        self.key.clone()
    }

    // A missing registry was lost. So this write fails at once, without retries for a lagging node.
    async fn write(&self, op: &WriteOp, _: &Deadline) -> Result<Outcome, AttemptError> {
        Ok(self.table.store.write_one(Write::new(self.key.clone(), op.clone())).await)
    }

    async fn look(&self, deadline: &Deadline) -> Result<Self::Found, AttemptError> {
        Ok(self.table.read_registry(self.key, deadline).await?.unzip())
    }
}

pub(crate) fn encode(document: &DomainDocument) -> Result<Source, Error> {
    document.encode().map_err(Error::damaged)
}
