//! The progress of one apply, kept between rounds.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Backoff;
use crate::engine::holders::foreign_lock::ForeignLock;
use crate::engine::table::own_record::OwnRecord;
use crate::engine::wait_reason::WaitReason;
use crate::error::Error;
use crate::event::DamageCause;
use txn_protocol::document::View;
use txn_protocol::ids::{AttemptId, CommitVersion};
use txn_protocol::record::{Op, Participant, Record};
use txn_protocol::rule::Rules;
use txn_protocol::rules::apply::{Applying, Committed, applying};
use txn_store::{Key, Version};

/// The participants without an acknowledged apply, each with the reason.
///
/// Acknowledged writes applied all other participants.
pub(crate) type Unapplied = BTreeMap<Key, Error>;

pub(crate) struct Applied {
    pub(crate) unapplied: Unapplied,
    /// Participants whose commit is lost with their collection.
    pub(crate) lost: BTreeSet<Key>,
    /// Unapplied participants that other transactions write meanwhile. See [`Apply::contended`].
    pub(crate) contended: BTreeSet<Key>,
}

/// Receives documents as soon as an apply has settled them.
pub(crate) type OnSettled = Box<dyn Fn(&BTreeSet<Key>) + Send + Sync>;

/// The progress of one apply, kept between rounds.
pub(crate) struct Apply {
    pub(super) record: Arc<Record>,
    pub(in crate::engine) commit: CommitVersion,
    /// The participants that the caller waits for. Blocked participants outside of this set are
    /// left to the janitor.
    pub(super) wanted: BTreeSet<Key>,
    /// The unsettled participants, with their indices in the record.
    pub(super) pending: BTreeMap<Key, usize>,
    /// The views of participants in this round. The first round starts with the caller's views.
    pub(super) known: BTreeMap<Key, View>,
    /// The participants as the owner locked them.
    pub(super) locked: BTreeMap<Key, View>,
    /// The blocked participants of this round, with the reason.
    pub(super) blocked: BTreeMap<Key, WaitReason>,
    /// Foreign locks to resolve before the next round, by holder.
    pub(super) in_the_way: VecDeque<Vec<ForeignLock>>,
    pub(super) unapplied: Unapplied,
    pub(super) lost: BTreeSet<Key>,
    /// Whether the caller locks or reads the wanted participants again.
    ///
    /// Then the caller does not need the proof that a contended participant was applied.
    pub(super) is_for_a_retry: bool,
    /// The participants without this transaction's lock whose touch met a conflict.
    ///
    /// Other transactions write these documents. A slow process may lose every touch to those
    /// transactions.
    pub(super) contended: BTreeSet<Key>,
    /// Short descriptions of damaged participants, for events.
    pub(super) damages: BTreeMap<Key, (DamageCause, String)>,
    pub(super) backoff: Backoff,
    /// When the owner next checks that the record exists.
    pub(super) looks_again: Option<Duration>,
    /// The start of the apply, on the monotonic clock.
    pub(in crate::engine) began: Duration,
    /// The committed record of an owner. `None` in other processes, and after another process may
    /// have applied the transaction.
    pub(in crate::engine) own: Option<Arc<OwnRecord>>,
    /// Placeholders that the owner wrote, acknowledged, in place of lost locks.
    pub(in crate::engine) relocked: BTreeMap<Key, Version>,
    /// Participants that the owner never applied and other transactions wrote since.
    pub(in crate::engine) never_applied: BTreeSet<Key>,
    /// Participants that a later transaction deleted, by its record.
    pub(in crate::engine) deleted: BTreeSet<Key>,
    /// Participants whose collection was made again, as seen in this round.
    pub(super) elsewhere: BTreeSet<Key>,
    /// Whether the record is finished.
    pub(in crate::engine) is_finished: bool,
    pub(super) on_settled: Option<OnSettled>,
}

impl Apply {
    pub(crate) fn give_up(&mut self, key: &Key, error: Error) {
        self.pending.remove(key);
        self.unapplied.insert(key.clone(), error.at(key).in_transaction(self.record.tid));
    }

    /// Sets the callback for wanted documents that are settled.
    pub(crate) fn tell_settled(&mut self, on_settled: OnSettled) {
        self.on_settled = Some(on_settled);
    }

