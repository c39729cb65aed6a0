//! Contents and logins that no log, metric or list of operators repeats.
//!
//! One process does the work of all crates, with all logs at the level `trace`. The program has one
//! test, because the logs of a process have one receiver.

use std::io;
use std::io::{BufRead, BufReader, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusBuilder;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::time::sleep;
use tracing_subscriber::fmt::MakeWriter;
use txn_core::store::MemoryStore;
use txn_core::{Collection, Config, Domain, Error, LockMode, Options, Raw};
use txn_es::{EsConfig, EsStore};
use txn_lock::{LockConfig, LockService};
use txn_metrics::Metrics;
use txn_outbox::{Delivery, Failure, Outbox, OutboxConfig, OutboxError, ProcessorConfig, Topics};
use txn_requests::{Document, Operation, Request, Requests, RequestsConfig, State, Target};
use txn_serve::operator;
use txn_serve::{NewToken, ServeConfig, Server, Tokens};

/// The content of documents.
const BODY: &str = "canary-body-4815162342";

/// The payload of events.
const PAYLOAD: &str = "canary-payload-4815162342";

/// The metadata of transactions.
const METADATA: &str = "canary-metadata-4815162342";

/// Logins at servers: a password, an API key and a bearer token.
const LOGINS: [&str; 3] = ["canary-password-48", "canary-api-key-48", "canary-bearer-48"];

/// A token that the gateway does not know.
const WRONG_TOKEN: &str = "txn_canary-wrong-token-4815162342";

const WAIT: Duration = Duration::from_secs(20);

/// The lines of all logs.
#[derive(Clone, Default)]
struct Lines(Arc<std::sync::Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

fn document() -> Raw {
    Raw::new(json!({ "text": BODY }).to_string())
}

/// Two transactions write one document, and the younger one waits.
async fn contend(domain: &Domain, stock: &Collection<Raw>) {
    let metadata = json!({ "why": METADATA }).to_string();
    let options = |label: &str| Options::default().with_label(label);
    let older = options("restock").with_lock_mode(LockMode::AtRead);
    let older = domain.begin(&older.with_metadata(Some(metadata))).expect("begins");
    older.get(stock, "shelf").await.expect("locks");
    older.put(stock, "shelf", &document()).expect("buffers");
    let checkout = options("checkout");
    let younger = domain.run::<_, Error, _>(&checkout, async |tx| {
        tx.get(stock, "shelf").await?;
        tx.put(stock, "shelf", &document())?;
        tx.put(stock, "other", &document())
    });
    let ends = async {
        sleep(Duration::from_millis(300)).await;
        older.commit().await.expect("commits");
    };
    tokio::join!(younger, ends).0.expect("commits in the end");
    let taken = domain.transact::<_, Error, _>(async |tx| tx.insert(stock, "shelf", &document()));
    taken.await.expect_err("exists");
}

/// Handles one event after a failure, and sets another aside.
async fn deliver(domain: &Domain) {
    let outbox = Outbox::open(domain, OutboxConfig::default()).await.expect("opens");
    for key in ["good", "bad"] {
        let emit = domain
            .transact::<_, OutboxError, _>(async |tx| outbox.emit(tx, "mails", key, PAYLOAD).await);
        emit.await.expect("emits");
    }
    let tries = Arc::new(AtomicUsize::new(0));
    let handler = move |delivery: Delivery| {
        let first = tries.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            assert!(delivery.event().payload.get().contains(PAYLOAD));
            match delivery.event().queue.key() {
                "bad" => Err(Failure::permanent("no such address")),
                _ if first => Err(Failure::transient("busy")),
                _ => Ok(()),
            }
        }
    };
    let topics = Topics::new().with("mails", handler);
    let processor = outbox.start(ProcessorConfig::default(), topics).await.expect("starts");
    let until = tokio::time::Instant::now() + WAIT;
    loop {
        let backlog = outbox.source().backlog().await.expect("counts");
        if (backlog.events, backlog.dead) == (0, 1) {
            break;
        }
        assert!(tokio::time::Instant::now() < until, "{backlog:?}");
        sleep(Duration::from_millis(50)).await;
    }
    processor.stop(Duration::from_secs(5)).await;
}

/// Submits requests, one of which is refused.
async fn submit(domain: &Domain) {
    let requests = Requests::open(domain, RequestsConfig::default()).await.expect("opens");
    let content = || Document::parse(&json!({ "text": BODY }).to_string()).expect("JSON");
    let put = Operation::put(Target::new("stock", "requested"), content());
    requests.submit(&Request::new(vec![put]), "good").await.expect("stored");
    let insert = Operation::insert(Target::new("stock", "shelf"), content());
    requests.submit(&Request::new(vec![insert]), "refused").await.expect("stored");
    requests.process_open(None).await.expect("processes");
    let status = requests.wait("refused", WAIT).await.expect("ends");
    assert_eq!(status.state, State::RolledBack);
    let stuck = requests.stuck(Duration::ZERO).await.expect("looks");
    assert!(!format!("{stuck:?}").is_empty());
    requests.shutdown(Duration::from_secs(5)).await;
}

/// Holds a lock that another caller waits for in vain.
async fn hold_a_lock(domain: &Domain) {
    let service = LockService::open(domain, LockConfig::default()).await.expect("opens");
    let guard = service.lock("nightly", "report", WAIT).await.expect("locks");
    let waiter = service.lock("nightly", "report", Duration::from_millis(300)).await;
    assert!(waiter.is_err());
    drop(guard);
    service.shutdown(Duration::from_secs(5)).await;
}

/// Sends requests to the gateway, with a valid token and with a wrong one.
fn ask(address: &str, token: &str) {
    let agent: ureq::Agent =
        ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let send = |login: &str, method: &str, path: &str, body: &str| {
        let request = ureq::http::Request::builder()
            .method(method)
            .uri(format!("http://{address}{path}"))
            .header("authorization", format!("Bearer {login}"))
            .header("content-type", "application/json")
            .body(body.to_owned());
        agent.run(request.expect("a request")).expect("answers").status().as_u16()
    };
    let body = json!({ "text": BODY }).to_string();
    assert_eq!(send(token, "PUT", "/stock/_doc/gateway", &body), 201);
    assert_eq!(send(token, "PUT", "/stock/_create/gateway", &body), 409);
    assert_eq!(send(WRONG_TOKEN, "PUT", "/stock/_doc/gateway", &body), 401);
    assert_eq!(send(token, "PUT", "/stock/_doc/broken", &format!("{{\"{BODY}\"")), 400);
    assert_eq!(send(token, "PUT", "/orders/_doc/one", &body), 403);
    let lines = format!("{{\"index\":{{\"_index\":\"stock\",\"_id\":\"bulk\"}}}}\n{body}\n");
    assert_eq!(send(token, "POST", "/_bulk", &lines), 200);
}

/// Runs a gateway for some requests. Returns the token.
async fn serve(domain: &Domain) -> String {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("tokens.toml");
    let texts = |of: &[&str]| of.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
    let verbs = texts(&["read", "write"]);
    let made = NewToken::new("till", &texts(&["stock"]), &verbs).expect("a token");
    std::fs::write(&file, &made.entry).expect("writes");
    let tokens = Tokens::open(&file).expect("tokens");
    let config = ServeConfig::default().with_tokens(Some(tokens));
    let server = Server::new(domain, config).expect("fits");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let token = made.token.clone();
    let asked = tokio::task::spawn_blocking(move || ask(&address, &token));
    let stop = async move { asked.await.expect("all answers") };
    assert!(server.serve(listener, stop).await);
    made.token
}

/// A server that refuses each login, and repeats the login in its answer.
fn refusing_server() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut reader = BufReader::new(stream);
            let (mut head, mut line) = (String::new(), String::new());
            while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
                head += &std::mem::take(&mut line).replace(['\r', '\n', '"'], " ");
            }
            let body = json!({ "error": { "type": "security_exception", "reason": head } });
            let body = body.to_string();
            let length = body.len();
            let _gone = write!(
                reader.get_mut(),
                "HTTP/1.1 401 Unauthorized\r\nContent-Type: application/json\r\n\
                 Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
            );
        }
    });
    address.to_string()
}

