//! Coordinators that die at each step of a transaction.
//!
//! Another process completes or undoes the transaction.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::json;
use txn_core::clock::{Clock, SystemClock};
use txn_core::store::Write;
use txn_core::{Collection, DocumentId, Domain, Error, ErrorKind, TransactionOutcome, Typed};
use txn_fixtures::bank::{self, Account, Accounts, account};
use txn_fixtures::fixture::{self, Fixture, all_is_applied};
use txn_sim::tapped::{Delivery, Tap, Tapped};

/// Dies at one of its writes: no later request is sent.
#[derive(Debug)]
struct Doom {
    /// The number of the last write request.
    at: usize,
    /// The fate of that request.
    last: Delivery,
    armed: std::sync::atomic::AtomicBool,
    writes: AtomicUsize,
}

impl Doom {
    fn is_dead(&self) -> bool {
        self.writes.load(Ordering::SeqCst) > self.at
    }
}

#[async_trait]
impl Tap for Doom {
    async fn on_write(&self, _: &[Write]) -> Delivery {
        if !self.armed.load(Ordering::SeqCst) {
            return Delivery::Pass;
        }
        match self.writes.fetch_add(1, Ordering::SeqCst) {
            request if request < self.at => Delivery::Pass,
            request if request == self.at => self.last,
            _ => Delivery::Swallow,
        }
    }

    async fn on_call(&self) -> Delivery {
        if self.is_dead() { Delivery::Swallow } else { Delivery::Pass }
    }
}

/// The clock of a dead coordinator.
///
/// By this clock all deadlines have passed.
///
/// The later requests of the coordinator are sent nowhere.
#[derive(Debug)]
struct DoomsdayClock {
    clock: SystemClock,
    doom: Arc<Doom>,
}

#[async_trait]
impl Clock for DoomsdayClock {
    fn wall(&self) -> Duration {
        self.clock.wall()
    }

    fn monotonic(&self) -> Duration {
        let afterwards = if self.doom.is_dead() { 10 * fixture::PATIENCE } else { Duration::ZERO };
        self.clock.monotonic() + afterwards
    }

    async fn sleep(&self, duration: Duration) {
        let longest = if self.doom.is_dead() { Duration::from_millis(1) } else { duration };
        self.clock.sleep(duration.min(longest)).await;
    }
}

const LEASE: Duration = Duration::from_millis(300);

/// The work of a coordinator.
trait Work {
    /// Runs the transaction.
    async fn run(&self, domain: &Domain) -> Result<(), Error>;
    /// Whether the transaction happened, as a whole.
    async fn happened(&self, witness: &Domain) -> bool;
    /// Runs another transaction over the same documents, and restores the first state.
    async fn reset(&self, witness: &Domain);
}

/// Kills coordinators at each of their writes in turn.
///
/// Before the write, in the middle of it, and before its answer.
async fn dies_everywhere(fixture: &Fixture, work: &impl Work) {
    let witness = fixture.domain_on(fixture.store(), Fixture::config().with_lease(LEASE)).await;
    let (mut undone, mut finished) = (0, 0);
    for at in 0.. {
        let mut survived = false;
        for last in [Delivery::Swallow, Delivery::Part(1), Delivery::Part(3), Delivery::Lose] {
            let doom =
                Arc::new(Doom { at, last, armed: false.into(), writes: AtomicUsize::new(0) });
            let clock = DoomsdayClock { clock: SystemClock::default(), doom: doom.clone() };
            let config = Fixture::config().with_lease(LEASE).with_clock(Arc::new(clock));
            let tapped = Arc::new(Tapped::new(fixture.store(), doom.clone()));
            let victim = fixture.domain_on(tapped, config).await;
            doom.armed.store(true, Ordering::SeqCst);
            let result = work.run(&victim).await;
            let drained = victim.shutdown(fixture::PATIENCE).await;
            survived = !doom.is_dead();
            let happened = work.happened(&witness).await;
            let context = format!("dead at write {at} ({last:?}), told {result:?}");
            match &result {
                Ok(()) => assert!(happened, "{context}"),
                Err(error) if error.kind() == ErrorKind::Unknown => {
                    let tid = error.tid().expect("it has a record");
                    let outcome = witness.outcome(tid).await.expect("known");
                    let committed = matches!(outcome, TransactionOutcome::Committed { .. });
                    assert_eq!(committed, happened, "{context}, but {outcome:?}");
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Unavailable, "{context}");
                    assert!(!happened, "{context}");
                }
            }
            if survived {
                assert!(drained && result.is_ok(), "{context}");
            } else if happened {
                finished += 1;
            } else {
                undone += 1;
            }
            work.reset(&witness).await;
            all_is_applied(&witness).await;
        }
        if survived {
            // Locks, commit, apply, finished; on a slow machine also heartbeats.
            assert!(at >= 4, "{at}: as many requests to write as there are steps");
            break;
        }
    }
    assert!(undone >= 5 && finished >= 7, "{undone} undone, {finished} finished");
    fixture.settle(&witness).await;
}

