//! Records a history during a run.

use parking_lot::Mutex;
use tokio::time::Instant;
use txn_core::AttemptId;

use crate::history::{Entry, Kind, Micro, Transactional};

/// The error of a transaction if its caller dropped the future.
const CALLER_WENT_AWAY: &str = "its caller went away";

impl Entry {
    /// Whether the caller dropped the future.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.error.as_deref() == Some(CALLER_WENT_AWAY)
    }
}

/// The entries so far, in the order of their recording.
///
/// The beginning of a transaction is recorded before anything is sent, its end after the answer.
#[derive(Debug)]
pub(crate) struct Recorder {
    began: Instant,
    entries: Mutex<Vec<Entry>>,
}

impl Recorder {
    /// Continues after these entries.
    pub(crate) fn after(entries: Vec<Entry>) -> Self {
        Self { began: Instant::now(), entries: Mutex::new(entries) }
    }

    /// Records that a transaction begins.
    pub(crate) fn invoke(&self, process: u64, asked: Vec<Micro>) -> Call<'_> {
        self.record(Kind::Invoke, process, asked.clone(), None);
        Call { recorder: self, process, asked: Some(asked) }
    }

    fn record(
        &self,
        kind: Kind,
        process: u64,
        value: Vec<Micro>,
        why: Option<(String, Option<AttemptId>)>,
    ) {
        let (error, tid) = why.map_or((None, None), |(error, tid)| (Some(error), tid));
        let mut entries = self.entries.lock();
        let index = entries.len() as u64;
        // Not earlier than the previous entry, even if a history is continued.
        let before = entries.last().map_or(0, |entry| entry.time);
        let elapsed = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let time = elapsed.max(before);
        let f = Transactional::Txn;
        entries.push(Entry { index, kind, process, time, f, value, error, tid, outcome: None });
    }

    /// Takes the recorded entries.
    pub(crate) fn finish(&self) -> Vec<Entry> {
        std::mem::take(&mut self.entries.lock())
    }
}

/// A transaction under way. If it is dropped without an answer, the outcome is unknown.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    recorder: &'a Recorder,
    process: u64,
    /// The requested operations; the answer takes them.
    asked: Option<Vec<Micro>>,
}

impl Call<'_> {
    /// Records that the transaction committed.
    pub(crate) fn ok(mut self, value: Vec<Micro>) {
        self.asked = None;
        self.recorder.record(Kind::Ok, self.process, value, None);
    }

    /// Records that the transaction changed nothing, and never will.
    pub(crate) fn fail(self, why: String) {
        self.end(Kind::Fail, why, None);
    }

    /// Records that the outcome is unknown.
    pub(crate) fn info(self, why: String, tid: Option<AttemptId>) {
        self.end(Kind::Info, why, tid);
    }

    fn end(mut self, kind: Kind, why: String, tid: Option<AttemptId>) {
        let asked = self.asked.take().unwrap_or_default();
        self.recorder.record(kind, self.process, asked, Some((why, tid)));
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if let Some(asked) = self.asked.take() {
            let why = CALLER_WENT_AWAY.to_owned();
            self.recorder.record(Kind::Info, self.process, asked, Some((why, None)));
        }
    }
}
