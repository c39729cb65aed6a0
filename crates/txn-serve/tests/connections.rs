//! The gateway on a socket: real connections, the drain, and hosts.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use txn_core::store::MemoryStore;
use txn_core::{Options, Raw};
use txn_serve::ServeConfig;

use super::access::File;
use super::desk::{Desk, Socket};

struct Running {
    desk: Desk,
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    served: JoinHandle<bool>,
}

async fn start(config: ServeConfig) -> Running {
    let config = config.with_create_collections(true);
    let desk = Desk::with(Arc::new(MemoryStore::new()), config).await;
    let Socket { address, stop, served } = desk.listen().await;
    Running { desk, address, stop, served }
}

/// Sends text, and returns all text until the connection ends.
async fn exchange(address: SocketAddr, text: &str) -> String {
    let mut stream = TcpStream::connect(address).await.expect("connects");
    stream.write_all(text.as_bytes()).await.expect("sends");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("answers");
    answer
}

fn request(method: &str, path: &str, host: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_writes_and_reads_over_a_socket() {
    let running = start(ServeConfig::default()).await;
    let url = format!("http://{}/stock/_doc/a", running.address);
    let done = tokio::task::spawn_blocking(move || {
        let written = ureq::put(&url).send_json(json!({ "n": 1 })).expect("writes");
        assert_eq!(written.status(), 201);
        let mut read = ureq::get(&url).call().expect("reads");
        read.body_mut().read_json::<Value>().expect("JSON")
    });
    assert_eq!(done.await.expect("no panic")["_source"], json!({ "n": 1 }));
    running.stop.send(()).expect("runs");
    assert!(running.served.await.expect("no panic"));
}

#[tokio::test]
async fn head_has_no_body() {
    let running = start(ServeConfig::default()).await;
    let answer = exchange(running.address, &request("HEAD", "/", "localhost", "")).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.ends_with("\r\n\r\n"), "{answer}");
}

#[tokio::test]
async fn other_hosts_are_refused_on_loopback() {
    let running = start(ServeConfig::default()).await;
    let get = |host: &str| request("GET", "/", host, "");
    let answer = exchange(running.address, &get("evil.example.com")).await;
    assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("\"host\""), "{answer}");
    let from = |origin: &str| {
        get("localhost").replace("Connection:", &format!("Origin: {origin}\r\nConnection:"))
    };
    for origin in ["https://evil.example.com", "null"] {
        let answer = exchange(running.address, &from(origin)).await;
        assert!(answer.starts_with("HTTP/1.1 403"), "{origin}: {answer}");
    }
    let answer = exchange(running.address, &from("http://localhost:3000")).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    for host in ["localhost:9280", "127.0.0.1", "[::1]:9280"] {
        let answer = exchange(running.address, &get(host)).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{host}: {answer}");
    }
}

/// A browser sends the login of its user with the request of any page.
#[tokio::test]
async fn page_of_another_site_writes_nothing() {
    let desk = Desk::memory().await;
    let put = |headers: Vec<(&'static str, &'static str)>| {
        let json = [("content-type", "application/json"), ("host", "db.example:9280")];
        let headers: Vec<_> = json.into_iter().chain(headers).collect();
        let desk = &desk;
        async move { desk.send(Method::PUT, "/stock/_doc/a", &headers, "{}").await }
    };
    for foreign in [("origin", "https://evil.example"), ("sec-fetch-site", "cross-site")] {
        put(vec![foreign]).await.fails(403, "host");
        let headers = [("host", "db.example:9280"), foreign];
        let dropped = desk.send(Method::POST, "/_outbox/dead/t%2Fa%2F1/drop", &headers, "").await;
        dropped.fails(403, "host");
        let read = desk.send(Method::GET, "/stock/_doc/a", &headers, "").await;
        read.fails(404, "no_collection");
    }
    put(vec![("origin", "https://db.example:9280")]).await.is(201);
    put(vec![]).await.is(200);
}

