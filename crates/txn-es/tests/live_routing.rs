//! One document under two keys.
//!
//! In one shard an id is one document, regardless of the routing of the request.

use std::sync::Arc;

use serde_json::{Value, json};
use txn_core::{Collection, Config, DocumentId, Domain, Error, ErrorKind, Raw};
use txn_es::EsStore;
use txn_store::{CollectionSpec, Key, Outcome, Read, Role, Store, StoreErrorKind, Write, WriteOp};

use crate::live::{self, Plain};

/// An index with one shard, on one server.
struct Shop {
    store: EsStore,
    plain: Plain,
    name: String,
}

impl Shop {
    async fn new(variable: &str, what: &str) -> Self {
        let (store, plain) = (live::store(variable).await, Plain::new(variable));
        let name = live::unique(what);
        eprintln!("{}: {name}", store.server());
        let settings = json!({"number_of_shards": 1});
        plain.ok("PUT", &format!("/{name}"), json!({"settings": settings})).await;
        Self { store, plain, name }
    }

    async fn open(&self) -> (Domain, Collection<Raw>) {
        let domain =
            Domain::open_or_create(Arc::new(self.store.clone()), &self.name, Config::default())
                .await;
        let domain = domain.expect("opens");
        let documents = domain.collection::<Raw>(&self.name).await.expect("fit");
        (domain, documents)
    }

    /// Returns the stored routing and the application's value.
    async fn stored(&self) -> Option<(Value, Value)> {
        let path = format!("/{}/_doc/a", self.name);
        let (status, answer) = self.plain.send("GET", &path, None).await;
        (status == 200).then(|| (answer["_routing"].clone(), answer["_source"]["n"].clone()))
    }

    async fn clear(self) {
        self.store.drop_collection(&self.name).await.expect("dropped");
        let partitions = self
            .plain
            .send("GET", &format!("/txn-{}-*", self.name.replace('-', ".")), None)
            .await
            .1;
        for index in partitions.as_object().into_iter().flatten().map(|(index, _)| index) {
            self.store.drop_collection(index).await.expect("dropped");
        }
        let document = format!("/txn-registry/_doc/domain:{}", self.name);
        self.plain.send("DELETE", &document, None).await;
    }
}

fn refused(error: &Error, advice: &str) {
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    assert!(error.to_string().contains(advice), "{error}");
}

const ROUTED: &str = r#"DocumentId::routed(id, "r")"#;
const BARE: &str = "by its id alone";

#[tokio::test]
async fn document_is_found_only_under_its_own_key() {
    for variable in live::ALL {
        let shop = Shop::new(variable, "routing").await;
        let store = &shop.store;
        let role = Role::Data { owner: None };
        let name = shop.name.clone();
        let spec = CollectionSpec { name, role, create: false, mappings: None };
        store.open_collection(&spec).await.expect("fit");
        let bare = Key::new(shop.name.as_str(), "a");
        let keys = [bare.clone(), bare.clone().routed("r"), bare.clone().routed("q")];
        let create = Write::new(keys[1].clone(), WriteOp::Create(r#"{"n":1}"#.into()));
        let outcome = store.write_many(std::slice::from_ref(&create)).await.remove(0);
        let Outcome::Applied(at) = outcome else { panic!("{outcome:?}") };
        // Once in memory, and once in a segment.
        for _ in 0..2 {
            for reads in [store.get_many(&keys).await, store.read_primary(&keys).await] {
                assert!(matches!(reads[1], Read::Found { version, .. } if version == at));
                for read in [&reads[0], &reads[2]] {
                    let Read::Unavailable(error) = read else { panic!("{read:?}") };
                    assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{error}");
                    assert!(error.message.contains(ROUTED), "{error}");
                }
            }
            store.refresh(&shop.name).await.expect("refreshed");
        }
        // No other key creates the document, and none finds it absent.
        for key in [&keys[0], &keys[2]] {
            let ops = [WriteOp::Create("{}".into()), WriteOp::Verify(None)];
            let writes = ops.map(|op| Write::new(key.clone(), op));
            assert_eq!(store.write_many(&writes).await, [Outcome::Conflict, Outcome::Conflict]);
        }
        assert_eq!(shop.stored().await, Some((json!("r"), json!(1))));
        shop.clear().await;
    }
}

#[tokio::test]
async fn two_keys_of_one_document_change_nothing() {
    for variable in live::ALL {
        let shop = Shop::new(variable, "two-keys").await;
        let (domain, documents) = shop.open().await;
        let routed = || DocumentId::routed("a", "r");
        let document = |n: u32| Raw::new(format!(r#"{{"n":{n}}}"#));
        for (stands, advice) in [(None, BARE), (Some("/a"), BARE), (Some("/a?routing=r"), ROUTED)] {
            if let Some(path) = stands {
                let path = format!("/{}/_doc{path}", shop.name);
                shop.plain.ok("PUT", &path, json!({"n": 0})).await;
            }
            let before = shop.stored().await;
            let (documents, document) = (&documents, &document);
            let error = domain
                .transact(async |tx| {
                    tx.put(documents, "a", &document(1))?;
                    tx.put(documents, routed(), &document(2))?;
                    Ok::<_, Error>(())
                })
                .await
                .expect_err("one document under two keys");
            refused(&error, advice);
            assert_eq!(shop.stored().await, before, "{stands:?}");
            if let Some(path) = stands {
                shop.plain.send("DELETE", &format!("/{}/_doc{path}", shop.name), None).await;
            }
        }
        assert!(domain.shutdown(std::time::Duration::from_secs(30)).await);
        shop.clear().await;
    }
}

#[tokio::test]
async fn no_operation_removes_the_routing() {
    for variable in live::ALL {
        let shop = Shop::new(variable, "strip").await;
        let (domain, documents) = shop.open().await;
        let path = format!("/{}/_doc/a?routing=r", shop.name);
        shop.plain.ok("PUT", &path, json!({"n": 0})).await;
        let documents = &documents;
        for reader in [domain.reader(), domain.reader().verified()] {
            refused(&reader.get(documents, "a").await.expect_err("another key"), ROUTED);
        }
        let new = || Raw::new(r#"{"n":1}"#);
        let read = domain
            .transact(async |tx| tx.get(documents, "a").await.map(|found| found.is_some()))
            .await;
        refused(&read.expect_err("another key"), ROUTED);
        let put = domain.transact(async |tx| tx.put(documents, "a", &new())).await;
        refused(&put.expect_err("one document"), ROUTED);
        let deleted = domain.transact(async |tx| tx.delete(documents, "a")).await;
        refused(&deleted.expect_err("one document"), ROUTED);
        let both = domain
            .transact(async |tx| {
                tx.put(documents, "a", &new())?;
                tx.put(documents, "b", &new())
            })
            .await;
        refused(&both.expect_err("several documents"), ROUTED);
        assert_eq!(shop.stored().await, Some((json!("r"), json!(0))));

        let right = domain
            .transact(async |tx| {
                tx.put(documents, DocumentId::routed("a", "r"), &new())?;
                tx.put(documents, "b", &new())
            })
            .await;
        right.expect("its own key");
        // The commit is applied by then.
        assert!(domain.shutdown(std::time::Duration::from_secs(30)).await);
        assert_eq!(shop.stored().await, Some((json!("r"), json!(1))));
        shop.clear().await;
    }
}
