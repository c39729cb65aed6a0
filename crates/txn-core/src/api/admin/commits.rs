//! Finished commits whose content is gone.
//!
//! A record names, for each document, its commit and the commit that it replaced. Commits of a
//! document grow until a transaction deletes the document. So a document with an older commit was
//! put back, and two transactions that replaced the same commit are a lost update. A transaction
//! that writes a single document leaves no record, and is not checked.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::Admin;
use super::report::{CommitCheck, DocumentName, LossKind, LostCommit};
use super::scan::{FaultList, deleted_since, domain_document, scan, seen};
use crate::engine::Engine;
use crate::engine::store::pages::PAGE;
use crate::engine::store::store_access::ReadPreference;
use crate::engine::table::format::read_record;
use crate::error::Result;
use txn_protocol::document::View;
use txn_protocol::ids::{AttemptId, CommitVersion, Day};
use txn_protocol::record::{Op, Record, State};
use txn_store::{Filter, Key, Source, fields};

/// The maximum number of writes that one call compares.
const MOST_WRITES: usize = 1_000_000;

/// The longest assumed duration of a transaction. Its record is in the partition of its start.
const LONGEST: Duration = Duration::from_secs(3_600);

/// The write of a document by a finished transaction.
#[derive(Clone, Copy, Debug)]
struct Write {
    tid: AttemptId,
    commit: CommitVersion,
    /// The replaced commit; `None` if no transaction had written the document.
    before: Option<CommitVersion>,
    deletes: bool,
    /// The incarnation of the collection; zero if the store has none.
    incarnation: u64,
}

/// The writes of one document.
#[derive(Default)]
struct Writes(BTreeMap<CommitVersion, Write>);

impl Writes {
    /// The last write; `None` after a deletion, which explains any state.
    fn last(&self) -> Option<&Write> {
        self.0.values().next_back().filter(|write| !write.deletes)
    }

    /// The commits that another transaction replaced without having seen them.
    fn replaced_unseen(&self) -> Vec<(Write, LossKind)> {
        let mut by_before: HashMap<CommitVersion, Write> = HashMap::new();
        let mut lost = Vec::new();
        for write in self.0.values() {
            let replaced = write.before.and_then(|before| by_before.insert(before, *write));
            if let Some(earlier) = replaced {
                lost.push((earlier, LossKind::ReplacedUnseen { by: write.tid }));
            }
        }
        lost
    }

    /// The commit that is missing from the present document.
    ///
    /// A later deletion may explain the state.
    fn missing_from(&self, now: &View) -> Option<(Write, LossKind)> {
        let last = self.last()?;
        let View::Present { version, stored, .. } = now else {
            return Some((*last, LossKind::Deleted));
        };
        let is_elsewhere = last.incarnation != 0
            && version.incarnation != 0
            && last.incarnation != version.incarnation;
        // A finished transaction whose lock is still there applies as before.
        let is_unapplied = self.0.values().any(|write| stored.lock == Some(write.tid));
        match stored.commit_version {
            _ if is_elsewhere || is_unapplied => None,
            _ if stored.absent => Some((*last, LossKind::Deleted)),
            None => Some((*last, LossKind::Overwritten)),
            Some(present) if present < last.commit => {
                let lost = self.0.values().find(|write| write.commit > present);
                lost.map(|write| (*write, LossKind::PutBack))
            }
            Some(_) => None,
        }
    }
}

/// The writes of each document.
#[derive(Default)]
struct Chains {
    of: HashMap<Key, Writes>,
    commits: usize,
    writes: usize,
    /// Whether there were more writes.
    incomplete: bool,
}

impl Chains {
    /// Reads the finished records since a time, of collections of the domain.
    async fn read(engine: &Engine, since_ms: u64, faults: &mut FaultList) -> Result<Self> {
        let document = domain_document(engine).await?;
        let since = Duration::from_millis(since_ms);
        let first = Day::of_unix_time(since.saturating_sub(LONGEST));
        // Collections that were released since do not belong to the domain any more.
        let is_member = |name: &str| document.collections.contains_key(name);
        let mut chains = Self::default();
        for (_, name) in document.partitions.range(first..) {
            let finished = Filter::any_of(fields::STATE, [State::FINISHED]);
            let visit = |key: Key, _, source: Source| match read_record(&key, &source) {
                Ok(record) if record.state == State::Finished && record.modified_at >= since_ms => {
                    chains.add(&record, is_member);
                }
                Ok(_) => {}
                Err(error) => faults.note(&key, &error),
            };
            if let Err(error) = scan(engine, name, finished, visit).await {
                faults.note(name, &error);
            }
        }
        Ok(chains)
    }

