//! Locked documents, and the story of one document.

use std::collections::BTreeMap;

use super::Admin;
use super::report::{
    CommitReport, DocumentLock, DocumentName, DocumentReport, Fault, LockStanding, LockedDocuments,
    TransactionState,
};
use super::scan::{
    FaultList, Holder, Smallest, domain_document, is_overdue_without_record, lease_ms, scan, since,
    started_ms,
};
use super::signals::process_of;
use crate::engine::Engine;
use crate::engine::attempt_error::AttemptError;
use crate::engine::deadline::Deadline;
use crate::engine::store::store_access::{ReadPreference, view};
use crate::error::{Error, ErrorKind, Result};
use txn_protocol::document::{Stored, View};
use txn_protocol::ids::{AttemptId, CommitVersion};
use txn_protocol::rules::apply::is_held_by;
use txn_store::{CollectionSpec, Filter, Key, Role, Source, Version, fields};

/// The number of records in one read. Records hold contents, so few of them are in memory.
const READS: usize = 50;

impl Admin<'_> {
    /// Lists locked documents with their holders, oldest holder first. Changes nothing.
    ///
    /// The list has at most `limit` locks, and at most 10,000. The scan reads all locked documents,
    /// and keeps no contents. A lock whose record cannot be read is in the list, with the reason.
    ///
    /// # Errors
    /// The errors of the store for the domain document. A collection that cannot be read is a fault
    /// of the answer.
    pub async fn locks(self, limit: usize) -> Result<LockedDocuments> {
        let engine = self.engine;
        let document = domain_document(engine).await?;
        let mut oldest = Smallest::new(limit);
        let mut faults = FaultList::new(limit);
        for name in document.collections.keys() {
            let visit =
                |key: Key, version: Version, source: Source| match view(&key, version, &source) {
                    Ok(view) => {
                        if let Some(holder) = view.holder() {
                            oldest.add((holder, key), without_content(view));
                        }
                    }
                    Err(error) => faults.note(&key, &error),
                };
            let locked = Filter::Exists(fields::TRANSACTION_TID);
            if let Err(error) = scan(engine, name, locked, visit).await {
                faults.note(name, &error);
            }
        }
        let truncated = oldest.is_truncated();
        let mut by_holder: BTreeMap<AttemptId, Vec<(Key, View)>> = BTreeMap::new();
        for ((holder, key), view) in oldest.into_entries() {
            by_holder.entry(holder).or_default().push((key, view));
        }
        let mut locks = Vec::new();
        let tids: Vec<AttemptId> = by_holder.keys().copied().collect();
        for some in tids.chunks(READS) {
            for (tid, holder) in holders(engine, some).await {
                let held = by_holder.remove(&tid).unwrap_or_default();
                locks.extend(held.iter().map(|(key, view)| lock(engine, key, view, tid, &holder)));
            }
        }
        self.name_processes(&mut locks, &mut faults).await;
        Ok(LockedDocuments { locks, truncated, faults: faults.into_vec() })
    }

    /// Reports one document: its lock, the holder, and its commits.
    ///
    /// The call changes nothing, and asks the primary. `collection` is a physical name or an alias.
    ///
    /// # Errors
    /// - [`ErrorKind::Misconfigured`] if the collection does not exist, or belongs to no
    ///   transaction of this domain.
    /// - [`ErrorKind::Damaged`] if the document or the record of its holder cannot be read.
    /// - The errors of the store.
    pub async fn document(
        self,
        collection: &str,
        id: &str,
        routing: Option<&str>,
    ) -> Result<DocumentReport> {
        let engine = self.engine;
        let deadline = engine.context.deadline(engine.context.config.timeout);
        let role = Role::Data { owner: None };
        let spec =
            CollectionSpec { name: collection.to_owned(), role, create: false, mappings: None };
        let opened = engine
            .store
            .retry_unavailable(&deadline, || engine.store.documents().open_collection(&spec))
            .await;
        let info = opened.map_err(AttemptError::into_error)?;
        if !domain_document(engine).await?.collections.contains_key(&*info.name) {
            let message = format!(
                "the collection {:?} does not belong to this domain: `overview` lists its collections",
                info.name
            );
            return Err(Error::new(ErrorKind::Misconfigured, message));
        }
        let key = Key { routing: routing.map(Into::into), ..Key::new(info.name.clone(), id) };
        let keys = std::slice::from_ref(&key);
        engine.reads.check_readable(keys)?;
        let views = engine.store.read_documents(keys, ReadPreference::Primary, &deadline).await;
        let views = views.map_err(AttemptError::into_error)?;
        let document = DocumentName::from(&key);
        let Some(view @ View::Present { stored, .. }) = views.first() else {
            let (commit, earlier, lock) = (None, Vec::new(), None);
            return Ok(DocumentReport {
                document,
                exists: false,
                placeholder: false,
                commit,
                earlier,
                lock,
            });
        };
        let lock = match stored.lock {
            Some(holder) => Some(self.lock_of(&key, view, holder, &deadline).await?),
            None => None,
        };
        let earlier =
            stored.recent.iter().filter(|version| Some(**version) != stored.commit_version);
        Ok(DocumentReport {
            document,
            exists: !stored.absent,
            placeholder: stored.absent,
            commit: stored.commit_version.map(commit),
            earlier: earlier.copied().map(commit).collect(),
            lock,
        })
    }
}

