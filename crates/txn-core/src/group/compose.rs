//! One turn: whoever has it is composed, document by document, and committed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime;
use tokio::sync::oneshot;

use super::Place;
use super::application::{Rerun, Told};
use super::queue::Applicant;
use super::standing::Joined;
use super::uses::{self, Uses};
use super::{Documents, Groups, Turn, TurnWithReads};
use crate::attempt::composition::{Composition, Fit};
use crate::attempt::{Attempt, Manner, Receipt};
use crate::config::Options;
use crate::engine::attempt_error::{AttemptError, RetryReason};
use crate::error::ErrorKind;
use crate::event::Event;
use crate::store::Key;
use txn_protocol::ids::AttemptId;

/// How long a group waits for closures that run again, all in all: their callers may sleep, or do something else meanwhile.
const BUDGET: Duration = Duration::from_millis(25);

/// Whoever came back into the queue more often goes by itself.
const MOST_RETURNS: u8 = 8;

/// A transaction that is composed.
struct Member {
    place: Place,
    applicant: Applicant,
}

impl Groups {
    /// Takes those whose turn it is, and commits them. `here`: the runtime of their callers.
    pub(super) async fn compose_next(self: Arc<Self>, turn: Turn, here: runtime::Id) {
        // Whoever is ready to run may still join. Where nobody is, this takes no time.
        tokio::task::yield_now().await;
        let now = self.engine.now();
        let taken = self.queue.lock().take(turn.number(), here, now, &self.engine);
        if taken.is_empty() {
            return;
        }
        let members = taken.into_iter().map(|(place, applicant)| Member { place, applicant });
        let parts: Vec<_> = parts(members.collect())
            .into_iter()
            .map(|members| {
                let (read, written): (_, Vec<Uses>) =
                    members.iter().map(|member| member.applicant.uses.split()).unzip();
                let reads = Documents::new(&self, read);
                let written = Documents::new(&self, written);
                let with_turn = TurnWithReads { _reads: reads, _turn: turn.clone() };
                self.clone().compose_and_commit(members, (with_turn, written))
            })
            .collect();
        drop(turn);
        self.call();
        futures::future::join_all(parts).await;
    }

    /// Composes transactions in their order, and commits what they come to by one attempt.
    async fn compose_and_commit(self: Arc<Self>, members: Vec<Member>, guards: Guards) {
        let Some(tid) = tid_for(&members) else { return };
        let mut composition = Composition::new(tid);
        let uses = uses_of(&members);
        for key in uses.keys() {
            if let Some(known) = self.engine.hot.cache.get(key, self.engine.now()) {
                composition.learn(key, known);
            }
        }
        for member in &members {
            member.applicant.attempt.teach(&mut composition);
        }
        let composition = Arc::new(Mutex::new(composition));
        let joined = self.admit_all(members, &composition, &uses).await;
        let attempt = match joined.as_slice() {
            [] => return,
            [one] => one.applicant.attempt.clone(),
            several => self.begin(several, tid),
        };
        let (turn, written) = guards;
        attempt.take_seat(Box::new(turn), Box::new(written));
        self.commit(&attempt, joined, &composition).await;
    }

    /// An attempt for several transactions.
    fn begin(&self, members: &[Member], tid: AttemptId) -> Arc<Attempt> {
        let transactions = members.len();
        let writes = members.iter().any(|member| !member.applicant.uses.only_reads());
        if transactions > 1 && writes {
            self.engine.emit(&Event::Composed { tid, transactions });
        }
        let acknowledge = members.first().map(|member| member.applicant.acknowledge());
        // Whoever has less time is told at its own end.
        let ends_at = members.iter().map(|member| member.applicant.attempt.ends_at()).max();
        let patience = Some(self.engine.config.lease);
        let manner = Manner { patience, ..Manner::default() };
        let options =
            Options { acknowledge: acknowledge.unwrap_or_default(), ..Options::default() };
        Attempt::begin(self.engine.clone(), tid, options, manner, ends_at.unwrap_or_default())
    }

    async fn admit_all(
        &self,
        members: Vec<Member>,
        composition: &Arc<Mutex<Composition>>,
        uses: &Uses,
    ) -> Vec<Member> {
        let until = self.engine.now() + BUDGET;
        let mut joined = Vec::new();
        for member in members {
            joined.extend(self.admit(member, composition, uses, until).await);
        }
        joined
    }

