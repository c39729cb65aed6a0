//! Closing accounts, opening them by transfers, listing them, and pending transfers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::join_all;
use txn_bank::{Bank, BankError, Finding, Load, NewAccount, TransferOptions};
use txn_core::clock::{Clock, SystemClock};
use txn_core::store::{MemoryStore, Store};
use txn_core::{Error, Raw};
use txn_outbox::ProcessorConfig;
use txn_redb::RedbStore;
use txn_requests::{Reason, RequestError, RequestsConfig, State};
use txn_sim::tapped::{ApplyGate, Tapped};

use super::common::{PATIENCE, config, legs};

async fn bank() -> Bank {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let bank = Bank::create(store, "bank", config()).await.expect("opens");
    let bank = bank.keep_statements().await.expect("kept").keep_owners().await.expect("kept");
    for (name, owner, deposit, currency, overdraft) in [
        ("alice", "Ann", 100, "EUR", false),
        ("savings", "Ann", 50, "EUR", false),
        ("bob", "Ben", 10, "EUR", true),
        ("dollars", "Ben", 70, "USD", false),
    ] {
        let new = NewAccount::new(name, owner, deposit, currency).expect("sound");
        bank.open_account(&new.with_overdraft(overdraft)).await.expect("opens");
    }
    bank
}

async fn balance(bank: &Bank, name: &str) -> i64 {
    bank.accounts(&[name]).await.expect("reads")[0].balance
}

