//! HTTP requests after the commit, on every store.

mod receiver;
mod tls;
mod trouble;

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::json;
use txn_core::store::{Filter, Pages};
use txn_core::{Error, Raw};
use txn_fixtures::process::Process;
use txn_outbox::http::{
    Body, Destination, Dispatcher, HeaderText, HttpConfig, HttpRequest, HttpRequests, HttpResult,
    HttpState, Method, Resend, Resolver, Retries, Retry, SecretString, Secrets, TOPIC,
};
use txn_outbox::{DeadLetter, EventSource, OutboxError, Processor, ProcessorConfig, Topics};

use super::{Desk, PATIENCE, World, until};
use receiver::{Receiver, Reply};
pub(crate) use tls::tls_sessions_are_resumed;
pub(crate) use trouble::*;

/// Passes all scenarios to a macro that declares them as tests.
macro_rules! all_of_http {
    ($($on:ident)::+) => {
        $($on)::+! {
            request_is_sent_only_after_its_commit;
            repeated_call_has_the_same_idempotency_key;
            answers_are_final_or_retried;
            temporary_refusal_loses_no_request;
            retry_after_extends_the_pause;
            unlisted_destination_is_never_called;
            dead_letters_are_resent;
            silent_destination_leaves_permits_for_others;
            long_outage_does_not_count_as_a_failure;
            unwritable_result_is_left_out;
            name_is_resolved_once_per_call;
            only_the_receiver_sees_secrets;
            slow_and_endless_answers_are_bounded;
            concurrent_calls_are_limited;
            newer_requests_and_unknown_topics_wait;
            tls_sessions_are_resumed;
        }
    };
}
pub(crate) use all_of_http;

/// The secret, which only the receiver may see.
const SECRET: &str = "Bearer open-sesame-4711";

#[derive(Debug)]
struct Safe;

#[async_trait]
impl Secrets for Safe {
    async fn secret(
        &self,
        name: &str,
        to: &str,
    ) -> Result<Option<SecretString>, Box<dyn std::error::Error + Send + Sync>> {
        assert!(to.starts_with("http://127.0.0.1:"), "{to}");
        match name {
            "api" => Ok(Some(SECRET.into())),
            "broken" => Err(format!("the safe is shut, with {SECRET} in it").into()),
            _ => Ok(None),
        }
    }
}

/// A resolver that returns its answers in order, and counts its calls.
///
/// The last answer repeats.
#[derive(Debug)]
struct Names {
    answers: Mutex<VecDeque<Vec<IpAddr>>>,
    asked: AtomicUsize,
}

impl Names {
    fn new<const N: usize>(answers: [&[&str]; N]) -> Arc<Self> {
        let parse = |texts: &[&str]| texts.iter().map(|text| text.parse().expect("one")).collect();
        let answers = Mutex::new(answers.into_iter().map(parse).collect());
        Arc::new(Self { answers, asked: AtomicUsize::new(0) })
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Acquire)
    }
}

#[async_trait]
impl Resolver for Names {
    async fn resolve(&self, host: &str, _: u16) -> io::Result<Vec<IpAddr>> {
        assert_eq!(host, "hook.example");
        self.asked.fetch_add(1, Ordering::AcqRel);
        let mut answers = self.answers.lock();
        let next = answers.pop_front().expect("an answer");
        if answers.is_empty() {
            answers.push_back(next.clone());
        }
        Ok(next)
    }
}

fn post(url: impl Into<String>) -> HttpRequest {
    HttpRequest::new(Method::Post, url)
}

/// Allows a receiver by its address.
fn config_for(receiver: &Receiver) -> HttpConfig {
    let place = Destination::new(&receiver.url("")).expect("an origin");
    HttpConfig::default().with_destinations(vec![place]).with_secrets(Arc::new(Safe))
}

