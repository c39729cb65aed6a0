//! Concurrent writes of two transactions.

use txn_core::ErrorKind;

use crate::fixture::Fixture;

/// G0. Two transactions write the same two documents in opposite order.
///
/// In the end both documents have the content of the same transaction.
pub async fn g0_dirty_write(fixture: &Fixture) {
    fixture.put(&[("x", 10), ("y", 20)]).await;
    let (first, second) = (fixture.a.begin(), fixture.b.begin());
    first.put("x", 11);
    second.put("x", 12);
    second.put("y", 22);
    first.put("y", 21);
    assert_eq!(fixture.state(&["x", "y"]).await, [Some(10), Some(20)], "nothing is sent yet");
    let results = futures::join!(first.commit(), second.commit());
    let committed = [results.0.is_ok(), results.1.is_ok()];
    for error in [results.0.err(), results.1.err()].into_iter().flatten() {
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    }
    let state = fixture.state(&["x", "y"]).await;
    let (firsts, seconds) = ([Some(11), Some(21)], [Some(12), Some(22)]);
    match committed {
        [true, false] => assert_eq!(state, firsts),
        [false, true] => assert_eq!(state, seconds),
        [true, true] => assert!(state == firsts || state == seconds, "{state:?}"),
        [false, false] => panic!("one of them has to get through"),
    }
}

/// P4. Two transactions read the same content, and both write a result.
///
/// The second is refused, and its retry loses nothing.
pub async fn p4_lost_update(fixture: &Fixture) {
    fixture.put(&[("x", 100), ("y", 0)]).await;
    // With one document, which is written without a record, and with two.
    for (also, sum) in [(None, 130), (Some("y"), 160)] {
        let (first, second) = (fixture.a.begin(), fixture.b.begin());
        let (one, other) = (first.get("x").await, second.get("x").await);
        assert_eq!(one, other);
        let before = one.expect("exists");
        first.put("x", before + 10);
        second.put("x", before + 20);
        if let Some(also) = also {
            first.put(also, 1);
            second.put(also, 2);
        }
        second.commits().await;
        first.conflicts().await;
        assert_eq!(fixture.state(&["x"]).await, [Some(before + 20)]);
        fixture.a.add("x", 10).await;
        assert_eq!(fixture.state(&["x"]).await, [Some(sum)]);
    }
    assert_eq!(fixture.state(&["y"]).await, [Some(2)]);
}

/// P4 with a locked document: the younger transaction waits.
///
/// The older transaction holds the lock.
///
/// The younger transaction then builds on the write of the older one.
pub async fn p4_lost_update_of_one_that_waits(fixture: &Fixture) {
    fixture.put(&[("x", 100)]).await;
    let older = fixture.a.begin_locking();
    assert_eq!(older.get("x").await, Some(100));
    fixture.b.is_younger_than(&older).await;
    let waiting = tokio::spawn({
        let process = fixture.b.clone();
        async move {
            let younger = process.begin_locking();
            let seen = younger.get("x").await;
            younger.put("x", seen.expect("exists") + 20);
            younger.commits().await;
            seen
        }
    });
    // The younger transaction must not pass the lock.
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    assert!(!waiting.is_finished(), "it passed an older one's lock");
    assert_eq!(fixture.b.look(&["x"]).await, [Some(100)]);
    older.put("x", 110);
    older.commits().await;
    assert_eq!(waiting.await.expect("no panic"), Some(110));
    assert_eq!(fixture.state(&["x"]).await, [Some(130)]);
}

/// OTV. A transaction with visible writes does not vanish again.
///
/// A reader of one of its documents and of a later transaction's other document is refused.
pub async fn otv_observed_transaction_vanishes(fixture: &Fixture) {
    fixture.put(&[("x", 10), ("y", 20)]).await;
    let (first, second) = (fixture.a.begin(), fixture.b.begin());
    for (session, x, y) in [(&first, 11, 19), (&second, 12, 18)] {
        session.put("x", x);
        session.put("y", y);
    }
    first.commits().await;
    let (third, fourth) = (fixture.b.begin_read_only(), fixture.a.begin_read_only());
    assert_eq!(third.get("x").await, Some(11));
    assert_eq!(fourth.get("y").await, Some(19));
    second.commits().await;
    assert_eq!(third.get("y").await, Some(18));
    assert_eq!(fourth.get("x").await, Some(12));
    // A read returns the same content each time within one transaction.
    assert_eq!((third.get("x").await, fourth.get("y").await), (Some(11), Some(19)));
    third.conflicts().await;
    fourth.conflicts().await;
    for process in [&fixture.a, &fixture.b] {
        assert_eq!(process.look(&["x", "y"]).await, [Some(12), Some(18)]);
        assert_eq!(process.snapshot(&["x", "y"]).await, [Some(12), Some(18)]);
    }
}
