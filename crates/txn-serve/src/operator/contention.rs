//! Hot documents and past waits for locks.
//!
//! Two ranges of past waits can be compared side by side.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use txn_core::admin::{Contention, WaitSource};
use txn_core::{AttemptId, Domain, LockWait, ProcessNumber, Result};

/// The longest range of past waits, in minutes: one week.
pub const MOST_MINUTES: u64 = 7 * 24 * 60;

/// The number of waits with one label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LabelCount {
    /// The label of a transaction. `None` for transactions without a label, or if the process did
    /// not know the label.
    pub label: Option<String>,
    /// The number of waits.
    pub waits: u64,
}

/// The number of waits of one process, or for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ProcessCount {
    /// The number of the process in its tids.
    pub number: String,
    /// The name of the process, if it is known.
    pub process: Option<String>,
    /// The number of waits.
    pub waits: u64,
}

/// The sums of several waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct WaitSums {
    /// The number of waits.
    pub waits: u64,
    /// The time of all waits together, in milliseconds.
    pub total_ms: u64,
    /// The time of the longest wait, in milliseconds.
    pub longest_ms: u64,
}

impl WaitSums {
    fn add(&mut self, wait: &LockWait) {
        self.waits += 1;
        self.total_ms = self.total_ms.saturating_add(wait.waited_ms);
        self.longest_ms = self.longest_ms.max(wait.waited_ms);
    }
}

/// A document for which transactions waited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct HotDocument {
    /// The physical name of the document's collection.
    pub collection: Arc<str>,
    /// The id of the document.
    pub id: Arc<str>,
    /// The routing value of the document, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routing: Option<Arc<str>>,
    /// The sums of the waits.
    #[serde(flatten)]
    pub sums: WaitSums,
    /// The holder of the last wait.
    pub last_holder: AttemptId,
    /// The labels of the transactions that waited, the most frequent first.
    pub waiting_labels: Vec<LabelCount>,
    /// The labels of the holders, the most frequent first.
    pub blocking_labels: Vec<LabelCount>,
    /// The processes that waited, the most frequent first.
    pub waiting_processes: Vec<ProcessCount>,
    /// The processes of the holders, the most frequent first.
    pub blocking_processes: Vec<ProcessCount>,
}

/// The hot documents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct HotList {
    /// The documents for which transactions waited longest in total, the hottest first.
    pub documents: Vec<HotDocument>,
    /// Whether there are more documents.
    pub truncated: bool,
    /// Whether all recorded waits of the range are counted.
    pub complete: bool,
    /// The number of counted waits.
    pub waits: u64,
    /// The begin of the range, in milliseconds since the Unix epoch. `None`: all recorded waits.
    pub from_ms: Option<u64>,
    /// The end of the range, in milliseconds since the Unix epoch.
    pub to_ms: u64,
    /// The processes that may have waited.
    pub processes: Vec<WaitSource>,
    /// The next step of the operator.
    pub next: String,
}

/// Lists the hottest documents of the last minutes.
///
/// Without `minutes`, all recorded waits count. Changes nothing.
///
/// # Errors
/// The errors of the store for the registry.
pub async fn hot_documents(domain: &Domain, minutes: Option<u64>, limit: usize) -> Result<HotList> {
    Ok(hot(&domain.admin().contention_of_all(usize::MAX).await?, minutes, limit))
}

/// The hottest documents of past waits.
fn hot(contention: &Contention, minutes: Option<u64>, limit: usize) -> HotList {
    let span = Span::last(contention.now_ms, minutes);
    let mut counts: BTreeMap<DocumentKey<'_>, Count<'_>> = BTreeMap::new();
    let mut waits = 0;
    for wait in contention.waits.iter().filter(|wait| wait.ended_ms() >= span.from_ms) {
        waits += 1;
        counts.entry(key_of(wait)).or_insert_with(|| Count::of(wait)).add(wait);
    }
    let hot = counts.into_values().map(|count| count.document(contention));
    let mut documents: Vec<HotDocument> = hot.collect();
    documents.sort_by_key(|hot| Reverse((hot.sums.total_ms, hot.sums.waits)));
    let truncated = documents.len() > limit;
    documents.truncate(limit);
    HotList {
        next: next_step_of_waits(!documents.is_empty(), &contention.processes),
        documents,
        truncated,
        complete: span.is_complete_in(contention),
        waits,
        from_ms: minutes.map(|_| span.from_ms),
        to_ms: span.to_ms,
        processes: contention.processes.clone(),
    }
}

