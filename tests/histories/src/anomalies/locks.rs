//! Deadlocks, and one hot document.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Barrier;
use txn_core::{Error, LockMode, Options};

use crate::fixture::{Fixture, Item, Process};

/// Two transactions lock A-B and B-A, step by step.
///
/// The older transaction takes over the lock of the younger one, and the younger one is refused.
pub async fn two_that_lock_crosswise_step_by_step(fixture: &Fixture) {
    fixture.put(&[("x", 10), ("y", 20)]).await;
    let older = fixture.a.begin_locking();
    assert_eq!(older.get("x").await, Some(10));
    fixture.b.is_younger_than(&older).await;
    let younger = fixture.b.begin_locking();
    assert_eq!(younger.get("y").await, Some(20));
    assert_eq!(fixture.wounds(), 0);
    assert_eq!(older.get("y").await, Some(20));
    assert_eq!(fixture.wounds(), 1, "wounded once");
    younger.put("y", 22);
    younger.put("z", 32);
    younger.conflicts().await;
    older.put("x", 11);
    older.put("y", 21);
    older.commits().await;
    assert_eq!(fixture.state(&["x", "y", "z"]).await, [Some(11), Some(21), None]);
}

/// Two transactions lock A-B and B-A: both commit, after a wound.
///
/// Both are retried.
pub async fn two_that_lock_crosswise(fixture: &Fixture) {
    circle(fixture, &["x", "y"]).await;
}

/// Three transactions lock documents in a circle, and all commit.
///
/// Each transaction locks the document that the next one wants.
pub async fn three_that_lock_in_a_circle(fixture: &Fixture) {
    circle(fixture, &["x", "y", "z"]).await;
}

/// Runs a circle of transactions: each adds one to two documents.
///
/// Each locks its own document and then the next one's, and waits between the two until all hold
/// their first lock.
async fn circle(fixture: &Fixture, ids: &[&'static str]) {
    let start: Vec<_> = ids.iter().map(|id| (*id, 0)).collect();
    fixture.put(&start).await;
    let all = Arc::new(Barrier::new(ids.len()));
    let tasks = ids.iter().enumerate().map(|(number, own)| {
        let process = if number % 2 == 0 { &fixture.a } else { &fixture.b }.clone();
        tokio::spawn(add_to_both(process, own, ids[(number + 1) % ids.len()], all.clone()))
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("no panic");
    }
    assert!(fixture.wounds() >= 1, "a circle is opened by a wound");
    assert_eq!(fixture.state(ids).await, vec![Some(2); ids.len()]);
}

async fn add_to_both(process: Process, own: &'static str, other: &'static str, all: Arc<Barrier>) {
    let (items, attempts) = (&process.items, AtomicUsize::new(0));
    let options = Options::default().with_lock_mode(LockMode::AtRead);
    let add = process.domain.run::<_, Error, _>(&options, async |tx| {
        let first = tx.get(items, own).await?.unwrap_or_default();
        if attempts.fetch_add(1, Ordering::SeqCst) == 0 {
            // A transaction may have to start again before this point. The timeout ends the wait of
            // the other ones.
            let _ = tokio::time::timeout(Duration::from_secs(30), all.wait()).await;
        }
        let second = tx.get(items, other).await?.unwrap_or_default();
        tx.put(items, own, &Item { n: first.n + 1 })?;
        tx.put(items, other, &Item { n: second.n + 1 })
    });
    add.await.expect("gets through");
}

/// Fifty transactions add to one document at once.
///
/// Half of them also write a document of their own. No addition is lost, and none counts twice.
pub async fn fifty_that_add_to_one_document(fixture: &Fixture) {
    fixture.put(&[("hot", 0)]).await;
    let tasks = (0..50).map(|number| {
        let process = if number % 2 == 0 { &fixture.a } else { &fixture.b }.clone();
        tokio::spawn(async move {
            let items = &process.items;
            let add = process.domain.transact::<_, Error, _>(async |tx| {
                let hot = tx.get(items, "hot").await?.unwrap_or_default();
                if number % 4 < 2 {
                    tx.insert(items, format!("own-{number}"), &Item { n: hot.n })?;
                }
                tx.put(items, "hot", &Item { n: hot.n + 1 })
            });
            add.await.expect("gets through");
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("no panic");
    }
    assert_eq!(fixture.state(&["hot"]).await, [Some(50)]);
    let owns: Vec<String> =
        (0..50).filter(|number| number % 4 < 2).map(|number| format!("own-{number}")).collect();
    let owns: Vec<&str> = owns.iter().map(String::as_str).collect();
    let mut found: Vec<i64> = fixture.state(&owns).await.into_iter().flatten().collect();
    assert_eq!(found.len(), owns.len());
    found.sort_unstable();
    found.dedup();
    assert_eq!(found.len(), owns.len(), "two saw the same: {found:?}");
}
