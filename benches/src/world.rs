//! The accounts and processes for every way of moving money.
//!
//! Plain clients, transactions with and without optimizations, and several processes. Each way has
//! its own accounts, which are audited after each load.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use txn_core::{AttemptId, Config, Error, LockMode, Options, ReadMode, TransactionOutcome};

use crate::accounts::{Bank, Books, added, index};
use crate::plain::{Batched, Plain};
use crate::setup::Setup;
use crate::usage::Process;
use crate::{Failure, unique};

/// The maximum number of processes of a load.
pub const PROCESSES: usize = 4;

/// The way to move money.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// Plain `_mget` and `_bulk`.
    Plain,
    /// The same, with requests that all clients share.
    Batched,
    /// Plain clients that write on the read versions, and repeat after conflicts.
    Retried,
    /// Transactions with own requests and locking reads: textbook two-phase locking.
    Locking,
    /// Transactions with own requests.
    Own,
    /// Transactions that share requests.
    Shared,
    /// Transactions that are merged into groups: the default.
    Groups,
    /// Groups in several processes, which share only the server.
    Several,
}

impl Way {
    /// Whether transfers are not atomic.
    #[must_use]
    pub fn is_plain(self) -> bool {
        matches!(self, Self::Plain | Self::Batched | Self::Retried)
    }

    /// Returns the name for reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Batched => "plain, batched",
            Self::Retried => "plain, retried",
            Self::Locking => "two-phase locking",
            Self::Own => "own requests",
            Self::Shared => "shared requests",
            Self::Groups => "groups",
            Self::Several => "several processes",
        }
    }

    fn prefix(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Batched => "batched",
            Self::Retried => "retried",
            Self::Locking => "locking",
            Self::Own => "own",
            Self::Shared => "shared",
            Self::Groups => "groups",
            Self::Several => "several",
        }
    }
}

/// The reason why a transfer did not happen, or may not have.
#[derive(Clone, Debug)]
pub struct Refused {
    /// The kind of the error, as a word.
    pub kind: String,
    /// Whether the kind says that a retry may succeed.
    pub passes: bool,
    /// The id to ask for an unknown outcome.
    pub unknown: Option<AttemptId>,
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self {
            kind: format!("{:?}", error.kind()),
            passes: error.kind().is_transient_or_unknown(),
            unknown: error.tid().filter(|_| is_unknown(&error)),
        }
    }
}

fn is_unknown(error: &Error) -> bool {
    error.kind() == txn_core::ErrorKind::Unknown
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)
    }
}

impl std::error::Error for Refused {}

/// The difference between the accounts and the acknowledged transfers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Drift {
    /// The number of acknowledged changes of documents.
    pub changes: i64,
    /// Lost changes; negative for changes that were not acknowledged.
    pub lost: i64,
    /// Missing money; negative for surplus money.
    pub money: i64,
}

impl Drift {
    /// Checks that the accounts balance.
    ///
    /// # Errors
    /// If a change is lost or doubled.
    pub fn none_after(&self, what: &str) -> Result<(), Failure> {
        match (self.lost, self.money) {
            (0, 0) => Ok(()),
            _ => Err(format!("the books do not balance after {what}: {self:?}").into()),
        }
    }
}

/// The accounts of one way.
#[derive(Debug, Default)]
struct Ledger {
    opened: usize,
    /// The sums according to acknowledged transfers.
    expected: Books,
    /// The sums that were already reported.
    told: Books,
}

/// All ways to move money, on one server.
#[derive(Debug)]
pub struct World {
    plain: Plain,
    batched: Batched,
    own: Bank,
    shared: Bank,
    /// The processes; only the first is used, unless a load has several.
    groups: Vec<Bank>,
    ledgers: Mutex<BTreeMap<Way, Ledger>>,
    server: Option<Process>,
}

