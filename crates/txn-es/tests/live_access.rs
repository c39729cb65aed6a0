//! Reaching servers: closed ports, limits of requests, logins, certificates.
#![cfg(feature = "live")]

mod live;

use std::time::Duration;

use txn_core::store::{
    CollectionSpec, Key, Outcome, Read, RefusalKind, Role, Store, StoreErrorKind, Write, WriteOp,
};
use txn_es::{EsConfig, EsStore};

fn closed_port() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    format!("http://{}", listener.local_addr().expect("its address"))
}

fn create(key: Key, source: &str) -> Write {
    Write::new(key, WriteOp::Create(source.into()))
}

async fn data(store: &EsStore, name: &str) {
    let role = Role::Data { owner: None };
    let spec = CollectionSpec { name: name.to_owned(), role, create: true, mappings: None };
    store.open_collection(&spec).await.expect("made");
}

#[tokio::test]
async fn a_closed_port_is_unavailable() {
    let config = EsConfig::from_url(&closed_port()).expect("an address");
    let error = EsStore::connect(config).await.expect_err("nobody listens");
    assert_eq!(error.kind, StoreErrorKind::Unavailable);
    assert!(error.message.contains("nothing was sent"), "{error}");
}

#[tokio::test]
async fn a_node_that_is_down_is_passed_over() {
    for variable in live::ALL {
        let Some(url) = live::url(variable) else { continue };
        let config = EsConfig::new([closed_port(), url]).expect("addresses");
        let store = EsStore::connect(config).await.expect("one node is up");
        let name = live::unique("down");
        data(&store, &name).await;
        for n in 0..6 {
            let key = Key::new(name.as_str(), n.to_string());
            let outcome = store.write_many(&[create(key, "{}")]).await.remove(0);
            assert!(matches!(outcome, Outcome::Applied(_)), "{outcome:?}");
        }
        store.drop_collection(&name).await.expect("dropped");
    }
}

