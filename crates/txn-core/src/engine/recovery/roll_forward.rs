//! Rolls committed transactions forward, with the holders that block them.
//!
//! An apply may find another holder on a participant. The engine decides this holder first, and
//! rolls a committed holder forward first, down to a bounded depth.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::engine::apply::progress::{Applied, Apply, OnSettled, Unapplied};
use crate::engine::attempt_error::AttemptError;
use crate::engine::deadline::Deadline;
use crate::engine::holders::foreign_lock::{ForeignLock, Holding};
use crate::engine::holders::verdict::Decided;
use crate::engine::recovery::Recovery;
use crate::engine::table::own_record::OwnRecord;
use crate::error::Error;
use crate::event::Event;
use txn_protocol::document::View;
use txn_protocol::record::{Participant, Record, State};
use txn_protocol::rule::{Rule, Rules};
use txn_protocol::rules::apply::is_held_by;
use txn_protocol::rules::conflict::Requester;
use txn_store::{Key, Version};

/// The maximum depth of nested roll forwards.
///
/// At this depth the apply waits for further holders instead of resolving them.
const DEEPEST: usize = 8;

/// The result for one foreign lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resolution {
    /// The lock is void, by acknowledged writes.
    ///
    /// The holder is aborted, its day is gone, or its record does not name the document. A
    /// conditional write may replace the lock. The read of the lock is older than this verdict, and
    /// may show outdated content.
    Void,
    /// The holder was committed and is applied: read the document again.
    RolledForward,
    /// The holder may continue: wait.
    Blocked,
}

/// The result for each document of a holder.
///
/// The key of the record has an entry if the caller found the record, too. An error of one document
/// does not affect the rest.
pub(crate) type Resolutions = BTreeMap<Key, Result<Resolution, Error>>;

/// A foreign committed transaction to roll forward.
pub(crate) struct ForeignCommit {
    record: Arc<Record>,
    /// The version of the record.
    version: Version,
    /// The key of the record, if the caller found the record, too.
    record_key: Option<Key>,
    /// The locks that the caller found.
    locks: Vec<ForeignLock>,
    /// Void locks, which the record does not name.
    ///
    /// A plain client copied or restored such a document, or the record omits the lock.
    orphans: BTreeSet<Key>,
}

impl ForeignCommit {
    /// The participants to apply.
    fn wanted(&self) -> BTreeSet<Key> {
        let locked = self.locks.iter().map(|lock| &lock.key);
        let mut wanted: BTreeSet<Key> =
            locked.filter(|key| !self.orphans.contains(*key)).cloned().collect();
        if self.record_key.is_some() && self.record.state == State::Committed {
            wanted.extend(self.record.by_key().into_keys());
        }
        wanted
    }

    /// The result for each lock that the caller found.
    ///
    /// The caller reads a contended document again, and finds no lock of the holder or a new one.
    fn resolutions(&self, mut unapplied: Unapplied, contended: &BTreeSet<Key>) -> Resolutions {
        let mut resolved = Resolutions::new();
        if let Some(record) = self.record_key.as_ref().filter(|_| unapplied.is_empty()) {
            resolved.insert(record.clone(), Ok(Resolution::RolledForward));
        }
        for ForeignLock { key, .. } in &self.locks {
            let result = match unapplied.remove(key) {
                _ if self.orphans.contains(key) => Ok(Resolution::Void),
                Some(error) if !contended.contains(key) => Err(error),
                _ => Ok(Resolution::RolledForward),
            };
            resolved.insert(key.clone(), result);
        }
        if self.record_key.is_some() {
            resolved.extend(unapplied.into_iter().map(|(key, error)| (key, Err(error))));
        }
        resolved
    }
}

/// The remaining work for a holder.
pub(crate) enum HolderWork {
    /// No work.
    Done(Resolutions),
    /// Apply the committed transaction.
    RollForward(Box<Apply>, ForeignCommit),
}

