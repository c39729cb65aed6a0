//! Deciding the holder of a lock, whoever meets it: wound, recover, or help.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::engine::apply::Unapplied;
use crate::engine::attempt_error::AttemptError;
use crate::engine::deadline::Deadline;
use crate::engine::failure_detector::LookedAt;
use crate::engine::settle::{Because, RecordOf, Settled, Unsettled};
use crate::engine::transaction_table::RecordLookup;
use crate::engine::{Engine, ReadPreference};
use crate::error::{Error, ErrorKind};
use crate::event::Event;
use crate::store::{Key, Outcome, Version};
use txn_protocol::document::View;
use txn_protocol::machines::record::{Decide, Decision};
use txn_protocol::record::{Record, State};
use txn_protocol::rule::Rule;
use txn_protocol::rules::apply::is_locked_by;
use txn_protocol::rules::conflict::{Conflict, HolderState, Requester, conflict};
use txn_protocol::tid::Tid;

/// A transaction that will not change any more, by an acknowledged write.
#[derive(Clone, Debug)]
pub(crate) enum Decided {
    /// It never commits: its locks are void.
    Aborted,
    /// It is committed; `version` is where its record stands.
    Committed { record: Arc<Record>, version: Version },
}

/// What became of a lock that was in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resolution {
    /// It is nobody's, by acknowledged writes: its holder is aborted, or committed without the document. It may be
    /// replaced.
    Aborted,
    /// Its holder was committed and is applied: read again.
    RolledForward,
    /// Its holder is entitled to go on.
    Blocked,
}

/// A lock that is in the way, as it was seen.
#[derive(Clone, Debug)]
pub(crate) struct Lock {
    pub(crate) key: Key,
    pub(crate) view: View,
}

impl Lock {
    fn version(&self) -> Option<Version> {
        match &self.view {
            View::Absent => None,
            View::Present { version, .. } => Some(*version),
        }
    }
}

/// What was met of one holder.
pub(crate) struct Holding {
    pub(crate) holder: Tid,
    /// Its locks.
    pub(crate) locks: Vec<Lock>,
    /// Its record, and when it was looked at.
    pub(crate) found: RecordLookup,
    pub(crate) at: LookedAt,
    /// Its record was met as well: all of its participants are wanted, wherever they stand.
    pub(crate) whole: bool,
}

/// What became of each document of a holder, and of its record, if that was met. What hinders one is no matter of the
/// others.
pub(crate) type Resolutions = BTreeMap<Key, Result<Resolution, Error>>;

/// Locks by their holders.
pub(crate) fn by_holder(locks: impl IntoIterator<Item = Lock>) -> BTreeMap<Tid, Vec<Lock>> {
    let mut holders: BTreeMap<Tid, Vec<Lock>> = BTreeMap::new();
    for lock in locks {
        if let Some(holder) = lock.view.holder() {
            holders.entry(holder).or_default().push(lock);
        }
    }
    holders
}

impl Engine {
    /// Resolves one lock; see [`Engine::resolve_locks`].
    pub(crate) async fn resolve_lock(
        &self,
        requester: Requester,
        key: &Key,
        view: &View,
        deadline: &Deadline,
    ) -> Result<Resolution, AttemptError> {
        let lock = Lock { key: key.clone(), view: view.clone() };
        let met = self.resolve_locks(requester, [lock], deadline).await?;
        Ok(met.get(key).copied().unwrap_or(Resolution::RolledForward))
    }

