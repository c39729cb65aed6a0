//! Faults outside of the engine.
//!
//! Applications copy locked documents, operators remove an index, and a part of the store becomes
//! slow.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use txn_core::store::fields;
use txn_core::store::{Key, Outcome, Source, Store, Write, WriteOp};

use crate::history::Doc;
use crate::made_again::MadeAgain;
use crate::scenario::{Annex, Scenario, Slow};
use txn_sim::server::{Reach, SHARDS, Server, SlowPart};

/// The number of locked documents that an application remembers.
const REMEMBERED: usize = 6;
/// The maximum number of copies.
const COPIES: u64 = 12;
/// The shortest and the longest request to a slow part, in seconds.
const SLOWEST: [f64; 2] = [0.1, 30.0];
/// The request timeout of the clients.
const PATIENCE: Duration = Duration::from_secs(10);
/// The prefix of all partitions of the transaction table.
const RECORDS: &str = "txn-world-";

/// Applications and operators outside of the engine.
#[derive(Debug)]
pub(crate) struct Meddler {
    server: Arc<Server>,
    annex: Annex,
    copies: bool,
    slow: Slow,
    /// Whether a part is slow now.
    is_slow: bool,
    dice: fastrand::Rng,
    /// Locked documents, as they were once.
    locked: VecDeque<Source>,
    /// The number of copies.
    pub(crate) strays: Arc<AtomicU64>,
    /// Whether the annex is lost, or was made again.
    pub(crate) lost: bool,
    /// The annex that was dropped, if it is made again.
    pub(crate) made_again: Option<MadeAgain>,
}

impl Meddler {
    pub(crate) fn new(server: &Arc<Server>, scenario: &Scenario) -> Self {
        let mut dice = scenario.trouble.clone();
        if scenario.slow != Slow::Nothing {
            server.set_request_timeout(PATIENCE);
        }
        Self {
            server: server.clone(),
            annex: scenario.annex,
            copies: scenario.copies,
            slow: scenario.slow,
            is_slow: false,
            dice: dice.fork(),
            locked: VecDeque::new(),
            strays: Arc::default(),
            lost: false,
            made_again: None,
        }
    }

    /// Causes a fault now and then.
    pub(crate) async fn meddle(&mut self) {
        if self.copies {
            self.copy().await;
        }
        if self.slow != Slow::Nothing && self.dice.u8(..4) == 0 {
            self.is_slow = !self.is_slow;
            let part = self.is_slow.then(|| self.slow_part());
            self.server.slow_down(part);
        }
        match self.annex {
            Annex::None => {}
            Annex::ComesAndGoes => {
                let reach = [Reach::Open, Reach::Open, Reach::Closed, Reach::Unknown];
                let reach = reach[self.dice.usize(..reach.len())];
                self.server.set_reach("annex", reach);
            }
            Annex::Lost | Annex::MadeAgain if !self.lost && self.dice.u8(..20) == 0 => {
                self.lose().await;
            }
            Annex::Lost | Annex::MadeAgain => {}
        }
    }

    /// Ends the faults, and restores each part that can come back.
    pub(crate) async fn ends(&mut self) {
        self.server.set_reach("annex", Reach::Open);
        if matches!(self.annex, Annex::Lost | Annex::MadeAgain) && !self.lost {
            self.lose().await;
        }
        self.server.slow_down(None);
        if self.slow != Slow::Nothing {
            // Each request that was sent is carried out in this time.
            tokio::time::sleep(Duration::from_secs_f64(SLOWEST[1])).await;
        }
    }

    /// Draws the part that becomes slow.
    fn slow_part(&mut self) -> SlowPart {
        let [least, most] = SLOWEST;
        // Drawn by order of magnitude: short times are as frequent as long ones.
        let span = |drawn| Duration::from_secs_f64(least * (most / least).powf(drawn));
        let dice = &mut self.dice;
        let (drawn, other) = (dice.f64(), dice.f64());
        let part = |collections: &str, shard, [reads, writes]: [Duration; 2]| SlowPart {
            collections: collections.to_owned(),
            shard,
            reads,
            writes,
        };
        let mut spans = || match dice.u8(..3) {
            0 => [span(drawn), Duration::ZERO],
            1 => [Duration::ZERO, span(drawn)],
            _ => [span(drawn), span(other)],
        };
        match self.slow {
            // Longer than a lease, and answered before the timeout.
            Slow::Nothing | Slow::ReadsOfRecords => {
                let reads = PATIENCE.mul_f64(0.1 + 0.85 * drawn);
                part(RECORDS, None, [reads, Duration::ZERO])
            }
            Slow::Shard(shard) => part("world", Some(shard), spans()),
            Slow::Anything => {
                let spans = spans();
                let everywhere = ["", RECORDS, "world", "annex"];
                let collections = everywhere[dice.usize(..everywhere.len())];
                let shard = dice.bool().then(|| dice.u8(..SHARDS));
                part(collections, shard, spans)
            }
        }
    }

    async fn lose(&mut self) {
        self.lost = true;
        if self.annex == Annex::MadeAgain {
            self.made_again = Some(MadeAgain::carry_out(&self.server, &mut self.dice).await);
            return;
        }
        // The simulated server drops each collection on request.
        let _ = self.server.drop_collection("annex").await;
    }

    /// Copies a document to an id of its own.
    ///
    /// The document is or was locked. The copy overwrites nothing.
    async fn copy(&mut self) {
        let documents = self.server.documents();
        let world = documents.get("world").into_iter().flatten();
        let is_locked = |source: &&Source| source.contains(fields::TRANSACTION_TID);
        let locked: Vec<&Source> = world
            .filter(|(id, _)| !id.starts_with("stray"))
            .map(|(_, source)| source)
            .filter(is_locked)
            .collect();
        if !locked.is_empty() {
            self.locked.push_back(locked[self.dice.usize(..locked.len())].clone());
        }
        if self.locked.len() > REMEMBERED {
            self.locked.pop_front();
        }
        let next = self.strays.load(Ordering::Relaxed);
        if self.locked.is_empty() || next == COPIES || self.dice.u8(..3) > 0 {
            return;
        }
        let source = self.locked[self.dice.usize(..self.locked.len())].clone();
        let key = Key::new("world", Doc::Stray(next).id());
        let outcomes = self.server.write_many(&[Write::new(key, WriteOp::Create(source))]).await;
        // The copy may exist, except after an answer that rules it out.
        if !outcomes.first().is_some_and(Outcome::is_certainly_not_applied) {
            self.strays.store(next + 1, Ordering::Relaxed);
        }
    }
}
