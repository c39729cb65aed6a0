//! The steps of an audit: reads of both collections, and their comparison.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use txn_core::store::{Filter, Pages, Store};
use txn_core::{Collection, Domain, ErrorKind, Typed};

use super::{Audit, Finding, Total, statements};
use crate::error::{BankError, Result};
use crate::model::{Account, Currency, Kind, Transfer};
use crate::statement_lines::line_reader::LineReader;
use crate::transfers::ledger::Ledger;
use crate::transfers::rules::Sums;

/// The number of documents per page of a scan.
const PAGE: usize = 1_000;

/// The holder of a document, and whether it is a placeholder.
#[derive(Deserialize)]
struct Marks {
    #[serde(default)]
    transaction_tid: Option<serde_json::Value>,
    #[serde(default)]
    transaction_absent: Option<bool>,
}

/// Audits one bank.
#[derive(Debug)]
pub(crate) struct Auditor<'a> {
    store: &'a dyn Store,
    domain: &'a Domain,
    ledger: &'a Ledger,
    /// Whether the janitor first finishes transactions of crashed processes.
    recover: bool,
}

impl<'a> Auditor<'a> {
    pub(crate) fn new(
        store: &'a dyn Store,
        domain: &'a Domain,
        ledger: &'a Ledger,
        recover: bool,
    ) -> Self {
        Self { store, domain, ledger, recover }
    }

    /// Compares the balances with the ledger. The audit lacks the voided locks.
    pub(crate) async fn audit(&self) -> Result<Audit> {
        let (report, recovered) = match self.recover {
            true => {
                let report = self.domain.admin().janitor_pass().await?;
                let recovered = report.recovered;
                (report, Some(recovered))
            }
            false => (self.domain.admin().inspect().await?, None),
        };
        let mut findings = Vec::new();
        for (key, holder) in report.locked {
            findings.push(Finding::Locked { document: key.to_string(), holder });
        }
        for (tid, state) in report.open {
            let state = format!("{state:?}").to_lowercase();
            findings.push(Finding::Open { tid: tid.to_string(), state });
        }
        for (key, what) in report.damaged {
            findings.push(Finding::Damaged { document: key.to_string(), what });
        }
        for (collection, why) in report.unreachable {
            findings.push(Finding::Unreachable { collection, why });
        }
        // The ledger first: a commit in between then causes a visible difference, never a false
        // match.
        let transfers: BTreeMap<String, Transfer> =
            self.all(self.ledger.transfers(), &mut findings).await?;
        let accounts: BTreeMap<String, Account> =
            self.all(self.ledger.accounts(), &mut findings).await?;
        if let Some(statements) = self.ledger.statements() {
            let reader = LineReader::new(self.domain, statements);
            let wrong = statements::check(reader, &accounts, &transfers, self.recover).await?;
            findings.extend(wrong);
        }
        let mut audit = compare(&accounts, &transfers, findings);
        audit.recovered = recovered;
        Ok(audit)
    }

    /// All documents of a collection, as committed.
    async fn all<T>(
        &self,
        collection: &Collection<Typed<T>>,
        findings: &mut Vec<Finding>,
    ) -> Result<BTreeMap<String, T>>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
    {
        let name = collection.name();
        self.store.refresh(name).await?;
        let mut found = BTreeMap::new();
        let mut locked = Vec::new();
        let mut pages = Pages::new(self.store, name, Filter::All, PAGE);
        while let Some(documents) = pages.next().await? {
            for (key, _, source) in documents {
                let id = key.id.to_string();
                match serde_json::from_str::<Marks>(&source) {
                    Ok(marks) if marks.transaction_tid.is_some() => locked.push(id),
                    Ok(Marks { transaction_absent: Some(true), .. }) => {}
                    Ok(_) => match serde_json::from_str(&source) {
                        Ok(value) => {
                            found.insert(id, value);
                        }
                        Err(error) => damaged(findings, key.to_string(), &error),
                    },
                    Err(error) => damaged(findings, key.to_string(), &error),
                }
            }
        }
        // A verified read would decide a dead holder, so an audit without recovery uses plain
        // reads.
        let reader = self.domain.reader();
        let reader = if self.recover { reader.verified() } else { reader };
        for id in locked {
            match reader.get(collection, id.as_str()).await {
                Ok(Some(value)) => {
                    found.insert(id, value);
                }
                Ok(None) => {}
                Err(error) if matches!(error.kind(), ErrorKind::Damaged | ErrorKind::WrongType) => {
                    let document = collection.key(id.as_str()).to_string();
                    let known = |f: &Finding| matches!(f, Finding::Damaged { document: d, .. } if *d == document);
                    if !findings.iter().any(known) {
                        findings.push(Finding::Damaged { document, what: error.to_string() });
                    }
                }
                Err(error) => return Err(BankError::Engine(error)),
            }
        }
        Ok(found)
    }
}

