//! Verbs that judge the domain: `status`, `hanging`, `verify`, `doctor`.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use txn_core::admin::{
    DocumentLock, Fault, LockStanding, OpenTransaction, ParticipantState, TransactionState,
};
use txn_core::ids::Day;
use txn_core::{AttemptId, Domain};
use txn_outbox::{Outbox, OutboxConfig};

use super::has_system;
use super::hints::time;
use crate::answer::{Answer, Exit, Failure, Message, is_read, is_well, lines};
use crate::args::Global;
use crate::session::Session;

/// The lead of a clock that is worth a message, in milliseconds.
const CLOCK_MS: u64 = 1_000;

/// After so many leases a transaction without progress is a fault.
const LEASES: u64 = 6;

/// A transaction without progress is no fault for this time, in milliseconds.
///
/// The janitors recover dead transactions within this time, if one runs.
const PATIENCE_MS: u64 = 30_000;

pub(super) async fn status(global: &Global, watch: Option<u64>) -> Result<Answer, Failure> {
    let Some(seconds) = watch else { return once(global).await };
    loop {
        // A failure must not end the watch.
        let printed = match once(global).await {
            Ok(answer) => answer.print(global.json),
            Err(failure) => failure.print(global.json),
        };
        if !is_read(printed)? {
            return Ok(Answer::new(Exit::Well, "", Value::Null));
        }
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }
}

async fn once(global: &Global) -> Result<Answer, Failure> {
    let session = Session::open(global).await?;
    let answer = Box::pin(state_of(&session, global.limit())).await;
    session.close().await;
    answer
}

/// The findings of one look at the domain.
struct Findings {
    open: Vec<OpenTransaction>,
    locks: Vec<DocumentLock>,
    truncated: bool,
    messages: Vec<Message>,
}

impl Findings {
    fn count(&self, state: TransactionState) -> usize {
        self.open.iter().filter(|open| open.state == state).count()
    }

    /// The holders of locks that have written no record.
    fn without_record(&self) -> impl Iterator<Item = &DocumentLock> {
        self.locks.iter().filter(|lock| lock.state == TransactionState::NoRecord)
    }

    fn oldest_ms(&self) -> u64 {
        let open = self.open.iter().map(|open| open.age_ms);
        let holders = self.without_record().map(|lock| lock.age_ms);
        open.chain(holders).max().unwrap_or(0)
    }

    /// Whether a part could not be read, so that the answer is not complete.
    fn is_partial(&self) -> bool {
        self.messages.iter().any(|message| message.code == "unreachable")
    }

    /// The exit code of a verb that has to look at everything.
    fn complete_exit(&self) -> Exit {
        match self.exit() {
            Exit::Well if self.truncated => Exit::CouldNotFindOut,
            exit => exit,
        }
    }

    fn exit(&self) -> Exit {
        let errors = self.messages.iter().filter(|message| message.code != "unreachable");
        match is_well(&errors.cloned().collect::<Vec<_>>()) {
            false => Exit::NotWell,
            true if self.is_partial() => Exit::CouldNotFindOut,
            true => Exit::Well,
        }
    }
}

/// Looks at transactions, locks and parts. `older_ms`: what counts as without progress.
async fn look(domain: &Domain, older_ms: u64, limit: usize) -> Result<Findings, Failure> {
    let open = domain.admin().transactions(limit).await?;
    let locks = domain.admin().locks(limit).await?;
    let report = domain.admin().inspect().await?;
    let mut messages = Vec::new();
    for one in &open.transactions {
        messages.extend(of_open(one, older_ms));
    }
    messages.extend(of_holders(&locks.locks, older_ms));
    let void = locks.locks.iter().filter(|lock| lock.standing == LockStanding::Void).count();
    if void > 0 {
        messages.push(Message::note(
            "void_lock",
            format!("{void} locks are void"),
            "nothing: the next transaction overwrites them; `txn recover` removes them",
        ));
    }
    for (key, what) in &report.damaged {
        messages.push(Message::error(
            "damaged",
            format!("{key}: {what}"),
            "repair it as in docs/failures.md; for a lost part: `txn rebuild`",
        ));
    }
    let unread = report.unreachable.iter().map(|(name, what)| format!("{name}: {what}"));
    for what in unread {
        messages.push(Message::error(
            "unreachable",
            what,
            "check the health of the index and the privileges (`txn roles`), then repeat",
        ));
    }
    let known: Vec<String> = messages.iter().map(|message| message.text.clone()).collect();
    let is_new = |fault: &&Fault| !known.iter().any(|text| text.contains(&fault.subject));
    for fault in open.faults.iter().chain(&locks.faults).filter(is_new) {
        let code = if fault.damaged { "damaged" } else { "unreachable" };
        let text = format!("{}: {}", fault.subject, fault.message);
        messages.push(Message::error(code, text, "see docs/failures.md for the message"));
    }
    let truncated = open.truncated || locks.truncated;
    if truncated {
        let text = format!("more than {limit} transactions or locks are open");
        messages.push(Message::note("limit_reached", text, "raise --limit to see all"));
    }
    Ok(Findings { open: open.transactions, locks: locks.locks, truncated, messages })
}

