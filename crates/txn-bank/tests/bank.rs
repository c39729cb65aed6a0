//! The rules of the bank, on the memory store.

use std::sync::Arc;
use std::time::Duration;

use txn_bank::{Bank, BankError, Currency, Leg, Load, NewAccount, Status, Tally, TransferOptions};
use txn_core::store::{Filter, Key, MemoryStore, Outcome, Read, Store, Write, WriteOp};
use txn_core::{Config, LockMode, Options};
use txn_sim::{FaultPlan, FaultStore};

async fn bank() -> Bank {
    let config =
        Config::default().with_janitor_interval(None).with_lease(Duration::from_millis(100));
    let bank = Bank::create(Arc::new(MemoryStore::new()), "bank", config).await.expect("opens");
    for (name, deposit, currency, overdraft) in [
        ("alice", 100, "EUR", false),
        ("bob", 50, "EUR", false),
        ("carol", 0, "EUR", true),
        ("dan", 70, "USD", false),
        ("eve", 0, "USD", true),
        ("rich", i64::MAX, "EUR", false),
    ] {
        let new = NewAccount::new(name, name, deposit, currency).expect("sound");
        bank.open_account(&new.with_overdraft(overdraft)).await.expect("opens");
    }
    bank
}

async fn balances(bank: &Bank) -> Vec<i64> {
    let names = ["alice", "bob", "carol", "dan", "eve", "rich"];
    bank.accounts(&names).await.expect("reads").iter().map(|account| account.balance).collect()
}

fn legs(legs: &[(&str, i64)]) -> Vec<Leg> {
    legs.iter().map(|(account, amount)| Leg::new(*account, *amount)).collect()
}

#[tokio::test]
async fn every_refusal_is_typed_and_changes_nothing() {
    let bank = bank().await;
    let before = balances(&bank).await;
    type Is = fn(&BankError) -> bool;
    let cases: [(&[(&str, i64)], Is); 14] = [
        (&[], |e| matches!(e, BankError::TooFewLegs(0))),
        (&[("alice", -1)], |e| matches!(e, BankError::TooFewLegs(1))),
        (
            &[("alice", -1), ("alice", 1)],
            |e| matches!(e, BankError::DuplicateLeg(n) if n == "alice"),
        ),
        (&[("alice", 0), ("bob", 0)], |e| matches!(e, BankError::ZeroLeg(n) if n == "alice")),
        (&[("alice", -1), ("no one", 1)], |e| matches!(e, BankError::InvalidName(_))),
        (
            &[("alice", -1), ("stranger", 1)],
            |e| matches!(e, BankError::UnknownAccount(n) if n == "stranger"),
        ),
        (&[("alice", -2), ("bob", 1)], |e| matches!(e, BankError::Unbalanced { sum: -1, .. })),
        (&[("alice", -1), ("dan", 1)], |e| matches!(e, BankError::Unbalanced { .. })),
        (
            &[("rich", i64::MIN), ("alice", i64::MIN)],
            |e| matches!(e, BankError::Unbalanced { sum, .. } if *sum == 2 * i128::from(i64::MIN)),
        ),
        (
            &[("rich", i64::MAX), ("carol", i64::MAX)],
            |e| matches!(e, BankError::Unbalanced { sum, .. } if *sum == 2 * i128::from(i64::MAX)),
        ),
        (&[("alice", -101), ("bob", 101)], |e| {
            matches!(e, BankError::InsufficientFunds { balance: 100, amount: -101, .. })
        }),
        (&[("alice", -1), ("rich", 1)], |e| matches!(e, BankError::Overflow { amount: 1, .. })),
        // Checks each leg, not only the sum.
        (
            &[("alice", -50), ("bob", -51), ("carol", 101)],
            |e| matches!(e, BankError::InsufficientFunds { account, .. } if account == "bob"),
        ),
        (&[("dan", -70), ("eve", 69), ("alice", 1)], |e| matches!(e, BankError::Unbalanced { .. })),
    ];
    for (case, is) in cases {
        let error = bank.transfer(None, &legs(case)).await.expect_err("refused");
        assert!(is(&error), "{case:?}: {error:?}");
        assert!(!error.to_string().contains('\n'), "{error}");
    }
    for key in ["", "open:alice", "a b", &"k".repeat(129)] {
        let error = bank.transfer(Some(key), &legs(&[("alice", -1), ("bob", 1)])).await;
        assert!(matches!(error, Err(BankError::InvalidKey(_))), "{key:?}");
    }
    assert_eq!(balances(&bank).await, before);
    assert!(bank.shutdown(Duration::from_secs(5)).await);
    let audit = bank.audit(false).await.expect("audits");
    assert!(audit.is_clean(), "{:?}", audit.findings);
    assert_eq!((audit.accounts, audit.deposits, audit.transfers), (6, 6, 0));
}

