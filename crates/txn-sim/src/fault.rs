//! A store with faults within the contract, for tests of the engine.

mod plan;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

pub use plan::{FaultPlan, Injected};
use plan::{FaultRng, Outage, ReadFault, WriteFault};
use txn_store::{
    CollectionIdentity, CollectionInfo, CollectionSpec, Cursor, Filter, Key, Limits, Outcome, Page,
    Read, Store, StoreError, StoreErrorKind, Write, WriteOp,
};

/// How many contents of a document stay for stale reads.
const REMEMBERED: usize = 4;

/// Passes calls to another store, with the faults of a [`FaultPlan`].
///
/// Writes and reads fail item by item, scans and delays call by call. Administration of collections
/// and aliases is only delayed, except in outages.
///
/// All faults stay within the contract:
/// - The answers [`Outcome::Applied`], [`Outcome::Rejected`] and [`Outcome::Invalid`] are true.
/// - [`Outcome::RejectedInDoubt`] and [`Outcome::MissingCollection`] answer for the last try of a
///   write whose first try may have been applied.
/// - Late writes carry their condition.
/// - Primary reads and verifies never show an old state.
/// - In an outage nothing is carried out, and every answer says so.
///
/// Late writes run as tasks on tokio's clock. [`FaultStore::settle`] waits for them. The same plan
/// gives the same faults for the same calls in the same order.
#[derive(Debug)]
pub struct FaultStore {
    shared: Arc<Shared>,
    enabled: AtomicBool,
    outage: Mutex<Option<Ongoing>>,
    /// Collections that were refreshed, and not written to since.
    fresh: Mutex<BTreeSet<Arc<str>>>,
}

/// A running outage.
#[derive(Debug)]
struct Ongoing {
    until: Instant,
    /// The unreachable collection; `None` for all collections.
    collection: Option<Arc<str>>,
}

#[derive(Debug)]
struct Shared {
    inner: Arc<dyn Store>,
    dice: Mutex<FaultRng>,
    injected: Mutex<Injected>,
    history: Mutex<History>,
    /// The number of late writes that have not arrived.
    late: watch::Sender<usize>,
}

/// The observed contents of each document, oldest first; never [`Read::Unavailable`].
#[derive(Debug, Default)]
struct History(BTreeMap<Key, VecDeque<Read>>);

impl History {
    fn saw(&mut self, key: &Key, read: Read) {
        let seen = self.0.entry(key.clone()).or_default();
        if seen.contains(&read) && read != Read::Absent || seen.back() == Some(&read) {
            return;
        }
        if seen.len() == REMEMBERED {
            seen.pop_front();
        }
        seen.push_back(read);
    }

    /// Returns another content than `now`, if there was any.
    fn other(&self, key: &Key, now: &Read, pick: u64) -> Option<Read> {
        let others: Vec<&Read> = self.0.get(key)?.iter().filter(|read| *read != now).collect();
        let pick = pick.checked_rem(others.len() as u64)?;
        others.get(usize::try_from(pick).ok()?).map(|read| (*read).clone())
    }
}

impl Shared {
    /// Records the outcome of a write.
    fn saw(&self, write: &Write, outcome: &Outcome) {
        let Outcome::Applied(version) = outcome else { return };
        let mut history = self.history.lock();
        match &write.op {
            WriteOp::Create(source) => {
                history.saw(&write.key, Read::Absent);
                let source = source.clone();
                history.saw(&write.key, Read::Found { version: *version, source });
            }
            WriteOp::Replace(source, _) => {
                let source = source.clone();
                history.saw(&write.key, Read::Found { version: *version, source });
            }
            WriteOp::Delete(_) => history.saw(&write.key, Read::Absent),
            WriteOp::Check(_) | WriteOp::Verify(_) => {}
        }
    }

    fn count(&self, add: impl FnOnce(&mut Injected)) {
        add(&mut self.injected.lock());
    }

