//! G2-item: each transaction writes a document that the other one only read.

use txn_core::{Error, ReadMode};

use crate::fixture::{Fixture, Item, Process, Session, locking};

/// Write skew: at least one of two doctors must stay.
///
/// Both read that both are present, and each leaves.
pub async fn g2_item_write_skew(fixture: &Fixture) {
    fixture.put(&[("x", 1), ("y", 1)]).await;
    let (first, second) = (fixture.a.begin(), fixture.b.begin());
    for session in [&first, &second] {
        assert_eq!((session.get("x").await, session.get("y").await), (Some(1), Some(1)));
    }
    first.put("x", 0);
    second.put("y", 0);
    second.commits().await;
    first.conflicts().await;
    assert_eq!(fixture.state(&["x", "y"]).await, [Some(1), Some(0)]);

    // At the same time, with retries: the second transaction sees the first.
    let leave = |process: Process, own: &'static str, other: &'static str| async move {
        let items = &process.items;
        let left = process.domain.transact::<_, Error, _>(async |tx| {
            let found = tx.get_many(items, [own, other]).await?;
            let present: i64 = found.into_iter().flatten().map(|item| item.n).sum();
            if present == 2 {
                tx.put(items, own, &Item { n: 0 })?;
            }
            Ok(present == 2)
        });
        left.await.expect("gets through")
    };
    for _ in 0..5 {
        let back = fixture.a.begin();
        back.put("x", 1);
        back.put("y", 1);
        back.commits().await;
        let left = futures::join!(
            tokio::spawn(leave(fixture.a.clone(), "x", "y")),
            tokio::spawn(leave(fixture.b.clone(), "y", "x"))
        );
        let left = [left.0.expect("no panic"), left.1.expect("no panic")];
        assert!(left[0] != left[1], "exactly one leaves: {left:?}");
        let stay = left.map(|gone| Some(i64::from(!gone)));
        assert_eq!(fixture.state(&["x", "y"]).await, stay);
    }
}

/// Write skew over absent documents.
///
/// Each transaction finds both documents missing, and inserts one.
pub async fn g2_item_write_skew_through_absent_documents(fixture: &Fixture) {
    let read_both = async |session: &Session| {
        assert_eq!((session.get("x").await, session.get("y").await), (None, None));
    };
    let (first, second) = (fixture.a.begin(), fixture.b.begin());
    read_both(&first).await;
    read_both(&second).await;
    first.insert("x", 1);
    second.insert("y", 1);
    first.commits().await;
    second.conflicts().await;
    assert_eq!(fixture.state(&["x", "y"]).await, [Some(1), None]);
    // A transaction that only reads, and finds one of two documents missing that were inserted
    // together.
    let (reader, writer) = (fixture.a.begin_read_only(), fixture.b.begin());
    assert_eq!(reader.get("y").await, None);
    writer.insert("y", 2);
    writer.insert("z", 2);
    writer.commits().await;
    assert_eq!(reader.get("z").await, Some(2));
    reader.conflicts().await;
    assert_eq!(fixture.state(&["x", "y", "z"]).await, [Some(1), Some(2), Some(2)]);
}

/// Write skew with locked reads: the older transaction wounds the younger one.
///
/// The conflict is at the document that both want.
pub async fn g2_item_write_skew_of_locked_reads(fixture: &Fixture) {
    fixture.put(&[("x", 1), ("y", 1)]).await;
    let options = locking().with_read_mode(ReadMode::Lock);
    let older = fixture.a.begin_with(&options);
    fixture.b.is_younger_than(&older).await;
    let younger = fixture.b.begin_with(&options);
    assert_eq!(younger.get("x").await, Some(1));
    assert_eq!(younger.get("y").await, Some(1));
    assert_eq!(older.get("x").await, Some(1));
    assert_eq!(older.get("y").await, Some(1));
    assert!(fixture.wounds() >= 1);
    younger.put("y", 0);
    younger.conflicts().await;
    older.put("x", 0);
    older.commits().await;
    assert_eq!(fixture.state(&["x", "y"]).await, [Some(0), Some(1)]);
}

/// Fekete's anomaly: a reader sees a state of no serial order.
///
/// The two writers alone are serialisable. The checking account loses a fee unless the deposit came
/// first; the reader saw the deposit, but not the fee.
pub async fn g2_item_anomaly_of_a_read_only_transaction(fixture: &Fixture) {
    fixture.put(&[("checking", 0), ("savings", 0)]).await;
    let (fee, deposit) = (fixture.a.begin(), fixture.b.begin());
    assert_eq!((fee.get("checking").await, fee.get("savings").await), (Some(0), Some(0)));
    assert_eq!(deposit.get("savings").await, Some(0));
    deposit.put("savings", 20);
    deposit.commits().await;
    let reader = fixture.b.begin_read_only();
    assert_eq!((reader.get("checking").await, reader.get("savings").await), (Some(0), Some(20)));
    reader.commits().await;
    fee.put("checking", -11);
    fee.conflicts().await;
    assert_eq!(fixture.state(&["checking", "savings"]).await, [Some(0), Some(20)]);
}

/// Long fork: two readers see two independent writes in different orders.
///
/// Each write is a transaction of its own. A reader that saw only the first write, and one that saw
/// only the second, cannot both commit.
pub async fn long_fork(fixture: &Fixture) {
    fixture.put(&[("x", 0), ("y", 0)]).await;
    let (first, second) = (fixture.a.begin_read_only(), fixture.b.begin_read_only());
    assert_eq!(first.get("y").await, Some(0));
    assert_eq!(second.get("x").await, Some(0));
    for (process, id) in [(&fixture.a, "x"), (&fixture.b, "y")] {
        let writer = process.begin();
        writer.put(id, 1);
        writer.commits().await;
    }
    assert_eq!(first.get("x").await, Some(1));
    assert_eq!(second.get("y").await, Some(1));
    first.conflicts().await;
    second.conflicts().await;
    let reader = fixture.a.begin_read_only();
    assert_eq!((reader.get("x").await, reader.get("y").await), (Some(1), Some(1)));
    reader.commits().await;
}

/// G-nonadjacent: a cycle with two anti-dependencies that do not follow each other.
///
/// The first transaction misses a write of the second, the third reads that write and misses one of
/// the fourth, and the first reads the write of the fourth. Snapshot isolation forbids the cycle,
/// and parallel snapshot isolation does not.
pub async fn g_nonadjacent(fixture: &Fixture) {
    fixture.put(&[("x", 0), ("y", 0), ("a", 0), ("b", 0)]).await;
    let (first, third) = (fixture.a.begin(), fixture.b.begin());
    assert_eq!(first.get("x").await, Some(0));
    assert_eq!(third.get("y").await, Some(0));
    let (second, fourth) = (fixture.b.begin(), fixture.a.begin());
    second.put("x", 2);
    second.commits().await;
    fourth.put("y", 4);
    fourth.commits().await;
    assert_eq!(first.get("y").await, Some(4));
    assert_eq!(third.get("x").await, Some(2));
    first.put("a", 1);
    third.put("b", 3);
    first.conflicts().await;
    third.conflicts().await;
    let state = fixture.state(&["x", "y", "a", "b"]).await;
    assert_eq!(state, [Some(2), Some(4), Some(0), Some(0)]);
}
