//! Commands on accounts: statement, pending transfers, closing, and search by owner.

use jiff::Timestamp;
use serde_json::json;
use txn_bank::{Bank, Closed, Line, LineKind, NewAccount, Pending, Period, Statement};
use txn_requests::RequestsConfig;

use crate::cli::DRAIN;
use crate::cli::requests::reason_of;
use crate::console::args::Command;
use crate::console::failure::{Exit, Failure};
use crate::console::{exit_after, output};

/// A command with validated input, before the store is opened.
pub(crate) enum Action {
    Close { name: String, to: Option<String> },
    Statement { name: String, period: Period },
    Pending(String),
    Owner(String),
}

impl Action {
    pub(crate) fn check(command: Command) -> Result<Self, Failure> {
        Ok(match command {
            Command::Close { name, to } => Self::Close { name, to },
            Command::Statement { name, from, to } => {
                let at = |text: Option<String>| text.map(|text| millis_of(&text)).transpose();
                let period = Period::default().with_from(at(from)?).with_to(at(to)?);
                Self::Statement { name, period }
            }
            Command::Pending { name } => Self::Pending(name),
            Command::Accounts { owner } => Self::Owner(owner),
            _ => return Err(Failure::refused("this command is not about accounts")),
        })
    }
}

/// Parses a day or a moment to milliseconds since the epoch.
fn millis_of(text: &str) -> Result<u64, Failure> {
    let whole = if text.contains('T') { text.to_owned() } else { format!("{text}T00:00:00Z") };
    let at = whole.parse::<Timestamp>().ok();
    let millis = at.and_then(|at| u64::try_from(at.as_millisecond()).ok());
    millis.ok_or_else(|| {
        let words = "is no time: write a day, 2026-05-01, or a moment, 2026-05-01T10:30:00Z";
        Failure::refused(format!("{:?} {words}", text.chars().take(40).collect::<String>()))
    })
}

/// Parses `NAME=OWNER`, the account that a transfer opens.
pub(crate) fn account_to_open(text: &str, currency: &str) -> Result<NewAccount, Failure> {
    let (name, owner) = text.split_once('=').ok_or_else(|| {
        Failure::refused("write the account that is to be opened as NAME=OWNER, such as dan=Daniel")
    })?;
    Ok(NewAccount::new(name, owner, 0, currency)?)
}

pub(crate) async fn run_action(bank: &Bank, action: Action, json: bool) -> Result<Exit, Failure> {
    let written = match action {
        Action::Close { name, to } => closed(&name, &bank.close(&name, to.as_deref()).await?, json),
        Action::Statement { name, period } => {
            return statement(bank.statement(&name, period).await?, json).await;
        }
        Action::Pending(name) => return pending(bank, &name, json).await,
        Action::Owner(owner) => return accounts_of(bank, &owner, json).await,
    };
    exit_after(written, Exit::Done)
}

fn closed(name: &str, closed: &Closed, json: bool) -> std::io::Result<()> {
    let Closed { account, moved, already, .. } = closed;
    if json {
        let status = if *already { "already closed" } else { "closed" };
        return output::print_json(&json!({
            "status": status, "account": output::account_json(name, account), "moved": moved,
        }));
    }
    let at = output::time_of(account.closed_at.unwrap_or_default());
    match (moved, already) {
        (_, true) => output::print(&format!("Already closed: {name}, at {at}.")),
        (None, false) => output::print(&format!("Closed: {name}")),
        (Some(moved), false) => output::print(&format!("Closed: {name}, by {}", moved.key))
            .and_then(|()| output::transfer(moved)),
    }
}

/// Prints a statement page by page, however many lines it has.
async fn statement(mut statement: Statement<'_>, json: bool) -> Result<Exit, Failure> {
    let currency = statement.currency();
    let (opening, closing) = (statement.opening, statement.closing);
    let begin = match json {
        true => output::print_json(&json!({
            "account": statement.name, "owner": statement.account.owner, "currency": currency,
            "opening": opening, "closing": closing, "closed_at": statement.account.closed_at,
        })),
        false => output::print(&format!(
            "{} of {}: {} {currency} before",
            statement.name,
            statement.account.owner,
            output::grouped(opening)
        )),
    };
    exit_after(begin, Exit::Done)?;
    while let Some(lines) = statement.next_page().await? {
        let written = match json {
            true => lines.iter().try_for_each(output::print_json),
            false => output::lines(&lines.iter().map(row_of).collect::<Vec<_>>()),
        };
        exit_after(written, Exit::Done)?;
    }
    let end = match json {
        true => Ok(()),
        false => output::print(&format!("{} {currency} behind", output::grouped(closing))),
    };
    exit_after(end, Exit::Done)
}

fn row_of(line: &Line) -> [String; 5] {
    let what = match (&line.transfer, line.kind) {
        (Some(_), LineKind::Deposit) => "opened".to_owned(),
        (Some(key), _) => key.clone(),
        (None, _) => "carried forward".to_owned(),
    };
    let (amount, balance) = (output::signed(line.amount), output::grouped(line.balance));
    [line.number.to_string(), output::time_of(line.at), what, amount, balance]
}

async fn pending(bank: &Bank, name: &str, json: bool) -> Result<Exit, Failure> {
    let requests = bank.requests(RequestsConfig::default()).await?;
    let found = bank.pending(&requests, name).await;
    if !requests.shutdown(DRAIN).await {
        tracing::warn!("not everything is done yet: another process does the rest");
    }
    let found = found?;
    if json {
        let written = found.transfers.iter().try_for_each(output::print_json);
        return exit_after(written, Exit::Done);
    }
    let currency = found.account.currency;
    let one = |one: &Pending| {
        let at = output::time_of(one.submitted_at);
        let (amount, legs) = (output::signed(one.amount), one.legs.iter());
        let legs: Vec<String> =
            legs.map(|leg| format!("{}:{:+}", leg.account, leg.amount)).collect();
        let line = format!(
            "{}: {amount} {currency}, {} since {at} ({})",
            one.key,
            one.state,
            legs.join(" ")
        );
        output::print(&match &one.reason {
            Some(reason) => format!("{line}; {}", reason_of(bank, reason)),
            None => line,
        })
    };
    let written = found.transfers.iter().try_for_each(one).and_then(|()| {
        output::print(&format!(
            "{name} holds {} {currency}; {} if all {} are made",
            output::grouped(found.account.balance),
            output::grouped(found.would_hold()),
            found.transfers.len()
        ))
    });
    exit_after(written, Exit::Done)
}

async fn accounts_of(bank: &Bank, owner: &str, json: bool) -> Result<Exit, Failure> {
    let mut pages = bank.accounts_of(owner).await?;
    while let Some(page) = pages.next_page().await? {
        if !page.is_empty() {
            exit_after(output::accounts(&page, json), Exit::Done)?;
        }
    }
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_days_or_moments() {
        assert_eq!(millis_of("1970-01-02").expect("a day"), 86_400_000);
        assert_eq!(millis_of("1970-01-01T01:00:00.5+01:00").expect("a moment"), 500);
        for text in ["", "yesterday", "2026-13-01", "2026-05-01 10:00", "1969-12-31"] {
            assert!(millis_of(text).is_err(), "{text}");
        }
    }
}
