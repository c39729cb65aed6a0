//! Copies of an index that carry its aliases.
//!
//! A clone or a restore makes such a copy.

use serde_json::{Value, json};
use txn_store::{CollectionSpec, Key, Outcome, Read, Role, Store, StoreErrorKind, Write, WriteOp};

use crate::live::{self, Plain};

/// Puts the aliases of `index` on a new index.
async fn copy(plain: &Plain, index: &str, copy: &str) {
    let (_, found) = plain.send("GET", &format!("/{index}/_alias"), None).await;
    let aliases = found[index]["aliases"].clone();
    assert!(aliases.as_object().is_some_and(|aliases| aliases.len() >= 2), "{found}");
    let add = |(alias, about): (&String, &Value)| {
        let mut add = json!({"index": copy, "alias": alias});
        let about = about.as_object().expect("an object").clone();
        add.as_object_mut().expect("an object").extend(about);
        json!({"add": add})
    };
    let actions: Vec<Value> = aliases.as_object().into_iter().flatten().map(add).collect();
    let (_, exists) = plain.send("GET", &format!("/{copy}"), None).await;
    if exists.get(copy).is_none() {
        plain.ok("PUT", &format!("/{copy}"), json!({})).await;
    }
    plain.ok("POST", "/_aliases", json!({"actions": actions})).await;
}

#[tokio::test]
async fn copy_of_an_index_loses_the_aliases_of_the_original() {
    for variable in live::ALL {
        let (store, plain) = (live::store(variable).await, Plain::new(variable));
        let (name, second) = (live::unique("original"), live::unique("original-alias"));
        let (role, mappings) = (Role::Data { owner: None }, None);
        let spec = CollectionSpec { name: name.clone(), role, create: true, mappings };
        let made = store.open_collection(&spec).await.expect("made");
        store.add_alias(&second, &name).await.expect("added");
        let key = |id: &str| Key::new(name.as_str(), id);
        let write = async |id: &str| {
            let create = Write::new(key(id), WriteOp::Create("{}".into()));
            store.write_many(&[create]).await.remove(0)
        };
        assert!(matches!(write("1").await, Outcome::Applied(_)));
        let by_alias = Key::new(second.as_str(), "3");
        let by_alias = Write::new(by_alias, WriteOp::Create("{}".into()));
        let by_alias = Write { require_alias: true, ..by_alias };
        // The store now knows the target of the alias.
        let seen = store.get_many(&[Key::new(second.as_str(), "1")]).await.remove(0);
        assert!(matches!(seen, Read::Found { .. }), "{seen:?}");

        let clone = format!("{name}-clone");
        copy(&plain, &name, &clone).await;
        let first = write("2").await;
        let said =
            matches!(&first, Outcome::RejectedInDoubt(why) if why.contains("a copy of the index"));
        assert!(said, "{first:?}");
        assert!(matches!(write("2").await, Outcome::Applied(_)), "the alias is off the copy");

        copy(&plain, &name, &clone).await;
        let read = store.get_many(&[key("1")]).await.remove(0);
        let said = matches!(&read, Read::Unavailable(e) if e.kind == StoreErrorKind::Unavailable);
        assert!(said, "{read:?}");
        let read = store.get_many(&[key("1")]).await.remove(0);
        assert!(matches!(read, Read::Found { .. }), "{read:?}");

        let refused = store.write_many(std::slice::from_ref(&by_alias)).await.remove(0);
        assert!(matches!(refused, Outcome::RejectedInDoubt(_)), "{refused:?}");
        let applied = store.write_many(&[by_alias]).await.remove(0);
        assert!(matches!(applied, Outcome::Applied(_)), "{applied:?}");

        // Another process resolves the name while the copy carries it.
        copy(&plain, &name, &clone).await;
        let other = live::store(variable).await;
        assert_eq!(other.identify(&second).await.expect("the original").uid, made.uid);
        let read = other.get_many(&[Key::new(second.as_str(), "1")]).await.remove(0);
        assert!(matches!(read, Read::Unavailable(_)), "{read:?}");
        let read = other.get_many(&[Key::new(second.as_str(), "1")]).await.remove(0);
        assert!(matches!(read, Read::Found { .. }), "{read:?}");
        for index in [&name, &clone] {
            store.drop_collection(index).await.expect("dropped");
        }
    }
}
