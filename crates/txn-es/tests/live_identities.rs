//! The index behind a name, on running servers: the store always asks.

use serde_json::{Value, json};
use txn_es::EsStore;
use txn_store::{CollectionSpec, Role, Store, StoreErrorKind};

use crate::live::{self, Plain};

async fn opened(store: &EsStore, name: &str) -> String {
    let role = Role::Data { owner: None };
    let spec = CollectionSpec { name: name.to_owned(), role, create: true, mappings: None };
    store.open_collection(&spec).await.expect("fit").uid.to_string()
}

async fn aliases(plain: &Plain, actions: Value) {
    plain.ok("POST", "/_aliases", json!({"actions": actions})).await;
}

#[tokio::test]
async fn identify_follows_an_alias_at_once() {
    for variable in live::ALL {
        let (store, plain) = (live::store(variable).await, Plain::new(variable));
        let [name, old, new] = ["", "-old", "-new"].map(|end| live::unique("identify") + end);
        let (old_uid, new_uid) = (opened(&store, &old).await, opened(&store, &new).await);
        assert_ne!(old_uid, new_uid);
        let identified = async || {
            let identity = store.identify(&name).await;
            identity.map(|identity| (identity.name.to_string(), identity.uid.to_string()))
        };
        let add = |index: &str, more: Value| {
            let mut add = json!({"index": index, "alias": name});
            add.as_object_mut()
                .expect("an object")
                .extend(more.as_object().expect("an object").clone());
            json!({"add": add})
        };
        assert_eq!(identified().await.unwrap_err().kind, StoreErrorKind::NotFound);
        aliases(&plain, json!([add(&old, json!({}))])).await;
        opened(&store, &name).await;
        assert_eq!(identified().await, Ok((old.clone(), old_uid.clone())));
        let remove = json!({"remove": {"index": old, "alias": name}});
        aliases(&plain, json!([remove, add(&new, json!({}))])).await;
        assert_eq!(identified().await, Ok((new.clone(), new_uid.clone())));
        // As after a rollover.
        let is_write = |write: bool| json!({"is_write_index": write});
        aliases(&plain, json!([add(&old, is_write(true)), add(&new, is_write(false))])).await;
        assert_eq!(identified().await, Ok((old.clone(), old_uid)));
        aliases(&plain, json!([add(&old, is_write(false))])).await;
        let error = identified().await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{error}");
        store.drop_collection(&old).await.expect("dropping what the test made");
        assert_eq!(identified().await, Ok((new.clone(), new_uid)));
        store.drop_collection(&new).await.expect("dropping what the test made");
        assert_eq!(identified().await.unwrap_err().kind, StoreErrorKind::NotFound);
    }
}