    /// Commits what is composed, and tells each member.
    async fn commit(
        self: &Arc<Self>,
        attempt: &Arc<Attempt>,
        joined: Vec<Member>,
        composition: &Mutex<Composition>,
    ) {
        let mut parts = components(joined);
        let uses = parts.iter().map(|part| uses_of(part).keys().cloned().collect());
        let transactions = parts.iter().map(Vec::len).sum();
        let documents = attempt.stand_for(&composition.lock(), uses, transactions);
        for (component, part) in parts.iter().enumerate() {
            for member in part {
                member.applicant.standing.join(Joined {
                    attempt: attempt.clone(),
                    component,
                    // What is one document may have no record that could be asked for.
                    recorded: documents > 1,
                    only_reads: member.applicant.uses.only_reads(),
                });
            }
        }
        let result = attempt.commit().await;
        for (number, why) in attempt.take_left() {
            if let Some(part) = parts.get_mut(number) {
                cov_mark::hit!(members_set_aside);
                self.tell_to_leave(std::mem::take(part), &why);
            }
        }
        self.tell(parts, result);
    }

    /// Composes one more, after a further run if it takes one.
    async fn admit(
        &self,
        mut member: Member,
        composition: &Arc<Mutex<Composition>>,
        uses: &Uses,
        until: Duration,
    ) -> Option<Member> {
        let applicant = &mut member.applicant;
        if applicant.tell.is_closed() || !applicant.standing.compose() {
            return None;
        }
        let mut fit = applicant.attempt.join(&mut composition.lock());
        if fit == Fit::Stale && self.engine.now() < until {
            if !self.run_again(applicant, composition.clone(), until).await {
                return None;
            }
            let Some(used) = Self::uses_of(&applicant.attempt) else {
                member.send_away();
                return None;
            };
            let within = used.is_within(uses);
            (applicant.collections, applicant.uses) = (used.collections(), used);
            fit = match within {
                true => applicant.attempt.join(&mut composition.lock()),
                false => Fit::Stale,
            };
        }
        match fit {
            Fit::Joined => Some(member),
            Fit::Stale => {
                self.put_back(member);
                None
            }
            Fit::Refused => {
                member.send_away();
                None
            }
        }
    }

    /// Has a closure run again. Returns whether it did, in time.
    async fn run_again(
        &self,
        applicant: &Applicant,
        basis: Arc<Mutex<Composition>>,
        until: Duration,
    ) -> bool {
        let (ran, has_run) = oneshot::channel();
        if applicant.tell.send(Told::RunAgain(Rerun { basis, ran })).is_err() {
            return false;
        }
        let left = until.saturating_sub(self.engine.now());
        tokio::select! {
            biased;
            ran = has_run => ran.is_ok(),
            () = self.engine.config.clock.sleep(left) => false,
        }
    }

    /// Tells those whom the attempt went on without that they have to start again.
    fn tell_to_leave(&self, part: Vec<Member>, why: &RetryReason) {
        self.forget(why.document());
        let half = (part.len() / 2).max(1);
        for mut member in part {
            match why {
                // Somebody among them is refused, and a run by itself tells who.
                RetryReason::LeftGroup if half > 1 || member.applicant.most > 1 => {
                    member.applicant.most = half;
                    self.put_back(member);
                }
                why => member.end(Err(AttemptError::Retry(why.clone()))),
            }
        }
    }

    /// Tells each member how the group ended, and has those composed who are back in the queue.
    fn tell(self: &Arc<Self>, parts: Vec<Vec<Member>>, result: Result<Receipt, AttemptError>) {
        match result {
            Ok(receipt) => parts.into_iter().for_each(|part| tell_committed(part, receipt)),
            Err(error) => self.tell_failed(parts, error),
        }
        self.call();
    }

