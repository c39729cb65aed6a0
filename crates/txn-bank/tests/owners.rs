//! Derived owners: they follow each change, and can be rebuilt.
//!
//! Kills of processes do not change that.

use std::sync::Arc;
use std::time::Duration;

use txn_bank::{Bank, BankError, Leg, NewAccount};
use txn_core::store::{MemoryStore, Store};
use txn_core::{Config, Error, Raw};
use txn_fixtures::process::Process;
use txn_outbox::ProcessorConfig;
use txn_requests::RequestsConfig;

/// Long, because test machines are slow.
const PATIENCE: Duration = Duration::from_secs(120);

const OWNERS: [&str; 3] = ["Ann", "Ben", "Cem"];

fn config() -> Config {
    Config::default().with_janitor_interval(None).with_timeout(PATIENCE)
}

fn fast() -> ProcessorConfig {
    ProcessorConfig::default()
        .with_lease(Duration::from_secs(1))
        .with_balance(Some(Duration::from_millis(100)))
        .with_delay(Duration::from_millis(50))
        // The number of dead processes must not make a dead letter here.
        .with_max_unfinished(u32::MAX)
}

async fn bank(store: &Arc<dyn Store>) -> Bank {
    Bank::create(store.clone(), "bank", config()).await.expect("opens")
}

/// Six accounts, two per owner.
async fn funded(store: &Arc<dyn Store>) -> Bank {
    let bank = bank(store).await.keep_owners().await.expect("kept");
    for at in 0..6 {
        let new = NewAccount::new(&format!("a{at}"), OWNERS[at / 2], 100, "EUR").expect("sound");
        bank.open_account(&new).await.expect("opened");
    }
    bank
}

