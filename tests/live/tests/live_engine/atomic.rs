//! Atomic transactions, one after the other.

use std::sync::Arc;

use txn_core::{Error, ErrorKind, LockMode, Options, ReadMode, TransactionOutcome, WaitFor};
use txn_fixtures::bank::{self, Accounts, account};
use txn_fixtures::fixture::Fixture;

pub(crate) async fn transfers_over_2_and_20_documents(fixture: &Fixture) {
    let domain = fixture.domain().await;
    let accounts = bank::open(&domain, &fixture.name("accounts")).await;
    let names = bank::names(20);
    bank::fund(&domain, &accounts, &names, 100).await;
    for lock_mode in [LockMode::AtCommit, LockMode::AtRead] {
        for count in [2, 20] {
            let options = Options::default().with_lock_mode(lock_mode);
            let receipt = bank::spread(&domain, &accounts, &names[..count], &options).await;
            let receipt = receipt.expect("transfers");
            let commit_version = receipt.commit_version.expect("it wrote");
            let outcome =
                domain.outcome(receipt.tid.expect("it has a record")).await.expect("known");
            assert_eq!(outcome, TransactionOutcome::Committed { commit_version });
        }
    }
    let mut expected = vec![Some(102); 20];
    (expected[0], expected[1]) = (Some(100 - 2 - 38), Some(104));
    assert_eq!(bank::balances(&domain, &accounts, &names).await, expected);
    fixture.settle(&domain).await;
}

pub(crate) async fn insert_delete_and_insert_again(fixture: &Fixture) {
    let domain = fixture.domain().await;
    let accounts = bank::open(&domain, &fixture.name("accounts")).await;
    let names = bank::names(3);
    for round in 0..3 {
        bank::fund(&domain, &accounts, &names, round).await;
        let again: Result<(), Error> = domain
            .transact(async |tx| {
                tx.put(&accounts, "other", &account(1))?;
                tx.insert(&accounts, "a1", &account(7))
            })
            .await;
        let again = again.expect_err("it exists");
        assert_eq!(again.kind(), ErrorKind::Exists, "{again}");
        assert_eq!(again.document(), Some(&accounts.key("a1")));
        domain
            .transact::<_, Error, _>(async |tx| {
                for name in &names {
                    assert_eq!(tx.get(&accounts, name.as_str()).await?, Some(account(round)));
                    tx.delete(&accounts, name.as_str())?;
                    assert_eq!(tx.get(&accounts, name.as_str()).await?, None);
                }
                tx.delete(&accounts, "never-there")
            })
            .await
            .expect("deletes");
        assert_eq!(bank::balances(&domain, &accounts, &names).await, [None; 3]);
        assert_eq!(domain.reader().get(&accounts, "other").await.expect("reads"), None);
    }
    fixture.settle(&domain).await;
    for id in ["a0", "other", "never-there"] {
        assert_eq!(fixture.plain.source(accounts.name(), id).await, None, "no placeholder stays");
    }
}

pub(crate) async fn repeated_request_has_one_effect(fixture: &Fixture) {
    let domain = fixture.domain().await;
    let accounts = bank::open(&domain, &fixture.name("accounts")).await;
    let names = bank::names(2);
    bank::fund(&domain, &accounts, &names, 10).await;
    let once = async |request: usize| -> Result<(), Error> {
        domain
            .transact(async |tx| {
                tx.insert(&accounts, format!("request-{request}"), &account(0))?;
                let mut found = tx.get(&accounts, "a0").await?.expect("exists");
                found.balance += 1;
                tx.put(&accounts, "a0", &found)
            })
            .await
    };
    for request in 0..3 {
        // Twice concurrently, and once later.
        let mut results = Vec::from(<[_; 2]>::from(tokio::join!(once(request), once(request))));
        results.push(once(request).await);
        let refused: Vec<_> = results.into_iter().filter_map(Result::err).collect();
        assert_eq!(refused.len(), 2, "{refused:?}");
        assert!(refused.iter().all(|error| error.kind() == ErrorKind::Exists), "{refused:?}");
    }
    assert_eq!(bank::balances(&domain, &accounts, &names).await, [Some(13), Some(10)]);
    fixture.settle(&domain).await;
}

