//! Transactions on the memory store, through the public API.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use txn_core::store::MemoryStore;
use txn_core::{Collection, Config, Domain, Error, ErrorKind, LockMode, Options, Raw, Typed};
use txn_sim::{FaultPlan, FaultStore};

use crate::support::{Setup, World, config, recorded};

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
struct Account {
    balance: i64,
}

type Accounts = Collection<Typed<Account>>;

async fn open() -> (Domain, Accounts) {
    let config = config().with_lease(Duration::from_millis(100));
    let setup = Setup::default().config(config).collections(&["accounts"]);
    let World { domain, items, .. } = setup.open().await;
    (domain, items)
}

async fn fund(domain: &Domain, accounts: &Accounts, names: &[&str], balance: i64) {
    domain
        .transact::<_, Error, _>(async |tx| {
            for name in names {
                tx.insert(accounts, *name, &Account { balance })?;
            }
            Ok(())
        })
        .await
        .expect("inserts");
}

async fn transfer(domain: &Domain, accounts: &Accounts, from: &str, to: &str) -> Result<(), Error> {
    domain
        .transact(async |tx| {
            let mut source = tx.get(accounts, from).await?.expect("exists");
            let mut target = tx.get(accounts, to).await?.expect("exists");
            source.balance -= 1;
            target.balance += 1;
            tx.put(accounts, from, &source)?;
            tx.put(accounts, to, &target)
        })
        .await
}

#[tokio::test]
async fn readers_see_a_transfer_and_no_lock_remains() {
    let (domain, accounts) = open().await;
    fund(&domain, &accounts, &["alice", "bob"], 10).await;
    transfer(&domain, &accounts, "alice", "bob").await.expect("transfers");
    let seen = domain.reader().get_many(&accounts, ["alice", "bob", "carol"]).await.expect("reads");
    assert_eq!(seen, [Some(Account { balance: 9 }), Some(Account { balance: 11 }), None]);
    assert!(domain.shutdown(Duration::from_secs(5)).await, "drained");
    let report = domain.admin().inspect().await.expect("inspects");
    assert!(report.is_clean(), "{report:?}");
}

