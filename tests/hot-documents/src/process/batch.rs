//! Batches: their locks, their waits and their ends.

use std::collections::{BTreeMap, BTreeSet};

use super::{Cached, Context, Handoff, Process, micros};
use crate::network::Purpose;
use crate::store::{Attempt, Micros, Operation, Record, millis};
use crate::workload::{Kind, Transaction};

/// The phase of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Reads documents that the cache does not have.
    Reading,
    /// Has requested locks.
    Locking,
    /// Has requested its record.
    Recording,
    /// Waits for a document that another process holds.
    Waiting,
    /// Aborts a holder.
    Wounding,
}

/// Merged transactions that lock and commit together.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The id in the locks and of the record.
    pub attempt: Attempt,
    /// The members.
    pub transactions: Vec<Transaction>,
    /// The documents of the members.
    pub documents: BTreeSet<usize>,
    /// The documents that are locked, with version and value.
    pub locks: BTreeMap<usize, (u64, i64)>,
    /// The phase of the batch.
    pub phase: Phase,
    /// The time of the next read, if the batch waits.
    pub poll_at: Micros,
    backoff: Micros,
    values: BTreeMap<usize, i64>,
    has_waited: bool,
    /// Whether the batch is one conditional write without a record.
    pub is_single: bool,
}

impl Batch {
    pub(super) fn new(
        attempt: Attempt,
        transactions: Vec<Transaction>,
        round_trip: Micros,
    ) -> Self {
        let documents =
            transactions.iter().flat_map(|member| member.documents.iter().copied()).collect();
        Self {
            attempt,
            transactions,
            documents,
            locks: BTreeMap::new(),
            phase: Phase::Reading,
            poll_at: 0,
            backoff: (round_trip / 2).max(millis(1)),
            values: BTreeMap::new(),
            has_waited: false,
            is_single: false,
        }
    }

    /// Whether a member has all its documents.
    pub(super) fn is_ready(transaction: &Transaction, locks: &BTreeMap<usize, (u64, i64)>) -> bool {
        transaction.documents.iter().all(|document| locks.contains_key(document))
    }

    fn increments(&self, document: usize) -> i64 {
        let increments = |member: &&Transaction| {
            member.kind != Kind::LockedRead && member.documents.contains(&document)
        };
        self.transactions.iter().filter(increments).count() as i64
    }

    fn is_read_only(&self) -> bool {
        self.transactions.iter().all(|member| member.kind == Kind::LockedRead)
    }
}

impl Process {
    /// Requests the missing locks of the batch.
    ///
    /// If the locks need reads, the reads come first.
    pub(super) fn lock_batch(&mut self, number: u64, cx: &mut Context<'_>) {
        let Some(mut batch) = self.batches.remove(&number) else { return };
        let (mut locks, mut reads, mut wounds) = (Vec::new(), Vec::new(), Vec::new());
        for document in batch.documents.iter().copied() {
            if batch.locks.contains_key(&document) {
                continue;
            }
            let lock = |over: u64, value: i64| {
                if batch.is_single {
                    let value = value + batch.increments(document);
                    Operation::Write { document, over, lock: None, value }
                } else {
                    Operation::Write { document, over, lock: Some(batch.attempt), value }
                }
            };
            if let Some(handoff) = self.handoffs.get(&document) {
                locks.push(lock(handoff.version, handoff.value));
                continue;
            }
            let cached = self.cache[document];
            if !cached.is_fresh {
                reads.push(Operation::Read(document));
                continue;
            }
            let version = cached.document.version;
            let value = cached.decided.unwrap_or(cached.document.value);
            match cached.document.lock {
                Some(holder) if holder == batch.attempt => locks.push(lock(version, value)),
                Some(holder) if cached.decided.is_none() => {
                    let abort = Operation::Record(holder, Record::Aborted);
                    wounds.extend(self.may_wound(&batch, holder, cached, cx).then_some(abort));
                }
                _ if self.may_lock(document, cx.now) => locks.push(lock(version, value)),
                _ => {}
            }
        }
        let (phase, purpose, operations) = if !reads.is_empty() {
            self.add_look(&mut reads);
            (Phase::Reading, Purpose::ReadForBatch(number), reads)
        } else if !locks.is_empty() {
            (Phase::Locking, Purpose::Lock(number), locks)
        } else if !wounds.is_empty() {
            (Phase::Wounding, Purpose::Wound(number), wounds)
        } else {
            for document in &batch.documents {
                if !batch.locks.contains_key(document) {
                    self.cache[*document].is_fresh = false;
                }
            }
            self.batches.insert(number, batch);
            self.sort_out(number, cx);
            return;
        };
        batch.phase = phase;
        self.batches.insert(number, batch);
        self.send(purpose, operations, cx);
    }

    fn may_wound(&self, batch: &Batch, holder: Attempt, cached: Cached, cx: &Context<'_>) -> bool {
        if holder.process == self.index {
            // The lock of a batch that ended before the answer to this lock.
            return !self.is_running(holder);
        }
        let waited = cx.now.saturating_sub(cached.lock_since);
        let grace = micros(self.policy.round_trip() * self.numbers.grace_round_trips);
        let is_dead = waited > self.numbers.lease && !cx.is_alive[holder.process];
        let is_younger = (holder.age, holder.process) > (batch.attempt.age, batch.attempt.process);
        is_dead || is_younger && waited >= grace
    }