#[tokio::test]
async fn invalid_accounts_are_refused_with_a_typed_error() {
    let new = |name, owner, deposit, currency| NewAccount::new(name, owner, deposit, currency);
    assert!(matches!(new("", "x", 0, "EUR"), Err(BankError::InvalidName(_))));
    assert!(matches!(new("a:b", "x", 0, "EUR"), Err(BankError::InvalidName(_))));
    assert!(matches!(new("-a", "x", 0, "EUR"), Err(BankError::InvalidName(_))));
    assert!(matches!(new("a", "", 0, "EUR"), Err(BankError::InvalidOwner)));
    assert!(matches!(new("a", "x\ny", 0, "EUR"), Err(BankError::InvalidOwner)));
    assert!(matches!(new("a", "x", -1, "EUR"), Err(BankError::NegativeDeposit(-1))));
    for currency in ["eur", "EU", "EURO", "E1R", "ÄÖ"] {
        assert!(matches!(new("a", "x", 0, currency), Err(BankError::InvalidCurrency(_))));
    }
    let bank = bank().await;
    let again = NewAccount::new("alice", "x", 5, "EUR").expect("sound");
    let error = bank.open_account(&again).await.expect_err("exists");
    assert!(matches!(error, BankError::AccountExists(name) if name == "alice"));
    let error = bank.accounts(&["alice", "stranger"]).await.expect_err("unknown");
    assert!(matches!(error, BankError::UnknownAccount(name) if name == "stranger"));
    let error = bank.transfer_of("nothing").await.expect_err("unknown");
    assert!(matches!(error, BankError::UnknownTransfer(_)));
}

#[tokio::test]
async fn legs_are_read_from_text() {
    assert_eq!(Leg::parse("alice:-30").expect("a leg"), Leg::new("alice", -30));
    assert_eq!(Leg::parse("bob:+20").expect("a leg"), Leg::new("bob", 20));
    assert!(matches!(Leg::parse("alice"), Err(BankError::InvalidLeg(_))));
    assert!(matches!(Leg::parse("alice:"), Err(BankError::InvalidLeg(_))));
    assert!(matches!(Leg::parse("alice:1.5"), Err(BankError::InvalidLeg(_))));
    assert!(matches!(Leg::parse(":5"), Err(BankError::InvalidName(_))));
    let large = Leg::parse("alice:9223372036854775808");
    assert!(matches!(large, Err(BankError::AmountTooLarge(_))));
    assert_eq!(Currency::new("EUR").expect("a currency").as_str(), "EUR");
}