#[tokio::test]
async fn inserts_and_deletes_commit_together() {
    let (domain, accounts) = open().await;
    fund(&domain, &accounts, &["alice", "bob"], 10).await;
    let again: Result<(), Error> =
        domain.transact(async |tx| tx.insert(&accounts, "alice", &Account { balance: 0 })).await;
    assert_eq!(again.expect_err("exists").kind(), ErrorKind::Exists);
    domain
        .transact::<_, Error, _>(async |tx| {
            tx.delete(&accounts, "alice")?;
            tx.delete(&accounts, "stranger")?;
            assert_eq!(tx.get(&accounts, "alice").await?, None, "sees its own deletion");
            tx.put(&accounts, "carol", &Account { balance: 10 })
        })
        .await
        .expect("moves");
    let seen =
        domain.reader().verified().get_many(&accounts, ["alice", "carol"]).await.expect("reads");
    assert_eq!(seen, [None, Some(Account { balance: 10 })]);
    assert!(domain.shutdown(Duration::from_secs(5)).await, "drained");
    assert!(domain.admin().inspect().await.expect("inspects").is_clean());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_writers_of_two_documents_lose_no_update() {
    let (domain, accounts) = open().await;
    fund(&domain, &accounts, &["alice", "bob"], 1_000).await;
    let tasks: Vec<_> = (0..50)
        .map(|n| {
            let (domain, accounts) = (domain.clone(), accounts.clone());
            tokio::spawn(async move {
                let (from, to) = if n % 2 == 0 { ("alice", "bob") } else { ("bob", "alice") };
                for _ in 0..10 {
                    transfer(&domain, &accounts, from, to).await.expect("commits");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
    let seen =
        domain.reader().verified().get_many(&accounts, ["alice", "bob"]).await.expect("reads");
    assert_eq!(seen, [Some(Account { balance: 1_000 }), Some(Account { balance: 1_000 })]);
    assert!(domain.shutdown(Duration::from_secs(5)).await, "drained");
    assert!(domain.admin().inspect().await.expect("inspects").is_clean());
}

#[tokio::test]
async fn application_error_changes_nothing() {
    let (domain, accounts) = open().await;
    fund(&domain, &accounts, &["alice"], 10).await;
    for options in [Options::default(), Options::default().with_lock_mode(LockMode::AtRead)] {
        let failed: Result<_, Error> = domain
            .run(&options, async |tx| {
                let alice = tx.get(&accounts, "alice").await?;
                tx.put(&accounts, "alice", &Account { balance: 0 })?;
                tx.get(&accounts, "").await?;
                Ok(alice)
            })
            .await;
        assert_eq!(failed.expect_err("an empty id").kind(), ErrorKind::Invalid);
    }
    assert_eq!(
        domain.reader().get(&accounts, "alice").await.expect("reads"),
        Some(Account { balance: 10 })
    );
    assert!(domain.shutdown(Duration::from_secs(5)).await, "drained");
    assert!(domain.admin().inspect().await.expect("inspects").is_clean());
}

#[tokio::test]
async fn begun_transaction_commits_or_rolls_back() {
    let (domain, accounts) = open().await;
    fund(&domain, &accounts, &["alice", "bob"], 10).await;
    let tx = domain.begin(&Options::default().with_lock_mode(LockMode::AtRead)).expect("begins");
    assert_eq!(tx.get(&accounts, "alice").await.expect("reads"), Some(Account { balance: 10 }));
    tx.put(&accounts, "bob", &Account { balance: 1 }).expect("buffers");
    tx.rollback().await;
    assert!(domain.admin().inspect().await.expect("inspects").is_clean());
    let tx = domain.begin(&recorded()).expect("begins");
    let tid = tx.tid().expect("has its own record");
    tx.put(&accounts, "alice", &Account { balance: 1 }).expect("buffers");
    tx.put(&accounts, "bob", &Account { balance: 2 }).expect("buffers");
    let receipt = tx.commit().await.expect("commits");
    assert_eq!(receipt.tid, Some(tid));
    let outcome = domain.outcome(tid).await.expect("known");
    assert_eq!(
        Some(outcome),
        receipt
            .commit_version
            .map(|commit_version| txn_core::TransactionOutcome::Committed { commit_version })
    );
    assert!(domain.shutdown(Duration::from_secs(5)).await, "drained");
    assert!(domain.admin().inspect().await.expect("inspects").is_clean());
}

#[tokio::test]
async fn refused_write_dooms_the_transaction() {
    let store = Arc::new(MemoryStore::new());
    let config = Config::default().with_janitor_interval(None).with_max_documents(2);
    let domain = Domain::open_or_create(store, "bank", config).await.expect("opens");
    let accounts: Accounts = domain.create_collection("accounts", None).await.expect("opens");
    let raw = domain.collection::<Raw>("accounts").await.expect("opens");
    let (one, no_json) = (Account { balance: 1 }, Raw::new("no JSON"));
    for refused in 0..6 {
        for options in [Options::default(), Options::default().with_lock_mode(LockMode::AtRead)] {
            let ignored: Result<_, Error> = domain
                .run(&options, async |tx| {
                    tx.get(&accounts, "alice").await?;
                    tx.put(&accounts, "alice", &one)?;
                    let refusal = match refused {
                        0 => tx.put(&raw, "bob", &no_json),
                        1 => tx.insert(&raw, "bob", &no_json),
                        2 => tx.put(&accounts, "", &one),
                        3 => tx.delete(&accounts, ""),
                        4 => tx.insert(&accounts, "alice", &one),
                        _ => {
                            tx.put(&accounts, "bob", &one)?;
                            tx.put(&accounts, "one too many", &one)
                        }
                    };
                    let refusal = refusal.expect_err("refused");
                    Ok((refusal.kind(), refusal.document().cloned()))
                })
                .await;
            let kind = if refused == 4 { ErrorKind::Exists } else { ErrorKind::Invalid };
            assert_eq!(ignored.expect_err("the refusal is returned").kind(), kind, "{refused}");
        }
    }
    let ids = ["alice", "bob", "one too many"];
    assert_eq!(domain.reader().get_many(&accounts, ids).await.expect("reads"), [None, None, None]);
    assert!(domain.shutdown(Duration::from_secs(5)).await, "drained");
    assert!(domain.admin().inspect().await.expect("inspects").is_clean());
}

#[tokio::test]
async fn document_counts_once_against_max_documents() {
    let store = Arc::new(MemoryStore::new());
    let config = Config::default().with_janitor_interval(None).with_max_documents(2);
    let domain = Domain::open_or_create(store, "bank", config).await.expect("opens");
    let accounts: Accounts = domain.create_collection("accounts", None).await.expect("opens");
    for options in [Options::default(), Options::default().with_lock_mode(LockMode::AtRead)] {
        let used: Result<_, Error> = domain
            .run(&options, async |tx| {
                for n in 0..3 {
                    tx.put(&accounts, "written first", &Account { balance: n })?;
                    tx.get(&accounts, "written first").await?;
                    tx.get(&accounts, "read first").await?;
                    tx.put(&accounts, "read first", &Account { balance: n })?;
                }
                let third = tx.get(&accounts, "third").await;
                assert_eq!(third.expect_err("one too many").kind(), ErrorKind::Invalid);
                Ok(())
            })
            .await;
        used.expect("two documents");
    }
}

#[tokio::test]
async fn timeouts_beyond_the_life_of_a_record_are_refused() {
    let open = |config: Config| async {
        let config = config.with_janitor_interval(None);
        Domain::open_or_create(Arc::new(MemoryStore::new()), "bank", config).await
    };
    let days = Duration::from_secs(30 * 24 * 3600);
    for config in [
        Config::default().with_timeout(Duration::MAX),
        Config::default().with_timeout(days),
        Config::default().with_attempt_timeout(Duration::MAX),
        Config::default().with_lease(Duration::MAX).with_attempt_timeout(Duration::MAX),
    ] {
        assert_eq!(open(config).await.expect_err("refused").kind(), ErrorKind::Invalid);
    }
    let config = Config::default().with_max_drift(Duration::MAX);
    let domain = open(config).await.expect("opens");
    let accounts: Accounts = domain.create_collection("accounts", None).await.expect("opens");
    fund(&domain, &accounts, &["alice"], 10).await;
    for deadline in [Duration::MAX, days, Duration::from_secs(12 * 3600)] {
        let options = Options::default().with_timeout(Some(deadline));
        assert_eq!(domain.begin(&options).expect_err("refused").kind(), ErrorKind::Invalid);
        let run: Result<_, Error> = domain.run(&options, async |_| Ok(())).await;
        assert_eq!(run.expect_err("refused").kind(), ErrorKind::Invalid);
    }
    let options = Options::default().with_timeout(Some(Duration::from_secs(11 * 3600)));
    let run: Result<_, Error> =
        domain.run(&options, async |tx| tx.get(&accounts, "alice").await).await;
    assert_eq!(run.expect("in time").value, Some(Account { balance: 10 }));
}

#[tokio::test(start_paused = true)]
async fn joined_reads_of_one_document_see_the_same_content() {
    for seed in 0..30 {
        let mut plan = FaultPlan::none(seed);
        (plan.delay, plan.max_delay) = (1.0, Duration::from_millis(20));
        let store = Arc::new(FaultStore::new(Arc::new(MemoryStore::new()), plan));
        let config = Config::default().with_janitor_interval(None);
        let domain = Domain::open_or_create(store, "bank", config).await.expect("opens");
        let accounts: Accounts = domain.create_collection("accounts", None).await.expect("opens");
        fund(&domain, &accounts, &["alice", "bob"], 100).await;
        let writer = {
            let (domain, accounts) = (domain.clone(), accounts.clone());
            tokio::spawn(async move {
                for _ in 0..10 {
                    transfer(&domain, &accounts, "alice", "bob").await.expect("transfers");
                }
            })
        };
        while !writer.is_finished() {
            let tx = domain.begin(&Options::default()).expect("begins");
            let (first, second) = tokio::join!(tx.get(&accounts, "bob"), tx.get(&accounts, "bob"));
            assert_eq!(first.expect("reads"), second.expect("reads"), "seed {seed}");
        }
        writer.await.expect("no panic");
    }
}

#[tokio::test]
async fn version_names_the_commit_that_was_read() {
    let (domain, accounts) = open().await;
    fund(&domain, &accounts, &["alice"], 5).await;
    let found =
        domain.reader().verified().read(&accounts, "alice").await.expect("reads").commit_version();
    assert!(found.is_some());
    for lock_mode in [LockMode::AtCommit, LockMode::AtRead] {
        let options = Options::default().with_lock_mode(lock_mode);
        let versions = domain.run::<_, Error, _>(&options, async |tx| {
            let (alice, bob) =
                (tx.version(&accounts, "alice").await?, tx.version(&accounts, "bob").await?);
            // The transaction's own write is not committed yet.
            tx.put(&accounts, "alice", &Account { balance: 5 })?;
            assert_eq!(tx.version(&accounts, "alice").await?, alice);
            tx.delete(&accounts, "carol")?;
            let unread = tx.version(&accounts, "carol").await.expect_err("never read");
            assert_eq!(unread.kind(), ErrorKind::Invalid);
            Ok((alice, bob))
        });
        let (alice, bob) = versions.await.expect("commits").value;
        assert!(alice >= found && bob.is_none(), "{alice:?} {bob:?}");
    }
    let last = domain.transact::<_, Error, _>(async |tx| tx.version(&accounts, "alice").await);
    assert!(last.await.expect("reads") > found);
    assert!(domain.shutdown(Duration::from_secs(5)).await);
}
