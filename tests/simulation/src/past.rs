//! Reads of history, during a run and after its end.

use std::collections::BTreeMap;
use std::time::Duration;

use txn_core::{Domain, Error};

use crate::history::{Content, Doc, Fate, History, Kind, World};
use crate::scenario::{ACCOUNTS, SHEETS, TOKENS};

/// The number of times to read at after the end.
const MOMENTS: usize = 6;

/// The documents as of one time.
pub(crate) type Moment = BTreeMap<Doc, Option<Content>>;

/// The documents with invariants across several documents.
pub(crate) fn audited() -> Vec<Doc> {
    let accounts = (0..ACCOUNTS).map(Doc::Account);
    let pairs = (0..2).flat_map(|n| [Doc::OnCall(n), Doc::Claim(n)]);
    accounts.chain(pairs).chain((0..TOKENS).map(Doc::Token)).collect()
}

/// Reads the documents as of a time, without a transaction.
pub(crate) async fn look_back(
    domain: &Domain,
    world: &World,
    moment: Duration,
    docs: &[Doc],
) -> Result<Moment, Error> {
    let ids = docs.iter().map(|doc| doc.id());
    let found = domain.history().at(moment)?.get_many(world, ids).await?;
    Ok(docs.iter().copied().zip(found).collect())
}

/// Reads history after the end of a run.
///
/// The times are those of earlier reads, some at which transactions began or committed, and the
/// latest one. Returns the read at the latest time, and violations.
pub(crate) async fn look_through(
    domain: &Domain,
    world: &World,
    history: &History,
    [since, now]: [Duration; 2],
    dice: &mut fastrand::Rng,
    primaries_crash: bool,
) -> Result<(Moment, Vec<String>), Error> {
    let operations = history.operations();
    let journals = operations.iter().map(|operation| Doc::Journal(operation.number));
    let mut docs = audited();
    docs.extend((0..SHEETS).map(Doc::Sheet).chain(journals));
    let tids: Vec<Duration> =
        operations.iter().filter_map(|operation| Some(operation.tid?.unix_time())).collect();
    let latest = domain.history().latest_timestamp();
    let mut moments = Vec::new();
    for _ in 0..MOMENTS {
        let Some(tid) = tids.get(dice.usize(..tids.len().max(1))) else { break };
        moments.push((*tid + Duration::from_millis(dice.u64(..3_000))).clamp(since, latest));
    }
    moments.push(latest);
    let mut violations = Vec::new();
    for look in operations.iter().filter(|look| look.kind == Kind::LookBack && look.is_committed())
    {
        let Some(moment) = look.moment else { continue };
        let seen: Vec<Doc> = look.reads.keys().copied().collect();
        let again = look_back(domain, world, moment, &seen).await?;
        if again != look.reads && !primaries_crash {
            violations
                .push(format!("past: a repeated read of operation {} has changed", look.number));
        }
    }
    let mut last = Moment::new();
    for moment in moments {
        let number = history.begin("historian", Kind::LookBack, now);
        last = look_back(domain, world, moment, &docs).await?;
        history.note(number, |operation| {
            (operation.fate, operation.ended) = (Fate::Committed, Some(now));
            operation.moment = Some(moment);
            operation.reads.clone_from(&last);
        });
    }
    Ok((last, violations))
}