    /// Removes settled documents from `wanted`, and passes them to the callback.
    pub(super) fn note_settled(&mut self) {
        let Some(on_settled) = &self.on_settled else { return };
        let pending = &self.pending;
        let settled = self.wanted.extract_if(.., |key| !pending.contains_key(key));
        let settled: BTreeSet<Key> = settled.collect();
        if !settled.is_empty() {
            on_settled(&settled);
        }
    }

    /// Lets the apply end at contended participants.
    ///
    /// The caller of the apply locks or reads these participants again.
    pub(crate) fn end_at_contended(&mut self) {
        self.is_for_a_retry = true;
    }

    /// Stops waiting for contended participants, if the caller needs no proof.
    pub(super) fn leave_contended(&mut self) {
        if !self.is_for_a_retry {
            return;
        }
        for key in &self.contended {
            cov_mark::hit!(help_ends_at_a_contended_document);
            self.wanted.remove(key);
            self.blocked.insert(key.clone(), WaitReason::Changing(key.clone()));
        }
    }

    /// Drops the unwanted participants, which other transactions apply.
    pub(crate) fn leave_out_unwanted(&mut self) {
        self.pending.retain(|key, _| self.wanted.contains(key));
    }

    /// Notes the holders that the apply waits for, with their labels.
    pub(crate) fn wait_for<'l>(
        &mut self,
        held: impl IntoIterator<Item = &'l ForeignLock>,
        label_of: impl Fn(AttemptId) -> Option<Arc<str>>,
    ) {
        for ForeignLock { key, view } in held {
            if let Some(holder) = view.holder() {
                let others =
                    WaitReason::Others { key: key.clone(), holder, label: label_of(holder) };
                self.blocked.insert(key.clone(), others);
            }
        }
    }

    /// Returns the locks of the next holder to resolve.
    pub(crate) fn next_in_the_way(&mut self) -> Option<Vec<ForeignLock>> {
        self.in_the_way.pop_front()
    }

    /// Settles a participant after the acknowledged deletion of its void placeholder.
    ///
    /// The deletion proves that the document is absent.
    pub(crate) fn prove_absent(&mut self, key: &Key) {
        if let Some(View::Present { stored, .. }) = self.known.get(key)
            && stored.absent
        {
            self.pending.remove(key);
        }
    }

    pub(in crate::engine) fn tid(&self) -> AttemptId {
        self.record.tid
    }

    /// The recorded participant of an unsettled document.
    pub(in crate::engine) fn recorded(&self, key: &Key) -> Option<&Participant> {
        self.pending.get(key).map(|index| &self.record.participants[*index])
    }

    /// Drops a participant whose commit is lost with its collection.
    pub(in crate::engine) fn lose(&mut self, key: &Key) {
        self.pending.remove(key);
        self.lost.insert(key.clone());
    }

    pub(in crate::engine) fn block(&mut self, key: &Key, why: WaitReason) {
        self.blocked.insert(key.clone(), why);
    }

    /// Whether the current document is only a placeholder.
    pub(in crate::engine) fn is_bare(&self, key: &Key) -> bool {
        matches!(self.known.get(key), Some(View::Present { stored, .. }) if stored.is_bare_placeholder())
    }

    /// The participant as recorded, or as the owner locked the document again.
    fn participant(&self, index: usize, key: &Key) -> Participant {
        let participant = self.record.participants[index].clone();
        match self.relocked.get(key) {
            None => participant,
            Some(version) => {
                let placeholder = Some(*version);
                Participant { op: Op::Insert, placeholder, before: None, ..participant }
            }
        }
    }

    pub(super) fn step(&self, rules: &Rules, index: usize, key: &Key, view: &View) -> Applying {
        let applied = self.is_finished || self.deleted.contains(key);
        let elsewhere = self.elsewhere.contains(key);
        let committed = Committed { tid: self.record.tid, commit: self.commit, applied, elsewhere };
        let participant = self.participant(index, key);
        match applying(rules, committed, &participant, self.locked.get(key), view) {
            Applying::PerhapsOvertaken(version) if self.never_applied.contains(key) => {
                Applying::Overtaken(version)
            }
            Applying::PerhapsOvertaken(version) if self.own.is_none() => Applying::Touch(version),
            step => step,
        }
    }

    pub(in crate::engine) fn never(&mut self, key: &Key, cause: DamageCause, why: &str) {
        let message = format!("a committed transaction cannot be applied to it: {why}");
        self.damages.insert(key.clone(), (cause, why.to_owned()));
        self.give_up(key, Error::damaged(message));
    }
}