async fn clean(bank: &Bank) {
    let report = bank.domain().barrier(PATIENCE).await.expect("passes");
    report.into_result().expect("applied");
    let audit = bank.audit(true).await.expect("audits");
    assert!(audit.is_clean(), "{:?}", audit.findings);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_account_stays_closed() {
    let bank = bank().await;
    let refused = bank.close("alice", None).await.expect_err("it holds something");
    assert!(matches!(refused, BankError::NotEmpty { balance: 100, .. }), "{refused}");
    let refused = bank.close("alice", Some("dollars")).await.expect_err("another currency");
    assert!(matches!(refused, BankError::Unbalanced { .. }), "{refused}");
    let refused = bank.close("alice", Some("alice")).await.expect_err("itself");
    assert!(matches!(refused, BankError::DuplicateLeg(_)), "{refused}");
    for unknown in [bank.close("zoe", None).await, bank.close("alice", Some("zoe")).await] {
        assert!(matches!(unknown, Err(BankError::UnknownAccount(name)) if name == "zoe"));
    }
    let requests = bank.requests(RequestsConfig::default()).await.expect("opens");
    let made = legs(&[("alice", -5), ("savings", 5)]);
    bank.submit(&requests, "made", &made).await.expect("submits");
    requests.process_open(None).await.expect("processes");
    let late = legs(&[("alice", -1), ("savings", 1)]);
    bank.submit(&requests, "late", &late).await.expect("submits");

    let closed = bank.close("alice", Some("savings")).await.expect("closes");
    assert!(!closed.already && closed.account.closed_at.is_some());
    assert_eq!((closed.account.balance, balance(&bank, "savings").await), (0, 150));
    assert_eq!(closed.moved.expect("its rest").key, "close:alice");
    let again = bank.close("alice", None).await.expect("is closed");
    assert!(again.already && again.moved.is_none());

    let is_closed =
        |error: &BankError| matches!(error, BankError::AccountClosed(n) if n == "alice");
    for legs in [[("alice", -1), ("savings", 1)], [("alice", 1), ("savings", -1)]] {
        let refused = bank.transfer(None, &super::common::legs(&legs)).await.expect_err("closed");
        assert!(is_closed(&refused), "{refused}");
        let refused = bank.submit(&requests, "new", &super::common::legs(&legs)).await;
        assert!(refused.is_err_and(|error| is_closed(&error)));
    }
    // A repeated submission of an earlier transfer returns its status.
    bank.submit(&requests, "made", &made).await.expect("is known");
    let refused = bank.reverse(&requests, "made", "back").await.expect_err("closed");
    assert!(is_closed(&refused), "{refused}");
    let refused = bank.close("savings", Some("alice")).await.expect_err("closed");
    assert!(is_closed(&refused), "{refused}");
    let again = NewAccount::new("alice", "Zoe", 0, "EUR").expect("sound");
    let refused = bank.open_account(&again).await.expect_err("its name is taken");
    assert!(is_closed(&refused), "{refused}");

    requests.process_open(None).await.expect("processes");
    let status = requests.status("late").await.expect("is known");
    assert_eq!(status.state, State::RolledBack);
    let Some(Reason::Refused(refusal)) = status.reason else { panic!("{:?}", status.reason) };
    assert!(bank.refused(&refusal).is_some_and(|error| is_closed(&error)), "{refusal}");
    let processor = bank.derive_owners(ProcessorConfig::default()).await.expect("starts");
    while bank.events().expect("kept").backlog().await.expect("counts").events > 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let ann = bank.owner("Ann").await.expect("derived");
    assert_eq!((ann.accounts.len(), ann.totals[0].total), (1, 150));
    assert!(processor.stop(PATIENCE).await && requests.shutdown(PATIENCE).await);
    clean(&bank).await;
}

/// A plain reversal has none of the conditions of its transfer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reversal_does_not_change_a_closed_account() {
    let plain = Bank::create(Arc::new(MemoryStore::new()), "bank", config()).await.expect("opens");
    for name in ["alice", "savings"] {
        let new = NewAccount::new(name, "Ann", 100, "EUR").expect("sound");
        plain.open_account(&new).await.expect("opens");
    }
    for bank in [plain, bank().await] {
        let requests = bank.requests(RequestsConfig::default()).await.expect("opens");
        let made = legs(&[("alice", -5), ("savings", 5)]);
        bank.submit(&requests, "made", &made).await.expect("submits");
        requests.process_open(None).await.expect("processes");
        bank.close("alice", Some("savings")).await.expect("closes");
        requests.reverse("made", "back").await.expect("submitted");
        requests.process_open(None).await.expect("processes");
        let status = requests.status("back").await.expect("is known");
        assert_eq!((status.state, balance(&bank, "alice").await), (State::RolledBack, 0));
        let Some(Reason::Refused(refusal)) = status.reason else { panic!("{:?}", status.reason) };
        let told = bank.refused(&refusal).expect("it is known");
        assert!(matches!(&told, BankError::AccountClosed(name) if name == "alice"), "{told}");
        assert!(requests.shutdown(PATIENCE).await);
        clean(&bank).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_moves_the_debt_to_the_other_account() {
    let bank = bank().await;
    bank.transfer(None, &legs(&[("bob", -60), ("alice", 60)])).await.expect("moves");
    let refused = bank.close("bob", None).await.expect_err("it owes");
    assert!(matches!(refused, BankError::NotEmpty { balance: -50, .. }), "{refused}");
    bank.transfer(None, &legs(&[("savings", -20), ("alice", 20)])).await.expect("moves");
    let refused = bank.close("bob", Some("savings")).await.expect_err("not enough");
    assert!(matches!(refused, BankError::InsufficientFunds { .. }), "{refused}");
    bank.close("bob", Some("alice")).await.expect("closes");
    assert_eq!((balance(&bank, "bob").await, balance(&bank, "alice").await), (0, 130));
    // An empty account closes without another account.
    bank.close("savings", Some("alice")).await.expect("closes");
    let empty = NewAccount::new("empty", "Ann", 0, "EUR").expect("sound");
    bank.open_account(&empty).await.expect("opens");
    assert!(bank.close("empty", None).await.expect("closes").moved.is_none());
    clean(&bank).await;
    // The audit finds money that another program put into the account.
    let raw = bank.domain().collection::<Raw>("bank-accounts").await.expect("opens");
    let text = bank.domain().reader().get(&raw, "empty").await.expect("reads").expect("is there");
    let text = text.as_str().replacen("\"balance\":0", "\"balance\":7", 1);
    let put = bank
        .domain()
        .transact::<_, Error, _>(async |tx| tx.put(&raw, "empty", &Raw::new(text.clone())));
    put.await.expect("written");
    let report = bank.domain().barrier(PATIENCE).await.expect("passes");
    report.into_result().expect("applied");
    let audit = bank.audit(true).await.expect("audits");
    let is_it =
        |f: &Finding| matches!(f, Finding::Closed { account, balance: 7 } if account == "empty");
    assert!(audit.findings.iter().any(is_it), "{:?}", audit.findings);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transfer_opens_accounts_atomically() {
    let bank = bank().await;
    let new = |name: &str| NewAccount::new(name, "Dan", 0, "EUR").expect("sound");
    let options =
        |names: &[&str]| TransferOptions::default().with_open(names.iter().map(|name| new(name)));
    let refused =
        bank.transfer_with(None, &legs(&[("alice", -101), ("dan", 101)]), &options(&["dan"])).await;
    assert!(matches!(refused, Err(BankError::InsufficientFunds { .. })));
    let unknown = bank.accounts(&["dan"]).await;
    assert!(matches!(unknown, Err(BankError::UnknownAccount(_))), "nothing was opened");
    let refused =
        bank.transfer_with(None, &legs(&[("alice", -1), ("bob", 1)]), &options(&["dan"])).await;
    assert!(matches!(refused, Err(BankError::NoLeg(name)) if name == "dan"));
    let refused =
        bank.transfer_with(None, &legs(&[("alice", -1), ("bob", 1)]), &options(&["bob"])).await;
    assert!(matches!(refused, Err(BankError::AccountExists(name)) if name == "bob"));
    let two = legs(&[("alice", -30), ("dan", 10), ("dora", 20)]);
    for _ in 0..2 {
        // The repeated transfer is already done.
        let done = bank.transfer_with(Some("both"), &two, &options(&["dan", "dora"])).await;
        assert_eq!(done.expect("moves").transfer.legs.len(), 3);
    }
    assert_eq!((balance(&bank, "dan").await, balance(&bank, "dora").await), (10, 20));
    clean(&bank).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accounts_are_found_by_their_owner() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = RedbStore::open(directory.path().join("bank.redb")).expect("opens");
    for store in [Arc::new(MemoryStore::new()) as Arc<dyn Store>, Arc::new(file)] {
        let gate = Arc::new(ApplyGate::default());
        let store = Arc::new(Tapped::new(store, gate.clone()));
        let bank = Bank::create(store, "bank", config()).await.expect("opens");
        // More than one page of accounts.
        let of = |owner: &'static str| {
            let name = move |at| NewAccount::new(&format!("{owner}-{at}"), owner, 1, "EUR");
            (0..600).map(move |at| name(at).expect("sound")).collect::<Vec<_>>()
        };
        for chunk in of("Ann").chunks(200).chain(of("Annabel").chunks(200)) {
            bank.ensure_accounts(chunk).await.expect("opens");
        }
        bank.close("Ann-0", Some("Ann-1")).await.expect("closes");
        let report = bank.domain().barrier(PATIENCE).await.expect("passes");
        report.into_result().expect("applied");
        // The commit is not yet applied to the document.
        gate.close();
        let held = NewAccount::new("held", "Ann", 1, "EUR").expect("sound");
        bank.open_account(&held).await.expect("opens");
        let mut wanted: BTreeSet<String> = (0..600).map(|at| format!("Ann-{at}")).collect();
        wanted.insert("held".to_owned());
        let mut pages = bank.accounts_of("Ann").await.expect("looks");
        let mut found = BTreeSet::new();
        while let Some(page) = pages.next_page().await.expect("reads") {
            assert!(page.len() <= 500);
            for (name, account) in page {
                assert_eq!(account.owner, "Ann");
                assert_eq!(account.closed_at.is_some(), name == "Ann-0");
                assert!(found.insert(name), "each once");
            }
        }
        assert_eq!(found, wanted);
        gate.open();
        for stranger in ["ann", "Zoe", ""] {
            let mut pages = bank.accounts_of(stranger).await.expect("looks");
            while let Some(page) = pages.next_page().await.expect("reads") {
                assert!(page.is_empty(), "{stranger}");
            }
        }
        assert!(bank.shutdown(PATIENCE).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pending_transfers_of_an_account_are_listed() {
    let bank = bank().await;
    let requests = bank.requests(RequestsConfig::default()).await.expect("opens");
    for (key, one) in [
        ("first", [("alice", -30), ("bob", 30)]),
        ("other", [("savings", -1), ("bob", 1)]),
        ("much", [("alice", -300), ("savings", 300)]),
        ("off", [("alice", -7), ("savings", 7)]),
    ] {
        bank.submit(&requests, key, &legs(&one)).await.expect("submits");
        // The list is ordered by the time of the submission.
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    requests.cancel("off", "typo").await.expect("cancels");
    let keys = |of: &txn_bank::PendingTransfers| -> Vec<(String, i64)> {
        of.transfers.iter().map(|one| (one.key.clone(), one.amount)).collect()
    };
    let pending = bank.pending(&requests, "alice").await.expect("lists");
    assert_eq!(keys(&pending), [("first".to_owned(), -30), ("much".to_owned(), -300)]);
    assert_eq!((pending.account.balance, pending.would_hold()), (100, -230));
    assert_eq!(pending.transfers[0].legs, legs(&[("alice", -30), ("bob", 30)]));
    let pending = bank.pending(&requests, "bob").await.expect("lists");
    assert_eq!(keys(&pending), [("first".to_owned(), 30), ("other".to_owned(), 1)]);
    requests.process_open(None).await.expect("processes");
    assert!(bank.pending(&requests, "alice").await.expect("lists").transfers.is_empty());
    let unknown = bank.pending(&requests, "zoe").await;
    assert!(matches!(unknown, Err(BankError::UnknownAccount(_))));
    assert!(requests.shutdown(PATIENCE).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_by_requests_counts_every_step() {
    let bank = bank().await;
    let load = Load::new(8, 3, 4, std::time::Duration::from_secs(1), None).expect("can run");
    let run = load.run_submitted(&bank, 1, std::future::pending(), &|_, _, _| {});
    let report = run.await.expect("runs");
    assert_eq!((report.opened, report.drained, report.interrupted), (8, true, false));
    assert!(report.finished > 0 && report.errors.is_empty(), "{report:?}");
    assert_eq!(report.accepted, report.committed + report.undecided + report.rolled_back);
    let p50 = |of: &std::collections::BTreeMap<&str, f64>| of["p50"];
    assert!(p50(&report.accepted_ms) <= p50(&report.committed_ms));
    assert!(p50(&report.committed_ms) <= p50(&report.finished_ms));
    let store: Arc<dyn Store> = bank.domain().store().clone();
    let bank = Bank::open(store, "bank", config()).await.expect("opens");
    let audit = bank.audit(true).await.expect("audits");
    assert!(audit.is_clean(), "{:?}", audit.findings);
    assert!(audit.transfers as u64 >= report.committed);
}

/// A clock that never returns the same time twice.
#[derive(Debug, Default)]
struct Ticking(SystemClock, AtomicU64);

#[async_trait]
impl Clock for Ticking {
    fn wall(&self) -> Duration {
        self.0.wall() + Duration::from_millis(self.1.fetch_add(1, Ordering::Relaxed))
    }

    fn monotonic(&self) -> Duration {
        self.0.monotonic()
    }

    async fn sleep(&self, duration: Duration) {
        self.0.sleep(duration).await;
    }
}

/// Concurrent repetitions of a call have one effect.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_repeated_calls_have_one_effect() {
    const CALLERS: usize = 8;
    let config = config().with_clock(Arc::new(Ticking::default()));
    let bank = Bank::create(Arc::new(MemoryStore::new()), "bank", config).await.expect("opens");
    for name in ["alice", "bob"] {
        let new = NewAccount::new(name, "Ann", 100, "EUR").expect("sound");
        bank.open_account(&new).await.expect("opens");
    }
    let requests = bank.requests(RequestsConfig::default()).await.expect("opens");
    let made = legs(&[("alice", -5), ("bob", 5)]);
    let all = join_all((0..CALLERS).map(|_| bank.submit(&requests, "made", &made))).await;
    assert!(all.into_iter().all(|submitted| submitted.is_ok_and(|status| status.id == "made")));
    requests.process_open(None).await.expect("processes");
    let all = join_all((0..CALLERS).map(|_| bank.reverse(&requests, "made", "back"))).await;
    for reversal in all {
        let reversal = reversal.expect("one for all");
        assert_eq!((&*reversal.id, reversal.reverses.as_deref()), ("back", Some("made")));
    }
    requests.process_open(None).await.expect("processes");
    assert_eq!((balance(&bank, "alice").await, balance(&bank, "bob").await), (100, 100));
    // The id belongs to another request.
    let refused = bank.reverse(&requests, "back", "made").await.expect_err("is another");
    let BankError::Request(refused) = refused else { panic!("{refused}") };
    assert!(matches!(&*refused, RequestError::IdReused(id) if id == "made"), "{refused}");
    assert!(requests.shutdown(PATIENCE).await);
    clean(&bank).await;
}