/// Connects with each login, and returns the errors.
async fn log_in() -> String {
    let address = refusing_server();
    let config = || EsConfig::new([format!("http://{address}")]).expect("an address");
    let [password, key, bearer] = LOGINS;
    let mut errors = String::new();
    for config in [
        config().with_basic_auth("till", password),
        config().with_api_key(key),
        config().with_bearer_token(bearer),
    ] {
        errors += &format!("{config:?}\n");
        let error = EsStore::connect(config).await.expect_err("is refused");
        errors += &format!("{error}\n{error:?}\n");
    }
    errors
}

/// The lists of the domain for operators and other processes.
async fn lists(domain: &Domain) -> String {
    let admin = domain.admin();
    let processes = operator::processes(domain, 100).await.expect("reads");
    assert_eq!(processes.processes.len(), 1, "the process is registered");
    let waits = admin.contention_of_all(100).await.expect("reads");
    assert!(!waits.waits.is_empty(), "a wait is recorded");
    let findings = operator::look(domain, 0, 100).await.expect("looks");
    json!({
        "processes": processes,
        "waits": waits,
        "own waits": format!("{:?}", admin.contention(100)),
        "waiters": admin.waiters(100).await.expect("reads"),
        "commits": admin.check_commits(Duration::from_secs(600), 100).await.expect("checks"),
        "findings": format!("{findings:?}"),
        "domain": format!("{domain:?}"),
    })
    .to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_output_repeats_contents_or_logins() {
    let lines = Lines::default();
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(lines.clone())
        .with_ansi(false)
        .init();
    let recorder = PrometheusBuilder::new().build_recorder();
    let exposition = recorder.handle();
    metrics::set_global_recorder(recorder).expect("the first recorder");

    let config = Config::default()
        .with_janitor_interval(Some(Duration::from_millis(200)))
        .with_group_commit(Some(false))
        .with_write_contention(true)
        .with_observer(Some(Arc::new(Metrics::new("shop").with_labels(["checkout"]))));
    let store = Arc::new(MemoryStore::new());
    let domain = Domain::open_or_create(store, "shop", config).await.expect("opens");
    let stock = domain.create_collection::<Raw>("stock", None).await.expect("creates");
    domain.create_collection::<Raw>("orders", None).await.expect("creates");
    contend(&domain, &stock).await;
    deliver(&domain).await;
    submit(&domain).await;
    hold_a_lock(&domain).await;
    let token = serve(&domain).await;
    let errors = log_in().await;
    // The turns of the janitor write the waits.
    sleep(Duration::from_secs(1)).await;
    let lists = lists(&domain).await;
    domain.shutdown(Duration::from_secs(20)).await;

    let logs = String::from_utf8(lines.0.lock().expect("no panic").clone()).expect("text");
    for target in ["txn_core", "txn_es", "txn_outbox", "txn_serve::audit"] {
        assert!(logs.contains(target), "no line of {target}");
    }
    let metrics = exposition.render();
    assert!(metrics.contains("txn_commits_total"), "{metrics}");
    let canaries = [BODY, PAYLOAD, METADATA, WRONG_TOKEN, &*token].into_iter().chain(LOGINS);
    for canary in canaries {
        for (output, text) in
            [("logs", &logs), ("metrics", &metrics), ("lists", &lists), ("errors", &errors)]
        {
            let found: Vec<&str> = text.lines().filter(|line| line.contains(canary)).collect();
            assert!(found.is_empty(), "{canary} in {output}: {found:#?}");
        }
    }
}
