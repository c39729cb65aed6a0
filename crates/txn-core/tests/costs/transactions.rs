//! Costs of an uncontended transaction of n documents.
//!
//! The costs are requests and document writes.

use txn_core::{Error, LockMode, Options, WaitFor};
use txn_sim::Counts;

use crate::support::processes::ids;
use crate::support::{Dies, Item, Process, SharedStore};

const SIZES: [usize; 3] = [2, 10, 1_000];

/// Opens a store with `n` items, and a new process. The process has read no item.
async fn process_beside(n: usize) -> Process {
    SharedStore::of(n).await.process(Dies::Never).await
}

/// Compares requests and document writes, checks, and verified reads.
fn costs(counts: Counts, expected: [usize; 4], what: &str) {
    let found = [counts.requests(), counts.documents_written, counts.checks, counts.verifies];
    assert_eq!(found, expected.map(|number| number as u64), "{what}: {counts}");
}

/// Requests: read, lock, commit, apply, finish. Writes: n locks, n applied, and the record twice.
#[tokio::test(start_paused = true)]
async fn changes_of_n_documents_are_5_requests_2n_plus_2() {
    for n in SIZES {
        let p = process_beside(n).await;
        let (put, counts) = p.cost(p.put_all(n, 2)).await;
        put.expect("commits");
        costs(counts, [5, 2 * n + 2, n, 0], &format!("{n} documents"));
    }
}

/// Requests: read, write of the content.
#[tokio::test(start_paused = true)]
async fn change_of_one_document_is_2_requests_1_write() {
    let p = process_beside(1).await;
    let (put, counts) = p.cost(p.put_all(1, 2)).await;
    put.expect("commits");
    costs(counts, [2, 1, 0, 0], "one document");
}

/// Requests: lock, commit, apply, finish.
#[tokio::test(start_paused = true)]
async fn inserts_of_n_documents_are_4_requests_2n_plus_2() {
    for n in [1, 2, 10, 1_000] {
        let p = process_beside(1).await;
        let options = Options::default().with_wait_for(WaitFor::Apply);
        let insert = p.domain.run::<_, Error, _>(&options, async |tx| {
            (0..n).try_for_each(|i| tx.insert(&p.items, format!("new-{i}"), &Item { n: 1 }))
        });
        let (inserted, counts) = p.cost(insert).await;
        inserted.expect("commits");
        costs(counts, [4, 2 * n + 2, n, 0], &format!("{n} documents"));
    }
}

/// Requests: read, validate.
#[tokio::test(start_paused = true)]
async fn reads_of_n_documents_are_2_requests_no_write() {
    for n in [1, 2, 10, 1_000] {
        let p = process_beside(n).await;
        let options = Options::default().with_read_only(true);
        let read =
            p.domain.run::<_, Error, _>(&options, async |tx| tx.get_many(&p.items, ids(n)).await);
        let (read, counts) = p.cost(read).await;
        assert_eq!(read.expect("reads").value.len(), n);
        costs(counts, [2, 0, 0, n], &format!("{n} documents"));
    }
}

#[tokio::test(start_paused = true)]
async fn read_only_transactions_ignore_the_lock_mode() {
    let p = process_beside(2).await;
    let options = Options::default().with_read_only(true).with_lock_mode(LockMode::AtRead);
    let read = async {
        let tx = p.domain.begin(&options)?;
        tx.get_many(&p.items, ids(2)).await?;
        tx.commit().await
    };
    let (read, counts) = p.cost(read).await;
    read.expect("commits");
    costs(counts, [2, 0, 0, 2], "by hand");
}
