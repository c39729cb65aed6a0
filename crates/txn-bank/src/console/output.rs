//! Output of the command: tables for operators, JSON for programs.

use std::io;

use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};
use txn_bank::{Account, Audit, LoadReport, SubmittedReport, Transfer};
use txn_cli::table;

pub(crate) use txn_cli::{print, print_json, time_of, visible};

/// A number with thousands separators.
pub(crate) fn grouped(number: impl Into<i128>) -> String {
    let number: i128 = number.into();
    let digits = number.unsigned_abs().to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if number < 0 { format!("-{text}") } else { text }
}

/// A number with its sign and thousands separators.
pub(crate) fn signed(number: i64) -> String {
    format!("{}{}", if number > 0 { "+" } else { "" }, grouped(number))
}

pub(crate) fn accounts(rows: &[(String, Account)], json: bool) -> io::Result<()> {
    if json {
        return rows
            .iter()
            .try_for_each(|(name, account)| print_json(&account_json(name, account)));
    }
    let mut table =
        table(["account", "owner", "balance", "", "overdraft", "opened", "closed"], &[2]);
    for (name, account) in rows {
        table.add_row([
            name.clone(),
            account.owner.clone(),
            grouped(account.balance),
            account.currency.to_string(),
            if account.overdraft { "allowed" } else { "no" }.to_owned(),
            time_of(account.opened_at),
            account.closed_at.map(time_of).unwrap_or_default(),
        ]);
    }
    print(&table.to_string())
}

pub(crate) fn account_json(name: &str, account: &Account) -> Value {
    let mut value = json!(account);
    value["account"] = json!(name);
    value
}

pub(crate) fn transfer(transfer: &Transfer) -> io::Result<()> {
    let mut table = table(["account", "amount", ""], &[1]);
    for leg in &transfer.legs {
        table.add_row([leg.account.clone(), signed(leg.amount), leg.currency.to_string()]);
    }
    print(&table.to_string())
}

/// The lines of a statement.
pub(crate) fn lines(rows: &[[String; 5]]) -> io::Result<()> {
    let mut table = table(["", "at", "transfer", "amount", "balance"], &[0, 3, 4]);
    for row in rows {
        table.add_row(row);
    }
    print(&table.to_string())
}

/// An audit, as JSON.
#[derive(serde::Serialize)]
struct AuditJson<'a> {
    clean: bool,
    accounts: usize,
    deposits: usize,
    transfers: usize,
    recovered: Option<usize>,
    totals: &'a [txn_bank::Total],
    voided: &'a [txn_bank::Voided],
    findings: &'a [txn_bank::Finding],
}

impl<'a> AuditJson<'a> {
    fn of(audit: &'a Audit) -> Self {
        Self {
            clean: audit.is_clean(),
            accounts: audit.accounts,
            deposits: audit.deposits,
            transfers: audit.transfers,
            recovered: audit.recovered,
            totals: &audit.totals,
            voided: &audit.voided,
            findings: &audit.findings,
        }
    }
}

pub(crate) fn audit(audit: &Audit, json: bool) -> io::Result<()> {
    if json {
        return print_json(&AuditJson::of(audit));
    }
    let mut table = table(["currency", "paid in", "held", "difference"], &[1, 2, 3]);
    for total in &audit.totals {
        let difference = total.found - total.expected;
        table.add_row([
            total.currency.to_string(),
            grouped(total.expected),
            grouped(total.found),
            if difference > 0 { format!("+{}", grouped(difference)) } else { grouped(difference) },
        ]);
    }
    print(&format!(
        "{} accounts, {} deposits, {} transfers{}",
        grouped(audit.accounts as i128),
        grouped(audit.deposits as i128),
        grouped(audit.transfers as i128),
        match audit.recovered {
            None => "; only looked, nothing was recovered".to_owned(),
            Some(0) => "; nothing had to be recovered".to_owned(),
            Some(n) => format!("; first recovered transactions of other processes: {n}"),
        }
    ))?;
    if !audit.totals.is_empty() {
        print(&table.to_string())?;
    }
    for voided in &audit.voided {
        print(&format!("NOTE: {voided}"))?;
    }
    if audit.is_clean() {
        return print(
            "Every balance is what the ledger says. No lock is left, no transaction is open, nothing is damaged.",
        );
    }
    for finding in &audit.findings {
        print(&format!("FOUND: {finding}"))?;
    }
    if audit.is_busy() {
        print(
            "Locks or open transactions are there: if something still runs, audit again when nothing does.",
        )?;
    }
    Ok(())
}