/// Allows a receiver by a name, and an address of the name.
fn config_by_name(receiver: &Receiver, listed: Option<&str>, names: Arc<Names>) -> HttpConfig {
    let place = Destination::new(&format!("http://hook.example:{}", receiver.port()));
    let mut place = place.expect("an origin");
    if let Some(listed) = listed {
        place = place.with_address(listed).expect("an address");
    }
    HttpConfig::default().with_destinations(vec![place]).with_resolver(names)
}

/// The topics of a processor that only sends requests.
fn topics(dispatcher: Dispatcher) -> Topics {
    Topics::new().with(TOPIC, dispatcher)
}

/// A desk with its HTTP requests.
struct Office {
    desk: Desk,
    requests: HttpRequests,
}

impl World {
    async fn office(&self) -> Office {
        let desk = self.desk().await;
        let requests = HttpRequests::new(&desk.outbox);
        Office { desk, requests }
    }

    fn few_tries(&self, most: u32) -> ProcessorConfig {
        let config = self.config().with_max_failures(most);
        config
            .with_first_pause(Duration::from_millis(10))
            .with_longest_pause(Duration::from_millis(50))
    }
}

impl Office {
    async fn keep(&self, request: &HttpRequest) -> String {
        let kept =
            self.desk.domain.transact(async |tx| self.requests.after_commit(tx, request).await);
        kept.await.expect("kept")
    }

    async fn dispatcher(&self, config: HttpConfig) -> Dispatcher {
        Dispatcher::open(&self.desk.domain, config).await.expect("opens")
    }

    async fn start(&self, processor: ProcessorConfig, config: HttpConfig) -> Processor {
        let dispatcher = self.dispatcher(config).await;
        self.desk.outbox.start(processor, topics(dispatcher)).await.expect("starts")
    }

