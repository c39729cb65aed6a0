//! Scans a domain for locks and open records, page by page.
//!
//! A collection or a partition that cannot be scanned is noted, and the scan continues with the
//! next one. Each result is a hint only: scans are stale and may miss documents.

use std::collections::{BTreeMap, VecDeque};

use crate::engine::attempt_error::AttemptError;
use crate::engine::context::Context;
use crate::engine::deadline::Deadline;
use crate::engine::store::pages::{Documents, PAGE};
use crate::engine::store::store_access::{StoreAccess, view};
use crate::engine::table::Table;
use crate::engine::table::format::read_record;
use crate::engine::table::retention::open_records;
use crate::error::Error;
use txn_protocol::ids::{AttemptId, Day};
use txn_protocol::machines::domain::DomainDocument;
use txn_protocol::record::State;
use txn_store::{CollectionSpec, Filter, Key, Pages, Role, StoreErrorKind};

/// A collection or a partition to scan.
#[derive(Clone, Debug)]
enum ScanPart {
    Collection { name: String, uid: String },
    Partition { day: Day, name: String },
}

impl ScanPart {
    fn name(&self) -> &str {
        let (Self::Collection { name, .. } | Self::Partition { name, .. }) = self;
        name
    }

    fn filter(&self) -> Filter {
        match self {
            Self::Collection { .. } => Filter::Exists(txn_store::fields::TRANSACTION_TID),
            Self::Partition { .. } => open_records(),
        }
    }
}

/// A lock or an open record that may need recovery.
#[derive(Clone, Debug)]
pub(crate) struct Suspect {
    /// The locked document, or the record.
    pub(crate) key: Key,
    pub(crate) holder: AttemptId,
    /// The state of the record; `None` for a document.
    pub(crate) state: Option<State>,
}

/// The faults of a domain, by document and by part.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    pub(crate) damaged: BTreeMap<Key, String>,
    pub(crate) unreachable: BTreeMap<String, String>,
}

impl Faults {
    /// Notes a fault. Returns `false` for an error that may pass with time.
    pub(crate) fn note(&mut self, about: &Key, error: &Error) -> bool {
        let noted = error.kind().needs_operator();
        if noted {
            let document = error.document().unwrap_or(about).clone();
            self.damaged.insert(document, error.to_string());
        }
        noted
    }

    /// Notes why a collection or a partition could not be read.
    pub(crate) fn note_part(&mut self, name: &str, error: AttemptError) {
        let error = error.into_error();
        if !self.note(&Key::new(name, "*"), &error) {
            self.unreachable.insert(name.to_owned(), error.to_string());
        }
    }
}

/// Fails unless the collection is the claimed one and can serve transactions.
pub(crate) async fn confirm_incarnation(
    store: &StoreAccess,
    name: &str,
    uid: &str,
    deadline: &Deadline,
) -> Result<(), AttemptError> {
    let role = Role::Data { owner: None };
    let spec = CollectionSpec { name: name.to_owned(), role, create: false, mappings: None };
    let info =
        store.retry_unavailable(deadline, || store.documents().open_collection(&spec)).await?;
    if *info.uid != *uid {
        let what = "the collection was dropped and made again: its transactions are lost; \
                    open it again to claim it";
        return Err(Error::damaged(what).into());
    }
    Ok(())
}

/// A scan through all collections and partitions of a domain.
pub(crate) struct DomainScan<'a> {
    context: &'a Context,
    store: &'a StoreAccess,
    table: &'a Table,
    parts: VecDeque<ScanPart>,
    /// The collection or partition that is being scanned.
    at: Option<(ScanPart, Pages<'a>)>,
    complete: bool,
    pub(crate) faults: Faults,
}