async fn settle(bank: &Bank) {
    let until = std::time::Instant::now() + PATIENCE;
    while bank.events().expect("kept").backlog().await.expect("counts").events > 0 {
        assert!(std::time::Instant::now() < until, "events are left");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Each owner equals the sum of the accounts.
async fn check(bank: &Bank) {
    let names: Vec<String> = (0..6).map(|at| format!("a{at}")).collect();
    let accounts = bank.accounts(&names).await.expect("reads");
    for (at, name) in OWNERS.iter().enumerate() {
        let owner = bank.owner(name).await.expect("derived");
        let own = &accounts[2 * at..2 * at + 2];
        assert_eq!(owner.totals[0].total, own.iter().map(|account| account.balance).sum::<i64>());
        let of: Vec<&String> = owner.accounts.iter().collect();
        assert_eq!(of, [&names[2 * at], &names[2 * at + 1]]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owners_follow_changes_despite_killed_processes() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let bank = funded(&store).await;
    let working = bank.clone();
    let work = tokio::spawn(async move {
        for at in 0..60_usize {
            let legs = [
                Leg::new(format!("a{}", at % 6), -1),
                Leg::new(format!("a{}", (at + 1 + at % 5) % 6), 1),
            ];
            match working.transfer(None, &legs).await {
                Ok(_) | Err(BankError::InsufficientFunds { .. } | BankError::DuplicateLeg(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
    });
    for moment in [0, 1_000, 5_000, 20_000, 60_000] {
        let process = Process::new();
        process
            .run(async {
                let bank = self::bank(&store).await;
                let processor = bank.derive_owners(fast()).await.expect("starts");
                while processor.shards().is_empty() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                tokio::time::sleep(Duration::from_micros(moment)).await;
                std::mem::forget((processor, bank));
            })
            .await;
        drop(process);
    }
    work.await.expect("works");
    let processor = bank.derive_owners(fast()).await.expect("starts");
    settle(&bank).await;
    check(&bank).await;
    assert!(bank.events().expect("kept").dead_letters().await.expect("lists").letters.is_empty());
    assert!(processor.stop(PATIENCE).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn submitted_transfers_emit_as_well() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let bank = funded(&store).await;
    let processor = bank.derive_owners(fast()).await.expect("starts");
    let requests = bank.requests(RequestsConfig::default()).await.expect("opens");
    let legs = [Leg::new("a0", -30), Leg::new("a2", 10), Leg::new("a3", 20)];
    bank.submit(&requests, "rent", &legs).await.expect("submitted");
    requests.process_open(None).await.expect("processes");
    settle(&bank).await;
    check(&bank).await;
    assert_eq!(bank.owner("Ben").await.expect("derived").totals[0].total, 230);
    bank.reverse(&requests, "rent", "back").await.expect("submitted");
    requests.process_open(None).await.expect("processes");
    settle(&bank).await;
    check(&bank).await;
    assert!(processor.stop(PATIENCE).await && requests.shutdown(PATIENCE).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owners_are_rebuilt_during_transfers() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    // The accounts exist before the owners.
    let plain = bank(&store).await;
    for at in 0..6 {
        let new = NewAccount::new(&format!("a{at}"), OWNERS[at / 2], 100, "EUR").expect("sound");
        plain.open_account(&new).await.expect("opened");
    }
    assert!(!plain.keeps_owners());
    let refused = plain.owner("Ann").await.expect_err("none are kept");
    assert!(matches!(refused, BankError::NoOwners { .. }), "{refused}");
    let bank = plain.keep_owners().await.expect("kept");
    let refused = bank.owner("Ann").await.expect_err("not yet");
    assert!(matches!(refused, BankError::UnknownOwner(_)), "{refused}");
    // An owner without accounts, and a wrong owner.
    let raw = bank.domain().collection::<Raw>("bank-owners").await.expect("opens");
    let wrong = |owner: &str| {
        Raw::new(format!(
            r#"{{"format":1,"owner":"{owner}","accounts":["a1","gone"],"totals":[]}}"#
        ))
    };
    bank.domain()
        .transact::<_, Error, _>(async |tx| {
            tx.put(&raw, "Zoe", &wrong("Zoe"))?;
            tx.put(&raw, "Ann", &wrong("Ann"))
        })
        .await
        .expect("written");
    let processor = bank.derive_owners(fast()).await.expect("starts");
    let working = bank.clone();
    let work = tokio::spawn(async move {
        for at in 0..20 {
            let legs =
                [Leg::new(format!("a{}", at % 6), -1), Leg::new(format!("a{}", (at + 1) % 6), 1)];
            working.transfer(None, &legs).await.expect("made");
        }
    });
    let rebuilt = bank.rebuild_owners().await.expect("built");
    assert_eq!((rebuilt.written, rebuilt.deleted), (3, 1));
    work.await.expect("works");
    settle(&bank).await;
    check(&bank).await;
    assert!(matches!(bank.owner("Zoe").await, Err(BankError::UnknownOwner(_))));
    assert!(processor.stop(PATIENCE).await);
}

/// A rebuild finds a newer format, an overflow, and an unreadable account.
///
/// None of them stops the rebuild of the remaining owners.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_owner_does_not_stop_the_rebuild() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let bank = funded(&store).await;
    for name in ["b0", "b1"] {
        let new = NewAccount::new(name, "Max", i64::MAX, "EUR").expect("sound");
        bank.open_account(&new).await.expect("opened");
    }
    let owners = bank.domain().collection::<Raw>("bank-owners").await.expect("opens");
    let accounts = bank.domain().collection::<Raw>("bank-accounts").await.expect("opens");
    bank.domain()
        .transact::<_, Error, _>(async |tx| {
            tx.put(&owners, "Ann", &Raw::new(r#"{"format":2}"#))?;
            tx.put(&accounts, "odd", &Raw::new(r#"{"owner":1}"#))
        })
        .await
        .expect("written");
    let rebuilt = bank.rebuild_owners().await.expect("goes on");
    assert_eq!((rebuilt.written, rebuilt.deleted), (2, 0), "{rebuilt:?}");
    let failed: Vec<&str> = rebuilt.failed.keys().map(String::as_str).collect();
    assert_eq!(failed, ["Ann", "Max", "account odd"]);
    for owner in ["Ben", "Cem"] {
        assert_eq!(bank.owner(owner).await.expect("built").totals[0].total, 200);
    }
    assert!(bank.shutdown(PATIENCE).await);
}

/// A bank without owners has no additional cost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bank_without_owners_has_no_additional_writes() {
    use txn_sim::CountingStore;
    let mut written = Vec::new();
    for keeps in [false, true] {
        let counting = Arc::new(CountingStore::new(Arc::new(MemoryStore::new())));
        let store: Arc<dyn Store> = counting.clone();
        let mut bank = bank(&store).await;
        if keeps {
            bank = bank.keep_owners().await.expect("kept");
        }
        for name in ["a", "b"] {
            let new = NewAccount::new(name, name, 10, "EUR").expect("sound");
            bank.open_account(&new).await.expect("opened");
        }
        let report = bank.domain().barrier(PATIENCE).await.expect("passes");
        report.into_result().expect("applied");
        // The barrier waits for the apply, but not for the `finished` mark.
        tokio::time::sleep(Duration::from_millis(500)).await;
        let before = counting.counts();
        bank.transfer(None, &[Leg::new("a", -1), Leg::new("b", 1)]).await.expect("made");
        assert!(bank.shutdown(PATIENCE).await);
        written.push(counting.counts().since(before).documents_written);
    }
    // Two accounts and a ledger entry: locks, record, contents, and the `finished` mark.
    assert_eq!(written[0], 3 + 1 + 3 + 1, "{written:?}");
    assert!(written[1] > written[0], "{written:?}");
}
