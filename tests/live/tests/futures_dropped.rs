//! From the first lock on, a tracked task owns a transaction.
//!
//! The caller's future does not own the transaction. A future that is dropped at any await leaves
//! the transaction whole or undone, without leftovers.

use std::collections::BTreeSet;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use txn_core::store::MemoryStore;
use txn_core::{Collection, Config, Domain, Error, LockMode, Options, ReadMode, Typed, WaitFor};
use txn_sim::tapped::{Delivery, Tap, Tapped};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Account {
    balance: i64,
}

type Accounts = Collection<Typed<Account>>;

/// How often a call of the store yields.
const TURNS: usize = 5;

/// Yields several times in each call of the store.
///
/// So a future can be dropped inside a call.
#[derive(Debug)]
struct Slow;

#[async_trait]
impl Tap for Slow {
    async fn on_call(&self) -> Delivery {
        for _ in 0..TURNS {
            tokio::task::yield_now().await;
        }
        Delivery::Pass
    }
}

/// Polls a future a number of times.
///
/// The result is `None` if the future was not ready then.
struct Polls<F> {
    future: Pin<Box<F>>,
    left: usize,
    /// Whether to poll again at once.
    ///
    /// Then polls during work of the engine's tasks count, too.
    spin: bool,
}

impl<F: Future> Future for Polls<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.left -= 1;
        match self.future.as_mut().poll(context) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            // The last poll: the caller drops the future at this await.
            Poll::Pending if self.left == 0 => Poll::Ready(None),
            Poll::Pending => {
                if self.spin {
                    context.waker().wake_by_ref();
                }
                Poll::Pending
            }
        }
    }
}

/// The changes of a transaction to its accounts.
///
/// The accounts are `kept`, `other`, `old` and `new`.
#[derive(Clone, Copy, Debug)]
enum Shape {
    /// Updates two.
    Updates,
    /// Updates a single one.
    Single,
    /// Updates one, inserts one, deletes one.
    Mixed,
    /// Inserts two without a read.
    Inserts,
    /// Deletes one account, and changes another one. The change depends on a third account that is
    /// only read.
    Deletes,
}

async fn work(
    domain: &Domain,
    accounts: &Accounts,
    shape: Shape,
    options: &Options,
) -> Result<(), Error> {
    let run = domain.run::<_, Error, _>(options, async |tx| {
        let put = |id: &str, balance| tx.put(accounts, id, &Account { balance });
        match shape {
            Shape::Updates => {
                let kept = tx.get(accounts, "kept").await?.expect("exists");
                let other = tx.get(accounts, "other").await?.expect("exists");
                put("kept", kept.balance - 1)?;
                put("other", other.balance + 1)
            }
            Shape::Single => {
                let kept = tx.get(accounts, "kept").await?.expect("exists");
                put("kept", kept.balance + 1)
            }
            Shape::Mixed => {
                let kept = tx.get(accounts, "kept").await?.expect("exists");
                let old = tx.get(accounts, "old").await?.expect("exists");
                put("kept", kept.balance - 1)?;
                tx.delete(accounts, "old")?;
                tx.insert(accounts, "new", &Account { balance: old.balance + 1 })
            }
            Shape::Inserts => {
                tx.insert(accounts, "new", &Account { balance: 1 })?;
                tx.insert(accounts, "newer", &Account { balance: -1 })
            }
            Shape::Deletes => {
                tx.get(accounts, "other").await?.expect("exists");
                let old = tx.get(accounts, "old").await?.expect("exists");
                tx.delete(accounts, "old")?;
                let kept = tx.get(accounts, "kept").await?.expect("exists");
                put("kept", kept.balance + old.balance)
            }
        }
    });
    run.await.map(|_| ())
}

const IDS: [&str; 5] = ["kept", "new", "newer", "old", "other"];

type Balances = [Option<i64>; 5];

const BEFORE: Balances = [Some(10), None, None, Some(10), Some(10)];

fn after(shape: Shape) -> Balances {
    match shape {
        Shape::Updates => [Some(9), None, None, Some(10), Some(11)],
        Shape::Single => [Some(11), None, None, Some(10), Some(10)],
        Shape::Mixed => [Some(9), Some(11), None, None, Some(10)],
        Shape::Inserts => [Some(10), Some(1), Some(-1), Some(10), Some(10)],
        Shape::Deletes => [Some(20), None, None, None, Some(10)],
    }
}

fn config() -> Config {
    Config::default().with_janitor_interval(None)
}

/// The end of a future.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    /// Dropped, and nothing happened.
    Nothing,
    /// Dropped, and the transaction happened.
    Committed,
    Ready,
}

/// The first holder of a document that the transaction wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    Absent,
    /// An older transaction of the same process.
    Here,
    /// An older transaction of another process.
    Elsewhere,
}

/// Locks a document for some time.
async fn hold(domain: &Domain, accounts: &Accounts) -> tokio::task::JoinHandle<()> {
    let tx = domain.begin(&Options::default().with_lock_mode(LockMode::AtRead)).expect("begins");
    tx.get(accounts, "kept").await.expect("locks");
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(10)).await;
        tx.rollback().await;
    })
}