impl<'a> DomainScan<'a> {
    /// Starts a scan.
    ///
    /// A complete scan refreshes the collections first. Other scans find missed documents later.
    pub(crate) fn new(
        context: &'a Context,
        store: &'a StoreAccess,
        table: &'a Table,
        document: &DomainDocument,
        complete: bool,
    ) -> Self {
        let collections = document.collections.iter().map(|(name, uid)| {
            let (name, uid) = (name.clone(), uid.clone());
            ScanPart::Collection { name, uid }
        });
        let partitions = document
            .partitions
            .iter()
            .map(|(day, name)| ScanPart::Partition { day: *day, name: name.clone() });
        let parts = collections.chain(partitions).collect();
        let faults = Faults::default();
        Self { context, store, table, parts, at: None, complete, faults }
    }

    /// Returns the suspects of the next page, or `None` at the end.
    ///
    /// The scan of a collection may begin again, and show documents twice.
    pub(crate) async fn next(&mut self) -> Option<Vec<Suspect>> {
        loop {
            let (part, mut pages) = match self.at.take() {
                Some(at) => at,
                None => {
                    let part = self.parts.pop_front()?;
                    let pages = self.store.pages(part.name(), part.filter(), PAGE);
                    (part, pages)
                }
            };
            match self.page(&part, &mut pages).await {
                Ok(Some(documents)) => {
                    let suspects = self.suspects(&part, documents);
                    self.at = Some((part, pages));
                    return Some(suspects);
                }
                Ok(None) => {}
                Err(error) => self.note(&part, error).await,
            }
        }
    }

    async fn page(
        &self,
        part: &ScanPart,
        pages: &mut Pages<'_>,
    ) -> Result<Option<Documents>, AttemptError> {
        if !pages.is_at_beginning() {
            match pages.next().await {
                // The scan began again without an answer: the collection gets a new deadline.
                Err(error)
                    if error.kind == StoreErrorKind::Unavailable && pages.is_at_beginning() => {}
                page => return page.map_err(|error| Error::from(error).into()),
            }
        }
        let (context, store) = (self.context, self.store);
        // An unreadable collection must not use up the time of the rest.
        let deadline = context.deadline(2 * context.config.lease);
        let name = part.name();
        if let ScanPart::Collection { uid, .. } = part {
            confirm_incarnation(store, name, uid, &deadline).await?;
        }
        if self.complete || matches!(part, ScanPart::Partition { .. }) {
            store.refresh(name, &deadline).await?;
        }
        store.next_page(pages, &deadline).await
    }

    fn suspects(&mut self, part: &ScanPart, documents: Documents) -> Vec<Suspect> {
        let mut suspects = Vec::new();
        for (key, version, source) in documents {
            let suspect = match part {
                ScanPart::Collection { .. } => view(&key, version, &source).map(|view| {
                    let holder = view.holder()?;
                    Some(Suspect { key: key.clone(), holder, state: None })
                }),
                ScanPart::Partition { .. } => read_record(&key, &source).map(|record| {
                    let (holder, state) = (record.tid, Some(record.state));
                    Some(Suspect { key: self.table.record_key(holder), holder, state })
                }),
            };
            match suspect {
                Ok(suspect) => suspects.extend(suspect),
                Err(error) => {
                    self.faults.note(&key, &error);
                }
            }
        }
        suspects
    }

    async fn note(&mut self, part: &ScanPart, error: AttemptError) {
        if let (ScanPart::Partition { day, name }, AttemptError::Fail(error)) = (part, &error)
            && error.is_not_found()
        {
            // Another janitor may have dropped the partition meanwhile.
            let deadline = self.context.deadline(self.context.config.timeout);
            match self.table.domain_document(&deadline).await {
                Ok((document, ..)) if document.partitions.get(day) != Some(name) => {}
                Ok(_) => {
                    let lost = self.table.lost_partition(*day, name);
                    self.faults.damaged.insert(Key::new(name.as_str(), "*"), lost.to_string());
                }
                Err(error) => self.faults.note_part(name, error),
            }
            return;
        }
        self.faults.note_part(part.name(), error);
    }
}