pub(crate) fn load(report: &LoadReport) -> io::Result<()> {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let mut row = |name: &str, value: String| {
        table.add_row([name.to_owned(), value]);
    };
    let count = |n: u64| grouped(i128::from(n));
    row("accounts opened", grouped(report.opened as i128));
    row("seconds", format!("{:.1}", report.seconds));
    row("committed", count(report.committed));
    row("per second", format!("{:.1}", report.per_second));
    for name in ["min", "p50", "p90", "p99", "p99.9", "max"] {
        if let Some(ms) = report.latency_ms.get(name) {
            row(&format!("latency {name}"), format!("{ms:.1} ms"));
        }
    }
    row("conflicts", count(report.conflicts));
    row("wounds", count(report.wounds));
    row("retries", count(report.retries));
    row("most attempts of one transfer", report.most_attempts.to_string());
    row("recovered or rolled forward", count(report.recovered));
    for (kind, n) in &report.errors {
        row(&format!("failed: {kind}"), count(*n));
    }
    let settled = report.settled_committed + report.settled_aborted;
    if settled > 0 {
        row("unknown, settled: committed", count(report.settled_committed));
        row("unknown, settled: not committed", count(report.settled_aborted));
    }
    if !report.unsettled.is_empty() {
        row("still unknown", grouped(report.unsettled.len() as i128));
    }
    row("everything applied at the end", if report.drained { "yes" } else { "no" }.to_owned());
    if report.interrupted {
        row("ended early", "yes".to_owned());
    }
    if let Some(column) = table.column_mut(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    print(&table.to_string())
}

pub(crate) fn submitted_load(report: &SubmittedReport) -> io::Result<()> {
    let mut steps = table(
        ["", "transfers", "per second", "min", "p50", "p95", "p99", "max"],
        &[1, 2, 3, 4, 5, 6, 7],
    );
    for (name, count, times) in [
        ("accepted", report.accepted, &report.accepted_ms),
        ("committed", report.committed, &report.committed_ms),
        ("finished", report.finished, &report.finished_ms),
    ] {
        let rate = report.per_second.get(name).copied().unwrap_or_default();
        let ms = |of: &str| times.get(of).map(|ms| format!("{ms:.1} ms")).unwrap_or_default();
        let mut row = vec![name.to_owned(), grouped(i128::from(count)), format!("{rate:.1}")];
        row.extend(["min", "p50", "p95", "p99", "max"].map(ms));
        steps.add_row(row);
    }
    print(&steps.to_string())?;
    let mut line = format!(
        "{:.1} s; {} accounts opened; {} rolled back, {} set aside, {} undecided",
        report.seconds, report.opened, report.rolled_back, report.quarantined, report.undecided
    );
    for (kind, count) in &report.errors {
        line.push_str(&format!("; failed: {kind}: {count}"));
    }
    if !report.drained {
        line.push_str("; not everything was done at the end");
    }
    if report.interrupted {
        line.push_str("; ended early");
    }
    print(&line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        let cases = [(0, "0"), (999, "999"), (-1_000, "-1,000"), (1_234_567, "1,234,567")];
        for (number, text) in cases {
            assert_eq!(grouped(number), text);
        }
    }
}