impl World {
    /// Opens a new domain on this server.
    ///
    /// # Errors
    /// As the server.
    pub async fn open(url: &str) -> Result<Arc<Self>, Failure> {
        Self::of(&Setup::new(url)?).await
    }

    /// Opens a new domain on a server with this setup.
    ///
    /// # Errors
    /// As the server.
    pub async fn of(setup: &Setup) -> Result<Arc<Self>, Failure> {
        let name = unique("bench");
        let with = |shared, groups| {
            Config::default().with_request_batching(Some(shared)).with_group_commit(Some(groups))
        };
        let mut groups = Vec::new();
        for _ in 0..PROCESSES {
            groups.push(Bank::open(setup, &name, with(true, true)).await?);
        }
        let own = Bank::open(setup, &name, with(false, false)).await?;
        let shared = Bank::open(setup, &name, with(true, false)).await?;
        let plain = Plain::new(setup, &index(&name));
        let server = Process::of_server(plain.client(), plain.url()).await?;
        let batched = Batched::new(&plain);
        let ledgers = Mutex::default();
        Ok(Arc::new(Self { plain, batched, own, shared, groups, ledgers, server }))
    }

    /// Returns the plain clients.
    #[must_use]
    pub fn plain(&self) -> &Plain {
        &self.plain
    }

    /// Returns the default process.
    #[must_use]
    pub fn bank(&self) -> &Bank {
        &self.groups[0]
    }

    /// Returns the server's process, if it is on this machine.
    #[must_use]
    pub fn server(&self) -> Option<&Process> {
        self.server.as_ref()
    }

    /// Returns the processes of a way.
    #[must_use]
    pub fn banks(&self, way: Way, processes: usize) -> &[Bank] {
        match way {
            Way::Plain | Way::Batched | Way::Retried => &[],
            Way::Own | Way::Locking => std::slice::from_ref(&self.own),
            Way::Shared => std::slice::from_ref(&self.shared),
            Way::Groups => &self.groups[..1],
            Way::Several => &self.groups[..processes.clamp(1, PROCESSES)],
        }
    }

    /// Returns the id of an account of this way.
    #[must_use]
    pub fn id(way: Way, account: usize) -> String {
        format!("{}-account-{account:05}", way.prefix())
    }

    /// Creates the first accounts of a way, unless they exist.
    ///
    /// # Errors
    /// As the server.
    pub async fn prepare(&self, way: Way, accounts: usize) -> Result<(), Failure> {
        let opened = self.with_ledger(way, |ledger| ledger.opened);
        if opened >= accounts {
            return Ok(());
        }
        let ids: Vec<String> = (opened..accounts).map(|at| Self::id(way, at)).collect();
        self.plain.open(&ids).await?;
        self.with_ledger(way, |ledger| {
            ledger.opened = accounts;
            ledger.expected.money += 1_000 * ids.len() as i64;
        });
        Ok(())
    }

    /// Moves money once, by a client of this process.
    ///
    /// # Errors
    /// The reason of a refusal.
    pub async fn transfer(
        &self,
        way: Way,
        process: usize,
        ids: &[String],
        options: &Options,
    ) -> Result<u32, Refused> {
        let told =
            |failure: Failure| Refused { kind: failure.to_string(), passes: false, unknown: None };
        match way {
            Way::Plain => self.plain.transfer(ids).await.map(|()| 1).map_err(told),
            Way::Batched => self.batched.transfer(ids).await.map(|()| 1).map_err(told),
            Way::Retried => self.plain.retried_transfer(ids).await.map_err(told),
            Way::Locking => {
                let options =
                    options.clone().with_lock_mode(LockMode::AtRead).with_read_mode(ReadMode::Lock);
                Ok(self.own.transact(ids, &options).await?)
            }
            Way::Own => Ok(self.own.transact(ids, options).await?),
            Way::Shared => Ok(self.shared.transact(ids, options).await?),
            Way::Groups => Ok(self.bank().transact(ids, options).await?),
            Way::Several => Ok(self.groups[process % PROCESSES].transact(ids, options).await?),
        }
    }