#[tokio::test]
async fn money_moves_once_under_one_key() {
    let bank = bank().await;
    let rent = legs(&[("alice", -30), ("bob", 20), ("carol", 10)]);
    let first = bank.transfer(Some("rent"), &rent).await.expect("moves");
    assert_eq!(first.status, Status::Done);
    // The order of the legs does not matter, and funds that are gone in the meantime do not,
    // either.
    bank.transfer(None, &legs(&[("alice", -70), ("bob", 70)])).await.expect("moves");
    let turned: Vec<Leg> = rent.iter().rev().cloned().collect();
    let second = bank.transfer(Some("rent"), &turned).await.expect("is done");
    assert_eq!(second.status, Status::AlreadyDone);
    assert_eq!(second.transfer, first.transfer);
    let other = bank.transfer(Some("rent"), &legs(&[("bob", -30), ("carol", 30)])).await;
    assert!(matches!(other, Err(BankError::KeyReused(key)) if key == "rent"));
    assert_eq!(balances(&bank).await[..3], [0, 140, 10]);
    assert_eq!(bank.transfer_of("rent").await.expect("is there"), first.transfer);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_key_at_the_same_moment_moves_money_once() {
    let bank = bank().await;
    for round in 0..10 {
        let key = format!("race-{round}");
        let race = (0..8).map(|_| {
            let (bank, key) = (bank.clone(), key.clone());
            tokio::spawn(async move {
                let legs = legs(&[("bob", -1), ("alice", 1)]);
                bank.transfer(Some(&key), &legs).await.expect("is done").status
            })
        });
        let all = futures::future::try_join_all(race).await.expect("no panic");
        assert_eq!(all.iter().filter(|status| **status == Status::Done).count(), 1, "{all:?}");
    }
    assert_eq!(balances(&bank).await[..2], [110, 40]);
    assert!(bank.shutdown(Duration::from_secs(5)).await);
    assert!(bank.audit(false).await.expect("audits").is_clean());
}

#[tokio::test]
async fn overdraft_and_several_currencies() {
    let bank = bank().await;
    let both = [("carol", -500), ("alice", 500), ("eve", -5), ("dan", 5)];
    let options = TransferOptions::default()
        .with_transaction(Options::default().with_lock_mode(LockMode::AtRead))
        .with_pause(Duration::from_millis(1));
    bank.transfer_with(None, &legs(&both), &options).await.expect("moves");
    assert_eq!(balances(&bank).await, [600, 50, -500, 75, -5, i64::MAX]);
    assert!(bank.shutdown(Duration::from_secs(5)).await);
    let audit = bank.audit(false).await.expect("audits");
    assert!(audit.is_clean(), "{:?}", audit.findings);
    let eur = audit.totals.iter().find(|total| total.currency.as_str() == "EUR").expect("is there");
    assert_eq!(eur.expected, i128::from(i64::MAX) + 150, "more than fits into 64 bits");
}

#[tokio::test]
async fn opening_a_missing_bank_creates_nothing() {
    let store = Arc::new(MemoryStore::new());
    let error = Bank::open(store.clone(), "nothing", Config::default()).await.expect_err("no bank");
    assert!(matches!(error, BankError::NotInitialised { domain } if domain == "nothing"));
    Bank::create(store.clone(), "nothing", Config::default()).await.expect("makes it");
    Bank::open(store, "nothing", Config::default()).await.expect("opens it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_loads_on_the_same_accounts() {
    let store = Arc::new(MemoryStore::new());
    let load = Load::new(12, 3, 4, Duration::from_secs(1), Some(6)).expect("can run");
    let runs = (0..2).map(|_| {
        let (store, load) = (store.clone(), load.clone());
        tokio::spawn(async move {
            let tally = Arc::new(Tally::default());
            let config = Config::default().with_observer(Some(tally.clone()));
            let bank = Bank::create(store, "bank", config).await.expect("opens");
            load.run(&bank, &tally, std::future::pending(), &|_, _, _| {}).await.expect("runs")
        })
    });
    let reports = futures::future::try_join_all(runs).await.expect("no panic");
    assert_eq!(reports.iter().map(|report| report.opened).sum::<usize>(), 12);
    for report in &reports {
        assert!(
            report.committed > 0 && report.drained && report.unsettled.is_empty(),
            "{report:?}"
        );
    }
    let bank = Bank::open(store, "bank", Config::default()).await.expect("opens");
    let audit = bank.audit(true).await.expect("audits");
    assert!(audit.is_clean(), "{:?}", audit.findings);
    let committed = reports.iter().map(|report| report.committed).sum::<u64>();
    assert_eq!(audit.transfers as u64, committed);
    for refused in
        [Load::new(10, 1, 1, Duration::ZERO, None), Load::new(2, 3, 1, Duration::ZERO, None)]
    {
        assert!(matches!(refused, Err(BankError::InvalidLoad(_))));
    }
}

#[tokio::test(start_paused = true)]
async fn load_ends_soon_after_its_time_on_a_faulty_store() {
    let (seconds, ending) = (Duration::from_secs(8), Duration::from_secs(6));
    let plan = FaultPlan::none(7).with_delay(1.0, Duration::from_millis(20));
    for plan in [plan.with_rejected(1.0), plan.with_lost_unknown(1.0)] {
        let store = FaultStore::new(Arc::new(MemoryStore::new()), plan);
        store.set_enabled(false);
        let store = Arc::new(store);
        let tally = Arc::new(Tally::default());
        let config = Config::default().with_observer(Some(tally.clone()));
        let bank = Bank::create(store.clone(), "bank", config).await.expect("opens");
        let accounts: Vec<NewAccount> = (1..=4)
            .map(|n| NewAccount::new(&format!("load-{n:04}"), "load", 100, "EUR").expect("sound"))
            .collect();
        bank.ensure_accounts(&accounts).await.expect("opens");
        let load = Load::new(4, 3, 16, seconds, None).expect("can run");
        let (faults, began) = (store.clone(), tokio::time::Instant::now());
        // The load reads the accounts, and then all requests fail.
        let progress = move |_: Duration, _: u64, _: u64| faults.set_enabled(true);
        let report =
            load.run(&bank, &tally, std::future::pending(), &progress).await.expect("runs");
        // Only waits take virtual time.
        let took = began.elapsed();
        assert!(took >= seconds && took <= seconds + ending, "{took:?}");
        assert!(report.errors.values().sum::<u64>() > 0, "{report:?}");
        assert!(report.last_error.is_some(), "{report:?}");
    }
}

#[tokio::test]
async fn transfer_keeps_unknown_fields_of_accounts() {
    let store = Arc::new(MemoryStore::new());
    let bank = Bank::create(store.clone(), "bank", Config::default()).await.expect("opens");
    for (name, deposit) in [("alice", 100), ("bob", 0)] {
        let new = NewAccount::new(name, name, deposit, "EUR").expect("sound");
        bank.open_account(&new).await.expect("opens");
    }
    assert!(bank.shutdown(Duration::from_secs(5)).await);
    // Another application adds a field to each account.
    let theirs = r#""score":123456789012345678901234567890.10,"tags":{"b":1.0,"a":[ ]}"#;
    let accounts = bank.collection_names()[0];
    for (key, version, source) in
        store.scan(accounts, &Filter::All, 10, None).await.expect("scans").documents
    {
        let more = format!("{{{theirs},{}", &source[1..]);
        let write = Write::new(key, WriteOp::Replace(more.into(), version));
        let outcome = store.write_many(&[write]).await.remove(0);
        assert!(matches!(outcome, Outcome::Applied(_)), "{outcome:?}");
    }
    let bank = Bank::open(store.clone(), "bank", Config::default()).await.expect("opens");
    bank.transfer(None, &legs(&[("alice", -30), ("bob", 30)])).await.expect("moves");
    assert!(bank.shutdown(Duration::from_secs(5)).await);
    for (name, balance) in [("alice", 70), ("bob", 30)] {
        let read = store.read_primary(&[Key::new(accounts, name)]).await.remove(0);
        let Read::Found { source, .. } = read else { panic!("{read:?}") };
        let words = format!(r#""balance":{balance},"#);
        assert!(source.contains(theirs) && source.contains(&words), "{source}");
    }
}
