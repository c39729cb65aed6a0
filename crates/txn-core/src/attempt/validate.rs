//! Validation: after every lock is acknowledged, is everything that was only read still what it was?

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Attempt, ReadEntry};
use crate::document::View;
use crate::engine::From;
use crate::error::Error;
use crate::guard::Guard;
use crate::resolve::Met;
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
            for (key, view) in doubtful.into_iter().zip(views) {
                if self.revalidate(&key, &view, &mut reads, requester).await? {
                    continue;
                }
                waits += 1;
                if requester == Requester::Patient && waits > MOST_WAITS {
                    return Err(Stop::Retry(Cause::Waited(key)));
                }
                if let Some(holder) = reads.get(&key).and_then(|read| read.observed.holder) {
                    self.refuse_to_wait_for_oneself(&key, holder)?;
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

    /// A second look at one read. Returns whether nobody has to be waited for.
    async fn revalidate(
        self: &Arc<Self>,
        key: &Key,
        view: &View,
        reads: &mut BTreeMap<Key, ReadEntry>,
        requester: Requester,
    ) -> Result<bool, Stop> {
        let engine = &self.engine;
        let Some(read) = reads.get_mut(key) else { return Ok(true) };
        match (validity(&read.observed, view, Some(self.tid)), view) {
            (Validity::Valid, _) => {
                reads.remove(key);
                Ok(true)
            }
            (Validity::Held(_), _)
                if requester == Requester::Patient && !Guard::ReadOnlyWaits.stands() =>
            {
                reads.remove(key);
                Ok(true)
            }
            (Validity::Held(holder), View::Present { version, .. }) => {
                // The lock has to be looked at again, whoever held it at first.
                read.observed.holder = Some(holder);
                match engine.meet(requester, key, *version, holder, &self.patience).await? {
                    Met::Busy => return Ok(false),
                    Met::Applied => {}
                    Met::Void if requester == Requester::Patient => {
                        engine.unlock(key, view, holder).await?;
                    }
                    // Only set free it would be locked again before the next look, by the next attempt of the
                    // one that was wounded; so whoever wounds takes what it wants.
                    Met::Void => {
                        let wanted = BTreeMap::from([(key.clone(), reads.remove(key))]);
                        Box::pin(self.acquire(wanted, Vec::new())).await?;
                    }
                }
                Ok(true)
            }
            (Validity::Changed | Validity::Held(_), _) => {
                Err(Stop::Retry(Cause::Changed(key.clone())))
            }
        }
    }
}
