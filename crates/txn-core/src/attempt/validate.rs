//! Validation: after every lock is acknowledged, is everything that was only read still what it was?

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Attempt, ReadEntry};
use crate::document::View;
use crate::engine::From;
use crate::error::Error;
use crate::guard::Guard;
use crate::resolve::{Lock, Met};
use crate::rules::conflict::Requester;
use crate::rules::validate::{Validity, validity};
use crate::stop::{Cause, Hindrance, Stop};
use crate::store::{Key, Outcome, Write, WriteOp};

/// A transaction that wounds nobody looks this often at a lock before it starts again.
const MOST_WAITS: u32 = 16;

impl Attempt {
    /// Validates all that was read: what is locked by its lock, the rest by its version.
    pub(crate) async fn validate_reads(self: &Arc<Self>, requester: Requester) -> Result<(), Stop> {
        let reads = {
            let (working, locks) = (self.working.lock(), self.locks.lock());
            let free = working.reads.iter().filter(|(key, _)| !locks.held.contains_key(*key));
            free.map(|(key, read)| (key.clone(), read.clone())).collect()
        };
        self.validate(reads, requester).await?;
        self.verify_locks().await
    }

    /// Validates reads. A transaction that holds locks meets conflicts by age, and takes over the locks of those
    /// that it puts aside; one that holds nothing wounds nobody. The caller holds `self.locking`, if it holds locks.
    #[tracing::instrument(name = "validate", level = "debug", skip_all, fields(tid = %self.tid, attempt = self.tid.attempt()))]
    pub(super) async fn validate(
        self: &Arc<Self>,
        mut reads: BTreeMap<Key, ReadEntry>,
        requester: Requester,
    ) -> Result<(), Stop> {
        let engine = &self.engine;
        if !Guard::ValidateReads.stands() {
            return Ok(());
        }
        let mut backoff = engine.backoff();
        // An absence has no version: it is verified first, alone; more than one are locked.
        let absent = reads.iter().find(|(_, read)| read.observed.image.is_none());
        if let Some(key) = absent.map(|(key, _)| key.clone())
            && let Some(read) = reads.remove(&key)
        {
            self.validate_round(BTreeMap::from([(key, read)]), requester, &mut backoff).await?;
        }
        self.validate_round(reads, requester, &mut backoff).await
    }

    async fn validate_round(
        self: &Arc<Self>,
        mut reads: BTreeMap<Key, ReadEntry>,
        requester: Requester,
        backoff: &mut crate::clock::Backoff,
    ) -> Result<(), Stop> {
        let engine = &self.engine;
        let mut waits = 0;
        while !reads.is_empty() {
            let verifies: Vec<Write> = reads
                .iter()
                .filter(|(_, read)| read.observed.holder.is_none())
                .map(|(key, read)| Write::new(key.clone(), WriteOp::Verify(read.observed.version)))
                .collect();
            let mut hindrance = None;
            let mut doubtful: Vec<Key> = reads
                .iter()
                .filter(|(_, read)| read.observed.holder.is_some())
                .map(|(key, _)| key.clone())
                .collect();
            if !verifies.is_empty() {
                let outcomes = engine.write_all(&verifies).await;
                for (write, outcome) in verifies.into_iter().zip(outcomes) {
                    match outcome {
                        Outcome::Holds => {
                            reads.remove(&write.key);
                        }
                        Outcome::Conflict => doubtful.push(write.key),
                        Outcome::Rejected(why)
                        | Outcome::RejectedInDoubt(why)
                        | Outcome::Unknown(why) => {
                            hindrance = Some(Hindrance::Store(why));
                        }
                        refused => {
                            let error =
                                Error::from_refused(&refused, &write.key, "validate a read");
                            return Err(error.in_transaction(self.tid).into());
                        }
                    }
                }
            }
            let views = engine.views(&doubtful, From::Primary, &self.patience).await?;
            let seen = doubtful.into_iter().zip(views).collect();
            if let Some(key) = self.revalidate(seen, &mut reads, requester).await? {
                waits += 1;
                if requester == Requester::Patient && waits > MOST_WAITS {
                    return Err(Stop::Retry(Cause::Waited(key)));
                }
                hindrance = Some(Hindrance::Others(key));
            }
            if !reads.is_empty() {
                let hindrance = hindrance.unwrap_or_else(|| {
                    Hindrance::Store("its documents are being changed".to_owned())
                });
                engine.pause(&self.patience, backoff, hindrance).await?;
            }
        }
        Ok(())
    }

