//! Present and recent waits for locks in this process, with labels of the holders.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::engine::base::Base;
use crate::engine::context::Context;
use crate::engine::live_attempts::LiveAttempts;
use crate::engine::time::Time;
use crate::event::{Event, WaitEnd};
use txn_protocol::ids::AttemptId;
use txn_store::Key;

/// The maximum number of remembered labels of holders in other processes.
const MOST_LABELS: usize = 1_024;

/// The maximum number of present waits that are remembered.
const MOST_PRESENT: usize = 1_024;

/// A past wait of one attempt for one holder of a document.
///
/// An attempt that waits for several holders of a document in turn has several waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LockWait {
    /// The attempt that waited.
    pub tid: AttemptId,
    /// The label of the attempt that waited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<Arc<str>>,
    /// The attempt that held the lock.
    pub holder: AttemptId,
    /// The label of the holder, if the waiting process knew it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder_label: Option<Arc<str>>,
    /// The physical name of the document's collection.
    pub collection: Arc<str>,
    /// The id of the document.
    pub id: Arc<str>,
    /// The routing value of the document, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routing: Option<Arc<str>>,
    /// The begin of the wait, in milliseconds since the Unix epoch.
    pub began_ms: u64,
    /// How long the attempt waited, in milliseconds.
    pub waited_ms: u64,
    /// Why the wait ended.
    pub end: WaitEnd,
}

impl LockWait {
    /// The end of the wait, in milliseconds since the Unix epoch.
    #[must_use]
    pub fn ended_ms(&self) -> u64 {
        self.began_ms.saturating_add(self.waited_ms)
    }
}

/// A present wait of one attempt for one holder of a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PresentWait {
    /// The attempt that waits.
    pub tid: AttemptId,
    /// The label of the attempt that waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<Arc<str>>,
    /// The attempt that holds the lock.
    pub holder: AttemptId,
    /// The label of the holder, if this process knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder_label: Option<Arc<str>>,
    /// The physical name of the document's collection.
    pub collection: Arc<str>,
    /// The id of the document.
    pub id: Arc<str>,
    /// The routing value of the document, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routing: Option<Arc<str>>,
    /// How long the attempt has waited, in milliseconds.
    pub waited_ms: u64,
}

/// Present and recently ended waits, and the labels of holders.
pub(crate) struct ContentionLog {
    context: Arc<Context>,
    time: Arc<Time>,
    live_attempts: Arc<LiveAttempts>,
    /// The labels of holders in other processes, by their records.
    labels: Mutex<BTreeMap<AttemptId, Arc<str>>>,
    ring: Mutex<Ring>,
    /// The present waits. Each has the holder and the start of the wait by the monotonic clock.
    present: Mutex<BTreeMap<(AttemptId, Key), (AttemptId, Duration)>>,
}

/// The last waits, oldest first.
#[derive(Default)]
struct Ring {
    waits: VecDeque<LockWait>,
    /// The number of all waits so far.
    total: u64,
}

impl ContentionLog {
    pub(in crate::engine) fn new(base: &Base, live_attempts: Arc<LiveAttempts>) -> Self {
        let (labels, ring, present) = Default::default();
        let (context, time) = (base.context.clone(), base.time.clone());
        Self { context, time, live_attempts, labels, ring, present }
    }

    /// Remembers the label of a holder in another process, by its record.
    pub(crate) fn note_label(&self, holder: AttemptId, label: Option<&Arc<str>>) {
        let Some(label) = label else { return };
        let mut labels = self.labels.lock();
        labels.insert(holder, label.clone());
        if labels.len() > MOST_LABELS {
            labels.pop_first();
        }
    }

    /// Remembers the label of a local holder beyond the holder's end.
    pub(crate) fn note_live(&self, holder: AttemptId) {
        self.note_label(holder, self.live_attempts.label_of(holder).as_ref());
    }

    /// The label of an attempt, if this process knows it.
    pub(crate) fn label_of(&self, tid: AttemptId) -> Option<Arc<str>> {
        let known = || self.labels.lock().get(&tid).cloned();
        self.live_attempts.label_of(tid).or_else(known)
    }

    /// Announces a wait that begins.
    pub(crate) fn begun(&self, tid: AttemptId, holder: AttemptId, document: &Key) {
        let (label, holder_label) = (self.label_of(tid), self.label_of(holder));
        let document = document.clone();
        self.context.emit(&Event::Waiting { tid, label, holder, holder_label, document });
    }

    /// Remembers a wait until its end.
    ///
    /// The wait starts at this moment of the monotonic clock.
    pub(crate) fn note_wait(
        &self,
        tid: AttemptId,
        holder: AttemptId,
        document: &Key,
        since: Duration,
    ) {
        let mut present = self.present.lock();
        if present.len() < MOST_PRESENT {
            present.insert((tid, document.clone()), (holder, since));
        }
    }

    /// The waits that have not ended, the longest first.
    pub(crate) fn present(&self, limit: usize) -> Vec<PresentWait> {
        let mut waits: Vec<_> =
            self.present.lock().iter().map(|(key, wait)| (key.clone(), *wait)).collect();
        waits.sort_by_key(|(_, (_, since))| *since);
        waits.truncate(limit);
        let now = self.context.now();
        let report = |((tid, document), (holder, since)): ((AttemptId, Key), (_, Duration))| {
            let waited = now.saturating_sub(since).as_millis();
            PresentWait {
                tid,
                label: self.label_of(tid),
                holder,
                holder_label: self.label_of(holder),
                collection: document.collection,
                id: document.id,
                routing: document.routing,
                waited_ms: u64::try_from(waited).unwrap_or(u64::MAX),
            }
        };
        waits.into_iter().map(report).collect()
    }

    /// Announces and remembers a wait that ended.
    pub(crate) fn ended(
        &self,
        tid: AttemptId,
        holder: AttemptId,
        document: &Key,
        waited: Duration,
        end: WaitEnd,
    ) {
        self.present.lock().remove(&(tid, document.clone()));
        let (label, holder_label) = (self.label_of(tid), self.label_of(holder));
        let most = self.context.config.contention_waits;
        if most > 0 {
            let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
            let wait = LockWait {
                tid,
                label: label.clone(),
                holder,
                holder_label: holder_label.clone(),
                collection: document.collection.clone(),
                id: document.id.clone(),
                routing: document.routing.clone(),
                began_ms: self.time.unix_millis().saturating_sub(waited_ms),
                waited_ms,
                end,
            };
            let mut ring = self.ring.lock();
            while ring.waits.len() >= most {
                ring.waits.pop_front();
            }
            ring.waits.push_back(wait);
            ring.total += 1;
        }
        let document = document.clone();
        self.context.emit(&Event::WaitEnded {
            tid,
            label,
            holder,
            holder_label,
            document,
            waited,
            end,
        });
    }

    /// Returns the last waits and their total count.
    ///
    /// The last waits are newest first; the count is that of all waits so far.
    pub(crate) fn last(&self, limit: usize) -> (Vec<LockWait>, u64) {
        let ring = self.ring.lock();
        (ring.waits.iter().rev().take(limit).cloned().collect(), ring.total)
    }

    /// The number of all waits so far.
    pub(crate) fn total(&self) -> u64 {
        self.ring.lock().total
    }
}
