//! Commits whose locked documents are overwritten before the apply.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use txn_core::AttemptId;
use txn_core::store::Key;

use super::records::held_back;
use crate::support::{Dies, Plain, SharedStore, record_key};

/// Reads a document or a record.
async fn json_of(w: &SharedStore, key: &Key) -> Value {
    let (_, source) = w.memory.stored(key).await.expect("exists");
    serde_json::from_str(&source).expect("JSON")
}

/// Returns a commit version as listed in the recent commits.
fn compact(tid: AttemptId) -> Value {
    json!(tid.to_string().replace('-', ""))
}

/// Overwrites a locked document. The list of recent commits keeps its oldest entry, and `commits`.
async fn written_over(w: &SharedStore, key: &Key, commits: &[AttemptId]) {
    let mut document = json_of(w, key).await;
    let oldest = document["transaction_recent"][0].clone();
    let listed = std::iter::once(oldest).chain(commits.iter().copied().map(compact));
    document["transaction_recent"] = listed.collect();
    document["transaction_version"] = json!(commits.last());
    document.as_object_mut().expect("an object").remove("transaction_tid").expect("locked");
    w.memory.overwrite(key, &document.to_string()).await;
}

/// The list lacks the version under the lock.
///
/// Later commits of the owner's own process are in the list.
#[tokio::test(start_paused = true)]
async fn owner_reports_its_overwritten_commit() {
    for is_followed in [false, true] {
        let w = SharedStore::of(2).await;
        // The document has an older commit than the version under the lock.
        let earlier = w.process(Dies::Never).await;
        for n in [1, 2] {
            earlier.put_all(2, n).await.expect("commits");
        }
        earlier.domain.shutdown(Duration::from_secs(30)).await;
        let (owner, tid) = held_back(&w).await;
        let record = json_of(&w, &record_key(tid)).await;
        let commit: AttemptId =
            serde_json::from_value(record["commit_version"].clone()).expect("a tid");
        let (first, last) = (commit.with_attempt(1), commit.with_attempt(2));
        let key = owner.items.key("d0000");
        written_over(&w, &key, &[if is_followed { commit } else { first }, last]).await;
        owner.held_back.store(false, Ordering::SeqCst);
        owner.domain.shutdown(Duration::from_secs(30)).await;
        let told = if is_followed { vec![] } else { vec![key] };
        assert_eq!(owner.log.damaged(), told, "followed: {is_followed}");
    }
}