    /// Reads accounts.
    ///
    /// # Errors
    /// The reason of a refusal.
    pub async fn look(&self, way: Way, ids: &[String]) -> Result<u32, Refused> {
        let told =
            |failure: Failure| Refused { kind: failure.to_string(), passes: false, unknown: None };
        match self.banks(way, 1).first() {
            None => self.plain.look(ids).await.map(|()| 1).map_err(told),
            Some(bank) => Ok(bank.look(ids).await?),
        }
    }

    /// Records acknowledged transfers.
    pub fn acknowledged(&self, way: Way, documents: usize, transfers: usize) {
        let transfers = transfers as i64;
        self.with_ledger(way, |ledger| {
            ledger.expected.money += added(documents) * transfers;
            ledger.expected.changes += documents as i64 * transfers;
        });
    }

    /// Resolves transfers with an unknown outcome, and returns how many happened.
    ///
    /// # Errors
    /// As the engine.
    pub async fn find_out(
        &self,
        way: Way,
        documents: usize,
        unknown: &[AttemptId],
    ) -> Result<usize, Failure> {
        let mut happened = 0;
        for tid in unknown {
            let outcome = self.bank().domain.outcome(*tid).await?;
            happened += usize::from(matches!(outcome, TransactionOutcome::Committed { .. }));
        }
        self.acknowledged(way, documents, happened);
        Ok(happened)
    }

    /// Compares the accounts of a way with the new transfers.
    ///
    /// New are the transfers since the last comparison.
    ///
    /// # Errors
    /// As the server.
    pub async fn audit(&self, way: Way) -> Result<Drift, Failure> {
        let opened = self.with_ledger(way, |ledger| ledger.opened);
        let ids: Vec<String> = (0..opened).map(|at| Self::id(way, at)).collect();
        let found = if way.is_plain() {
            self.plain.books(&ids).await?
        } else {
            self.bank().settle().await?;
            self.bank().books(&ids).await?
        };
        Ok(self.with_ledger(way, |ledger| ledger.drift(found)))
    }

    /// Shuts all processes down, and drops the domain.
    ///
    /// # Errors
    /// As the server.
    pub async fn close(&self) -> Result<(), Failure> {
        let others = self.groups.iter().skip(1).chain([&self.own, &self.shared]);
        for bank in others {
            bank.leave().await;
        }
        self.bank().close().await
    }

    fn with_ledger<T>(&self, way: Way, change: impl FnOnce(&mut Ledger) -> T) -> T {
        let mut ledgers = self.ledgers.lock().unwrap_or_else(PoisonError::into_inner);
        change(ledgers.entry(way).or_default())
    }
}

impl Ledger {
    /// Returns new differences, and accepts them from now on.
    fn drift(&mut self, found: Books) -> Drift {
        let drift = Drift {
            changes: self.expected.changes - self.told.changes,
            lost: self.expected.changes - found.changes,
            money: self.expected.money - found.money,
        };
        (self.expected, self.told) = (found, found);
        drift
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drift_is_reported_once() {
        let expected = Books { money: 1_000, changes: 10 };
        let mut ledger = Ledger { opened: 1, expected, told: Books::default() };
        let found = Books { money: 998, changes: 7 };
        assert_eq!(ledger.drift(found), Drift { changes: 10, lost: 3, money: 2 });
        assert_eq!(ledger.drift(found), Drift::default());
    }

    #[test]
    fn each_way_has_its_own_accounts() {
        let ways = [
            Way::Plain,
            Way::Batched,
            Way::Retried,
            Way::Locking,
            Way::Own,
            Way::Shared,
            Way::Groups,
            Way::Several,
        ];
        let ids: std::collections::BTreeSet<_> = ways.map(|way| World::id(way, 0)).into();
        assert_eq!(ids.len(), ways.len(), "{ids:?}");
    }
}
