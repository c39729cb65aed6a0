//! The audit: compares the balances with the ledger.
//!
//! Only opening deposits bring money in. Each is recorded in the transaction that opens its
//! account. Transfers sum to zero. The expected total of a currency is therefore the exact sum of
//! its deposits. Each balance is the sum of the account's entries in deposits and transfers.
//!
//! The audit scans both collections after a refresh. A scan shows locked documents as they were
//! before their transaction. The audit reads these documents again through the engine, which
//! returns the committed content. Several scans are no snapshot: an audit is meaningful only while
//! no transaction runs, and reports running ones.

mod statements;
pub(crate) mod voided;

use std::collections::BTreeMap;
use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use txn_core::store::{Filter, Pages};
use txn_core::{Collection, ErrorKind, Typed};

use crate::bank::Bank;
use crate::error::{BankError, Result};
use crate::model::{Account, Currency, Kind, Transfer};
use crate::transfers::rules::Sums;

pub use voided::Voided;

/// The number of documents per page of a scan.
const PAGE: usize = 1_000;

/// The result of an audit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Audit {
    /// The number of accounts.
    pub accounts: usize,
    /// The number of opening deposits in the ledger.
    pub deposits: usize,
    /// The number of transfers in the ledger.
    pub transfers: usize,
    /// The expected and the found totals, by currency.
    pub totals: Vec<Total>,
    /// The number of recovered transactions. `None` for an audit without recovery.
    pub recovered: Option<usize>,
    /// The voided locks without a record, of at most 1,000 transactions.
    ///
    /// The list starts at the open of the bank by this process. The ledger cannot show whether one
    /// of these transactions was committed.
    pub voided: Vec<Voided>,
    /// All problems.
    pub findings: Vec<Finding>,
}

impl Audit {
    /// Whether the audit found no problem.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }

    /// Whether the audit found locks or open transactions.
    ///
    /// A transaction may then be running, and sums may mix different moments.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        let live = |f: &Finding| matches!(f, Finding::Locked { .. } | Finding::Open { .. });
        self.findings.iter().any(live)
    }
}

/// The total of one currency, in minor units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Total {
    /// The currency.
    pub currency: Currency,
    /// The sum of all opening deposits.
    pub expected: i128,
    /// The sum of all balances.
    pub found: i128,
}

/// A problem that the audit found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "finding", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Finding {
    /// The balances of a currency differ from the deposits.
    Total {
        /// The currency.
        currency: Currency,
        /// The sum of all opening deposits.
        expected: i128,
        /// The sum of all balances.
        found: i128,
    },
    /// A balance differs from the sum of the account's entries.
    Balance {
        /// The name of the account.
        account: String,
        /// The balance by the ledger.
        expected: i128,
        /// The balance of the account.
        found: i64,
        /// The currency of the account.
        currency: Currency,
    },
    /// A balance is negative without an overdraft.
    Overdrawn {
        /// The name of the account.
        account: String,
        /// The balance.
        balance: i64,
    },
    /// A closed account is not empty.
    Closed {
        /// The name of the account.
        account: String,
        /// The balance.
        balance: i64,
    },
    /// A statement is incomplete, or differs from the ledger.
    Statement {
        /// The name of the account.
        account: String,
        /// The number of the first wrong line.
        line: u64,
        /// The kind of the difference.
        what: String,
    },
    /// The legs of a transfer do not sum to zero.
    Unbalanced {
        /// The key of the transfer.
        key: String,
        /// The currency.
        currency: Currency,
        /// The sum of the legs.
        sum: i128,
    },
    /// The ledger has entries of a missing account, or in another currency.
    NoAccount {
        /// The name of the account.
        account: String,
        /// The currency of the entries.
        currency: Currency,
        /// The balance by the ledger.
        expected: i128,
    },
    /// A document is locked.
    Locked {
        /// The document.
        document: String,
        /// The tid of the holder.
        holder: String,
    },
    /// A transaction is neither finished nor aborted.
    Open {
        /// The tid of the transaction.
        tid: String,
        /// The state of the record.
        state: String,
    },
    /// A document or a record is damaged.
    Damaged {
        /// The document.
        document: String,
        /// The kind of damage.
        what: String,
    },
    /// A collection or a partition could not be read.
    Unreachable {
        /// The name of the collection.
        collection: String,
        /// The reason.
        why: String,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Total { currency, expected, found } => {
                let off = found - expected;
                write!(
                    f,
                    "the balances sum to {found} {currency}, the deposits to {expected}: {off:+}"
                )
            }
            Self::Balance { account, expected, found, currency } => {
                let off = i128::from(*found) - expected;
                write!(f, "{account} holds {found} {currency}, the ledger says {expected}: {off:+}")
            }
            Self::Overdrawn { account, balance } => {
                write!(f, "{account} holds {balance} and may not be overdrawn")
            }
            Self::Closed { account, balance } => {
                write!(f, "{account} is closed and holds {balance}")
            }
            Self::Statement { account, line, what } => {
                write!(f, "line {line} of the statement of {account} {what}")
            }
            Self::Unbalanced { key, currency, sum } => {
                write!(f, "the legs of the transfer {key} sum to {sum:+} {currency}, not to zero")
            }
            Self::NoAccount { account, currency, expected } => {
                write!(
                    f,
                    "the ledger has {expected} {currency} of the account {account}, which does not exist"
                )
            }
            Self::Locked { document, holder } => write!(f, "{document} is locked by {holder}"),
            Self::Open { tid, state } => write!(f, "the transaction {tid} is open: {state}"),
            Self::Damaged { document, what } => write!(f, "{document} is damaged: {what}"),
            Self::Unreachable { collection, why } => {
                write!(f, "{collection} could not be read: {why}")
            }
        }
    }
}

