//! Workers: one transaction after the other, and what became of each.

use std::time::Duration;

use fastrand::Rng;
use parking_lot::Mutex;
use tokio::sync::watch;
use txn_core::{Acknowledge, Error, ErrorKind, Options};

use super::book::Entry;
use super::{Ledger, one};
use crate::bank::{Account, account};

/// How long to wait after a failure, so that a store that is away is not asked in a loop.
const PAUSE: Duration = Duration::from_millis(20);

/// Slips that one worker inserts and deletes in turn.
const SLIPS: usize = 3;

/// One worker of one coordinator.
pub(super) struct Worker {
    ledger: Ledger,
    coordinator: usize,
    name: String,
    random: Rng,
    counted: i64,
}

impl Worker {
    pub(super) fn new(ledger: Ledger, coordinator: usize, number: usize, run: u64) -> Self {
        let name = format!("{coordinator}-{number}-{run}");
        let mut seeds = Rng::with_seed(ledger.inner.plan.seed);
        for byte in name.bytes() {
            seeds = Rng::with_seed(seeds.u64(..) ^ u64::from(byte));
        }
        Self { ledger, coordinator, name, random: seeds, counted: 0 }
    }

    pub(super) async fn work(mut self, over: watch::Receiver<bool>) {
        for turn in 0.. {
            if *over.borrow() {
                return;
            }
            // Looks are rare: one that is disturbed again and again locks all accounts.
            let draw = self.random.u32(..40);
            let draw = if turn < 2 { turn } else { draw };
            let well = match draw {
                0 => self.look().await,
                1..=4 => self.tick().await,
                _ => self.transfer().await,
            };
            if !well {
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    /// From one account to one, two or three others; often with a slip.
    fn draw(&mut self) -> (Entry, Option<String>, Options) {
        let random = &mut self.random;
        let inner = &self.ledger.inner;
        let mut chosen: Vec<usize> = (0..inner.names.len()).collect();
        random.shuffle(&mut chosen);
        chosen.truncate(random.usize(2..=4));
        let mut moves: Vec<(usize, i64)> =
            chosen.iter().map(|account| (*account, random.i64(1..=9))).collect();
        moves[0].1 = -moves[1..].iter().map(|(_, amount)| amount).sum::<i64>();
        let slip = random.u32(..3) == 0;
        let slip = slip.then(|| format!("slip-{}-{}", self.name, random.usize(..SLIPS)));
        let acknowledge = match random.u32(..8) {
            0 => Acknowledge::Applied,
            _ => Acknowledge::Committed,
        };
        // The hasty ones give up in the middle of whatever goes wrong, and often never learn their outcome.
        let hasty = random.u32(..8) == 0;
        let hasty = hasty.then(|| Duration::from_millis(random.u64(20..200)));
        let options = Options::default()
            .with_deadline(hasty)
            .with_acknowledge(acknowledge)
            .with_pessimistic(random.u32(..5) == 0)
            .with_lock_reads(random.u32(..8) == 0);
        let turn = inner.turns.fetch_add(1, std::sync::atomic::Ordering::SeqCst) + 1;
        (Entry { moves, slip: None, turn }, slip, options)
    }

    async fn transfer(&mut self) -> bool {
        let (mut entry, slip, options) = self.draw();
        let inner = &self.ledger.inner;
        let (domain, accounts) = &inner.coordinators[self.coordinator];
        // What the attempt that is sent does to the slip, told also where the outcome is unknown.
        let left: Mutex<Option<i64>> = Mutex::new(None);
        let turn = i64::try_from(entry.turn).unwrap_or(i64::MAX);
        let result = domain
            .run::<_, Error, _>(&options, async |tx| {
                let names = entry.moves.iter().map(|(account, _)| inner.names[*account].as_str());
                let ids: Vec<&str> = names.chain(slip.as_deref()).collect();
                let mut found = tx.get_many(accounts, ids).await?;
                if let Some(slip) = &slip {
                    let next = match found.pop().flatten() {
                        Some(_) => {
                            tx.delete(accounts, slip.as_str())?;
                            None
                        }
                        None => {
                            tx.insert(accounts, slip.as_str(), &account(turn))?;
                            Some(turn)
                        }
                    };
                    *left.lock() = next;
                }
                for ((number, amount), found) in entry.moves.iter().zip(found) {
                    let Account { balance } = found.unwrap_or_default();
                    tx.put(accounts, inner.names[*number].as_str(), &account(balance + amount))?;
                }
                Ok(())
            })
            .await;
        entry.slip = slip.map(|slip| (slip, *left.lock()));
        match result {
            Ok(_) => {
                inner.book.lock().enter(entry);
                one(&inner.tally.acknowledged);
                true
            }
            Err(error) => {
                match (error.kind(), error.tid()) {
                    (ErrorKind::Unknown, Some(tid)) => {
                        inner.book.lock().doubt(tid, entry);
                        one(&inner.tally.unknown);
                    }
                    (ErrorKind::Unavailable | ErrorKind::Conflict, _) => one(&inner.tally.aborted),
                    _ => self.violation(format!("a transfer failed: {error:?}")),
                }
                false
            }
        }
    }

    /// Counts up a document of its own: a transaction of one document.
    async fn tick(&mut self) -> bool {
        let name = format!("tick-{}", self.name);
        let next = self.counted + 1;
        self.counted = next;
        let inner = &self.ledger.inner;
        let (domain, accounts) = &inner.coordinators[self.coordinator];
        let result = domain
            .transact::<_, Error, _>(async |tx| {
                let found = tx.get(accounts, name.as_str()).await?.unwrap_or_default();
                tx.put(accounts, name.as_str(), &account(next))?;
                Ok(found.balance)
            })
            .await;
        let mut book = inner.book.lock();
        let tick = book.ticks.entry(name.clone()).or_default();
        match result {
            Ok(before) => {
                let known = before == tick.certain || tick.possible.contains(&before);
                let was = format!("{name} was {before} before {next}, and {tick:?} was expected");
                tick.certain = next;
                tick.possible.clear();
                if !known {
                    book.violations.push(was);
                }
                one(&inner.tally.ticks);
                true
            }
            Err(error) => {
                match error.kind() {
                    ErrorKind::Unknown => {
                        tick.possible.push(next);
                        one(&inner.tally.ticks_unknown);
                    }
                    ErrorKind::Unavailable | ErrorKind::Conflict => one(&inner.tally.failed),
                    _ => book.violations.push(format!("a tick failed: {error:?}")),
                }
                false
            }
        }
    }

    /// Reads all accounts at once: nothing is ever missing.
    async fn look(&mut self) -> bool {
        let inner = &self.ledger.inner;
        let (domain, accounts) = &inner.coordinators[self.coordinator];
        let options = Options::default().with_read_only(true);
        let result = domain
            .run::<_, Error, _>(&options, async |tx| {
                tx.get_many(accounts, inner.names.iter().map(String::as_str)).await
            })
            .await;
        match result {
            Ok(found) => {
                let sum: i64 = found.value.iter().flatten().map(|found| found.balance).sum();
                let total = inner.book.lock().total();
                if sum != total {
                    self.violation(format!("a look saw {sum} instead of {total}: {found:?}"));
                }
                one(&inner.tally.looks);
                true
            }
            Err(error) => {
                match error.kind() {
                    ErrorKind::Unavailable | ErrorKind::Conflict => one(&inner.tally.failed),
                    _ => self.violation(format!("a look failed: {error:?}")),
                }
                false
            }
        }
    }

    fn violation(&self, what: String) {
        self.ledger.inner.book.lock().violations.push(what);
    }
}
