//! Lost answers, and the end of a gateway.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use txn_core::{Answer, Error, IdempotencyKey, Options, Raw, Transaction};
use txn_es::{EsConfig, EsStore};
use txn_fixtures::fixture::{Fixture, soon};
use txn_serve::ServeConfig;
use txn_testkit::proxy::{Fault, FaultKind, Matching, Point, Proxy, Route};

use super::desk::{Desk, Socket, add};

/// A gateway on a socket, whose store is behind a proxy.
struct Behind {
    desk: Desk,
    /// Between the gateway and the server.
    back: Proxy,
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    served: JoinHandle<bool>,
}

async fn behind(fixture: &Fixture) -> Behind {
    let back = Proxy::start(fixture.plain.url()).await.expect("starts");
    let store = EsStore::connect(EsConfig::from_url(&back.url()).expect("an address")).await;
    let store = std::sync::Arc::new(store.expect("connects"));
    let domain = fixture.domain_on(store.clone(), Fixture::config()).await;
    domain.create_collection::<Raw>(&fixture.name("stock"), None).await.expect("creates");
    let desk = Desk::of(domain, ServeConfig::default().with_servers(Some((*store).clone())));
    let Socket { address, stop, served } = desk.listen().await;
    Behind { desk, back, address, stop, served }
}

/// Sends a transaction under a key. Returns the status and the answer; `None` for a lost one.
async fn keyed(url: &str, key: &str, body: Value) -> Option<(u16, Value)> {
    let (url, key) = (format!("{url}/_txn"), key.to_owned());
    let sending = tokio::task::spawn_blocking(move || {
        let agent = ureq::Agent::config_builder().http_status_as_error(false).build();
        let agent = ureq::Agent::new_with_config(agent);
        let mut answer = agent.post(&url).header("idempotency-key", &key).send_json(body).ok()?;
        Some((answer.status().as_u16(), answer.body_mut().read_json().ok()?))
    });
    sending.await.expect("no panic")
}

pub(crate) async fn lost_answers_have_one_effect(fixture: &Fixture) {
    let running = behind(fixture).await;
    let (desk, stock) = (&running.desk, fixture.name("stock"));
    let path = format!("/{stock}/_doc/a");
    desk.put(&path, &json!({ "n": 1 })).await.is(201);
    let front = Proxy::start(&format!("http://{}", running.address)).await.expect("starts");
    let adding = || json!({ "operations": [add(&stock, "a", 1)] });

    // The client does not receive the answer of the gateway.
    front.inject(Matching::any().with_path("/_txn"), Fault::LoseAnswer);
    assert_eq!(keyed(&front.url(), "first", adding()).await, None);
    let again = soon(keyed(&front.url(), "first", adding())).await.expect("an answer");
    assert_eq!((again.0, &again.1["outcome"]), (200, &json!("committed")));
    assert_eq!(desk.content(&path).await, json!({ "n": 2 }));

    // The gateway does not receive the answers of the server.
    for number in 0..3 {
        running.back.inject(Matching::route(Route::Bulk), Fault::LoseAnswer);
        let key = format!("lost-{number}");
        loop {
            let (status, answer) =
                soon(keyed(&front.url(), &key, adding())).await.expect("an answer");
            match status {
                200 => break,
                409 | 429 | 503 => {}
                _ => panic!("{status}: {answer}"),
            }
        }
    }
    assert!(running.back.counts().of(FaultKind::LoseAnswer) >= 3);
    assert_eq!(front.counts().of(FaultKind::LoseAnswer), 1);
    assert_eq!(desk.content(&path).await, json!({ "n": 5 }));
    let reused = keyed(&front.url(), "first", json!({ "operations": [add(&stock, "a", 5)] })).await;
    assert_eq!(reused.expect("an answer").0, 422);

    // A search is a read, however it is sent.
    running.back.inject(Matching::route(Route::Search), Fault::LoseAnswer);
    desk.post(&format!("/{stock}/_search"), &json!({})).await.fails(503, "unavailable");
    front.shutdown().await;
    end(running, fixture).await;
}

pub(crate) async fn drain_answers_running_requests(fixture: &Fixture) {
    let running = behind(fixture).await;
    let stock = fixture.name("stock");
    running.desk.put(&format!("/{stock}/_doc/a"), &json!({ "n": 1 })).await.is(201);
    let hold = running.back.hold(Matching::route(Route::Bulk), Point::Before);
    let (url, adding) = (format!("http://{}", running.address), add(&stock, "a", 1));
    let waiting =
        tokio::spawn(async move { keyed(&url, "k", json!({ "operations": [adding] })).await });
    soon(async {
        while !hold.is_reached() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    running.stop.send(()).expect("runs");
    soon(async {
        while running.desk.get("/readyz").await.status != 503 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    running.desk.put(&format!("/{stock}/_doc/b"), &json!({})).await.fails(503, "closing");
    hold.release();
    let (status, answer) = soon(waiting).await.expect("no panic").expect("an answer");
    assert_eq!(status, 200, "{answer}");
    assert!(soon(running.served).await.expect("no panic"), "a request was cut");
    fixture.settle(&running.desk.domain).await;
    running.back.shutdown().await;
}

pub(crate) async fn purge_finds_expired_answers_alone(fixture: &Fixture) {
    let drift = Duration::from_millis(1);
    let domain = fixture.domain_on(fixture.store(), Fixture::config().with_max_drift(drift)).await;
    let answer = async |key: &str, ttl: Duration| {
        let (key, options) = (IdempotencyKey::new(key, ttl), Options::default());
        let closure = async |_: &Transaction| Ok::<_, Error>(Answer::Commit("done".to_owned()));
        domain.idempotent(&key, &options, closure).await.expect("answers").repeated
    };
    let day = Duration::from_secs(86_400);
    for number in 0..3 {
        assert!(!answer(&format!("short-{number}"), Duration::from_millis(1)).await);
        assert!(!answer(&format!("long-{number}"), day).await);
    }
    let mut deleted = 0;
    soon(async {
        while deleted < 3 {
            let purged = domain.purge_answers().await.expect("purges");
            assert_eq!(purged.unreadable, Vec::new());
            deleted += purged.deleted;
        }
    })
    .await;
    assert_eq!(deleted, 3);
    for number in 0..3 {
        assert!(answer(&format!("long-{number}"), day).await);
    }
    fixture.settle(&domain).await;
}

async fn end(running: Behind, fixture: &Fixture) {
    running.stop.send(()).expect("runs");
    assert!(soon(running.served).await.expect("no panic"), "a request was cut");
    fixture.settle(&running.desk.domain).await;
    running.back.shutdown().await;
}
