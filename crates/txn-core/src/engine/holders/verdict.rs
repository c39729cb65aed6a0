//! Verdicts on lock holders: wait, abort, or roll forward.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::engine::attempt_error::AttemptError;
use crate::engine::base::Base;
use crate::engine::context::Context;
use crate::engine::deadline::Deadline;
use crate::engine::holders::failure_detector::{FailureDetector, LookedAt};
use crate::engine::holders::foreign_lock::{ForeignLock, Holding, by_holder};
use crate::engine::live_attempts::LiveAttempts;
use crate::engine::signals::contention::ContentionLog;
use crate::engine::signals::label::named;
use crate::engine::store::settle::{Settled, Unsettled, UnsettledCause};
use crate::engine::store::store_access::{ReadPreference, StoreAccess};
use crate::engine::table::Table;
use crate::engine::table::record_lookup::RecordLookup;
use crate::engine::table::records::RecordOf;
use crate::error::Error;
use crate::event::Event;
use txn_protocol::ids::AttemptId;
use txn_protocol::machines::record::{Decide, Decision, RecordVersion};
use txn_protocol::record::{Record, State};
use txn_protocol::rules::conflict::{Conflict, HolderState, Requester, conflict};
use txn_store::{Key, Outcome, Version};

/// A verdict on a transaction, final by an acknowledged write.
#[derive(Clone, Debug)]
pub(crate) enum Decided {
    /// The transaction never commits: its locks are void.
    Aborted,
    /// The transaction is committed. `version`: the version of its record.
    Committed { record: Arc<Record>, version: Version },
}

/// The decisions on lock holders: each verdict is an acknowledged write.
pub(crate) struct Verdicts {
    pub(super) context: Arc<Context>,
    pub(super) store: Arc<StoreAccess>,
    pub(super) table: Arc<Table>,
    pub(super) live_attempts: Arc<LiveAttempts>,
    pub(super) detector: Arc<FailureDetector>,
    contention: Arc<ContentionLog>,
    /// Tids whose `aborted` record is acknowledged to this process.
    aborted: KnownAborted,
}

impl Verdicts {
    pub(in crate::engine) fn new(
        base: &Base,
        live_attempts: Arc<LiveAttempts>,
        detector: Arc<FailureDetector>,
        contention: Arc<ContentionLog>,
    ) -> Self {
        let Base { context, store, table, .. } = base.clone();
        let aborted = KnownAborted::default();
        Self { context, store, table, live_attempts, detector, contention, aborted }
    }

    /// Notes an attempt whose `aborted` record is acknowledged to this process.
    pub(crate) fn note_aborted(&self, tid: AttemptId) {
        self.aborted.insert(tid);
    }

    /// The label of an attempt, if this process knows it.
    pub(crate) fn label_of(&self, tid: AttemptId) -> Option<Arc<str>> {
        self.contention.label_of(tid)
    }

    /// Groups locks by holder, and reads all records at once.
    ///
    /// Also returns the locks whose holders live in this process and may go first.
    pub(crate) async fn look_up(
        &self,
        requester: Requester,
        locks: impl IntoIterator<Item = ForeignLock>,
        deadline: &Deadline,
    ) -> Result<(Vec<Holding>, Vec<ForeignLock>), AttemptError> {
        let mut busy = Vec::new();
        let mut holders = by_holder(locks);
        holders.retain(|holder, locks| {
            // The requester's own lock needs no verdict. A roll forward may find this lock on a
            // participant of another transaction.
            let goes_first = |me: AttemptId| *holder == me || holder.age() < me.age();
            let entitled = requester.tid().is_none_or(goes_first);
            let is_busy = entitled && self.live_attempts.is_live(*holder);
            if is_busy {
                busy.append(locks);
            }
            !is_busy
        });
        if holders.is_empty() {
            return Ok((Vec::new(), busy));
        }
        let tids = holders.keys().copied().collect();
        let asked = self.context.now();
        let mut records = self.table.records(&tids, ReadPreference::AnyCopy, deadline).await?;
        let at = LookedAt { asked, answered: self.context.now() };
        let holdings = holders.into_iter().filter_map(|(holder, locks)| {
            let found = records.remove(&holder)?;
            if let Some(record) = &found.record {
                self.contention.note_label(holder, record.label.as_ref());
            }
            Some(Holding { holder, locks, found, at, includes_record: false })
        });
        Ok((holdings.collect(), busy))
    }