/// Lists the waits that ended in the last minutes.
///
/// Without `minutes`, all recorded waits are listed. Changes nothing.
///
/// # Errors
/// The errors of the store for the registry.
pub async fn past_waits(domain: &Domain, minutes: Option<u64>, limit: usize) -> Result<Contention> {
    let Some(minutes) = minutes else { return domain.admin().contention_of_all(limit).await };
    let mut contention = domain.admin().contention_of_all(usize::MAX).await?;
    let span = Span::last(contention.now_ms, Some(minutes));
    contention.waits.retain(|wait| wait.ended_ms() >= span.from_ms);
    contention.truncated = !span.is_complete_in(&contention) || contention.waits.len() > limit;
    contention.waits.truncate(limit);
    Ok(contention)
}

/// A range of past waits, by their end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Span {
    /// The begin, in milliseconds since the Unix epoch.
    pub from_ms: u64,
    /// The end, in milliseconds since the Unix epoch.
    pub to_ms: u64,
}

impl Span {
    /// The last minutes; `None`: everything.
    fn last(now_ms: u64, minutes: Option<u64>) -> Self {
        match minutes {
            None => Self { from_ms: 0, to_ms: now_ms },
            Some(minutes) => Self::before(now_ms, minutes, 0),
        }
    }

    /// The range of this length that ended some minutes ago.
    fn before(now_ms: u64, minutes: u64, ago: u64) -> Self {
        let millis = |minutes: u64| minutes.saturating_mul(60_000);
        let to_ms = now_ms.saturating_sub(millis(ago));
        Self { from_ms: to_ms.saturating_sub(millis(minutes)), to_ms }
    }

    fn is_complete_in(&self, contention: &Contention) -> bool {
        contention.complete_since_ms <= self.from_ms
    }
}

/// A document in both ranges of a comparison.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ComparedDocument {
    /// The physical name of the document's collection.
    pub collection: Arc<str>,
    /// The id of the document.
    pub id: Arc<str>,
    /// The routing value of the document, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routing: Option<Arc<str>>,
    /// The waits of the later range.
    pub later: WaitSums,
    /// The waits of the earlier range.
    pub earlier: WaitSums,
}

/// A range of a comparison, with the waits for all documents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ComparedSpan {
    /// The range.
    #[serde(flatten)]
    pub span: Span,
    /// The sums of all waits in the range.
    #[serde(flatten)]
    pub sums: WaitSums,
    /// Whether all recorded waits of the range are counted.
    pub complete: bool,
}

/// Past waits in two ranges of the same length.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ComparedWaits {
    /// The later range, which ends now.
    pub later: ComparedSpan,
    /// The earlier range.
    pub earlier: ComparedSpan,
    /// The documents, with the largest change of the total time first.
    pub documents: Vec<ComparedDocument>,
    /// Whether there are more documents.
    pub truncated: bool,
    /// The processes that may have waited.
    pub processes: Vec<WaitSource>,
    /// The next step of the operator.
    pub next: String,
}

/// Compares the last minutes with an earlier range of that length.
///
/// The earlier range ended `against` minutes ago.
///
/// Changes nothing. `against` is at least `minutes`, because the ranges would overlap otherwise.
///
/// # Errors
/// The errors of the store for the registry.
pub async fn compared_waits(
    domain: &Domain,
    minutes: u64,
    against: u64,
    limit: usize,
) -> Result<ComparedWaits> {
    let contention = domain.admin().contention_of_all(usize::MAX).await?;
    Ok(compare(&contention, minutes, against.max(minutes), limit))
}

