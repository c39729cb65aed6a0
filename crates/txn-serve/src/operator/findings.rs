//! One look at the transactions, locks and parts of a domain.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use txn_core::admin::{
    DocumentLock, Fault, LockStanding, LockedDocuments, OpenTransaction, ParticipantState,
    TransactionState,
};
use txn_core::{AttemptId, Domain, ProcessNumber, Result};

use super::message::{Message, Severity};
use super::words::{duration as time, labelled, process_of};

/// After so many leases a transaction without progress is a fault.
const LEASES: u64 = 6;

/// A transaction without progress is no fault for this time, in milliseconds.
///
/// The janitors recover dead transactions within this time, if one runs.
const PATIENCE_MS: u64 = 30_000;

/// The number of stalled commits whose participants `status` compares with the record.
const COMPARED: usize = 20;

/// The code of a part that could not be read.
pub const UNREACHABLE: &str = "unreachable";

/// The findings of one look at the domain.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Findings {
    /// The open transactions, oldest first.
    pub open: Vec<OpenTransaction>,
    /// The locked documents.
    pub locks: Vec<DocumentLock>,
    /// Whether there are more transactions or locks than the limit allows.
    pub truncated: bool,
    /// The messages, in the order of the look.
    pub messages: Vec<Message>,
}

impl Findings {
    /// The number of open transactions in a state.
    #[must_use]
    pub fn count(&self, state: TransactionState) -> usize {
        self.open.iter().filter(|open| open.state == state).count()
    }

    /// The holders of locks that have written no record.
    pub fn without_record(&self) -> impl Iterator<Item = &DocumentLock> {
        self.locks.iter().filter(|lock| lock.state == TransactionState::NoRecord)
    }

    /// The age of the oldest transaction or holder, in milliseconds.
    #[must_use]
    pub fn oldest_ms(&self) -> u64 {
        let open = self.open.iter().map(|open| open.age_ms);
        let holders = self.without_record().map(|lock| lock.age_ms);
        open.chain(holders).max().unwrap_or(0)
    }

    /// Whether the domain has no fault. `None` if an unreadable part may hide one.
    #[must_use]
    pub fn is_well(&self) -> Option<bool> {
        let mut errors = self.messages.iter().filter(|it| it.severity == Severity::Error);
        match self.messages.iter().any(|message| message.code == UNREACHABLE) {
            _ if errors.any(|message| message.code != UNREACHABLE) => Some(false),
            true => None,
            false => Some(true),
        }
    }

    /// The messages about what makes no progress.
    #[must_use]
    pub fn hanging(&self) -> Vec<&Message> {
        self.messages.iter().filter(|message| message.code != "void_lock").collect()
    }

    /// Adds messages about causes before those about effects.
    ///
    /// A part whose fault has a known cause needs no second message.
    pub fn put_causes_first(&mut self, causes: Vec<Message>) {
        let named: BTreeSet<&str> = causes
            .iter()
            .filter(|cause| cause.severity == Severity::Error)
            .filter_map(|cause| cause.subject.as_deref())
            .collect();
        let is_explained = |message: &Message| {
            matches!(message.code, "damaged" | UNREACHABLE)
                && message.subject.as_deref().is_some_and(|subject| named.contains(subject))
        };
        self.messages.retain(|message| !is_explained(message));
        self.messages.splice(0..0, causes);
        self.messages.sort_by_key(|message| message.severity != Severity::Error);
    }
}

/// The time without progress that is a fault, in milliseconds.
#[must_use]
pub fn stall_ms(domain: &Domain) -> u64 {
    let lease = u64::try_from(domain.config().lease().as_millis()).unwrap_or(u64::MAX);
    lease.saturating_mul(LEASES).max(PATIENCE_MS)
}

/// The transactions and locks without progress as JSON.
#[must_use]
pub fn hanging_json(findings: &Findings) -> Value {
    json!({ "hanging": findings.hanging(), "truncated": findings.truncated })
}