/// Drops the future after this many polls, and returns the transaction's fate.
async fn dropped_after(polls: usize, shape: Shape, holder: Holder, options: &Options) -> End {
    let store = Arc::new(MemoryStore::new());
    let slow = Arc::new(Tapped::new(store.clone(), Arc::new(Slow)));
    let domain = Domain::open_or_create(slow, "bank", config()).await.expect("opens");
    let accounts: Accounts = domain.create_collection("accounts", None).await.expect("opens");
    let funds = Options::default().with_wait_for(WaitFor::Apply);
    domain
        .run::<_, Error, _>(&funds, async |tx| {
            for id in ["kept", "old", "other"] {
                tx.insert(&accounts, id, &Account { balance: 10 })?;
            }
            Ok(())
        })
        .await
        .expect("funds");
    let other = Domain::open_or_create(store.clone(), "bank", config()).await.expect("opens");
    let held = match holder {
        Holder::Absent => None,
        Holder::Here => Some(hold(&domain, &accounts).await),
        Holder::Elsewhere => Some(hold(&other, &accounts).await),
    };
    let future = Box::pin(work(&domain, &accounts, shape, options));
    let spin = held.is_none();
    let ended = pin!(Polls { future, left: polls, spin }).as_mut().await;
    let context = format!("{shape:?} after {polls} polls, {holder:?} holds, {options:?}");
    if let Some(held) = held {
        held.await.expect("no panic");
    }
    assert!(other.shutdown(Duration::from_secs(60)).await, "not drained: {context}");

    assert!(domain.shutdown(Duration::from_secs(60)).await, "not drained: {context}");
    let report = domain.admin().inspect().await.expect("looks");
    assert!(report.is_clean(), "left over after the shutdown: {report:?}, {context}");
    let witness = Domain::open_or_create(store, "bank", config()).await.expect("opens");
    let report = witness.admin().janitor_pass().await.expect("passes");
    assert!(report.is_clean() && report.recovered == 0, "{report:?}, {context}");
    let found = witness.reader().verified().get_many(&accounts, IDS).await.expect("reads");
    let found = found.into_iter().map(|account| account.map(|account| account.balance));
    let found: Balances = found.collect::<Vec<_>>().try_into().expect("as many");
    witness.shutdown(Duration::from_secs(60)).await;
    match ended {
        Some(result) => {
            result.expect("commits");
            assert_eq!(found, after(shape), "{context}");
            End::Ready
        }
        None if found == BEFORE => End::Nothing,
        None => {
            assert_eq!(found, after(shape), "in part: {context}");
            End::Committed
        }
    }
}

/// Drops the future at each of its polls in turn.
///
/// Ends when the future is ready, and returns each end.
fn dropped_everywhere(shape: Shape, holder: Holder, options: &Options) -> Vec<End> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let mut ends = Vec::new();
    while ends.last() != Some(&End::Ready) {
        assert!(ends.len() < 10_000, "it is never ready: {shape:?} {options:?}");
        let ended = dropped_after(ends.len(), shape, holder, options);
        ends.push(runtime.block_on(ended));
    }
    ends
}

fn every_shape(options: &Options) {
    for shape in [Shape::Updates, Shape::Single, Shape::Mixed, Shape::Inserts, Shape::Deletes] {
        for acknowledge in [WaitFor::Commit, WaitFor::Refresh] {
            let options = options.clone().with_wait_for(acknowledge);
            let ends = dropped_everywhere(shape, Holder::Absent, &options);
            let seen: BTreeSet<End> = ends.iter().copied().collect();
            assert_eq!(seen.len(), 3, "{shape:?} {options:?}: {ends:?}");
            // Each yield of the store: in a read, the locks and the commit, or in a read and a
            // write. Inserts need no read.
            let least = match shape {
                Shape::Single | Shape::Inserts => 2 * TURNS,
                Shape::Updates | Shape::Mixed | Shape::Deletes => 3 * TURNS,
            };
            assert!(ends.len() > least, "{} polls: {shape:?} {options:?}", ends.len());
        }
    }
    for shape in [Shape::Updates, Shape::Single, Shape::Mixed, Shape::Deletes] {
        for holder in [Holder::Here, Holder::Elsewhere] {
            let ends = dropped_everywhere(shape, holder, options);
            assert!(ends.contains(&End::Nothing), "{shape:?} {holder:?} {options:?}: {ends:?}");
        }
    }
}

#[test]
fn optimistic_transaction_is_whole_after_a_drop() {
    every_shape(&Options::default());
}

#[test]
fn pessimistic_transaction_is_whole_after_a_drop() {
    every_shape(&Options::default().with_lock_mode(LockMode::AtRead));
}

#[test]
fn locked_read_transaction_is_whole_after_a_drop() {
    every_shape(&Options::default().with_read_mode(ReadMode::Lock));
}
