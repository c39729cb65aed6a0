//! Findings of the audit: a lock, an open record, a missing unit.
//!
//! Each test plants its finding through a plain handle of the file.

use std::future::Future;

use serde_json::{Value, json};
use txn_core::store::{Filter, Key, Outcome, Read, Store, Write, WriteOp};
use txn_fixtures::plain_store;
use txn_redb::RedbStore;

use super::{Desk, Ran};

/// Opens the file without the engine.
pub(super) fn beside<F: Future>(desk: &Desk, plant: impl FnOnce(RedbStore) -> F) -> F::Output {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let store = RedbStore::open(desk.file()).expect("opens");
        let planted = plant(store.clone()).await;
        store.close();
        planted
    })
}

/// Changes a document like a plain client.
fn change(desk: &Desk, collection: &str, id: &str, edit: impl FnOnce(&mut Value)) {
    beside(desk, |store| async move { plain_store::change(&store, collection, id, edit).await });
}

fn findings(ran: &Ran) -> Vec<String> {
    let all = &ran.json()[0];
    assert_eq!(all["clean"], false);
    let findings = all["findings"].as_array().expect("a list");
    findings.iter().map(|f| f["finding"].as_str().expect("a word").to_owned()).collect()
}

/// The current tid of a transfer, for a simulated dead attempt.
fn tid_of_a_transfer(desk: &Desk) -> String {
    let ran = desk.run("--json transfer alice:-1 bob:1").done();
    ran.json()[0]["tid"].as_str().expect("a tid").to_owned()
}

/// A tid of the same moment without a record.
fn stranger(tid: &str) -> String {
    let mut parts: Vec<&str> = tid.split('-').collect();
    parts[3] = "8007";
    parts.join("-")
}

#[test]
fn a_missing_unit_is_found() {
    let desk = Desk::with_accounts();
    desk.run("transfer alice:-30 bob:30").done();
    change(&desk, "bank-accounts", "bob", |bob| bob["balance"] = json!(29));
    let ran = desk.run("--json audit");
    assert_eq!(ran.code, 3);
    assert_eq!(findings(&ran), ["balance", "total"]);
    let ran = desk.run("audit");
    assert_eq!(ran.code, 3);
    assert!(ran.out.contains("bob holds 29 EUR, the ledger says 30: -1"), "{}", ran.out);
    assert!(ran.out.contains("the balances sum to 99 EUR, the deposits to 100: -1"), "{}", ran.out);
    // A unit in the wrong account is a finding, too.
    change(&desk, "bank-accounts", "alice", |alice| alice["balance"] = json!(71));
    assert_eq!(findings(&desk.run("--json audit")), ["balance", "balance"]);
}

#[test]
fn a_forged_ledger_is_found() {
    let desk = Desk::with_accounts();
    desk.run("transfer alice:-30 bob:30 --id k").done();
    change(&desk, "bank-transfers", "k", |k| k["legs"][0]["amount"] = json!(-29));
    assert_eq!(findings(&desk.run("--json audit")), ["unbalanced", "balance"]);
    change(&desk, "bank-transfers", "k", |k| k["legs"] = json!("none"));
    assert_eq!(findings(&desk.run("--json audit")), ["damaged", "balance", "balance"]);
}

#[test]
fn left_lock_is_found_and_recovered() {
    let desk = Desk::with_accounts();
    let tid = stranger(&tid_of_a_transfer(&desk));
    let lock = |account: &mut Value| account["transaction_tid"] = json!(tid);
    change(&desk, "bank-accounts", "alice", lock);
    let ran = desk.run("--json audit --no-recover");
    assert_eq!((ran.code, findings(&ran)), (3, vec!["locked".to_owned()]));
    assert_eq!(ran.json()[0]["findings"][0]["holder"], tid);
    let ran = desk.run("audit --no-recover");
    assert!(ran.out.contains("FOUND: bank-accounts/alice is locked by"), "{}", ran.out);
    assert!(ran.out.contains("audit again when nothing does"), "{}", ran.out);
    // The janitor releases the lock.
    let ran = desk.run("--json audit").done();
    assert_eq!(ran.json()[0]["recovered"], 1);
    let voided = json!([{ "tid": tid, "documents": ["bank-accounts/alice"] }]);
    assert_eq!(ran.json()[0]["voided"], voided);
    let ran = desk.run("--json audit --no-recover").done();
    assert_eq!((&ran.json()[0]["recovered"], &ran.json()[0]["voided"]), (&Value::Null, &json!([])));
    assert_eq!(desk.balance("alice"), 99);
}

