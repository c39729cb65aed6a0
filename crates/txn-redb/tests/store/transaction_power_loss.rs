//! Power losses lose no acknowledged transaction, and split none.
//!
//! Workers of a domain move amounts between accounts until the disk loses its power. A new domain
//! opens the bytes that survived, recovers the transactions of the dead one, and compares the
//! accounts with the ledger. `TXN_REDB_TRANSACTION_POWER_LOSSES=10000` tries more power losses.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::future::{Either, join_all, select};
use serde::{Deserialize, Serialize};
use txn_core::clock::Clock;
use txn_core::{Collection, Config, Domain, Error, Options, Transaction, Typed};
use txn_redb::{RedbConfig, RedbStore};

use crate::TestClock;
use crate::disk::{Dice, Disk, Sync};

/// The number of power losses in a test run.
const FEW: usize = 300;
/// The factor by which a test run has more power losses until both ends were seen.
const PATIENCE: usize = 20;
/// The number of power losses of one chain.
const LIVES: usize = 20;
/// The maximum number of writes and syncs of a disk until its power loss.
const STEPS: usize = 300;
const ACCOUNTS: usize = 6;
const WORKERS: usize = 3;
const OPENING: i64 = 1_000;

/// The speed of the domains' clock, so that leases of dead domains pass quickly.
const SPEED: u32 = 50;

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Account {
    balance: i64,
}

/// A transfer, which is also the document that its transaction inserts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Transfer {
    from: usize,
    to: usize,
    amount: i64,
}

/// The expected state, outside of the domains.
#[derive(Debug)]
struct Ledger {
    balances: Vec<i64>,
    /// The transfers since the last comparison.
    tried: BTreeMap<String, Transfer>,
    acknowledged: BTreeSet<String>,
    count: u64,
}

#[derive(Debug, Default)]
struct Survived {
    losses: usize,
    acknowledged: usize,
    /// Transfers without an answer that committed.
    landed: usize,
    /// Transfers without an answer that did not commit.
    aborted: usize,
    compared: usize,
}

impl Survived {
    /// Whether there were enough power losses, with both ends of transfers without an answer.
    ///
    /// A commit without an answer is rare: the pages of its sync must survive by chance.
    fn is_enough(&self, losses: usize) -> bool {
        let both_ends = self.landed > 0 && self.aborted > 0;
        self.losses >= losses && (both_ends || self.losses >= PATIENCE * losses)
    }
}

impl Ledger {
    fn new() -> Self {
        let (tried, acknowledged) = (BTreeMap::new(), BTreeSet::new());
        Self { balances: vec![OPENING; ACCOUNTS], tried, acknowledged, count: 0 }
    }

    fn next(&mut self, dice: &mut Dice) -> (String, Transfer) {
        self.count += 1;
        let from = dice.below(ACCOUNTS);
        let to = (from + 1 + dice.below(ACCOUNTS - 1)) % ACCOUNTS;
        let amount = i64::try_from(1 + dice.below(50)).unwrap_or(1);
        let (id, transfer) = (format!("t{}", self.count), Transfer { from, to, amount });
        self.tried.insert(id.clone(), transfer);
        (id, transfer)
    }

    /// Compares the accounts and the transfers that were found with the expected ones.
    fn compare(
        &mut self,
        balances: Vec<i64>,
        found: &BTreeMap<String, Transfer>,
        survived: &mut Survived,
    ) -> Result<(), String> {
        let mut expected = self.balances.clone();
        for (id, transfer) in std::mem::take(&mut self.tried) {
            let was_acknowledged = self.acknowledged.remove(&id);
            match found.get(&id) {
                None if was_acknowledged => {
                    return Err(format!("{id} was acknowledged, and is lost"));
                }
                None => survived.aborted += 1,
                Some(other) if *other != transfer => {
                    return Err(format!("{id} is {other:?}, not {transfer:?}"));
                }
                Some(_) => {
                    expected[transfer.from] -= transfer.amount;
                    expected[transfer.to] += transfer.amount;
                    survived.landed += usize::from(!was_acknowledged);
                }
            }
        }
        if balances != expected {
            return Err(format!("the accounts are {balances:?}, not {expected:?}"));
        }
        self.balances = balances;
        survived.compared += 1;
        Ok(())
    }
}