impl Admin<'_> {
    /// Describes the lock of one document by the record of its holder.
    async fn lock_of(
        self,
        key: &Key,
        view: &View,
        holder: AttemptId,
        deadline: &Deadline,
    ) -> Result<DocumentLock> {
        let found = self.engine.table.record_of(holder, ReadPreference::Primary, deadline).await;
        let found = found.map_err(AttemptError::into_error)?;
        let found = Ok((found.state().into(), found.record));
        let mut locks = [lock(self.engine, key, view, holder, &found)];
        self.name_processes(&mut locks, &mut FaultList::new(0)).await;
        let [lock] = locks;
        Ok(lock)
    }

    /// Names the processes of locks without a record. The names come from the registry of
    /// processes.
    async fn name_processes(self, locks: &mut [DocumentLock], faults: &mut FaultList) {
        if locks.iter().all(|lock| lock.process.is_some()) {
            return;
        }
        let registered = self.processes_or_fault(faults).await;
        for lock in locks.iter_mut().filter(|lock| lock.process.is_none()) {
            if let Some((process, application)) = process_of(&registered, lock.holder.process()) {
                lock.process = Some(process);
                lock.application = application.map(ToOwned::to_owned);
            }
        }
    }
}

/// Returns the reserved fields of a view. The reserved fields decide the meaning of a lock.
fn without_content(view: View) -> View {
    match view {
        View::Present { version, stored, .. } => {
            let Stored { lock, commit_version, absent, .. } = stored;
            let stored = Stored { lock, commit_version, absent, ..Stored::default() };
            View::Present { version, source: "".into(), stored }
        }
        View::Absent => View::Absent,
    }
}

/// Reads the records of holders, in the order of their tids.
///
/// One damaged record fails the read of all. So a failed read is repeated in halves.
async fn holders(engine: &Engine, tids: &[AttemptId]) -> Vec<(AttemptId, Result<Holder, Fault>)> {
    let deadline = engine.context.deadline(2 * engine.context.config.lease);
    let mut holders = Vec::new();
    let mut open = vec![tids];
    while let Some(some) = open.pop() {
        let all = some.iter().copied().collect();
        match engine.table.records(&all, ReadPreference::AnyCopy, &deadline).await {
            Ok(found) => {
                let found = found.into_iter();
                holders.extend(found.map(|(tid, f)| (tid, Ok((f.state().into(), f.record)))));
            }
            Err(error) => match some {
                [tid] => {
                    let record = engine.table.record_key(*tid);
                    holders.push((*tid, Err(Fault::of(&record, &error.into_error()))));
                }
                some => {
                    let (first, second) = some.split_at(some.len() / 2);
                    open.extend([second, first]);
                }
            },
        }
    }
    holders
}

fn lock(
    engine: &Engine,
    key: &Key,
    view: &View,
    holder: AttemptId,
    found: &Result<Holder, Fault>,
) -> DocumentLock {
    let (state, record) = match found {
        Ok((state, record)) => (*state, record.as_deref()),
        Err(_) => (TransactionState::Unreadable, None),
    };
    let is_open = state == TransactionState::Committed;
    let standing = match state {
        TransactionState::NoRecord | TransactionState::Pending => LockStanding::Undecided,
        TransactionState::Committed | TransactionState::Finished => {
            let named = record.and_then(|record| {
                let index = *record.by_key().get(key)?;
                let participant = record.participants.get(index)?;
                Some(is_held_by(&engine.context.rules, participant, holder, is_open, view))
            });
            if named == Some(true) { LockStanding::Unapplied } else { LockStanding::Void }
        }
        TransactionState::Aborted | TransactionState::Forgotten => LockStanding::Void,
        TransactionState::Unreadable => LockStanding::Unknown,
    };
    let unchanged_ms = record.map(|record| since(engine, record.modified_at));
    let overdue = match (standing, unchanged_ms) {
        (LockStanding::Undecided, Some(unchanged)) => unchanged > lease_ms(engine, holder),
        (LockStanding::Undecided, None) => is_overdue_without_record(engine, holder),
        _ => false,
    };
    DocumentLock {
        document: DocumentName::from(key),
        holder,
        state,
        standing,
        age_ms: since(engine, started_ms(holder)),
        unchanged_ms,
        overdue,
        unreadable: found.as_ref().err().cloned(),
        process: record.map(|record| record.coordinator.clone()),
        application: record.and_then(|record| record.application.clone()),
        label: record.and_then(|record| record.label.as_deref().map(ToOwned::to_owned)),
    }
}

fn commit(version: CommitVersion) -> CommitReport {
    CommitReport {
        version,
        time_ms: u64::try_from(version.unix_time().as_millis()).unwrap_or(u64::MAX),
        process: version.process().to_string(),
    }
}
