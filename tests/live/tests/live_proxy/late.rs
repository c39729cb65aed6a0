//! Requests that arrive again after later transactions.

use std::time::Duration;

use txn_core::{Error, Options, WaitFor};
use txn_fixtures::bank::{self, account};
use txn_fixtures::fixture::{Fixture, all_is_applied};
use txn_fixtures::wire;
use txn_testkit::proxy::{Fault, FaultKind};

use super::{coordinator, proxy, soon};

/// Usually later than all other requests of these tests. If not, the tests must pass, too.
const LATE: Duration = Duration::from_secs(3);

fn applied() -> Options {
    Options::default().with_wait_for(WaitFor::Apply)
}

/// A `create` has no condition, so a repetition after a deletion succeeds.
///
/// The repetition is an orphan lock.
pub(crate) async fn insert_repeated_after_a_deletion_is_harmless(fixture: &Fixture) {
    let proxy = proxy(fixture).await;
    let domain = coordinator(fixture, &proxy, Fixture::config()).await;
    let accounts = bank::open(&domain, &fixture.name("accounts")).await;
    proxy.inject(wire::locks(), Fault::DuplicateLate(LATE));
    bank::fund(&domain, &accounts, &bank::names(3), 10).await;
    domain
        .run::<_, Error, _>(&applied(), async |tx| {
            tx.delete(&accounts, "a0")?;
            tx.delete(&accounts, "a1")
        })
        .await
        .expect("deletes");
    soon(proxy.settle()).await;
    assert_eq!(proxy.counts().of(FaultKind::DuplicateLate), 1);
    let source = fixture.plain.source(accounts.name(), "a0").await.expect("a placeholder is there");
    assert!(source.contains("transaction_absent"), "the repetition came to nothing: {source}");

    let witness = fixture.domain().await;
    let expected = [None, None, Some(10)];
    let names = bank::names(3);
    assert_eq!(bank::balances(&witness, &accounts, &names).await, expected);
    // A transaction meets one of them, and the janitor the other.
    witness
        .run::<_, Error, _>(&applied(), async |tx| {
            assert_eq!(tx.get(&accounts, "a0").await?, None);
            tx.insert(&accounts, "a0", &account(5))?;
            tx.put(&accounts, "a2", &account(5))
        })
        .await
        .expect("inserts");
    all_is_applied(&witness).await;
    assert_eq!(bank::balances(&witness, &accounts, &names).await, [Some(5), None, Some(5)]);
    assert_eq!(fixture.plain.source(accounts.name(), "a1").await, None);
    domain.shutdown(txn_fixtures::fixture::PATIENCE).await;
    fixture.settle(&witness).await;
    proxy.shutdown().await;
}

pub(crate) async fn apply_repeated_after_later_transfers_is_harmless(fixture: &Fixture) {
    let proxy = proxy(fixture).await;
    let domain = coordinator(fixture, &proxy, Fixture::config()).await;
    let accounts = bank::open(&domain, &fixture.name("accounts")).await;
    let names = bank::names(3);
    bank::fund(&domain, &accounts, &names, 100).await;
    let steps =
        [wire::locks(), wire::commits(), wire::applies(), wire::finishes(), wire::applies()];
    for step in &steps {
        proxy.inject(step.clone(), Fault::DuplicateLate(LATE));
    }
    for _ in 0..10 {
        bank::spread(&domain, &accounts, &names, &applied()).await.expect("moves");
    }
    soon(proxy.settle()).await;
    let count = u64::try_from(steps.len()).expect("a few");
    assert_eq!(proxy.counts().of(FaultKind::DuplicateLate), count);
    let expected = [80, 110, 110].map(Some);
    assert_eq!(bank::balances(&domain, &accounts, &names).await, expected);
    bank::spread(&domain, &accounts, &names, &applied()).await.expect("goes on");
    fixture.settle(&domain).await;
    assert_eq!(bank::balances(&domain, &accounts, &names).await, [78, 111, 111].map(Some));
    proxy.shutdown().await;
}
