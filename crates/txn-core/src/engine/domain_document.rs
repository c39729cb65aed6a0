//! The document that rules a domain, and the other documents of the registry. It is made once, by
//! [`Domain::create`](crate::Domain::create), and changed by conditional writes only. One that is missing later was lost: it
//! is never made anew in silence, for the partitions beside it would be forgotten.

use txn_protocol::machines::domain::{ChangeDomain, Changing, DomainDocument};

use crate::engine::Engine;
use crate::engine::attempt_error::AttemptError;
use crate::engine::deadline::Deadline;
use crate::engine::settle::Place;
use crate::engine::wait_reason::WaitReason;
use crate::error::Error;
use crate::store::{Key, Outcome, Read, Source, StoreErrorKind, Version, Write, WriteOp};

/// The collection of domain documents and claims, shared by all domains.
pub(crate) const REGISTRY: &str = "txn-registry";

impl Engine {
    /// The domain document as the primary has it.
    pub(crate) async fn domain_document(
        &self,
        deadline: &Deadline,
    ) -> Result<(DomainDocument, Version, Source), AttemptError> {
        match self.read_domain(deadline).await? {
            Some(found) => Ok(found),
            None => Err(self.lost_document().into()),
        }
    }

    /// The error of a domain whose document, or the registry with it, is gone.
    pub(crate) fn lost_document(&self) -> Error {
        let message = "the domain document is lost, and parts of the domain are still there: restore it, or have it \
                       rebuilt by Domain::rebuild (docs/operations.md, \"When a part is lost\")";
        Error::damaged(message).at(&self.table.domain_key())
    }

    /// The domain document as the primary has it, if there is one.
    pub(crate) async fn read_domain(
        &self,
        deadline: &Deadline,
    ) -> Result<Option<(DomainDocument, Version, Source)>, AttemptError> {
        let key = self.table.domain_key();
        let Some((version, source)) = self.read_registry(&key, deadline).await? else {
            return Ok(None);
        };
        let document = DomainDocument::parse(&source)
            .map_err(|fault| crate::engine::format::unreadable(&key, &source, &fault))?;
        Ok(Some((document, version, source)))
    }

    /// A document of the registry as the primary has it, if there is one.
    pub(crate) async fn read_registry(
        &self,
        key: &Key,
        deadline: &Deadline,
    ) -> Result<Option<(Version, Source)>, AttemptError> {
        let mut backoff = self.backoff();
        loop {
            let read = self.store.read_primary(std::slice::from_ref(key)).await;
            let why = match read.into_iter().next() {
                Some(Read::Found { version, source }) => return Ok(Some((version, source))),
                Some(Read::Absent | Read::MissingCollection) => return Ok(None),
                Some(Read::Unavailable(error)) if error.kind != StoreErrorKind::Unavailable => {
                    return Err(Error::from(error).into());
                }
                Some(Read::Unavailable(error)) => error.message,
                None => "the store gave no answer".to_owned(),
            };
            self.pause(deadline, &mut backoff, WaitReason::Store(why)).await?;
        }
    }

    /// Changes the domain document: `change` returns whether there is anything to write, and is asked
    /// again on what stands there whenever the outcome was not acknowledged. Returns the document as
    /// acknowledged: where nothing was to be changed it is touched.
    pub(crate) async fn change_domain(
        &self,
        deadline: &Deadline,
        change: impl Fn(&mut DomainDocument) -> bool + Send + Sync,
    ) -> Result<(DomainDocument, Version), AttemptError> {
        let place = TheDomain { change };
        let found = place.look(self, deadline).await?;
        let content = |found: &Changed| encode(&found.document);
        let settled = self.settle(&place, &ChangeDomain, found, content, deadline).await;
        let settled = settled.map_err(|e| e.while_doing("change the domain document"))?;
        let Changed { document, changing, .. } = settled.found;
        if let Some(through) = document.dropped_through {
            self.table.note_dropped(through);
        }
        Ok((document, settled.written.unwrap_or(changing.version)))
    }
}

/// The domain document, which is about to be changed.
struct TheDomain<F> {
    change: F,
}

/// The domain document after a change that is not written yet.
struct Changed {
    document: DomainDocument,
    changing: Changing,
    /// As it stands.
    source: Source,
}

impl<F: Fn(&mut DomainDocument) -> bool + Send + Sync> Place for TheDomain<F> {
    type Found = Changed;
    type Seen = Changing;

    fn seen(found: &Changed) -> &Changing {
        &found.changing
    }

    fn source(found: &Changed) -> Option<Source> {
        Some(found.source.clone())
    }

    fn key(&self, engine: &Engine) -> Key {
        engine.table.domain_key()
    }

    async fn look(&self, engine: &Engine, deadline: &Deadline) -> Result<Changed, AttemptError> {
        let (mut document, version, source) = engine.domain_document(deadline).await?;
        let changes = (self.change)(&mut document);
        Ok(Changed { document, changing: Changing { version, changes }, source })
    }
}

/// A document of the registry that is there for good once it is made: whoever comes first makes it.
pub(crate) struct RegistryDocument<'a>(pub(crate) &'a Key);

impl Place for RegistryDocument<'_> {
    type Found = (Option<Version>, Option<Source>);
    type Seen = Option<Version>;

    fn seen((version, _): &Self::Found) -> &Option<Version> {
        version
    }

    fn source((_, source): &Self::Found) -> Option<Source> {
        source.clone()
    }

    fn key(&self, _: &Engine) -> Key {
        self.0.clone()
    }

    // A registry that is missing was lost: that is said at once.
    async fn write(
        &self,
        engine: &Engine,
        op: &WriteOp,
        _: &Deadline,
    ) -> Result<Outcome, AttemptError> {
        Ok(engine.write_one(Write::new(self.0.clone(), op.clone())).await)
    }

    async fn look(
        &self,
        engine: &Engine,
        deadline: &Deadline,
    ) -> Result<Self::Found, AttemptError> {
        Ok(engine.read_registry(self.0, deadline).await?.unzip())
    }
}

pub(crate) fn encode(document: &DomainDocument) -> Result<Source, Error> {
    document.encode().map_err(Error::damaged)
}
