//! Deciding the holder of a lock, whoever meets it: wound, recover, or help.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::engine::{Engine, From};
use crate::error::{Error, ErrorKind};
use crate::event::Event;
use crate::guard::Guard;
use crate::record::{Record, State};
use crate::rules::conflict::{Conflict, HolderState, Requester, conflict};
use crate::rules::resolve::{Recovery, recovery};
use crate::stop::{Hindrance, Patience, Stop};
use crate::store::{Key, Outcome, Version, WriteOp};
use crate::table::Found;
use crate::tid::Tid;

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
pub(crate) enum Met {
    /// Its holder is aborted, acknowledged to us: the lock may be replaced.
    Void,
    /// Its holder was committed and is applied: read again.
    Applied,
    /// Its holder is entitled to go on.
    Busy,
}

impl Engine {
    /// Meets a lock that stands at `version` of `key`, and puts its holder aside if the rules allow it.
    pub(crate) async fn meet(
        &self,
        requester: Requester,
        key: &Key,
        version: Version,
        holder: Tid,
        patience: &Patience,
    ) -> Result<Met, Stop> {
        let entitled = match requester {
            Requester::Locking(me) => holder.age() < me.age(),
            Requester::Patient => true,
        };
        if self.locals.is_live(holder) && entitled {
            return Ok(Met::Busy);
        }
        let found = self.record_of(holder, From::AnyCopy, patience).await?;
        let lease = self.config.lease_of(holder.attempt());
        let signs = (found.version(), Some(version));
        let dead = !self.locals.is_live(holder)
            && self.liveness.is_dead(holder, key, signs, lease, self.now());
        if conflict(requester, holder, found.state, dead) == Conflict::Wait {
            return Ok(Met::Busy);
        }
        let undecided =
            matches!(found.state, HolderState::Missing | HolderState::Record(State::Pending));
        let why = match requester {
            Requester::Locking(me) if !dead => format!("wounded by the older transaction {me}"),
            _ => "unchanged for one lease: taken for dead".to_owned(),
        };
        let met = self.settle(requester, holder, found, &why, patience).await;
        let met = met.map_err(|stop| stop.at(key))?;
        if met == Met::Void && undecided {
            self.tell(&match requester {
                Requester::Locking(me) if !dead && me.age() != holder.age() => {
                    Event::Wounded { by: me, victim: holder, document: key.clone() }
                }
                _ => Event::Voided { tid: holder, document: key.clone() },
            });
        }
        self.liveness.forget(holder, key);
        Ok(met)
    }

    /// Decides a holder and, if it is committed, applies it.
    async fn settle(
        &self,
        requester: Requester,
        holder: Tid,
        found: Found,
        why: &str,
        patience: &Patience,
    ) -> Result<Met, Stop> {
        let live = self.locals.is_live(holder);
        match self.decide(holder, found, why, patience).await? {
            Decided::Aborted => Ok(Met::Void),
            // Its owner is this very process and is at it.
            Decided::Committed { .. } if live => Ok(Met::Busy),
            Decided::Committed { record, version } => {
                // An apply may have to decide another holder first.
                Box::pin(self.replay(&record, version, requester, patience)).await?;
                Ok(Met::Applied)
            }
        }
    }

    pub(crate) async fn record_of(
        &self,
        tid: Tid,
        from: From,
        patience: &Patience,
    ) -> Result<Found, Stop> {
        let mut found = self.records(&BTreeSet::from([tid]), from, patience).await?;
        found.remove(&tid).ok_or_else(|| Error::unavailable("the store gave no answer").into())
    }

    /// Carries out the recovery table until the transaction is decided by an acknowledged write. It must be
    /// dead, wounded or decided already.
    #[tracing::instrument(level = "debug", skip_all, fields(%tid, state = ?found.state))]
    pub(crate) async fn decide(
        &self,
        tid: Tid,
        mut found: Found,
        why: &str,
        patience: &Patience,
    ) -> Result<Decided, Stop> {
        let mut backoff = self.backoff();
        loop {
            let op = match (recovery(found.state, self.aborted.contains(tid)), &found.at) {
                (Recovery::Void, _) => return Ok(Decided::Aborted),
                (Recovery::CreateAborted | Recovery::SwapToAborted, _)
                    if !Guard::AbortBeforeTakeOver.stands() =>
                {
                    return Ok(Decided::Aborted);
                }
                (Recovery::TouchAborted, _) if !Guard::TouchAborted.stands() => {
                    return Ok(Decided::Aborted);
                }
                (Recovery::RollForward, Some((version, _))) if !Guard::TouchCommitted.stands() => {
                    let Some(record) = found.record.clone() else { continue };
                    return Ok(Decided::Committed { record, version: *version });
                }
                (Recovery::CreateAborted, _) => WriteOp::Create(self.encode_aborted(tid, why)?),
                (Recovery::SwapToAborted, Some((version, _))) => {
                    WriteOp::Replace(self.encode_aborted(tid, why)?, *version)
                }
                (
                    Recovery::TouchAborted | Recovery::RollForward | Recovery::ApplyOrVoid,
                    Some((version, source)),
                ) => WriteOp::Replace(source.clone(), *version),
                (Recovery::DecideStaged, _) => {
                    let message = "its coordinator commits in parallel, by a newer version of this \
                                   library that has to recover it; this version can not";
                    return Err(Error::new(ErrorKind::Misconfigured, message)
                        .in_transaction(tid)
                        .into());
                }
                (_, None) => return Err(Error::damaged("a record without a version").into()),
            };
            let why_not = match self.write_record(tid, &op, patience).await? {
                Outcome::Applied(version) => match &found.record {
                    Some(record) if record.state.is_committed() => {
                        return Ok(Decided::Committed { record: record.clone(), version });
                    }
                    _ => {
                        self.aborted.insert(tid);
                        self.locals.wound(tid);
                        return Ok(Decided::Aborted);
                    }
                },
                // Gone: the lock of a dropped day is void.
                Outcome::MissingCollection => return Ok(Decided::Aborted),
                Outcome::Conflict => "its record is being changed by others".to_owned(),
                Outcome::Rejected(why) | Outcome::RejectedInDoubt(why) | Outcome::Unknown(why) => {
                    why
                }
                refused @ (Outcome::Invalid(_) | Outcome::Holds) => {
                    let key = self.table.record_key(tid);
                    return Err(
                        Error::from_refused(&refused, &key, "decide the holder of a lock").into()
                    );
                }
            };
            self.pause(patience, &mut backoff, Hindrance::Store(why_not)).await?;
            found = self.record_of(tid, From::Primary, patience).await?;
        }
    }

    fn encode_aborted(&self, tid: Tid, why: &str) -> Result<crate::store::Source, Error> {
        self.aborted_record(tid, why).encode().map_err(|e| Error::damaged(e.to_string()))
    }
}
