//! The commits of each document, in a chain of records.
//!
//! A record names, for each document, the commit that its transaction replaced. A document whose
//! content is a replaced commit was put back, and a commit that two transactions replaced is a lost
//! update. Transactions that write a single document leave no record, so a chain may have gaps.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use super::Admin;
use super::report::{CommitCheck, DocumentName, LossKind, LostCommit};
use super::scan::{FaultList, domain_document, scan};
use crate::engine::Engine;
use crate::engine::attempt_error::AttemptError;
use crate::engine::store::pages::PAGE;
use crate::engine::store::store_access::{Look, ReadPreference};
use crate::engine::table::format::read_record;
use crate::error::{Error, Result};
use txn_protocol::document::View;
use txn_protocol::ids::{AttemptId, CommitVersion, Day};
use txn_protocol::record::{Op, Record, State};
use txn_store::{Filter, Key, fields};

/// The maximum number of writes that one call compares.
const MOST_WRITES: usize = 1_000_000;

/// The write of a document by a finished transaction.
#[derive(Clone, Copy, Debug)]
struct Write {
    tid: AttemptId,
    commit: CommitVersion,
    /// The commit whose content was replaced; `None` if no transaction had written the document.
    before: Option<CommitVersion>,
    deletes: bool,
}

/// The writes of each document.
#[derive(Default)]
struct Chains {
    of: HashMap<Key, Vec<Write>>,
    commits: usize,
    writes: usize,
}

impl Chains {
    /// Adds the writes of a record. Returns `false` if there is no room left.
    fn add(&mut self, record: &Record, is_member: impl Fn(&Key) -> bool) -> bool {
        let Some(commit) = record.commit_version else { return true };
        if self.writes + record.participants.len() > MOST_WRITES {
            return false;
        }
        (self.commits, self.writes) = (self.commits + 1, self.writes + record.participants.len());
        for it in record.participants.iter().filter(|it| it.op != Op::Read) {
            let (key, deletes) = (it.key(), it.op == Op::Delete);
            if !is_member(&key) {
                continue;
            }
            let write = Write { tid: record.tid, commit, before: it.before, deletes };
            let writes = self.of.entry(key).or_default();
            // A scan may show a record twice.
            if !writes.iter().any(|known| known.tid == write.tid) {
                writes.push(write);
            }
        }
        true
    }
}

/// The commits whose content another transaction replaced without having seen it.
fn replaced_unseen(writes: &[Write]) -> impl Iterator<Item = (Write, LossKind)> {
    let mut by_before: BTreeMap<CommitVersion, Write> = BTreeMap::new();
    let mut lost = Vec::new();
    for write in writes {
        let Some(before) = write.before else { continue };
        if let Some(other) = by_before.insert(before, *write) {
            let (first, second) =
                if other.commit < write.commit { (other, *write) } else { (*write, other) };
            lost.push((first, LossKind::ReplacedUnseen { by: second.tid }));
        }
    }
    lost.into_iter()
}

/// The last commit by the chain, unless a deletion may explain any state.
fn last(writes: &[Write]) -> Option<Write> {
    let replaced: BTreeSet<_> = writes.iter().filter_map(|write| write.before).collect();
    let mut last = writes.iter().filter(|write| !replaced.contains(&write.commit));
    match last.clone().any(|write| write.deletes) {
        true => None,
        false => last.next_back().copied(),
    }
}

/// The commit that the document has lost by its present state.
fn lost_by_state(writes: &[Write], now: &View) -> Option<(Write, LossKind)> {
    match now {
        View::Present { stored, .. } if !stored.absent => match stored.commit_version {
            Some(version) => {
                let replaced = |write: &&Write| write.before == Some(version);
                writes.iter().find(replaced).map(|write| (*write, LossKind::PutBack))
            }
            None => last(writes).map(|write| (write, LossKind::Overwritten)),
        },
        View::Present { .. } | View::Absent => last(writes).map(|write| (write, LossKind::Deleted)),
    }
}

