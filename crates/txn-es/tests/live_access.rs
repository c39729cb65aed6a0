//! Access to servers: closed ports, limits of requests, logins, certificates.

use std::time::Duration;

use txn_es::{EsConfig, EsStore};
use txn_store::{
    CollectionSpec, Key, Outcome, Read, RefusalKind, Role, Store, StoreErrorKind, Write, WriteOp,
};
use txn_testkit::proxy::{Matching, Point, Proxy, Route};

use crate::live;

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
    let error = EsStore::connect(config).await.expect_err("no listener");
    assert_eq!(error.kind, StoreErrorKind::Unavailable);
    assert!(error.message.contains("nothing was sent"), "{error}");
}

#[tokio::test]
async fn dead_node_is_skipped() {
    for variable in live::ALL {
        let url = live::url(variable);
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
        let url = live::url(variable);
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
        // The second create of a document conflicts with the first.
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
async fn a_write_without_an_answer_is_unknown() {
    for variable in live::ALL {
        let proxy = Proxy::start(&live::url(variable)).await.expect("listens");
        let config = EsConfig::from_url(&proxy.url()).expect("an address");
        let config = config.with_request_timeout(Duration::from_secs(3));
        let store = EsStore::connect(config).await.expect("a server");
        let name = live::unique("late");
        data(&store, &name).await;
        let key = Key::new(name.as_str(), "1");
        let answer = proxy.hold(Matching::route(Route::Bulk), Point::After);
        let outcome = store.write_many(&[create(key.clone(), "{}")]).await.remove(0);
        assert!(matches!(outcome, Outcome::Unknown(_)), "{variable}: {outcome:?}");
        answer.release();
        let read = store.get_many(&[key]).await.remove(0);
        assert!(matches!(read, Read::Found { .. }), "{variable}: {read:?}");
        store.drop_collection(&name).await.expect("dropped");
        proxy.shutdown().await;
    }
}

/// Returns the server with security: its address, its authority, and a login.
fn secured() -> (String, Vec<u8>, String, String) {
    let authority = std::fs::read(live::url("TXN_SECURED_CA")).expect("the authority's file");
    let [url, user, password] =
        ["TXN_SECURED_URL", "TXN_SECURED_USER", "TXN_SECURED_PASSWORD"].map(live::url);
    (url, authority, user, password)
}

#[tokio::test]
async fn logins_and_certificates() {
    let (url, authority, user, password) = secured();
    let bare = EsConfig::from_url(&url).expect("an address");

    let untrusted = EsStore::connect(bare.clone().with_basic_auth(&user, &password)).await;
    let error = untrusted.expect_err("an authority unknown to the client");
    assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{error}");
    assert!(error.message.contains("certificate"), "{error}");

    let trusting = bare.with_certificate_authority(authority);
    let stranger = EsStore::connect(trusting.clone()).await.expect_err("no login");
    assert_eq!(stranger.kind, StoreErrorKind::Denied, "{stranger}");
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
async fn live_mix_of_tls_and_plain_ports_is_reported() {
    let (url, authority, user, password) = secured();
    let plain = EsConfig::from_url(&url.replace("https://", "http://")).expect("an address");
    let error = EsStore::connect(plain.with_basic_auth(&user, &password)).await;
    let error = error.expect_err("the port speaks TLS");
    assert!(error.message.contains("https://host:port"), "{error}");
    assert!(!error.message.contains(&password), "{error}");
    for variable in live::ALL {
        let secure = live::url(variable).replace("http://", "https://");
        let config = EsConfig::from_url(&secure).expect("an address");
        let config = config.with_certificate_authority(authority.clone());
        let error = EsStore::connect(config).await.expect_err("the port does not speak TLS");
        assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{error}");
        assert!(error.message.contains("http://host:port"), "{error}");
    }
}

#[tokio::test]
async fn invalid_utf8_in_a_document_affects_no_other() {
    for variable in [live::ELASTICSEARCH, live::OPENSEARCH] {
        let store = live::store(variable).await;
        let name = live::unique("text");
        data(&store, &name).await;
        let keys = ["1", "2", "3"].map(|id| Key::new(name.as_str(), id));
        let writes = keys.each_ref().map(|key| create(key.clone(), r#"{"n":"x"}"#));
        store.write_many(&writes).await;
        // The servers accept this encoding of a code point that does not exist.
        let body = b"{\"n\":\"x\xF4\x90\x80\x80\"}".to_vec();
        let request = reqwest::Client::builder().no_proxy().build().expect("a client");
        let url = format!("{}/{name}/_doc/2", live::url(variable));
        let request = request.put(url).header("content-type", "application/json").body(body);
        assert!(request.send().await.expect("an answer").status().is_success());
        for reads in [store.get_many(&keys).await, store.read_primary(&keys).await] {
            for good in [&reads[0], &reads[2]] {
                assert!(matches!(good, Read::Found { .. }), "{reads:?}");
            }
            let Read::Unavailable(error) = &reads[1] else { panic!("{reads:?}") };
            assert_eq!(error.kind, StoreErrorKind::Damaged);
        }
        let check =
            |key: &Key, source: &str| Write::new(key.clone(), WriteOp::Check(source.into()));
        let writes =
            [check(&keys[0], "{}"), check(&keys[2], r#"{"transaction_tid":{"\ud800":1}}"#)];
        let outcomes = store.write_many(&writes).await;
        assert_eq!(outcomes[0], Outcome::Holds, "{outcomes:?}");
        assert!(matches!(outcomes[1], Outcome::Invalid(_)), "{outcomes:?}");
        store.drop_collection(&name).await.expect("dropped");
    }
}