impl Recovery {
    /// Decides a holder, and returns the remaining work.
    pub(crate) async fn decide_holder(
        &self,
        requester: Requester,
        holding: Holding,
        deadline: &Deadline,
    ) -> Result<HolderWork, AttemptError> {
        let decided = self.verdicts.judge(requester, &holding, deadline).await?;
        let Holding { holder, locks, includes_record, .. } = holding;
        let record_key = includes_record.then(|| self.table.record_key(holder));
        let resolution = match decided {
            None => Resolution::Blocked,
            Some(Decided::Aborted) => Resolution::Void,
            Some(Decided::Committed { record, version }) => {
                let orphans = orphans(&self.context.rules, &record, &locks);
                if !orphans.is_empty() {
                    cov_mark::hit!(lock_that_no_record_names);
                }
                let foreign = ForeignCommit { record, version, record_key, locks, orphans };
                let wanted = foreign.wanted();
                if wanted.is_empty() {
                    let (unapplied, contended) = Default::default();
                    return Ok(HolderWork::Done(foreign.resolutions(unapplied, &contended)));
                }
                let mut apply = self.applier.begin_apply(
                    foreign.record.clone(),
                    BTreeMap::new(),
                    wanted,
                    None,
                )?;
                if foreign.record_key.is_none() {
                    apply.end_at_contended();
                }
                return Ok(HolderWork::RollForward(Box::new(apply), foreign));
            }
        };
        let keys = locks.into_iter().map(|lock| lock.key).chain(record_key);
        Ok(HolderWork::Done(keys.map(|key| (key, Ok(resolution))).collect()))
    }

    /// Applies a committed transaction of this process to the wanted participants.
    ///
    /// `known`: the knowledge of the process, by acknowledged writes. `own`: its record.
    /// `on_settled`: receives documents as soon as they are applied, even if other documents are
    /// blocked.
    pub(crate) async fn apply(
        &self,
        record: &Arc<Record>,
        known: BTreeMap<Key, View>,
        wanted: BTreeSet<Key>,
        own: Option<Arc<OwnRecord>>,
        on_settled: OnSettled,
        deadline: &Deadline,
    ) -> Result<Unapplied, AttemptError> {
        let mut apply = self.applier.begin_apply(record.clone(), known, wanted, own)?;
        apply.leave_out_unwanted();
        apply.tell_settled(on_settled);
        let applied =
            self.roll_forward(Requester::NonPreempting, Box::new(apply), deadline).await?;
        Ok(applied.unapplied)
    }

    /// Rolls a foreign committed transaction forward.
    ///
    /// Marks the transaction as finished if every participant is applied.
    pub(crate) async fn roll_foreign_forward(
        &self,
        requester: Requester,
        apply: Box<Apply>,
        foreign: &ForeignCommit,
        deadline: &Deadline,
    ) -> Result<Resolutions, AttemptError> {
        let applied = self.roll_forward(requester, apply, deadline).await?;
        self.end_foreign(foreign, applied, deadline).await
    }

    async fn end_foreign(
        &self,
        foreign: &ForeignCommit,
        applied: Applied,
        deadline: &Deadline,
    ) -> Result<Resolutions, AttemptError> {
        let (record, Applied { unapplied, lost, contended }) = (&foreign.record, applied);
        if record.state == State::Committed && unapplied.is_empty() {
            cov_mark::hit!(foreign_commit_rolled_forward);
            let documents = record.participants.iter().map(Participant::key);
            let documents = documents.filter(|key| !lost.contains(key)).collect();
            let process = &record.coordinator;
            tracing::info!(tid = %record.tid, process, label = record.label.as_deref(), "rolled a commit of another process forward");
            self.context.emit(&Event::RolledForward { tid: record.tid, documents });
            self.applier.finish(record, foreign.version, deadline).await?;
        }
        Ok(foreign.resolutions(unapplied, &contended))
    }

