//! Payments that are retried after unknown outcomes, in virtual time.
//!
//! Each payment inserts a document under its own key, so that a retry pays at most once. The store
//! loses answers and applies writes late.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use txn_core::store::MemoryStore;
use txn_core::{Collection, Config, Domain, Error, ErrorKind, Options, Raw, Typed};
use txn_sim::{FaultPlan, FaultStore};

use crate::support::Dice;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Account {
    balance: i64,
}

#[derive(Clone)]
struct Bank {
    domain: Domain,
    accounts: Collection<Typed<Account>>,
    payments: Collection<Raw>,
}

const OPENING: i64 = 100;

impl Bank {
    async fn open(store: &Arc<FaultStore>, seed: u64) -> Self {
        let config = Config::default()
            .with_janitor_interval(None)
            .with_lease(Duration::from_millis(100))
            .with_entropy(Dice::new(seed));
        let domain = Domain::open_or_create(store.clone(), "bank", config).await.expect("opens");
        let accounts = domain.create_collection("accounts", None).await.expect("opens");
        let payments = domain.create_collection("payments", None).await.expect("opens");
        Self { domain, accounts, payments }
    }

    /// Moves one unit, at most once for each key.
    async fn pay(&self, key: &str, deadline: Duration) -> Result<(), Error> {
        let options = Options::default().with_timeout(Some(deadline));
        let paid = self.domain.run::<_, Error, _>(&options, async |tx| {
            tx.update(&self.accounts, "from", |account| account.balance -= 1).await?;
            tx.update(&self.accounts, "to", |account| account.balance += 1).await?;
            tx.insert(&self.payments, key, &Raw::new("{}"))
        });
        match paid.await {
            Err(error) if error.kind() == ErrorKind::Exists => Ok(()),
            other => other.map(drop),
        }
    }

    /// Retries until the payment is known to be made.
    ///
    /// Returns the number of unknown outcomes. The first timeouts are so short that many outcomes
    /// stay unknown.
    async fn pay_for_sure(&self, key: &str) -> usize {
        let mut unknown = 0;
        for tries in 1..100 {
            match self.pay(key, Duration::from_millis(30) * tries).await {
                Ok(()) => return unknown,
                Err(error) => unknown += usize::from(error.kind() == ErrorKind::Unknown),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("{key} was never paid");
    }
}

/// Makes six payments by two processes. Returns the number of unknown outcomes.
async fn run(seed: u64) -> usize {
    let mut plan = FaultPlan::rough(seed).with_late_unknown(0.1).with_lost_unknown(0.05);
    plan.max_late = Duration::from_secs(2);
    let store = Arc::new(FaultStore::new(Arc::new(MemoryStore::new()), plan));
    store.set_enabled(false);
    let banks = [Bank::open(&store, seed).await, Bank::open(&store, !seed).await];
    let opened = banks[0].domain.transact::<_, Error, _>(async |tx| {
        let account = Account { balance: OPENING };
        ["from", "to"].iter().try_for_each(|id| tx.insert(&banks[0].accounts, *id, &account))
    });
    opened.await.expect("opens accounts");
    store.set_enabled(true);
    let customers: Vec<_> = (0..6)
        .map(|n| {
            let bank = banks[n % 2].clone();
            tokio::spawn(async move { bank.pay_for_sure(&format!("payment-{n}")).await })
        })
        .collect();
    let mut unknown = 0;
    for customer in customers {
        unknown += customer.await.expect("no panic");
    }
    store.set_enabled(false);
    store.settle().await;
    let Bank { domain, accounts, .. } = &banks[0];
    assert!(domain.admin().janitor_pass().await.expect("passes").is_clean());
    let found = domain.reader().get_many(accounts, ["from", "to"]).await.expect("reads");
    let balances: Vec<i64> = found.into_iter().flatten().map(|account| account.balance).collect();
    assert_eq!(balances, [OPENING - 6, OPENING + 6], "seed {seed}, {unknown} unknown outcomes");
    unknown
}

#[test]
fn payment_retried_after_unknown_is_made_once() {
    let mut unknown = 0;
    for seed in 0..60 {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().expect("a runtime");
        unknown += runtime.block_on(run(seed));
    }
    assert!(unknown > 0, "no outcome was unknown: the test shows nothing");
}
