//! Each fault of the proxy, in front of a minimal server.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use txn_testkit::proxy::{
    Fault, FaultKind, Manners, Matching, Odds, Outage, Point, Proxy, Refusal, Route, Schedule,
};

/// The maximum time for any event that has to happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that answers every request with its content, and records it.
struct Echo {
    url: String,
    got: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Echo {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("listens");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let got = Arc::new(Mutex::new(Vec::new()));
        let seen = got.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let seen = seen.clone();
                tokio::spawn(async move {
                    let service = service_fn(|request| echo(seen.clone(), request));
                    let server = hyper::server::conn::http1::Builder::new();
                    // The server ignores clients that disconnect.
                    let _ = server.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Self { url, got, task }
    }

    fn got(&self) -> Vec<String> {
        self.got.lock().clone()
    }

    async fn gets(&self, count: usize) -> Vec<String> {
        let began = std::time::Instant::now();
        while self.got().len() < count {
            assert!(began.elapsed() < PATIENCE, "only {:?} arrived", self.got());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        self.got()
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Answers with the request.
///
/// If the body is an object, the answer is the body alone.
async fn echo(
    seen: Arc<Mutex<Vec<String>>>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let line = format!("{} {}", request.method(), request.uri());
    let body = request
        .into_body()
        .collect()
        .await
        .map(http_body_util::Collected::to_bytes)
        .unwrap_or_default();
    let line = format!("{line} {}", String::from_utf8_lossy(&body));
    seen.lock().push(line.clone());
    let answer = if body.starts_with(b"{") { body } else { Bytes::from(line) };
    Ok(Response::builder()
        .status(201)
        .header("x-echo", "yes")
        .body(Full::from(answer))
        .expect("an answer"))
}

/// A server, a proxy and a client of the proxy.
struct Ground {
    echo: Echo,
    proxy: Proxy,
    client: reqwest::Client,
}

impl Ground {
    async fn new() -> Self {
        let echo = Echo::start().await;
        let proxy = Proxy::start(&echo.url).await.expect("starts");
        let client = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build();
        Self { echo, proxy, client: client.expect("a client") }
    }

    async fn post(&self, path: &str, body: &str) -> Result<(u16, String), reqwest::Error> {
        let url = format!("{}{path}", self.proxy.url());
        let answer = self.client.post(url).body(body.to_owned()).send().await?;
        Ok((answer.status().as_u16(), answer.text().await?))
    }

    /// Sends a request in its own task.
    fn posting(&self, path: &'static str) -> JoinHandle<Result<(u16, String), reqwest::Error>> {
        let request = self.client.post(format!("{}{path}", self.proxy.url())).body("x");
        tokio::spawn(async move {
            let answer = request.send().await?;
            Ok((answer.status().as_u16(), answer.text().await?))
        })
    }

    /// Sends one request with a fault, and a second one without.
    async fn meets(&self, fault: Fault) -> Result<(u16, String), reqwest::Error> {
        self.proxy.inject(Matching::any().with_path("first"), fault);
        let first = self.post("/first", "1").await;
        let second = self.post("/second", "2").await.expect("passes");
        assert_eq!(second, (201, "POST /second 2".to_owned()));
        self.proxy.settle().await;
        assert_eq!(self.proxy.counts().of(fault.kind()), 1, "{:?}", self.proxy);
        assert_eq!(self.proxy.counts().all_faults(), 1);
        first
    }
}

#[tokio::test]
async fn without_faults_requests_pass_unchanged() {
    let ground = Ground::new().await;
    let long = "ä\n".repeat(200_000);
    let answer = ground.post("/a%20b/_doc/1?routing=%C3%A4&b", &long).await.expect("passes");
    assert_eq!(answer, (201, format!("POST /a%20b/_doc/1?routing=%C3%A4&b {long}")));
    let url = format!("{}/x", ground.proxy.url());
    let head = ground.client.head(&url).send().await.expect("passes");
    assert_eq!(head.headers()["x-echo"], "yes");
    assert_eq!(head.headers()["content-length"], "8");
    let counts = ground.proxy.counts();
    assert_eq!((counts.requests, counts.forwarded, counts.all_faults()), (2, 2, 0));
    ground.proxy.shutdown().await;
}

#[tokio::test]
async fn lost_answer_means_carried_out() {
    let ground = Ground::new().await;
    let error = ground.meets(Fault::LoseAnswer).await.expect_err("lost");
    assert!(!error.is_connect() && !error.is_timeout(), "{error:?}");
    assert_eq!(ground.echo.got(), ["POST /first 1", "POST /second 2"]);
}

#[tokio::test]
async fn request_cut_before_the_server_is_not_carried_out() {
    let ground = Ground::new().await;
    ground.meets(Fault::CutBefore).await.expect_err("cut");
    assert_eq!(ground.echo.got(), ["POST /second 2"]);
}

#[tokio::test]
async fn delays_change_nothing_else() {
    let brief = Duration::from_millis(30);
    for fault in [Fault::DelayBefore(brief), Fault::DelayAfter(brief)] {
        let ground = Ground::new().await;
        let began = std::time::Instant::now();
        assert_eq!(ground.meets(fault).await.expect("passes").1, "POST /first 1");
        assert!(began.elapsed() >= brief);
    }
}

#[tokio::test]
async fn request_arrives_after_its_client_gave_up() {
    let ground = Ground::new().await;
    ground.proxy.inject(Matching::any(), Fault::DelayBefore(Duration::from_secs(3)));
    let url = format!("{}/late", ground.proxy.url());
    let hasty = ground.client.post(&url).timeout(Duration::from_secs(1)).send().await;
    assert!(hasty.expect_err("gives up").is_timeout());
    assert_eq!(ground.echo.gets(1).await, ["POST /late "]);
    ground.proxy.settle().await;
}

#[tokio::test]
async fn duplicates_arrive_twice() {
    for fault in [Fault::Duplicate, Fault::DuplicateLate(Duration::from_secs(2))] {
        let ground = Ground::new().await;
        assert_eq!(ground.meets(fault).await.expect("passes").1, "POST /first 1");
        let mut got = ground.echo.gets(3).await;
        if fault != Fault::Duplicate {
            assert_eq!(got[1..], ["POST /second 2", "POST /first 1"], "the late one is late");
        }
        got.sort();
        assert_eq!(got, ["POST /first 1", "POST /first 1", "POST /second 2"]);
        assert_eq!(ground.proxy.counts().forwarded, 3);
    }
}

#[tokio::test]
async fn refusals_do_not_reach_the_server() {
    for (fault, status) in [(Fault::TooManyRequests, 429), (Fault::ServiceUnavailable, 503)] {
        let ground = Ground::new().await;
        assert_eq!(ground.meets(fault).await.expect("an answer").0, status);
        assert_eq!(ground.echo.got(), ["POST /second 2"]);
    }
}

#[tokio::test]
async fn half_an_answer_is_an_error_after_its_status() {
    let ground = Ground::new().await;
    ground.proxy.inject(Matching::any(), Fault::CutAnswer);
    let url = format!("{}/first", ground.proxy.url());
    let answer = ground.client.post(url).body("a longer text").send().await.expect("a status");
    assert_eq!(answer.status(), 201);
    answer.text().await.expect_err("the rest is missing");
    assert_eq!(ground.proxy.counts().of(FaultKind::CutAnswer), 1);
    assert_eq!(ground.echo.got(), ["POST /first a longer text"]);
}

#[tokio::test]
async fn rules_match_once_and_in_order() {
    let ground = Ground::new().await;
    let bulk = Matching::route(Route::Bulk).with_body("commit");
    ground.proxy.inject(bulk.clone(), Fault::TooManyRequests);
    ground.proxy.inject(bulk, Fault::ServiceUnavailable);
    let mut seen = Vec::new();
    for (path, body) in [
        ("/_mget", "commit"),
        ("/_bulk", "lock"),
        ("/_bulk", "commit"),
        ("/_bulk", "commit"),
        ("/_bulk", "commit"),
    ] {
        seen.push(ground.post(path, body).await.expect("an answer").0);
    }
    assert_eq!(seen, [201, 201, 429, 503, 201]);
}

#[tokio::test]
async fn schedule_can_be_paused() {
    let ground = Ground::new().await;
    let refuse = Odds::none().with(FaultKind::TooManyRequests, 1.0);
    ground.proxy.set_schedule(Schedule::new(1, Odds::none()).with_route(Route::Bulk, refuse));
    let status = async |path| ground.post(path, "").await.expect("an answer").0;
    assert_eq!((status("/_bulk").await, status("/_mget").await), (429, 201));
    ground.proxy.pause(true);
    assert_eq!(status("/_bulk").await, 201);
    ground.proxy.pause(false);
    assert_eq!(status("/_bulk").await, 429);
    ground.proxy.clear();
    assert_eq!(status("/_bulk").await, 201);
}

#[tokio::test]
async fn a_request_is_held_before_the_server_gets_it() {
    let ground = Ground::new().await;
    let hold = ground.proxy.hold(Matching::any().with_path("held"), Point::Before);
    assert!(!hold.is_reached());
    let held = ground.posting("/held");
    hold.reached().await;
    ground.post("/free", "").await.expect("no other request is held");
    assert_eq!(ground.echo.got(), ["POST /free "]);
    hold.release();
    assert_eq!(held.await.expect("no panic").expect("passes").1, "POST /held x");

    let hold = ground.proxy.hold(Matching::any(), Point::Before);
    let held = ground.posting("/never");
    hold.reached().await;
    hold.discard();
    held.await.expect("no panic").expect_err("cut");
    assert_eq!(ground.echo.got(), ["POST /free ", "POST /held x"]);
}

#[tokio::test]
async fn a_request_is_held_after_the_server_carried_it_out() {
    let ground = Ground::new().await;
    for lost in [false, true] {
        let hold = ground.proxy.hold(Matching::any(), Point::After);
        let held = ground.posting("/held");
        hold.reached().await;
        assert_eq!(ground.echo.got().len(), usize::from(lost) + 1);
        assert!(!held.is_finished());
        match lost {
            false => hold.release(),
            true => hold.discard(),
        }
        assert_eq!(held.await.expect("no panic").is_err(), lost);
    }
}

#[tokio::test]
async fn outage_keeps_requests_from_the_server() {
    let ground = Ground::new().await;
    ground.proxy.begin_outage(Outage::Refuses);
    let (status, text) = ground.post("/_bulk", "a").await.expect("is answered");
    assert_eq!(status, 429, "{text}");
    ground.proxy.begin_outage(Outage::Silent);
    ground.post("/_bulk", "b").await.expect_err("cut");
    assert!(ground.proxy.is_away());
    ground.proxy.end_outage();
    assert!(!ground.proxy.is_away());
    ground.post("/_bulk", "c").await.expect("passes");
    assert_eq!(ground.echo.got(), ["POST /_bulk c"]);
    ground.proxy.begin_outage(Outage::Silent);
    ground.proxy.clear();
    ground.post("/_bulk", "d").await.expect("passes");

    // An answer without writes is not refused, and no outage begins. The next one with a write is.
    let refuse = Fault::Refuse(Refusal::Overloaded);
    ground.proxy.inject_then(Matching::any(), refuse, Outage::Silent);
    let (status, _) = ground.post("/_bulk", "e").await.expect("passes");
    assert_eq!((status, ground.proxy.is_away()), (201, false));
    assert_eq!(ground.proxy.counts().of(refuse.kind()), 0);
    let written = r#"{"items":[{"index":{"_id":"1","result":"updated","status":200}}]}"#;
    let (_, text) = ground.post("/_bulk", written).await.expect("passes");
    assert!(text.contains("refused by the proxy"), "{text}");
    assert!(ground.proxy.is_away());
    assert_eq!(ground.proxy.counts().of(refuse.kind()), 1);
}

#[tokio::test]
async fn dropped_hold_holds_no_request() {
    let ground = Ground::new().await;
    drop(ground.proxy.hold(Matching::any(), Point::Before));
    ground.post("/", "").await.expect("passes");
    let hold = ground.proxy.hold(Matching::any(), Point::Before);
    let held = ground.posting("/held");
    hold.reached().await;
    drop(hold);
    held.await.expect("no panic").expect("passes");
}

#[tokio::test]
async fn shutdown_ends_held_and_late_requests() {
    let ground = Ground::new().await;
    let hold = ground.proxy.hold(Matching::any().with_path("held"), Point::Before);
    let held = ground.posting("/held");
    hold.reached().await;
    let late = Fault::DuplicateLate(10 * PATIENCE);
    ground.proxy.inject(Matching::any(), late);
    ground.post("/late", "").await.expect("passes");
    let url = ground.proxy.url();
    let ended = tokio::time::timeout(PATIENCE, ground.proxy.shutdown()).await;
    ended.expect("ends");
    held.await.expect("no panic").expect_err("cut");
    assert_eq!(ground.echo.got(), ["POST /late "]);
    let refused = ground.client.get(url).send().await.expect_err("no listener");
    assert!(refused.is_connect(), "{refused:?}");
}

#[tokio::test]
async fn without_a_server_connections_are_cut() {
    let ground = Ground::new().await;
    let stranger = Proxy::start("http://127.0.0.1:1").await.expect("starts");
    stranger.inject(Matching::any(), Fault::LoseAnswer);
    for _ in 0..2 {
        let error = ground.client.get(stranger.url()).send().await.expect_err("cut");
        assert!(!error.is_connect(), "{error:?}");
    }
    assert_eq!(stranger.counts().all_faults(), 0, "nothing was carried out that could be lost");
    assert_eq!(stranger.counts().requests, 2);
}

#[tokio::test]
async fn body_above_the_limit_never_arrives() {
    let ground = Ground::new().await;
    ground.proxy.set_manners(Manners::default().with_body_limit(3));
    let (status, text) = ground.post("/first", "1234").await.expect("is answered");
    assert!(status == 413 && text.contains("Request Entity Too Large"), "{status} {text}");
    assert_eq!(ground.post("/second", "123").await.expect("passes").0, 201);
    assert_eq!(ground.echo.got(), ["POST /second 123"]);
}

#[tokio::test]
async fn hidden_field_is_missing_in_reads_alone() {
    let ground = Ground::new().await;
    ground.proxy.set_manners(Manners::default().with_hidden_field("owner"));
    // The answer of the server is not JSON, so the proxy passes it unchanged.
    assert_eq!(ground.post("/_mget", "1").await.expect("passes").1, "POST /_mget 1");
}

#[tokio::test]
async fn server_is_found_below_the_prefix_only() {
    let ground = Ground::new().await;
    ground.proxy.set_manners(Manners::default().with_path_prefix("/search"));
    assert_eq!(ground.post("/first", "1").await.expect("is answered").0, 404);
    let answer = ground.post("/search/second?a=b", "2").await.expect("passes");
    assert_eq!(answer, (201, "POST /second?a=b 2".to_owned()));
    assert_eq!(ground.echo.got(), ["POST /second?a=b 2"]);
}

#[tokio::test]
async fn request_on_a_forgotten_connection_gets_no_answer() {
    let ground = Ground::new().await;
    ground.proxy.set_manners(Manners::default().with_idle_limit(Duration::ZERO));
    assert_eq!(ground.post("/first", "1").await.expect("on a new connection").0, 201);
    let second = ground.posting("/second");
    while ground.proxy.counts().forgotten == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(!second.is_finished());
    ground.proxy.shutdown().await;
    second.await.expect("ends").expect_err("is cut");
    assert_eq!(ground.echo.got(), ["POST /first 1"]);
}

#[tokio::test]
async fn hung_server_answers_again_after_the_outage() {
    let ground = Ground::new().await;
    ground.proxy.begin_outage(Outage::Hangs);
    let hung = ground.posting("/first");
    while ground.proxy.counts().requests == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(!hung.is_finished());
    ground.proxy.end_outage();
    hung.await.expect("ends").expect_err("is lost");
    assert_eq!(ground.post("/second", "2").await.expect("passes").0, 201);
    assert_eq!(ground.echo.got(), ["POST /second 2"]);
}
