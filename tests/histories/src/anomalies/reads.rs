//! The visibility of writes to reads.

use std::time::Duration;

use txn_core::store::Read;
use txn_core::{Error, ErrorKind, ReadMode};

use crate::fixture::{Fixture, Item, Process, locking};

/// The content for each read that does not wait.
///
/// The reads are one by a reader, and one by a transaction.
async fn seen_by_all(process: &Process, id: &str) -> [Option<i64>; 2] {
    let session = process.begin_read_only();
    let read = session.get(id).await;
    session.rollback().await;
    [process.look(&[id]).await[0], read]
}

/// Asserts that a verified read waits while the holder is undecided.
async fn waits_for_the_holder(process: &Process, id: &str) {
    let reader = process.domain.reader().verified();
    let read = tokio::time::timeout(Duration::from_millis(50), reader.get(&process.items, id));
    assert!(read.await.is_err(), "it did not wait");
}

/// G1a. No read shows a write that is rolled back, neither during its locks nor afterwards.
pub async fn g1a_aborted_read(fixture: &Fixture) {
    fixture.put(&[("x", 10)]).await;
    let writer = fixture.a.begin_locking();
    assert_eq!(writer.get("x").await, Some(10));
    assert_eq!(writer.get("new").await, None);
    writer.put("x", 101);
    writer.insert("new", 1);
    let reader = fixture.b.begin_read_only();
    assert_eq!((reader.get("x").await, reader.get("new").await), (Some(10), None));
    for process in [&fixture.a, &fixture.b] {
        assert_eq!(seen_by_all(process, "x").await, [Some(10); 2]);
        assert_eq!(seen_by_all(process, "new").await, [None; 2], "a placeholder is no document");
        waits_for_the_holder(process, "x").await;
    }
    writer.rollback().await;
    assert_eq!(seen_by_all(&fixture.b, "x").await, [Some(10); 2]);
    assert_eq!(fixture.state(&["x", "new"]).await, [Some(10), None]);
    reader.commits().await;
}

/// G1b. No read shows a write that its transaction overwrote itself.
pub async fn g1b_intermediate_read(fixture: &Fixture) {
    fixture.put(&[("x", 10)]).await;
    let writer = fixture.a.begin_locking();
    assert_eq!(writer.get("x").await, Some(10));
    writer.put("x", 101);
    assert_eq!(writer.get("x").await, Some(101));
    let reader = fixture.b.begin_read_only();
    assert_eq!(reader.get("x").await, Some(10));
    assert_eq!(seen_by_all(&fixture.b, "x").await, [Some(10); 2]);
    writer.put("x", 11);
    assert_eq!(seen_by_all(&fixture.b, "x").await, [Some(10); 2]);
    writer.commits().await;
    assert_eq!(seen_by_all(&fixture.b, "x").await, [Some(11); 2]);
    assert_eq!(reader.get("x").await, Some(10), "the same each time");
    reader.rollback().await;
    assert_eq!(fixture.state(&["x"]).await, [Some(11)]);
}

/// G1c. Two transactions write one document each and read the other one.
///
/// Neither sees the other's write, and one is refused.
pub async fn g1c_circular_information_flow(fixture: &Fixture) {
    fixture.put(&[("x", 10), ("y", 20)]).await;
    let (first, second) = (fixture.a.begin(), fixture.b.begin());
    first.put("x", 11);
    second.put("y", 22);
    assert_eq!(first.get("y").await, Some(20));
    assert_eq!(second.get("x").await, Some(10));
    second.commits().await;
    first.conflicts().await;
    assert_eq!(fixture.state(&["x", "y"]).await, [Some(10), Some(22)]);
}

/// G-single. A transaction reads one document before a commit and another one after it.
///
/// The transaction is refused, whether or not it writes.
pub async fn g_single_read_skew(fixture: &Fixture) {
    fixture.put(&[("x", 10), ("y", 20), ("z", 0)]).await;
    let (reader, writer, locking) =
        (fixture.a.begin_read_only(), fixture.a.begin(), fixture.a.begin_locking());
    assert_eq!((reader.get("x").await, writer.get("x").await), (Some(10), Some(10)));
    let between = fixture.b.begin();
    between.put("x", 12);
    between.put("y", 18);
    between.commits().await;
    assert_eq!((reader.get("y").await, writer.get("y").await), (Some(18), Some(18)));
    reader.conflicts().await;
    writer.put("z", 10 + 18);
    writer.conflicts().await;
    // A transaction that reads only now is fine, however early it began.
    assert_eq!((locking.get("x").await, locking.get("y").await), (Some(12), Some(18)));
    locking.put("z", 30);
    locking.commits().await;
    assert_eq!(fixture.state(&["x", "y", "z"]).await, [Some(12), Some(18), Some(30)]);
}

