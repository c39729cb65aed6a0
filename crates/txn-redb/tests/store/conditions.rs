//! Conditions of single writes, and order within a batch.

use txn_store::{Key, Outcome, Read, RefusalKind, Store, StoreErrorKind, Write, WriteOp};

use crate::{Place, applied, create, make, one, read};

#[tokio::test]
async fn conditions_hold_or_conflict() {
    let place = Place::new();
    let store = place.open();
    make(&store, "c").await;
    let key = Key::new("c", "a");
    let first = create(&store, &key, r#"{"n":1}"#).await;
    let second = applied(one(&store, &key, WriteOp::Replace(r#"{"n":2}"#.into(), first)).await);
    assert_ne!(first, second);
    let stale = [
        WriteOp::Create("{}".into()),
        WriteOp::Replace("{}".into(), first),
        WriteOp::Delete(first),
        WriteOp::Verify(Some(first)),
        WriteOp::Verify(None),
    ];
    for op in stale {
        assert_eq!(one(&store, &key, op.clone()).await, Outcome::Conflict, "{op:?}");
    }
    assert_eq!(one(&store, &key, WriteOp::Verify(Some(second))).await, Outcome::Holds);
    assert_eq!(one(&store, &key, WriteOp::Check("{}".into())).await, Outcome::Holds);
    assert_eq!(read(&store, &key).await, Some((second, r#"{"n":2}"#.into())));
    let gone = applied(one(&store, &key, WriteOp::Delete(second)).await);
    assert_eq!(one(&store, &key, WriteOp::Verify(None)).await, Outcome::Holds);
    let again = create(&store, &key, "{}").await;
    assert!([first, second, gone].iter().all(|version| *version != again));
}

#[tokio::test]
async fn a_batch_goes_in_order_and_answers_each_write() {
    let place = Place::new();
    let store = place.open();
    make(&store, "c").await;
    let (a, b) = (Key::new("c", "a"), Key::new("c", "b"));
    let long = Key::new("c", "x".repeat(513));
    let missing = Key::new("nowhere", "a");
    let create = |key: &Key, source: &str| Write::new(key.clone(), WriteOp::Create(source.into()));
    let writes = [
        create(&a, r#"{"n":1}"#),
        create(&long, "{}"),
        create(&a, r#"{"n":2}"#),
        create(&missing, "{}"),
        create(&b, "[]"),
        create(&b, r#"{"n":3}"#),
        Write::new(a.clone(), WriteOp::Verify(None)),
    ];
    let outcomes = store.write_many(&writes).await;
    assert!(matches!(outcomes[0], Outcome::Applied(_)), "{outcomes:?}");
    assert!(matches!(&outcomes[1], Outcome::Invalid(refusal) if refusal.kind == RefusalKind::Id));
    assert_eq!(outcomes[2], Outcome::Conflict);
    assert_eq!(outcomes[3], Outcome::MissingCollection);
    assert!(matches!(&outcomes[4], Outcome::Invalid(r) if r.kind == RefusalKind::Document));
    assert!(matches!(outcomes[5], Outcome::Applied(_)), "{outcomes:?}");
    assert_eq!(outcomes[6], Outcome::Conflict);
    assert!(store.write_many(&[]).await.is_empty());
}

#[tokio::test]
async fn routings_are_part_of_the_key_and_ids_are_any_text() {
    let place = Place::new();
    let store = place.open();
    make(&store, "c").await;
    let ids = ["a", "a\0", "a\0\u{1}", "\0", "ä/ \u{10ffff}"];
    let mut keys: Vec<Key> = ids.iter().map(|id| Key::new("c", *id)).collect();
    keys.extend(ids.iter().map(|id| Key::new("c", *id).routed("r")));
    keys.push(Key::new("c", "a").routed("\0r"));
    for (n, key) in keys.iter().enumerate() {
        create(&store, key, &format!(r#"{{"n":{n}}}"#)).await;
    }
    for (n, key) in keys.iter().enumerate() {
        let (_, source) = read(&store, key).await.unwrap();
        assert_eq!(&*source, format!(r#"{{"n":{n}}}"#));
    }
}

#[tokio::test]
async fn aliases_blocks_and_missing_collections() {
    let place = Place::new();
    let store = place.open();
    make(&store, "c-1").await;
    store.add_alias("c", "c-1").await.unwrap();
    // An alias of an alias names the collection.
    store.add_alias("d", "c").await.unwrap();
    let aliased = |name: &str, id: &str| Write {
        key: Key::new(name, id),
        require_alias: true,
        op: WriteOp::Create("{}".into()),
    };
    let writes = [aliased("c", "1"), aliased("d", "2"), aliased("c-1", "3"), aliased("e", "4")];
    let outcomes = store.write_many(&writes).await;
    assert!(matches!(outcomes[..2], [Outcome::Applied(_), Outcome::Applied(_)]), "{outcomes:?}");
    assert_eq!(outcomes[2..], [Outcome::MissingCollection, Outcome::MissingCollection]);
    assert!(read(&store, &Key::new("c-1", "1")).await.is_some());
    store.block_writes("c", true).await.unwrap();
    let key = Key::new("c-1", "5");
    assert!(matches!(one(&store, &key, WriteOp::Create("{}".into())).await, Outcome::Rejected(_)));
    assert!(matches!(one(&store, &key, WriteOp::Verify(None)).await, Outcome::Rejected(_)));
    store.block_writes("c", false).await.unwrap();
    create(&store, &key, "{}").await;
    for error in [
        store.add_alias("x", "nowhere").await.unwrap_err(),
        store.block_writes("nowhere", true).await.unwrap_err(),
        store.refresh("nowhere").await.unwrap_err(),
    ] {
        assert_eq!(error.kind, StoreErrorKind::NotFound);
    }
    store.drop_collection("nowhere").await.unwrap();
    store.drop_collection("c-1").await.unwrap();
    let reads = store.get_many(&[Key::new("c", "1"), Key::new("c-1", "1")]).await;
    assert_eq!(reads, [Read::MissingCollection, Read::MissingCollection]);
    let late = store.write_many(&[aliased("c", "1")]).await;
    assert_eq!(late, [Outcome::MissingCollection]);
}

#[tokio::test]
async fn large_documents_and_batches_are_stored() {
    let place = Place::new();
    let store = place.open();
    make(&store, "c").await;
    let filler = "x".repeat((50 << 20) - 10);
    let large = Key::new("c", "large");
    let source = format!(r#"{{"a":"{filler}"}}"#);
    create(&store, &large, &source).await;
    assert_eq!(&*read(&store, &large).await.unwrap().1, source);
    let source = format!(r#"{{"a":"{filler}x  "}}"#);
    let too_large = one(&store, &Key::new("c", "more"), WriteOp::Create(source.into())).await;
    assert!(matches!(too_large, Outcome::Invalid(r) if r.kind == RefusalKind::TooLarge));
    let keys: Vec<Key> = (0..3000).map(|n| Key::new("c", n.to_string())).collect();
    let writes = keys.iter().map(|key| Write::new(key.clone(), WriteOp::Create("{}".into())));
    let outcomes = store.write_many(&writes.collect::<Vec<_>>()).await;
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Applied(_))));
    let reads = store.get_many(&keys).await;
    assert!(reads.iter().all(|read| matches!(read, Read::Found { .. })));
}
