//! Merges the members of one group, and commits them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime;
use tokio::sync::oneshot;
use tracing::Span;

use super::QueuePosition;
use super::caller::{CallerMessage, Rerun};
use super::membership::Joined;
use super::queue::Waiter;
use super::uses::{self, Uses};
use super::{GroupPermit, Groups, PermitWithReads, ReservedDocuments};
use crate::attempt::merging::serial_batch::{Merge, SerialBatch};
use crate::attempt::{Attempt, AttemptMode, Receipt};
use crate::config::Options;
use crate::engine::attempt_error::{AttemptError, RetryReason};
use crate::error::ErrorKind;
use crate::event::Event;
use txn_protocol::ids::AttemptId;
use txn_store::Key;

/// How long a group waits for all closures that run again.
///
/// A caller may sleep, or do something else, before its closure runs.
const BUDGET: Duration = Duration::from_millis(25);

/// The maximum number of labels that a group has.
const MOST_LABELS: usize = 4;

/// A transaction that returned to the queue more often than this commits alone.
const MOST_RETURNS: u8 = 8;

/// A transaction in a group.
struct Member {
    position: QueuePosition,
    waiter: Waiter,
}

impl Groups {
    /// Takes the members of one group, and commits them.
    ///
    /// `here`: the runtime of their callers.
    pub(super) async fn form_group(self: Arc<Self>, permit: GroupPermit, here: runtime::Id) {
        // Transactions that are ready to run may still join. Without them the yield takes no time.
        tokio::task::yield_now().await;
        let now = self.engine.context.now();
        let taken = self.queue.lock().take_members(permit.number(), here, now, &self.engine);
        if taken.is_empty() {
            return;
        }
        let members = taken.into_iter().map(|(position, waiter)| Member { position, waiter });
        let commits: Vec<_> = commit_sets(members.collect())
            .into_iter()
            .map(|members| {
                let (read, written): (_, Vec<Uses>) =
                    members.iter().map(|member| member.waiter.uses.split()).unzip();
                let reads = ReservedDocuments::new(&self, read);
                let written = ReservedDocuments::new(&self, written);
                let permit = PermitWithReads { _reads: reads, _permit: permit.clone() };
                self.clone().merge_and_commit(members, (permit, written))
            })
            .collect();
        drop(permit);
        self.start_groups();
        futures::future::join_all(commits).await;
    }

    /// Merges transactions in their order, and commits the result by one attempt.
    async fn merge_and_commit(self: Arc<Self>, members: Vec<Member>, guards: Guards) {
        let Some(tid) = tid_for(&members) else { return };
        let mut batch = SerialBatch::new(tid);
        let uses = uses_of(&members);
        for key in uses.keys() {
            if let Some(known) = self.engine.hot.cache.get(key, self.engine.context.now()) {
                batch.seed_read(key, known);
            }
        }
        for member in &members {
            member.waiter.attempt.seed_reads(&mut batch);
        }
        let batch = Arc::new(Mutex::new(batch));
        let joined = self.merge_all(members, &batch, &uses).await;
        let attempt = match joined.as_slice() {
            [] => return,
            [one] => one.waiter.attempt.clone(),
            several => self.begin(several, tid),
        };
        let (permit, written) = guards;
        attempt.reserve(Box::new(permit), Box::new(written));
        self.commit(&attempt, joined, &batch).await;
    }

    /// Begins the attempt of several transactions.
    fn begin(&self, members: &[Member], tid: AttemptId) -> Arc<Attempt> {
        let transactions = members.len();
        let writes = members.iter().any(|member| !member.waiter.uses.only_reads());
        if transactions > 1 && writes {
            self.engine.context.emit(&Event::GroupFormed { tid, transactions });
        }
        let wait_for = members.first().map(|member| member.waiter.wait_for());
        // A member with less time gets its answer at its own deadline.
        let ends_at = members.iter().map(|member| member.waiter.attempt.ends_at()).max();
        let patience = Some(self.engine.context.config.lease);
        let mode = AttemptMode { patience, ..AttemptMode::default() };
        let (wait_for, label) = (wait_for.unwrap_or_default(), label_of(members));
        let options = Options { wait_for, label, ..Options::default() };
        let span = span_of(members, tid);
        let ends_at = ends_at.unwrap_or_default();
        Attempt::begin(self.engine.clone(), tid, options, mode, ends_at, &span)
    }

    async fn merge_all(
        &self,
        members: Vec<Member>,
        batch: &Arc<Mutex<SerialBatch>>,
        uses: &Uses,
    ) -> Vec<Member> {
        let until = self.engine.context.now() + BUDGET;
        let mut joined = Vec::new();
        for member in members {
            joined.extend(self.merge_one(member, batch, uses, until).await);
        }
        joined
    }

