//! The command: parses the command line, runs it, and prints the result.

mod accounts;
mod events;
mod load;
mod notify;
mod requests;

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use serde_json::json;
use txn_bank::{Bank, BankError, Leg, Load, NewAccount, Status, TransferOptions, Transferred};
use txn_cli::{Address, program, without_logins};
use txn_core::store::Store;
use txn_core::{Config, ErrorKind, TransactionOutcome};

use crate::console::args::{Cli, Command, Global, STORE};
use crate::console::failure::{Exit, Failure};
use crate::console::{address_of, config, exit_after, open_store, output};

/// How long a command waits at its end for unapplied commits.
const DRAIN: Duration = Duration::from_secs(10);

pub(crate) fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return program::report_usage_error(&error, STORE),
    };
    program::silence_redb_panics();
    program::init_logging("TXN_BANK_LOG", "off");
    let json = cli.global.json;
    let done = program::run(run(cli))
        .unwrap_or_else(|error| Err(Failure::misconfigured(format!("cannot start: {error}"))));
    match done {
        Ok(exit) => exit.into(),
        Err(failure) => fail(&failure, json),
    }
}

/// Prints one line on standard error, and optionally JSON on standard output.
fn fail(failure: &Failure, json: bool) -> ExitCode {
    let line = without_logins(&failure.line(), STORE);
    let _ = writeln!(std::io::stderr(), "error: {}", output::visible(&line));
    if json {
        // The exit code and the line above report the error, too.
        let _ = output::print_json(&json!({ "error": line, "exit": failure.exit as u8 }));
    }
    failure.exit.into()
}

async fn run(cli: Cli) -> Result<Exit, Failure> {
    let Cli { global, command } = cli;
    match command {
        Command::Demo => return crate::demo::run(&global).await,
        Command::DemoWorker { worker } => {
            return crate::demo::worker::process(&global, worker).await;
        }
        Command::Load { accounts, legs, workers, seconds, hot, submit, processors } => {
            let duration = Duration::from_secs(seconds);
            let load = Load::new(accounts, legs, workers, duration, hot)?;
            return load::run(&global, &load, submit.then_some(processors)).await;
        }
        _ => {}
    }
    // Validates the input before the store is opened.
    let action = Action::check(command)?;
    let address = stored_address(&global)?;
    let init = matches!(action, Action::Init { .. });
    let open = open_store(&address, &global, init).await?;
    let config = config().with_janitor_interval(None);
    let store = open.store.clone();
    let bank = match action {
        Action::Init { owners, statements } => {
            create_bank(store, global.domain.as_str(), config, owners, statements).await
        }
        _ => Bank::open(store, &global.domain, config).await,
    };
    let done = match bank {
        Ok(bank) => {
            let done = run_action(&bank, action, &global, &open.what).await;
            if !bank.shutdown(DRAIN).await {
                tracing::warn!("not everything is applied yet: another process does the rest");
            }
            done
        }
        Err(error) => Err(error.into()),
    };
    open.close().await;
    done
}

/// The address of a store that outlives this process.
fn stored_address(global: &Global) -> Result<Address, Failure> {
    match address_of(global) {
        Address::Memory => Err(Failure::refused(
            "memory: holds nothing between two commands: it serves demo and load; use redb:PATH or a server",
        )),
        address => Ok(address),
    }
}

async fn create_bank(
    store: Arc<dyn Store>,
    domain: &str,
    config: Config,
    owners: bool,
    statements: bool,
) -> Result<Bank, BankError> {
    let mut bank = Bank::create(store, domain, config).await?;
    if owners && !bank.keeps_owners() {
        bank = bank.keep_owners().await?;
    }
    if statements && !bank.keeps_statements() {
        bank = bank.keep_statements().await?;
    }
    Ok(bank)
}

/// A command with validated input, before the store is opened.
enum Action {
    Init { owners: bool, statements: bool },
    Open(NewAccount),
    Transfer { legs: Vec<Leg>, key: Option<String>, open: Vec<NewAccount>, notify: Vec<String> },
    Account(accounts::Action),
    Accounts(Vec<String>),
    ShowTransfer(String),
    Audit { recover: bool },
    Request(requests::Action),
    Events(events::Action),
}

impl Action {
    fn check(command: Command) -> Result<Self, Failure> {
        Ok(match command {
            Command::Open { name, owner, balance, currency, overdraft } => {
                let deposit = txn_bank::parse_amount(&balance).map_err(|error| match error {
                    BankError::InvalidLeg(_) => {
                        Failure::refused(format!("{balance:?} is no whole number of minor units"))
                    }
                    error => error.into(),
                })?;
                let new = NewAccount::new(&name, &owner, deposit, &currency)?;
                Self::Open(new.with_overdraft(overdraft))
            }
            Command::Transfer { legs, id, open, currency, notify } => {
                let open = open.iter().map(|new| accounts::account_to_open(new, &currency));
                let open = open.collect::<Result<_, _>>()?;
                Self::Transfer { legs: legs_of(&legs, id.as_deref())?, key: id, open, notify }
            }
            Command::Balance { names } => Self::Accounts(names),
            Command::Show { what } => match <[String; 2]>::try_from(what) {
                Ok([word, key]) if word == "transfer" => Self::ShowTransfer(key),
                Ok(_) => {
                    return Err(Failure::refused("show one account, or write `show transfer KEY`"));
                }
                Err(names) => Self::Accounts(names),
            },
            Command::Audit { no_recover } => Self::Audit { recover: !no_recover },
            command @ (Command::Submit { .. }
            | Command::Wait { .. }
            | Command::Reverse { .. }
            | Command::Process { .. }
            | Command::Recover { .. }) => Self::Request(requests::Action::check(command)?),
            command @ (Command::Owner { .. }
            | Command::Derive { .. }
            | Command::Dispatch { .. }
            | Command::RebuildOwners) => Self::Events(events::Action::check(command)?),
            command @ (Command::Close { .. }
            | Command::Statement { .. }
            | Command::Pending { .. }
            | Command::Accounts { .. }) => Self::Account(accounts::Action::check(command)?),
            Command::Init { owners, statements } => Self::Init { owners, statements },
            // The caller has already run all other commands.
            _ => Self::Init { owners: false, statements: false },
        })
    }
}