    /// Resolves locks that are in the way, and puts their holders aside if the rules allow it: all records are looked
    /// up at once, and each holder is decided and applied once, however many locks it has here.
    pub(crate) async fn resolve_locks(
        &self,
        requester: Requester,
        locks: impl IntoIterator<Item = Lock>,
        deadline: &Deadline,
    ) -> Result<BTreeMap<Key, Resolution>, AttemptError> {
        let mut met = BTreeMap::new();
        let mut holders = by_holder(locks);
        holders.retain(|holder, locks| {
            let entitled = match requester {
                // Its own lock is nobody's to decide: who helps may meet it on a participant of another.
                Requester::Locking(me) => *holder == me || holder.age() < me.age(),
                Requester::Patient => true,
            };
            let busy = entitled && self.live_attempts.is_live(*holder);
            if busy {
                met.extend(locks.iter().map(|lock| (lock.key.clone(), Resolution::Blocked)));
            }
            !busy
        });
        if holders.is_empty() {
            return Ok(met);
        }
        let tids = holders.keys().copied().collect();
        let asked = self.now();
        let mut records = self.records(&tids, ReadPreference::AnyCopy, deadline).await?;
        let at = LookedAt { asked, answered: self.now() };
        for (holder, locks) in holders {
            let Some(found) = records.remove(&holder) else { continue };
            let holding = Holding { holder, locks, found, at, whole: false };
            for (key, result) in self.resolve_holder(requester, holding, deadline).await? {
                met.insert(key, result?);
            }
        }
        Ok(met)
    }

    /// Resolves the locks of one holder, and its record if that was met.
    pub(crate) async fn resolve_holder(
        &self,
        requester: Requester,
        Holding { holder, locks, found, at, whole }: Holding,
        deadline: &Deadline,
    ) -> Result<Resolutions, AttemptError> {
        let record_key = self.table.record_key(holder);
        let all = |met| {
            let keys = locks.iter().map(|lock| &lock.key).chain(whole.then_some(&record_key));
            keys.map(|key| (key.clone(), Ok(met))).collect()
        };
        let lease = self.config.lease_of(holder.attempt());
        let live = self.live_attempts.is_live(holder);
        // Of what moved on while others were dealt with nothing is known yet.
        let stands = |key: &Key, lock: Option<Version>| {
            self.liveness.is_dead(holder, key, (found.version(), lock), lease, at)
        };
        // Each of them is noted, whatever the others say.
        let unchanged = locks.iter().filter(|lock| stands(&lock.key, lock.version())).count() > 0;
        let dead = (unchanged || whole && stands(&record_key, None)) && !live;
        if conflict(&self.rules, requester, holder, found.state(), dead) == Conflict::Wait {
            return Ok(all(Resolution::Blocked));
        }
        let (state, recorded) = (found.state(), found.record.is_some());
        let why = match requester {
            Requester::Locking(me) if !dead => format!("wounded by the older transaction {me}"),
            _ => "unchanged for one lease: taken for dead".to_owned(),
        };
        let met_at = locks.first().map_or(&record_key, |lock| &lock.key);
        let decided = self.decide(holder, found, &why, deadline).await;
        let met = match decided.map_err(|error| error.at(met_at))? {
            Decided::Aborted => {
                let undecided =
                    matches!(state, HolderState::Missing | HolderState::Record(State::Pending));
                let document = met_at.clone();
                if undecided {
                    self.emit(&match requester {
                        Requester::Locking(me) if !dead && me.age() != holder.age() => {
                            Event::Wounded { by: me, victim: holder, document }
                        }
                        _ => Event::AbortedByRecovery { tid: holder, document, recorded },
                    });
                }
                all(Resolution::Aborted)
            }
            // Its owner is this very process and is at it.
            Decided::Committed { .. } if live => all(Resolution::Blocked),
            Decided::Committed { record, version } => {
                self.help(requester, &record, version, &locks, whole, deadline).await?
            }
        };
        for lock in &locks {
            self.liveness.forget(holder, &lock.key);
        }
        self.liveness.forget(holder, &record_key);
        Ok(met)
    }

