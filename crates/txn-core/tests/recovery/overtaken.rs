//! Commits whose lock a plain client takes off before they are applied, while others write on.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use txn_core::AttemptId;
use txn_core::store::Key;

use super::records::held_back;
use super::shop::{Dies, Shop};

/// A document, or a record, as it stands.
async fn json_of(w: &Shop, key: &Key) -> Value {
    let (_, source) = w.stored(key).await.expect("it exists");
    serde_json::from_str(&source).expect("JSON")
}

/// What stands in a list.
fn compact(tid: AttemptId) -> Value {
    json!(tid.to_string().replace('-', ""))
}

/// Others write a document that is locked, as if it were not: the list keeps its oldest entry, and these.
async fn written_over(w: &Shop, key: &Key, commits: &[AttemptId]) {
    let mut document = json_of(w, key).await;
    let oldest = document["transaction_recent"][0].clone();
    let listed = std::iter::once(oldest).chain(commits.iter().copied().map(compact));
    document["transaction_recent"] = listed.collect();
    document["transaction_version"] = json!(commits.last());
    document.as_object_mut().expect("an object").remove("transaction_tid").expect("it is locked");
    w.plainly(key, &document.to_string()).await;
}

/// The one that committed wrote the document again itself, and what stood under its lock was taken out of the list.
#[tokio::test(start_paused = true)]
async fn an_owner_tells_of_a_commit_that_others_did_not_follow() {
    for is_followed in [false, true] {
        let w = Shop::of(2).await;
        // So that there is an older commit than the one under the lock.
        let earlier = w.process(Dies::Never).await;
        for n in [1, 2] {
            earlier.put_all(2, n).await.expect("commits");
        }
        earlier.domain.shutdown(Duration::from_secs(30)).await;
        let (owner, tid) = held_back(&w).await;
        let record = json_of(&w, &Shop::record_key(tid)).await;
        let commit: AttemptId =
            serde_json::from_value(record["commit_version"].clone()).expect("a tid");
        let (first, last) = (commit.with_attempt(1), commit.with_attempt(2));
        let key = owner.items.key("d0000");
        written_over(&w, &key, &[if is_followed { commit } else { first }, last]).await;
        owner.frail.held_back.store(false, Ordering::SeqCst);
        owner.domain.shutdown(Duration::from_secs(30)).await;
        let told = if is_followed { vec![] } else { vec![key] };
        assert_eq!(owner.log.damaged(), told, "followed: {is_followed}");
    }
}