    fn add(&mut self, record: &Record, is_member: impl Fn(&str) -> bool) {
        let Some(commit) = record.commit_version else { return };
        let written = record.participants.iter();
        let written = written.filter(|it| it.op != Op::Read && is_member(&it.collection));
        if self.writes + written.clone().count() > MOST_WRITES {
            self.incomplete = true;
            return;
        }
        let mut is_new = false;
        for it in written {
            let (tid, before, deletes) = (record.tid, it.before, it.op == Op::Delete);
            let write = Write { tid, commit, before, deletes, incarnation: it.incarnation() };
            // A scan may show a record twice.
            if self.of.entry(it.key()).or_default().0.insert(commit, write).is_none() {
                self.writes += 1;
                is_new = true;
            }
        }
        self.commits += usize::from(is_new);
    }

    /// Compares the writes with the present documents.
    async fn compare(&self, engine: &Engine, faults: &mut FaultList) -> Vec<LostCommit> {
        let mut lost: Vec<LostCommit> = Vec::new();
        let mut missing: BTreeMap<&Key, (Write, LossKind)> = BTreeMap::new();
        let documents: Vec<(&Key, &Writes)> = self.of.iter().collect();
        for part in documents.chunks(PAGE) {
            let keys: Vec<Key> = part.iter().map(|(key, _)| (*key).clone()).collect();
            let looks = engine.store.look_at(&keys, ReadPreference::Primary).await;
            for ((key, writes), look) in part.iter().zip(looks) {
                let unseen = writes.replaced_unseen();
                lost.extend(unseen.into_iter().map(|(write, kind)| report(key, write, kind)));
                match seen(key, look) {
                    Ok(now) => {
                        missing.extend(writes.missing_from(&now).map(|found| (*key, found)));
                    }
                    Err(error) => faults.note(key, &error),
                }
            }
        }
        let commits = missing.iter().map(|(key, (write, _))| (*key, write.commit)).collect();
        if let Some(deleted) = deleted_since(engine, &commits, faults).await {
            let unexplained = missing.iter().filter(|(key, _)| !deleted.contains(**key));
            lost.extend(unexplained.map(|(key, (write, kind))| report(key, *write, *kind)));
        }
        lost.sort();
        lost
    }
}

impl Admin<'_> {
    /// Compares documents with the finished transactions of the last `window`. Changes nothing.
    ///
    /// Finds commits whose content is gone, although no later transaction replaced or deleted it: a
    /// plain client or a restored copy put older content back, overwrote the document, or deleted
    /// it. Transactions that write a single document have no record, and are not checked. Content
    /// that a plain client changed without touching the reserved fields is not found.
    ///
    /// The answer lists at most `limit` commits. The call reads all finished records of the days
    /// from the window on, with their contents, and each written document once from the primary.
    /// The call compares at most 1,000,000 writes.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use txn_core::{Domain, Error};
    /// # async fn look(domain: &Domain) -> Result<(), Error> {
    /// let check = domain.admin().check_commits(Duration::from_secs(3_600), 100).await?;
    /// for lost in &check.lost {
    ///     println!("{}: {:?}", lost.document, lost.kind);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The errors of the store for the domain document. A part that cannot be read is a fault of
    /// the answer.
    pub async fn check_commits(self, window: Duration, limit: usize) -> Result<CommitCheck> {
        let engine = self.engine;
        let mut faults = FaultList::new(limit);
        let window_ms = u64::try_from(window.as_millis()).unwrap_or(u64::MAX);
        let since_ms = engine.time.unix_millis().saturating_sub(window_ms);
        let chains = Chains::read(engine, since_ms, &mut faults).await?;
        let mut lost = chains.compare(engine, &mut faults).await;
        let truncated = lost.len() > limit;
        lost.truncate(limit);
        Ok(CommitCheck {
            commits: chains.commits,
            documents: chains.of.len(),
            lost,
            truncated,
            incomplete: chains.incomplete,
            faults: faults.into_vec(),
        })
    }
}

fn report(key: &Key, write: Write, kind: LossKind) -> LostCommit {
    LostCommit { document: DocumentName::from(key), tid: write.tid, kind }
}