#[tokio::test]
async fn large_batches_are_split_and_keep_their_order() {
    for variable in live::ALL {
        let Some(url) = live::url(variable) else { continue };
        let config = EsConfig::from_url(&url).expect("an address");
        let config = config.with_max_bulk_items(7).with_max_bulk_bytes(4_000);
        let store = EsStore::connect(config).await.expect("a server");
        let name = live::unique("split");
        data(&store, &name).await;
        let mut writes: Vec<_> = (0..50)
            .map(|n| {
                let source = format!(r#"{{"pad":"{}"}}"#, "x".repeat(n * 60));
                create(Key::new(name.as_str(), n.to_string()), &source)
            })
            .collect();
        let huge = format!(r#"{{"pad":"{}"}}"#, "x".repeat(5_000));
        writes.push(create(Key::new(name.as_str(), "huge"), &huge));
        // The second of one document meets the first.
        writes.push(create(Key::new(name.as_str(), "0"), "{}"));
        let outcomes = store.write_many(&writes).await;
        for outcome in &outcomes[..50] {
            assert!(matches!(outcome, Outcome::Applied(_)), "{outcome:?}");
        }
        let Outcome::Invalid(refusal) = &outcomes[50] else { panic!("{:?}", outcomes[50]) };
        assert_eq!(refusal.kind, RefusalKind::TooLarge);
        assert_eq!(outcomes[51], Outcome::Conflict);
        let keys: Vec<_> = writes[..50].iter().map(|write| write.key.clone()).collect();
        for reads in [store.get_many(&keys).await, store.read_primary(&keys).await] {
            for ((read, outcome), write) in reads.iter().zip(&outcomes).zip(&writes) {
                let (Read::Found { version, source }, WriteOp::Create(written)) = (read, &write.op)
                else {
                    panic!("{read:?}")
                };
                assert_eq!((outcome, source), (&Outcome::Applied(*version), written));
            }
        }
        store.drop_collection(&name).await.expect("dropped");
    }
}

#[tokio::test]
async fn a_request_that_gets_no_answer_is_unknown() {
    for variable in live::ALL {
        let Some(url) = live::url(variable) else { continue };
        let config = EsConfig::from_url(&url).expect("an address");
        let store = EsStore::connect(config.clone()).await.expect("a server");
        let name = live::unique("late");
        data(&store, &name).await;
        let hasty = config.with_request_timeout(Duration::from_micros(1));
        let hasty = EsStore::connect(hasty).await;
        let error = hasty.expect_err("no server is that quick");
        assert_eq!(error.kind, StoreErrorKind::Unavailable);
        assert!(error.message.contains("in time"), "{error}");
        store.drop_collection(&name).await.expect("dropped");
    }
}

/// The server with security: its address, its authority, and a login.
fn secured() -> Option<(String, Vec<u8>, String, String)> {
    let url = live::url("TXN_SECURED_URL")?;
    let authority = std::fs::read(live::url("TXN_SECURED_CA")?).expect("the authority's file");
    Some((url, authority, live::url("TXN_SECURED_USER")?, live::url("TXN_SECURED_PASSWORD")?))
}

#[tokio::test]
async fn logins_and_certificates() {
    let Some((url, authority, user, password)) = secured() else { return };
    let bare = EsConfig::from_url(&url).expect("an address");

    let untrusted = EsStore::connect(bare.clone().with_basic_auth(&user, &password)).await;
    let error = untrusted.expect_err("an authority that nobody knows");
    assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{error}");
    assert!(error.message.contains("certificate"), "{error}");

    let trusting = bare.with_certificate_authority(authority);
    let nobody = EsStore::connect(trusting.clone()).await.expect_err("no login");
    assert_eq!(nobody.kind, StoreErrorKind::Denied, "{nobody}");
    let wrong = trusting.clone().with_basic_auth(&user, "hunter2");
    let wrong = EsStore::connect(wrong).await.expect_err("a wrong password");
    assert_eq!(wrong.kind, StoreErrorKind::Denied, "{wrong}");
    assert!(!wrong.message.contains("hunter2"), "{wrong}");

    let config = trusting.with_basic_auth(&user, &password);
    let store = EsStore::connect(config).await.expect("the right login");
    assert!(!format!("{store:?} {store:#?}").contains(&password));
    let name = live::unique("secured");
    data(&store, &name).await;
    let key = Key::new(name.as_str(), "1");
    let outcome = store.write_many(&[create(key, "{}")]).await.remove(0);
    assert!(matches!(outcome, Outcome::Applied(_)), "{outcome:?}");
    store.drop_collection(&name).await.expect("dropped");
}

#[tokio::test]
async fn the_documented_privileges_are_enough_and_needed() {
    let Some((url, authority, user, password)) = secured() else { return };
    let config = EsConfig::from_url(&url).expect("an address");
    let config = config.with_certificate_authority(authority.clone());
    let admin = EsStore::connect(config.clone().with_basic_auth(&user, &password)).await;
    let admin = admin.expect("the right login");
    let authority = reqwest::Certificate::from_pem(&authority).expect("PEM");
    let http = reqwest::Client::builder().no_proxy().add_root_certificate(authority).build();
    let http = http.expect("a client");
    let name = live::unique("granted");
    let grant = |index: &'static [&'static str], all: &'static [&'static str]| {
        let role = serde_json::json!({"r": {"cluster": ["monitor"], "indices": [
            {"names": [format!("{name}*")], "privileges": index},
            {"names": ["txn-*"], "privileges": all},
        ]}});
        let body = serde_json::json!({"name": name, "role_descriptors": role});
        let request = http.post(format!("{}/_security/api_key", url.trim_end_matches('/')));
        let request = request.basic_auth(&user, Some(&password)).json(&body);
        let config = config.clone();
        async move {
            let answer = request.send().await.expect("an answer");
            let answer: serde_json::Value = answer.json().await.expect("JSON");
            let Some(key) = answer["encoded"].as_str() else {
                eprintln!("left out: this package makes no API keys");
                return None;
            };
            Some(EsStore::connect(config.with_api_key(key)).await.expect("a key that works"))
        }
    };
    let name = name.as_str();
    let key = Key::new(name, "1");
    let Some(full) = grant(&["read", "write", "view_index_metadata", "manage"], &["all"]).await
    else {
        return;
    };
    let role = Role::Data { owner: Some("bank".to_owned()) };
    let spec = CollectionSpec { name: name.to_owned(), role, create: true, mappings: None };

    let poor = grant(&["read", "write", "view_index_metadata"], &["read"]).await.expect("a key");
    let error = poor.open_collection(&spec).await.expect_err("may not make it");
    assert_eq!(error.kind, StoreErrorKind::Denied, "{error}");
    assert!(error.message.contains("manage"), "{error}");

    full.open_collection(&spec).await.expect("made");
    let outcome = full.write_many(&[create(key.clone(), "{}")]).await.remove(0);
    let Outcome::Applied(version) = outcome else { panic!("{outcome:?}") };
    let verify = Write::new(key.clone(), WriteOp::Verify(Some(version)));
    assert_eq!(full.write_many(&[verify]).await, [Outcome::Holds]);
    for read in [
        full.get_many(std::slice::from_ref(&key)).await.remove(0),
        full.read_primary(std::slice::from_ref(&key)).await.remove(0),
    ] {
        assert!(matches!(read, Read::Found { version: v, .. } if v == version), "{read:?}");
    }
    full.refresh(name).await.expect("refreshed");
    let page = full.scan(name, &txn_core::store::Filter::All, 1, None).await.expect("scanned");
    let page = full.scan(name, &txn_core::store::Filter::All, 1, page.next).await;
    page.expect("the next page, and its end");
    full.block_writes(name, true).await.expect("blocked");
    full.block_writes(name, false).await.expect("lifted");

    let reader = grant(&["read", "view_index_metadata"], &["read"]).await.expect("a key");
    let read = reader.get_many(std::slice::from_ref(&key)).await.remove(0);
    assert!(matches!(read, Read::Found { version: v, .. } if v == version), "{read:?}");
    let replace = Write::new(key, WriteOp::Replace("{}".into(), version));
    let outcome = reader.write_many(&[replace]).await.remove(0);
    let Outcome::Invalid(refusal) = outcome else { panic!("{outcome:?}") };
    assert_eq!(refusal.kind, RefusalKind::Denied);

    let denied = poor.drop_collection(name).await.expect_err("may not drop it");
    assert_eq!(denied.kind, StoreErrorKind::Denied, "{denied}");
    admin.drop_collection(name).await.expect("dropped");
}