/// Looks at transactions, locks and parts. `older_ms`: what counts as without progress.
///
/// If locks without a record look old, the look takes one lease longer.
///
/// # Errors
/// The errors of the store for the domain document.
pub async fn look(domain: &Domain, older_ms: u64, limit: usize) -> Result<Findings> {
    let open = domain.admin().transactions(limit).await?;
    let locks = domain.admin().locks(limit).await?;
    let lost = domain.admin().lost_parts(limit).await?;
    let stalled = open.transactions.iter().filter(|one| one.unchanged_ms >= older_ms);
    let stalled: Vec<&OpenTransaction> = stalled.collect();
    let mut messages = damaged(domain, &stalled).await?;
    messages.extend(unapplied(&stalled, &messages));
    messages.extend(silent(&stalled));
    messages.extend(without_record(domain, &locks, older_ms, limit).await?);
    let void = locks.locks.iter().filter(|lock| lock.standing == LockStanding::Void).count();
    if void > 0 {
        messages.push(Message::note(
            "void_lock",
            format!("{void} locks are void"),
            "nothing: the next transaction overwrites them; `txn recover` removes them",
        ));
    }
    let records = locks.locks.iter().filter_map(|lock| lock.unreadable.as_ref());
    let faults = lost.iter().chain(&open.faults).chain(&locks.faults).chain(records);
    messages.extend(of_faults(faults));
    let truncated = open.truncated || locks.truncated;
    if truncated {
        let text = format!("more than {limit} transactions or locks are open");
        messages.push(Message::note("limit_reached", text, "raise --limit to see all"));
    }
    Ok(Findings { open: open.transactions, locks: locks.locks, truncated, messages })
}

/// The messages about parts that could not be read, each part once.
pub fn of_faults<'a>(faults: impl Iterator<Item = &'a Fault>) -> Vec<Message> {
    let mut seen = BTreeSet::new();
    let mut messages = Vec::new();
    for Fault { subject, message, damaged, .. } in faults {
        // The id `*` means a whole collection.
        let subject = subject.strip_suffix("/*").unwrap_or(subject);
        if !seen.insert(subject) {
            continue;
        }
        let message = match message.starts_with(subject) {
            true => message.clone(),
            false => format!("{subject}: {message}"),
        };
        let message = match damaged {
            true => Message::error(
                "damaged",
                message,
                "repair it as in docs/failures.md; for a lost part: `txn rebuild`",
            ),
            false => Message::error(
                UNREACHABLE,
                message,
                "check the health of the index and the privileges (`txn doctor`), then repeat",
            ),
        };
        messages.push(message.about(subject));
    }
    messages
}

/// The participants of stalled commits that only an operator can settle.
async fn damaged(domain: &Domain, stalled: &[&OpenTransaction]) -> Result<Vec<Message>> {
    let mut messages = Vec::new();
    let committed = stalled.iter().filter(|open| open.state == TransactionState::Committed);
    for open in committed.take(COMPARED) {
        for one in domain.admin().participants(open.tid).await? {
            messages.extend(of_participant(&one.document.to_string(), one.state, open.tid));
        }
    }
    Ok(messages)
}

/// The message about a participant that cannot be read or applied.
///
/// `None` if an operator need not act.
#[must_use]
pub fn of_participant(document: &str, state: ParticipantState, tid: AttemptId) -> Option<Message> {
    let what = match state {
        ParticipantState::Unreadable => {
            let text = format!("{document}: could not be read for the commit of {tid}");
            return Some(
                Message::error(UNREACHABLE, text, "check the health of the index, then repeat")
                    .about(document),
            );
        }
        ParticipantState::Damaged => "another client wrote the document while it was locked",
        ParticipantState::Overtaken => {
            "another client removed the lock, and a later transaction wrote other content"
        }
        ParticipantState::Missing => {
            "another client deleted the document, before the apply or after it"
        }
        ParticipantState::Unclear => "another client moved the lock",
        ParticipantState::CollectionMadeAgain => "the collection was dropped and made again",
        state if state.needs_operator() => "only an operator can settle it",
        _ => return None,
    };
    let text = format!(
        "{document}: {what}, so the commit of {tid} cannot be applied ({})",
        state.as_str()
    );
    let remedy = format!(
        "write the right content in a transaction as in docs/failures.md#damage, then `txn recover`; \
         `txn show {tid}` lists the participants"
    );
    Some(Message::error("participant_damaged", text, remedy).about(document))
}

/// Stalled commits by process, apart from those with a damaged participant.
fn unapplied(stalled: &[&OpenTransaction], damaged: &[Message]) -> Vec<Message> {
    let is_told = |open: &OpenTransaction| {
        let tid = open.tid.to_string();
        damaged
            .iter()
            .any(|message| message.code == "participant_damaged" && message.text.contains(&tid))
    };
    let committed =
        stalled.iter().filter(|open| open.state == TransactionState::Committed && !is_told(open));
    let message = |(process, group): (&str, Vec<&OpenTransaction>)| {
        let oldest = group.first()?;
        let (tid, since) = (oldest.tid, time(oldest.unchanged_ms));
        let (named, by) = (named(oldest), owner_of(oldest));
        let text = match group.len() {
            1 => format!("{named} of {by} is committed and not applied for {since}"),
            n => format!(
                "{n} transactions of {by} are committed and not applied, the oldest {named} for {since}"
            ),
        };
        let remedy = format!("`txn recover`; if it stays: `txn show {tid}` names the document");
        Some(Message::error("commit_unapplied", text, remedy).about(process))
    };
    by_process(committed.copied()).into_iter().filter_map(message).collect()
}