    /// Continues after the locks: complete members continue, or the oldest member waits.
    pub(super) fn sort_out(&mut self, number: u64, cx: &mut Context<'_>) {
        let Some(mut batch) = self.batches.remove(&number) else { return };
        let members = std::mem::take(&mut batch.transactions);
        let (ready, mut rest): (Vec<_>, Vec<_>) =
            members.into_iter().partition(|member| Batch::is_ready(member, &batch.locks));
        for member in &mut rest {
            member.passed_over_since.get_or_insert(cx.now);
        }
        let goes_on = !ready.is_empty();
        if goes_on {
            batch.transactions = ready;
        } else {
            rest.sort_by_key(|member| member.age);
            batch.transactions = rest.drain(..rest.len().min(1)).collect();
        }
        if !rest.is_empty() || !goes_on {
            self.met_another(cx.now);
        }
        self.pending.extend(rest);
        self.keep_documents_of_members(&mut batch, cx);
        if batch.transactions.is_empty() {
            return;
        }
        if goes_on {
            self.record(number, batch, cx);
            return;
        }
        let is_first = !std::mem::replace(&mut batch.has_waited, true);
        let half = batch.backoff / 2;
        batch.phase = Phase::Waiting;
        batch.poll_at = if is_first { cx.now } else { cx.now + half + cx.random.below(half + 1) };
        batch.backoff = (batch.backoff * 3 / 2).min(self.round_trip().max(millis(10)));
        self.wake(batch.poll_at);
        self.batches.insert(number, batch);
    }

    /// Releases the locks that no member needs.
    fn keep_documents_of_members(&mut self, batch: &mut Batch, cx: &mut Context<'_>) {
        let used: BTreeSet<usize> =
            batch.transactions.iter().flat_map(|member| member.documents.iter().copied()).collect();
        for document in batch.documents.difference(&used) {
            self.is_busy[*document] = false;
        }
        let (locks, spare): (BTreeMap<_, _>, BTreeMap<_, _>) =
            std::mem::take(&mut batch.locks).into_iter().partition(|(key, _)| used.contains(key));
        self.release(&spare, cx);
        (batch.locks, batch.documents) = (locks, used);
    }

    fn record(&mut self, number: u64, mut batch: Batch, cx: &mut Context<'_>) {
        if batch.is_read_only() {
            self.complete(std::mem::take(&mut batch.transactions), cx);
            self.release(&batch.locks, cx);
            return;
        }
        let value = |(document, (_, value)): (&usize, &(u64, i64))| {
            (*document, value + batch.increments(*document))
        };
        batch.values = batch.locks.iter().map(value).collect();
        batch.phase = Phase::Recording;
        let record = Record::Committed(batch.values.clone().into_iter().collect());
        let operation = Operation::Record(batch.attempt, record);
        self.batches.insert(number, batch);
        self.send(Purpose::Record(number), vec![operation], cx);
    }

    /// Puts the documents into the hand-off table, because the record is written.
    pub(super) fn commit(&mut self, number: u64, cx: &mut Context<'_>) {
        let Some(batch) = self.batches.remove(&number) else { return };
        for document in &batch.documents {
            self.is_busy[*document] = false;
        }
        for (document, (version, _)) in &batch.locks {
            let value = batch.values.get(document).copied().unwrap_or_default();
            let handoff = Handoff { version: *version, value, since: cx.now };
            self.handoffs.insert(*document, handoff);
        }
        self.complete(batch.transactions, cx);
        self.wake(cx.now + self.numbers.apply_after);
    }

    /// Ends a batch that another process aborted.
    pub(super) fn abort(&mut self, number: u64, cx: &mut Context<'_>) {
        let Some(batch) = self.batches.remove(&number) else { return };
        self.met_another(cx.now);
        self.dissolve(batch, cx);
    }

    /// Releases the locks, and lets the members wait again.
    pub(super) fn dissolve(&mut self, batch: Batch, cx: &mut Context<'_>) {
        for document in &batch.documents {
            self.is_busy[*document] = false;
        }
        self.pending.extend(batch.transactions.into_iter().map(|mut member| {
            member.passed_over_since.get_or_insert(cx.now);
            member
        }));
        self.release(&batch.locks, cx);
    }

    /// Handles the answer to a write without a record.
    pub(super) fn single_written(&mut self, number: u64, is_written: bool, cx: &mut Context<'_>) {
        if !is_written {
            self.sort_out(number, cx);
            return;
        }
        let Some(batch) = self.batches.remove(&number) else { return };
        for document in &batch.documents {
            self.is_busy[*document] = false;
        }
        self.complete(batch.transactions, cx);
    }

    /// Sends the answers to the callers of these transactions.
    pub(super) fn complete(&mut self, transactions: Vec<Transaction>, cx: &mut Context<'_>) {
        self.batch_sizes.0 += 1;
        self.batch_sizes.1 += transactions.len() as u64;
        // A read-only transaction without a lock says nothing about the turn.
        if transactions.iter().any(|transaction| transaction.kind != Kind::ReadOnly) {
            self.policy.committed(super::duration(cx.now));
        }
        self.last_commit_at = cx.now;
        for transaction in &transactions {
            let Some(client) = transaction.client else { continue };
            if let Some(sale) = self.sales.get_mut(client) {
                sale.commit();
            }
            let think = match self.spec.arrivals {
                crate::workload::Arrivals::Closed { think } => think,
                crate::workload::Arrivals::Poisson(_) => continue,
            };
            cx.next.push((cx.now + 20 + cx.random.below(60) + think, client));
        }
        cx.committed.extend(transactions);
    }
}
