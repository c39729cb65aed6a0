//! Verbs that judge the domain: `status`, `hanging`, `verify`, `doctor`.

mod doctor;
mod probe;

use std::time::Duration;

use serde_json::{Value, json};
use txn_cli::Progress;
use txn_core::admin::{LossKind, LostCommit, TransactionState};
use txn_core::{AttemptId, Domain};
use txn_outbox::Backlog;
use txn_serve::operator::{
    self, Findings, ProcessList, RequestCounts, Status, hanging_json, look, of_faults,
    of_participant, stall_ms,
};

use super::hints::time;
use crate::answer::{Answer, Exit, Failure, Message, is_read, lines};
use crate::args::Global;
use crate::session::{Session, name, store};
use doctor::{doctor, unopened};
use probe::Probe;

/// The first step of a check.
const LOOK: &str = "looking at all locks and open transactions";

/// Shows the state of a domain. `probe`: also the latency of locks and commits.
pub(super) async fn status(
    global: &Global,
    watch: Option<u64>,
    probe: bool,
) -> Result<Answer, Failure> {
    let Some(seconds) = watch else { return once(global, probe).await };
    loop {
        // A failure must not end the watch.
        let printed = match once(global, probe).await {
            Ok(answer) => answer.print(global.json),
            Err(failure) => failure.print(global.json),
        };
        if !is_read(printed)? {
            return Ok(Answer::new(Exit::Well, "", Value::Null));
        }
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }
}

async fn once(global: &Global, probe: bool) -> Result<Answer, Failure> {
    on_session(global, async |session| Box::pin(state_of(session, global.limit(), probe)).await)
        .await
}

/// Checks the parts of the domain and of its servers.
///
/// The check runs even if the domain cannot be opened.
pub(super) async fn examine(global: &Global, collection: Option<&str>) -> Result<Answer, Failure> {
    on_session(global, async |session| Box::pin(doctor(session, collection, global)).await).await
}

/// Judges a domain. If it cannot be opened, the findings about its servers are the answer.
async fn on_session(
    global: &Global,
    judge: impl AsyncFnOnce(&Session) -> Result<Answer, Failure>,
) -> Result<Answer, Failure> {
    let open = store(global, false).await?;
    let domain = match name(global) {
        Ok(domain) => domain,
        Err(failure) => {
            open.close().await;
            return Err(failure);
        }
    };
    let servers = open.servers().cloned();
    match Session::of(open, global).await {
        Ok(session) => {
            let answer = judge(&session).await;
            session.close().await;
            answer
        }
        Err(failure) => unopened(servers.as_ref(), domain, failure).await,
    }
}

async fn state_of(session: &Session, limit: usize, probe: bool) -> Result<Answer, Failure> {
    let domain = &session.domain;
    let status = operator::status(domain, session.servers(), limit).await?;
    let probe = if probe { Some(Probe::run(domain).await?) } else { None };
    let Status { overview, findings, .. } = &status;
    let exit = exit_of(findings);
    let (pending, committed) =
        (findings.count(TransactionState::Pending), findings.count(TransactionState::Committed));
    let without = findings.without_record().count();
    let word = word_of(exit);
    let mut text = format!(
        "The domain {:?} is {word}. Store: {}\n{}\
         Open: {pending} pending, {committed} committed, {without} locks without a record; the oldest began {} ago\n\
         Locks: {}; collections: {}; days: {}\n\
         {}\n{}",
        overview.domain,
        session.what(),
        lines(&findings.messages),
        time(findings.oldest_ms()),
        findings.locks.len(),
        overview.collections.len(),
        overview.partitions.len(),
        of_processes(status.processes.as_ref()),
        latency(status.read_ms, probe, overview.clock_ahead_ms),
    );
    text += &status.outbox.as_ref().map(of_outbox).unwrap_or_default();
    let now_ms = overview.now_ms;
    text += &status.requests.as_ref().map(|one| of_requests(one, now_ms)).unwrap_or_default();
    Ok(Answer::new(exit, text, status.json(probe.map(Probe::json))))
}

/// A fault is not well. An unreadable part alone hides the truth.
fn exit_of(findings: &Findings) -> Exit {
    findings.is_well().map_or(Exit::CouldNotFindOut, Exit::well_if)
}

/// The exit code of a verb that has to look at everything.
fn complete_exit(findings: &Findings) -> Exit {
    match exit_of(findings) {
        Exit::Well if findings.truncated => Exit::CouldNotFindOut,
        exit => exit,
    }
}

fn word_of(exit: Exit) -> &'static str {
    match exit {
        Exit::Well => "well",
        Exit::NotWell => "NOT WELL",
        Exit::CouldNotFindOut => "not known: a part could not be read",
    }
}

/// The line of the backlog of the outbox.
fn of_outbox(backlog: &Backlog) -> String {
    format!("\nOutbox: {} events wait, {} dead letters", backlog.events, backlog.dead)
}

/// The line of the submitted requests.
fn of_requests(requests: &RequestCounts, now_ms: u64) -> String {
    let RequestCounts { open, .. } = requests;
    let states = open.states.iter().map(|(state, count)| format!("{count} {state}"));
    let states = states.collect::<Vec<_>>().join(", ");
    let oldest = open.oldest_ms.map(|_| time(open.lag_ms(now_ms)));
    let oldest = oldest.map(|lag| format!("; the oldest waits for {lag}")).unwrap_or_default();
    format!("\nRequests: {states}{oldest}")
}

