//! The events and HTTP requests of requests.

use std::time::Duration;

use serde_json::json;
use txn_core::{Config, Domain, Error, Raw};
use txn_fixtures::process::Process;
use txn_lock::{LockConfig, LockService};
use txn_outbox::http::{self, HeaderText, HttpRequest, HttpResults, Method};
use txn_outbox::{
    Event, EventSource, Outbox, OutboxConfig, OutboxError, ProcessorConfig, QueueName, Topics,
};
use txn_requests::dependent::{self, DependentWrite, Dependents};
use txn_requests::{
    Condition, Emit, Operation, Request, RequestError, Requests, RequestsConfig, State, Target,
};

use super::{PATIENCE, World};

impl World {
    pub(super) async fn outbox(&self, domain: &Domain) -> Outbox {
        Outbox::open(domain, OutboxConfig::default().with_shards(8)).await.expect("opens")
    }

    /// Requests with an outbox, and their own domain.
    async fn emitting(&self) -> (Requests, Outbox) {
        let domain = self.domain().await;
        self.accounts(&domain).await;
        let outbox = self.outbox(&domain).await;
        // The number of dead processes must not quarantine a request here.
        let config = self.config().with_outbox(Some(outbox.clone())).with_max_deaths(u32::MAX);
        (Requests::open(&domain, config).await.expect("opens"), outbox)
    }

    /// A transfer that emits its amount, and sends an HTTP request.
    fn told_transfer(&self, amount: i64) -> Request {
        let call = HttpRequest::new(Method::Post, "https://a.example/hook")
            .with_header("authorization", HeaderText::secret("api"))
            .with_key("alice");
        self.transfer("alice", "bob", amount)
            .with_event(Emit::new("transfers", "alice", json!({"amount": amount})))
            .with_event(Emit::new("transfers", "bob", json!(amount)))
            .with_after_commit(call)
    }
}

async fn waiting(outbox: &Outbox, topic: &str, key: &str) -> Vec<Event> {
    let queue = QueueName::new(topic, key).expect("a name");
    outbox.next(&queue, 100).await.expect("reads")
}

