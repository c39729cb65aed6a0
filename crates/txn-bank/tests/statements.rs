//! Statements: all changes of an account, with matching balances.

use std::sync::Arc;

use txn_bank::{Bank, BankError, Finding, Leg, Line, NewAccount, Period, Statement};
use txn_core::store::{MemoryStore, Store};
use txn_core::{Error, Raw};
use txn_redb::RedbStore;
use txn_requests::{Requests, RequestsConfig};

use super::common::{PATIENCE, config, legs};

/// The local stores, each with the directory that must outlive it.
fn stores() -> Vec<(Arc<dyn Store>, Option<tempfile::TempDir>)> {
    let directory = tempfile::tempdir().expect("a directory");
    let file = RedbStore::open(directory.path().join("bank.redb")).expect("opens");
    vec![(Arc::new(MemoryStore::new()), None), (Arc::new(file), Some(directory))]
}

async fn kept(store: &Arc<dyn Store>) -> Bank {
    let bank = Bank::create(store.clone(), "bank", config()).await.expect("opens");
    bank.keep_statements().await.expect("kept")
}

async fn open(bank: &Bank, name: &str, deposit: i64) {
    let new = NewAccount::new(name, name, deposit, "EUR").expect("sound");
    bank.open_account(&new.with_overdraft(true)).await.expect("opens");
}

async fn lines_of(statement: &mut Statement<'_>) -> Vec<Line> {
    let mut lines = Vec::new();
    while let Some(page) = statement.next_page().await.expect("reads") {
        lines.extend(page);
    }
    lines
}

async fn lines(bank: &Bank, name: &str, period: Period) -> (i64, Vec<(String, i64)>, i64) {
    let mut statement = bank.statement(name, period).await.expect("is kept");
    let lines = lines_of(&mut statement).await;
    let short = |line: &Line| {
        let what = line.transfer.clone().unwrap_or_else(|| format!("{:?}", line.kind));
        (what, line.amount)
    };
    (statement.opening, lines.iter().map(short).collect(), statement.closing)
}

fn short(lines: &[(&str, i64)]) -> Vec<(String, i64)> {
    lines.iter().map(|(what, amount)| ((*what).to_owned(), *amount)).collect()
}

/// The statement is complete, ordered, and ends with the balance.
async fn check(statement: &mut Statement<'_>) {
    let lines = lines_of(statement).await;
    let (mut balance, mut at) = (statement.opening, 0);
    for (number, line) in (1..).zip(&lines) {
        balance += line.amount;
        assert_eq!((line.number, line.balance), (number, balance), "{line:?}");
        assert!(line.at >= at, "{line:?}");
        at = line.at;
    }
    assert_eq!((balance, statement.account.balance), (statement.closing, statement.closing));
}

async fn requests(bank: &Bank) -> Requests {
    bank.requests(RequestsConfig::default()).await.expect("opens")
}

