//! Documents as other clients see them, and fields that the engine keeps.

use serde_json::json;
use txn_core::{DocumentId, Error, ErrorKind, LockMode, Options, Raw, WaitFor};
use txn_fixtures::bank::{self, Account, Accounts, account};
use txn_fixtures::fixture::Fixture;

pub(crate) async fn acknowledged_as_applied_or_searchable(fixture: &Fixture) {
    let name = fixture.name("accounts");
    // Only the engine refreshes the index.
    let settings = json!({"refresh_interval": "-1"});
    let mappings: serde_json::Value = serde_json::from_str(bank::MAPPINGS).expect("JSON");
    fixture.plain.make(&name, &json!({"settings": settings, "mappings": mappings})).await;
    let domain = fixture.domain().await;
    let accounts: Accounts = domain.collection(&name).await.expect("opens");
    // Two documents commit by a record, and a single one without.
    for (ids, balance) in [(["a", "b"], 1), (["a", "b"], 2), (["a", "a"], 3)] {
        for acknowledge in [WaitFor::Apply, WaitFor::Refresh] {
            let balance = balance * 10 + i64::from(acknowledge == WaitFor::Refresh);
            let options = Options::default().with_wait_for(acknowledge);
            let committed = domain
                .run::<_, Error, _>(&options, async |tx| {
                    for id in ids {
                        tx.put(&accounts, id, &account(balance))?;
                    }
                    Ok(())
                })
                .await
                .expect("writes");
            assert!(committed.receipt.applied);
            for id in ids {
                let source = fixture.plain.source(&name, id).await.expect("it is there");
                let source: serde_json::Value = serde_json::from_str(&source).expect("JSON");
                assert_eq!(source["balance"], balance);
                assert_eq!(source.get("transaction_tid"), None, "{source}");
                let commit_version =
                    committed.receipt.commit_version.expect("it wrote").to_string();
                assert_eq!(source["transaction_version"], commit_version.as_str());
            }
            let query = json!({"term": {"balance": balance}});
            let searched = fixture.plain.count(&name, &query).await;
            let distinct = if ids[0] == ids[1] { 1 } else { 2 };
            match acknowledge {
                WaitFor::Refresh => assert_eq!(searched, distinct),
                _ => assert_eq!(searched, 0),
            }
        }
    }
    fixture.settle(&domain).await;
}

