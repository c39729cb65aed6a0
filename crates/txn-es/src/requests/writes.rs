//! Writes of documents: names to indices, writes to operations.

use std::collections::BTreeSet;
use std::sync::Arc;

use txn_store::{
    Limits, Outcome, Read, Refusal, RefusalKind, StoreError, StoreErrorKind, Write, WriteOp,
};

use crate::identity::target::Target;
use crate::index::indices::{Indices, Miss, NOT_KNOWN, Resolved};
use crate::index::term_check::TermCheck;
use crate::requests::bulk::{Item, Op, Settled};
use crate::requests::bulk_requests::BulkRequests;
use crate::requests::mget::Ask;
use crate::requests::multi_gets::MultiGets;

/// Writes documents of one cluster.
#[derive(Debug)]
pub(crate) struct Writes {
    indices: Arc<Indices>,
    bulks: Arc<BulkRequests>,
    multi_gets: Arc<MultiGets>,
    term_check: TermCheck,
    limits: Limits,
}

impl Writes {
    pub(crate) fn new(
        indices: Arc<Indices>,
        bulks: Arc<BulkRequests>,
        multi_gets: Arc<MultiGets>,
        term_check: TermCheck,
        limits: Limits,
    ) -> Self {
        Self { indices, bulks, multi_gets, term_check, limits }
    }

    pub(crate) async fn write_many(&self, writes: &[Write]) -> Vec<Outcome> {
        let refused: Vec<_> = writes.iter().map(|write| self.refuse(write)).collect();
        let names = writes.iter().zip(&refused).filter(|(_, refused)| refused.is_none());
        let names = names.map(|(write, _)| &*write.key.collection).collect();
        let mut targets = self.indices.resolve(names).await;
        // A version of another incarnation is old, or the cached target is. An identity alias may
        // have been added in the meantime.
        let mut again = BTreeSet::new();
        for write in writes {
            let foreign = |target: &Target| {
                condition_of(&write.op).is_some_and(|version| target.condition(version).is_none())
            };
            if let Some(Ok(target)) = targets.get(&*write.key.collection)
                && (target.identity_alias.is_none() || foreign(target))
            {
                self.indices.forget(&target.name);
                again.insert(&*write.key.collection);
            }
        }
        targets.extend(self.indices.resolve(again).await);

        let mut outcomes = refused;
        let mut items = Vec::with_capacity(writes.len());
        for (at, write) in writes.iter().enumerate() {
            if outcomes[at].is_some() {
                continue;
            }
            match plan_write(at, write, &targets) {
                Ok(item) => items.push(item),
                Err(outcome) => outcomes[at] = Some(outcome),
            }
        }
        let mut missing = Vec::new();
        for (at, settled) in self.bulks.send(items).await {
            if let Settled::Write(outcome) = settled {
                if outcome == Outcome::MissingCollection {
                    missing.push((at, &*writes[at].key.collection));
                }
                outcomes[at] = Some(outcome);
            }
        }
        let names = missing.iter().map(|(_, name)| *name).collect();
        let lagging = self.indices.lagging(names, &targets).await;
        for (at, _) in missing.into_iter().filter(|(_, name)| lagging.contains(name)) {
            outcomes[at] = Some(Outcome::RejectedInDoubt(NOT_KNOWN.to_owned()));
        }
        self.verify_blocked(writes, &targets, &mut outcomes).await;
        for (write, outcome) in writes.iter().zip(&mut outcomes) {
            if let (WriteOp::Check(source), Some(Outcome::Holds)) = (&write.op, &outcome) {
                *outcome = Some(self.term_check.check(&write.key.collection, source).await);
            }
        }
        let none = || Outcome::Unknown("not answered".to_owned());
        outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(none)).collect()
    }

    /// Refuses an invalid write before it is sent.
    ///
    /// One invalid item would fail the whole request.
    fn refuse(&self, write: &Write) -> Option<Outcome> {
        if let Err(refusal) = self.limits.check(&write.key, write.op.source_len()) {
            return Some(Outcome::Invalid(refusal));
        }
        let source = match &write.op {
            WriteOp::Create(s) | WriteOp::Replace(s, _) | WriteOp::Check(s) => Some(s),
            WriteOp::Delete(_) | WriteOp::Verify(_) => None,
        };
        if let Some(reason) = source.and_then(|source| fault_of_source(source)) {
            return Some(Outcome::Invalid(Refusal { kind: RefusalKind::Document, reason }));
        }
        None
    }

    /// Replaces the outcomes of verifies that a block refused.
    async fn verify_blocked(
        &self,
        writes: &[Write],
        targets: &Resolved<'_>,
        outcomes: &mut [Option<Outcome>],
    ) {
        let is_blocked = |outcome: &Option<Outcome>| matches!(outcome, Some(Outcome::Invalid(refusal)) if refusal.kind == RefusalKind::Blocked);
        let mut asks = Vec::new();
        for (at, write) in writes.iter().enumerate() {
            let (WriteOp::Verify(_), Some(Ok(target))) =
                (&write.op, targets.get(&*write.key.collection))
            else {
                continue;
            };
            if is_blocked(&outcomes[at]) {
                asks.push(Ask { at, key: &write.key, target: target.clone() });
            }
        }
        let reads = self.multi_gets.blocked_documents(&asks).await;
        for (ask, read) in asks.iter().zip(reads) {
            let WriteOp::Verify(expected) = writes[ask.at].op else { continue };
            let stands = match read {
                Read::Found { version, .. } => Some(version),
                Read::Absent => None,
                Read::MissingCollection => {
                    outcomes[ask.at] = Some(Outcome::MissingCollection);
                    continue;
                }
                Read::Unavailable(error) => {
                    outcomes[ask.at] = Some(Outcome::Rejected(error.message));
                    continue;
                }
            };
            let holds = stands == expected;
            outcomes[ask.at] = Some(if holds { Outcome::Holds } else { Outcome::Conflict });
        }
    }
}