/// The legs of a transfer, validated without reading accounts.
fn legs_of(texts: &[String], key: Option<&str>) -> Result<Vec<Leg>, Failure> {
    let legs: Result<Vec<Leg>, BankError> = texts.iter().map(|leg| Leg::parse(leg)).collect();
    let legs = legs?;
    txn_bank::check_transfer(key, &legs)?;
    Ok(legs)
}

async fn run_action(
    bank: &Bank,
    action: Action,
    global: &Global,
    store: &str,
) -> Result<Exit, Failure> {
    let json = global.json;
    let mut exit = Exit::Done;
    let written = match action {
        Action::Init { .. } => print_ready(bank, store, json),
        Action::Open(new) => {
            let account = bank.open_account(&new).await?;
            output::accounts(&[(new.name().to_owned(), account)], json)
        }
        Action::Transfer { legs, key, open, notify } => {
            let key = key.unwrap_or_else(|| bank.new_key());
            let calls = notify::calls(&notify, &key, &legs);
            let options = TransferOptions::default().with_open(open).with_after_commit(calls);
            print_transferred(&key, &transfer(bank, &key, &legs, &options).await?, json)
        }
        Action::Accounts(names) => {
            let accounts = bank.accounts(&names).await?;
            let rows: Vec<_> = names.into_iter().zip(accounts).collect();
            output::accounts(&rows, json)
        }
        Action::ShowTransfer(key) => {
            let transfer = bank.transfer_of(&key).await?;
            if json {
                output::print_json(&transfer)
            } else {
                let at = output::time_of(transfer.created_at);
                let what = format!("{:?}", transfer.kind);
                output::print(&format!("{what} {key}, at {at}"))
                    .and_then(|()| output::transfer(&transfer))
            }
        }
        Action::Audit { recover } => {
            let audit = bank.audit(recover).await?;
            if !audit.is_clean() {
                exit = Exit::Found;
            }
            output::audit(&audit, json)
        }
        Action::Account(action) => return accounts::run_action(bank, action, json).await,
        Action::Request(action) => return requests::run_action(bank, action, global).await,
        Action::Events(action) => return events::run_action(bank, action, global).await,
    };
    exit_after(written, exit)
}

fn print_ready(bank: &Bank, store: &str, json: bool) -> io::Result<()> {
    let [accounts, transfers] = bank.collection_names();
    let domain = bank.domain().name();
    if json {
        return output::print_json(&json!({
            "domain": domain, "accounts": accounts, "transfers": transfers, "store": store,
        }));
    }
    output::print(&format!("The bank {domain} is ready: {accounts} and {transfers} on {store}."))
}

fn print_transferred(key: &str, done: &Transferred, json: bool) -> io::Result<()> {
    if json {
        let status = match done.status {
            Status::Done => "done",
            Status::AlreadyDone => "already done",
        };
        return output::print_json(&json!({
            "status": status, "key": key, "tid": done.tid, "attempts": done.attempts,
            "legs": done.transfer.legs, "created_at": done.transfer.created_at,
        }));
    }
    let line = match done.status {
        Status::Done => {
            let by = done.tid.map(|tid| format!(" (transaction {tid})"));
            format!("Done: {key}{}", by.unwrap_or_default())
        }
        Status::AlreadyDone => format!(
            "Already done: {key}, at {}. Nothing was moved now.",
            output::time_of(done.transfer.created_at)
        ),
    };
    output::print(&line).and_then(|()| output::transfer(&done.transfer))
}

/// Makes a transfer, and asks for an unknown outcome.
async fn transfer(
    bank: &Bank,
    key: &str,
    legs: &[Leg],
    options: &TransferOptions,
) -> Result<Transferred, Failure> {
    let error = match bank.transfer_with(Some(key), legs, options).await {
        Err(BankError::Engine(error)) if error.kind() == ErrorKind::Unknown => error,
        done => return Ok(done?),
    };
    let outcome = match error.tid() {
        Some(tid) => bank.outcome(tid).await.ok(),
        None => None,
    };
    match outcome {
        // The outcome is decided. A repeated transfer under the same key is safe, and returns it.
        Some(TransactionOutcome::Committed { .. } | TransactionOutcome::Aborted) => {
            Ok(bank.transfer_with(Some(key), legs, options).await?)
        }
        _ => Err(Failure::unknown(format!(
            "{error}: it is not known whether money was moved; run it again with --id {key}, it moves once"
        ))),
    }
}

/// Returns on Ctrl-C, or when the system asks the process to stop.
pub(crate) async fn stop_signal() {
    let interrupted = async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    #[cfg(unix)]
    let terminated = async {
        use tokio::signal::unix::{SignalKind, signal};
        match signal(SignalKind::terminate()) {
            Ok(mut signal) => {
                signal.recv().await;
            }
            Err(_) => std::future::pending().await,
        }
    };
    #[cfg(not(unix))]
    let terminated = std::future::pending::<()>();
    tokio::select! {
        () = interrupted => {}
        () = terminated => {}
    }
}
