//! The task that polls the board, and waits for a turn.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::StreamExt;
use futures::future::join_all;
use futures::stream::FuturesUnordered;

use crate::engine::attempt_error::AttemptError;
use crate::engine::base::Base;
use crate::engine::context::Context;
use crate::engine::deadline::Deadline;
use crate::engine::hot::Hot;
use crate::engine::hot::board::{self, Driving, LONGEST_PAUSE};
use crate::engine::reads::Reads;
use crate::engine::store::store_access::{ReadPreference, StoreAccess};
use crate::engine::table::Table;
use crate::engine::wait_reason::WaitReason;
use txn_protocol::board::{BoardWrite, Look, Slot, Written};
use txn_protocol::ids::Age;
use txn_store::{Key, Outcome, Read, Write, WriteOp};

/// How long an ending process waits for the removal of its wish.
const LEAVING: Duration = Duration::from_secs(1);

/// The number of documents read at the start of a turn.
///
/// A hundred waiting transactions of a shop share about 300 documents with other processes. A
/// single transaction may have more: with a part of its documents it would start again.
const ENOUGH_REFRESHED: usize = 500;

/// The turns of this process at hot documents.
///
/// The methods are those of the board task and of its waiters.
pub(crate) struct Turns {
    context: Arc<Context>,
    store: Arc<StoreAccess>,
    table: Arc<Table>,
    hot: Arc<Hot>,
    reads: Arc<Reads>,
}

impl Turns {
    pub(in crate::engine) fn new(base: &Base, hot: Arc<Hot>, reads: Arc<Reads>) -> Self {
        let Base { context, store, table, .. } = base.clone();
        Self { context, store, table, hot, reads }
    }

    /// Notes that a transaction lost a document to another process.
    pub(crate) fn lost_document_to_another(self: &Arc<Self>, age: Age) {
        self.hot.board.lost(age, self.context.now());
        self.follow_board();
    }

    /// Starts a task that polls the board, if the process needs one.
    pub(crate) fn follow_board(self: &Arc<Self>) {
        if self.context.lifecycle.closing().is_cancelled() {
            return;
        }
        if let Some(driving) = self.hot.board.new_driver(self.context.now()) {
            let driver = self.clone().drive_board(driving);
            self.context.lifecycle.spawn_from_anywhere(driver);
        }
    }

    async fn drive_board(self: Arc<Self>, driving: Driving) {
        let mut under_way = FuturesUnordered::new();
        loop {
            let now = self.context.now();
            let step = self.hot.board.step(&driving, now);
            self.hot.start_groups();
            let Some(step) = step else { return };
            if let Some(slots) = step.look {
                under_way.push(self.look_at_board(driving.number, slots).boxed());
            }
            if let Some(write) = step.write {
                under_way.push(self.write_board(driving.number, write).boxed());
            }
            if let Some(number) = step.refresh {
                under_way.push(self.refresh_documents(number).boxed());
            }
            let pause = step.until.map_or(LONGEST_PAUSE, |at| at.saturating_sub(now));
            tokio::select! {
                biased;
                () = self.context.lifecycle.closing().cancelled() => break,
                Some(()) = under_way.next() => {}
                () = self.hot.board.stirred() => {}
                () = self.context.config.clock.sleep(pause.min(LONGEST_PAUSE)) => {}
            }
        }
        let leaves = async {
            while under_way.next().await.is_some() {}
            if let Some(write) = self.hot.board.leave(self.context.now()) {
                self.write_board(driving.number, write).await;
            }
        };
        // If the wish stays on the board, the other processes skip it after a while.
        tokio::select! {
            biased;
            () = leaves => {}
            () = self.context.config.clock.sleep(LEAVING) => {}
        }
    }