/// Reports the position of an error only.
///
/// The text of a serde error may quote values.
fn damaged(findings: &mut Vec<Finding>, document: String, error: &serde_json::Error) {
    let (line, column) = (error.line(), error.column());
    let what = format!("it is not what the bank stores (line {line}, column {column})");
    findings.push(Finding::Damaged { document, what });
}

/// The sums of all transfers.
struct LedgerSums<'a> {
    /// The expected balances, by account and currency.
    entries: BTreeMap<(&'a str, Currency), i128>,
    /// The deposited amounts.
    deposits: Sums,
    /// The number of deposits.
    count: usize,
}

impl<'a> LedgerSums<'a> {
    /// Sums the transfers up. Transfers whose legs do not balance become findings.
    fn of(transfers: &'a BTreeMap<String, Transfer>, findings: &mut Vec<Finding>) -> Self {
        let mut ledger = Self { entries: BTreeMap::new(), deposits: Sums::new(), count: 0 };
        for (key, transfer) in transfers {
            let mut sums = Sums::new();
            for entry in &transfer.legs {
                let amount = i128::from(entry.amount);
                *ledger.entries.entry((&entry.account, entry.currency)).or_default() += amount;
                *sums.entry(entry.currency).or_default() += amount;
            }
            match transfer.kind {
                Kind::Deposit => {
                    ledger.count += 1;
                    for (currency, sum) in sums {
                        *ledger.deposits.entry(currency).or_default() += sum;
                    }
                }
                Kind::Transfer => {
                    for (currency, sum) in sums.into_iter().filter(|(_, sum)| *sum != 0) {
                        findings.push(Finding::Unbalanced { key: key.clone(), currency, sum });
                    }
                }
            }
        }
        ledger
    }
}

fn compare(
    accounts: &BTreeMap<String, Account>,
    transfers: &BTreeMap<String, Transfer>,
    mut findings: Vec<Finding>,
) -> Audit {
    let LedgerSums { mut entries, deposits, count } = LedgerSums::of(transfers, &mut findings);
    let mut totals: BTreeMap<Currency, (i128, i128)> = BTreeMap::new();
    for (currency, sum) in deposits {
        totals.entry(currency).or_default().0 = sum;
    }
    for (name, account) in accounts {
        let Account { balance, currency, .. } = *account;
        totals.entry(currency).or_default().1 += i128::from(balance);
        let expected = entries.remove(&(name.as_str(), currency)).unwrap_or_default();
        let account_name = || name.clone();
        if expected != i128::from(balance) {
            let account = account_name();
            findings.push(Finding::Balance { account, expected, found: balance, currency });
        }
        if balance < 0 && !account.overdraft {
            findings.push(Finding::Overdrawn { account: account_name(), balance });
        }
        if balance != 0 && account.closed_at.is_some() {
            findings.push(Finding::Closed { account: account_name(), balance });
        }
    }
    for ((account, currency), expected) in entries {
        findings.push(Finding::NoAccount { account: account.to_owned(), currency, expected });
    }
    let totals: Vec<Total> = totals
        .into_iter()
        .map(|(currency, (expected, found))| Total { currency, expected, found })
        .collect();
    for Total { currency, expected, found } in totals.iter().filter(|t| t.expected != t.found) {
        findings.push(Finding::Total { currency: *currency, expected: *expected, found: *found });
    }
    Audit {
        accounts: accounts.len(),
        deposits: count,
        transfers: transfers.len() - count,
        totals,
        recovered: None,
        voided: Vec::new(),
        findings,
    }
}