/// Stalled transactions without a commit, by process.
fn silent(stalled: &[&OpenTransaction]) -> Vec<Message> {
    let pending = stalled.iter().filter(|open| open.state != TransactionState::Committed);
    let message = |(process, group): (&str, Vec<&OpenTransaction>)| {
        let oldest = group.first()?;
        let (tid, since) = (oldest.tid, time(oldest.unchanged_ms));
        let (named, by) = (named(oldest), owner_of(oldest));
        let text = match group.len() {
            1 => format!("{named} of {by} has sent no heartbeat for {since}"),
            n => format!(
                "{n} transactions of {by} have sent no heartbeat, the oldest {named} for {since}"
            ),
        };
        let remedy = format!("`txn recover`, or `txn abort {tid}`");
        Some(Message::error("owner_silent", text, remedy).about(process))
    };
    by_process(pending.copied()).into_iter().filter_map(message).collect()
}

fn named(open: &OpenTransaction) -> String {
    labelled(open.tid, open.label.as_deref())
}

fn owner_of(open: &OpenTransaction) -> String {
    process_of(open.tid, Some(&open.process), open.application.as_deref())
}

/// Groups transactions by process, oldest first.
fn by_process<'a>(
    open: impl Iterator<Item = &'a OpenTransaction>,
) -> BTreeMap<&'a str, Vec<&'a OpenTransaction>> {
    let mut groups: BTreeMap<&str, Vec<&OpenTransaction>> = BTreeMap::new();
    for open in open {
        groups.entry(&open.process).or_default().push(open);
    }
    groups
}

/// Old locks without a record, by process.
///
/// The age of a lock is not stored, and a tid has the time of its first attempt. An owner writes a
/// record within one lease, so a lock that still has none after a lease has a silent owner.
async fn without_record(
    domain: &Domain,
    locks: &LockedDocuments,
    older_ms: u64,
    limit: usize,
) -> Result<Vec<Message>> {
    let is_old =
        |lock: &&DocumentLock| lock.state == TransactionState::NoRecord && lock.age_ms >= older_ms;
    let mut old: Vec<&DocumentLock> = locks.locks.iter().filter(is_old).collect();
    let later;
    if old.iter().any(|lock| !lock.overdue) {
        tokio::time::sleep(domain.config().lease()).await;
        later = domain.admin().locks(limit).await?;
        let name = |lock: &DocumentLock| (lock.document.clone(), lock.holder);
        let still: BTreeSet<_> = later
            .locks
            .iter()
            .filter(|lock| lock.state == TransactionState::NoRecord)
            .map(name)
            .collect();
        old.retain(|lock| lock.overdue || still.contains(&name(lock)));
    }
    let mut groups: BTreeMap<ProcessNumber, BTreeMap<AttemptId, Vec<&DocumentLock>>> =
        BTreeMap::new();
    for lock in old {
        let group = groups.entry(lock.holder.process()).or_default();
        group.entry(lock.holder).or_default().push(lock);
    }
    let message = |group: BTreeMap<AttemptId, Vec<&DocumentLock>>| {
        let (holder, locks) = group.first_key_value()?;
        let lock = locks.first()?;
        let (document, since) = (&lock.document, time(lock.age_ms));
        let named = labelled(*holder, lock.label.as_deref());
        let by = process_of(*holder, lock.process.as_deref(), lock.application.as_deref());
        let text = match (group.len(), locks.len()) {
            (1, 1) => {
                format!("{named} of {by} holds {document} for {since} and has written no record")
            }
            (1, n) => format!(
                "{named} of {by} holds {n} documents, such as {document}, for {since} and has written no record"
            ),
            (n, _) => format!(
                "{n} transactions of {by} hold locks and have written no record, the oldest \
                 {named} on {document} for {since}"
            ),
        };
        let remedy = format!("`txn recover`, or `txn abort {holder}`");
        Some(Message::error("lock_without_record", text, remedy).about(document.to_string()))
    };
    Ok(groups.into_values().filter_map(message).collect())
}