    /// Carries a write out after a delay.
    fn later(self: &Arc<Self>, write: Write, after: Duration) {
        let arrives = Arrives::new(self.clone());
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            let shared = &arrives.0;
            if let Some(outcome) = shared.inner.write_many(std::slice::from_ref(&write)).await.pop()
            {
                shared.saw(&write, &outcome);
            }
        });
    }

    /// Returns the answer to a write that is not carried out now.
    fn keeps_back(self: &Arc<Self>, write: &Write, fault: WriteFault) -> Option<Outcome> {
        Some(match fault {
            WriteFault::LostUnknown => {
                self.count(|n| n.lost_unknown += 1);
                unknown()
            }
            WriteFault::LateUnknown(after) => {
                self.count(|n| n.late_unknown += 1);
                self.later(write.clone(), after);
                unknown()
            }
            WriteFault::Rejected => {
                self.count(|n| n.rejected += 1);
                Outcome::Rejected("an injected fault".to_owned())
            }
            WriteFault::LostRejected => {
                self.count(|n| n.lost_rejected += 1);
                in_doubt()
            }
            WriteFault::LateRejected(after) => {
                self.count(|n| n.late_rejected += 1);
                self.later(write.clone(), after);
                in_doubt()
            }
            _ => return None,
        })
    }

    /// Returns the answer to a write that was carried out.
    fn answer(self: &Arc<Self>, write: &Write, fault: WriteFault, outcome: Outcome) -> Outcome {
        match (fault, &outcome) {
            (WriteFault::AppliedConflict, Outcome::Applied(_)) => {
                self.count(|n| n.applied_conflict += 1);
                Outcome::Conflict
            }
            (WriteFault::AppliedUnknown, _) => {
                self.count(|n| n.applied_unknown += 1);
                unknown()
            }
            (WriteFault::AppliedRejected, Outcome::Applied(_)) => {
                self.count(|n| n.applied_rejected += 1);
                in_doubt()
            }
            (WriteFault::AppliedMissing, Outcome::Applied(_)) => {
                self.count(|n| n.applied_missing += 1);
                Outcome::MissingCollection
            }
            // "Never will be applied" also holds for the second delivery.
            (
                WriteFault::CreateTwice(after),
                Outcome::Applied(_) | Outcome::Conflict | Outcome::Unknown(_),
            ) => {
                self.count(|n| n.create_twice += 1);
                self.later(write.clone(), after);
                outcome
            }
            _ => outcome,
        }
    }

    /// Applies the faults to the answers of a read.
    fn spoil(&self, keys: &[Key], faults: &[ReadFault], reads: &mut [Read]) {
        for ((key, read), fault) in keys.iter().zip(reads).zip(faults) {
            if matches!(read, Read::Found { .. } | Read::Absent) {
                self.history.lock().saw(key, read.clone());
            }
            match fault {
                ReadFault::Stale(pick) if matches!(read, Read::Found { .. } | Read::Absent) => {
                    let Some(other) = self.history.lock().other(key, read, *pick) else { continue };
                    *read = other;
                    self.count(|n| n.stale_read += 1);
                }
                ReadFault::Unavailable => {
                    *read = Read::Unavailable(unavailable());
                    self.count(|n| n.read_unavailable += 1);
                }
                ReadFault::None | ReadFault::Stale(_) => {}
            }
        }
    }
}

/// A write that has not arrived. Dropped at the end of its task in any case.
struct Arrives(Arc<Shared>);

impl Arrives {
    fn new(shared: Arc<Shared>) -> Self {
        shared.late.send_modify(|late| *late += 1);
        Self(shared)
    }
}

impl Drop for Arrives {
    fn drop(&mut self) {
        self.0.late.send_modify(|late| *late -= 1);
    }
}

fn unavailable() -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, "an injected fault")
}

fn outage() -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, "an injected outage")
}

fn unknown() -> Outcome {
    Outcome::Unknown("an injected fault".to_owned())
}

fn in_doubt() -> Outcome {
    Outcome::RejectedInDoubt("an injected fault".to_owned())
}