    /// A group never fails a member: whoever was in the way, by the document that was, starts again or goes with fewer, and the
    /// others go again as they are.
    fn tell_failed(&self, mut parts: Vec<Vec<Member>>, error: AttemptError) {
        // A record is a document of all members.
        let document = error.document().filter(|key| !self.engine.table.has_record(key));
        self.forget(document);
        let all = parts.iter().map(Vec::len).sum();
        let is_in_doubt =
            matches!(&error, AttemptError::Fail(fail) if fail.kind() == ErrorKind::Unknown);
        let is_its = |member: &Member| {
            let only_reads = member.applicant.uses.only_reads();
            !(is_in_doubt && only_reads)
                && document.is_none_or(|key| member.applicant.uses.contains(key))
        };
        // What was set aside before may have left an error of its own.
        if all == 1
            && let Some(member) = parts.iter_mut().find_map(|part| part.pop_if(|m| is_its(m)))
        {
            return member.end(Err(error));
        }
        for part in parts {
            let in_the_way = document.is_none_or(|key| uses_of(&part).contains(key));
            let with = if document.is_some() { part.len() } else { all };
            for mut member in part {
                match &error {
                    AttemptError::Fail(fail) if is_in_doubt => {
                        if member.applicant.uses.only_reads() {
                            // What it read may be undecided.
                            cov_mark::hit!(reader_starts_again_where_others_are_in_doubt);
                            member.send_away();
                        } else {
                            member.end(Err(AttemptError::Fail(fail.again())));
                        }
                    }
                    AttemptError::Retry(reason) if in_the_way => {
                        member.end(Err(AttemptError::Retry(reason.clone())));
                    }
                    AttemptError::Fail(_) if in_the_way => {
                        member.applicant.most = (with / 2).max(1);
                        self.put_back(member);
                    }
                    AttemptError::Fail(_) | AttemptError::Retry(_) => self.put_back(member),
                }
            }
        }
    }

    /// What stood in the way is not what was remembered of it.
    fn forget(&self, document: Option<&Key>) {
        document.iter().for_each(|key| self.engine.hot.cache.was_stale(key, self.engine.now()));
    }

    /// Back into the queue; whoever came back too often goes by itself.
    fn put_back(&self, mut member: Member) {
        member.applicant.returns += 1;
        if member.applicant.returns > MOST_RETURNS {
            return member.send_away();
        }
        if member.applicant.standing.wait() {
            self.queue.lock().enter_again(member.place, member.applicant);
        }
    }
}

/// Transactions that share documents are committed, in their order.
fn tell_committed(part: Vec<Member>, receipt: Receipt) {
    let mut overwritten: BTreeSet<Key> = BTreeSet::new();
    // The last first: what nobody wrote again has the version of the commit.
    for member in part.into_iter().rev() {
        let written = member.applicant.uses.written.clone();
        let own = written.is_disjoint(&overwritten);
        if !own {
            cov_mark::hit!(member_was_overwritten_by_a_later_one);
        }
        let receipt = match member.applicant.uses.only_reads() {
            true => Receipt { tid: None, commit_version: None, applied: true, ..receipt },
            false => Receipt { commit_version: receipt.commit_version.filter(|_| own), ..receipt },
        };
        overwritten.extend(written);
        member.end(Ok(receipt));
    }
}

/// What a group occupies: its turn with what it reads, and what it writes.
type Guards = (TurnWithReads, Documents);

/// The attempt that stands for them: one of its own under the timestamp of the oldest, of which no other attempt holds anything.
fn tid_for(members: &[Member]) -> Option<AttemptId> {
    let oldest = &members.first()?.applicant;
    Some(oldest.attempt.tid.with_attempt(oldest.attempts.next()))
}

impl Member {
    fn end(self, result: Result<Receipt, AttemptError>) {
        // Whoever is gone needs no answer: the outcome stands in the record.
        drop(self.applicant.tell.send(Told::Ended(result)));
    }

    fn send_away(self) {
        self.end(Err(AttemptError::Retry(RetryReason::LeftGroup)));
    }
}

/// Transactions that share documents of which one is written, directly or by others, each oldest first.
fn components(mut members: Vec<Member>) -> Vec<Vec<Member>> {
    members.sort_by_key(|member| member.place);
    let numbers = uses::components(members.iter().map(|member| &member.applicant.uses));
    let mut parts: BTreeMap<usize, Vec<Member>> = BTreeMap::new();
    for (number, member) in numbers.into_iter().zip(members) {
        parts.entry(number).or_default().push(member);
    }
    parts.into_values().collect()
}

/// What is committed together, each oldest first.
fn parts(mut members: Vec<Member>) -> Vec<Vec<Member>> {
    members.sort_by_key(|member| member.place);
    let kinds = uses::parts(members.iter().map(|member| &member.applicant.uses));
    let mut parts: BTreeMap<uses::Part, Vec<Member>> = BTreeMap::new();
    for (part, member) in kinds.into_iter().zip(members) {
        parts.entry(part).or_default().push(member);
    }
    parts.into_values().collect()
}

fn uses_of(members: &[Member]) -> Uses {
    let mut uses = Uses::default();
    members.iter().for_each(|member| uses.add(&member.applicant.uses));
    uses
}