#[tokio::test]
async fn drain_answers_what_runs_and_admits_no_more() {
    let running = start(ServeConfig::default()).await;
    let Running { desk, address, stop, served } = running;
    let stock = desk.domain.create_collection::<Raw>("stock", None).await.expect("creates");
    let options = Options::default().with_lock_mode(txn_core::LockMode::AtRead);
    let tx = desk.domain.begin(&options).expect("begins");
    tx.put(&stock, "b", &Raw::new("{}")).expect("writes");
    assert!(tx.get(&stock, "a").await.expect("locks").is_none());
    let idle = TcpStream::connect(address).await.expect("connects");
    let put = request("PUT", "/stock/_doc/a", "localhost", "{}");
    let waiting = tokio::spawn(async move { exchange(address, &put).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    stop.send(()).expect("runs");
    let mut closing = false;
    for _ in 0..500 {
        if desk.get("/readyz").await.status == 503 {
            desk.get("/readyz").await.fails(503, "closing");
            desk.put("/stock/_doc/c", &json!({})).await.fails(503, "closing");
            closing = true;
            break;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert!(closing, "the drain never began");
    desk.get("/healthz").await.is(200);
    tx.rollback().await;
    let answer = waiting.await.expect("no panic");
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    assert!(served.await.expect("no panic"), "all requests were answered");
    drop(idle);
    TcpStream::connect(address).await.expect_err("the listener is closed");
}

#[tokio::test]
async fn drain_has_an_end() {
    let drain = Duration::from_millis(100);
    let running = start(ServeConfig::default().with_drain(drain)).await;
    // The head of a request that never ends.
    let mut stream = TcpStream::connect(running.address).await.expect("connects");
    let head = "PUT /stock/_doc/a HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n";
    stream.write_all(head.as_bytes()).await.expect("sends");
    tokio::time::sleep(Duration::from_millis(100)).await;
    running.stop.send(()).expect("runs");
    assert!(!running.served.await.expect("no panic"), "the request was cut");
}

#[tokio::test]
async fn idle_connection_is_closed() {
    let head = Duration::from_millis(100);
    let running = start(ServeConfig::default().with_head_timeout(head)).await;
    let mut stream = TcpStream::connect(running.address).await.expect("connects");
    stream.write_all(b"GET / HT").await.expect("sends");
    let mut answer = Vec::new();
    let closed = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut answer));
    closed.await.expect("the gateway closes the connection").expect("reads");
}

#[tokio::test]
async fn connections_beyond_the_limit_wait() {
    let running = start(ServeConfig::default().with_max_connections(1)).await;
    let first = TcpStream::connect(running.address).await.expect("connects");
    tokio::time::sleep(Duration::from_millis(50)).await;
    let address = running.address;
    let second =
        tokio::spawn(async move { exchange(address, &request("GET", "/", "localhost", "")).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!second.is_finished(), "the second connection was served at once");
    drop(first);
    assert!(second.await.expect("no panic").starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn client_that_reads_no_answer_is_cut() {
    let timeout = Duration::from_millis(100);
    let config = ServeConfig::default().with_max_connections(1).with_write_timeout(timeout);
    let running = start(config).await;
    let large = json!({ "text": "x".repeat(12 << 20) });
    running.desk.put("/stock/_doc/a", &large).await.is(201);
    let mut stream = TcpStream::connect(running.address).await.expect("connects");
    let get = request("GET", "/stock/_doc/a", "localhost", "");
    stream.write_all(get.as_bytes()).await.expect("sends");
    // The only connection is free again after the end of the first one.
    let answer = exchange(running.address, &request("GET", "/", "localhost", "")).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let mut taken = Vec::new();
    let whole = stream.read_to_end(&mut taken).await.is_ok_and(|bytes| bytes > 12 << 20);
    assert!(!whole, "the client has received the whole answer");
}

/// Without login or to another host, the gateway needs no body for its answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusal_waits_for_the_end_of_the_body() {
    let mut file = File::new();
    file.add("shop", &["*"], &["write"]);
    let running = start(ServeConfig::default().with_tokens(Some(file.open()))).await;
    let body = "x".repeat(12 << 20);
    let write = |host: &str| request("PUT", "/stock/_doc/a", host, &body);
    let answer = exchange(running.address, &write("localhost")).await;
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    let answer = exchange(running.address, &write("evil.example.com")).await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    running.stop.send(()).expect("runs");
    assert!(running.served.await.expect("no panic"));
}

/// A client with a large body receives its refusal.
///
/// The client reads no answer before it has sent the body.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_with_a_large_body_receives_its_refusal() {
    let running = start(ServeConfig::default().with_max_body(4 << 20)).await;
    let body = "x".repeat(12 << 20);
    let whole =
        exchange(running.address, &request("PUT", "/stock/_doc/a", "localhost", &body)).await;
    assert!(whole.starts_with("HTTP/1.1 413 "), "{whole}");
    let chunked = format!(
        "PUT /stock/_doc/a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n\
         {:x}\r\n{body}\r\n0\r\n\r\n",
        body.len()
    );
    let whole = exchange(running.address, &chunked).await;
    assert!(whole.starts_with("HTTP/1.1 413 "), "{whole}");
    // The gateway learns the length of this body only while it reads.
    let asks = chunked.replace("Connection: close", "Connection: close\r\nExpect: 100-continue");
    let whole = exchange(running.address, &asks).await;
    assert!(whole.contains("HTTP/1.1 413 "), "{whole}");
    let asks = request("PUT", "/stock/_doc/a", "localhost", &body)
        .replace("Connection: close", "Connection: close\r\nExpect: 100-continue");
    let head = asks.strip_suffix(&body).expect("a body");
    let whole = exchange(running.address, head).await;
    assert!(whole.starts_with("HTTP/1.1 413 "), "{whole}");
    running.stop.send(()).expect("runs");
    assert!(running.served.await.expect("no panic"));
}
