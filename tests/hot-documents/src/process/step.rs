//! One step of a process: policy, waiting batches, next batches, applies.

use txn_protocol::board::{DocumentSet, Work};

use super::batch::{Batch, Phase};
use super::{Context, Process, duration, micros, unlocked};
use crate::network::Purpose;
use crate::store::{Micros, Operation, millis};
use crate::workload::{Kind, Transaction};

impl Process {
    /// Does all due work.
    pub fn step(&mut self, cx: &mut Context<'_>) {
        if self.paused_until > cx.now {
            return;
        }
        if !self.policy.is_dormant() {
            self.follow_policy(cx);
        }
        if !self.spec.is_plain {
            self.look(cx);
        }
        self.poll(cx);
        self.start_batches(cx);
        self.apply(cx);
        if !self.pending.is_empty() {
            self.wake(cx.now + (self.spec.round_trip / 2).max(millis(1)));
        }
    }

    fn work(&self) -> Work {
        let mut wanted = DocumentSet::new();
        let mut passed_over_since: Option<Micros> = None;
        let mut clients = 0;
        let locking = self.batches.values().filter(|batch| batch.phase != Phase::Recording);
        let waiting = self.pending.iter().chain(locking.flat_map(|batch| &batch.transactions));
        for transaction in waiting {
            wanted.extend(transaction.documents.iter().map(|document| self.hashes[*document]));
            passed_over_since = match (passed_over_since, transaction.passed_over_since) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            };
        }
        clients += self.pending.len();
        clients += self.batches.values().map(|batch| batch.transactions.len()).sum::<usize>();
        Work {
            wanted,
            clients: u32::try_from(clients).unwrap_or(u32::MAX),
            passed_over_since: passed_over_since.map(duration),
            is_locking: self.is_locking(),
            is_under_way: self.is_under_way(),
        }
    }

    fn follow_policy(&mut self, cx: &mut Context<'_>) {
        let now = duration(cx.now);
        let before = (self.policy.must_yield(), self.policy.ticket());
        let work = self.work();
        self.policy.update(work, now);
        if before != (self.policy.must_yield(), self.policy.ticket()) {
            self.forget_refused(cx.now);
        }
        if self.policy.take_arrival() {
            self.read_ahead(cx);
        }
        if let Some(write) = self.policy.take_write(now) {
            let operation = Operation::WriteBoard(write.number, write.slot, write.over);
            self.send(Purpose::WriteBoard, vec![operation], cx);
        }
    }

    fn look(&mut self, cx: &mut Context<'_>) {
        let now = duration(cx.now);
        if self.policy.next_look(now).is_some_and(|at| at <= now) {
            self.policy.look_sent();
            let mut operations = vec![Operation::Look(self.policy.slots())];
            operations.extend(self.refused_documents(cx.now).map(Operation::Read));
            self.send(Purpose::Look, operations, cx);
        }
        if let Some(at) = self.policy.next_change(now) {
            self.wake(micros(at).max(cx.now + 1));
        }
    }

    /// Reads documents whose cached state is older than other processes' turns.
    ///
    /// The process does so at the head of the queue.
    fn read_ahead(&mut self, cx: &mut Context<'_>) {
        let mut reads = Vec::new();
        for document in 0..self.cache.len() {
            let was_known = self.cache[document].document.version > 0;
            if was_known && !self.is_known(document) && self.may_lock(document, cx.now) {
                self.is_reading[document] = true;
                reads.push(Operation::Read(document));
            }
        }
        if !reads.is_empty() {
            self.send(Purpose::ReadAhead, reads, cx);
        }
    }

    /// Returns documents of waiting transactions of which another process has the turn.
    fn refused_documents(&self, now: Micros) -> impl Iterator<Item = usize> {
        let mut documents: Vec<usize> = self
            .pending
            .iter()
            .flat_map(|transaction| transaction.documents.iter().copied())
            .filter(|document| !self.is_known(*document) && !self.may_lock(*document, now))
            .collect();
        documents.sort_unstable();
        documents.dedup();
        documents.into_iter()
    }

    /// Lets waiting batches read again, or release their locks.
    ///
    /// A batch releases its locks if another process has the turn.
    fn poll(&mut self, cx: &mut Context<'_>) {
        let waiting: Vec<u64> = self
            .batches
            .iter()
            .filter(|(_, batch)| batch.phase == Phase::Waiting)
            .map(|(number, _)| *number)
            .collect();
        for number in waiting {
            let batch = &self.batches[&number];
            let wanted: Vec<usize> = batch
                .documents
                .iter()
                .copied()
                .filter(|document| !batch.locks.contains_key(document))
                .collect();
            if wanted.iter().any(|document| !self.may_lock(*document, cx.now)) {
                if let Some(batch) = self.batches.remove(&number) {
                    self.dissolve(batch, cx);
                }
            } else if batch.poll_at <= cx.now {
                let mut operations = wanted.into_iter().map(Operation::Read).collect();
                self.add_look(&mut operations);
                self.send(Purpose::ReadForBatch(number), operations, cx);
                if let Some(batch) = self.batches.get_mut(&number) {
                    batch.phase = Phase::Reading;
                }
            } else {
                let at = batch.poll_at;
                self.wake(at);
            }
        }
    }

    fn start_batches(&mut self, cx: &mut Context<'_>) {
        if self.pending.is_empty() {
            return;
        }
        let gathered_at = self.last_commit_at + self.numbers.gather;
        if cx.now < gathered_at {
            self.wake(gathered_at);
            return;
        }
        let under_way = self.batches.values().filter(|batch| batch.phase != Phase::Waiting);
        let limit = if self.spec.is_by_itself { 64 } else { self.numbers.batches };
        if under_way.count() >= limit {
            return;
        }
        let mut pending = std::mem::take(&mut self.pending);
        pending.sort_by_key(|transaction| (transaction.age, transaction.client));
        let (mut members, mut reads) = (Vec::new(), Vec::new());
        for transaction in pending {
            if !self.can_start(&transaction, &mut reads, cx) {
                self.pending.push(transaction);
            } else if self.spec.is_by_itself {
                self.start_batch(vec![transaction], cx);
            } else {
                members.push(transaction);
            }
        }
        if !reads.is_empty() {
            self.send(Purpose::ReadAhead, reads, cx);
        }
        if members.is_empty() {
            return;
        }
        // A single write needs no record, unless a record writes its document anyway.
        let written: std::collections::BTreeSet<usize> = members
            .iter()
            .filter(|member| member.kind != Kind::SingleWrite)
            .flat_map(|member| member.documents.iter().copied())
            .collect();
        let (singles, members): (Vec<_>, Vec<_>) = members.into_iter().partition(|member| {
            member.kind == Kind::SingleWrite && !written.contains(&member.documents[0])
        });
        let mut by_document = std::collections::BTreeMap::<usize, Vec<Transaction>>::new();
        for single in singles {
            by_document.entry(single.documents[0]).or_default().push(single);
        }
        for singles in by_document.into_values() {
            self.start_batch(singles, cx);
        }
        if !members.is_empty() {
            self.start_batch(members, cx);
        }
    }

    /// Whether a transaction can join a batch. Reads uncached documents in the meantime.
    fn can_start(
        &mut self,
        transaction: &Transaction,
        reads: &mut Vec<Operation>,
        cx: &Context<'_>,
    ) -> bool {
        let unknown: Vec<usize> = transaction
            .documents
            .iter()
            .copied()
            .filter(|document| !self.is_known(*document))
            .collect();
        for document in &unknown {
            if !self.is_reading[*document] && self.may_lock(*document, cx.now) {
                self.is_reading[*document] = true;
                reads.push(Operation::Read(*document));
            }
        }
        let is_free =
            |document: &usize| !self.is_busy[*document] && self.may_lock(*document, cx.now);
        unknown.is_empty() && transaction.documents.iter().all(is_free)
    }

    fn start_batch(&mut self, members: Vec<Transaction>, cx: &mut Context<'_>) {
        self.number += 1;
        let attempt = self.attempt(self.number, &members);
        let is_single = members.iter().all(|member| member.kind == Kind::SingleWrite)
            && members.iter().all(|member| member.documents == members[0].documents);
        let mut batch = Batch::new(attempt, members, self.spec.round_trip);
        batch.is_single = is_single;
        for document in &batch.documents {
            self.is_busy[*document] = true;
        }
        self.batches.insert(self.number, batch);
        self.lock_batch(self.number, cx);
    }

    /// Applies commits without a hand-off.
    ///
    /// At the end of a turn, applies all commits.
    fn apply(&mut self, cx: &mut Context<'_>) {
        let is_free = |document: &usize| !self.is_busy[*document];
        let is_refused = |document: &usize| !self.may_lock(*document, cx.now);
        let must_apply =
            self.handoffs.keys().any(|document| is_free(document) && is_refused(document));
        let mut operations = Vec::new();
        let handoffs: Vec<_> = self.handoffs.iter().map(|(key, value)| (*key, *value)).collect();
        for (document, handoff) in handoffs {
            if self.is_busy[document] {
                continue;
            }
            let due = handoff.since + self.numbers.apply_after;
            if !must_apply && cx.now < due {
                self.wake(due);
                continue;
            }
            self.handoffs.remove(&document);
            self.is_busy[document] = true;
            operations.push(unlocked(document, handoff.version, handoff.value));
        }
        if operations.is_empty() {
            return;
        }
        if self.policy.must_yield() {
            self.add_look(&mut operations);
        }
        self.send(Purpose::Apply, operations, cx);
    }

    /// Counts a step in which a waiting batch holds a lock.
    ///
    /// The step counts if the batch also waits for a document of which another process has the
    /// turn.
    pub fn note_waits(&mut self, now: Micros) {
        let waits = self.batches.values().any(|batch| {
            batch.phase == Phase::Waiting
                && !batch.locks.is_empty()
                && batch.documents.iter().any(|document| {
                    !batch.locks.contains_key(document) && !self.may_lock(*document, now)
                })
        });
        self.waits_with_locks += u64::from(waits);
    }
}