    async fn look_at_board(&self, driver: u64, slots: usize) {
        let keys: Vec<Key> = (0..slots).map(|number| self.table.slot_key(number)).collect();
        let sent_at = self.context.now();
        let reads = self.store.documents().read_primary(&keys).await;
        let slot = |read: Read| match read {
            Read::Found { version, source } => {
                Some((Slot::decode(source.as_bytes()), Some(version)))
            }
            Read::Absent => Some((Slot::default(), None)),
            Read::MissingCollection | Read::Unavailable(_) => None,
        };
        let all: Option<Vec<_>> = reads.into_iter().map(slot).collect();
        let look = all.filter(|all| all.len() == slots).map(|slots| Look { slots, sent_at });
        let now = self.context.now();
        if look.is_some() {
            self.hot.board.measure(now.saturating_sub(sent_at));
        }
        self.hot.board.observe(driver, look, now);
    }

    async fn write_board(&self, driver: u64, write: BoardWrite) {
        let source = write.slot.encode().to_string().into();
        let op = match write.over {
            Some(version) => WriteOp::Replace(source, version),
            None => WriteOp::Create(source),
        };
        let written =
            match self.store.write_one(Write::new(self.table.slot_key(write.number), op)).await {
                Outcome::Applied(version) => Written::At(version),
                Outcome::Conflict => Written::Conflict,
                _ => Written::Unknown,
            };
        self.hot.board.written(driver, written, self.context.now());
    }

    /// Reads the documents that other processes wanted during their turns.
    ///
    /// Documents of waiting transactions come first, then documents of the cache.
    async fn refresh_documents(&self, number: u64) {
        let wanted = self.hot.board.take_others_wanted();
        let is_wanted = |key: &Key| wanted.may_contain(board::hash(key));
        let queue = self.hot.group_queue.get();
        let waiting = queue.map(|queue| queue.documents(ENOUGH_REFRESHED, &is_wanted));
        let waiting = waiting.unwrap_or_default();
        let cached = self.hot.cache.forget_all(is_wanted);
        let cached = cached.into_iter().filter(|key| !waiting.contains(key));
        let rest = ENOUGH_REFRESHED.saturating_sub(waiting.len());
        let mut keys: BTreeMap<Arc<str>, Vec<Key>> = BTreeMap::new();
        for key in waiting.iter().cloned().chain(cached.take(rest)) {
            keys.entry(key.collection.clone()).or_default().push(key);
        }
        // One request carries all reads, unless a collection is slow or missing.
        join_all(keys.values().map(|keys| self.refresh_collection(keys))).await;
        self.hot.board.refreshed(number);
    }

    async fn refresh_collection(&self, keys: &[Key]) {
        let wait = self.context.config.lease / 4;
        let deadline = self.context.deadline(wait);
        let read = async {
            let views = self.store.read_documents(keys, ReadPreference::Primary, &deadline).await?;
            self.reads.observe(keys, views, ReadPreference::Primary, &deadline).await
        };
        if let Ok(entries) = self.context.within(wait, read).await {
            for (key, entry) in keys.iter().zip(entries) {
                self.hot.cache.read_in_turn(key, &entry);
            }
        }
    }

    /// Waits until no other process has its turn at the documents.
    ///
    /// The caller must hold no lock, and the wait does not count as time of its attempt.
    ///
    /// # Errors
    /// As [`Deadline::left`].
    pub(crate) async fn wait_for_turn(
        &self,
        keys: &[Key],
        deadline: &Deadline,
    ) -> Result<(), AttemptError> {
        loop {
            let changed = self.hot.board.changed();
            let Some(key) = keys.first() else { return Ok(()) };
            if self.hot.board.may_lock(keys, self.context.now()) {
                return Ok(());
            }
            let changing = WaitReason::Changing(key.clone());
            let left = deadline.left(&*self.context.config.clock, &changing)?;
            let began = self.context.now();
            tokio::select! {
                biased;
                () = changed => {}
                () = self.context.config.clock.sleep(left.min(LONGEST_PAUSE / 10)) => {}
            }
            deadline.exclude_wait(self.context.now().saturating_sub(began));
        }
    }
}