/// The holder of a document, and whether it is a placeholder.
#[derive(Deserialize)]
struct Marks {
    #[serde(default)]
    transaction_tid: Option<serde_json::Value>,
    #[serde(default)]
    transaction_absent: Option<bool>,
}

impl Bank {
    /// Checks that no money was created or lost.
    ///
    /// With `recover`, the janitor first finishes transactions of crashed processes. Otherwise the
    /// audit changes nothing, and reports these transactions.
    ///
    /// # Errors
    /// Any error of the store. A wrong balance is a [`Finding`], not an error.
    pub async fn audit(&self, recover: bool) -> Result<Audit> {
        let (report, recovered) = match recover {
            true => {
                let report = self.domain().admin().janitor_pass().await?;
                let recovered = report.recovered;
                (report, Some(recovered))
            }
            false => (self.domain().admin().inspect().await?, None),
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
        let (accounts, transfers) = self.collections();
        // The ledger first: a commit in between then causes a visible difference, never a false
        // match.
        let transfers: BTreeMap<String, Transfer> =
            self.all(transfers, recover, &mut findings).await?;
        let accounts: BTreeMap<String, Account> =
            self.all(accounts, recover, &mut findings).await?;
        if self.keeps_statements() {
            findings.extend(self.audit_statements(&accounts, &transfers, recover).await?);
        }
        let mut audit = compare(&accounts, &transfers, findings);
        audit.recovered = recovered;
        audit.voided = self.voided();
        Ok(audit)
    }

    /// All documents of a collection, as committed.
    async fn all<T>(
        &self,
        collection: &Collection<Typed<T>>,
        recover: bool,
        findings: &mut Vec<Finding>,
    ) -> Result<BTreeMap<String, T>>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
    {
        let name = collection.name();
        self.store().refresh(name).await?;
        let mut found = BTreeMap::new();
        let mut locked = Vec::new();
        let mut pages = Pages::new(self.store(), name, Filter::All, PAGE);
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
        let reader = self.domain().reader();
        let reader = if recover { reader.verified() } else { reader };
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
struct Ledger<'a> {
    /// The expected balances, by account and currency.
    entries: BTreeMap<(&'a str, Currency), i128>,
    /// The deposited amounts.
    deposits: Sums,
    /// The number of deposits.
    count: usize,
}

impl<'a> Ledger<'a> {
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
    let Ledger { mut entries, deposits, count } = Ledger::of(transfers, &mut findings);
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