/// The holders without a record, one message for each.
fn of_holders(locks: &[DocumentLock], older_ms: u64) -> Vec<Message> {
    let mut holders: Vec<AttemptId> = Vec::new();
    let mut messages = Vec::new();
    for lock in locks.iter().filter(|lock| lock.state == TransactionState::NoRecord) {
        if lock.age_ms >= older_ms && !holders.contains(&lock.holder) {
            holders.push(lock.holder);
            let (holder, document, age) = (lock.holder, &lock.document, time(lock.age_ms));
            messages.push(Message::error(
                "lock_without_record",
                format!("{holder} holds {document} for {age} and has written no record"),
                format!("`txn recover`, or `txn abort {holder}`"),
            ));
        }
    }
    messages
}

/// A transaction without progress.
fn of_open(open: &OpenTransaction, older_ms: u64) -> Option<Message> {
    let OpenTransaction { tid, process, unchanged_ms, .. } = open;
    let since = time(*unchanged_ms);
    match open.state {
        _ if *unchanged_ms < older_ms => None,
        TransactionState::Committed => Some(Message::error(
            "commit_unapplied",
            format!("{tid} of {process} is committed and not applied for {since}"),
            format!("`txn recover`; if it stays: `txn show {tid}` names the document"),
        )),
        _ => Some(Message::error(
            "owner_silent",
            format!("{tid} of {process} has sent no heartbeat for {since}"),
            format!("`txn recover`, or `txn abort {tid}`"),
        )),
    }
}

async fn state_of(session: &Session, limit: usize) -> Result<Answer, Failure> {
    let domain = &session.domain;
    let asked = Instant::now();
    let overview = domain.admin().overview().await?;
    let read_ms = u64::try_from(asked.elapsed().as_millis()).unwrap_or(u64::MAX);
    let mut findings = look(domain, stall_ms(domain), limit).await?;
    findings.messages.extend(of_clock(overview.clock_ahead_ms));
    let outbox = outbox(domain, overview.now_ms, &mut findings.messages).await?;
    let exit = findings.exit();
    let well = exit == Exit::Well;
    let (pending, committed) =
        (findings.count(TransactionState::Pending), findings.count(TransactionState::Committed));
    let without = findings.without_record().count();
    let oldest_ms = findings.oldest_ms();
    let word = match exit {
        Exit::Well => "well",
        Exit::NotWell => "NOT WELL",
        Exit::CouldNotFindOut => "not known: a part could not be read",
    };
    let mut text = format!(
        "The domain {:?} is {word}. Store: {}\n\
         Open: {pending} pending, {committed} committed, {without} locks without a record; the oldest began {} ago\n\
         Locks: {}; collections: {}; days: {}\n\
         A read took {read_ms} ms",
        overview.domain,
        session.what(),
        time(oldest_ms),
        findings.locks.len(),
        overview.collections.len(),
        overview.partitions.len(),
    );
    if let Some(ahead) = overview.clock_ahead_ms {
        text += &format!("; {}", clock(ahead));
    }
    if let Some(waiting) = &outbox {
        let (events, dead) = (&waiting["events"], &waiting["dead"]);
        text += &format!("\nOutbox: {events} events wait, {dead} dead letters");
    }
    text = format!("{text}\n{}", lines(&findings.messages));
    let json = json!({
        "well": match exit { Exit::CouldNotFindOut => Value::Null, _ => json!(well) },
        "domain": overview.domain,
        "now_ms": overview.now_ms,
        "read_ms": read_ms,
        "clock_ahead_ms": overview.clock_ahead_ms,
        "partitions": overview.partitions,
        "dropped_through": overview.dropped_through,
        "collections": overview.collections,
        "open": {
            "pending": pending, "committed": committed, "locks_without_record": without,
            "oldest_ms": oldest_ms,
        },
        "locks": findings.locks.len(),
        "truncated": findings.truncated,
        "outbox": outbox,
        "messages": findings.messages,
    });
    Ok(Answer::new(exit, text, json))
}