    /// Decides a holder that is dead, wounded or already decided.
    ///
    /// Returns `None` if the holder may continue.
    pub(crate) async fn judge(
        &self,
        requester: Requester,
        holding: &Holding,
        deadline: &Deadline,
    ) -> Result<Option<Decided>, AttemptError> {
        let Holding { holder, locks, found, at, includes_record } = holding;
        let (holder, state) = (*holder, found.state());
        let record_key = self.table.record_key(holder);
        let lease = self.context.config.lease_of(holder.attempt());
        let live = self.live_attempts.is_live(holder);
        // Within this process no grace is needed: a release wakes the oldest waiter.
        let requester = match requester {
            Requester::WithinGrace(me) if live => Requester::Locking(me),
            requester => requester,
        };
        // The verdict holds for the time of the read. The holder may have moved on since.
        let is_unchanged =
            |key: &Key| self.detector.note_sign(holder, key, found.version(), lease, *at);
        // `count` visits every lock, because the detector must note each of them.
        let any_unchanged = locks.iter().filter(|lock| is_unchanged(&lock.key)).count() > 0;
        let dead = (any_unchanged || *includes_record && is_unchanged(&record_key)) && !live;
        if conflict(&self.context.rules, requester, holder, state, dead) == Conflict::Wait {
            return Ok(None);
        }
        let why = match requester.tid() {
            Some(me) if !dead => {
                let me = named(me, self.contention.label_of(me).as_deref());
                format!("wounded by the older transaction {me}")
            }
            _ => "unchanged for one lease: taken for dead".to_owned(),
        };
        let met_at = locks.first().map_or(&record_key, |lock| &lock.key);
        let dead_at = dead.then_some(found.standing);
        let decided =
            Box::pin(self.decide_since(dead_at, holder, found.clone(), &why, deadline)).await;
        let Some(decided) = decided.map_err(|error| error.at(met_at))? else { return Ok(None) };
        for key in locks.iter().map(|lock| &lock.key).chain([&record_key]) {
            self.detector.forget(holder, key);
        }
        let undecided = matches!(state, HolderState::Missing | HolderState::Record(State::Pending));
        match decided {
            // The owner lives in this process, and applies the transaction itself.
            Decided::Committed { .. } if live => return Ok(None),
            Decided::Aborted if undecided => {
                if dead && found.record.is_none() {
                    cov_mark::hit!(dead_holder_without_a_record);
                } else if dead {
                    cov_mark::hit!(dead_holder_with_a_record);
                }
                let by = requester.tid().filter(|me| !dead && me.age() != holder.age());
                self.tell_aborted(holder, by, met_at.clone(), found.record.is_some());
            }
            _ => {}
        }
        Ok(Some(decided))
    }

    /// Emits the abort of a holder. Another transaction wounded the holder, or the holder showed no
    /// sign of life.
    fn tell_aborted(
        &self,
        holder: AttemptId,
        by: Option<AttemptId>,
        document: Key,
        recorded: bool,
    ) {
        self.context.emit(&match by {
            Some(by) => {
                let label = self.contention.label_of(by);
                let victim_label = self.contention.label_of(holder);
                Event::Wounded { by, label, victim: holder, victim_label, document }
            }
            None => {
                tracing::info!(tid = %holder, %document, recorded, "aborted a transaction without a sign of life");
                Event::AbortedByRecovery { tid: holder, document, recorded }
            }
        });
    }

    /// Carries out the recovery table until an acknowledged write decides the transaction.
    ///
    /// The transaction must be wounded, ended or already decided. Returns `None` if the record must
    /// be read again.
    pub(crate) async fn decide(
        &self,
        tid: AttemptId,
        found: RecordLookup,
        why: &str,
        deadline: &Deadline,
    ) -> Result<Option<Decided>, AttemptError> {
        self.decide_since(None, tid, found, why, deadline).await
    }

    /// As [`Verdicts::decide`], but the transaction may count as dead.
    ///
    /// `dead_at`: the version of the record at which the transaction counts as dead.
    ///
    /// With `dead_at` the result is also `None` if a heartbeat came before the write of the abort.
    #[tracing::instrument(level = "debug", skip_all, fields(%tid, state = ?found.state()))]
    pub(super) async fn decide_since(
        &self,
        dead_at: Option<RecordVersion>,
        tid: AttemptId,
        found: RecordLookup,
        why: &str,
        deadline: &Deadline,
    ) -> Result<Option<Decided>, AttemptError> {
        let place = RecordOf { table: &self.table, tid };
        let known_aborted = self.aborted.contains(tid);
        let decide = Decide { rules: &self.context.rules, known_aborted, dead_at };
        let aborted = |found: &RecordLookup| {
            let label = found.record.as_ref().and_then(|record| record.label.clone());
            self.encode_aborted(tid, label.or_else(|| self.live_attempts.label_of(tid)), why)
        };
        let settled = self.store.settle(&place, &decide, found, aborted, deadline).await;
        let settled = match settled {
            Ok(settled) => settled,
            // The day was dropped, so the lock is void.
            Err(Unsettled {
                because: UnsettledCause::Refused(Outcome::MissingCollection), ..
            }) => {
                cov_mark::hit!(holder_of_a_dropped_day);
                return Ok(Some(Decided::Aborted));
            }
            Err(Unsettled { because: UnsettledCause::Stuck, .. }) => return Ok(None),
            Err(unsettled) => return Err(unsettled.while_doing("decide the holder of a lock")),
        };
        let Settled { proven, written, found } = settled;
        match (proven, found.record, written.or(found.standing.version)) {
            (Decision::Committed, Some(record), Some(version)) => {
                Ok(Some(Decided::Committed { record, version }))
            }
            (Decision::Committed, ..) => Err(Error::damaged("a record without a version").into()),
            (Decision::Aborted, ..) => {
                if written.is_some() {
                    self.aborted.insert(tid);
                    self.live_attempts.wound(tid);
                }
                Ok(Some(Decided::Aborted))
            }
        }
    }

    pub(crate) fn encode_aborted(
        &self,
        tid: AttemptId,
        label: Option<Arc<str>>,
        why: &str,
    ) -> Result<txn_store::Source, Error> {
        let record = Record { label, ..self.table.aborted_record(tid, why) };
        record.encode().map_err(|e| Error::damaged(e.to_string()))
    }
}

/// A bounded set of aborted tids.
#[derive(Debug, Default)]
struct KnownAborted(Mutex<BTreeSet<AttemptId>>);

impl KnownAborted {
    fn insert(&self, tid: AttemptId) {
        let mut known = self.0.lock();
        known.insert(tid);
        if known.len() > 10_000 {
            known.pop_first();
        }
    }

    fn contains(&self, tid: AttemptId) -> bool {
        self.0.lock().contains(&tid)
    }
}
