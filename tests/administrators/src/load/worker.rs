//! One worker: one transaction after the other.

use std::sync::atomic::Ordering;
use std::time::Duration;

use fastrand::Rng;
use tokio::sync::watch;
use txn_core::{Error, ErrorKind, LockMode, Options, ReadMode, Receipt, WaitFor};

use super::{ACCOUNTS, COUNTERS, Entry, Load, Phase, Process, number};
use crate::book::{self, Moves, Pair, Told, Transfer};

/// The time that some transactions hold their locks before they commit.
const HOLD: Duration = Duration::from_millis(20);

/// The pause after a failure, to spare an unavailable server.
const PAUSE: Duration = Duration::from_millis(20);

/// The number of retries of a transfer with an unknown outcome.
const TRIES: u32 = 10;

/// The number of pairs of one worker after which it deletes some.
const STANDING: usize = 4;

pub(super) struct Worker {
    load: Load,
    process: usize,
    name: String,
    random: Rng,
    /// The number of the last key.
    count: u64,
    pairs: Vec<String>,
    transfers: Vec<String>,
}

impl Worker {
    pub(super) fn new(load: Load, process: usize, name: &str) -> Self {
        let (pairs, transfers) = (Vec::new(), Vec::new());
        Self {
            load,
            process,
            name: name.to_owned(),
            random: Rng::new(),
            count: 0,
            pairs,
            transfers,
        }
    }