impl FaultStore {
    /// Applies the faults of `plan` to `inner`; enabled.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>, plan: FaultPlan) -> Self {
        let shared = Shared {
            inner,
            dice: Mutex::new(FaultRng::new(plan)),
            injected: Mutex::default(),
            history: Mutex::default(),
            late: watch::Sender::new(0),
        };
        let (enabled, outage) = (AtomicBool::new(true), Mutex::default());
        Self { shared: Arc::new(shared), enabled, outage, fresh: Mutex::default() }
    }

    /// Enables or disables faults for future calls.
    ///
    /// While disabled, no random numbers are drawn. Disabling ends an outage. Earlier late writes
    /// still arrive.
    pub fn set_enabled(&self, enabled: bool) {
        self.enabled.store(enabled, Ordering::SeqCst);
        if !enabled {
            *self.outage.lock() = None;
        }
    }

    /// Begins an outage, as the plan does at random.
    ///
    /// The outage is that of one collection, under the name in its calls, or of all collections.
    pub fn begin_outage(&self, collection: Option<Arc<str>>, lasts: Duration) {
        self.shared.count(|n| n.outage += 1);
        *self.outage.lock() = Some(Ongoing { until: Instant::now() + lasts, collection });
    }

    /// Whether an outage makes this collection unreachable.
    fn is_out(&self, collection: &str) -> bool {
        let mut outage = self.outage.lock();
        if outage.as_ref().is_some_and(|outage| outage.until <= Instant::now()) {
            *outage = None;
        }
        outage
            .as_ref()
            .is_some_and(|outage| outage.collection.as_ref().is_none_or(|out| **out == *collection))
    }

    /// Begins an outage at random after a write with another answer.
    ///
    /// The write was applied.
    fn perhaps_an_outage(&self, write: &Write) {
        if let Some(Outage { lasts, everywhere }) = self.throw(None, FaultRng::outage) {
            let collection = (!everywhere).then(|| write.key.collection.clone());
            self.begin_outage(collection, lasts);
        }
    }

    /// Carries out a call on a collection, unless the collection is unreachable.
    async fn reach<T>(
        &self,
        collection: &str,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        match self.is_out(collection) {
            true => self.slowly(async { Err(outage()) }).await,
            false => self.slowly(call).await,
        }
    }

    /// Returns the injected faults so far.
    #[must_use]
    pub fn injected(&self) -> Injected {
        *self.shared.injected.lock()
    }

    /// Waits until no late write and no second create is outstanding.
    pub async fn settle(&self) {
        // An error requires a lost sender, and this store holds the sender.
        let _ = self.shared.late.subscribe().wait_for(|late| *late == 0).await;
    }

    /// Draws random numbers, if faults are enabled.
    fn throw<T>(&self, calm: T, throw: impl FnOnce(&mut FaultRng) -> T) -> T {
        match self.enabled.load(Ordering::SeqCst) {
            true => throw(&mut self.shared.dice.lock()),
            false => calm,
        }
    }

    /// Carries a call out, with a delay before or after it.
    async fn slowly<T>(&self, call: impl Future<Output = T>) -> T {
        let (before, after) = self.throw(Default::default(), FaultRng::delay);
        if before + after > Duration::ZERO {
            self.shared.count(|n| n.delay += 1);
        }
        pause(before).await;
        let answer = call.await;
        pause(after).await;
        answer
    }

    async fn read(&self, keys: &[Key], primary: bool) -> Vec<Read> {
        let calm = vec![ReadFault::None; keys.len()];
        let faults = self.throw(calm, |dice| keys.iter().map(|_| dice.read(primary)).collect());
        self.slowly(async {
            let inner = &self.shared.inner;
            let mut reads =
                if primary { inner.read_primary(keys).await } else { inner.get_many(keys).await };
            self.shared.spoil(keys, &faults, &mut reads);
            for (key, read) in keys.iter().zip(&mut reads) {
                if self.is_out(&key.collection) {
                    *read = Read::Unavailable(outage());
                }
            }
            reads
        })
        .await
    }

    /// Carries out the writes of this moment, and answers with the faults.
    async fn write(&self, writes: &[Write], faults: &[WriteFault]) -> Vec<Outcome> {
        let shared = &self.shared;
        let mut answers: Vec<Option<Outcome>> = Vec::with_capacity(writes.len());
        let mut now = Vec::with_capacity(writes.len());
        for (write, fault) in writes.iter().zip(faults) {
            let answer = match self.is_out(&write.key.collection) {
                true => Some(Outcome::Rejected("an injected outage".to_owned())),
                false => shared.keeps_back(write, *fault),
            };
            if answer.is_none() {
                now.push(write.clone());
            }
            answers.push(answer);
        }
        let outcomes = match now.is_empty() && !writes.is_empty() {
            true => Vec::new(),
            false => shared.inner.write_many(&now).await,
        };
        let mut outcomes = outcomes.into_iter();
        let answer = |((write, fault), kept): ((&Write, &WriteFault), Option<Outcome>)| {
            if let Some(kept) = kept {
                return kept;
            }
            let Some(outcome) = outcomes.next() else {
                return Outcome::Unknown("the store gave no outcome".to_owned());
            };
            shared.saw(write, &outcome);
            let answer = shared.answer(write, *fault, outcome.clone());
            if matches!(outcome, Outcome::Applied(_)) && answer != outcome {
                self.perhaps_an_outage(write);
            }
            answer
        };
        writes.iter().zip(faults).zip(answers).map(answer).collect()
    }
}

