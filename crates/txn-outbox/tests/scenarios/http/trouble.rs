//! Dead letters, outages, and results that cannot be written.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use txn_core::store::MemoryStore;
use txn_outbox::http::{
    Destination, HeaderText, HttpConfig, HttpResults, HttpState, Resend, Resolver, SecretString,
    Secrets, TOPIC,
};
use txn_outbox::{EventSource, OutboxError, Topics};
use txn_sim::{FaultPlan, FaultStore};

use super::receiver::{Receiver, Reply};
use super::{Office, PATIENCE, World, config_for, post, until};

pub(crate) async fn dead_letters_are_resent(world: &World) {
    let office = world.office().await;
    let receiver = Receiver::start(|_, before| match before {
        0 => Reply::status(400),
        _ => Reply::status(200),
    })
    .await;
    let mut ids = Vec::new();
    for at in 0..4 {
        ids.push(office.keep(&post(receiver.url(&format!("/{at}")))).await);
    }
    // Dead letters of other topics do not appear.
    let sane = office.desk.handler();
    office.desk.place("other", -1).await;
    let dispatcher = office.dispatcher(config_for(&receiver)).await;
    let topics = Topics::new().with(TOPIC, dispatcher).with("orders", sane);
    let processor = office.desk.outbox.start(world.few_tries(1), topics).await.expect("starts");
    for id in &ids {
        office.dead(id).await;
    }
    let source = office.desk.outbox.source();
    let all = async || source.dead_letters().await.expect("lists").letters.len();
    let until_all = std::time::Instant::now() + PATIENCE;
    while all().await < 5 {
        assert!(std::time::Instant::now() < until_all, "the other one is not set aside");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // By queue, and within a queue by number: `topic/number/key`.
    ids.sort_by_key(|id| {
        let mut parts = id.splitn(3, '/').skip(1);
        let number = parts.next().and_then(|number| number.parse::<u64>().ok());
        (parts.next().map(str::to_owned), number)
    });
    let would = office.requests.resend(Resend::All, true).await.expect("lists");
    assert_eq!(would.ids, ids);
    assert_eq!(
        office.requests.dead_letters().await.expect("lists").letters.len(),
        4,
        "nothing was done"
    );
    let missing = office.requests.resend(Resend::One("http-requests/9/x"), false).await;
    assert!(matches!(missing, Err(OutboxError::NotFound(_))), "{missing:?}");
    let sent = office.requests.resend(Resend::One(&ids[0]), false).await.expect("sent");
    assert!(sent.ids.iter().eq([&ids[0]]), "{sent:?}");
    office.result(&ids[0], HttpState::Done).await;
    // A dead letter of a newer format stops no resend, and is listed.
    let newer = format!("{TOPIC}/5/newer");
    office.write("outbox", &format!("dead:{newer}"), r#"{"format":2,"kind":"dead"}"#).await;
    for dry_run in [true, false] {
        let sent = office.requests.resend(Resend::All, dry_run).await.expect("sent");
        assert_eq!(sent.ids, ids[1..]);
        let left: Vec<&str> = sent.remaining.iter().map(|(id, _)| id.as_str()).collect();
        assert_eq!(left, [&newer]);
        let one = office.requests.resend(Resend::One(&newer), dry_run).await;
        assert!(matches!(one, Err(OutboxError::NewerFormat { format: 2, .. })), "{one:?}");
        let other = office.requests.resend(Resend::One("orders/1/other"), dry_run).await;
        assert!(matches!(other, Err(OutboxError::NotFound(_))), "{other:?}");
    }
    for id in &ids {
        let result = office.result(id, HttpState::Done).await;
        assert_eq!(result.attempts, 2);
    }
    // Results stay until a purge.
    let purge = async |age| office.desk.outbox.purge(age).await.expect("purges").results;
    assert_eq!(purge(Duration::from_secs(3600)).await, 0);
    assert_eq!(purge(Duration::ZERO).await, ids.len());
    let results = HttpResults::open(&office.desk.domain).await.expect("opens");
    assert_eq!(results.get(&ids[0]).await.expect("reads"), None);
    for at in 0..4 {
        let calls = receiver.calls(&format!("/{at}"));
        assert_eq!(calls.len(), 2);
        assert_eq!(calls[0].key(), calls[1].key(), "the receiver knows it again");
    }
    assert!(processor.stop(PATIENCE).await);
    assert_eq!(all().await, 1);
}

/// A silent destination occupies its own permits, and no more.
pub(crate) async fn silent_destination_leaves_permits_for_others(world: &World) {
    let office = world.office().await;
    let dead = Receiver::start(|_, _| Reply::Never).await;
    let sound = Receiver::start(|_, _| Reply::status(200)).await;
    for at in 0..24 {
        office.keep(&post(dead.url("/")).with_key(format!("dead-{at}"))).await;
    }
    let mut config = config_for(&dead).with_concurrency(4).with_limit(2 * PATIENCE);
    config.destinations.extend(config_for(&sound).destinations);
    let processor = office.start(world.config().with_limit(4 * PATIENCE), config).await;
    until(|| dead.calls("/").len() == 2).await;
    let mut ids = Vec::new();
    for at in 0..8 {
        ids.push(office.keep(&post(sound.url("/")).with_key(format!("sound-{at}"))).await);
    }
    for id in &ids {
        office.result(id, HttpState::Done).await;
    }
    assert_eq!(dead.calls("/").len(), 2, "half of all"); // Both are still waiting.
    assert_eq!(processor.figures().set_aside, 0, "a wait for a permit is not a failure");
    drop(processor);
}

/// Fails this number of lookups.
#[derive(Debug)]
struct Down(AtomicU32);

impl Down {
    fn new(times: u32) -> Arc<Self> {
        Arc::new(Self(AtomicU32::new(times)))
    }

    fn ask<T>(&self, found: T) -> io::Result<T> {
        let less = |left: u32| left.checked_sub(1);
        match self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, less) {
            Ok(_) => Err(io::Error::other("it is down")),
            Err(_) => Ok(found),
        }
    }
}

#[async_trait]
impl Resolver for Down {
    async fn resolve(&self, _: &str, _: u16) -> io::Result<Vec<IpAddr>> {
        self.ask(vec![IpAddr::from([127, 0, 0, 1])])
    }
}

#[async_trait]
impl Secrets for Down {
    async fn secret(
        &self,
        _: &str,
        _: &str,
    ) -> Result<Option<SecretString>, Box<dyn std::error::Error + Send + Sync>> {
        Ok(self.ask(Some("Bearer x".into()))?)
    }
}

/// Failed lookups do not count, up to a time limit.
///
/// The lookups are those of names and secrets.
pub(crate) async fn long_outage_does_not_count_as_a_failure(world: &World) {
    let office = world.office().await;
    let receiver = Receiver::start(|_, _| Reply::status(200)).await;
    let place = Destination::new(&format!("http://hook.example:{}", receiver.port()));
    let place = place.expect("an origin").with_address("127.0.0.1").expect("an address");
    let config = |names: u32, secrets: u32| {
        let config = HttpConfig::default().with_destinations(vec![place.clone()]);
        config.with_resolver(Down::new(names)).with_secrets(Down::new(secrets))
    };
    let request = post(format!("http://hook.example:{}/", receiver.port()))
        .with_header("authorization", HeaderText::secret("api"));
    // More failures than the failure limit of an event.
    let id = office.keep(&request).await;
    let processor = office.start(world.few_tries(2), config(5, 5)).await;
    let result = office.result(&id, HttpState::Done).await;
    assert_eq!(result.attempts, 11, "each was noted");
    assert_eq!((processor.figures().failed, receiver.calls("/").len()), (0, 1));
    assert!(processor.stop(PATIENCE).await);
    // The retries end after the limit.
    let id = office.keep(&request).await;
    let lasting = config(u32::MAX, 0).with_longest_outage(Duration::from_millis(300));
    let processor = office.start(world.few_tries(2), lasting).await;
    let letter = office.dead(&id).await;
    assert!(letter.error.contains("could not be resolved: it is down"), "{}", letter.error);
    assert!(letter.died_ms - letter.event.emitted_ms >= 300, "{letter:?}");
    assert!(processor.stop(PATIENCE).await);
}

/// A result that cannot be written causes no second call.
pub(crate) async fn unwritable_result_is_left_out(world: &World) {
    let office = world.office().await;
    let receiver = Receiver::start(|_, _| Reply::status(200)).await;
    // A mapping that refuses the state, on stores with mappings; and an unreadable document.
    let mappings =
        r#"{"dynamic":"strict","properties":{"state":{"type":"integer"},"id":{"type":"keyword"}}}"#;
    let name = office.desk.domain.collection_name("http-results");
    office
        .desk
        .domain
        .create_collection::<txn_core::Raw>(&name, Some(mappings))
        .await
        .expect("made");
    office.write("http-results", &format!("{TOPIC}/1/damaged"), r#"{"id":"5"}"#).await;
    let damaged = office.keep(&post(receiver.url("/damaged")).with_key("damaged")).await;
    let refused = office.keep(&post(receiver.url("/refused")).with_key("refused")).await;
    let processor = office.start(world.few_tries(3), config_for(&receiver)).await;
    until(|| processor.figures().handled == 2).await;
    assert_eq!((processor.figures().failed, processor.figures().set_aside), (0, 0));
    for path in ["/damaged", "/refused"] {
        assert_eq!(receiver.calls(path).len(), 1, "{path}");
    }
    assert!(processor.stop(PATIENCE).await);
    assert_eq!(office.desk.outbox.backlog().await.expect("counts").events, 0);
    drop((damaged, refused));
}

/// A receiver that answers, and a store that then refuses results.
async fn without_results(outage: Duration) -> (World, Office, Receiver) {
    let store = Arc::new(FaultStore::new(Arc::new(MemoryStore::new()), FaultPlan::none(1)));
    let world =
        World { store: store.clone(), name: "test".to_owned(), lease: Duration::from_secs(5) };
    let office = world.office().await;
    let receiver = Receiver::start(move |_, _| {
        store.begin_outage(Some("test-http-results".into()), outage);
        Reply::status(200)
    })
    .await;
    (world, office, receiver)
}

/// A short outage of the store costs neither result nor call.
pub(crate) async fn result_is_stored_after_a_short_outage() {
    let (world, office, receiver) = without_results(Duration::from_millis(200)).await;
    let id = office.keep(&post(receiver.url("/"))).await;
    let processor = office.start(world.few_tries(1), config_for(&receiver)).await;
    until(|| processor.figures().handled == 1).await;
    let result = office.result(&id, HttpState::Done).await;
    assert_eq!((result.attempts, receiver.calls("/").len()), (1, 1));
    assert!(processor.stop(PATIENCE).await);
}

/// During a long outage no answered request is sent again.
///
/// The result is left out.
pub(crate) async fn result_is_left_out_during_a_long_outage() {
    let (world, office, receiver) = without_results(Duration::from_secs(3600)).await;
    office.keep(&post(receiver.url("/"))).await;
    let config = world.few_tries(1).with_limit(Duration::from_secs(8));
    let processor = office.start(config, config_for(&receiver)).await;
    until(|| processor.figures().handled + processor.figures().set_aside == 1).await;
    assert_eq!((processor.figures().handled, processor.figures().failed), (1, 0));
    assert_eq!(receiver.calls("/").len(), 1);
    assert!(processor.stop(PATIENCE).await);
}
