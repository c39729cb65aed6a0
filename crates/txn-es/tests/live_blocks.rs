//! Indices under a write block: reads succeed, and writes fail.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use txn_core::{Config, Domain, ErrorKind, Raw, Transaction};
use txn_store::{CollectionSpec, Key, Outcome, Read, RefusalKind, Role, Store, Write, WriteOp};

use crate::live::{self, Plain};

const SETTINGS: [&str; 3] =
    ["index.blocks.write", "index.blocks.read_only", "index.blocks.read_only_allow_delete"];

async fn set(plain: &Plain, index: &str, setting: &str, value: Value) {
    plain.ok("PUT", &format!("/{index}/_settings"), json!({setting: value})).await;
}

#[tokio::test]
async fn blocked_index_is_read_and_verified() {
    for variable in live::ALL {
        let (store, plain) = (live::store(variable).await, Plain::new(variable));
        let spec = CollectionSpec {
            name: live::unique("blocked"),
            role: Role::Data { owner: None },
            create: true,
            mappings: None,
        };
        let name = store.open_collection(&spec).await.expect("made").name;
        let key = |id: &str| Key::new(name.clone(), id);
        let create = Write::new(key("1"), WriteOp::Create(r#"{"n":1}"#.into()));
        let Outcome::Applied(version) = store.write_many(&[create]).await.remove(0) else {
            panic!("created")
        };
        for setting in SETTINGS {
            set(&plain, &name, setting, json!(true)).await;
            let reads = store.read_primary(&[key("1"), key("2")]).await;
            assert!(
                matches!(&reads[..], [Read::Found { version: v, .. }, Read::Absent] if *v == version),
                "{setting}: {reads:?}"
            );
            let writes = [
                Write::new(key("1"), WriteOp::Verify(Some(version))),
                Write::new(key("2"), WriteOp::Verify(Some(version))),
                Write::new(key("2"), WriteOp::Verify(None)),
                Write::new(key("1"), WriteOp::Verify(None)),
                Write::new(key("1"), WriteOp::Check("{}".into())),
                Write::new(key("1"), WriteOp::Replace("{}".into(), version)),
            ];
            let outcomes = store.write_many(&writes).await;
            let [one, two, three, four, Outcome::Invalid(refusal), Outcome::RejectedInDoubt(_)] =
                &outcomes[..]
            else {
                panic!("{setting}: {outcomes:?}")
            };
            assert_eq!(
                [one, two, three, four],
                [&Outcome::Holds, &Outcome::Conflict, &Outcome::Holds, &Outcome::Conflict]
            );
            assert_eq!(refusal.kind, RefusalKind::Blocked, "{refusal:?}");
            assert!(refusal.reason.contains(setting), "{refusal:?}");
            set(&plain, &name, setting, Value::Null).await;
        }
        store.drop_collection(&name).await.expect("dropped");
    }
}

#[tokio::test]
async fn write_to_a_blocked_index_is_refused_at_once() {
    for variable in live::ALL {
        let (store, plain) = (live::store(variable).await, Plain::new(variable));
        let name = live::unique("refused");
        let config = Config::default().with_timeout(Duration::from_secs(20));
        let domain =
            Domain::open_or_create(Arc::new(store.clone()), &name, config).await.expect("opens");
        let documents = domain.create_collection::<Raw>(&name, None).await.expect("made");
        let both = async || {
            let put = async |tx: &Transaction| {
                tx.put(&documents, "a", &Raw::new(r#"{"n":1}"#))?;
                tx.put(&documents, "b", &Raw::new(r#"{"n":1}"#))
            };
            domain.transact(put).await
        };
        both().await.expect("written");
        let report = domain.barrier(Duration::from_secs(20)).await.expect("passes");
        report.into_result().expect("applied");
        set(&plain, &name, "index.blocks.write", json!(true)).await;
        let read = domain.transact(async |tx| tx.get_many(&documents, ["a", "b"]).await).await;
        let read = read.expect("read");
        assert!(read.iter().all(Option::is_some), "{read:?}");
        let error = both().await.expect_err("blocked");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        let text = error.to_string();
        assert!(text.contains("set index.blocks.write"), "{text}");
        assert!(!text.contains("before the deadline"), "{text}");
        set(&plain, &name, "index.blocks.write", Value::Null).await;
        both().await.expect("written again");
        domain.admin().remove().await.expect("removed");
        store.drop_collection(&name).await.expect("dropped");
    }
}
