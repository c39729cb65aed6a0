//! Verbs that decide or recover transactions.

use serde_json::json;
use txn_cli::Progress;
use txn_core::admin::{TransactionState, Verdict};
use txn_core::{AttemptId, Domain, JanitorReport, TransactionOutcome};
use txn_serve::operator::{has_traces, next_step_of_transaction};

use crate::answer::{Answer, Exit, Failure};

pub(super) async fn abort(
    domain: &Domain,
    tid: AttemptId,
    why: &str,
    dry_run: bool,
) -> Result<Answer, Failure> {
    if !has_traces(domain, tid).await? {
        let next = next_step_of_transaction(Verdict::Unknown, tid);
        let text = format!("{tid} has no record and no lock. Nothing was done.\nNext: {next}.");
        let state = TransactionState::NoRecord;
        let json = json!({
            "tid": tid, "before": state, "after": state, "dry_run": dry_run, "aborts": false,
            "next": next,
        });
        return Ok(Answer::new(Exit::NotWell, text, json));
    }
    let report = domain.admin().abort(tid, why, dry_run).await?;
    let (text, next, well) = match (report.aborts, dry_run, report.after) {
        (true, true, state) => (
            format!("{tid} is {state}, and would be aborted"),
            "repeat the command without --dry-run",
            true,
        ),
        (true, false, _) => (
            format!(
                "The attempt {tid} is aborted for good, and its locks are void. An owner that lives runs its closure again \
                 under another tid"
            ),
            "nothing: the next transaction overwrites the locks; `txn recover` removes them",
            true,
        ),
        (false, _, TransactionState::Aborted) => {
            (format!("{tid} was aborted before"), "nothing", true)
        }
        (false, _, TransactionState::Forgotten) => (
            format!("{tid} is too old: its day was dropped, so its locks are void"),
            "nothing",
            true,
        ),
        (false, _, state) => (
            format!("{tid} is {state}: a committed transaction cannot be aborted"),
            "`txn recover` applies the commit, if its owner is dead",
            false,
        ),
    };
    let mut json = json!(report);
    json["next"] = json!(next);
    Ok(Answer::new(Exit::well_if(well), format!("{text}.\nNext: {next}."), json))
}

pub(super) async fn recover(domain: &Domain, dry_run: bool, json: bool) -> Result<Answer, Failure> {
    let progress = Progress::begin("looking at all locks and open transactions", json);
    let report = match dry_run {
        true => domain.admin().inspect().await?,
        false => domain.admin().janitor_pass().await?,
    };
    drop(progress);
    let (locked, open) = (report.locked.len(), report.open.len());
    let mut text = match dry_run {
        true => format!("{locked} documents are locked, and {open} transactions are open."),
        false => format!(
            "Recovered {} transactions or locks, and dropped {} days. Left: {locked} locked documents, {open} open \
             transactions.",
            report.recovered, report.partitions_dropped
        ),
    };
    for (key, what) in &report.damaged {
        text += &format!("\ndamaged: {key}: {what}");
    }
    for (name, what) in &report.unreachable {
        text += &format!("\ncould not be read: {name}: {what}");
    }
    let next = match () {
        () if !report.damaged.is_empty() => "repair the damage as in docs/failures.md",
        () if !report.unreachable.is_empty() => "check the servers, then repeat the command",
        () if dry_run && locked + open > 0 => {
            "repeat the command without --dry-run; running transactions go on"
        }
        () if locked + open > 0 => "`txn ls`: their owners may be alive",
        () => "nothing",
    };
    text += &format!("\nNext: {next}.");
    let exit = match () {
        () if !report.damaged.is_empty() => Exit::NotWell,
        () if !report.unreachable.is_empty() => Exit::CouldNotFindOut,
        () => Exit::well_if(dry_run || locked + open == 0),
    };
    Ok(Answer::new(exit, text, of_pass(&report, dry_run, next)))
}

fn of_pass(report: &JanitorReport, dry_run: bool, next: &str) -> serde_json::Value {
    let pairs = |pairs: &[(String, String)]| -> Vec<serde_json::Value> {
        let each = pairs
            .iter()
            .map(|(subject, message)| json!({ "subject": subject, "message": message }));
        each.collect()
    };
    let damaged: Vec<(String, String)> =
        report.damaged.iter().map(|(key, what)| (key.to_string(), what.clone())).collect();
    json!({
        "dry_run": dry_run,
        "recovered": report.recovered,
        "partitions_dropped": report.partitions_dropped,
        "locked": report.locked.len(),
        "open": report.open.len(),
        "truncated": report.truncated,
        "damaged": pairs(&damaged),
        "unreachable": pairs(&report.unreachable),
        "next": next,
    })
}

pub(super) async fn outcome(
    domain: &Domain,
    tid: AttemptId,
    dry_run: bool,
    limit: usize,
) -> Result<Answer, Failure> {
    if dry_run {
        let report = domain.admin().transaction(tid, limit).await?;
        let next = next_step_of_transaction(report.verdict, tid);
        let text = format!("{tid} is {} now: {}.\nNext: {next}.", report.state, report.why);
        let json = json!({ "tid": tid, "outcome": report.state, "final": false, "next": next });
        return Ok(Answer::new(Exit::Well, text, json));
    }
    let had_traces = has_traces(domain, tid).await?;
    let (word, version) = match domain.outcome(tid).await? {
        TransactionOutcome::Committed { commit_version } => ("committed", Some(commit_version)),
        TransactionOutcome::Aborted => ("aborted", None),
        TransactionOutcome::Forgotten => ("forgotten", None),
        _ => return Err(Failure::unfit("a newer library knows this outcome")),
    };
    let text = match (word, version) {
        ("forgotten", _) => {
            format!("{tid} is forgotten: the transaction table has dropped its day.")
        }
        (word, Some(version)) => format!("{tid} is {word} for good, as version {version}."),
        (word, None) if had_traces => format!("{tid} is {word} for good."),
        (word, None) => format!(
            "{tid} is {word} for good. It had no record: a commit of one document may leave none, so look at its document, \
             too."
        ),
    };
    let json = json!({ "tid": tid, "outcome": word, "final": true, "commit_version": version });
    Ok(Answer::new(Exit::well_if(word != "forgotten"), text, json))
}
