//! Finished commits whose content another client removed.

use std::time::Duration;

use crate::support::{Item, Plain, World};
use txn_core::Error;
use txn_core::admin::{CommitCheck, LossKind};

const HOUR: Duration = Duration::from_secs(3_600);

const PLAIN: &str = r#"{"n":9}"#;

async fn set(w: &World, ids: &[&str], n: i64) -> String {
    let receipt = w.put(&w.items, ids, &Item { n }).await.expect("commits");
    w.drained().await;
    receipt.tid.expect("two documents have a record").to_string()
}

async fn check(w: &World) -> CommitCheck {
    let check = w.domain.admin().check_commits(HOUR, 100).await.expect("checks");
    assert!(check.faults.is_empty() && !check.truncated, "{check:?}");
    check
}

/// The lost commits: document, transaction and kind.
async fn lost(w: &World) -> Vec<(String, String, LossKind)> {
    let lost = check(w).await.lost.into_iter();
    lost.map(|lost| (lost.document.to_string(), lost.tid.to_string(), lost.kind)).collect()
}

/// Two documents with two commits each. Returns the first source of `a`, and the second tid.
async fn two_commits() -> (World, String, String) {
    let w = World::of(&["a", "b"]).await;
    w.drained().await;
    let first = w.memory.text(&w.items.key("a")).await;
    let second = set(&w, &["a", "b"], 2).await;
    assert_eq!(lost(&w).await, []);
    (w, first, second)
}

#[tokio::test(start_paused = true)]
async fn sound_documents_have_lost_no_commit() {
    let (w, ..) = two_commits().await;
    // A write of a single document leaves no record.
    w.put(&w.items, &["a"], &Item { n: 3 }).await.expect("commits");
    set(&w, &["a", "b"], 4).await;
    let delete = w.domain.transact::<_, Error, _>(async |tx| {
        tx.delete(&w.items, "a")?;
        tx.delete(&w.items, "b")
    });
    delete.await.expect("commits");
    w.drained().await;
    assert_eq!(lost(&w).await, []);
    set(&w, &["a", "b"], 5).await;
    let found = check(&w).await;
    assert_eq!((found.commits, found.documents), (5, 2), "{found:?}");
    assert_eq!(found.lost, []);
}

#[tokio::test(start_paused = true)]
async fn older_content_is_found() {
    let (w, first, second) = two_commits().await;
    w.memory.overwrite(&w.items.key("a"), &first).await;
    let put_back = ("items/a".to_owned(), second.clone(), LossKind::PutBack);
    assert_eq!(lost(&w).await, [put_back]);
    // The next transaction hides the older content, not the lost commit.
    let third = set(&w, &["a", "b"], 3).await;
    let by = third.parse().expect("a tid");
    let unseen = ("items/a".to_owned(), second, LossKind::ReplacedUnseen { by });
    assert_eq!(lost(&w).await, [unseen]);
}

#[tokio::test(start_paused = true)]
async fn plain_overwrite_and_deletion_are_found() {
    let (w, _, second) = two_commits().await;
    w.memory.overwrite(&w.items.key("a"), PLAIN).await;
    w.memory.delete(&w.items.key("b")).await;
    let overwritten = ("items/a".to_owned(), second.clone(), LossKind::Overwritten);
    let deleted = ("items/b".to_owned(), second, LossKind::Deleted);
    assert_eq!(lost(&w).await, [overwritten, deleted]);
}

#[tokio::test(start_paused = true)]
async fn check_covers_the_window_only() {
    let (w, first, _) = two_commits().await;
    w.memory.overwrite(&w.items.key("a"), &first).await;
    let all = w.domain.admin().check_commits(HOUR, 0).await.expect("checks");
    assert!(all.commits == 2 && all.lost.is_empty() && all.truncated, "{all:?}");
    // Records have the time of the machine, which no test moves.
    std::thread::sleep(Duration::from_millis(5));
    let none = w.domain.admin().check_commits(Duration::ZERO, 100).await.expect("checks");
    assert_eq!((none.commits, &none.lost[..]), (0, &[][..]), "{none:?}");
}

/// The commit after the restored content left no record.
#[tokio::test(start_paused = true)]
async fn content_from_before_a_gap_is_found() {
    let w = World::of(&["a", "b"]).await;
    w.drained().await;
    let first = w.memory.text(&w.items.key("a")).await;
    w.put(&w.items, &["a"], &Item { n: 2 }).await.expect("commits");
    let third = set(&w, &["a", "b"], 3).await;
    w.memory.overwrite(&w.items.key("a"), &first).await;
    assert_eq!(lost(&w).await, [("items/a".to_owned(), third, LossKind::PutBack)]);
}

#[tokio::test(start_paused = true)]
async fn loss_after_a_deletion_is_found() {
    let (w, ..) = two_commits().await;
    let delete = w.domain.transact::<_, Error, _>(async |tx| {
        tx.delete(&w.items, "a")?;
        tx.delete(&w.items, "b")
    });
    delete.await.expect("commits");
    let again = set(&w, &["a", "b"], 3).await;
    assert_eq!(lost(&w).await, []);
    w.memory.delete(&w.items.key("b")).await;
    assert_eq!(lost(&w).await, [("items/b".to_owned(), again, LossKind::Deleted)]);
}
