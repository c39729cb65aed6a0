//! Impossible requests are refused in time, with a reason, and leave nothing.

use std::sync::Arc;

use serde_json::json;
use txn_core::{Config, DocumentId, Domain, Error, ErrorKind, LockMode, Options, Raw};
use txn_fixtures::bank::{self, Account, account};
use txn_fixtures::fixture::Fixture;
use txn_sim::CountingStore;

pub(crate) async fn missing_and_foreign_collections_are_refused(fixture: &Fixture) {
    let domain = fixture.domain().await;
    let missing = domain.collection::<txn_core::Typed<Account>>(&fixture.name("missing")).await;
    let missing = missing.expect_err("it does not exist");
    assert_eq!(missing.kind(), ErrorKind::Misconfigured, "{missing}");
    assert!(missing.to_string().contains("missing"), "{missing}");

    let accounts = bank::open(&domain, &fixture.name("accounts")).await;
    let other = txn_fixtures::unique("u");
    let stranger =
        Domain::open_or_create(fixture.store(), &other, Config::default()).await.expect("opens");
    let taken = stranger.collection::<txn_core::Typed<Account>>(accounts.name()).await;
    let taken = taken.expect_err("it belongs to another domain");
    assert_eq!(taken.kind(), ErrorKind::Misconfigured, "{taken}");
    assert!(taken.to_string().contains(domain.name()), "{taken}");
    assert!(stranger.shutdown(txn_fixtures::fixture::PATIENCE).await, "drained");
    fixture.drop_domain(&other).await;

    // Dropped while a handle is in use.
    let gone = bank::open(&domain, &fixture.name("gone")).await;
    fixture.plain.ok("DELETE", &format!("/{}", gone.name()), None).await;
    let refused = domain
        .transact::<_, Error, _>(async |tx| {
            tx.put(&accounts, "a0", &account(1))?;
            tx.put(&gone, "a0", &account(1))
        })
        .await
        .expect_err("there is no such collection any more");
    assert_eq!(refused.kind(), ErrorKind::Misconfigured, "{refused}");
    assert_eq!(refused.document(), Some(&gone.key("a0")), "{refused}");
    assert_eq!(domain.reader().get(&accounts, "a0").await.expect("reads"), None);
    let (status, _) = fixture.plain.text("GET", &format!("/{}", gone.name()), None).await;
    assert_eq!(status, 404, "nothing brings it back");
    assert!(domain.shutdown(txn_fixtures::fixture::PATIENCE).await, "drained");
    let report = domain.admin().inspect().await.expect("looks");
    assert!(report.locked.is_empty() && report.open.is_empty(), "{report:?}");
    assert_eq!(report.damaged.len(), 1, "the claim of what was dropped: {report:?}");
}

pub(crate) async fn impossible_ids_are_refused(fixture: &Fixture) {
    let store = Arc::new(CountingStore::new(fixture.store()));
    let domain = fixture.domain_on(store.clone(), Fixture::config()).await;
    let accounts = bank::open(&domain, &fixture.name("accounts")).await;
    let before = store.counts();
    let long = "é".repeat(257);
    let faults = [
        DocumentId::from(long.as_str()),
        DocumentId::from(""),
        DocumentId::routed("id", long.as_str()),
        DocumentId::routed("id", ""),
    ];
    for fault in faults {
        for lock_mode in [LockMode::AtCommit, LockMode::AtRead] {
            let options = Options::default().with_lock_mode(lock_mode);
            let refused = domain
                .run::<_, Error, _>(&options, async |tx| {
                    tx.put(&accounts, "fine", &account(1))?;
                    tx.put(&accounts, fault.clone(), &account(1))
                })
                .await
                .expect_err("no such id");
            assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
            assert_eq!(refused.document(), Some(&accounts.key(fault.clone())));
            let read = domain
                .run::<_, Error, _>(&options, async |tx| tx.get(&accounts, fault.clone()).await);
            assert_eq!(read.await.expect_err("no such id").kind(), ErrorKind::Invalid);
        }
    }
    let counts = store.counts().since(before);
    assert_eq!(counts.requests(), 0, "{counts}");
    // The longest possible id and routing.
    let longest = "é".repeat(256);
    let longest = DocumentId::routed(longest.as_str(), longest.as_str());
    domain
        .transact::<_, Error, _>(async |tx| {
            tx.put(&accounts, "fine", &account(1))?;
            tx.put(&accounts, longest.clone(), &account(2))
        })
        .await
        .expect("fits");
    let read = domain.reader().verified().get(&accounts, longest).await.expect("reads");
    assert_eq!(read, Some(account(2)));
    fixture.settle(&domain).await;
}