#[test]
fn deleted_record_of_a_locked_document_is_noted() {
    let desk = Desk::with_accounts();
    let tid = tid_of_a_transfer(&desk);
    let attempt = tid.clone();
    beside(&desk, |store| async move {
        let key = Key::new(time_of_partition(&store, &attempt).await, attempt.as_str());
        let read = store.read_primary(std::slice::from_ref(&key)).await.remove(0);
        let Read::Found { version, .. } = read else { panic!("{read:?}") };
        let outcome =
            store.write_many(&[Write::new(key, WriteOp::Delete(version))]).await.remove(0);
        assert!(matches!(outcome, Outcome::Applied(_)), "{outcome:?}");
    });
    for id in ["alice", "bob"] {
        change(&desk, "bank-accounts", id, |account| account["transaction_tid"] = json!(tid));
    }
    let ran = desk.run("audit").done();
    let note = format!("NOTE: the transaction {tid} has no record, and its locks on ");
    assert!(ran.out.contains(&note), "{}", ran.out);
    assert!(ran.out.contains("bank-accounts/alice") && ran.out.contains("bank-accounts/bob"));
}

#[test]
fn lock_without_a_valid_tid_is_damage() {
    let desk = Desk::with_accounts();
    let lock = |account: &mut Value| account["transaction_tid"] = json!("me, myself");
    change(&desk, "bank-accounts", "alice", lock);
    for words in ["--json audit --no-recover", "--json audit"] {
        let ran = desk.run(words);
        assert_eq!(ran.code, 3, "{}", ran.err);
        let found = findings(&ran);
        assert!(found.contains(&"damaged".to_owned()), "{found:?}");
    }
    let ran = desk.run("transfer alice:-1 bob:1");
    ran.refused(3, "alice");
}

#[test]
fn an_open_record_is_found_and_recovered() {
    let desk = Desk::with_accounts();
    let tid = tid_of_a_transfer(&desk);
    let stranger = stranger(&tid);
    // The record of this transfer, as that of an attempt that died after a heartbeat.
    beside(&desk, |store| async move {
        let day = time_of_partition(&store, &tid).await;
        let Read::Found { source, .. } =
            store.read_primary(&[Key::new(day.clone(), tid.as_str())]).await.remove(0)
        else {
            panic!("no record");
        };
        let mut record: Value = serde_json::from_str(&source).expect("JSON");
        record["state"] = json!("pending");
        record["tid"] = json!(stranger);
        record["attempt"] = json!(7);
        record["commit_version"] = Value::Null;
        let write = Write::new(
            Key::new(day, stranger.as_str()),
            WriteOp::Create(record.to_string().into()),
        );
        let outcome = store.write_many(&[write]).await.remove(0);
        assert!(matches!(outcome, Outcome::Applied(_)), "{outcome:?}");
    });
    let ran = desk.run("--json audit --no-recover");
    assert_eq!((ran.code, findings(&ran)), (3, vec!["open".to_owned()]));
    assert_eq!(ran.json()[0]["findings"][0]["state"], "pending");
    let ran = desk.run("--json audit").done();
    assert_eq!(ran.json()[0]["recovered"], 1);
}

/// The partition of a record, found by a scan.
async fn time_of_partition(store: &RedbStore, tid: &str) -> String {
    let registry = store.scan("txn-registry", &Filter::All, 100, None).await.expect("scans");
    let domain = registry.documents.iter().find(|(key, ..)| &*key.id == "domain:bank");
    let (.., source) = domain.expect("the domain document");
    let document: Value = serde_json::from_str(source).expect("JSON");
    for name in document["partitions"].as_object().expect("an object").values() {
        let name = name.as_str().expect("a name");
        let found = store.read_primary(&[Key::new(name, tid)]).await.remove(0);
        if matches!(found, Read::Found { .. }) {
            return name.to_owned();
        }
    }
    panic!("no partition holds {tid}");
}
