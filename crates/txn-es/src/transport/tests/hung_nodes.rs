//! Nodes that hang, refuse, or return.
//!
//! No test measures time: the tests assert which node was asked.

use std::sync::atomic::AtomicBool;
use std::time::Instant;

use futures::future::join_all;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::fake::{Fake, Received};
use super::*;

/// A server that answers `{}`, or nothing while it hangs.
struct FakeNode {
    url: String,
    hangs: Arc<AtomicBool>,
    requests: Arc<AtomicUsize>,
    /// Connections with a lower number stay silent forever.
    forgets_before: Arc<AtomicUsize>,
    connections: Arc<AtomicUsize>,
}

impl FakeNode {
    async fn start(hangs: bool) -> Self {
        let hangs = Arc::new(AtomicBool::new(hangs));
        let (requests, forgets_before): (Arc<AtomicUsize>, Arc<AtomicUsize>) = Default::default();
        let (deaf, received, forgets) = (hangs.clone(), requests.clone(), forgets_before.clone());
        let server = Fake::start(move |request: &Received| {
            received.fetch_add(1, Ordering::SeqCst);
            let forgotten = request.connection < forgets.load(Ordering::SeqCst);
            let answers = !deaf.load(Ordering::SeqCst) && !forgotten;
            answers.then(|| (200, "{}".to_owned()))
        })
        .await;
        let Fake { url, connections } = server;
        Self { url, hangs, requests, forgets_before, connections }
    }