/// The time without progress that is a fault, in milliseconds.
fn stall_ms(domain: &Domain) -> u64 {
    let lease = u64::try_from(domain.config().lease.as_millis()).unwrap_or(u64::MAX);
    lease.saturating_mul(LEASES).max(PATIENCE_MS)
}

fn clock(ahead_ms: i64) -> String {
    let side = if ahead_ms < 0 { "behind" } else { "ahead of" };
    format!("the clock of this machine is {} ms {side} the server's", ahead_ms.unsigned_abs())
}

/// A clock that differs from the server's.
fn of_clock(ahead_ms: Option<i64>) -> Option<Message> {
    let ahead = ahead_ms.filter(|ahead| ahead.unsigned_abs() > CLOCK_MS)?;
    Some(Message::error(
        "clock_differs",
        clock(ahead),
        "set the clocks of this machine and of the servers by NTP",
    ))
}

/// The backlog of the outbox, if the domain has one.
async fn outbox(
    domain: &Domain,
    now_ms: u64,
    messages: &mut Vec<Message>,
) -> Result<Option<Value>, Failure> {
    if !has_system(domain, "outbox").await? {
        return Ok(None);
    }
    let backlog = Outbox::open(domain, OutboxConfig::default()).await?.source().backlog().await?;
    if backlog.dead > 0 {
        messages.push(Message::error(
            "dead_letters",
            format!(
                "{} events are dead letters, and {} keys wait for one",
                backlog.dead, backlog.blocked
            ),
            "`txn dead list`, then `txn dead retry` or `txn dead drop`",
        ));
    }
    let mut value = json!(backlog);
    value["lag_ms"] = json!(backlog.lag_ms(now_ms));
    Ok(Some(value))
}

pub(super) async fn hanging(domain: &Domain, older: u64, limit: usize) -> Result<Answer, Failure> {
    let findings = look(domain, older.saturating_mul(1_000), limit).await?;
    let mut messages = findings.messages.clone();
    messages.retain(|message| message.code != "void_lock");
    let text = match messages.is_empty() {
        true => format!("Nothing hangs for {older} s or longer."),
        false => lines(&messages),
    };
    let json = json!({ "hanging": messages, "truncated": findings.truncated });
    Ok(Answer::new(findings.complete_exit(), text, json))
}

/// Checks locks and commits completely.
pub(super) async fn verify(domain: &Domain, limit: usize) -> Result<Answer, Failure> {
    let mut findings = look(domain, stall_ms(domain), limit).await?;
    let committed = findings.open.iter().filter(|open| open.state == TransactionState::Committed);
    let tids: Vec<AttemptId> = committed.map(|open| open.tid).collect();
    let mut checked = 0;
    for tid in &tids {
        for one in domain.admin().participants(*tid).await? {
            checked += 1;
            if one.state.needs_operator() || one.state == ParticipantState::Unreadable {
                findings.messages.push(Message::error(
                    "participant_damaged",
                    format!("{}: {} for the commit of {tid}", one.document, one.state.as_str()),
                    "repair the document as in docs/failures.md, then `txn recover`",
                ));
            }
        }
    }
    let exit = findings.complete_exit();
    let summary = format!(
        "Checked {} locks, {} open transactions, and {checked} participants of {} commits that are not finished.\n",
        findings.locks.len(),
        findings.open.len(),
        tids.len(),
    );
    let verdict = match exit {
        Exit::Well => "Each lock has an owner, and each commit is applied or about to be.\n",
        _ => "",
    };
    let json = json!({
        "well": match exit { Exit::CouldNotFindOut => Value::Null, exit => json!(exit == Exit::Well) },
        "locks": findings.locks.len(),
        "open": findings.open.len(),
        "participants": checked,
        "truncated": findings.truncated,
        "messages": findings.messages,
    });
    Ok(Answer::new(exit, summary + verdict + &lines(&findings.messages), json))
}