pub(crate) async fn events_of_a_request_commit_atomically(world: &World) {
    let domain = world.fund(&[("alice", 100), ("bob", 0)]).await;
    let (requests, outbox) = world.emitting().await;
    let (much, sound, other) =
        (world.told_transfer(101), world.told_transfer(30), world.told_transfer(5));
    requests.submit(&much, "much").await.expect("stored");
    requests.submit(&sound, "sound").await.expect("stored");
    assert!(waiting(&outbox, "transfers", "alice").await.is_empty(), "nothing happened yet");
    let tally = requests.process_open(None).await.expect("looks");
    assert_eq!((tally.committed, tally.rolled_back), (1, 1));
    for _ in 0..2 {
        assert!(requests.execute(&other, "other").await.expect("done").state.is_committed());
        assert!(requests.execute(&sound, "sound").await.expect("done").state.is_committed());
    }
    let refused = requests.execute(&much, "too-much").await.expect_err("refused");
    assert!(matches!(refused, RequestError::Refused(_)), "{refused}");
    let told = waiting(&outbox, "transfers", "alice").await;
    let told: Vec<&str> = told.iter().map(|event| event.payload.get()).collect();
    assert_eq!(told, [r#"{"amount":30}"#, r#"{"amount":5}"#]);
    assert_eq!(waiting(&outbox, "transfers", "bob").await.len(), 2);
    let calls = waiting(&outbox, http::TOPIC, "alice").await;
    assert_eq!(calls.len(), 2);
    assert!(calls.iter().all(|call| call.payload.get().contains("https://a.example/hook")));
    assert_eq!(world.balance(&domain, "bob").await, 35);
    assert_eq!(requests.status("sound").await.expect("known").request, sound);
    // A reversal takes back the effects, and not the events.
    requests.reverse("sound", "back").await.expect("submitted");
    assert_eq!(requests.process_open(None).await.expect("looks").committed, 1);
    assert_eq!(world.balance(&domain, "bob").await, 5);
    assert_eq!(waiting(&outbox, "transfers", "alice").await.len(), 2);
}

/// The protected collections of requests, locks and the outbox.
pub(crate) async fn requests_cannot_change_protected_collections(world: &World) {
    let domain = world.fund(&[("alice", 100)]).await;
    let (requests, outbox) = world.emitting().await;
    let dependents = Dependents::new(&domain, &outbox).expect("of one domain");
    HttpResults::open(&domain).await.expect("opens");
    LockService::open(&domain, LockConfig::default()).await.expect("opens");
    let ours = domain.collection_name("");
    let made = domain.store().list_collections(&ours).await.expect("lists");
    let made = made.iter().filter_map(|name| name.strip_prefix(&*ours));
    let made: Vec<&str> = made.filter(|what| *what != "accounts").collect();
    assert_eq!(made.len(), 5, "{made:?}");
    for what in made {
        let change = || Operation::Delete(Target::new(format!("{ours}{what}"), "x"));
        let first = || Operation::add(world.target("alice"), "/balance", 1);
        let request = Request::new(vec![first(), change()]);
        let write = DependentWrite::new(Condition::Exists(true), first()).with_update(change());
        for refused in [
            requests.submit(&request, "x").await.map(drop),
            requests.execute(&request, "x").await.map(drop),
            dependents.write(&write).await.map(drop),
        ] {
            let Err(RequestError::Invalid(why)) = refused else { panic!("{what}: {refused:?}") };
            assert!(why.contains("is reserved"), "{what}: {why}");
        }
    }
    assert_eq!(world.balance(&domain, "alice").await, 100);
    let unknown = requests.status("x").await.expect_err("nothing was written");
    assert!(matches!(unknown, RequestError::NotFound(_)), "{unknown}");
}

/// The purge of requests also removes unused keys of their outbox.
pub(crate) async fn purge_includes_the_keys_of_the_outbox(world: &World) {
    let domain = world.fund(&[("alice", 100), ("bob", 0)]).await;
    let (requests, outbox) = world.emitting().await;
    requests.execute(&world.told_transfer(5), "told").await.expect("done");
    let dependents = Dependents::new(&domain, &outbox).expect("of one domain");
    let write = DependentWrite::new(
        Condition::Exists(true),
        Operation::add(world.target("alice"), "/balance", 1),
    )
    .with_update(Operation::add(world.target("bob"), "/balance", 1));
    dependents.write(&write).await.expect("written");
    assert_eq!(requests.purge(Duration::ZERO).await.expect("purges").outbox.queues, 0);
    let done = |_: txn_outbox::Delivery| async { Ok(()) };
    let topics = Topics::new().with("transfers", done).with(http::TOPIC, done);
    let topics = topics.with(dependent::TOPIC, dependents);
    let processor = outbox.start(ProcessorConfig::default(), topics).await.expect("starts");
    let until = std::time::Instant::now() + PATIENCE;
    while outbox.backlog().await.expect("counts").events > 0 {
        assert!(std::time::Instant::now() < until, "events wait");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(processor.stop(PATIENCE).await);
    assert_eq!(requests.purge(Duration::from_secs(3600)).await.expect("looks").outbox.queues, 0);
    let purged = requests.purge(Duration::ZERO).await.expect("purges");
    assert_eq!(purged.outbox.queues, 4, "two of events, one of a call, one of an update");
}

pub(crate) async fn events_without_an_outbox_are_refused(world: &World) {
    let domain = world.fund(&[("alice", 100), ("bob", 0)]).await;
    let without = world.requests().await;
    let event = world.transfer("alice", "bob", 1).with_event(Emit::new("t", "k", json!(1)));
    let call = HttpRequest::new(Method::Post, "https://a.example");
    let call = world.transfer("alice", "bob", 1).with_after_commit(call);
    for request in [&event, &call] {
        for refused in [without.submit(request, "x").await, without.execute(request, "x").await] {
            assert!(matches!(refused, Err(RequestError::NoOutbox)), "{refused:?}");
        }
    }
    let unknown = without.status("x").await.expect_err("nothing was written");
    assert!(matches!(unknown, RequestError::NotFound(_)), "{unknown}");
    // A process with an outbox submits the request.
    let (with, outbox) = world.emitting().await;
    with.submit(&event, "x").await.expect("stored");
    without.submit(&world.transfer("alice", "bob", 1), "plain").await.expect("stored");
    let tally = without.process_open(None).await.expect("looks");
    assert_eq!((tally.committed, tally.failed), (1, 0), "{tally:?}");
    without.recover(None).await.expect("looks");
    let status = with.status("x").await.expect("known");
    assert_eq!((status.state, status.failures), (State::Created, 0));
    assert_eq!(with.process_open(None).await.expect("looks").committed, 1);
    assert_eq!(waiting(&outbox, "t", "k").await.len(), 1);
    assert_eq!(world.balance(&domain, "bob").await, 2);
}

pub(crate) async fn impossible_events_are_refused(world: &World) {
    let domain = world.fund(&[("alice", 1)]).await;
    let outbox = world.outbox(&domain).await;
    let config = world.config().with_outbox(Some(outbox.clone())).with_max_operations(3);
    let requests = Requests::open(&domain, config).await.expect("opens");
    let sound = || Request::new(vec![Operation::add(world.target("alice"), "/balance", 1)]);
    let emit = |topic: &str, key: &str| Emit::new(topic, key, json!(1));
    let call = |url: &str| HttpRequest::new(Method::Post, url);
    for (part, request) in [
        ("event 0: the topic", sound().with_event(emit("a/b", "k"))),
        ("event 1: the key", sound().with_event(emit("t", "k")).with_event(emit("t", ""))),
        ("is reserved", sound().with_event(emit(http::TOPIC, "k"))),
        ("is reserved", sound().with_event(emit(txn_requests::dependent::TOPIC, "k"))),
        ("HTTP request 0", sound().with_after_commit(call("nowhere"))),
        (
            "HTTP request 0",
            sound().with_after_commit(
                call("https://a.example")
                    .with_header("authorization", HeaderText::Text("word".to_owned())),
            ),
        ),
        (
            "it has 4 operations, patch steps, events and HTTP requests",
            (0..3).fold(sound(), |request, _| request.with_event(emit("t", "k"))),
        ),
    ] {
        for refused in [requests.submit(&request, "x").await, requests.execute(&request, "x").await]
        {
            let Err(RequestError::Invalid(why)) = refused else { panic!("{part}: {refused:?}") };
            assert!(why.contains(part) && !why.contains("word"), "{part}: {why}");
        }
    }
    assert_eq!(world.balance(&domain, "alice").await, 1);
    let config = Config::default().with_janitor_interval(None);
    let name = format!("{}-b", world.name);
    let elsewhere = Domain::open_or_create(world.store.clone(), &name, config);
    let elsewhere = elsewhere.await.expect("opens");
    let config = RequestsConfig::default().with_outbox(Some(outbox));
    let refused = Requests::open(&elsewhere, config).await.expect_err("another domain's");
    assert!(matches!(refused, RequestError::InvalidConfig(_)), "{refused}");
    assert!(elsewhere.shutdown(PATIENCE).await);
}

/// An older version refuses requests with events by their format number.
///
/// Requests of the previous format are still executed.
pub(crate) async fn requests_of_the_previous_format_are_executed(world: &World) {
    let domain = world.fund(&[("alice", 1)]).await;
    let (requests, outbox) = world.emitting().await;
    let one = Request::new(vec![Operation::add(world.target("alice"), "/balance", 1)]);
    requests.submit(&one, "old").await.expect("stored");
    requests
        .submit(&one.clone().with_event(Emit::new("t", "k", json!(1))), "new")
        .await
        .expect("stored");
    let raw = domain.collection::<Raw>(&domain.collection_name("requests")).await.expect("opens");
    let stored = domain.reader().verified().get(&raw, "new").await.expect("reads").expect("stored");
    assert!(stored.as_str().contains(r#""format":2"#) && stored.as_str().contains(r#""events""#));
    let stored = domain.reader().verified().get(&raw, "old").await.expect("reads").expect("stored");
    let before = stored.as_str().replace(r#""format":2"#, r#""format":1"#);
    assert!(before != stored.as_str() && !before.contains("events"));
    let before = Raw::new(before);
    domain.transact::<_, Error, _>(async |tx| tx.put(&raw, "old", &before)).await.expect("written");
    assert_eq!(requests.process_open(None).await.expect("looks").committed, 2);
    assert!(requests.status("old").await.expect("known").state.is_committed());
    assert_eq!(waiting(&outbox, "t", "k").await.len(), 1);
    assert_eq!(world.balance(&domain, "alice").await, 3);
}

pub(crate) async fn request_emits_once_despite_kills(world: &World) {
    world.fund(&[("alice", 100), ("bob", 0)]).await;
    let (client, outbox) = world.emitting().await;
    let mut submitted = 0;
    for moment in [0, 900, 2_500, 6_000] {
        for _ in 0..2 {
            let request = world.told_transfer(1);
            client.submit(&request, &format!("r{submitted}")).await.expect("stored");
            submitted += 1;
        }
        let process = Process::new();
        process
            .run(async {
                let (requests, _) = world.emitting().await;
                let processor = requests.start(None);
                tokio::time::sleep(Duration::from_micros(moment)).await;
                std::mem::forget((processor, requests));
            })
            .await;
        drop(process);
    }
    let (survivor, _) = world.emitting().await;
    let processor = survivor.start(None);
    for at in 0..submitted {
        let status = survivor.wait(&format!("r{at}"), PATIENCE).await.expect("decided");
        assert!(status.state.is_committed(), "{status:?}");
    }
    for (topic, key) in [("transfers", "alice"), ("transfers", "bob"), (http::TOPIC, "alice")] {
        assert_eq!(waiting(&outbox, topic, key).await.len(), submitted, "{topic} {key}");
    }
    assert!(processor.stop(PATIENCE).await && survivor.shutdown(PATIENCE).await);
}

/// Requests with a full queue fill a whole batch.
///
/// A younger request is executed all the same.
pub(crate) async fn waiting_request_delays_no_other_request(world: &World) {
    let domain = world.fund(&[("alice", 100), ("bob", 0)]).await;
    let narrow = OutboxConfig::default().with_shards(8).with_max_backlog(1);
    let outbox = Outbox::open(&domain, narrow).await.expect("opens");
    let config = world.config().with_outbox(Some(outbox.clone())).with_batch(2);
    let requests = Requests::open(&domain, config).await.expect("opens");
    domain
        .transact::<_, OutboxError, _>(async |tx| outbox.emit(tx, "t", "k", &json!(0)).await)
        .await
        .expect("fills the queue");
    let event = || world.transfer("alice", "bob", 1).with_event(Emit::new("t", "k", json!(1)));
    for id in ["a", "b", "c"] {
        requests.submit(&event(), id).await.expect("stored");
    }
    requests.submit(&world.transfer("alice", "bob", 10), "young").await.expect("stored");
    let (mut committed, mut looks) = (0, 0);
    // On a slow server the pauses of the waiting requests end, and they fill a batch again.
    while committed == 0 && looks < 20 {
        committed += requests.process_open(None).await.expect("looks").committed;
        looks += 1;
    }
    assert_eq!(committed, 1, "what waits fills no place");
    assert!(requests.status("young").await.expect("known").state.is_committed());
    let waits = requests.status("a").await.expect("known");
    assert_eq!(waits.state, State::Created);
    assert!(format!("{:?}", waits.reason).contains('k'), "it says what it waits for: {waits:?}");
    assert_eq!(world.balance(&domain, "bob").await, 10);
}
