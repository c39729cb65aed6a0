use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

mod authentication;
mod fake;
mod hung_nodes;
mod resting_runtimes;
mod tls;

#[test]
fn the_password_is_not_in_the_debug_output() {
    let config = EsConfig::from_url("http://elastic:hunter2@127.0.0.1:1").unwrap();
    let transport = Transport::new(&config).unwrap();
    let printed = format!("{transport:?} {config:?}");
    assert!(!printed.contains("hunter2"), "{printed}");
    assert!(printed.contains("127.0.0.1:1"));
}

#[test]
fn invalid_certificates_are_refused_and_not_printed() {
    let config = EsConfig::from_url("https://127.0.0.1:1").unwrap();
    let no_pem = Transport::new(&config.clone().with_certificate_authority("hunter2"));
    let bad_key = Transport::new(&config.with_api_key("hunter2\n"));
    for error in [no_pem.unwrap_err(), bad_key.unwrap_err()] {
        assert_eq!(error.kind, StoreErrorKind::Misconfigured);
        assert!(!error.message.contains("hunter2"), "{}", error.message);
    }
}

#[tokio::test]
async fn a_closed_port_means_nothing_was_sent() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let config = EsConfig::from_url(&format!("http://u:hunter2@{address}")).unwrap();
    let transport = Transport::new(&config).unwrap();
    let Failure::NotSent(text) = transport.send(root()).await.unwrap_err() else {
        panic!("not classified as unsent")
    };
    let text = text.message;
    assert!(text.contains("refused") && !text.contains("hunter2"), "{text}");
}

#[tokio::test]
async fn closed_or_silent_connection_loses_the_request() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let mut held = Vec::new();
        for n in 0.. {
            let (socket, _) = listener.accept().await.unwrap();
            if n > 0 {
                held.push(socket);
            }
        }
    });
    let config = EsConfig::from_url(&url).unwrap();
    let config = config.with_request_timeout(Duration::from_millis(200));
    let transport = Transport::new(&config).unwrap();
    for _ in 0..2 {
        let failure = transport.send(root()).await.unwrap_err();
        assert!(matches!(failure, Failure::Lost(_)), "{failure:?}");
    }
    server.abort();
}

#[tokio::test]
async fn next_node_is_asked_once() {
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let open = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let urls = [&closed, &open].map(|l| format!("http://{}", l.local_addr().unwrap()));
    drop(closed);
    let server = tokio::spawn(async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        loop {
            let (mut socket, _) = open.accept().await.unwrap();
            let mut buffer = [0; 1024];
            let _ = socket.read(&mut buffer).await;
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
            let _ = socket.write_all(answer).await;
        }
    });
    let transport = Transport::new(&EsConfig::new(urls).unwrap()).unwrap();
    for _ in 0..4 {
        assert_eq!(transport.send(root()).await.unwrap().status, 200);
    }
    server.abort();
}

fn label(transport: &Transport) -> String {
    transport.nodes.labels().next().unwrap().to_owned()
}

fn root() -> Request<'static> {
    let (path, query, class) = ("/", &[], RequestClass::Read);
    Request { method: Method::GET, path, query, body: None, items: 0, room: 1_000, class }
}

fn write() -> Request<'static> {
    let (path, query, class) = ("/_bulk", &[], RequestClass::Write);
    let body = Some("{}".into());
    Request { method: Method::POST, path, query, body, items: 1, room: 1_000, class }
}

/// A peer that answers every connection with the same bytes.
///
/// `tail` follows forever.
async fn peer(answer: String, tail: &'static [u8]) -> (Transport, Arc<AtomicUsize>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://shop:hunter2@{}", listener.local_addr().unwrap());
    let connections = Arc::new(AtomicUsize::new(0));
    let count = connections.clone();
    tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            count.fetch_add(1, Ordering::SeqCst);
            let answer = answer.clone();
            tokio::spawn(async move {
                let mut buffer = [0; 4096];
                let _ = socket.read(&mut buffer).await;
                let _ = socket.write_all(answer.as_bytes()).await;
                while !tail.is_empty() && socket.write_all(tail).await.is_ok() {}
            });
        }
    });
    (Transport::new(&EsConfig::from_url(&url).unwrap()).unwrap(), connections)
}