    /// Applies a committed transaction. A lock that its record does not name is nobody's: one that was copied by a
    /// plain client, put back, or left out of the record.
    async fn help(
        &self,
        requester: Requester,
        record: &Record,
        version: Version,
        locks: &[Lock],
        whole: bool,
        deadline: &Deadline,
    ) -> Result<Resolutions, AttemptError> {
        let participants = record.by_key();
        let is_named = |lock: &Lock| {
            let participant = participants.get(&lock.key).map(|index| &record.participants[*index]);
            participant.is_some_and(|participant| {
                is_locked_by(&self.rules, participant, record.tid, &lock.view)
            })
        };
        let (named, strays): (Vec<&Lock>, Vec<&Lock>) = locks
            .iter()
            .partition(|lock| is_named(lock) || !self.rules.decides(Rule::UnnamedLockVoid));
        let mut met: Resolutions =
            strays.into_iter().map(|lock| (lock.key.clone(), Ok(Resolution::Aborted))).collect();
        let mut wanted: BTreeSet<Key> = named.iter().map(|lock| lock.key.clone()).collect();
        if whole && record.state == State::Committed {
            wanted.extend(participants.into_keys());
        }
        let mut unapplied = Unapplied::new();
        if !wanted.is_empty() {
            // An apply may have to decide another holder first.
            let replayed = self.replay(record, version, &wanted, requester, deadline);
            unapplied = Box::pin(replayed).await?;
        }
        if whole && unapplied.is_empty() {
            met.insert(self.table.record_key(record.tid), Ok(Resolution::RolledForward));
        }
        for lock in named {
            let result = unapplied.remove(&lock.key).map_or(Ok(Resolution::RolledForward), Err);
            met.insert(lock.key.clone(), result);
        }
        if whole {
            met.extend(unapplied.into_iter().map(|(key, error)| (key, Err(error))));
        }
        Ok(met)
    }

    pub(crate) async fn record_of(
        &self,
        tid: Tid,
        from: ReadPreference,
        deadline: &Deadline,
    ) -> Result<RecordLookup, AttemptError> {
        let mut found = self.records(&BTreeSet::from([tid]), from, deadline).await?;
        found.remove(&tid).ok_or_else(|| Error::unavailable("the store gave no answer").into())
    }

    /// Carries out the recovery table until the transaction is decided by an acknowledged write. It must be
    /// dead, wounded or decided already.
    #[tracing::instrument(level = "debug", skip_all, fields(%tid, state = ?found.state()))]
    pub(crate) async fn decide(
        &self,
        tid: Tid,
        found: RecordLookup,
        why: &str,
        deadline: &Deadline,
    ) -> Result<Decided, AttemptError> {
        let place = RecordOf(tid);
        let decide = Decide { rules: &self.rules, known_aborted: self.aborted.contains(tid) };
        let aborted = |_: &RecordLookup| self.encode_aborted(tid, why);
        // Rare, and large.
        let settled = Box::pin(self.settle(&place, &decide, found, aborted, deadline));
        let settled = match settled.await {
            Ok(settled) => settled,
            // Gone: the lock of a dropped day is void.
            Err(Unsettled { because: Because::Refused(Outcome::MissingCollection), .. }) => {
                return Ok(Decided::Aborted);
            }
            Err(Unsettled { because: Because::Stuck, .. }) => {
                let message = "its coordinator commits in parallel, by a newer version of this \
                               library that has to recover it; this version cannot";
                return Err(Error::new(ErrorKind::Misconfigured, message)
                    .in_transaction(tid)
                    .into());
            }
            Err(unsettled) => return Err(unsettled.while_doing("decide the holder of a lock")),
        };
        let Settled { proven, written, found } = settled;
        match (proven, found.record, written.or(found.standing.version)) {
            (Decision::Committed, Some(record), Some(version)) => {
                Ok(Decided::Committed { record, version })
            }
            (Decision::Committed, ..) => Err(Error::damaged("a record without a version").into()),
            (Decision::Aborted, ..) => {
                if written.is_some() {
                    self.aborted.insert(tid);
                    self.live_attempts.wound(tid);
                }
                Ok(Decided::Aborted)
            }
        }
    }

    fn encode_aborted(&self, tid: Tid, why: &str) -> Result<crate::store::Source, Error> {
        self.aborted_record(tid, why).encode().map_err(|e| Error::damaged(e.to_string()))
    }
}