pub(crate) async fn read_only_transactions(fixture: &Fixture) {
    let domain = fixture.domain().await;
    let accounts = bank::open(&domain, &fixture.name("accounts")).await;
    let names = bank::names(4);
    bank::fund(&domain, &accounts, &names, 100).await;
    let read_only = Options::default().with_read_only(true);
    let refused = domain
        .run::<_, Error, _>(&read_only, async |tx| tx.put(&accounts, "a0", &account(0)))
        .await
        .expect_err("it is read-only");
    assert_eq!(refused.kind(), ErrorKind::Invalid);

    let writer = {
        let (domain, accounts, names) = (domain.clone(), accounts.clone(), names.clone());
        tokio::spawn(async move {
            for _ in 0..30 {
                let done = bank::spread(&domain, &accounts, &names, &Options::default()).await;
                done.expect("transfers");
            }
        })
    };
    let mut looks = 0;
    while !writer.is_finished() || looks < 10 {
        for options in [read_only.clone(), read_only.clone().with_read_mode(ReadMode::Lock)] {
            let committed = domain
                .run::<_, Error, _>(&options, async |tx| {
                    let mut sum = 0;
                    for name in &names {
                        sum += tx.get(&accounts, name.as_str()).await?.expect("exists").balance;
                    }
                    let absent = tx.get(&accounts, "absent").await?;
                    assert_eq!(absent, None);
                    Ok(sum)
                })
                .await
                .expect("reads");
            assert_eq!(committed.value, 400);
            assert_eq!(committed.receipt.commit_version, None);
        }
        looks += 1;
    }
    writer.await.expect("no panic");
    fixture.settle(&domain).await;
}

pub(crate) async fn hot_pair_with_many_writers_loses_nothing(fixture: &Fixture) {
    // Three processes of one domain.
    let mut domains = Vec::new();
    for _ in 0..3 {
        domains.push(fixture.domain().await);
    }
    let accounts = bank::open(&domains[0], &fixture.name("accounts")).await;
    let names = bank::names(2);
    bank::fund(&domains[0], &accounts, &names, 1_000).await;
    let mut tasks = Vec::new();
    for worker in 0..12 {
        let (domain, accounts) = (domains[worker % 3].clone(), accounts.clone());
        let mut names = names.clone();
        if worker % 2 == 1 {
            names.reverse();
        }
        tasks.push(tokio::spawn(async move {
            for turn in 0..8 {
                let options = Options::default().with_lock_mode(match turn % 4 == 3 {
                    true => LockMode::AtRead,
                    false => LockMode::AtCommit,
                });
                let done = bank::spread(&domain, &accounts, &names, &options).await;
                done.expect("gets through");
            }
        }));
    }
    for task in tasks {
        task.await.expect("no panic");
    }
    assert_eq!(bank::balances(&domains[0], &accounts, &names).await, [Some(1_000); 2]);
    for domain in &domains {
        assert!(domain.shutdown(txn_fixtures::fixture::PATIENCE).await, "drained");
    }
    let report = domains[0].admin().janitor_pass().await.expect("passes");
    assert!(report.is_clean() && report.recovered == 0, "{report:?}");
}

/// At most one of two doctors may leave.
///
/// Each transaction reads both documents, and writes one.
pub(crate) async fn locked_reads_prevent_write_skew(fixture: &Fixture) {
    let domain = Arc::new(fixture.domain().await);
    let accounts: Accounts = bank::open(&domain, &fixture.name("accounts")).await;
    let names = bank::names(2);
    for read_mode in [ReadMode::Validate, ReadMode::Lock] {
        let options = Options::default().with_read_mode(read_mode).with_wait_for(WaitFor::Apply);
        for _ in 0..10 {
            domain
                .transact::<_, Error, _>(async |tx| {
                    tx.put(&accounts, "a0", &account(1))?;
                    tx.put(&accounts, "a1", &account(1))
                })
                .await
                .expect("resets");
            let leave = async |mine: &str| {
                let left = domain.run::<_, Error, _>(&options, async |tx| {
                    let found = tx.get_many(&accounts, ["a0", "a1"]).await?;
                    let present: i64 = found.into_iter().flatten().map(|a| a.balance).sum();
                    if present > 1 {
                        tx.put(&accounts, mine, &account(0))?;
                    }
                    Ok(present > 1)
                });
                left.await.expect("gets through").value
            };
            let left = tokio::join!(leave("a0"), leave("a1"));
            assert!(left.0 != left.1, "{left:?}");
            assert_eq!(bank::sum(&domain, &accounts, &names).await, 1);
        }
    }
    fixture.settle(&domain).await;
}
