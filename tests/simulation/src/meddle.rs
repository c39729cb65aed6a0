//! What applications and operators do beside the engine: they copy locked documents, and take an index away.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use txn_core::fields;
use txn_core::store::{Key, Outcome, Source, Store, Write, WriteOp};

use crate::history::Doc;
use crate::scenario::{Annex, Scenario};
use txn_sim::server::{Reach, Server};

/// Locked documents that an application remembers.
const REMEMBERED: usize = 6;
/// Copies that it makes at most.
const COPIES: u64 = 12;

/// Somebody beside the engine.
#[derive(Debug)]
pub(crate) struct Meddler {
    server: Arc<Server>,
    annex: Annex,
    copies: bool,
    dice: fastrand::Rng,
    /// Locked documents, as they were once.
    locked: VecDeque<Source>,
    /// How many copies there are.
    pub(crate) strays: Arc<AtomicU64>,
    /// Whether the annex is lost.
    pub(crate) lost: bool,
}

impl Meddler {
    pub(crate) fn new(server: &Arc<Server>, scenario: &Scenario) -> Self {
        let mut dice = scenario.trouble.clone();
        Self {
            server: server.clone(),
            annex: scenario.annex,
            copies: scenario.copies,
            dice: dice.fork(),
            locked: VecDeque::new(),
            strays: Arc::default(),
            lost: false,
        }
    }

    /// Does something, now and then.
    pub(crate) async fn meddle(&mut self) {
        if self.copies {
            self.copy().await;
        }
        match self.annex {
            Annex::None => {}
            Annex::ComesAndGoes => {
                let reach = [Reach::Open, Reach::Open, Reach::Closed, Reach::Unknown];
                let reach = reach[self.dice.usize(..reach.len())];
                self.server.set_reach("annex", reach);
            }
            Annex::Lost if !self.lost && self.dice.u8(..20) == 0 => self.lose().await,
            Annex::Lost => {}
        }
    }

    /// No more of it: what can come back is back.
    pub(crate) async fn ends(&mut self) {
        self.server.set_reach("annex", Reach::Open);
        if self.annex == Annex::Lost && !self.lost {
            self.lose().await;
        }
    }

    async fn lose(&mut self) {
        self.lost = true;
        // The simulated server drops what it is told to.
        let _ = self.server.drop_collection("annex").await;
    }

    /// Copies a document that is locked, or was, to an id of its own. Nothing is written over.
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
        // Whatever was answered, it may be there.
        if !outcomes.first().is_some_and(Outcome::is_certainly_not_applied) {
            self.strays.store(next + 1, Ordering::Relaxed);
        }
    }
}