    /// Commits the batch, and replies to each member.
    async fn commit(
        self: &Arc<Self>,
        attempt: &Arc<Attempt>,
        joined: Vec<Member>,
        batch: &Mutex<SerialBatch>,
    ) {
        let mut components = components(joined);
        let uses = components.iter().map(|members| uses_of(members).keys().cloned().collect());
        let transactions = components.iter().map(Vec::len).sum();
        let documents = attempt.represent(&batch.lock(), uses, transactions);
        for (component, members) in components.iter().enumerate() {
            for member in members {
                member.waiter.membership.join(Joined {
                    attempt: attempt.clone(),
                    component,
                    // A commit of one document may have no record that answers later.
                    recorded: documents > 1,
                    only_reads: member.waiter.uses.only_reads(),
                });
            }
        }
        let result = attempt.commit().await;
        for (number, why) in attempt.take_evicted() {
            if let Some(members) = components.get_mut(number) {
                cov_mark::hit!(members_evicted);
                self.reply_evicted(std::mem::take(members), &why);
            }
        }
        match result {
            Ok(receipt) => {
                components.into_iter().for_each(|members| reply_committed(members, receipt));
            }
            Err(error) => self.reply_failed(components, error, transactions == 1),
        }
        self.start_groups();
    }

    /// Merges one transaction, after a further run of its closure if necessary.
    async fn merge_one(
        &self,
        mut member: Member,
        batch: &Arc<Mutex<SerialBatch>>,
        uses: &Uses,
        until: Duration,
    ) -> Option<Member> {
        let waiter = &mut member.waiter;
        if waiter.reply_to.is_closed() || !waiter.membership.begin_merge() {
            return None;
        }
        let mut merge = waiter.attempt.merge_into(&mut batch.lock());
        if merge == Merge::StaleRead && self.engine.context.now() < until {
            if !self.run_again(waiter, batch.clone(), until).await {
                return None;
            }
            let Some(used) = Self::uses_of(&waiter.attempt) else {
                member.retry_alone();
                return None;
            };
            let within = used.is_within(uses);
            (waiter.collections, waiter.uses) = (used.collections(), used);
            merge = match within {
                true => waiter.attempt.merge_into(&mut batch.lock()),
                false => Merge::StaleRead,
            };
        }
        match merge {
            Merge::Merged => Some(member),
            Merge::StaleRead => {
                self.put_back(member);
                None
            }
            Merge::Conflict => {
                member.retry_alone();
                None
            }
        }
    }

    /// Lets a closure run again. Returns whether it ran in time.
    ///
    /// If it did not, the caller finds the channel closed, and retries.
    async fn run_again(
        &self,
        waiter: &Waiter,
        batch: Arc<Mutex<SerialBatch>>,
        until: Duration,
    ) -> bool {
        let (ran, has_run) = oneshot::channel();
        if waiter.reply_to.send(CallerMessage::Rerun(Rerun { batch, ran })).is_err() {
            return false;
        }
        let left = until.saturating_sub(self.engine.context.now());
        tokio::select! {
            biased;
            ran = has_run => ran.is_ok(),
            () = self.engine.context.config.clock.sleep(left) => false,
        }
    }

    /// Tells evicted members that they have to start again.
    fn reply_evicted(&self, members: Vec<Member>, why: &RetryReason) {
        self.forget(why.document());
        let half = (members.len() / 2).max(1);
        for mut member in members {
            match why {
                // Some member is refused, and a run without a group shows which one.
                RetryReason::LeftGroup if half > 1 || member.waiter.max_members > 1 => {
                    member.waiter.max_members = half;
                    self.put_back(member);
                }
                why => member.end(Err(AttemptError::Retry(why.clone()))),
            }
        }
    }

    /// Replies to the members of a group that failed.
    ///
    /// The error is the answer for a single member only. Otherwise the users of the document of the
    /// error start again, or join smaller groups, and the other members return to the queue
    /// unchanged. If the outcome is unknown, each member that writes receives the error.
    ///
    /// `is_alone`: the group had one member, whose own attempt has ended.
    fn reply_failed(&self, mut components: Vec<Vec<Member>>, error: AttemptError, is_alone: bool) {
        // The record belongs to all members.
        let document = error.document().filter(|key| !self.engine.table.has_record(key));
        self.forget(document);
        let all = components.iter().map(Vec::len).sum();
        let is_in_doubt =
            matches!(&error, AttemptError::Fail(fail) if fail.kind() == ErrorKind::Unknown);
        let is_concerned = |member: &Member| {
            let only_reads = member.waiter.uses.only_reads();
            !(is_in_doubt && only_reads)
                && (is_alone || document.is_none_or(|key| member.waiter.uses.contains(key)))
        };
        // A member that was evicted before may be the cause of the error.
        if all == 1
            && let Some(member) =
                components.iter_mut().find_map(|members| members.pop_if(|m| is_concerned(m)))
        {
            return member.end(Err(error));
        }
        for members in components {
            let uses_document = document.is_none_or(|key| uses_of(&members).contains(key));
            let with = if document.is_some() { members.len() } else { all };
            for mut member in members {
                match &error {
                    AttemptError::Fail(fail) if is_in_doubt => {
                        if member.waiter.uses.only_reads() {
                            // The content that the member read may be undecided.
                            cov_mark::hit!(reader_starts_again_where_others_are_in_doubt);
                            member.retry_alone();
                        } else {
                            member.end(Err(AttemptError::Fail(fail.again())));
                        }
                    }
                    AttemptError::Retry(reason) if uses_document => {
                        member.end(Err(AttemptError::Retry(reason.clone())));
                    }
                    AttemptError::Fail(_) if uses_document => {
                        member.waiter.max_members = (with / 2).max(1);
                        self.put_back(member);
                    }
                    AttemptError::Fail(_) | AttemptError::Retry(_) => self.put_back(member),
                }
            }
        }
    }