/// The counts of the processes.
fn of_processes(list: Option<&ProcessList>) -> String {
    let Some(list) = list else { return "Processes: could not be read".to_owned() };
    let libraries = match &*list.libraries {
        [] => String::new(),
        libraries => format!("; library {}", libraries.join(", ")),
    };
    format!("Processes: {} registered, {} silent{libraries}", list.processes.len(), list.silent())
}

/// Shows the times of a read and of the probe.
///
/// The text also has the clock of this machine.
fn latency(read_ms: u64, probe: Option<Probe>, ahead_ms: Option<i64>) -> String {
    let clock = ahead_ms.map(|ahead| format!("; {}", clock(ahead)));
    let probe = probe.map(Probe::text).unwrap_or_default();
    format!("A read took {read_ms} ms{probe}{}", clock.unwrap_or_default())
}

fn clock(ahead_ms: i64) -> String {
    let side = if ahead_ms < 0 { "behind" } else { "ahead of" };
    format!("the clock of this machine is {} ms {side} the server's", ahead_ms.unsigned_abs())
}

pub(super) async fn hanging(domain: &Domain, older: u64, limit: usize) -> Result<Answer, Failure> {
    let findings = look(domain, older.saturating_mul(1_000), limit).await?;
    let text = match findings.hanging().as_slice() {
        [] => format!("Nothing hangs for {older} s or longer."),
        hanging => lines(hanging.iter().copied()),
    };
    Ok(Answer::new(complete_exit(&findings), text, hanging_json(&findings)))
}

/// Checks all locks and open commits, and the finished commits of the last minutes.
pub(super) async fn verify(
    domain: &Domain,
    minutes: u64,
    global: &Global,
) -> Result<Answer, Failure> {
    let limit = global.limit();
    let progress = Progress::begin(LOOK, global.json);
    let mut findings = look(domain, stall_ms(domain), limit).await?;
    let committed = findings.open.iter().filter(|open| open.state == TransactionState::Committed);
    let tids: Vec<AttemptId> = committed.map(|open| open.tid).collect();
    let checked = compare(domain, &tids, &progress, &mut findings.messages).await?;
    let window = Duration::from_secs(minutes.saturating_mul(60));
    progress.step("comparing finished commits with their documents");
    let finished = domain.admin().check_commits(window, limit).await?;
    drop(progress);
    add(&mut findings.messages, of_faults(finished.faults.iter()));
    add(&mut findings.messages, finished.lost.iter().map(of_lost_commit));
    if finished.incomplete {
        findings.messages.push(Message::note(
            "limit_reached",
            format!("more than 1,000,000 writes in {minutes} min: not all were compared"),
            "a smaller --minutes",
        ));
    }
    findings.truncated |= finished.truncated || finished.incomplete;
    let exit = complete_exit(&findings);
    let summary = format!(
        "Checked {} locks, {} open transactions, and {checked} participants of {} commits that are not finished.\n\
         Compared {} documents with the {} finished commits of the last {minutes} min.\n",
        findings.locks.len(),
        findings.open.len(),
        tids.len(),
        finished.documents,
        finished.commits,
    );
    let verdict = match exit {
        Exit::Well => {
            "Each lock has an owner, each commit is applied or about to be. No loss of a recent commit was found.\n"
        }
        _ => "",
    };
    let json = json!({
        "well": exit.is_well(),
        "locks": findings.locks.len(),
        "open": findings.open.len(),
        "participants": checked,
        "finished": {
            "minutes": minutes, "commits": finished.commits, "documents": finished.documents,
            "lost": finished.lost,
        },
        "truncated": findings.truncated,
        "messages": findings.messages,
    });
    Ok(Answer::new(exit, summary + verdict + &lines(&findings.messages), json))
}

/// Compares unfinished commits with their documents. Returns the number of documents.
async fn compare(
    domain: &Domain,
    tids: &[AttemptId],
    progress: &Progress,
    messages: &mut Vec<Message>,
) -> Result<usize, Failure> {
    let mut checked = 0;
    for (done, tid) in tids.iter().enumerate() {
        progress.part("comparing unfinished commits with their documents", done, tids.len());
        for one in domain.admin().participants(*tid).await? {
            checked += 1;
            add(messages, of_participant(&one.document.to_string(), one.state, *tid));
        }
    }
    Ok(checked)
}

/// Adds the messages whose text is new.
fn add(messages: &mut Vec<Message>, further: impl IntoIterator<Item = Message>) {
    for message in further {
        if !messages.iter().any(|told| told.text == message.text) {
            messages.push(message);
        }
    }
}

/// The finding about a document without the content of a finished commit.
///
/// Plain clients may write unlocked documents. So only the return of older content is an error.
fn of_lost_commit(lost: &LostCommit) -> Message {
    let (document, tid) = (lost.document.to_string(), lost.tid);
    let repair = "find the client or the restore that wrote to the index; write the right content in a \
                  transaction as in docs/failures.md#damage; `verify` repeats this until the commit is older than \
                  --minutes";
    let expected = "nothing, if such a client is expected";
    let message = match lost.kind {
        LossKind::ReplacedUnseen { by } => {
            let text = format!(
                "{document} lost the commit of {tid}: older content was put back, and {by} replaced it"
            );
            Message::error("commit_lost", text, repair)
        }
        LossKind::Overwritten => {
            let text =
                format!("{document} was replaced by another client after the commit of {tid}");
            Message::note("changed_by_other_client", text, expected)
        }
        LossKind::Deleted => {
            let text =
                format!("{document} was deleted by another client after the commit of {tid}");
            Message::note("changed_by_other_client", text, expected)
        }
        _ => {
            let text = format!("{document} has older content than the commit of {tid}");
            Message::error("commit_lost", text, repair)
        }
    };
    message.about(document)
}
