//! The document that rules a domain: which partitions are official, which days are gone, which collections belong to
//! it. It is made once, by [`Domain::create`](crate::Domain::create), and changed by conditional writes only. One that
//! is missing later was lost: it is never made anew in silence, for the partitions beside it would be forgotten.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::engine::Engine;
use crate::engine::attempt_error::AttemptError;
use crate::engine::deadline::{Deadline, WaitReason};
use crate::error::Error;
use crate::store::{Outcome, Read, Source, StoreErrorKind, Version, Write, WriteOp};
use txn_protocol::format::Format;
use txn_protocol::tid::Day;

/// The collection of domain documents and claims, shared by all domains.
pub(crate) const REGISTRY: &str = "txn-registry";

/// The document that rules a domain; changed by conditional writes only.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DomainDocument {
    #[serde(default)]
    pub(crate) format: Format,
    /// Partitions up to this day are gone.
    pub(crate) dropped_through: Option<Day>,
    /// The official partition of each day.
    #[serde(default)]
    pub(crate) partitions: BTreeMap<Day, String>,
    /// Partitions of days that are gone, as long as they may still stand.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) dropping: BTreeMap<Day, String>,
    /// Days whose write block somebody lifts or lifted, with a mark of the last time.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) lifted: BTreeMap<Day, String>,
    /// The collections of the domain, by physical name, with their identity.
    #[serde(default)]
    pub(crate) collections: BTreeMap<String, String>,
}

impl DomainDocument {
    fn parse(source: &str) -> Result<Self, String> {
        let document: Self = serde_json::from_str(source)
            .map_err(|e| format!("the domain document cannot be read: {e}"))?;
        match document.format.is_known() {
            true => Ok(document),
            false => Err("a newer library wrote it".to_owned()),
        }
    }

    pub(crate) fn is_gone(&self, day: Day) -> bool {
        self.dropped_through.is_some_and(|through| day <= through)
    }
}

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
        let mut backoff = self.backoff();
        loop {
            let read = self.store.read_primary(std::slice::from_ref(&key)).await;
            let why = match read.into_iter().next() {
                Some(Read::Found { version, source }) => {
                    let document = DomainDocument::parse(&source).map_err(|fault| {
                        crate::engine::format::unreadable(&key, &source, &fault)
                    })?;
                    return Ok(Some((document, version, source)));
                }
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
        mut change: impl FnMut(&mut DomainDocument) -> bool + Send,
    ) -> Result<(DomainDocument, Version), AttemptError> {
        let key = self.table.domain_key();
        let mut backoff = self.backoff();
        loop {
            let (mut document, version, source) = self.domain_document(deadline).await?;
            let source = if change(&mut document) { encode(&document)? } else { source };
            let write = Write::new(key.clone(), WriteOp::Replace(source, version));
            let why = match self.write_one(write).await {
                Outcome::Applied(version) => {
                    if let Some(through) = document.dropped_through {
                        self.table.note_dropped(through);
                    }
                    return Ok((document, version));
                }
                Outcome::Conflict => "the domain document is being changed by others".to_owned(),
                Outcome::Rejected(why) | Outcome::RejectedInDoubt(why) | Outcome::Unknown(why) => {
                    why
                }
                // It was there a moment ago: a node that lags.
                Outcome::MissingCollection => "its collection seems to be missing".to_owned(),
                refused => {
                    let doing = "change the domain document";
                    return Err(Error::from_refused(&refused, &key, doing).into());
                }
            };
            self.pause(deadline, &mut backoff, WaitReason::Store(why)).await?;
        }
    }
}

pub(crate) fn encode(document: &DomainDocument) -> Result<Source, Error> {
    let text = serde_json::to_string(document);
    text.map(Into::into)
        .map_err(|e| Error::damaged(format!("cannot encode the domain document: {e}")))
}
