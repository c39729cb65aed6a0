//! The memory store passes the conformance suite.
//!
//! Stores that break a rule fail.

mod broken;

use std::sync::Arc;

use broken::{Broken, Fault};
use txn_store::MemoryStore;
use txn_store::conformance::{self, Options};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_store_passes() {
    conformance::run(Arc::new(MemoryStore::new()), "memory").await;
}

#[tokio::test]
async fn memory_store_passes_on_one_thread_with_options() {
    let options = Options::new("memory").with_versions_survive_drop(false).with_race(3, 4);
    conformance::run(Arc::new(MemoryStore::new()), options).await;
}

/// The suite detects each fault, with the words of the rule. The rule is the broken one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_breaks_a_rule_fails() {
    let faults = [
        (Fault::None, None),
        (Fault::ReplaceIgnoresVersion, Some("replace at an older version is Conflict")),
        (Fault::DeleteIgnoresVersion, Some("delete at an older version is Conflict")),
        (Fault::ReplaceMakesMissing, Some("replace of a missing document")),
        (Fault::CreateReplaces, Some("create of an existing document is Conflict")),
        (Fault::CheckWrites, Some("check writes no document")),
        (Fault::CheckHoldsAlways, Some("no JSON object is Invalid")),
        (Fault::VerifyHoldsAlways, Some("verify Some of an absent document is Conflict")),
        (Fault::VersionsReturn, Some("a version does not return")),
        (Fault::DroppedComesBack, Some("is MissingCollection")),
        (Fault::OutcomesReversed, Some("outcomes come in the order")),
        (Fault::ReadsReversed, Some("answers of read_primary come in the order")),
        (Fault::WritesReversed, Some("create")),
        (Fault::ScanDropsLastPage, Some("finds every document")),
        (Fault::ScanRepeats, Some("finds each document once")),
        (Fault::ScanIgnoresSize, Some("at most as many documents as asked for")),
        (Fault::ScanIgnoresFilter, Some("only what the filter asks for")),
        (Fault::ScanIgnoresNumber, Some("only what the filter asks for")),
        (Fault::ScanNeedsNumber, Some("finds every document")),
        (Fault::ScanIgnoresRange, Some("only what the filter asks for")),
        (Fault::AliasNotRequired, Some("require_alias")),
        (Fault::BlockIgnored, Some("blocked collection is Rejected")),
        (Fault::BadIdHarmsBatch, Some("does not harm the rest of its batch")),
        (Fault::IdsTrimmed, Some("odd id")),
        (Fault::RoutingForgotten, Some("with its routing")),
        (Fault::ValuesReformatted, Some("keeps the bytes")),
        (Fault::LinesExecuted, Some("nothing inside a source is executed")),
        (Fault::WritesRetried, Some("create of an absent document is applied")),
        (Fault::WritesLost, Some("broken rule")),
        (Fault::CheckThenWrite, Some("in a race")),
        (Fault::ReadsHang, Some("no call waits without bound")),
        (Fault::ListIsShort, Some("list_collections names every collection")),
        (Fault::OwnerStays, Some("a released collection has no owner")),
        (Fault::TimeInSeconds, Some("server_time is the time since the Unix epoch")),
        (Fault::IdentityRemembered, Some("identify of a dropped collection fails")),
        (Fault::IncarnationOfAnother, Some("versions carry the incarnation")),
    ];
    let mut misses = Vec::new();
    for (fault, rule) in faults {
        let store = Arc::new(Broken::new(fault));
        let patience =
            std::time::Duration::from_secs(if fault == Fault::ReadsHang { 1 } else { 60 });
        let options = Options::new("broken").with_patience(patience).with_race(8, 8);
        let verdict = tokio::spawn(conformance::run(store, options)).await;
        let message = verdict.err().map(|error| {
            let panic = error.into_panic();
            panic.downcast_ref::<String>().cloned().unwrap_or_default()
        });
        let fits = match (rule, &message) {
            (None, None) => true,
            (Some(rule), Some(message)) => {
                message.starts_with("conformance: broken rule") && message.contains(rule)
            }
            _ => false,
        };
        if !fits {
            misses.push(format!("{fault:?}: wanted {rule:?}, got {message:?}"));
        }
    }
    assert!(misses.is_empty(), "{}", misses.join("\n"));
}