fn compare(contention: &Contention, minutes: u64, against: u64, limit: usize) -> ComparedWaits {
    let spans = [0, against].map(|ago| Span::before(contention.now_ms, minutes, ago));
    let mut sums = [WaitSums::default(); 2];
    let mut counts: BTreeMap<DocumentKey<'_>, ComparedDocument> = BTreeMap::new();
    for wait in &contention.waits {
        // A process whose clock is ahead may have waits of the future.
        let at = match wait.ended_ms() {
            ended_ms if ended_ms >= spans[0].from_ms => 0,
            ended_ms if (spans[1].from_ms..spans[1].to_ms).contains(&ended_ms) => 1,
            _ => continue,
        };
        let document = counts.entry(key_of(wait)).or_insert_with(|| ComparedDocument {
            collection: wait.collection.clone(),
            id: wait.id.clone(),
            routing: wait.routing.clone(),
            later: WaitSums::default(),
            earlier: WaitSums::default(),
        });
        sums[at].add(wait);
        let of_span = if at == 0 { &mut document.later } else { &mut document.earlier };
        of_span.add(wait);
    }
    let mut documents: Vec<ComparedDocument> = counts.into_values().collect();
    documents.sort_by_key(|document| {
        let (later, earlier) = (document.later.total_ms, document.earlier.total_ms);
        Reverse((later.abs_diff(earlier), later))
    });
    let truncated = documents.len() > limit;
    documents.truncate(limit);
    let [later, earlier] = [0, 1].map(|at| ComparedSpan {
        span: spans[at],
        sums: sums[at],
        complete: spans[at].is_complete_in(contention),
    });
    let next = next_step_of_waits(!documents.is_empty(), &contention.processes);
    let processes = contention.processes.clone();
    ComparedWaits { later, earlier, documents, truncated, processes, next }
}

/// The next step of an operator who looks for waits.
///
/// Without any wait the step depends on the processes that record theirs.
#[must_use]
pub fn next_step_of_waits(has_waits: bool, processes: &[WaitSource]) -> String {
    let of_all = processes.len();
    let unrecorded = processes.iter().filter(|source| !source.recorded).count();
    match (has_waits, of_all, unrecorded) {
        (true, _, 0) => "`txn why COLLECTION ID` for the story of a document".to_owned(),
        (false, 0, _) => {
            "switch the record of waits on in each process: `Config::with_write_contention(true)`"
                .to_owned()
        }
        (false, _, 0) => "nothing: each process records its waits".to_owned(),
        _ => format!(
            "switch the record of waits on in {unrecorded} of {of_all} processes: \
             `Config::with_write_contention(true)`"
        ),
    }
}

/// The number of labels or processes in one cell of a table.
const MOST_NAMED: usize = 3;

/// The most frequent labels, each with its number of waits.
#[must_use]
pub fn most_frequent_labels(counts: &[LabelCount]) -> String {
    let names =
        counts.iter().map(|count| (count.label.as_deref().unwrap_or("no label"), count.waits));
    most_frequent(names, counts.len())
}

/// The most frequent processes, each with its number of waits.
#[must_use]
pub fn most_frequent_processes(counts: &[ProcessCount]) -> String {
    let names: Vec<(String, u64)> = counts
        .iter()
        .map(|count| match &count.process {
            Some(process) => (process.clone(), count.waits),
            None => (format!("process {}", count.number), count.waits),
        })
        .collect();
    most_frequent(names.iter().map(|(name, waits)| (&**name, *waits)), counts.len())
}

fn most_frequent<'a>(names: impl Iterator<Item = (&'a str, u64)>, of_all: usize) -> String {
    let named = names.take(MOST_NAMED).map(|(name, waits)| format!("{name} {waits}"));
    let mut text = named.collect::<Vec<_>>().join(", ");
    if of_all > MOST_NAMED {
        text += &format!(", {} more", of_all - MOST_NAMED);
    }
    text
}