    /// Carries out an apply on behalf of `requester`.
    ///
    /// A requester that holds locks must not wait for a younger holder, because the holder may wait
    /// for the requester. The apply resolves each blocking holder first. Outer applies wait in a
    /// list, each for the next one.
    async fn roll_forward(
        &self,
        requester: Requester,
        mut apply: Box<Apply>,
        deadline: &Deadline,
    ) -> Result<Applied, AttemptError> {
        let mut waiting: Vec<(Box<Apply>, ForeignCommit)> = Vec::new();
        self.applier.round(&mut apply, true, deadline).await?;
        loop {
            if let Some(locks) = apply.next_in_the_way() {
                match self.decide_in_the_way(requester, locks.clone(), deadline).await {
                    Ok(HolderWork::RollForward(first, foreign)) => {
                        waiting.push((std::mem::replace(&mut apply, first), foreign));
                        self.applier.round(&mut apply, waiting.len() < DEEPEST, deadline).await?;
                    }
                    Ok(HolderWork::Done(resolved)) => {
                        self.clear_blocking_locks(&mut apply, &locks, Ok(resolved)).await?;
                    }
                    Err(error) => self.clear_blocking_locks(&mut apply, &locks, Err(error)).await?,
                }
            } else if self.applier.goes_on(&mut apply, deadline).await? {
                self.applier.round(&mut apply, waiting.len() < DEEPEST, deadline).await?;
            } else {
                let applied = self.applier.end_apply(*apply);
                let Some((next, foreign)) = waiting.pop() else { return Ok(applied) };
                apply = next;
                let resolved = self.end_foreign(&foreign, applied, deadline).await;
                self.clear_blocking_locks(&mut apply, &foreign.locks, resolved).await?;
            }
        }
    }

    /// Decides a holder that blocks an apply.
    async fn decide_in_the_way(
        &self,
        requester: Requester,
        locks: Vec<ForeignLock>,
        deadline: &Deadline,
    ) -> Result<HolderWork, AttemptError> {
        let (mut holdings, busy) = self.verdicts.look_up(requester, locks, deadline).await?;
        match holdings.pop() {
            Some(holding) => self.decide_holder(requester, holding, deadline).await,
            None => {
                let blocked = |lock: ForeignLock| (lock.key, Ok(Resolution::Blocked));
                Ok(HolderWork::Done(busy.into_iter().map(blocked).collect()))
            }
        }
    }

    /// Notes the results for a blocking holder, and removes void locks.
    async fn clear_blocking_locks(
        &self,
        apply: &mut Apply,
        locks: &[ForeignLock],
        resolved: Result<Resolutions, AttemptError>,
    ) -> Result<(), AttemptError> {
        let all = |resolved: Resolutions| {
            let each = resolved.into_iter().map(|(key, result)| Ok((key, result?)));
            each.collect::<Result<BTreeMap<Key, Resolution>, Error>>().map_err(AttemptError::from)
        };
        let resolved = match resolved.and_then(all) {
            Ok(resolved) => resolved,
            Err(AttemptError::Fail(error)) => {
                // The next round handles the remaining locks.
                if let Some(lock) = locks.first() {
                    apply.give_up(&lock.key, error);
                }
                return Ok(());
            }
            Err(retry) => return Err(retry),
        };
        let is = |lock: &&ForeignLock, what| resolved.get(&lock.key) == Some(&what);
        let blocked = locks.iter().filter(|lock| is(lock, Resolution::Blocked));
        apply.wait_for(blocked, |holder| self.label_of(holder));
        let void: Vec<ForeignLock> =
            locks.iter().filter(|lock| is(lock, Resolution::Void)).cloned().collect();
        for (key, unlocked) in self.unlocker.unlock_all(&void).await {
            match unlocked {
                Ok(true) => apply.prove_absent(&key),
                Ok(false) => {}
                Err(error) => apply.give_up(&key, error),
            }
        }
        Ok(())
    }
}

/// The locks that the record does not name.
fn orphans(rules: &Rules, record: &Record, locks: &[ForeignLock]) -> BTreeSet<Key> {
    let participants = record.by_key();
    let is_named = |lock: &&ForeignLock| {
        let participant = participants.get(&lock.key).map(|index| &record.participants[*index]);
        participant.is_some_and(|participant| {
            let is_open = record.state == State::Committed;
            is_held_by(rules, participant, record.tid, is_open, &lock.view)
        })
    };
    let orphans =
        locks.iter().filter(|lock| !is_named(lock) && rules.decides(Rule::UnnamedLockVoid));
    orphans.map(|lock| lock.key.clone()).collect()
}