/// Sleeps, except for a zero span, which would advance the paused clock.
async fn pause(span: Duration) {
    if span > Duration::ZERO {
        tokio::time::sleep(span).await;
    }
}

#[async_trait]
impl Store for FaultStore {
    fn limits(&self) -> Limits {
        self.shared.inner.limits()
    }

    fn request_timeout(&self) -> Duration {
        self.shared.inner.request_timeout()
    }

    async fn get_many(&self, keys: &[Key]) -> Vec<Read> {
        self.read(keys, false).await
    }

    async fn read_primary(&self, keys: &[Key]) -> Vec<Read> {
        self.read(keys, true).await
    }

    async fn write_many(&self, writes: &[Write]) -> Vec<Outcome> {
        let calm = vec![WriteFault::None; writes.len()];
        let faults = self.throw(calm, |dice| writes.iter().map(|w| dice.write(&w.op)).collect());
        self.fresh.lock().retain(|name| writes.iter().all(|write| write.key.collection != *name));
        self.slowly(self.write(writes, &faults)).await
    }

    async fn refresh(&self, collection: &str) -> Result<(), StoreError> {
        self.reach(collection, self.shared.inner.refresh(collection)).await?;
        self.fresh.lock().insert(collection.into());
        Ok(())
    }

    async fn scan(
        &self,
        collection: &str,
        filter: &Filter,
        size: usize,
        from: Option<Cursor>,
    ) -> Result<Page, StoreError> {
        if self.throw(false, FaultRng::scan) {
            self.shared.count(|n| n.scan_unavailable += 1);
            return self.slowly(async { Err(unavailable()) }).await;
        }
        let scan = self.shared.inner.scan(collection, filter, size, from);
        let mut page = self.reach(collection, scan).await?;
        let found = page.documents.len();
        let is_fresh = self.fresh.lock().contains(collection);
        page.documents.retain(|_| !self.throw(false, FaultRng::hides) || is_fresh);
        let hidden = (found - page.documents.len()) as u64;
        self.shared.count(|n| n.scan_hides += hidden);
        Ok(page)
    }

    async fn open_collection(&self, spec: &CollectionSpec) -> Result<CollectionInfo, StoreError> {
        self.reach(&spec.name, self.shared.inner.open_collection(spec)).await
    }

    async fn identify(&self, name: &str) -> Result<CollectionIdentity, StoreError> {
        self.reach(name, self.shared.inner.identify(name)).await
    }

    async fn drop_collection(&self, name: &str) -> Result<(), StoreError> {
        // Old contents of a dropped collection must not appear in a new one of its name. The
        // aliases of the old contents are unknown here, so the whole history is cleared.
        let dropped = self.reach(name, self.shared.inner.drop_collection(name)).await;
        self.shared.history.lock().0.clear();
        dropped
    }

    async fn add_alias(&self, alias: &str, collection: &str) -> Result<(), StoreError> {
        self.reach(alias, self.shared.inner.add_alias(alias, collection)).await
    }

    async fn block_writes(&self, collection: &str, blocked: bool) -> Result<(), StoreError> {
        self.reach(collection, self.shared.inner.block_writes(collection, blocked)).await
    }

    async fn list_collections(&self, prefix: &str) -> Result<Vec<Arc<str>>, StoreError> {
        self.slowly(self.shared.inner.list_collections(prefix)).await
    }

    async fn release_collection(&self, collection: &str) -> Result<(), StoreError> {
        self.slowly(self.shared.inner.release_collection(collection)).await
    }

    async fn server_time(&self) -> Result<Option<Duration>, StoreError> {
        self.slowly(self.shared.inner.server_time()).await
    }
}
