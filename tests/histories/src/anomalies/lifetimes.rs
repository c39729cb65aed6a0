//! Documents that are inserted and deleted.

use txn_core::{Error, ErrorKind};

use crate::fixture::{Fixture, Item};

/// The second insert of one id fails with `Exists`.
///
/// A transaction that read the absence before conflicts instead, because its read is no longer
/// current.
pub async fn two_inserts_of_one_id(fixture: &Fixture) {
    let (first, blind, looked) = (fixture.a.begin(), fixture.b.begin(), fixture.b.begin());
    assert_eq!(looked.get("x").await, None);
    first.insert("x", 1);
    first.insert("y", 1);
    blind.insert("x", 2);
    blind.insert("z", 2);
    looked.insert("x", 3);
    looked.insert("z", 3);
    first.commits().await;
    blind.fails(ErrorKind::Exists).await;
    // The read is no longer current, so the closure would have to run again.
    looked.conflicts().await;
    assert_eq!(fixture.state(&["x", "y", "z"]).await, [Some(1), Some(1), None]);
    // A put succeeds whether or not the document exists.
    let put = fixture.b.begin();
    put.put("x", 4);
    put.commits().await;
    assert_eq!(fixture.state(&["x"]).await, [Some(4)]);
}

/// Of several concurrent inserts of one id exactly one succeeds.
///
/// All other inserts fail with `Exists`.
pub async fn two_inserts_of_one_id_at_once(fixture: &Fixture) {
    for id in ["a", "b", "c"] {
        let inserts = (0..6).map(|n| {
            let process = if n % 2 == 0 { &fixture.a } else { &fixture.b }.clone();
            tokio::spawn(async move {
                let items = &process.items;
                let insert = process
                    .domain
                    .transact::<_, Error, _>(async |tx| tx.insert(items, id, &Item { n }));
                (n, insert.await)
            })
        });
        let mut winners = Vec::new();
        for insert in inserts.collect::<Vec<_>>() {
            match insert.await.expect("no panic") {
                (n, Ok(())) => winners.push(n),
                (_, Err(error)) => assert_eq!(error.kind(), ErrorKind::Exists, "{error}"),
            }
        }
        assert_eq!(winners.len(), 1, "{winners:?}");
        assert_eq!(fixture.state(&[id]).await, [Some(winners[0])]);
    }
}

/// A deletion and an update after equal reads: the second is refused.
pub async fn a_deletion_and_an_update(fixture: &Fixture) {
    fixture.put(&[("x", 10), ("y", 20)]).await;
    let (deleting, updating) = (fixture.a.begin(), fixture.b.begin());
    for session in [&deleting, &updating] {
        assert_eq!((session.get("x").await, session.get("y").await), (Some(10), Some(20)));
    }
    deleting.delete("x");
    updating.put("x", 11);
    updating.put("y", 21);
    deleting.commits().await;
    updating.conflicts().await;
    assert_eq!(fixture.state(&["x", "y"]).await, [None, Some(20)]);

    let (deleting, updating) = (fixture.a.begin(), fixture.b.begin());
    for session in [&deleting, &updating] {
        assert_eq!((session.get("x").await, session.get("y").await), (None, Some(20)));
    }
    deleting.delete("y");
    updating.put("y", 22);
    updating.commits().await;
    deleting.conflicts().await;
    assert_eq!(fixture.state(&["x", "y"]).await, [None, Some(22)]);
    // A deletion without a read deletes any content.
    let deleting = fixture.a.begin();
    deleting.delete("y");
    deleting.delete("never");
    deleting.commits().await;
    assert_eq!(fixture.state(&["y", "never"]).await, [None, None]);
    assert_eq!(fixture.b.snapshot(&["x", "y"]).await, [None, None]);
}

/// A document that was deleted and inserted again is another document.
///
/// The content is equal, but the earlier reader is refused.
pub async fn a_document_that_is_deleted_and_inserted_again(fixture: &Fixture) {
    fixture.put(&[("x", 10), ("y", 20)]).await;
    let writer = fixture.a.begin();
    assert_eq!(writer.get("x").await, Some(10));
    let deleting = fixture.b.begin();
    deleting.delete("x");
    deleting.commits().await;
    assert_eq!(fixture.a.look(&["x"]).await, [None]);
    let missing = fixture.b.begin();
    assert_eq!(missing.get("x").await, None);
    let inserting = fixture.b.begin();
    inserting.insert("x", 10);
    inserting.commits().await;
    assert_eq!(fixture.a.look(&["x"]).await, [Some(10)]);
    writer.put("x", 11);
    writer.put("y", 21);
    writer.conflicts().await;
    missing.put("y", 22);
    missing.conflicts().await;
    assert_eq!(fixture.state(&["x", "y"]).await, [Some(10), Some(20)]);
}

/// Within one transaction a deletion and an insert are one write.
pub async fn deleted_and_inserted_by_one_transaction(fixture: &Fixture) {
    fixture.put(&[("x", 10)]).await;
    let session = fixture.a.begin();
    session.delete("x");
    session.insert("x", 11);
    session.insert("y", 21);
    session.delete("y");
    let meanwhile = fixture.b.begin_read_only();
    assert_eq!(meanwhile.get("x").await, Some(10));
    session.commits().await;
    assert_eq!(meanwhile.get("y").await, None);
    meanwhile.rollback().await;
    assert_eq!(fixture.state(&["x", "y"]).await, [Some(11), None]);
}