/// G-single, with locked reads. The writer waits for the older reader.
///
/// The reads of the reader belong together.
pub async fn g_single_read_skew_with_locked_reads(fixture: &Fixture) {
    fixture.put(&[("x", 10), ("y", 20)]).await;
    let options = locking().with_read_mode(ReadMode::Lock);
    let reader = fixture.a.begin_with(&options);
    assert_eq!(reader.get("x").await, Some(10));
    fixture.b.is_younger_than(&reader).await;
    let writing = tokio::spawn({
        let process = fixture.b.clone();
        async move {
            let items = &process.items;
            let write = process.domain.transact::<_, Error, _>(async |tx| {
                tx.put(items, "x", &Item { n: 12 })?;
                tx.put(items, "y", &Item { n: 18 })
            });
            write.await.expect("gets through");
        }
    });
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    assert_eq!(reader.get("y").await, Some(20));
    assert!(!writing.is_finished(), "it passed an older one's lock");
    reader.commits().await;
    writing.await.expect("no panic");
    assert_eq!(fixture.state(&["x", "y"]).await, [Some(12), Some(18)]);
}

/// A transaction reads its own writes, inserts and deletions.
///
/// No other transaction reads them before the commit.
pub async fn own_writes_are_read(fixture: &Fixture) {
    fixture.put(&[("x", 10), ("y", 20)]).await;
    for session in [fixture.a.begin(), fixture.a.begin_locking()] {
        session.put("x", 11);
        assert_eq!(session.get("x").await, Some(11));
        session.delete("y");
        assert_eq!(session.get("y").await, None);
        session.insert("z", 30);
        assert_eq!(session.get("z").await, Some(30));
        let again = session.try_insert("z", 31).expect_err("it is there");
        assert_eq!(again.kind(), ErrorKind::Exists, "{again}");
        session.put("z", 32);
        assert_eq!(session.get("z").await, Some(32));
        session.delete("z");
        assert_eq!(session.get("z").await, None);
        session.insert("z", 33);
        assert_eq!(session.get("z").await, Some(33));
        assert_eq!(fixture.state(&["x", "y", "z"]).await, [Some(10), Some(20), None]);
        session.rollback().await;
    }
    let session = fixture.a.begin();
    session.put("x", 11);
    session.delete("y");
    session.insert("z", 33);
    session.commits().await;
    assert_eq!(fixture.b.look(&["x", "y", "z"]).await, [Some(11), None, Some(33)]);
    assert_eq!(fixture.state(&["x", "y", "z"]).await, [Some(11), None, Some(33)]);
}

/// Between the commit and its apply every reader sees the new content.
///
/// The documents still have the old content.
pub async fn a_commit_that_is_not_applied_is_read(fixture: &Fixture) {
    fixture.put(&[("x", 10), ("y", 20)]).await;
    fixture.gate.close();
    let writer = fixture.a.begin();
    writer.put("x", 11);
    writer.delete("y");
    writer.insert("z", 33);
    writer.commits().await;
    fixture.gate.reached().await;
    let keys = ["x", "y", "z"].map(|id| fixture.a.items.key(id));
    let stands = fixture.store().get_many(&keys).await;
    for (read, old) in stands.iter().zip([Some("\"n\":10"), Some("\"n\":20"), None]) {
        let Read::Found { source, .. } = read else { panic!("locked: {read:?}") };
        assert!(old.is_none_or(|old| source.contains(old)), "it is applied already");
    }
    let another = fixture.another().await;
    for process in [&fixture.a, &fixture.b, &another] {
        for (id, new) in [("x", Some(11)), ("y", None), ("z", Some(33))] {
            assert_eq!(seen_by_all(process, id).await, [new; 2], "{id}");
            let verified = process.domain.reader().verified().get(&process.items, id).await;
            assert_eq!(verified.expect("it is decided").map(|item| item.n), new, "{id}");
        }
    }
    // A transaction of another process applies the commit, and uses its content.
    assert_eq!(another.snapshot(&["x", "y", "z"]).await, [Some(11), None, Some(33)]);
    another.add("x", 100).await;
    another.add("z", 100).await;
    assert_eq!(another.look(&["x", "y", "z"]).await, [Some(111), None, Some(133)]);
    fixture.gate.open();
    assert!(another.domain.shutdown(std::time::Duration::from_secs(120)).await, "drained");
    assert!(fixture.a.domain.shutdown(std::time::Duration::from_secs(120)).await, "drained");
    assert_eq!(fixture.state(&["x", "y", "z"]).await, [Some(111), None, Some(133)]);
}