    fn hang(&self, hangs: bool) {
        self.hangs.store(hangs, Ordering::SeqCst);
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    /// Drops all bytes on old connections.
    ///
    /// A load balancer that forgot the connections does the same.
    fn forget_connections(&self) {
        self.forgets_before.store(self.connections.load(Ordering::SeqCst), Ordering::SeqCst);
    }
}

fn connect(urls: &[&str], request_timeout: Duration) -> Transport {
    let config = EsConfig::new(urls).unwrap().with_request_timeout(request_timeout);
    let config = config.with_connect_timeout(Duration::from_millis(300));
    Transport::new(&config).unwrap()
}

/// Long enough for a test under load. A silent node is left out after a tenth of this time.
const LONG: Duration = Duration::from_secs(4);

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < Duration::from_secs(60), "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_avoid_a_hung_node() {
    let nodes = [FakeNode::start(false).await, FakeNode::start(true).await];
    let transport = connect(&[&nodes[0].url, &nodes[1].url], LONG);
    for _ in 0..40 {
        assert_eq!(transport.send(root()).await.unwrap().status, 200);
    }
    // At most two requests before the node is left out, and the probes.
    assert!(nodes[1].requests() < 10, "{} requests to a hung node", nodes[1].requests());
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_leave_out_a_hung_node() {
    let nodes = [FakeNode::start(false).await, FakeNode::start(true).await];
    let transport = connect(&[&nodes[0].url, &nodes[1].url], Duration::from_secs(2));
    let mut lost = 0;
    for _ in 0..40 {
        match transport.send(write()).await {
            Ok(answer) => assert_eq!(answer.status, 200),
            Err(Failure::Lost(_)) => lost += 1,
            Err(other) => panic!("{other:?}"),
        }
    }
    // A sent write is never repeated, so the first write to the node is lost.
    assert!((1..=3).contains(&lost), "{lost} of 40 writes lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn load_avoids_a_hung_node_until_it_returns() {
    let nodes = [FakeNode::start(false).await, FakeNode::start(false).await];
    let transport = connect(&[&nodes[0].url, &nodes[1].url], LONG);
    let load = || join_all((0..64).map(|_| transport.send(root())));
    for answer in load().await {
        answer.unwrap();
    }
    nodes[1].hang(true);
    for _ in 0..5 {
        for answer in load().await {
            assert_eq!(answer.unwrap().status, 200);
        }
    }
    nodes[1].hang(false);
    let before = nodes[1].requests();
    until("the node is used again", async || {
        transport.send(root()).await.unwrap();
        nodes[1].requests() > before + 20
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hung_nodes_are_retried_and_named() {
    let nodes = [FakeNode::start(true).await, FakeNode::start(true).await];
    let transport = connect(&[&nodes[0].url, &nodes[1].url], Duration::from_millis(1_000));
    for request in [root, write, root] {
        let failure = transport.send(request()).await.unwrap_err();
        let Failure::Lost(error) = failure else { panic!("{failure:?}") };
        assert_eq!(error.kind, StoreErrorKind::Unavailable);
        assert!(error.message.contains("no answer in time"), "{error}");
    }
    let error = transport.send(root()).await.unwrap_err().into_error();
    assert!(error.message.contains("none of the nodes answers now"), "{error}");
    assert!(nodes.iter().all(|node| error.message.contains(&node.url)), "{error}");
    nodes[0].hang(false);
    until("the node is used again", async || transport.send(write()).await.is_ok()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn single_node_is_used_after_it_hung() {
    let node = FakeNode::start(true).await;
    let transport = connect(&[&node.url], Duration::from_millis(500));
    for _ in 0..3 {
        assert!(matches!(transport.send(write()).await, Err(Failure::Lost(_))));
        assert!(matches!(transport.send(root()).await, Err(Failure::Lost(_))));
    }
    node.hang(false);
    assert_eq!(transport.send(root()).await.unwrap().status, 200);
    until("writes reach it", async || transport.send(write()).await.is_ok()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_node_is_asked_until_one_can_be_reached() {
    let mut closed = Vec::new();
    for _ in 0..3 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        closed.push(format!("http://{}", listener.local_addr().unwrap()));
    }
    let node = FakeNode::start(false).await;
    let urls = [&*closed[0], &closed[1], &closed[2], &node.url];
    let transport = connect(&urls, LONG);
    for _ in 0..12 {
        assert_eq!(transport.send(write()).await.unwrap().status, 200);
    }
    let transport = connect(&urls[..3], LONG);
    let failure = transport.send(write()).await.unwrap_err();
    let Failure::NotSent(error) = failure else { panic!("{failure:?}") };
    assert!(closed.iter().all(|url| error.message.contains(url)), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_connection_sends_nothing() {
    // A TLS handshake without an answer, and a full queue of connections.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let deaf = format!("https://{}", listener.local_addr().unwrap());
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let full = socket.listen(0).unwrap();
    let address = full.local_addr().unwrap();
    let mut held = Vec::new();
    while let Ok(Ok(held_up)) =
        tokio::time::timeout(Duration::from_millis(200), TcpStream::connect(address)).await
    {
        held.push(held_up);
    }
    let node = FakeNode::start(false).await;
    for url in [deaf, format!("http://{address}")] {
        let alone = connect(&[&url], LONG);
        let failure = alone.send(write()).await.unwrap_err();
        let Failure::NotSent(error) = failure else { panic!("{failure:?}") };
        assert!(error.message.contains("no connection in time"), "{error}");
        let both = connect(&[&url, &node.url], LONG);
        for _ in 0..4 {
            assert_eq!(both.send(write()).await.unwrap().status, 200);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn forgotten_connections_are_replaced() {
    let balancer = FakeNode::start(false).await;
    let transport = connect(&[&balancer.url], LONG);
    for answer in join_all((0..8).map(|_| transport.send(root()))).await {
        answer.unwrap();
    }
    balancer.forget_connections();
    // All eight idle connections are dead, and a read does not notice.
    for answer in join_all((0..8).map(|_| transport.send(root()))).await {
        assert_eq!(answer.unwrap().status, 200);
    }
    until("writes take new connections", async || transport.send(write()).await.is_ok()).await;
    for answer in join_all((0..8).map(|_| transport.send(write()))).await {
        assert_eq!(answer.unwrap().status, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_avoid_a_redirecting_node() {
    let moved = "HTTP/1.1 307 X\r\nlocation: http://other.example\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    let (redirecting, _) = peer(moved.to_owned(), b"").await;
    let node = FakeNode::start(false).await;
    let transport = connect(&[&label(&redirecting), &node.url], LONG);
    for _ in 0..6 {
        assert_eq!(transport.send(root()).await.unwrap().status, 200);
    }
}
