//! Pages, filters and cursors.

use std::collections::BTreeSet;

use txn_redb::RedbStore;
use txn_store::{Cursor, Filter, Key, Store, StoreErrorKind, WriteOp};

use crate::{Place, create, make, one, read};

async fn all(store: &RedbStore, name: &str, filter: &Filter, size: usize) -> Vec<Key> {
    let (mut keys, mut from) = (Vec::new(), None);
    loop {
        let page = store.scan(name, filter, size, from).await.expect("a page");
        assert!(page.documents.len() <= size);
        keys.extend(page.documents.into_iter().map(|(key, ..)| key));
        from = page.next;
        if from.is_none() {
            return keys;
        }
    }
}

#[tokio::test]
async fn pages_hold_every_document_once() {
    let place = Place::new();
    let store = place.open();
    for name in ["before", "c", "later"] {
        make(&store, name).await;
        create(&store, &Key::new(name, "\0"), "{}").await;
        create(&store, &Key::new(name, "\u{10ffff}"), "{}").await;
    }
    let mut expected = BTreeSet::from([Key::new("c", "\0"), Key::new("c", "\u{10ffff}")]);
    for n in 0..25 {
        for routing in [None, Some("r"), Some("s")] {
            let key = Key::new("c", n.to_string());
            let key = if let Some(routing) = routing { key.routed(routing) } else { key };
            create(&store, &key, "{}").await;
            expected.insert(key);
        }
    }
    let expected: Vec<_> = expected.into_iter().collect();
    for size in [1, 2, 7, 76, 77, 78, 1000] {
        assert_eq!(all(&store, "c", &Filter::All, size).await, expected, "pages of {size}");
    }
    let page = store.scan("c", &Filter::All, expected.len(), None).await.unwrap();
    assert_eq!(page.next, None, "a complete page says that it is the last");
    store.add_alias("alias", "c").await.unwrap();
    assert_eq!(all(&store, "alias", &Filter::All, 10).await, expected, "by the physical name");
}

#[tokio::test]
async fn filters_are_those_of_the_contract() {
    let place = Place::new();
    let store = place.open();
    make(&store, "c").await;
    let documents = [
        ("a", r#"{"state":"open"}"#),
        ("b", r#"{"state":null}"#),
        ("c", r#"{"other":{"state":"open"}}"#),
        ("d", r#"{"state":"done"}"#),
        ("e", r#"{"state":7}"#),
        ("f", r#"{"state":"open"}"#),
    ];
    for (id, source) in documents {
        create(&store, &Key::new("c", id), source).await;
    }
    let table = [
        (Filter::All, "abcdef"),
        (Filter::Exists("state"), "adef"),
        (Filter::any_of("state", ["open", "gone"]), "af"),
        (Filter::any_of("state", ["open", "done"]), "adf"),
        (Filter::AnyOf("state", vec![]), ""),
        (Filter::any_of("state", ["open"]), "af"),
        (Filter::any_of("state", ["7"]), ""),
        (Filter::Exists("nothing"), ""),
    ];
    for (filter, expected) in table {
        for size in [1, 2, 10] {
            let ids: String =
                all(&store, "c", &filter, size).await.iter().map(|key| &*key.id).collect();
            assert_eq!(ids, expected, "{filter:?} in pages of {size}");
        }
    }
}

#[tokio::test]
async fn cursors_outlive_changes_and_restarts() {
    let place = Place::new();
    let store = place.open();
    make(&store, "c").await;
    for id in ["a", "b", "c", "d"] {
        create(&store, &Key::new("c", id), "{}").await;
    }
    let page = store.scan("c", &Filter::All, 2, None).await.unwrap();
    let (version, _) = read(&store, &Key::new("c", "b")).await.unwrap();
    one(&store, &Key::new("c", "b"), WriteOp::Delete(version)).await;
    store.close();
    let store = place.open();
    let rest = store.scan("c", &Filter::All, 10, page.next).await.unwrap();
    let ids: Vec<_> = rest.documents.iter().map(|(key, ..)| &*key.id).collect();
    assert_eq!(ids, ["c", "d"]);
    let nonsense = Some(Cursor("nonsense".to_owned()));
    let error = store.scan("c", &Filter::All, 10, nonsense).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Misconfigured);
    let error = store.scan("nowhere", &Filter::All, 10, None).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::NotFound);
}