    /// Drops the cached content of a document that caused a failure.
    fn forget(&self, document: Option<&Key>) {
        document
            .iter()
            .for_each(|key| self.engine.hot.cache.was_stale(key, self.engine.context.now()));
    }

    /// Returns a member to the queue, or rejects it after many returns.
    fn put_back(&self, mut member: Member) {
        member.waiter.returns += 1;
        if member.waiter.returns > MOST_RETURNS {
            return member.retry_alone();
        }
        if member.waiter.membership.wait() {
            member.waiter.waits_since = self.engine.context.now();
            self.queue.lock().enter_again(member.position, member.waiter);
        }
    }
}

/// Replies to the members of a committed component.
fn reply_committed(members: Vec<Member>, receipt: Receipt) {
    let mut overwritten: BTreeSet<Key> = BTreeSet::new();
    // The last member comes first: only documents that no later member wrote have the commit
    // version.
    for member in members.into_iter().rev() {
        let written = member.waiter.uses.written.clone();
        let own = written.is_disjoint(&overwritten);
        if !own {
            cov_mark::hit!(member_was_overwritten_by_a_later_one);
        }
        let receipt = match member.waiter.uses.only_reads() {
            true => Receipt { tid: None, commit_version: None, applied: true, ..receipt },
            false => Receipt { commit_version: receipt.commit_version.filter(|_| own), ..receipt },
        };
        overwritten.extend(written);
        member.end(Ok(receipt));
    }
}

/// Reservations of a group: the permit with the reads, and the writes.
type Guards = (PermitWithReads, ReservedDocuments);

/// The labels of the members, joined by `+`.
fn label_of(members: &[Member]) -> Option<Arc<str>> {
    let labels = members.iter().filter_map(|member| member.waiter.attempt.options.label.as_ref());
    let labels: BTreeSet<&Arc<str>> = labels.collect();
    let mut first: Vec<&str> = labels.iter().take(MOST_LABELS).map(|label| &***label).collect();
    match (labels.first(), labels.len()) {
        (None, _) => None,
        (Some(only), 1) => Some(Arc::clone(only)),
        (_, all) => {
            if all > MOST_LABELS {
                first.push("...");
            }
            Some(first.join("+").into())
        }
    }
}

/// Opens the span of a group in the trace of its oldest member.
///
/// The spans of the other members have a link to the group.
fn span_of(members: &[Member], tid: AttemptId) -> Span {
    let mut spans = members.iter().map(|member| member.waiter.attempt.span());
    let oldest = spans.next().and_then(Span::id);
    let transactions = members.len();
    let span = tracing::debug_span!(parent: oldest, "group", %tid, transactions);
    spans.for_each(|member| {
        member.follows_from(&span);
    });
    span
}

/// The tid of a group: a further attempt of the oldest member.
///
/// No other attempt has this tid, or holds locks under it.
fn tid_for(members: &[Member]) -> Option<AttemptId> {
    let oldest = &members.first()?.waiter;
    Some(oldest.attempt.tid.with_attempt(oldest.attempts.next()))
}

impl Member {
    fn end(self, result: Result<Receipt, AttemptError>) {
        // A caller that is gone needs no answer: the outcome is in the record.
        drop(self.waiter.reply_to.send(CallerMessage::Ended(result)));
    }

    fn retry_alone(self) {
        self.end(Err(AttemptError::Retry(RetryReason::LeftGroup)));
    }
}

/// Splits members into components, each oldest first.
///
/// The members of a component share a document that one of them writes, directly or transitively.
fn components(mut members: Vec<Member>) -> Vec<Vec<Member>> {
    members.sort_by_key(|member| member.position);
    let numbers = uses::components(members.iter().map(|member| &member.waiter.uses));
    let mut components: BTreeMap<usize, Vec<Member>> = BTreeMap::new();
    for (number, member) in numbers.into_iter().zip(members) {
        components.entry(number).or_default().push(member);
    }
    components.into_values().collect()
}

/// Splits members into sets, each oldest first. One attempt commits the members of a set.
fn commit_sets(mut members: Vec<Member>) -> Vec<Vec<Member>> {
    members.sort_by_key(|member| member.position);
    let numbers = uses::commit_sets(members.iter().map(|member| &member.waiter.uses));
    let mut sets: BTreeMap<uses::CommitSet, Vec<Member>> = BTreeMap::new();
    for (set, member) in numbers.into_iter().zip(members) {
        sets.entry(set).or_default().push(member);
    }
    sets.into_values().collect()
}

fn uses_of(members: &[Member]) -> Uses {
    let mut uses = Uses::default();
    members.iter().for_each(|member| uses.add(&member.waiter.uses));
    uses
}
