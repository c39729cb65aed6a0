//! A committed transaction that the server refuses to apply.
//!
//! The transaction stays committed, and reports the refusal.

use std::sync::Arc;

use serde_json::json;
use txn_core::{Error, ErrorKind, LockMode, Options, Raw, TransactionOutcome};
use txn_fixtures::fixture::Fixture;
use txn_sim::tapped::{ApplyGate, Tapped};

pub(crate) async fn mapping_changed_before_the_apply_is_reported(fixture: &Fixture) {
    // An unmapped field accepts any value until it is mapped.
    let mappings = json!({"dynamic": false, "properties": {"balance": {"type": "long"}}});
    let name = fixture.make("things", mappings).await;
    fixture.plain.put(&name, "a", r#"{"balance":1}"#).await;
    fixture.plain.put(&name, "b", r#"{"balance":1}"#).await;
    let gate = Arc::new(ApplyGate::default());
    let tapped = Arc::new(Tapped::new(fixture.store(), gate.clone()));
    let domain = fixture.domain_on(tapped, Fixture::config()).await;
    let things = domain.collection::<Raw>(&name).await.expect("opens");

    gate.close();
    let (fine, odd) = (r#"{"balance":2}"#, r#"{"balance":2,"extra":"text"}"#);
    let committed = domain
        .run::<_, Error, _>(&Options::default(), async |tx| {
            tx.put(&things, "a", &Raw::new(fine))?;
            tx.put(&things, "b", &Raw::new(odd))
        })
        .await
        .expect("commits");
    gate.reached().await;
    let change = json!({"properties": {"extra": {"type": "long"}}});
    fixture.plain.ok("PUT", &format!("/{name}/_mapping"), Some(change.to_string())).await;
    gate.open();
    assert!(
        !domain.shutdown(txn_fixtures::fixture::PATIENCE).await,
        "something is left to a person"
    );

    // Another process, without knowledge of the commit.
    let witness = fixture.domain().await;
    let things = witness.collection::<Raw>(&name).await.expect("opens");
    let commit_version = committed.receipt.commit_version.expect("it wrote");
    let outcome =
        witness.outcome(committed.receipt.tid.expect("it has a record")).await.expect("known");
    assert_eq!(outcome, TransactionOutcome::Committed { commit_version });
    for reader in [witness.reader(), witness.reader().verified()] {
        for (id, text) in [("a", fine), ("b", odd)] {
            let read = reader.get(&things, id).await.expect("reads").expect("exists");
            assert_eq!(read.as_str(), text);
        }
    }
    let together = witness
        .run::<_, Error, _>(&Options::default().with_read_only(true), async |tx| {
            let found = tx.get_many(&things, ["a", "b"]).await?;
            Ok(found.into_iter().flatten().map(|raw| raw.as_str().to_owned()).collect::<Vec<_>>())
        })
        .await;
    match together {
        Ok(together) => assert_eq!(together.value, [fine, odd]),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Damaged, "{error}"),
    }
    for lock_mode in [LockMode::AtCommit, LockMode::AtRead] {
        let options = Options::default().with_lock_mode(lock_mode);
        let refused = witness
            .run::<_, Error, _>(&options, async |tx| {
                tx.get(&things, "b").await?;
                tx.put(&things, "b", &Raw::new(r#"{"balance":3}"#))
            })
            .await
            .expect_err("it is locked for good");
        assert_eq!(refused.kind(), ErrorKind::Damaged, "{refused}");
        assert_eq!(refused.document(), Some(&things.key("b")), "{refused}");
        assert!(refused.to_string().contains("extra"), "{refused}");
    }
    // The other document of the transaction is free.
    witness
        .transact::<_, Error, _>(async |tx| tx.put(&things, "a", &Raw::new(r#"{"balance":4}"#)))
        .await
        .expect("writes");
    let holder = committed.receipt.tid.expect("it has a record");
    let report = witness.admin().inspect().await.expect("looks");
    assert_eq!(report.locked, [(things.key("b"), holder.to_string())], "{report:?}");
    assert_eq!(report.open, [(holder, txn_core::record::State::Committed)], "{report:?}");
    let report = witness.admin().janitor_pass().await.expect("passes");
    assert!(report.damaged.iter().any(|(key, _)| *key == things.key("b")), "{report:?}");
    assert!(report.damaged.iter().any(|(_, what)| what.contains("extra")), "{report:?}");
    assert!(witness.shutdown(txn_fixtures::fixture::PATIENCE).await, "drained");
}
