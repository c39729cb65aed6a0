//! The audit: is every unit of money where the ledger says?
//!
//! Money comes in by opening deposits only, each recorded in the transaction that opens the account, and
//! transfers sum to zero. So the expected total of a currency is the sum of its deposits, known exactly, and
//! each balance is the sum of the account's entries in deposits and transfers.
//!
//! The audit scans both collections after a refresh. A scan shows locked documents as they were before
//! their transaction; those are read again through the engine, which knows what is committed. Several scans
//! are no snapshot: an audit is meaningful when nothing else runs, and says so when something does.

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
use crate::rules::Sums;

pub use voided::Voided;

/// Documents that a scan asks for at once.
const PAGE: usize = 1_000;

/// What an audit found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Audit {
    /// How many accounts there are.
    pub accounts: usize,
    /// How many opening deposits the ledger keeps.
    pub deposits: usize,
    /// How many transfers the ledger keeps.
    pub transfers: usize,
    /// What there should be and what there is, by currency.
    pub totals: Vec<Total>,
    /// How many transactions were recovered before the look; `None` if it only looked.
    pub recovered: Option<usize>,
    /// The locks without a record that this process voided since it opened the bank; at most 1,000
    /// transactions. The books cannot show whether one of these transactions was committed.
    pub voided: Vec<Voided>,
    /// Everything that is not as it should be.
    pub findings: Vec<Finding>,
}

impl Audit {
    /// Whether everything is as it should be.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }

    /// Whether locks or open transactions were left: then something may be under way, and sums taken meanwhile may
    /// not belong together.
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

/// One thing that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "finding", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Finding {
    /// The balances of a currency are not what was paid in.
    Total {
        /// The currency.
        currency: Currency,
        /// The sum of all opening deposits.
        expected: i128,
        /// The sum of all balances.
        found: i128,
    },
    /// A balance is not the sum of the account's entries.
    Balance {
        /// The account.
        account: String,
        /// What the ledger says.
        expected: i128,
        /// What the account holds.
        found: i64,
        /// Its currency.
        currency: Currency,
    },
    /// A balance below zero where no overdraft is allowed.
    Overdrawn {
        /// The account.
        account: String,
        /// What it holds.
        balance: i64,
    },
    /// An account that is closed and not empty.
    Closed {
        /// The account.
        account: String,
        /// What it holds.
        balance: i64,
    },
    /// A statement that is not what the ledger says, or not whole.
    Statement {
        /// The account.
        account: String,
        /// The number of the first line that is wrong.
        line: u64,
        /// What is wrong with it.
        what: String,
    },
    /// A transfer whose legs do not sum to zero.
    Unbalanced {
        /// Its key.
        key: String,
        /// The currency.
        currency: Currency,
        /// What its legs sum to.
        sum: i128,
    },
    /// The ledger moves money of an account, or in a currency of it, that does not exist.
    NoAccount {
        /// The account.
        account: String,
        /// The currency of the entries.
        currency: Currency,
        /// What the ledger says it holds.
        expected: i128,
    },
    /// A document is locked.
    Locked {
        /// The document.
        document: String,
        /// The transaction that holds it.
        holder: String,
    },
    /// A transaction is neither finished nor aborted.
    Open {
        /// The transaction.
        tid: String,
        /// The state of its record.
        state: String,
    },
    /// A document or a record is damaged.
    Damaged {
        /// The document.
        document: String,
        /// What is wrong with it.
        what: String,
    },
    /// A collection or a partition could not be looked at: nothing is known of what is in it.
    Unreachable {
        /// Its name.
        collection: String,
        /// Why not.
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
                write!(f, "{collection} could not be looked at: {why}")
            }
        }
    }
}

/// Who holds a document and whether it is a mere placeholder.
#[derive(Deserialize)]
struct Marks {
    #[serde(default)]
    transaction_tid: Option<serde_json::Value>,
    #[serde(default)]
    transaction_absent: Option<bool>,
}

impl Bank {
    /// Checks that no money was made or lost. With `recover`, the janitor first finishes what crashed
    /// processes left behind; otherwise nothing is changed, and what they left is among the findings.
    ///
    /// # Errors
    /// As the store says. What is wrong with the books is no error, but a [`Finding`].
    pub async fn audit(&self, recover: bool) -> Result<Audit> {
        let (report, recovered) = match recover {
            true => {
                let report = self.domain().janitor_pass().await?;
                let recovered = report.recovered;
                (report, Some(recovered))
            }
            false => (self.domain().inspect().await?, None),
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
        // The ledger first: what commits in between shows up as a difference, not as a match by chance.
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

    /// Every document of a collection, as committed.
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
        // A verified read would decide a dead holder: a look that changes nothing takes what readers see.
        let reader = self.domain().reader();
        let reader = if recover { reader.verified() } else { reader };
        for id in locked {
            match reader.get(collection, id.as_str()).await {
                Ok(Some(value)) => {
                    found.insert(id, value);
                }
                Ok(None) => {}
                Err(error) if matches!(error.kind(), ErrorKind::Damaged | ErrorKind::Invalid) => {
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

/// The words of serde may quote values: only the place is told.
fn damaged(findings: &mut Vec<Finding>, document: String, error: &serde_json::Error) {
    let (line, column) = (error.line(), error.column());
    let what = format!("it is not what the bank stores (line {line}, column {column})");
    findings.push(Finding::Damaged { document, what });
}

fn compare(
    accounts: &BTreeMap<String, Account>,
    transfers: &BTreeMap<String, Transfer>,
    mut findings: Vec<Finding>,
) -> Audit {
    let mut ledger: BTreeMap<(&str, Currency), i128> = BTreeMap::new();
    let mut deposits = Sums::new();
    let mut count = 0;
    for (key, transfer) in transfers {
        let mut sums = Sums::new();
        for entry in &transfer.legs {
            let amount = i128::from(entry.amount);
            *ledger.entry((&entry.account, entry.currency)).or_default() += amount;
            *sums.entry(entry.currency).or_default() += amount;
        }
        match transfer.kind {
            Kind::Deposit => {
                count += 1;
                for (currency, sum) in sums {
                    *deposits.entry(currency).or_default() += sum;
                }
            }
            Kind::Transfer => {
                for (currency, sum) in sums.into_iter().filter(|(_, sum)| *sum != 0) {
                    findings.push(Finding::Unbalanced { key: key.clone(), currency, sum });
                }
            }
        }
    }
    let mut totals: BTreeMap<Currency, (i128, i128)> = BTreeMap::new();
    for (currency, sum) in deposits {
        totals.entry(currency).or_default().0 = sum;
    }
    for (name, account) in accounts {
        let Account { balance, currency, .. } = *account;
        totals.entry(currency).or_default().1 += i128::from(balance);
        let expected = ledger.remove(&(name.as_str(), currency)).unwrap_or_default();
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
    for ((account, currency), expected) in ledger {
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