pub(crate) async fn document_that_violates_the_mapping_is_refused(fixture: &Fixture) {
    let mappings = json!({"properties": {
        "balance": {"type": "long"}, "since": {"type": "date", "format": "strict_date"},
    }});
    let name = fixture.make("accounts", mappings).await;
    let domain = fixture.domain().await;
    let raw = domain.collection::<Raw>(&name).await.expect("opens");
    let fine = Raw::new(r#"{"balance":1,"since":"2024-02-29"}"#);
    let write = async |options: &Options, second: &str| {
        domain
            .run::<_, Error, _>(options, async |tx| {
                tx.get(&raw, "b").await?;
                tx.put(&raw, "a", &fine)?;
                tx.put(&raw, "b", &Raw::new(second))?;
                tx.put(&raw, "c", &fine)
            })
            .await
    };
    let look = async |id: &str| fixture.plain.source(&name, id).await;
    // On documents that will be inserted, and on documents that exist.
    for round in 0..2 {
        let before = (look("a").await, look("b").await, look("c").await);
        for lock_mode in [LockMode::AtCommit, LockMode::AtRead] {
            for (second, field) in [
                (r#"{"balance":"plenty","since":"2024-02-29"}"#, "balance"),
                (r#"{"balance":1,"since":"yesterday"}"#, "since"),
            ] {
                let options = Options::default().with_lock_mode(lock_mode);
                let refused = write(&options, second).await.expect_err("it violates the mapping");
                assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
                assert!(refused.to_string().contains(field), "{refused}");
                assert_eq!(refused.document(), Some(&raw.key("b")), "{refused}");
                let report = domain.admin().inspect().await.expect("looks");
                assert!(report.is_clean(), "a lock stays: {report:?}");
            }
        }
        assert_eq!((look("a").await, look("b").await, look("c").await), before);
        if round == 0 {
            let applied = Options::default().with_wait_for(txn_core::WaitFor::Apply);
            write(&applied, fine.as_str()).await.expect("it fits");
        }
    }
    // A single document, without a dry run.
    let alone = domain
        .transact::<_, Error, _>(async |tx| tx.put(&raw, "a", &Raw::new(r#"{"balance":"none"}"#)))
        .await
        .expect_err("it violates the mapping");
    assert_eq!(alone.kind(), ErrorKind::Invalid, "{alone}");
    assert!(alone.to_string().contains("balance"), "{alone}");
    fixture.settle(&domain).await;
}

/// A term of over 32,766 bytes is refused by the write.
///
/// A dry run accepts the term.
pub(crate) async fn term_that_cannot_be_indexed_is_refused(fixture: &Fixture) {
    let keyword = json!({"type": "keyword"});
    let whole = json!({"type": "text", "analyzer": "keyword"});
    let domain = fixture.domain().await;
    let long = "x".repeat(32_767);
    let mut let_through = Vec::new();
    for (what, field) in [("keyword", keyword), ("text", whole)] {
        let name = fixture.make(what, json!({"properties": {"name": field}})).await;
        let raw = domain.collection::<Raw>(&name).await.expect("opens");
        let long = Raw::new(json!({"name": long}).to_string());
        let refused = domain
            .transact::<_, Error, _>(async |tx| {
                tx.put(&raw, "a", &Raw::new(r#"{"name":"short"}"#))?;
                tx.put(&raw, "b", &long)
            })
            .await;
        let Err(refused) = refused else {
            let_through.push(what);
            continue;
        };
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
        assert!(refused.to_string().contains("name"), "{refused}");
        assert_eq!(fixture.plain.source(&name, "a").await, None);
        assert_eq!(fixture.plain.source(&name, "b").await, None);
    }
    assert!(let_through.is_empty(), "committed, and never to be applied: {let_through:?}");
    fixture.settle(&domain).await;
}
