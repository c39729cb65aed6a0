//! Costs of recovery: a constant number of writes per document.
//!
//! The numbers of requests contain the reads until the holder counts as dead. Their bounds do not
//! grow with the documents, except for the pages of scans.

use txn_core::{Error, Options};
use txn_sim::Counts;

use crate::support::processes::ids;
use crate::support::{Dies, SharedStore};

const SIZES: [usize; 4] = [1, 2, 10, 1_000];

/// Checks the writes and requests for a dead process's transaction. Writes are counted per
/// document.
fn are_at_most(counts: Counts, writes: usize, requests: usize, what: &str) {
    assert!(counts.documents_written <= writes as u64, "{what}: {counts}, more than {writes}");
    assert!(counts.requests() <= requests as u64, "{what}: {counts}, more than {requests}");
}

/// Writes: n + 1 for an abort, n + 2 for a commit.
///
/// Requests: at most 30, and 6 for each 500 documents.
#[tokio::test(start_paused = true)]
async fn the_janitor_writes_a_constant_for_each_document() {
    for dies in [Dies::BeforeCommit, Dies::AfterCommit] {
        for n in SIZES {
            let w = SharedStore::of(n).await;
            w.left_by_the_dead(n, dies, false).await;
            let p = w.process(Dies::Never).await;
            let (report, counts) = p.cost(p.domain.admin().janitor_pass()).await;
            let report = report.expect("passes");
            assert!(report.is_clean() && report.recovered > 0, "{report:?}");
            let expected = if dies == Dies::AfterCommit { 2 } else { 1 };
            are_at_most(counts, n + expected, 30 + 6 * (n / 500), &format!("{dies:?}, {n}"));
            let expected = i64::try_from(expected).expect("small");
            assert_eq!(p.values(n).await, vec![Some(expected); n]);
        }
    }
}

/// The writes beside the writer's 2n + 2 are bounded. An abort has at most 4, a commit n + 2.
///
/// Until the holder counts as dead, the writer sends two or three heartbeats. Their number depends
/// on the jitter of its polls.
#[tokio::test(start_paused = true)]
async fn a_writer_writes_a_constant_for_each_document() {
    for dies in [Dies::BeforeCommit, Dies::AfterCommit] {
        for n in SIZES {
            let w = SharedStore::of(n).await;
            w.left_by_the_dead(n, dies, false).await;
            let p = w.process(Dies::Never).await;
            let (set, counts) = p.cost(p.put_all(n, 3)).await;
            set.expect("commits");
            let (recovery, requests) =
                if dies == Dies::AfterCommit { (n + 2, 20) } else { (4, 50) };
            are_at_most(counts, 2 * n + 2 + recovery, requests, &format!("{dies:?}, {n}"));
            assert_eq!(p.values(n).await, vec![Some(3); n]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn reader_requests_do_not_grow_with_documents() {
    for (dies, expected) in [(Dies::BeforeCommit, 1), (Dies::AfterCommit, 2)] {
        for n in SIZES {
            let w = SharedStore::of(n).await;
            w.left_by_the_dead(n, dies, false).await;
            let p = w.process(Dies::Never).await;
            let (read, counts) = p.cost(p.domain.reader().get_many(&p.items, ids(n))).await;
            let values: Vec<_> = read.expect("reads").into_iter().map(|i| i.map(|i| i.n)).collect();
            assert_eq!(values, vec![Some(expected); n]);
            assert_eq!((counts.requests(), counts.documents_written), (2, 0), "{counts}");
            // A verified read waits for an undecided holder, and recovers a dead one.
            let (values, counts) = p.cost(p.values(n)).await;
            assert_eq!(values, vec![Some(expected); n]);
            let [writes, requests] = if dies == Dies::AfterCommit { [0, 3] } else { [n + 1, 55] };
            are_at_most(counts, writes, requests, &format!("verified, {dies:?}, {n}"));
            let options = Options::default().with_read_only(true);
            let read = p
                .domain
                .run::<_, Error, _>(&options, async |tx| tx.get_many(&p.items, ids(n)).await);
            let (read, counts) = p.cost(read).await;
            assert_eq!(read.expect("reads").value.len(), n);
            // The verified read has recovered the undecided holder.
            let [writes, requests] = if dies == Dies::AfterCommit { [n + 2, 12] } else { [0, 3] };
            are_at_most(counts, writes, requests, &format!("read-only, {dies:?}, {n}"));
        }
    }
}
