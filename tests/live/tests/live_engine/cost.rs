//! The cost of a transaction: its requests and writes to the server.

use std::sync::Arc;

use txn_core::{Config, Domain, Error, Options, WaitFor};
use txn_fixtures::bank::{self, Accounts, account};
use txn_fixtures::fixture::Fixture;
use txn_sim::tapped::{ApplyGate, Tapped};
use txn_sim::{CountingStore, Counts};

/// A domain with counted requests, whose applies can be held.
struct Counted {
    store: Arc<CountingStore>,
    gate: Arc<ApplyGate>,
    domain: Domain,
    accounts: Accounts,
}

impl Counted {
    /// Opens a domain without groups, and so without cached contents.
    async fn open(fixture: &Fixture) -> Self {
        Self::open_with(fixture, Fixture::config().with_group_commit(Some(false))).await
    }

    async fn open_with(fixture: &Fixture, config: Config) -> Self {
        let store = Arc::new(CountingStore::new(fixture.store()));
        let gate = Arc::new(ApplyGate::default());
        let tapped = Arc::new(Tapped::new(store.clone(), gate.clone()));
        // A heartbeat would write after half a lease, and a single write would verify a read that
        // is older than 1/32 of a lease.
        let lease = 32 * txn_fixtures::fixture::PATIENCE;
        let config = config.with_lease(lease).with_attempt_timeout(lease);
        let domain = fixture.domain_on(tapped, config).await;
        let accounts = bank::open(&domain, &fixture.name("accounts")).await;
        bank::fund(&domain, &accounts, &bank::names(10), 100).await;
        let counted = Self { store, gate, domain, accounts };
        counted.quiet().await;
        counted
    }