impl Admin<'_> {
    /// Compares documents with the finished transactions of the last `window`. Changes nothing.
    ///
    /// Finds commits whose content is gone, although no later transaction replaced or deleted it: a
    /// plain client or a restored copy put older content back, overwrote the document, or deleted
    /// it. Content that a plain client changed without touching the reserved fields is not found.
    ///
    /// The answer lists at most `limit` commits. The call reads all finished records of these days,
    /// and each document once, from the primary. It compares at most 1,000,000 writes.
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
        let (chains, mut truncated) = chains(engine, since_ms, &mut faults).await?;
        let mut lost = Vec::new();
        let mut absent: BTreeMap<Key, Write> = BTreeMap::new();
        for (key, writes) in &chains.of {
            lost.extend(replaced_unseen(writes).map(|(write, kind)| report(key, write, kind)));
        }
        let keys: Vec<Key> = chains.of.keys().cloned().collect();
        for keys in keys.chunks(PAGE) {
            let looks = engine.store.look_at(keys, ReadPreference::Primary).await;
            for (key, look) in keys.iter().zip(looks) {
                let now = match look {
                    Look::Seen(view) => view,
                    Look::Missing => {
                        faults.note(key, &Error::unavailable("the collection is missing").at(key));
                        continue;
                    }
                    Look::Later(why) => {
                        faults.note(key, &Error::unavailable(why).at(key));
                        continue;
                    }
                    Look::Broken(error) => {
                        faults.note(key, &error);
                        continue;
                    }
                };
                match lost_by_state(&chains.of[key], &now) {
                    Some((write, LossKind::Deleted)) => {
                        absent.insert(key.clone(), write);
                    }
                    Some((write, kind)) => lost.push(report(key, write, kind)),
                    None => {}
                }
            }
        }
        let explained = deletions(engine, &absent, &mut faults).await;
        let absent = absent.iter().filter(|(key, _)| !explained.contains(*key));
        lost.extend(absent.map(|(key, write)| report(key, *write, LossKind::Deleted)));
        lost.sort();
        truncated |= lost.len() > limit;
        lost.truncate(limit);
        let (commits, documents) = (chains.commits, chains.of.len());
        Ok(CommitCheck { commits, documents, lost, truncated, faults: faults.into_vec() })
    }
}

fn report(key: &Key, write: Write, kind: LossKind) -> LostCommit {
    LostCommit { document: DocumentName::from(key), tid: write.tid, kind }
}

/// Reads the finished records since a time. Returns whether some did not fit.
async fn chains(engine: &Engine, since_ms: u64, faults: &mut FaultList) -> Result<(Chains, bool)> {
    let document = domain_document(engine).await?;
    // A transaction belongs to the day of its start, and may end on the next one.
    let first = Day::of_unix_time(Duration::from_millis(since_ms)).plus(-1);
    // Collections that were released since do not belong to the domain any more.
    let is_member = |key: &Key| document.collections.contains_key(&*key.collection);
    let (mut chains, mut truncated) = (Chains::default(), false);
    for (_, name) in document.partitions.range(first..) {
        let finished = Filter::any_of(fields::STATE, [State::FINISHED]);
        let mut damaged = Vec::new();
        let visit = |key: Key, _, source: txn_store::Source| match read_record(&key, &source) {
            Ok(record) if record.state == State::Finished && record.modified_at >= since_ms => {
                truncated |= !chains.add(&record, is_member);
            }
            Ok(_) => {}
            Err(error) => damaged.push((key, error)),
        };
        let scanned = scan(engine, name, finished, visit).await;
        damaged.iter().for_each(|(key, error)| faults.note(key, error));
        if let Err(error) = scanned {
            faults.note(name, &error);
        }
    }
    Ok((chains, truncated))
}

/// The absent documents that later transactions deleted, by their records.
async fn deletions(
    engine: &Engine,
    absent: &BTreeMap<Key, Write>,
    faults: &mut FaultList,
) -> BTreeSet<Key> {
    let Some(commit) = absent.values().map(|write| write.commit).min() else {
        return BTreeSet::new();
    };
    let deadline = engine.context.deadline(2 * engine.context.config.lease);
    match engine.applier.deleted_since(&absent.keys().collect(), commit, &deadline).await {
        Ok(deleted) => deleted,
        Err(error) => {
            faults.note("the records of later deletions", &AttemptError::into_error(error));
            absent.keys().cloned().collect()
        }
    }
}
