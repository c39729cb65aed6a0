//! The audit of statements: completeness, and equality with the ledger.

use std::collections::BTreeMap;

use super::Finding;
use crate::error::{BankError, Result};
use crate::model::{Account, Transfer};
use crate::statement_lines::line_reader::LineReader;
use crate::statement_lines::statements::{Line, LineKind};

/// The number of lines per request.
const PAGE: u64 = 500;

/// Returns the problems of these accounts' statements, at most one per account.
///
/// `verified`: whether the lines are read from the primary.
pub(super) async fn check(
    reader: LineReader<'_>,
    accounts: &BTreeMap<String, Account>,
    transfers: &BTreeMap<String, Transfer>,
    verified: bool,
) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for (name, account) in accounts {
        let end = account.statement.unwrap_or_default();
        let (mut number, mut balance) = (0, 0_i64);
        let wrong = |line, what: &str| {
            Some(Finding::Statement { account: name.clone(), line, what: what.to_owned() })
        };
        let mut finding = None;
        while number < end.lines && finding.is_none() {
            let last = end.lines.min(number + PAGE);
            let lines = match reader.lines(name, number + 1, last, verified).await {
                Ok(lines) => lines,
                Err(BankError::StatementDamaged { line, what, .. }) => {
                    finding = wrong(line, &what);
                    break;
                }
                Err(error) => return Err(error),
            };
            for line in &lines {
                number = line.number;
                if balance.checked_add(line.amount) != Some(line.balance) {
                    finding = wrong(number, "does not add up with the one before");
                    break;
                }
                balance = line.balance;
                if !is_in_ledger(line, transfers) {
                    finding = wrong(number, "is not what the ledger says");
                    break;
                }
            }
        }
        if finding.is_none() && balance != end.balance {
            finding = wrong(end.lines, "is not the balance that the account notes");
        }
        findings.extend(finding);
    }
    Ok(findings)
}

fn is_in_ledger(line: &Line, transfers: &BTreeMap<String, Transfer>) -> bool {
    let Some(key) = &line.transfer else { return line.kind == LineKind::Carried };
    let legs = transfers.get(key).map(|transfer| &transfer.legs);
    let is_it = |leg: &crate::model::Entry| {
        (&leg.account, leg.amount, leg.currency) == (&line.account, line.amount, line.currency)
    };
    legs.is_some_and(|legs| legs.iter().any(is_it))
}