    /// Waits for a result of a request in a certain state.
    async fn result(&self, id: &str, state: HttpState) -> HttpResult {
        let results = self.dispatcher(HttpConfig::default()).await.results().clone();
        let until = std::time::Instant::now() + PATIENCE;
        loop {
            let found = results.get(id).await.expect("reads");
            if let Some(found) = found.as_ref().filter(|found| found.state == state) {
                return found.clone();
            }
            assert!(std::time::Instant::now() < until, "{id} is not {state:?}: {found:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn dead(&self, id: &str) -> DeadLetter {
        let until = std::time::Instant::now() + PATIENCE;
        loop {
            let letters = self.requests.dead_letters().await.expect("lists").letters;
            if let Some(letter) = letters.into_iter().find(|letter| letter.event.id == id) {
                return letter;
            }
            assert!(std::time::Instant::now() < until, "{id} is not set aside");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Writes a document of the outbox like another program.
    async fn write(&self, what: &str, id: &str, text: &str) {
        let domain = &self.desk.domain;
        let name = domain.collection_name(what);
        let raw = domain.collection::<Raw>(&name).await.expect("opens");
        let newer = Raw::new(text);
        let written = domain.transact::<_, Error, _>(async |tx| tx.put(&raw, id, &newer));
        written.await.expect("written");
    }

    /// All stored documents of the outbox and of results.
    async fn stored(&self) -> String {
        let store = self.desk.domain.store();
        let mut all = String::new();
        for what in ["outbox", "http-results"] {
            let collection = self.desk.domain.collection_name(what);
            store.refresh(&collection).await.expect("refreshes");
            let mut pages = Pages::new(&**store, &collection, Filter::All, 100);
            while let Some(documents) = pages.next().await.expect("scans") {
                for (_, _, source) in documents {
                    all.push_str(&source);
                }
            }
        }
        all
    }
}

pub(crate) async fn request_is_sent_only_after_its_commit(world: &World) {
    let office = world.office().await;
    let receiver = Receiver::start(|_, _| Reply::with(201, "content-type", "text/x-done")).await;
    let (domain, requests) = (&office.desk.domain, &office.requests);
    let aborted = domain.transact::<(), OutboxError, _>(async |tx| {
        requests.after_commit(tx, &post(receiver.url("/aborted"))).await?;
        Err(OutboxError::NotFound("the application's own".to_owned()))
    });
    assert!(matches!(aborted.await, Err(OutboxError::NotFound(_))));
    let request = post(receiver.url("/hook?a=1"))
        .with_header("accept", HeaderText::Text("text/plain".to_owned()))
        .with_body(Body::Json(json!({"pieces": 3})))
        .with_key("order-1");
    let text = post(receiver.url("/text")).with_body(Body::Text("as it is".to_owned()));
    let id = office.keep(&request).await;
    assert_eq!(id, format!("{TOPIC}/1/order-1"));
    let other = office.keep(&text).await;
    let processor = office.start(world.config(), config_for(&receiver)).await;
    let result = office.result(&id, HttpState::Done).await;
    office.result(&other, HttpState::Done).await;
    let calls = receiver.calls("/hook?a=1");
    assert_eq!(calls.len(), 1, "{calls:?}");
    let call = &calls[0];
    assert_eq!((call.method.as_str(), call.body.as_str()), ("POST", r#"{"pieces":3}"#));
    assert_eq!(call.header("content-type"), Some("application/json"));
    assert_eq!(call.header("accept"), Some("text/plain"));
    assert_eq!(call.key(), result.idempotency_key);
    let call = &receiver.calls("/text")[0];
    assert_eq!(call.body, "as it is");
    assert_eq!(call.header("content-type"), Some("text/plain; charset=utf-8"));
    assert_ne!(call.key(), result.idempotency_key);
    assert_eq!((result.status, result.attempts, result.error), (Some(201), 1, None));
    assert_eq!(result.headers.get("content-type").map(String::as_str), Some("text/x-done"));
    assert_eq!(result.body, None, "bodies are not kept");
    assert!(receiver.calls("/aborted").is_empty());
    assert!(processor.stop(PATIENCE).await);
    // Requests that can never be sent are refused before they are stored.
    for wrong in [
        post("ftp://a.example"),
        post("https://u:p@a.example"),
        post("https://a.example").with_key(""),
    ] {
        let refused = domain.transact(async |tx| requests.after_commit(tx, &wrong).await).await;
        let refused = refused.expect_err("refused");
        let told = matches!(refused, OutboxError::InvalidHttp(_) | OutboxError::InvalidName { .. });
        assert!(told && requests.check(&wrong).is_err(), "{refused}");
    }
}

pub(crate) async fn repeated_call_has_the_same_idempotency_key(world: &World) {
    let office = world.office().await;
    // The first call receives no answer.
    let receiver = Receiver::start(|_, before| match before {
        0 => Reply::Never,
        _ => Reply::status(204),
    })
    .await;
    let id = office.keep(&post(receiver.url("/"))).await;
    let process = Process::new();
    process
        .run(async {
            let other = world.office().await;
            let processor = other.start(world.config(), config_for(&receiver)).await;
            until(|| !receiver.calls("/").is_empty()).await;
            std::mem::forget((processor, other));
        })
        .await;
    drop(process);
    let processor = office.start(world.config(), config_for(&receiver)).await;
    let result = office.result(&id, HttpState::Done).await;
    let calls = receiver.calls("/");
    assert!(calls.len() >= 2, "it is called again");
    assert!(calls.iter().all(|call| call.key() == result.idempotency_key), "{calls:?}");
    assert_eq!(result.attempts, 1, "the other call has no note");
    assert!(processor.stop(PATIENCE).await);
}

pub(crate) async fn answers_are_final_or_retried(world: &World) {
    let office = world.office().await;
    let receiver = Receiver::start(|call, before| match (call.path.as_str(), before) {
        ("/later", 0) => Reply::with(503, "retry-after", "3600"),
        ("/later", 1) => Reply::status(429),
        ("/moved", _) => Reply::with(302, "location", "/target"),
        ("/unknown", _) => Reply::status(410),
        ("/down", _) => Reply::status(500),
        _ => Reply::status(200),
    })
    .await;
    let config = config_for(&receiver)
        .with_longest_retry_after(Duration::from_millis(20))
        .with_retries(Retries::default().with([500], Retry::Counted));
    let processor = office.start(world.few_tries(3), config).await;
    let later = office.keep(&post(receiver.url("/later"))).await;
    let moved = office.keep(&post(receiver.url("/moved"))).await;
    let unknown = office.keep(&post(receiver.url("/unknown"))).await;
    let down = office.keep(&post(receiver.url("/down"))).await;
    let result = office.result(&later, HttpState::Done).await;
    assert_eq!(result.attempts, 3);
    let keys: Vec<String> =
        receiver.calls("/later").iter().map(|call| call.key().to_owned()).collect();
    assert_eq!(
        keys,
        [result.idempotency_key.clone(), result.idempotency_key.clone(), result.idempotency_key]
    );
    // A redirect is a failure with this reason, and its target receives no call.
    let letter = office.dead(&moved).await;
    assert!(
        letter.error.contains("302") && letter.error.contains("redirects are not followed"),
        "{}",
        letter.error
    );
    assert_eq!(letter.event.failures, 1);
    let result = office.result(&moved, HttpState::Refused).await;
    assert_eq!(result.headers.get("location").map(String::as_str), Some("/target"));
    assert!(receiver.calls("/target").is_empty());
    let letter = office.dead(&unknown).await;
    assert!(letter.error.contains("410 Gone") && letter.event.failures == 1, "{}", letter.error);
    assert_eq!(receiver.calls("/unknown").len(), 1);
    let letter = office.dead(&down).await;
    assert_eq!((letter.event.failures, receiver.calls("/down").len()), (3, 3));
    assert_eq!(office.result(&down, HttpState::Failed).await.attempts, 3);
    assert!(processor.stop(PATIENCE).await);
}

/// Expired credentials, a missing route, a deployment.
///
/// The number of refusals exceeds the failure limit of an event.
pub(crate) async fn temporary_refusal_loses_no_request(world: &World) {
    let office = world.office().await;
    let statuses = [401_u16, 403, 404, 408, 409, 425, 429, 500, 503];
    let answer = move |path: &str, before: usize| {
        let status = path.trim_start_matches('/').parse().unwrap_or(0);
        Reply::status(if statuses.contains(&status) && before < 4 { status } else { 200 })
    };
    let receiver = Receiver::start(move |call, before| answer(&call.path, before)).await;
    let processor = office.start(world.few_tries(1), config_for(&receiver)).await;
    for status in statuses {
        let id = office.keep(&post(receiver.url(&format!("/{status}")))).await;
        let result = office.result(&id, HttpState::Done).await;
        assert_eq!((result.attempts, result.error), (5, None), "{status}");
    }
    let figures = processor.figures();
    assert_eq!((figures.failed, figures.set_aside), (0, 0));
    assert!(figures.waited >= 4 * statuses.len() as u64, "{figures:?}");
    assert!(processor.stop(PATIENCE).await);
    // The retries of each status end after their time, counted from the first call.
    let receiver = Receiver::start(|_, _| Reply::status(401)).await;
    let long = Duration::from_millis(300);
    let retries = Retries::never().with([401], Retry::For(long));
    let config = config_for(&receiver).with_retries(retries);
    let processor = office.start(world.few_tries(1), config).await;
    let id = office.keep(&post(receiver.url("/"))).await;
    for _ in 0..2 {
        let letter = office.dead(&id).await;
        let why = "answered 401 Unauthorized, for longer than 300ms";
        assert!(letter.error.ends_with(why), "{}", letter.error);
        let result = office.result(&id, HttpState::Refused).await;
        assert!(result.attempts > 1 && result.at_ms - result.first_ms >= 300, "{result:?}");
        // A resend restarts the time.
        office.requests.resend(Resend::One(&id), false).await.expect("sent");
    }
    assert!(processor.stop(PATIENCE).await);
}

pub(crate) async fn retry_after_extends_the_pause(world: &World) {
    let office = world.office().await;
    let receiver = Receiver::start(|call, _| match call.path.as_str() {
        "/busy" => Reply::with(429, "retry-after", "3600"),
        "/down" => Reply::status(500),
        _ => Reply::status(200),
    })
    .await;
    let config = config_for(&receiver).with_retries(Retries::default().with([500], Retry::Counted));
    let processor = office.start(world.few_tries(20), config).await;
    let busy = office.keep(&post(receiver.url("/busy")).with_key("busy")).await;
    office.result(&busy, HttpState::Failed).await;
    let down = office.keep(&post(receiver.url("/down")).with_key("down")).await;
    // Without `Retry-After` the request meanwhile reaches its failure limit.
    assert_eq!(office.dead(&down).await.event.failures, 20);
    assert_eq!(receiver.calls("/busy").len(), 1);
    assert!(processor.stop(PATIENCE).await);
}

pub(crate) async fn unlisted_destination_is_never_called(world: &World) {
    let office = world.office().await;
    let receiver = Receiver::start(|_, _| Reply::status(200)).await;
    let by_address = office.keep(&post(receiver.url("/address"))).await;
    let url = format!("http://hook.example:{}/name", receiver.port());
    let by_name = office.keep(&post(url.clone())).await;
    // No destination is listed.
    let processor = office.start(world.config(), HttpConfig::default()).await;
    for id in [&by_address, &by_name] {
        let letter = office.dead(id).await;
        assert!(letter.error.contains("not among the destinations"), "{}", letter.error);
        assert_eq!(office.result(id, HttpState::Refused).await.status, None);
    }
    assert!(processor.stop(PATIENCE).await);
    // The name is listed. A single unlisted address refuses the call.
    for (listed, answers) in [
        (None, &["127.0.0.1"][..]),
        (None, &["::ffff:127.0.0.1"]),
        (Some("10.0.0.0/8"), &["10.0.0.1", "127.0.0.1"]),
        (Some("127.0.0.1"), &["127.0.0.1", "169.254.169.254"]),
    ] {
        let sent = office.requests.resend(Resend::One(&by_name), false).await.expect("sent");
        assert!(sent.ids.iter().eq([&by_name]), "{sent:?}");
        let config = config_by_name(&receiver, listed, Names::new([answers]));
        let processor = office.start(world.config(), config).await;
        let letter = office.dead(&by_name).await;
        assert!(
            letter.error.contains("is not of the public internet"),
            "{answers:?}: {}",
            letter.error
        );
        assert!(processor.stop(PATIENCE).await);
    }
    let narrow = config_for(&receiver).with_methods([Method::Put].into());
    let put = office.keep(&HttpRequest::new(Method::Put, receiver.url("/put"))).await;
    let odd = HttpRequest::new(Method::Put, receiver.url("/odd"))
        .with_header("x-odd", HeaderText::Text("1".to_owned()));
    let odd = office.keep(&odd).await;
    let posted = office.keep(&post(receiver.url("/post"))).await;
    let processor = office.start(world.config(), narrow).await;
    office.result(&put, HttpState::Done).await;
    let letter = office.dead(&odd).await;
    assert!(letter.error.contains(r#"the header "x-odd" is not among"#), "{}", letter.error);
    let letter = office.dead(&posted).await;
    assert!(letter.error.contains("POST is not among"), "{}", letter.error);
    assert!(processor.stop(PATIENCE).await);
    for path in ["/address", "/name", "/odd", "/post"] {
        assert!(receiver.calls(path).is_empty(), "{path} was called");
    }
}

pub(crate) async fn name_is_resolved_once_per_call(world: &World) {
    let office = world.office().await;
    let receiver = Receiver::start(|_, _| Reply::status(200)).await;
    let url = |path: &str| format!("http://hook.example:{}{path}", receiver.port());
    // A second resolution within one call would return the other address.
    let names = Names::new([&["127.0.0.1"], &["169.254.169.254"]]);
    let config = config_by_name(&receiver, Some("127.0.0.1"), names.clone());
    let processor = office.start(world.few_tries(1), config).await;
    let first = office.keep(&post(url("/first"))).await;
    office.result(&first, HttpState::Done).await;
    assert_eq!((names.asked(), receiver.calls("/first").len()), (1, 1));
    let host = receiver.calls("/first")[0].header("host").map(str::to_owned);
    assert_eq!(host, Some(format!("hook.example:{}", receiver.port())));
    let second = office.keep(&post(url("/second"))).await;
    let letter = office.dead(&second).await;
    assert!(letter.error.contains("169.254.169.254"), "{}", letter.error);
    assert_eq!((names.asked(), receiver.calls("/second").len()), (2, 0));
    assert!(processor.stop(PATIENCE).await);
}

pub(crate) async fn only_the_receiver_sees_secrets(world: &World) {
    let office = world.office().await;
    let echo = |call: &receiver::Call| call.header("authorization").unwrap_or_default().to_owned();
    let receiver = Receiver::start(move |call, before| {
        let status = if before == 0 { 503 } else { 200 };
        // The receiver repeats the secret, also across the end of the stored part.
        let body = format!("{}{} behind", "x".repeat(40), echo(call));
        Reply::Whole(status, vec![("x-echo", format!("<{}>", echo(call)))], body)
    })
    .await;
    let config = config_for(&receiver)
        .with_longest_outage(Duration::ZERO)
        .with_result_headers(["x-echo".to_owned()].into())
        .with_result_body(50);
    let dispatcher = office.dispatcher(config).await;
    let with = |path: &str, secret: &str| {
        post(receiver.url(path)).with_header("Authorization", HeaderText::secret(secret))
    };
    let id = office.keep(&with("/", "api")).await;
    let (broken, missing) = (
        office.keep(&with("/broken", "broken")).await,
        office.keep(&with("/missing", "none")).await,
    );
    assert!(!office.stored().await.contains("sesame"));
    let processor = office.desk.outbox.start(world.few_tries(2), topics(dispatcher.clone())).await;
    let processor = processor.expect("starts");
    let result = office.result(&id, HttpState::Done).await;
    assert!(receiver.calls("/").iter().all(|call| call.header("authorization") == Some(SECRET)));
    assert_eq!(result.headers.get("x-echo").map(String::as_str), Some("<[secret]>"));
    assert_eq!(result.body, Some(format!("{}[secret] b", "x".repeat(40))));
    for (id, part, state) in [
        (&broken, r#"the secret "broken" could not be looked up"#, HttpState::Refused),
        (&missing, r#"the secret "none" is not known"#, HttpState::Failed),
    ] {
        let letter = office.dead(id).await;
        assert!(
            letter.error.contains(part) && !letter.error.contains("sesame"),
            "{}",
            letter.error
        );
        let told = format!("{letter:?} {dispatcher:?} {:?}", office.result(id, state).await);
        assert!(!told.contains("sesame"), "{told}");
    }
    let stored = office.stored().await;
    assert!(stored.contains("[secret]") && !stored.contains("sesame"));
    assert!(processor.stop(PATIENCE).await);
}

pub(crate) async fn slow_and_endless_answers_are_bounded(world: &World) {
    let office = world.office().await;
    let receiver = Receiver::start(|call, _| match call.path.as_str() {
        "/endless" => Reply::Endless,
        "/stalls" => Reply::Stalls,
        _ => Reply::Never,
    })
    .await;
    let by_tls = receiver.url("").replace("http://", "https://");
    let mut config = config_for(&receiver).with_limit(Duration::from_secs(3)).with_result_body(100);
    config.destinations.push(Destination::new(&by_tls).expect("an origin"));
    let config = config.with_unanswered(Retry::Counted);
    let processor = office.start(world.few_tries(1), config).await;
    let never = office.keep(&post(receiver.url("/never"))).await;
    let endless = office.keep(&post(receiver.url("/endless"))).await;
    let stalls = office.keep(&post(receiver.url("/stalls"))).await;
    let letter = office.dead(&never).await;
    assert!(letter.error.contains("no answer within 3s"), "{}", letter.error);
    assert_eq!(office.result(&endless, HttpState::Done).await.body, Some("x".repeat(100)));
    assert_eq!(office.result(&stalls, HttpState::Done).await.body.as_deref(), Some("first"));
    // The receiver cannot prove its identity, so nothing is sent.
    let tls = office.keep(&post(format!("{by_tls}/tls"))).await;
    office.dead(&tls).await;
    assert_eq!(office.result(&tls, HttpState::Failed).await.status, None);
    assert!(receiver.calls("/tls").is_empty());
    // No server listens.
    let port = receiver.port();
    drop(receiver);
    let gone = office.keep(&post(format!("http://127.0.0.1:{port}/gone?token=sesame"))).await;
    let letter = office.dead(&gone).await;
    assert!(!letter.error.contains("sesame"), "{}", letter.error);
    assert_eq!(office.result(&gone, HttpState::Failed).await.status, None);
    assert!(processor.stop(PATIENCE).await);
}

pub(crate) async fn concurrent_calls_are_limited(world: &World) {
    let office = world.office().await;
    let receiver = Receiver::start(|_, _| Reply::status(200)).await;
    let mut ids = Vec::new();
    for at in 0..12 {
        ids.push(office.keep(&post(receiver.url("/")).with_key(format!("key-{at}"))).await);
    }
    let config = config_for(&receiver).with_concurrency(2).with_per_destination(Some(2));
    let processor = office.start(world.config(), config).await;
    for id in &ids {
        office.result(id, HttpState::Done).await;
    }
    assert!(receiver.most_under_way() <= 2, "{}", receiver.most_under_way());
    assert_eq!(receiver.calls("/").len(), 12);
    assert!(processor.stop(PATIENCE).await);
}

pub(crate) async fn newer_requests_and_unknown_topics_wait(world: &World) {
    let office = world.office().await;
    let receiver = Receiver::start(|_, _| Reply::status(200)).await;
    let emit = async |topic: &str, key: &str, payload: serde_json::Value| {
        let outbox = &office.desk.outbox;
        let emitted =
            office.desk.domain.transact(async |tx| outbox.emit(tx, topic, key, &payload).await);
        emitted.await.expect("emitted")
    };
    emit(TOPIC, "newer", json!({"format": 3, "more": []})).await;
    emit("unheard-of", "a", json!(1)).await;
    let damaged = emit(TOPIC, "damaged", json!({"format": 1, "request": "sesame"})).await;
    let sound = office.keep(&post(receiver.url("/"))).await;
    let dispatcher = office.dispatcher(config_for(&receiver)).await;
    let topics = Topics::new().with(TOPIC, dispatcher);
    let processor = office.desk.outbox.start(world.few_tries(1), topics).await.expect("starts");
    office.result(&sound, HttpState::Done).await;
    let letter = office.dead(&damaged).await;
    assert!(
        letter.error.contains("is no HTTP request") && !letter.error.contains("sesame"),
        "{}",
        letter.error
    );
    let processed = office.keep(&post(receiver.url("/"))).await;
    office.result(&processed, HttpState::Done).await;
    assert_eq!(office.desk.outbox.dead_letters().await.expect("lists").letters.len(), 1);
    let backlog = office.desk.outbox.backlog().await.expect("counts");
    assert_eq!((backlog.events, backlog.queues), (2, 2));
    assert!(processor.stop(PATIENCE).await);
}
