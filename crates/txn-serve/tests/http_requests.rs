//! HTTP requests that the gateway sends after a commit.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use txn_core::store::MemoryStore;
use txn_outbox::http::{Destination, HttpConfig};
use txn_serve::{NewToken, ServeConfig};

use super::access::{File, ask, lacks};
use super::desk::Desk;

/// The path, the key and the body of a received call.
type Call = (String, String, String);

/// A receiver on a local socket: its origin, and its calls. Each call is answered with 200.
async fn receiver() -> (String, mpsc::UnboundedReceiver<Call>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let origin = format!("http://{}", listener.local_addr().expect("an address"));
    let (sender, calls) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else { return };
            let sender = sender.clone();
            let service = service_fn(move |request| note(request, sender.clone()));
            let serving = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            tokio::spawn(async move { drop(serving.await) });
        }
    });
    (origin, calls)
}

async fn note(
    request: Request<Incoming>,
    sender: mpsc::UnboundedSender<Call>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.expect("a body").to_bytes();
    let key = parts.headers["idempotency-key"].to_str().expect("a key").to_owned();
    let text = String::from_utf8(body.to_vec()).expect("UTF-8");
    sender.send((parts.uri.path().to_owned(), key, text)).expect("the test waits");
    Ok(Response::new(Full::default()))
}

fn sends_to(origin: &str) -> ServeConfig {
    let destination = Destination::new(origin).expect("an origin");
    let http = HttpConfig::default().with_destinations(vec![destination]);
    ServeConfig::default().with_create_collections(true).with_http_requests(Some(http))
}

fn call(url: &str) -> Value {
    json!({ "method": "POST", "url": url, "body": { "json": { "n": 1 } } })
}

fn put(id: &str) -> Value {
    json!({ "put": { "target": { "collection": "stock", "id": id }, "document": { "n": 1 } } })
}

fn path_of(id: &Value) -> String {
    let id = id.as_str().expect("an id").replace('/', "%2F").replace('#', "%23");
    format!("/_outbox/http/{id}")
}