type DocumentKey<'a> = (&'a str, &'a str, Option<&'a str>);

fn key_of(wait: &LockWait) -> DocumentKey<'_> {
    (&wait.collection, &wait.id, wait.routing.as_deref())
}

/// The counts of one document.
struct Count<'a> {
    /// The newest wait: waits come newest first.
    newest: &'a LockWait,
    sums: WaitSums,
    waiting_labels: BTreeMap<Option<&'a str>, u64>,
    blocking_labels: BTreeMap<Option<&'a str>, u64>,
    waiting_processes: BTreeMap<ProcessNumber, u64>,
    blocking_processes: BTreeMap<ProcessNumber, u64>,
}

impl<'a> Count<'a> {
    fn of(newest: &'a LockWait) -> Self {
        let (sums, waiting_labels, blocking_labels, waiting_processes, blocking_processes) =
            Default::default();
        Self {
            newest,
            sums,
            waiting_labels,
            blocking_labels,
            waiting_processes,
            blocking_processes,
        }
    }

    fn add(&mut self, wait: &'a LockWait) {
        self.sums.add(wait);
        *self.waiting_labels.entry(wait.label.as_deref()).or_default() += 1;
        *self.blocking_labels.entry(wait.holder_label.as_deref()).or_default() += 1;
        let sides =
            [(&mut self.waiting_processes, wait.tid), (&mut self.blocking_processes, wait.holder)];
        for (processes, tid) in sides {
            *processes.entry(tid.process()).or_default() += 1;
        }
    }

    fn document(self, contention: &Contention) -> HotDocument {
        let LockWait { collection, id, routing, holder, .. } = self.newest;
        let processes = |counts| process_counts(counts, contention);
        HotDocument {
            collection: collection.clone(),
            id: id.clone(),
            routing: routing.clone(),
            sums: self.sums,
            last_holder: *holder,
            waiting_labels: label_counts(self.waiting_labels),
            blocking_labels: label_counts(self.blocking_labels),
            waiting_processes: processes(self.waiting_processes),
            blocking_processes: processes(self.blocking_processes),
        }
    }
}

fn label_counts(counts: BTreeMap<Option<&str>, u64>) -> Vec<LabelCount> {
    let count =
        |(label, waits): (Option<&str>, u64)| LabelCount { label: label.map(str::to_owned), waits };
    let mut counts: Vec<LabelCount> = counts.into_iter().map(count).collect();
    counts.sort_by_key(|count| Reverse(count.waits));
    counts
}

