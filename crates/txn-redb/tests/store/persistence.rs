//! The contents of a file that was closed and opened again.

use std::collections::BTreeSet;

use txn_store::{Key, Outcome, Read, Store, WriteOp};

use crate::{Place, applied, create, make, one, read, spec};

#[tokio::test]
async fn contents_survive_a_reopen() {
    let place = Place::new();
    let store = place.open();
    let made = store.open_collection(&spec("c", Some("bank"))).await.unwrap();
    make(&store, "blocked").await;
    store.add_alias("alias", "c").await.unwrap();
    store.block_writes("blocked", true).await.unwrap();
    let key = Key::new("c", "a").routed("r");
    let version = create(&store, &key, r#"{"n": 1.50, "n2":"ä"}"#).await;
    store.close();
    // The handle still exists, and the file is free.
    let again = place.open();
    let found = again.open_collection(&spec("alias", None)).await.unwrap();
    assert_eq!(found, made);
    assert_eq!(found.owner.as_deref(), Some("bank"));
    let through = Key::new("alias", "a").routed("r");
    assert_eq!(read(&again, &through).await, Some((version, r#"{"n": 1.50, "n2":"ä"}"#.into())));
    let blocked = one(&again, &Key::new("blocked", "x"), WriteOp::Create("{}".into())).await;
    assert!(matches!(blocked, Outcome::Rejected(_)), "{blocked:?}");
    drop(store);
    applied(one(&again, &key, WriteOp::Delete(version)).await);
}

#[tokio::test]
async fn versions_and_identities_never_return() {
    let place = Place::new();
    let (mut versions, mut identities) = (BTreeSet::new(), BTreeSet::new());
    for round in 0..4 {
        let store = place.open();
        for _ in 0..3 {
            let made = make(&store, "c").await;
            assert!(identities.insert(made.uid), "an identity returned in round {round}");
            let key = Key::new("c", "a");
            let version = create(&store, &key, "{}").await;
            assert!(versions.insert(version), "a version returned in round {round}");
            let version = applied(one(&store, &key, WriteOp::Delete(version)).await);
            assert!(versions.insert(version), "a version returned in round {round}");
            let version = create(&store, &key, "{}").await;
            assert!(versions.insert(version), "a version returned in round {round}");
            for old in &versions {
                let late = one(&store, &key, WriteOp::Verify(Some(*old))).await;
                assert_eq!(late == Outcome::Holds, *old == version);
            }
            store.drop_collection("c").await.unwrap();
        }
        drop(store);
    }
}

#[tokio::test]
async fn recreated_collection_is_empty_with_another_uid() {
    let place = Place::new();
    let store = place.open();
    let (neighbour, key) = (Key::new("b", "a"), Key::new("c", "a"));
    make(&store, "b").await;
    let first = store.open_collection(&spec("c", Some("bank"))).await.unwrap();
    make(&store, "d").await;
    for n in 0..500 {
        create(&store, &Key::new("c", n.to_string()), "{}").await;
    }
    create(&store, &neighbour, "{}").await;
    create(&store, &Key::new("d", "a"), "{}").await;
    create(&store, &key, "{}").await;
    store.add_alias("alias", "c").await.unwrap();
    store.block_writes("c", true).await.unwrap();
    store.drop_collection("c").await.unwrap();
    let second = store.open_collection(&spec("c", None)).await.unwrap();
    assert_ne!(first.uid, second.uid);
    assert_eq!(second.owner, None);
    assert_eq!(read(&store, &key).await, None);
    assert_eq!(store.get_many(&[Key::new("alias", "a")]).await, [Read::MissingCollection]);
    create(&store, &key, "{}").await;
    assert!(read(&store, &neighbour).await.is_some());
    assert!(read(&store, &Key::new("d", "a")).await.is_some());
}
