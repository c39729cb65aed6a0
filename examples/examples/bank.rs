//! Accounts in one file, used by many concurrent tasks.
//!
//! Events show which transactions wait, are wounded, and commit. At the end the total amount of
//! money is unchanged.
//!
//! ```sh
//! cargo run -p txn-examples --example bank
//! ```

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use txn_core::event::{Event, Observer};
use txn_core::{Collection, Config, Domain, Error, Options, Typed};
use txn_redb::RedbStore;

#[derive(Debug, Serialize, Deserialize)]
struct Account {
    balance: i64,
}

type Accounts = Collection<Typed<Account>>;

const NAMES: [&str; 4] = ["alice", "bob", "carol", "dave"];
const OPENING: i64 = 1_000;

/// Counts events. The engine calls the observer on its own tasks, so it must return at once.
#[derive(Debug, Default)]
struct Tally {
    committed: AtomicU64,
    waited: AtomicU64,
    wounded: AtomicU64,
    retried: AtomicU64,
}

impl Observer for Tally {
    fn on_event(&self, event: &Event) {
        let counter = match event {
            Event::Committed { .. } => &self.committed,
            Event::Waiting { .. } => &self.waited,
            Event::Wounded { .. } => &self.wounded,
            Event::Aborted { retried: true, .. } => &self.retried,
            _ => return,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Moves money along a chain of accounts, atomically. `Ok(false)`: not enough money.
async fn transfer(
    domain: &Domain,
    accounts: &Accounts,
    chain: &[&str],
    amount: i64,
) -> Result<bool, Error> {
    domain
        .transact(async |tx| {
            let found = tx.get_many(accounts, chain.iter().copied()).await?;
            let mut balances = BTreeMap::new();
            for (name, account) in chain.iter().zip(found) {
                let Some(account) = account else { return Ok(false) };
                balances.insert(*name, account.balance);
            }
            for pair in chain.windows(2) {
                *balances.entry(pair[0]).or_default() -= amount;
                *balances.entry(pair[1]).or_default() += amount;
            }
            if balances.values().any(|balance| *balance < 0) {
                return Ok(false);
            }
            for (name, balance) in balances {
                tx.update(accounts, name, |account| account.balance = balance).await?;
            }
            Ok(true)
        })
        .await
}

async fn total(domain: &Domain, accounts: &Accounts) -> Result<i64, Error> {
    let options = Options::default().with_read_only(true);
    let seen =
        domain.run::<_, Error, _>(&options, async |tx| tx.get_many(accounts, NAMES).await).await?;
    Ok(seen.value.into_iter().flatten().map(|account| account.balance).sum())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn StdError + Send + Sync>> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("bank.redb");
    let tally = Arc::new(Tally::default());
    let config = Config::default().with_observer(Some(tally.clone()));
    let domain =
        Domain::open_or_create(Arc::new(RedbStore::open(&path)?), "bank", config.clone()).await?;
    let accounts: Accounts = domain.create_collection("accounts", None).await?;
    domain
        .transact(async |tx| {
            NAMES
                .iter()
                .try_for_each(|name| tx.insert(&accounts, *name, &Account { balance: OPENING }))
        })
        .await?;

    // Eight tasks move money in circles that cross each other.
    let began = Instant::now();
    let tellers: Vec<_> = (0..8_usize)
        .map(|n| {
            let (domain, accounts) = (domain.clone(), accounts.clone());
            tokio::spawn(async move {
                let mut done = 0;
                for round in 0..10_usize {
                    let chain: Vec<&str> =
                        (0..3).map(|i| NAMES[(n + round + i * (1 + n % 2)) % 4]).collect();
                    done += u32::from(transfer(&domain, &accounts, &chain, 10).await?);
                }
                Ok::<_, Error>(done)
            })
        })
        .collect();
    let watching = total(&domain, &accounts).await?;
    println!("in the midst of it the total is {watching}");
    let mut done = 0;
    for teller in tellers {
        done += teller.await??;
    }
    println!("{done} transfers in {:.1?}", began.elapsed());
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    println!(
        "{} commits, {} waits for an older transaction, {} younger ones put aside, {} attempts started again",
        count(&tally.committed),
        count(&tally.waited),
        count(&tally.wounded),
        count(&tally.retried),
    );

    // The file holds every acknowledged commit, so another process would find it.
    domain.shutdown(Duration::from_secs(10)).await;
    drop(domain);
    let domain = Domain::open(Arc::new(RedbStore::open(&path)?), "bank", config).await?;
    let accounts: Accounts = domain.collection("accounts").await?;
    for name in NAMES {
        let account = domain.reader().get(&accounts, name).await?;
        println!("{name:6} {:>5}", account.map_or(0, |account| account.balance));
    }
    let sum = total(&domain, &accounts).await?;
    println!("total  {sum:>5}, as it was in the beginning: {}", sum == OPENING * 4);

    domain.shutdown(Duration::from_secs(5)).await;
    assert_eq!((watching, sum), (OPENING * 4, OPENING * 4));
    Ok(())
}

#[test]
fn runs() -> Result<(), Box<dyn StdError + Send + Sync>> {
    main()
}
