//! Overwritten contents, read at earlier timestamps.

use std::time::Duration;

use txn_core::{CommitVersion, Domain, Error, Options, WaitFor};
use txn_fixtures::bank::{self, Accounts, account};
use txn_fixtures::fixture::Fixture;

const DRIFT: Duration = Duration::from_secs(5);
const HOUR: Duration = Duration::from_secs(3_600);

/// Sets balances, or deletes accounts, in one transaction; returns its timestamp.
async fn set(domain: &Domain, accounts: &Accounts, to: &[(&str, Option<i64>)]) -> Duration {
    let options = Options::default().with_wait_for(WaitFor::Apply);
    let written = domain.run::<_, Error, _>(&options, async |tx| {
        to.iter().try_for_each(|(name, balance)| match balance {
            Some(balance) => tx.put(accounts, *name, &account(*balance)),
            None => tx.delete(accounts, *name),
        })
    });
    let commit = written.await.expect("writes").receipt.commit_version;
    commit.map(CommitVersion::unix_time).expect("it wrote")
}

pub(crate) async fn timestamps_show_whole_transactions(fixture: &Fixture) {
    let config = Fixture::config().with_max_drift(DRIFT);
    let domain = fixture.domain_on(fixture.store(), config).await;
    let accounts = bank::open(&domain, &fixture.name("accounts")).await;
    domain.history().enable(&accounts, HOUR).await.expect("begins");
    let mut told = Vec::new();
    for n in 0..12 {
        let balances = [Some(n), (n % 4 != 3).then_some(-n)];
        let [a, b] = balances;
        told.push((set(&domain, &accounts, &[("a", a), ("b", b)]).await, balances));
        // Timestamps have a resolution of one microsecond.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    while domain.history().latest_timestamp() < told[told.len() - 1].0 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for (moment, balances) in told {
        let reader = domain.history().at(moment).expect("past");
        let found = reader.get_many(&accounts, ["a", "b"]).await.expect("reads");
        assert_eq!(found, balances.map(|balance| balance.map(account)), "at {moment:?}");
    }
    assert_eq!(domain.history().purge(&accounts).await.expect("looks"), 0);
    fixture.settle(&domain).await;
}