#[tokio::test]
async fn request_is_sent_after_its_commit() {
    let (origin, mut calls) = receiver().await;
    let desk = Desk::with(Arc::new(MemoryStore::new()), sends_to(&origin)).await;
    desk.get("/_outbox/http/a").await.fails(404, "not_found");
    let socket = desk.listen().await;
    let url = |path: &str| format!("{origin}{path}");
    // A changed document refuses the commit, and its request is not sent.
    let read = json!({ "target": { "collection": "stock", "id": "a" }, "token": "stale" });
    let stale = json!({ "reads": [read], "after_commit": [call(&url("/never"))] });
    desk.post("/_txn/commit", &stale).await.fails(409, "changed");
    let twice = [call(&url("/first")), call(&url("/first"))];
    let body = json!({ "operations": [put("a")], "after_commit": twice });
    let answer = desk.keyed("/_txn", "k", &body).await.is(200);
    let id = &answer["after_commit"][0];
    let mut keys = Vec::new();
    for _ in 0..2 {
        let (path, key, text) = calls.recv().await.expect("a call");
        assert_eq!((&*path, &*text), ("/first", r#"{"n":1}"#));
        keys.push(key);
    }
    assert_ne!(keys[0], keys[1], "a receiver must not drop the second request");
    // A repetition of the commit sends nothing.
    assert_eq!(desk.keyed("/_txn", "k", &body).await.is(200), answer);
    let result = loop {
        let found = desk.get(&path_of(id)).await;
        if found.status == 200 {
            break found.json();
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert_eq!((&result["state"], &result["status"]), (&json!("done"), &json!(200)), "{result}");
    assert!(keys.iter().any(|key| result["idempotency_key"] == **key), "{keys:?}: {result}");
    desk.post("/_txn/commit", &json!({ "after_commit": [call(&url("/last"))] })).await.is(200);
    assert_eq!(calls.recv().await.expect("a call").0, "/last");
    socket.stop.send(()).expect("serves");
    assert!(socket.served.await.expect("no panic"));
    assert!(calls.try_recv().is_err());
}

#[tokio::test]
async fn submitted_request_may_have_http_requests() {
    let (origin, mut calls) = receiver().await;
    let desk =
        Desk::with(Arc::new(MemoryStore::new()), sends_to(&origin).with_processor(true)).await;
    let socket = desk.listen().await;
    desk.put("/stock/_doc/a", &json!({ "n": 0 })).await.is(201);
    let url = format!("{origin}/later");
    let body = json!({ "operations": [put("a")], "after_commit": [call(&url)] });
    desk.post("/_requests/r", &body).await.is(202);
    assert_eq!(calls.recv().await.expect("a call").0, "/later");
    assert_eq!(desk.content("/stock/_doc/a").await, json!({ "n": 1 }));
    socket.stop.send(()).expect("serves");
    assert!(socket.served.await.expect("no panic"));
}

#[tokio::test]
async fn unfit_requests_are_refused_before_the_commit() {
    let desk = Desk::with(Arc::new(MemoryStore::new()), sends_to("http://10.0.0.1:80")).await;
    let secret = json!({ "authorization": "Bearer canary" });
    for bad in [
        call("http://10.0.0.2/other"),
        call("ftp://10.0.0.1/"),
        json!({ "method": "GET", "url": "http://10.0.0.1/" }),
        json!({ "method": "POST", "url": "http://10.0.0.1/", "headers": secret }),
        json!({ "method": "POST", "url": "http://10.0.0.1/", "headers": { "x-other": "a" } }),
    ] {
        let body = json!({ "operations": [put("a")], "after_commit": [bad] });
        let refused = desk.post("/_txn", &body).await.fails(400, "invalid");
        assert!(!refused.to_string().contains("canary"), "{refused}");
        desk.post("/_requests/r", &body).await.fails(400, "invalid");
    }
    assert_eq!(desk.get("/stock/_doc/a").await.status, 404);
    // A gateway without destinations sends nothing.
    let other = Desk::memory().await;
    let body = json!({ "operations": [put("a")], "after_commit": [call("http://10.0.0.1/")] });
    other.post("/_txn", &body).await.fails(400, "unsupported");
    other.post("/_requests/r", &body).await.fails(400, "unsupported");
    assert!(other.domain.admin().overview().await.expect("reads").collections.is_empty());
}

#[tokio::test]
async fn http_requests_need_their_verb() {
    let (origin, mut calls) = receiver().await;
    let mut file = File::new();
    let shop = file.add("shop", &[&origin], &["call"]);
    let other = file.add("other", &["http://10.0.0.2:80"], &["call"]);
    let submits = file.add("submits", &["stock"], &["write"]);
    let config = sends_to(&origin).with_tokens(Some(file.open()));
    let desk = Desk::with(Arc::new(MemoryStore::new()), config).await;
    let socket = desk.listen().await;
    let body = json!({ "after_commit": [call(&format!("{origin}/hook"))] });
    let post = async |token: &str, path: &str| ask(&desk, token, Method::POST, path, &body).await;
    let get =
        async |token: &str, path: &str| ask(&desk, token, Method::GET, path, &Value::Null).await;
    lacks(post(&other, "/_txn/commit").await, "call", Some(&origin));
    lacks(post(&submits, "/_txn/commit").await, "call", Some(&origin));
    lacks(post(&shop, "/_requests/r").await, "submit", None);
    // The right comes first: a refusal does not tell the destinations.
    let inside = json!({ "after_commit": [call("http://10.0.0.3/")] });
    let refused = ask(&desk, &other, Method::POST, "/_txn/commit", &inside).await;
    lacks(refused, "call", Some("http://10.0.0.3:80"));
    let stored = post(&shop, "/_txn/commit").await.is(200);
    calls.recv().await.expect("a call");
    let path = path_of(&stored["after_commit"][0]);
    while get(&shop, &path).await.status != 200 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Another caller learns neither the result nor the origin.
    let missing = get(&other, &path).await.fails(404, "not_found");
    assert!(!missing.to_string().contains(&origin), "{missing}");
    lacks(get(&submits, &path).await, "call", None);
    socket.stop.send(()).expect("serves");
    assert!(socket.served.await.expect("no panic"));
}

#[tokio::test]
async fn key_of_one_origin_delays_no_other() {
    let (origin, mut calls) = receiver().await;
    // Nothing listens at the first port, so its queue waits.
    let down = "http://127.0.0.1:9";
    let destinations = [down, &origin].map(|it| Destination::new(it).expect("an origin"));
    let http = HttpConfig::default().with_destinations(destinations.to_vec());
    let config = ServeConfig::default().with_http_requests(Some(http));
    let desk = Desk::with(Arc::new(MemoryStore::new()), config).await;
    let socket = desk.listen().await;
    let keyed = |origin: &str| {
        let mut call = call(&format!("{origin}/hook"));
        call["key"] = json!("same");
        json!({ "after_commit": [call] })
    };
    desk.post("/_txn/commit", &keyed(down)).await.is(200);
    desk.post("/_txn/commit", &keyed(&origin)).await.is(200);
    calls.recv().await.expect("a call");
    socket.stop.send(()).expect("serves");
    assert!(socket.served.await.expect("no panic"));
}

#[test]
fn unfit_settings_are_refused() {
    let new = |collection: &str| {
        let (names, verbs) = ([collection.to_owned()], ["call".to_owned()]);
        NewToken::new("shop", &names, &verbs).map(|token| token.entry)
    };
    for bad in ["https://a.example", "a.example:443", "https://A.example:443", "stock"] {
        assert!(new(bad).is_err(), "{bad}");
    }
    for good in ["https://a.example:443", "https://a.example*", "*"] {
        assert!(new(good).is_ok(), "{good}");
    }
}