/// The collections of the bank, in one life.
struct Bank {
    domain: Domain,
    accounts: Collection<Typed<Account>>,
    transfers: Collection<Typed<Transfer>>,
}

impl Bank {
    async fn open(store: RedbStore, clock: Arc<dyn Clock>) -> Result<Self, Error> {
        let config = Config::default().with_clock(clock).with_janitor_interval(None);
        let domain = Domain::open_or_create(Arc::new(store), "bank", config).await?;
        let accounts = domain.create_collection("accounts", None).await?;
        let transfers = domain.create_collection("transfers", None).await?;
        Ok(Self { domain, accounts, transfers })
    }

    async fn found(&self, ids: Vec<String>) -> Result<Found, Error> {
        let options = Options::default().with_read_only(true);
        let read = self.domain.run(&options, async |tx: &Transaction| {
            let accounts = tx.get_many(&self.accounts, (0..ACCOUNTS).map(account)).await?;
            let transfers = tx.get_many(&self.transfers, ids.clone()).await?;
            Ok::<_, Error>((accounts, transfers))
        });
        let (accounts, transfers) = read.await?.value;
        let balances = accounts.into_iter().map(|one| one.unwrap_or_default().balance).collect();
        let transfers = ids.into_iter().zip(transfers);
        Ok((balances, transfers.filter_map(|(id, one)| Some((id, one?))).collect()))
    }

    async fn carry_out(&self, id: &str, transfer: Transfer) -> Result<(), Error> {
        let Transfer { from, to, amount } = transfer;
        self.domain
            .transact(async |tx: &Transaction| {
                tx.update(&self.accounts, account(from), |one| one.balance -= amount).await?;
                tx.update(&self.accounts, account(to), |one| one.balance += amount).await?;
                tx.insert(&self.transfers, id, &transfer)
            })
            .await
    }
}

/// The balances, and the transfers by their ids.
type Found = (Vec<i64>, BTreeMap<String, Transfer>);

fn account(n: usize) -> String {
    format!("a{n}")
}