fn plan_write<'a>(
    at: usize,
    write: &'a Write,
    targets: &Resolved<'_>,
) -> Result<Item<'a>, Outcome> {
    let target = match targets.get(&*write.key.collection) {
        Some(Ok(target)) => target.clone(),
        Some(Err(Miss::Missing)) | None => return Err(Outcome::MissingCollection),
        Some(Err(Miss::Failed(error))) => return Err(not_sent(error.clone())),
    };
    // The servers ignore `require_alias` of deletes.
    if write.require_alias && write.key.collection == target.name {
        return Err(Outcome::MissingCollection);
    }
    let route = match (write.require_alias, &target.identity_alias) {
        (true, _) => write.key.collection.clone(),
        (false, Some(identity_alias)) => identity_alias.clone(),
        (false, None) => return Err(not_sent(target.missing_alias())),
    };
    let condition = |version| target.condition(version).ok_or(Outcome::Conflict);
    let op = match &write.op {
        WriteOp::Create(source) => Op::Create(source),
        WriteOp::Replace(source, version) => Op::Replace(source, condition(*version)?),
        WriteOp::Delete(version) => Op::Delete(condition(*version)?),
        WriteOp::Check(source) => Op::Check(source),
        WriteOp::Verify(Some(version)) => Op::Verify(Some(condition(*version)?)),
        WriteOp::Verify(None) => Op::Verify(None),
    };
    Ok(Item::new(at, &write.key, route, target, op))
}

fn condition_of(op: &WriteOp) -> Option<txn_store::Version> {
    match op {
        WriteOp::Replace(_, version) | WriteOp::Delete(version) => Some(*version),
        WriteOp::Verify(expected) => *expected,
        WriteOp::Create(_) | WriteOp::Check(_) => None,
    }
}

/// Returns the outcome of a write that was not sent.
fn not_sent(error: StoreError) -> Outcome {
    match error.kind {
        StoreErrorKind::Denied => {
            Outcome::Invalid(Refusal { kind: RefusalKind::Denied, reason: error.message })
        }
        _ => Outcome::Rejected(error.message),
    }
}

/// Returns the fault of a source that is no one-line JSON object.
///
/// Other text would not survive a bulk request.
fn fault_of_source(source: &str) -> Option<String> {
    if source.bytes().any(|byte| byte == b'\n' || byte == b'\r') {
        return Some("the source has a raw line break".to_owned());
    }
    if !source.trim_start().starts_with('{') {
        return Some("the source is not a JSON object".to_owned());
    }
    serde_json::from_str::<serde::de::IgnoredAny>(source).err().map(|e| e.to_string())
}