    pub(super) async fn work(mut self, over: watch::Receiver<bool>) {
        while !*over.borrow() {
            let well = match self.random.u32(..16) {
                0..=4 => self.transfer().await,
                5..=9 => self.pair().await,
                10..=13 => self.increment().await,
                14 => self.look().await,
                _ => self.repeat().await,
            };
            if !well {
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    fn key(&mut self, what: &str) -> String {
        self.count += 1;
        format!("{what}-{}-{}", self.name, self.count)
    }

    fn process(&self) -> Process {
        self.load.process(self.process)
    }

    fn options(&mut self) -> Options {
        let applied = self.random.u32(..6) == 0;
        let acknowledge = if applied { WaitFor::Apply } else { WaitFor::Commit };
        Options::default()
            .with_wait_for(acknowledge)
            .with_lock_mode(match self.random.u32(..5) {
                0 => LockMode::AtRead,
                _ => LockMode::AtCommit,
            })
            .with_read_mode(match self.random.u32(..8) {
                0 => ReadMode::Lock,
                _ => ReadMode::Validate,
            })
    }

    fn phase(&self) -> Phase {
        *self.load.inner.phase.lock()
    }

    /// Records the outcome. `began`: the phase in which the transaction began.
    fn told(&self, began: Phase, result: &Result<Receipt, Error>) -> Told {
        match result {
            Ok(_) => {
                self.load.inner.acknowledged.fetch_add(1, Ordering::SeqCst);
                Told::Acknowledged
            }
            Err(error) => {
                // A transaction that began before the job and met it belongs to the job.
                let phase = match began {
                    Phase::Before if self.phase() != Phase::Before => Phase::During,
                    began => began,
                };
                self.load.complain(phase, error);
                match error.kind() {
                    ErrorKind::Unknown | ErrorKind::Damaged => Told::Unknown,
                    _ => Told::Refused,
                }
            }
        }
    }

    /// Moves money under a new key.
    ///
    /// Repeats a transfer with an unknown outcome.
    async fn transfer(&mut self) -> bool {
        let mut chosen: Vec<usize> = (0..ACCOUNTS).collect();
        self.random.shuffle(&mut chosen);
        chosen.truncate(self.random.usize(2..=3));
        let mut moves: Moves =
            chosen.into_iter().map(|account| (account, self.random.i64(1..=9))).collect();
        moves[0].1 = -moves[1..].iter().map(|(_, amount)| amount).sum::<i64>();
        let key = self.key("transfer");
        let mut told = Told::Refused;
        for _ in 0..TRIES {
            let (phase, options) = (self.phase(), self.options());
            let (result, is_new) = self.run_transfer(&key, &moves, &options).await;
            let was = told;
            told = match self.told(phase, &result) {
                Told::Refused if was == Told::Unknown => Told::Unknown,
                told => told,
            };
            if told == Told::Acknowledged && !is_new && was == Told::Refused {
                self.load.anomaly(format!("{key} was there before it was made"));
            }
            if told != Told::Unknown {
                break;
            }
            tokio::time::sleep(PAUSE).await;
        }
        let transfer = Transfer { moves, told, again: 0 };
        self.load.inner.book.lock().transfers.insert(key.clone(), transfer);
        if told == Told::Acknowledged {
            self.transfers.push(key);
        }
        told == Told::Acknowledged
    }

    /// Runs a transfer, unless its entry exists; returns whether it was new.
    async fn run_transfer(
        &self,
        key: &str,
        moves: &Moves,
        options: &Options,
    ) -> (Result<Receipt, Error>, bool) {
        let Process { domain, accounts, entries } = self.process();
        let entry = Entry { kind: "transfer".to_owned(), moves: moves.clone() };
        let result = domain
            .run::<_, Error, _>(options, async |tx| {
                if tx.get(&entries, key).await?.is_some() {
                    return Ok(false);
                }
                let names: Vec<String> =
                    moves.iter().map(|(account, _)| book::account(*account)).collect();
                let found = tx.get_many(&accounts, names.iter().map(String::as_str)).await?;
                for ((name, (_, amount)), found) in names.iter().zip(moves).zip(found) {
                    let balance = found.unwrap_or_default().balance + amount;
                    tx.put(&accounts, name.as_str(), &number(balance))?;
                }
                tx.insert(&entries, key, &entry)?;
                Ok(true)
            })
            .await;
        match result {
            Ok(committed) => (Ok(committed.receipt), committed.value),
            Err(error) => (Err(error), true),
        }
    }

    /// Repeats an acknowledged transfer, which must have no effect.
    async fn repeat(&mut self) -> bool {
        let Some(key) = self.random.choice(&self.transfers).cloned() else { return true };
        let moves =
            self.load.inner.book.lock().transfers.get(&key).map(|known| known.moves.clone());
        let (phase, options) = (self.phase(), self.options());
        let (result, is_new) = self.run_transfer(&key, &moves.unwrap_or_default(), &options).await;
        let told = self.told(phase, &result);
        if told == Told::Acknowledged && is_new {
            if let Some(known) = self.load.inner.book.lock().transfers.get_mut(&key) {
                known.again += 1;
            }
            self.load.anomaly(format!("the acknowledged transfer {key} was made a second time"));
        }
        told == Told::Acknowledged
    }

    /// Inserts a pair, or deletes one.
    async fn pair(&mut self) -> bool {
        if self.pairs.len() >= STANDING && self.random.bool() {
            return self.delete_pair().await;
        }
        let key = self.key("pair");
        let ids = book::pair(&key);
        let entry = Entry { kind: "pair".to_owned(), moves: Vec::new() };
        let holds = self.random.bool();
        let lock_mode = match holds {
            true => LockMode::AtRead,
            false => LockMode::AtCommit,
        };
        let (phase, options) = (self.phase(), self.options().with_lock_mode(lock_mode));
        let Process { domain, entries, .. } = self.process();
        let result = domain
            .run::<_, Error, _>(&options, async |tx| {
                if holds {
                    tx.get_many(&entries, ids.iter().map(String::as_str)).await?;
                    tokio::time::sleep(HOLD).await;
                }
                ids.iter().try_for_each(|id| tx.insert(&entries, id.as_str(), &entry))
            })
            .await
            .map(|committed| committed.receipt);
        if let Err(error) = &result
            && error.kind() == ErrorKind::Exists
        {
            self.load.anomaly(format!("{key} was there before it was made: {error}"));
        }
        let inserted = self.told(phase, &result);
        self.load.inner.book.lock().pairs.insert(key.clone(), Pair { inserted, deleted: None });
        if inserted == Told::Acknowledged {
            self.pairs.push(key);
        }
        inserted == Told::Acknowledged
    }

    async fn delete_pair(&mut self) -> bool {
        let key = self.pairs.swap_remove(self.random.usize(..self.pairs.len()));
        let ids = book::pair(&key);
        let (phase, options) = (self.phase(), self.options());
        let Process { domain, entries, .. } = self.process();
        let result = domain
            .run::<_, Error, _>(&options, async |tx| {
                ids.iter().try_for_each(|id| tx.delete(&entries, id.as_str()))
            })
            .await
            .map(|committed| committed.receipt);
        let told = self.told(phase, &result);
        if let Some(pair) = self.load.inner.book.lock().pairs.get_mut(&key) {
            pair.deleted = Some(told);
        }
        told == Told::Acknowledged
    }

    /// Adds one to both documents of a counter.
    async fn increment(&mut self) -> bool {
        let counter = self.random.usize(..COUNTERS);
        let ids = book::counter(counter);
        let (phase, options) = (self.phase(), self.options());
        let Process { domain, accounts, .. } = self.process();
        let result = domain
            .run::<_, Error, _>(&options, async |tx| {
                let found = tx.get_many(&accounts, ids.iter().map(String::as_str)).await?;
                let found: Vec<i64> =
                    found.into_iter().map(|found| found.unwrap_or_default().balance).collect();
                for (id, count) in ids.iter().zip(&found) {
                    tx.put(&accounts, id.as_str(), &number(count + 1))?;
                }
                Ok(found)
            })
            .await;
        let (seen, result) = match result {
            Ok(committed) => (committed.value, Ok(committed.receipt)),
            Err(error) => (Vec::new(), Err(error)),
        };
        if seen.windows(2).any(|two| two[0] != two[1]) {
            self.load.anomaly(format!("a transaction read the counter {counter} as {seen:?}"));
        }
        let told = self.told(phase, &result);
        let known = &mut self.load.inner.book.lock().counters[counter];
        match told {
            Told::Acknowledged => known.acknowledged += 1,
            Told::Unknown => known.unknown += 1,
            Told::Refused => {}
        }
        told == Told::Acknowledged
    }

    /// Reads all accounts and counters at once.
    async fn look(&mut self) -> bool {
        let phase = self.phase();
        let Process { domain, accounts, .. } = self.process();
        let options = Options::default().with_read_only(true);
        let names: Vec<String> = (0..ACCOUNTS).map(book::account).collect();
        let counters: Vec<String> = (0..COUNTERS).flat_map(book::counter).collect();
        let result = domain
            .run::<_, Error, _>(&options, async |tx| {
                let ids = names.iter().chain(&counters).map(String::as_str);
                tx.get_many(&accounts, ids).await
            })
            .await;
        let result = result.map(|committed| {
            let numbers: Vec<Option<i64>> =
                committed.value.into_iter().map(|found| found.map(|found| found.balance)).collect();
            let (balances, counters) = numbers.split_at(ACCOUNTS);
            let (sum, total) =
                (balances.iter().flatten().sum::<i64>(), self.load.inner.book.lock().total());
            if sum != total {
                self.load.anomaly(format!("a read saw {sum} instead of {total}: {balances:?}"));
            }
            if counters.chunks(2).any(|two| two[0] != two[1]) {
                self.load.anomaly(format!("a read saw counters {counters:?}"));
            }
            committed.receipt
        });
        self.told(phase, &result) == Told::Acknowledged
    }
}