/// Compares the ledger, and works until the power loss.
async fn work(
    bank: &Bank,
    disk: &Disk,
    ledger: &Mutex<Ledger>,
    dice: &Mutex<Dice>,
    survived: &Mutex<Survived>,
) -> Result<(), String> {
    let ids = locked(ledger).tried.keys().cloned().collect();
    match bank.found(ids).await {
        Ok((balances, found)) => {
            locked(ledger).compare(balances, &found, &mut locked(survived))?;
        }
        Err(_) if disk.is_off() => return Ok(()),
        Err(error) => return Err(format!("no comparison with the power on: {error}")),
    }
    let worker = async || {
        while !disk.is_off() {
            let (id, transfer) = locked(ledger).next(&mut locked(dice));
            // Refused and unknown transfers stay in the ledger as tried ones.
            if bank.carry_out(&id, transfer).await.is_ok() {
                locked(ledger).acknowledged.insert(id);
                locked(survived).acknowledged += 1;
            }
        }
    };
    join_all((0..WORKERS).map(|_| worker())).await;
    Ok(())
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A chain of domains, each of which opens the bytes that the one before left.
struct Chain {
    clock: Arc<TestClock>,
    ledger: Mutex<Ledger>,
    dice: Mutex<Dice>,
}

impl Chain {
    fn new(seed: u64) -> Self {
        let (ledger, dice) = (Mutex::new(Ledger::new()), Mutex::new(Dice::new(seed)));
        Self { clock: Arc::new(TestClock::new(SPEED)), ledger, dice }
    }

    /// Runs one domain in a runtime of its own, whose end kills all tasks of the domain.
    fn live(&self, disk: &Disk, survived: &Mutex<Survived>) -> Result<(), String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        runtime.block_on(async {
            let off = async {
                while !disk.is_off() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            let life = Box::pin(self.open_and_work(disk, survived));
            match select(life, pin!(off)).await {
                Either::Left((ended, _)) => ended,
                Either::Right(((), _)) => Ok(()),
            }
        })
    }

    async fn open_and_work(&self, disk: &Disk, survived: &Mutex<Survived>) -> Result<(), String> {
        let config = RedbConfig::default().with_cache_bytes(1 << 20);
        let off_or = |why: String| if disk.is_off() { Ok(()) } else { Err(why) };
        let store = match RedbStore::open_backend("disk", disk.clone(), &config) {
            Ok(store) => store,
            Err(error) => return off_or(error.to_string()),
        };
        match Bank::open(store, self.clock.clone()).await {
            Ok(bank) => work(&bank, disk, &self.ledger, &self.dice, survived).await,
            Err(error) => off_or(error.to_string()),
        }
    }

    /// Writes the accounts, with the power on.
    fn set_up(&self) -> Result<Vec<u8>, String> {
        let disk = Disk::new(Vec::new(), usize::MAX, Sync::Honest);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.map_err(|error| error.to_string())?.block_on(async {
            let store = RedbStore::open_backend("disk", disk.clone(), &RedbConfig::default());
            let store = store.map_err(|error| error.to_string())?;
            let bank = Bank::open(store, self.clock.clone()).await.map_err(|e| e.to_string())?;
            let put = async |tx: &Transaction| {
                let opening = Account { balance: OPENING };
                (0..ACCOUNTS).try_for_each(|n| tx.put(&bank.accounts, account(n), &opening))
            };
            bank.domain.transact(put).await.map_err(|error: Error| error.to_string())?;
            bank.domain.shutdown(Duration::from_secs(60)).await;
            Ok::<_, String>(())
        })?;
        Ok(disk.survivors(&mut locked(&self.dice)))
    }

    /// Runs all domains, with a power loss each. Returns the first violation.
    fn run(&self, seed: u64, sync: Sync, survived: &Mutex<Survived>) -> Result<(), String> {
        let mut bytes = self.set_up()?;
        for life in 0..LIVES {
            let left = 1 + locked(&self.dice).below(STEPS);
            let disk = Disk::new(bytes, left, sync);
            let lived = self.live(&disk, survived);
            lived.map_err(|why| format!("seed {seed}, power loss {life}: {why}"))?;
            locked(survived).losses += 1;
            bytes = disk.survivors(&mut locked(&self.dice));
        }
        Ok(())
    }
}

fn losses() -> usize {
    let count = std::env::var("TXN_REDB_TRANSACTION_POWER_LOSSES").ok();
    count.and_then(|count| count.parse().ok()).unwrap_or(FEW)
}

#[test]
fn power_loss_loses_and_splits_no_transaction() {
    let survived = Mutex::new(Survived::default());
    let began = Instant::now();
    for seed in 0.. {
        let ran = Chain::new(seed).run(seed, Sync::Honest, &survived);
        ran.unwrap_or_else(|why| panic!("{why}"));
        if locked(&survived).is_enough(losses()) {
            break;
        }
    }
    let survived = locked(&survived);
    let each_second = survived.losses as f64 / began.elapsed().as_secs_f64();
    println!("{survived:?}, {each_second:.0} power losses each second");
    let Survived { losses, acknowledged, landed, aborted, compared } = *survived;
    assert!(acknowledged > losses, "few transfers were acknowledged");
    assert!(landed > 0 && aborted > 0, "each transfer without an answer had the same end");
    assert!(compared > losses / 2, "few ledgers were compared");
}

#[test]
fn disk_that_lies_loses_transactions() {
    let noticed = (0..4).filter(|seed| {
        let survived = Mutex::default();
        Chain::new(*seed).run(*seed, Sync::Lying, &survived).is_err()
    });
    assert_eq!(noticed.count(), 4, "an acknowledgement before the sync was not noticed");
}

#[test]
fn half_a_transfer_is_noticed() {
    let mut ledger = Ledger::new();
    let transfer = Transfer { from: 0, to: 1, amount: 7 };
    ledger.tried.insert("t1".to_owned(), transfer);
    let found = BTreeMap::from([("t1".to_owned(), transfer)]);
    let mut half = vec![OPENING; ACCOUNTS];
    half[0] -= 7;
    let why = ledger.compare(half, &found, &mut Survived::default()).unwrap_err();
    assert!(why.starts_with("the accounts are"), "{why}");
}
