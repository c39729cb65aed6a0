//! The verbs of the command.

mod changes;
mod health;
mod hints;
mod init;
mod queues;
mod rebuild;
mod requests;
pub(crate) mod roles;
mod serve;
mod signals;
mod transactions;

use std::path::Path;

use clap::CommandFactory;

use crate::answer::{Answer, Exit, Failure};
use crate::args::{Cli, Command, Global};
use crate::session::Session;
use txn_serve::operator::TransactionFilter;

pub(crate) async fn run(cli: Cli) -> Result<Answer, Failure> {
    let Cli { global, command } = cli;
    match command {
        Command::Completions { shell } => Ok(completions(shell)),
        Command::Schema => Ok(schema()),
        Command::Man { directory } => manual(&directory),
        Command::Roles { collections } => roles::roles(&global, &collections),
        Command::Init { collections, mappings } => {
            init::init(&global, &collections, mappings.as_deref()).await
        }
        Command::Rebuild { processes_stopped } => {
            Box::pin(rebuild::rebuild(&global, processes_stopped)).await
        }
        Command::Serve(options) => Box::pin(serve::serve(global, *options)).await,
        Command::Status { watch, probe } => health::status(&global, watch, probe).await,
        Command::Doctor { collection } => {
            Box::pin(health::examine(&global, collection.as_deref())).await
        }
        command => {
            let session = Session::open(&global).await?;
            let answer = Box::pin(on(&session, &global, command)).await;
            session.close().await;
            answer
        }
    }
}

/// Runs a verb on an open domain.
async fn on(session: &Session, global: &Global, command: Command) -> Result<Answer, Failure> {
    let domain = &session.domain;
    match command {
        Command::Ls { state, older, label } => {
            let rows = TransactionFilter { state: state.map(Into::into), older, label };
            transactions::list(domain, &rows, global.limit()).await
        }
        Command::Show { tid } => transactions::show(domain, tid, global.limit()).await,
        Command::Why { collection, id, routing } => {
            transactions::why(domain, &collection, &id, routing.as_deref()).await
        }
        Command::Locks { waiting: true } => transactions::waiters(domain, global.limit()).await,
        Command::Locks { waiting: false } => transactions::locks(domain, global.limit()).await,
        Command::Processes => signals::processes(domain, global.limit()).await,
        Command::Hot { minutes } => signals::hot(domain, minutes, global.limit()).await,
        Command::History { minutes, against } => {
            signals::history(domain, minutes, against, global.limit()).await
        }
        Command::Hanging { older } => health::hanging(domain, older, global.limit()).await,
        Command::Verify { minutes } => health::verify(domain, minutes, global).await,
        Command::Abort { tid, why, dry_run } => changes::abort(domain, tid, &why, dry_run).await,
        Command::Recover { dry_run } => changes::recover(domain, dry_run, global.json).await,
        Command::Outcome { tid, dry_run } => {
            changes::outcome(domain, tid, dry_run, global.limit()).await
        }
        Command::Dead(what) => queues::dead(domain, what, global.limit()).await,
        Command::Lock(what) => queues::lock(domain, what, global.limit()).await,
        Command::Outbox => queues::backlog(domain).await,
        Command::Requests(what) => requests::requests(domain, what, global.limit()).await,
        Command::Run { file, id, execute } => requests::run(domain, &file, &id, execute).await,
        // The caller has run these verbs, which need no open domain.
        Command::Status { .. }
        | Command::Doctor { .. }
        | Command::Init { .. }
        | Command::Roles { .. }
        | Command::Rebuild { .. }
        | Command::Schema
        | Command::Serve(_)
        | Command::Man { .. }
        | Command::Completions { .. } => Err(Failure::invalid("the verb needs no open domain")),
    }
}

fn completions(shell: clap_complete::Shell) -> Answer {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "txn", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    Answer::new(Exit::Well, script.clone(), script)
}

/// The schema of the output of `--json`, for both forms of output.
fn schema() -> Answer {
    let text = include_str!("../../schema.json");
    let json: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    Answer::new(Exit::Well, text, json)
}

fn manual(directory: &Path) -> Result<Answer, Failure> {
    clap_mangen::generate_to(Cli::command(), directory).map_err(|error| {
        Failure::invalid(format!("cannot write to {}: {error}", directory.display()))
    })?;
    let text = format!("The manual is in {0}.\nNext: `man {0}/txn.1`.", directory.display());
    Ok(Answer::new(Exit::Well, text, serde_json::json!({ "directory": directory })))
}

/// Whether a system of the domain exists, such as `outbox`.
async fn has_system(domain: &txn_core::Domain, of: &str) -> Result<bool, Failure> {
    let name = domain.collection_name(of);
    Ok(domain.admin().overview().await?.collections.contains(&name))
}

/// Refuses a verb about a system that the domain does not use.
///
/// Opening the system would create its collections.
async fn need_system(domain: &txn_core::Domain, of: &str) -> Result<(), Failure> {
    match has_system(domain, of).await? {
        true => Ok(()),
        false => Err(Failure::invalid(format!(
            "the domain {:?} has no {of}: no process has used it",
            domain.name()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(command: &clap::Command, above: &str, definitions: &serde_json::Value) {
        let verbs = command.get_subcommands().filter(|verb| verb.get_name() != "help");
        for verb in verbs {
            let name = format!("{above} {}", verb.get_name());
            let name = name.trim();
            // A verb with subverbs has no answer of its own, except `serve`.
            if verb.get_subcommands().next().is_none() || name == "serve" {
                assert!(definitions.get(name).is_some(), "the schema has no {name:?}");
            }
            check(verb, name, definitions);
        }
    }

    #[test]
    fn schema_has_each_verb() {
        let schema: serde_json::Value =
            serde_json::from_str(include_str!("../../schema.json")).expect("JSON");
        check(&Cli::command(), "", &schema["$defs"]);
    }
}