fn process_counts(
    counts: BTreeMap<ProcessNumber, u64>,
    contention: &Contention,
) -> Vec<ProcessCount> {
    let count = |(number, waits): (ProcessNumber, u64)| {
        let process = contention.process_of(number).map(str::to_owned);
        ProcessCount { number: number.to_string(), process, waits }
    };
    let mut counts: Vec<ProcessCount> = counts.into_iter().map(count).collect();
    counts.sort_by_key(|count| Reverse(count.waits));
    counts
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW_MS: u64 = 1_000_000_000;

    /// Labels, document, and two times. The times are the minutes since the wait's end, and its
    /// length in milliseconds.
    type Row = (Option<&'static str>, &'static str, &'static str, u64, u64);

    fn wait((label, holder_label, id, ago, waited_ms): Row) -> LockWait {
        let tid = "3db4dc0b-ea02-11f1-8001-6dd9f108c5aa";
        let mut wait = json!({
            "tid": tid, "holder": tid, "holder_label": holder_label, "collection": "stock", "id": id,
            "began_ms": NOW_MS - ago * 60_000 - waited_ms, "waited_ms": waited_ms, "end": "released",
        });
        if let Some(label) = label {
            wait["label"] = json!(label);
        }
        serde_json::from_value(wait).expect("a wait")
    }

    fn contention(rows: &[Row]) -> Contention {
        let mut contention = Contention::default();
        contention.waits = rows.iter().copied().map(wait).collect();
        contention.now_ms = NOW_MS;
        contention
    }

    const ROWS: &[Row] = &[
        (Some("checkout"), "restock", "shelf", 1, 100),
        (Some("checkout"), "restock", "shelf", 2, 300),
        (None, "audit", "shelf", 3, 50),
        (Some("checkout"), "audit", "till", 4, 2_000),
        (Some("checkout"), "restock", "till", 14, 700),
        (Some("checkout"), "restock", "door", 15, 10),
    ];

    fn ids(list: &HotList) -> Vec<&str> {
        list.documents.iter().map(|document| &*document.id).collect()
    }

    #[test]
    fn hottest_document_comes_first() {
        let list = hot(&contention(ROWS), None, 10);
        assert_eq!(ids(&list), ["till", "shelf", "door"]);
        assert_eq!(
            (list.waits, list.from_ms, list.truncated, list.complete),
            (6, None, false, true)
        );
        let shelf = &list.documents[1];
        assert_eq!(shelf.sums, WaitSums { waits: 3, total_ms: 450, longest_ms: 300 });
        assert_eq!(most_frequent_labels(&shelf.waiting_labels), "checkout 2, no label 1");
        assert_eq!(most_frequent_labels(&shelf.blocking_labels), "restock 2, audit 1");
        assert_eq!(most_frequent_processes(&shelf.waiting_processes), "process 6dd9 3");
        let first = hot(&contention(ROWS), None, 1);
        assert_eq!((ids(&first), first.truncated), (vec!["till"], true));
    }

    #[test]
    fn range_counts_waits_by_their_end() {
        let list = hot(&contention(ROWS), Some(3), 10);
        assert_eq!((ids(&list), list.waits), (vec!["shelf"], 3));
        assert_eq!(list.from_ms, Some(NOW_MS - 180_000));
        let mut forgetful = contention(ROWS);
        forgetful.complete_since_ms = NOW_MS - 600_000;
        assert!(hot(&forgetful, Some(10), 10).complete);
        assert!(!hot(&forgetful, Some(11), 10).complete);
        assert!(!hot(&forgetful, None, 10).complete);
    }

    #[test]
    fn ranges_are_compared_by_document() {
        let compared = compare(&contention(ROWS), 10, 10, 10);
        assert_eq!(compared.later.sums, WaitSums { waits: 4, total_ms: 2_450, longest_ms: 2_000 });
        assert_eq!(compared.earlier.sums, WaitSums { waits: 2, total_ms: 710, longest_ms: 700 });
        assert_eq!(compared.earlier.span.to_ms, compared.later.span.from_ms);
        let rows: Vec<_> = compared
            .documents
            .iter()
            .map(|row| (&*row.id, row.later.total_ms, row.earlier.total_ms))
            .collect();
        assert_eq!(rows, [("till", 2_000, 700), ("shelf", 450, 0), ("door", 0, 10)]);
        // Waits between both ranges count in none.
        let apart = compare(&contention(ROWS), 2, 13, 10);
        assert_eq!((apart.later.sums.waits, apart.earlier.sums.waits), (2, 2));
        assert!(compare(&contention(ROWS), 10, 10, 2).truncated);
    }

    #[test]
    fn long_lists_of_labels_are_cut() {
        let count = |n: u64| LabelCount { label: Some(format!("l{n}")), waits: n };
        let counts: Vec<LabelCount> = (1..=5).rev().map(count).collect();
        assert_eq!(most_frequent_labels(&counts), "l5 5, l4 4, l3 3, 2 more");
    }

    #[test]
    fn missing_record_of_waits_is_the_next_step() {
        assert!(next_step_of_waits(false, &[]).contains("Config::with_write_contention(true)"));
        assert!(next_step_of_waits(true, &[]).contains("txn why"));
    }
}