    /// For a transaction that only locked reads and so has no commit that a wound would compete with: each
    /// lock that still stands now has stood since before the last one was taken.
    pub(super) async fn verify_locks(&self) -> Result<(), Stop> {
        let engine = &self.engine;
        if !Guard::VerifyReadLocks.stands() {
            return Ok(());
        }
        let held = self.locks.lock().held.clone();
        let verify = |version| WriteOp::Verify(Some(version));
        let mut verifies: Vec<Write> =
            held.into_iter().map(|(key, lock)| Write::new(key, verify(lock.version))).collect();
        let mut backoff = engine.backoff();
        while !verifies.is_empty() {
            let outcomes = engine.write_all(&verifies).await;
            let mut left = Vec::new();
            let mut why = String::new();
            for (write, outcome) in verifies.into_iter().zip(outcomes) {
                match outcome {
                    Outcome::Holds => {}
                    Outcome::Conflict => return Err(Stop::Retry(Cause::Wounded)),
                    Outcome::Rejected(reason)
                    | Outcome::RejectedInDoubt(reason)
                    | Outcome::Unknown(reason) => {
                        why = reason;
                        left.push(write);
                    }
                    refused => {
                        let error = Error::from_refused(&refused, &write.key, "verify a lock");
                        return Err(error.in_transaction(self.tid).into());
                    }
                }
            }
            if !left.is_empty() {
                engine.pause(&self.patience, &mut backoff, Hindrance::Store(why)).await?;
            }
            verifies = left;
        }
        Ok(())
    }

    /// A second look at reads. Returns one of those whose holders have to be waited for.
    async fn revalidate(
        self: &Arc<Self>,
        seen: BTreeMap<Key, View>,
        reads: &mut BTreeMap<Key, ReadEntry>,
        requester: Requester,
    ) -> Result<Option<Key>, Stop> {
        let engine = &self.engine;
        let mut locks = Vec::new();
        for (key, view) in seen {
            let Some(read) = reads.get_mut(&key) else { continue };
            match validity(&read.observed, &view, Some(self.tid)) {
                Validity::Valid => drop(reads.remove(&key)),
                Validity::Held(_)
                    if requester == Requester::Patient && !Guard::ReadOnlyWaits.stands() =>
                {
                    reads.remove(&key);
                }
                Validity::Held(holder) => {
                    // The lock has to be looked at again, whoever held it at first.
                    read.observed.holder = Some(holder);
                    locks.push(Lock { key, view });
                }
                Validity::Changed => return Err(Stop::Retry(Cause::Changed(key))),
            }
        }
        let met = engine.meet_all(requester, locks.clone(), &self.patience).await?;
        locks.retain(|lock| met.get(&lock.key) == Some(&Met::Void));
        if requester == Requester::Patient {
            for unlocked in engine.unlock_all(&locks).await.into_values() {
                unlocked?;
            }
        } else if !locks.is_empty() {
            // Only set free they would be locked again before the next look, by the next attempt of the one that was
            // wounded; so whoever wounds takes what it wants.
            let taken = locks.into_iter().map(|Lock { key, .. }| (key.clone(), reads.remove(&key)));
            Box::pin(self.acquire(taken.collect(), Vec::new())).await?;
        }
        let is_busy = |(key, met): (Key, Met)| (met == Met::Busy).then_some(key);
        Ok(met.into_iter().find_map(is_busy))
    }
}