struct Transfer {
    accounts: Accounts,
    names: Vec<String>,
}

impl Work for Transfer {
    async fn run(&self, domain: &Domain) -> Result<(), Error> {
        let options = txn_core::Options::default();
        bank::spread(domain, &self.accounts, &self.names, &options).await.map(|_| ())
    }

    async fn happened(&self, witness: &Domain) -> bool {
        let found = witness
            .run::<_, Error, _>(&txn_core::Options::default().with_read_only(true), async |tx| {
                tx.get_many(&self.accounts, self.names.iter().map(String::as_str)).await
            })
            .await
            .expect("reads");
        let found: Vec<_> = found.value.into_iter().flatten().map(|a| a.balance).collect();
        assert_eq!(found.iter().sum::<i64>(), 40, "{found:?}");
        match found[0] {
            10 => assert_eq!(found, [10; 4]),
            _ => assert_eq!(found, [7, 11, 11, 11]),
        }
        found[0] != 10
    }

    async fn reset(&self, witness: &Domain) {
        witness
            .transact::<_, Error, _>(async |tx| {
                for name in &self.names {
                    tx.put(&self.accounts, name.as_str(), &account(10))?;
                }
                Ok(())
            })
            .await
            .expect("meets the locks and gets through");
    }
}

pub(crate) async fn transfer_survives_a_dead_coordinator(fixture: &Fixture) {
    let domain = fixture.domain().await;
    let accounts = bank::open(&domain, &fixture.name("accounts")).await;
    let names = bank::names(4);
    bank::fund(&domain, &accounts, &names, 10).await;
    fixture.settle(&domain).await;
    Box::pin(dies_everywhere(fixture, &Transfer { accounts, names })).await;
}

/// Changes one document, inserts a second, deletes a third, all with routing.
struct Move {
    things: Collection<Typed<Account>>,
}

fn routed(id: &str) -> DocumentId {
    DocumentId::routed(id, format!("to-{id}"))
}

impl Work for Move {
    async fn run(&self, domain: &Domain) -> Result<(), Error> {
        domain
            .transact(async |tx| {
                let kept = tx.get(&self.things, routed("kept")).await?.expect("exists");
                let old = tx.get(&self.things, routed("old")).await?.expect("exists");
                tx.put(&self.things, routed("kept"), &account(kept.balance + 1))?;
                tx.insert(&self.things, routed("new"), &account(old.balance - 1))?;
                tx.delete(&self.things, routed("old"))
            })
            .await
    }

    async fn happened(&self, witness: &Domain) -> bool {
        let found = witness
            .run::<_, Error, _>(&txn_core::Options::default().with_read_only(true), async |tx| {
                tx.get_many(&self.things, ["kept", "new", "old"].map(routed)).await
            })
            .await
            .expect("reads");
        let found: Vec<_> = found.value.iter().map(|a| a.map(|a| a.balance)).collect();
        let happened = found[0] != Some(10);
        let expected =
            if happened { [Some(11), Some(9), None] } else { [Some(10), None, Some(10)] };
        assert_eq!(found, expected);
        happened
    }

    async fn reset(&self, witness: &Domain) {
        witness
            .transact::<_, Error, _>(async |tx| {
                tx.put(&self.things, routed("kept"), &account(10))?;
                tx.put(&self.things, routed("old"), &account(10))?;
                tx.delete(&self.things, routed("new"))
            })
            .await
            .expect("meets the locks and gets through");
    }
}

pub(crate) async fn routed_move_survives_a_dead_coordinator(fixture: &Fixture) {
    let mappings = json!({
        "_routing": {"required": true}, "properties": {"balance": {"type": "long"}},
    });
    let name = fixture.make("things", mappings).await;
    let domain = fixture.domain().await;
    let work = Move { things: domain.collection(&name).await.expect("opens") };
    work.reset(&domain).await;
    fixture.settle(&domain).await;
    Box::pin(dies_everywhere(fixture, &work)).await;
}