#[tokio::test]
async fn endless_answer_is_read_up_to_the_limit() {
    let endless = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{".to_owned();
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_owned();
    let announced = "HTTP/1.1 200 OK\r\ncontent-length: 3000000000\r\n\r\n{".to_owned();
    for (answer, tail) in [(endless, b" ".as_slice()), (chunked, b"1\r\n \r\n"), (announced, b" ")]
    {
        let (transport, _) = peer(answer, tail).await;
        let Failure::TooLarge(error) = transport.send(root()).await.unwrap_err() else {
            panic!("taken")
        };
        assert_eq!(error.kind, StoreErrorKind::Unavailable);
        assert!(error.message.contains("larger than the limit of 1000 bytes"), "{error}");
    }
}

#[tokio::test]
async fn answer_of_exactly_the_limit_is_accepted() {
    let answer = |bytes: usize| {
        let body = "x".repeat(bytes);
        format!("HTTP/1.1 200 OK\r\ncontent-length: {bytes}\r\n\r\n{body}")
    };
    let (transport, _) = peer(answer(1_000), b"").await;
    assert_eq!(transport.send(root()).await.unwrap().body.len(), 1_000);
    let (transport, _) = peer(answer(1_001), b"").await;
    assert!(matches!(transport.send(root()).await, Err(Failure::TooLarge(_))));
}

#[test]
fn answer_limit_is_bounded() {
    assert!(room_for(1, 100) >= 100 + BESIDE);
    assert!(room_for(500, 1 << 10) >= 500 << 10);
    assert_eq!(room_for(usize::MAX, usize::MAX / 2), usize::MAX / 2 + BESIDE);
    assert_eq!(room_for(10_000, 10 << 20), MOST_ROOM);
}

#[tokio::test]
async fn redirect_is_reported_and_not_followed() {
    let (elsewhere, reached) = peer(String::new(), b"").await;
    let elsewhere = label(&elsewhere).replace("http://", "");
    let there = format!("http://u:hunter3@{elsewhere}/_bulk");
    for (status, location, told) in [
        (307, there.as_str(), &*format!("redirects to http://{elsewhere};")),
        (
            307,
            "http://u:hunter3@other.example:9200/_bulk?key=hunter3",
            "http://other.example:9200;",
        ),
        (302, "https://other.example/login", "https://other.example;"),
        (308, "/hunter3", "the address of the cluster itself"),
        (301, "", "the address of the cluster itself"),
        (303, "mailto:hunter3", "the address of the cluster itself"),
    ] {
        let answer = format!(
            "HTTP/1.1 {status} X\r\nlocation: {location}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        );
        let (transport, connections) = peer(answer, b"").await;
        let failure = transport.send(write()).await.unwrap_err();
        let Failure::Lost(error) = failure else { panic!("{failure:?}") };
        assert_eq!(error.kind, StoreErrorKind::Misconfigured);
        assert!(error.message.contains(told), "{error}");
        assert!(!error.message.contains("hunter"), "{error}");
        assert_eq!(connections.load(Ordering::SeqCst), 1);
    }
    assert_eq!(reached.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn mix_of_tls_and_plain_ports_is_reported() {
    // The answer of a server that parses the first bytes of TLS as a request.
    let plain = "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n".to_owned();
    let (transport, _) = peer(plain, b"").await;
    let url = label(&transport).replace("http://", "https://");
    let transport = Transport::new(&EsConfig::from_url(&url).unwrap()).unwrap();
    let Failure::NotSent(error) = transport.send(root()).await.unwrap_err() else {
        panic!("nothing can be sent without TLS")
    };
    assert_eq!(error.kind, StoreErrorKind::Misconfigured);
    assert!(error.message.contains("http://host:port"), "{error}");

    // A TLS alert, and no bytes.
    for answer in ["\u{15}\u{3}\u{3}\u{0}\u{2}\u{2}\u{46}", ""] {
        let (transport, _) = peer(answer.to_owned(), b"").await;
        let failure = transport.send(write()).await.unwrap_err();
        let Failure::Lost(error) = failure else { panic!("{failure:?}") };
        assert!(error.message.contains("https://host:port"), "{error}");
    }
}