pub(crate) async fn routing_is_kept(fixture: &Fixture) {
    let mappings = json!({
        "_routing": {"required": true}, "properties": {"balance": {"type": "long"}},
    });
    let name = fixture.make("accounts", mappings).await;
    fixture.plain.put(&name, "plain?routing=north", r#"{"balance":5}"#).await;
    let domain = fixture.domain().await;
    let accounts: Accounts = domain.collection(&name).await.expect("opens");
    let south = |id: &str| DocumentId::routed(id, "south");
    let north = || DocumentId::routed("plain", "north");
    let applied = Options::default().with_wait_for(WaitFor::Apply);
    domain
        .run::<_, Error, _>(&applied, async |tx| {
            let found = tx.get(&accounts, north()).await?.expect("exists");
            tx.put(&accounts, north(), &account(found.balance - 3))?;
            tx.insert(&accounts, south("new"), &account(3))?;
            tx.insert(&accounts, south("doomed"), &account(0))
        })
        .await
        .expect("moves");
    for lock_mode in [LockMode::AtCommit, LockMode::AtRead] {
        domain
            .run::<_, Error, _>(&applied.clone().with_lock_mode(lock_mode), async |tx| {
                let from = tx.get(&accounts, north()).await?.expect("exists");
                let to = tx.get(&accounts, south("new")).await?.expect("exists");
                tx.put(&accounts, north(), &account(from.balance - 1))?;
                tx.put(&accounts, south("new"), &account(to.balance + 1))?;
                tx.delete(&accounts, south("doomed"))
            })
            .await
            .expect("moves");
    }
    let seen = domain.reader().verified().get_many(&accounts, [north(), south("new")]).await;
    assert_eq!(seen.expect("reads"), [Some(account(0)), Some(account(5))]);
    for (id, balance) in [("plain?routing=north", 0), ("new?routing=south", 5)] {
        let source = fixture.plain.source(&name, id).await.expect("where it was");
        let found: Account = serde_json::from_str(&source).expect("an account");
        assert_eq!(found.balance, balance);
    }
    assert_eq!(fixture.plain.source(&name, "doomed?routing=south").await, None);
    // An id without its routing is not a document of this index.
    let lost =
        domain.transact::<_, Error, _>(async |tx| tx.put(&accounts, "new", &account(1))).await;
    let lost = lost.expect_err("a routing is required");
    assert!(matches!(lost.kind(), ErrorKind::Invalid | ErrorKind::Misconfigured), "{lost}");
    assert!(lost.to_string().contains("routing"), "{lost}");
    fixture.settle(&domain).await;
}

pub(crate) async fn collection_is_opened_by_an_alias(fixture: &Fixture) {
    let name = fixture.make("accounts", serde_json::from_str(bank::MAPPINGS).expect("JSON")).await;
    let alias = fixture.name("alias");
    let add = json!({"actions": [{"add": {"index": name, "alias": alias}}]});
    fixture.plain.ok("POST", "/_aliases", Some(add.to_string())).await;
    let domain = fixture.domain().await;
    let by_alias: Accounts = domain.collection(&alias).await.expect("opens");
    let by_name: Accounts = domain.collection(&name).await.expect("opens");
    assert_eq!(by_alias.name(), name);
    let names = bank::names(2);
    bank::fund(&domain, &by_alias, &names, 10).await;
    // The same documents under both names: each name sees the writes of the other.
    domain
        .transact::<_, Error, _>(async |tx| {
            tx.put(&by_alias, "a0", &account(9))?;
            assert_eq!(tx.get(&by_name, "a0").await?, Some(account(9)));
            tx.put(&by_name, "a1", &account(11))
        })
        .await
        .expect("moves");
    assert_eq!(bank::balances(&domain, &by_name, &names).await, [Some(9), Some(11)]);
    fixture.settle(&domain).await;
}

pub(crate) async fn strict_mapping_is_supported(fixture: &Fixture) {
    let mappings = json!({"dynamic": "strict", "properties": {"balance": {"type": "long"}}});
    let name = fixture.make("accounts", mappings).await;
    fixture.plain.put(&name, "a0", r#"{"balance":10}"#).await;
    fixture.plain.put(&name, "a1", r#"{"balance":10}"#).await;
    let domain = fixture.domain().await;
    let accounts: Accounts = domain.collection(&name).await.expect("opens");
    let names = bank::names(2);
    for lock_mode in [LockMode::AtCommit, LockMode::AtRead] {
        let options = Options::default().with_lock_mode(lock_mode);
        bank::spread(&domain, &accounts, &names, &options).await.expect("moves");
    }
    bank::fund(&domain, &accounts, &["new".to_owned()], 1).await;
    let raw = domain.collection::<Raw>(&name).await.expect("opens");
    let unknown = domain
        .transact::<_, Error, _>(async |tx| {
            tx.put(&raw, "a0", &Raw::new(r#"{"balance":0}"#))?;
            tx.put(&raw, "a1", &Raw::new(r#"{"balance":0,"surprise":1}"#))
        })
        .await
        .expect_err("the mapping is strict");
    assert_eq!(unknown.kind(), ErrorKind::Invalid, "{unknown}");
    assert!(unknown.to_string().contains("surprise"), "{unknown}");
    assert_eq!(bank::balances(&domain, &accounts, &names).await, [Some(8), Some(12)]);
    fixture.settle(&domain).await;
}

pub(crate) async fn documents_need_no_reserved_fields(fixture: &Fixture) {
    let name = fixture.make("accounts", json!({})).await;
    for id in ["a0", "a1", "a2", "null"] {
        fixture.plain.put(&name, id, r#"{"balance":10}"#).await;
    }
    // Other tools leave such an unlocked document.
    let nulls = r#"{"balance":10,"transaction_tid":null,"transaction_version":null}"#;
    fixture.plain.put(&name, "null", nulls).await;
    let domain = fixture.domain().await;
    let accounts: Accounts = domain.collection(&name).await.expect("opens");
    assert_eq!(domain.reader().get(&accounts, "a0").await.expect("reads"), Some(account(10)));
    // A single document, two together, and a deleted one.
    let increment = async |ids: &[&str]| {
        domain
            .transact::<_, Error, _>(async |tx| {
                for id in ids {
                    let found = tx.get(&accounts, *id).await?.expect("exists");
                    tx.put(&accounts, *id, &account(found.balance + 1))?;
                }
                Ok(())
            })
            .await
            .expect("writes");
    };
    increment(&["a0"]).await;
    increment(&["a0"]).await;
    increment(&["a1", "null"]).await;
    domain.transact::<_, Error, _>(async |tx| tx.delete(&accounts, "a2")).await.expect("deletes");
    let names = ["a0", "a1", "null", "a2"].map(str::to_owned);
    let expected = [Some(12), Some(11), Some(11), None];
    assert_eq!(bank::balances(&domain, &accounts, &names).await, expected);
    fixture.settle(&domain).await;
}

/// Text that a JSON parser and printer would change.
const ODD: &str = r#""decimal":1.10,"exponent":1e2,"big":123456789012345678901234567890,"tiny":0.1000000000000000055511151231257827,"escaped":"\u00e9\/\u0041\ud83d\ude00 é 😀","k\u0065y":"v","nested":{"b":[1.0,-0,{"z":1,"a":[]}],"a":{}},"line":"\n\r\u2028""#;

pub(crate) async fn values_keep_their_bytes(fixture: &Fixture) {
    let mappings = json!({"dynamic": false, "properties": {
        "balance": {"type": "long"}, "payload": {"type": "object", "enabled": false},
    }});
    let name = fixture.make("things", mappings).await;
    let payload = format!(r#""payload":{{{ODD}}}"#);
    let first = format!(r#"{{"balance":1,{payload}}}"#);
    fixture.plain.put(&name, "plain", &first).await;
    let domain = fixture.domain().await;
    let things = domain.collection::<Raw>(&name).await.expect("opens");
    let holds = async |id: &str, balance: i64, locked: bool| {
        let source = fixture.plain.source(&name, id).await.expect("it is there");
        assert!(source.contains(&payload), "{source}");
        assert!(source.contains(&format!(r#""balance":{balance}"#)), "{source}");
        assert_eq!(source.contains(r#""transaction_tid":""#), locked, "{source}");
    };
    // Locked, and released without a change.
    let tx = domain.begin(&Options::default().with_lock_mode(LockMode::AtRead)).expect("begins");
    let read = tx.get(&things, "plain").await.expect("reads").expect("exists");
    assert_eq!(read.as_str(), first);
    holds("plain", 1, true).await;
    tx.rollback().await;
    holds("plain", 1, false).await;
    // Locked, applied, and written alone.
    let applied = Options::default().with_wait_for(WaitFor::Apply);
    for (ids, balance) in [(&["plain", "new"][..], 2), (&["plain", "new"][..], 3), (&["new"], 4)] {
        let text = format!(r#"{{"balance":{balance},{payload}}}"#);
        domain
            .run::<_, Error, _>(&applied, async |tx| {
                for id in ids {
                    tx.put(&things, *id, &Raw::new(text.clone()))?;
                }
                Ok(())
            })
            .await
            .expect("writes");
        for id in ids {
            holds(id, balance, false).await;
            let read = domain.reader().verified().get(&things, *id).await.expect("reads");
            assert_eq!(read.expect("exists").as_str(), text);
        }
    }
    fixture.settle(&domain).await;
}