    /// Waits until every commit is applied.
    async fn quiet(&self) {
        let drained = async {
            while !self.domain.admin().inspect().await.expect("looks").is_clean() {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(txn_fixtures::fixture::PATIENCE, drained).await.expect("drains");
    }

    /// Returns the requests of a transaction until its acknowledgement.
    async fn until_acknowledged(&self, transaction: impl AsyncFnOnce(&Domain)) -> Counts {
        let before = self.store.counts();
        self.gate.close();
        transaction(&self.domain).await;
        let counts = self.store.counts().since(before);
        self.gate.open();
        self.quiet().await;
        counts
    }

    /// Returns all requests of a transaction.
    async fn in_total(&self, transaction: impl AsyncFnOnce(&Domain)) -> Counts {
        let before = self.store.counts();
        transaction(&self.domain).await;
        self.store.counts().since(before)
    }
}

/// Returns options that wait for the apply.
fn applied() -> Options {
    Options::default().with_wait_for(WaitFor::Apply)
}

fn numbers(counts: Counts) -> [u64; 4] {
    // Requests for the server's time do not count.
    let requests = counts.requests() - counts.admin;
    [requests, counts.documents_written, counts.checks, counts.verifies]
}

pub(crate) async fn one_document_is_one_conditional_write(fixture: &Fixture) {
    let counted = Counted::open(fixture).await;
    let accounts = &counted.accounts;
    let counts = counted
        .in_total(async |domain| {
            let increment = domain.transact::<_, Error, _>(async |tx| {
                let found = tx.get(accounts, "a0").await?.expect("exists");
                tx.put(accounts, "a0", &account(found.balance + 1))
            });
            increment.await.expect("writes");
        })
        .await;
    assert_eq!(numbers(counts), [2, 1, 0, 0], "{counts}");
    let blind = counted
        .in_total(async |domain| {
            let put =
                domain.transact::<_, Error, _>(async |tx| tx.put(accounts, "a0", &account(1)));
            put.await.expect("writes");
        })
        .await;
    assert_eq!(numbers(blind), [2, 1, 0, 0], "{blind}");
    let snapshot = counted.domain.reader().read(accounts, "a0").await.expect("reads");
    let swap = counted
        .in_total(async |domain| {
            let swapped = domain.compare_and_set(accounts, &snapshot, &account(2)).await;
            swapped.expect("writes");
        })
        .await;
    assert_eq!(numbers(swap), [1, 1, 0, 0], "{swap}");
    fixture.settle(&counted.domain).await;
}

pub(crate) async fn many_documents_are_three_round_trips(fixture: &Fixture) {
    let counted = Counted::open(fixture).await;
    let accounts = &counted.accounts;
    for n in [2_u64, 10] {
        let names = bank::names(usize::try_from(n).expect("a few"));
        let acknowledged = counted
            .until_acknowledged(async |domain| {
                let options = Options::default();
                let receipt = bank::spread(domain, accounts, &names, &options).await;
                receipt.expect("moves");
            })
            .await;
        // Read; lock and dry run; commit.
        assert_eq!(numbers(acknowledged), [3, n + 1, n, 0], "{acknowledged}");
        let total = counted
            .in_total(async |domain| {
                let receipt = bank::spread(domain, accounts, &names, &applied()).await;
                assert!(receipt.expect("moves").applied);
            })
            .await;
        assert_eq!(numbers(total), [5, 2 * n + 2, n, 0], "{total}");
    }
    fixture.settle(&counted.domain).await;
}

pub(crate) async fn cached_contents_save_a_round_trip(fixture: &Fixture) {
    let counted =
        Counted::open_with(fixture, Fixture::config().with_group_commit(Some(true))).await;
    let accounts = &counted.accounts;
    for n in [2_u64, 10] {
        let names = bank::names(usize::try_from(n).expect("a few"));
        let moved = async |domain: &Domain| {
            let receipt = bank::spread(domain, accounts, &names, &Options::default()).await;
            receipt.expect("moves");
        };
        let acknowledged = counted.until_acknowledged(moved).await;
        // Lock and dry run; commit.
        assert_eq!(numbers(acknowledged), [2, n + 1, n, 0], "{acknowledged}");
    }
    let counts = counted
        .in_total(async |domain| {
            let increment = domain.transact::<_, Error, _>(async |tx| {
                let found = tx.get(accounts, "a0").await?.expect("exists");
                tx.put(accounts, "a0", &account(found.balance + 1))
            });
            increment.await.expect("writes");
        })
        .await;
    assert_eq!(numbers(counts), [1, 1, 0, 0], "{counts}");
    fixture.settle(&counted.domain).await;
}

pub(crate) async fn inserts(fixture: &Fixture) {
    let counted = Counted::open(fixture).await;
    let accounts = &counted.accounts;
    for n in [1_u64, 2, 10] {
        let insert = async |domain: &Domain, what: &str, options: &Options| {
            domain
                .run::<_, Error, _>(options, async |tx| {
                    for id in 0..n {
                        tx.insert(accounts, format!("{what}-{n}-{id}"), &account(1))?;
                    }
                    Ok(())
                })
                .await
                .expect("inserts");
        };
        let acknowledged = counted
            .until_acknowledged(async |domain| {
                insert(domain, "first", &Options::default()).await;
            })
            .await;
        // No reads: lock and dry run; commit.
        assert_eq!(numbers(acknowledged), [2, n + 1, n, 0], "{acknowledged}");
        let total =
            counted.in_total(async |domain| insert(domain, "second", &applied()).await).await;
        assert_eq!(numbers(total), [4, 2 * n + 2, n, 0], "{total}");
    }
    fixture.settle(&counted.domain).await;
}

pub(crate) async fn reads(fixture: &Fixture) {
    let counted = Counted::open(fixture).await;
    let accounts = &counted.accounts;
    let names = bank::names(10);
    let read_only = Options::default().with_read_only(true);
    for n in [1_u64, 10] {
        let names = &names[..usize::try_from(n).expect("a few")];
        let counts = counted
            .in_total(async |domain| {
                let read = domain.run::<_, Error, _>(&read_only, async |tx| {
                    let found = tx.get_many(accounts, names.iter().map(String::as_str)).await?;
                    Ok(found.len())
                });
                read.await.expect("reads");
            })
            .await;
        assert_eq!(numbers(counts), [2, 0, 0, n], "{counts}");
    }
    // Writes one document, and validates nine.
    let mixed = counted
        .until_acknowledged(async |domain| {
            let write = domain.transact::<_, Error, _>(async |tx| {
                tx.get_many(accounts, names.iter().map(String::as_str)).await?;
                tx.put(accounts, "a0", &account(7))
            });
            write.await.expect("writes");
        })
        .await;
    assert_eq!(numbers(mixed), [4, 2, 1, 9], "{mixed}");
    let reader = counted
        .in_total(async |domain| {
            let ids = names.iter().map(String::as_str);
            domain.reader().verified().get_many(accounts, ids).await.expect("reads");
        })
        .await;
    assert_eq!(numbers(reader), [1, 0, 0, 0], "{reader}");
    fixture.settle(&counted.domain).await;
}