/// The day after a moment, as in the names of partitions.
fn tomorrow(now_ms: u64) -> String {
    Day::of_unix_time(Duration::from_millis(now_ms)).plus(1).to_string()
}

/// Checks the parts of the domain one by one.
pub(super) async fn doctor(
    session: &Session,
    collection: Option<&str>,
    limit: usize,
) -> Result<Answer, Failure> {
    let domain = &session.domain;
    let overview = domain.admin().overview().await?;
    let findings = look(domain, stall_ms(domain), limit).await?;
    let fault_of = |name: &str| {
        let is_about = |message: &&Message| {
            message.severity == crate::answer::Severity::Error && names(&message.text, name)
        };
        findings.messages.iter().find(is_about)
    };
    let mut checks: Vec<(String, Option<Message>)> = Vec::new();
    checks.push((format!("store: {}", session.what()), None));
    checks.push((format!("domain document of {:?}", overview.domain), None));
    checks.push(("clock of this machine".to_owned(), of_clock(overview.clock_ahead_ms)));
    let days: Vec<String> = overview.partitions.iter().map(|part| part.day.to_string()).collect();
    if !days.contains(&tomorrow(overview.now_ms)) {
        checks.push(("partition of tomorrow".to_owned(), Some(without_tomorrow())));
    }
    for partition in &overview.partitions {
        let name = format!("partition {}", partition.day);
        checks.push((name, fault_of(&partition.name).cloned()));
    }
    let wanted = |name: &&String| collection.is_none_or(|wanted| wanted == **name);
    let collections: Vec<&String> = overview.collections.iter().filter(wanted).collect();
    if let (Some(wanted), true) = (collection, collections.is_empty()) {
        let message = Message::error(
            "collection_unknown",
            format!("the domain has no collection {wanted:?}"),
            format!("check the name, or take it over: `txn init {wanted}`"),
        );
        checks.push((format!("collection {wanted}"), Some(message)));
    }
    for name in collections {
        checks.push((format!("collection {name}"), fault_of(name).cloned()));
    }
    let told: Vec<Message> = checks.iter().filter_map(|(_, message)| message.clone()).collect();
    let rest = findings
        .messages
        .iter()
        .filter(|message| collection.is_none() && !told.iter().any(|one| one.text == message.text));
    let rest: Vec<Message> = rest.cloned().collect();
    let all: Vec<Message> = told.into_iter().chain(rest.iter().cloned()).collect();
    let well = is_well(&all);
    let text: String =
        checks.iter().map(|(what, message)| checked(what, message.as_ref())).collect();
    let checks: Vec<Value> = checks
        .iter()
        .map(|(what, message)| json!({ "check": what, "ok": message.is_none() }))
        .collect();
    let json = json!({ "well": well, "checks": checks, "messages": all });
    let exit = match findings.exit() {
        Exit::Well => Exit::well_if(well),
        exit => exit,
    };
    Ok(Answer::new(exit, text + &lines(&rest), json))
}

fn without_tomorrow() -> Message {
    Message::error(
        "partition_missing",
        "tomorrow has no partition yet",
        "see TXN_LOG=warn for the reason: a template, a privilege, or the limit of shards",
    )
}

/// The line of a check, with its fault.
fn checked(what: &str, fault: Option<&Message>) -> String {
    match fault {
        None => format!("ok  {what}\n"),
        Some(message) => format!("BAD {what}: {}\n", message.line()),
    }
}

/// Whether a message is about a collection, or about a document of it.
fn names(text: &str, collection: &str) -> bool {
    let rest = text.strip_prefix(collection);
    rest.is_some_and(|rest| rest.starts_with(':') || rest.starts_with('/'))
}
