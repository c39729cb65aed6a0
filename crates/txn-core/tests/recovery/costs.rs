//! Costs of recovery: a constant number of writes per document.

use txn_core::{Error, Options};
use txn_sim::Counts;

use crate::support::processes::ids;
use crate::support::{Dies, SharedStore};

const SIZES: [usize; 3] = [20, 80, 320];

/// Checks the bound of three writes per document, plus the record.
///
/// The number of requests does not grow with the documents. Some requests read a lock until the
/// holder counts as dead.
fn is_bounded(n: usize, counts: Counts, what: &str) {
    assert!(counts.documents_written <= 3 * n as u64 + 20, "{what}, {n} documents: {counts}");
    assert!(counts.requests() <= 100, "{what}, {n} documents: {counts}");
}

#[tokio::test(start_paused = true)]
async fn the_janitor_writes_a_constant_for_each_document() {
    for dies in [Dies::BeforeCommit, Dies::AfterCommit] {
        for n in SIZES {
            let w = SharedStore::of(n).await;
            w.left_by_the_dead(n, dies, false).await;
            let p = w.process(Dies::Never).await;
            let (report, counts) = p.cost(p.domain.admin().janitor_pass()).await;
            let report = report.expect("passes");
            assert!(report.is_clean() && report.recovered >= n, "{report:?}");
            is_bounded(n, counts, &format!("{dies:?}"));
            let expected = if dies == Dies::AfterCommit { 2 } else { 1 };
            assert_eq!(p.values(n).await, vec![Some(expected); n]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_writer_writes_a_constant_for_each_document() {
    for dies in [Dies::BeforeCommit, Dies::AfterCommit] {
        for n in SIZES {
            let w = SharedStore::of(n).await;
            w.left_by_the_dead(n, dies, false).await;
            let p = w.process(Dies::Never).await;
            let (set, counts) = p.cost(p.put_all(n, 3)).await;
            set.expect("commits");
            is_bounded(n, counts, &format!("{dies:?}"));
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
            is_bounded(n, counts, &format!("verified, {dies:?}"));
            let options = Options::default().with_read_only(true);
            let read = p
                .domain
                .run::<_, Error, _>(&options, async |tx| tx.get_many(&p.items, ids(n)).await);
            let (read, counts) = p.cost(read).await;
            assert_eq!(read.expect("reads").value.len(), n);
            is_bounded(n, counts, &format!("read-only, {dies:?}"));
        }
    }
}