async fn clean(bank: &Bank) {
    let report = bank.domain().barrier(PATIENCE).await.expect("passes");
    report.into_result().expect("applied");
    let audit = bank.audit(true).await.expect("audits");
    assert!(audit.is_clean(), "{:?}", audit.findings);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_change_is_listed_once() {
    for (store, _directory) in stores() {
        let bank = kept(&store).await;
        open(&bank, "alice", 100).await;
        open(&bank, "bob", 0).await;
        bank.transfer(Some("rent"), &legs(&[("alice", -30), ("bob", 30)])).await.expect("moves");
        // A repeated transfer with the same key has no effect.
        bank.transfer(Some("rent"), &legs(&[("alice", -30), ("bob", 30)])).await.expect("is done");
        let refused = bank.transfer(None, &legs(&[("alice", -1), ("stranger", 1)])).await;
        assert!(matches!(refused, Err(BankError::UnknownAccount(_))));
        let requests = requests(&bank).await;
        bank.submit(&requests, "tip", &legs(&[("alice", -5), ("bob", 5)])).await.expect("submits");
        let before = lines(&bank, "bob", Period::default()).await;
        assert_eq!(before, (0, short(&[("open:bob", 0), ("rent", 30)]), 30), "nothing is made yet");
        requests.process_open(None).await.expect("processes");
        bank.reverse(&requests, "tip", "back").await.expect("submits");
        requests.process_open(None).await.expect("processes");
        bank.close("bob", Some("alice")).await.expect("closes");
        let all = [("open:bob", 0), ("rent", 30), ("tip", 5), ("back", -5), ("close:bob", -30)];
        assert_eq!(lines(&bank, "bob", Period::default()).await, (0, short(&all), 0));
        let all = [("open:alice", 100), ("rent", -30), ("tip", -5), ("back", 5), ("close:bob", 30)];
        assert_eq!(lines(&bank, "alice", Period::default()).await, (0, short(&all), 100));
        let unknown = bank.statement("zoe", Period::default()).await;
        assert!(matches!(unknown, Err(BankError::UnknownAccount(name)) if name == "zoe"));
        assert!(requests.shutdown(PATIENCE).await);
        clean(&bank).await;
        assert!(bank.shutdown(PATIENCE).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn period_starts_with_the_earlier_balance() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let bank = kept(&store).await;
    open(&bank, "alice", 100).await;
    open(&bank, "bob", 0).await;
    // More than one page.
    let one = legs(&[("alice", -1), ("bob", 1)]);
    for _ in 0..40 {
        let many = (0..15).map(|_| bank.transfer(None, &one));
        futures::future::try_join_all(many).await.expect("moves");
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    let mut whole = bank.statement("bob", Period::default()).await.expect("is kept");
    let all = lines_of(&mut whole).await;
    assert_eq!(all.len(), 601);
    for (from, to) in [(0, 601), (0, 0), (1, 601), (300, 550), (599, 600), (600, 601)] {
        let at = |place: usize| all.get(place).map(|line| line.at);
        let period = Period::default().with_from(at(from)).with_to(at(to));
        let is_in = |line: &&Line| {
            at(from).is_none_or(|from| line.at >= from) && at(to).is_none_or(|to| line.at < to)
        };
        let wanted: Vec<&Line> = all.iter().filter(is_in).collect();
        let mut statement = bank.statement("bob", period).await.expect("is kept");
        let found = lines_of(&mut statement).await;
        assert!(found.iter().eq(wanted.iter().copied()), "{period:?}");
        let sum: i64 = found.iter().map(|line| line.amount).sum();
        assert_eq!(statement.opening + sum, statement.closing, "{period:?}");
        if let Some(first) = found.first() {
            assert_eq!(statement.opening, first.balance - first.amount);
        }
    }
    let late = Period::default().with_from(Some(u64::MAX));
    assert_eq!(lines(&bank, "bob", late).await, (600, Vec::new(), 600));
    let early = Period::default().with_to(Some(0));
    assert_eq!(lines(&bank, "bob", early).await, (0, Vec::new(), 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statement_shows_one_moment_during_transfers() {
    for groups in [false, true] {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let config = config().with_group_commit(Some(groups));
        let bank = Bank::create(store.clone(), "bank", config.clone()).await.expect("opens");
        let bank = bank.keep_statements().await.expect("kept");
        for name in ["a", "b", "c"] {
            open(&bank, name, 0).await;
        }
        // Another process keeps statements, too.
        let other = Bank::open(store, "bank", config).await.expect("opens");
        assert!(other.keeps_statements());
        let work = async |bank: &Bank| {
            for round in 0..40_i64 {
                let three = [Leg::new("a", -2), Leg::new("b", 1), Leg::new("c", 1)];
                let two = [Leg::new("c", -round - 1), Leg::new("a", round + 1)];
                let (three, two) = (bank.transfer(None, &three), bank.transfer(None, &two));
                futures::future::try_join(three, two).await.expect("moves");
            }
        };
        let look = async {
            for _ in 0..30 {
                for name in ["a", "b", "c"] {
                    let statement = bank.statement(name, Period::default()).await;
                    check(&mut statement.expect("is kept")).await;
                }
            }
        };
        futures::join!(work(&bank), work(&other), look);
        let (_, lines, closing) = lines(&bank, "b", Period::default()).await;
        assert_eq!((lines.len(), closing), (81, 80), "the opening, and each transfer once");
        clean(&bank).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn earlier_changes_are_carried_forward() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let old = Bank::create(store.clone(), "bank", config()).await.expect("opens");
    open(&old, "alice", 100).await;
    open(&old, "bob", 0).await;
    let refused = old.statement("alice", Period::default()).await.expect_err("none are kept");
    assert!(matches!(refused, BankError::NoStatements { .. }), "{refused}");
    old.transfer(Some("first"), &legs(&[("alice", -30), ("bob", 30)])).await.expect("moves");
    let bank = old.clone().keep_statements().await.expect("kept");
    assert_eq!(lines(&bank, "alice", Period::default()).await, (0, short(&[("Carried", 70)]), 70));
    bank.transfer(Some("second"), &legs(&[("alice", -10), ("bob", 10)])).await.expect("moves");
    // By a process that opened the bank before statements.
    old.transfer(Some("third"), &legs(&[("alice", -5), ("bob", 5)])).await.expect("moves");
    let two = short(&[("Carried", 70), ("second", -10), ("Carried", -5)]);
    assert_eq!(lines(&bank, "alice", Period::default()).await, (0, two, 55));
    clean(&bank).await;
    bank.transfer(Some("fourth"), &legs(&[("alice", 1), ("bob", -1)])).await.expect("moves");
    let all = short(&[("Carried", 70), ("second", -10), ("Carried", -5), ("fourth", 1)]);
    assert_eq!(lines(&bank, "alice", Period::default()).await, (0, all, 56));
    clean(&bank).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_of_lines_by_other_programs_are_found() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let bank = kept(&store).await;
    open(&bank, "alice", 100).await;
    open(&bank, "bob", 0).await;
    bank.transfer(Some("rent"), &legs(&[("alice", -30), ("bob", 30)])).await.expect("moves");
    let report = bank.domain().barrier(PATIENCE).await.expect("passes");
    report.into_result().expect("applied");
    let raw = bank.domain().collection::<Raw>("bank-statements").await.expect("opens");
    let id = "alice:000000000002";
    let text = bank.domain().reader().get(&raw, id).await.expect("reads").expect("is there");
    for (from, to, words) in [
        ("\"amount\":-30", "\"amount\":-31", "does not add up"),
        ("\"transfer\":\"rent\"", "\"transfer\":\"rant\"", "is not what the ledger says"),
        ("\"number\":2", "\"number\":3", "is another line"),
        ("\"format\":1", "\"format\":2", "has the format 2"),
        ("", "", "is missing"),
    ] {
        let changed = text.as_str().replace(from, to);
        assert!(changed != text.as_str() || from.is_empty());
        let write = bank.domain().transact::<_, Error, _>(async |tx| match from {
            "" => tx.delete(&raw, id),
            _ => tx.put(&raw, id, &Raw::new(changed.clone())),
        });
        write.await.expect("written");
        let report = bank.domain().barrier(PATIENCE).await.expect("passes");
        report.into_result().expect("applied");
        let audit = bank.audit(true).await.expect("audits");
        let [Finding::Statement { account, line: 2, what }] = &audit.findings[..] else {
            panic!("{:?}", audit.findings)
        };
        assert!(account == "alice" && what.contains(words), "{what}");
        let statement = bank.statement("alice", Period::default()).await;
        let read = match statement {
            Ok(mut statement) => statement.next_page().await.map(|_| ()),
            Err(error) => Err(error),
        };
        let is_damaged = matches!(read, Err(BankError::StatementDamaged { line: 2, .. }));
        assert_eq!(is_damaged, !words.contains("add up") && !words.contains("ledger"), "{read:?}");
    }
}

/// The cost of a bank with and without statements.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_costs_a_document_for_each_leg() {
    use txn_sim::CountingStore;
    let mut written = Vec::new();
    for keeps in [false, true] {
        let counting = Arc::new(CountingStore::new(Arc::new(MemoryStore::new())));
        let store: Arc<dyn Store> = counting.clone();
        let mut bank = Bank::create(store, "bank", config()).await.expect("opens");
        if keeps {
            bank = bank.keep_statements().await.expect("kept");
        }
        open(&bank, "a", 10).await;
        open(&bank, "b", 10).await;
        let report = bank.domain().barrier(PATIENCE).await.expect("passes");
        report.into_result().expect("applied");
        // The barrier waits for the apply, but not for the `finished` mark.
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        let before = counting.counts();
        bank.transfer(None, &legs(&[("a", -1), ("b", 1)])).await.expect("made");
        assert!(bank.shutdown(PATIENCE).await);
        written.push(counting.counts().since(before).documents_written);
    }
    // A lock and a content for each of the two lines.
    assert_eq!(written[1], written[0] + 4, "{written:?}");
}
