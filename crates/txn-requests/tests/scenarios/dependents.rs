//! Dependent writes: one document, and later updates of other documents.

use std::time::Duration;

use serde_json::{Value, json};
use txn_core::{CommitVersion, Domain};
use txn_fixtures::process::Process;
use txn_outbox::{
    AfterDeadLetter, DeadLetter, EventSource, Heartbeat, Outbox, Processor, ProcessorConfig, Topics,
};
use txn_requests::dependent::{DependentWrite, Dependents, TOPIC};
use txn_requests::{
    Condition, Document, Expect, Field, Merge, Operation, Patch, RequestError, Target, Why,
};

use super::{PATIENCE, World};

/// A process that writes, and may handle updates.
struct Writer {
    domain: Domain,
    outbox: Outbox,
    dependents: Dependents,
}

impl World {
    async fn writer(&self) -> Writer {
        let domain = self.domain().await;
        self.accounts(&domain).await;
        let outbox = self.outbox(&domain).await;
        let dependents = Dependents::new(&domain, &outbox).expect("of one domain");
        Writer { domain, outbox, dependents }
    }

    fn of_updates(&self) -> ProcessorConfig {
        ProcessorConfig::default()
            .with_lease(self.lease)
            .with_balance(Some(Duration::from_millis(100)))
            .with_delay(Duration::from_millis(50))
            // Tests pause their processes, and a paused process must miss its heartbeats.
            .with_heartbeat(Heartbeat::CallersRuntime)
    }

    /// The version of a document as a condition.
    async fn as_read(&self, domain: &Domain, id: &str) -> Condition {
        let accounts = self.accounts(domain).await;
        let found = domain.reader().verified().read(&accounts, id).await.expect("reads");
        Condition::Version(found.commit_version().expect("a transaction wrote it").to_string())
    }

    fn put(&self, id: &str, value: Value) -> Operation {
        Operation::put(self.target(id), Document::new(&value).expect("an object"))
    }

    /// Appends a number to the list of a document.
    fn append(&self, id: &str, number: usize) -> Operation {
        let patch = json!([{"op": "add", "path": "/seen/-", "value": number}]);
        let patch = serde_json::from_value(patch).expect("a patch");
        Operation::Patch(Patch { target: self.target(id), patch })
    }

    /// Creates documents with empty lists.
    async fn lists(&self, ids: &[&str]) {
        let writer = self.writer().await;
        for id in ids {
            let write =
                DependentWrite::new(Condition::Exists(false), self.put(id, json!({"seen": []})));
            writer.dependents.write(&write).await.expect("written");
        }
    }

    /// Waits until the list of a document equals `numbers`.
    ///
    /// Fails if the list is not a prefix of `numbers`.
    async fn listed(&self, domain: &Domain, id: &str, numbers: &[usize]) {
        let until = std::time::Instant::now() + PATIENCE;
        loop {
            let found = self.read(domain, id).await.expect("it exists");
            let seen: Vec<usize> = serde_json::from_value(found["seen"].clone()).expect("numbers");
            assert!(numbers.starts_with(&seen), "{id}: {seen:?} for {numbers:?}");
            if seen == numbers {
                return;
            }
            assert!(std::time::Instant::now() < until, "{id}: only {seen:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Writer {
    async fn start(&self, config: ProcessorConfig) -> Processor {
        let topics = Topics::new().with(TOPIC, self.dependents.clone());
        self.outbox.start(config, topics).await.expect("starts")
    }

    /// Writes the number into the source, and updates these lists.
    async fn count(&self, world: &World, number: usize, lists: &[&str]) {
        let condition = world.as_read(&self.domain, "source").await;
        let write = DependentWrite::new(condition, world.put("source", json!({"n": number})));
        let write =
            lists.iter().fold(write, |write, id| write.with_update(world.append(id, number)));
        self.dependents.write(&write).await.expect("written");
    }

    async fn dead(&self) -> DeadLetter {
        let until = std::time::Instant::now() + PATIENCE;
        loop {
            if let Some(letter) = self.outbox.dead_letters().await.expect("lists").letters.pop() {
                return letter;
            }
            assert!(std::time::Instant::now() < until, "nothing is set aside");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

pub(crate) async fn updates_follow_their_write(world: &World) {
    let domain = world.fund(&[("alice", 100), ("bob", 0), ("carol", 0)]).await;
    let writer = world.writer().await;
    let spent = DependentWrite::new(
        world.as_read(&domain, "alice").await,
        Operation::add_down_to(world.target("alice"), "/balance", -30, 0),
    )
    .with_update(Operation::add(world.target("bob"), "/balance", 10))
    .with_update(Operation::add(world.target("carol"), "/balance", 20))
    // Updates of one document run together, in their order.
    .with_update(Operation::Merge(Merge {
        target: world.target("bob"),
        patch: json!({"balance": 11}).as_object().expect("an object").clone(),
    }));
    let written = writer.dependents.write(&spent).await.expect("written");
    assert_eq!(written.events.len(), 2, "one for each document");
    assert!(written.events.iter().all(|id| id.starts_with(TOPIC)), "{written:?}");
    let accounts = world.accounts(&domain).await;
    let found = domain.reader().verified().read(&accounts, "alice").await.expect("reads");
    assert_eq!(found.commit_version(), written.version);
    let balances = async || {
        [
            world.balance(&domain, "alice").await,
            world.balance(&domain, "bob").await,
            world.balance(&domain, "carol").await,
        ]
    };
    assert_eq!(balances().await, [70, 0, 0], "no processor runs yet");
    // The processor is in another process than the writer.
    let other = world.writer().await;
    let processor = other.start(world.of_updates()).await;
    let until = std::time::Instant::now() + PATIENCE;
    while balances().await != [70, 11, 20] {
        assert!(std::time::Instant::now() < until, "{:?}", balances().await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // The same call creates and deletes documents.
    let made =
        DependentWrite::new(Condition::Exists(false), world.put("dave", json!({"balance": 0})))
            .with_update(Operation::Delete(world.target("carol")));
    writer.dependents.write(&made).await.expect("written");
    let gone = DependentWrite::new(
        world.as_read(&domain, "bob").await,
        Operation::Delete(world.target("bob")),
    )
    .with_update(world.put("dave", json!({"balance": 11})));
    writer.dependents.write(&gone).await.expect("written");
    let until = std::time::Instant::now() + PATIENCE;
    while world.read(&domain, "carol").await.is_some() || world.balance(&domain, "dave").await != 11
    {
        assert!(std::time::Instant::now() < until, "the updates did not follow");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(world.read(&domain, "bob").await, None);
    assert!(processor.stop(PATIENCE).await);
    assert_eq!(writer.outbox.backlog().await.expect("counts").events, 0);
}

pub(crate) async fn failed_condition_writes_nothing(world: &World) {
    let domain = world.fund(&[("alice", 100), ("bob", 0)]).await;
    let writer = world.writer().await;
    let stale = world.as_read(&domain, "alice").await;
    world.fund(&[("alice", 50)]).await;
    let update = || Operation::add(world.target("bob"), "/balance", 1);
    let change = || world.put("alice", json!({"balance": 0}));
    let field = Field { path: "/balance".to_owned(), equals: json!(1) };
    for (condition, change, why) in [
        (stale, change(), Why::VersionDiffers),
        (Condition::Exists(false), change(), Why::Exists),
        (Condition::Field(field), change(), Why::FieldDiffers),
        (Condition::Exists(true), world.put("stranger", json!({})), Why::Missing),
        (
            Condition::Exists(true),
            Operation::add_down_to(world.target("alice"), "/balance", -51, 0),
            Why::BelowMinimum,
        ),
    ] {
        let write = DependentWrite::new(condition, change).with_update(update());
        let refused = writer.dependents.write(&write).await.expect_err("refused");
        let RequestError::Refused(refusal) = refused else { panic!("{why}: {refused}") };
        assert_eq!(refusal.why, why);
    }
    // An impossible operation is refused before any read.
    let stranger = Target::new(format!("{}-no", world.name), "x");
    let requests = Target::new(domain.collection_name("requests"), "x");
    world.requests().await;
    let exists = || Condition::Exists(true);
    let expect = Expect { target: world.target("alice"), that: exists() };
    let nothing = DependentWrite::new(exists(), Operation::Expect(expect));
    for wrong in [
        nothing.with_update(update()),
        DependentWrite::new(Condition::Version("yesterday".to_owned()), change()),
        DependentWrite::new(exists(), change()).with_update(update()).with_update(Operation::add(
            world.target(""),
            "/n",
            1,
        )),
        DependentWrite::new(exists(), change()).with_update(Operation::add(
            world.target("bob"),
            "n",
            1,
        )),
        DependentWrite::new(exists(), change()).with_update(Operation::Delete(requests)),
        (0..1_001)
            .fold(DependentWrite::new(exists(), change()), |write, _| write.with_update(update())),
    ] {
        let refused = writer.dependents.write(&wrong).await.expect_err("invalid");
        assert!(matches!(refused, RequestError::Invalid(_)), "{refused}");
    }
    let unknown = DependentWrite::new(exists(), change()).with_update(Operation::Delete(stranger));
    let refused = writer.dependents.write(&unknown).await.expect_err("no such collection");
    assert!(matches!(refused, RequestError::Engine(_)), "{refused}");
    let balances = [world.balance(&domain, "alice").await, world.balance(&domain, "bob").await];
    assert_eq!(balances, [50, 0]);
    let backlog = writer.outbox.backlog().await.expect("counts");
    assert_eq!((backlog.events, backlog.queues, backlog.dead), (0, 0, 0));
}

pub(crate) async fn updates_of_a_document_keep_their_order(world: &World) {
    world.lists(&["source", "a", "b", "c"]).await;
    let (one, two) = (world.writer().await, world.writer().await);
    let processors = [one.start(world.of_updates()).await, two.start(world.of_updates()).await];
    let all: Vec<usize> = (1..=10).collect();
    for number in &all {
        // The writers alternate, each on the version that it read.
        let writer = if number % 2 == 0 { &one } else { &two };
        writer.count(world, *number, &["a", "b", "c"]).await;
    }
    for id in ["a", "b", "c"] {
        world.listed(&one.domain, id, &all).await;
    }
    for processor in processors {
        assert!(processor.stop(PATIENCE).await);
    }
}

pub(crate) async fn updates_happen_once_despite_kills(world: &World) {
    world.lists(&["source", "a", "b"]).await;
    let writer = world.writer().await;
    // The number of dead processes must not make a dead letter here.
    let config = world.of_updates().with_max_unfinished(u32::MAX);
    let mut number = 0;
    for moment in [0, 900, 3_000, 8_000] {
        for _ in 0..3 {
            number += 1;
            writer.count(world, number, &["a", "b"]).await;
        }
        let process = Process::new();
        process
            .run(async {
                let other = world.writer().await;
                let processor = other.start(config.clone()).await;
                let until = std::time::Instant::now() + PATIENCE;
                while processor.shards().is_empty() {
                    assert!(std::time::Instant::now() < until, "it gets no shard");
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                tokio::time::sleep(Duration::from_micros(moment)).await;
                std::mem::forget((processor, other));
            })
            .await;
        drop(process);
    }
    let processor = writer.start(config).await;
    let all: Vec<usize> = (1..=number).collect();
    for id in ["a", "b"] {
        world.listed(&writer.domain, id, &all).await;
    }
    assert!(processor.stop(PATIENCE).await);
    assert_eq!(writer.outbox.backlog().await.expect("counts").events, 0);
}

pub(crate) async fn failing_update_delays_its_own_document_only(world: &World) {
    world.lists(&["source", "a", "b"]).await;
    let writer = world.writer().await;
    let write = async |number: usize, poison: Option<Operation>| {
        let condition = world.as_read(&writer.domain, "source").await;
        let mut write = DependentWrite::new(condition, world.put("source", json!({"n": number})));
        // The update after its guard, on the same document.
        write.updates.extend(poison);
        let write =
            write.with_update(world.append("a", number)).with_update(world.append("b", number));
        writer.dependents.write(&write).await.expect("written");
    };
    let guard = |equals: Value| {
        let that = Condition::Field(Field { path: "/open".to_owned(), equals });
        Some(Operation::Expect(Expect { target: world.target("a"), that }))
    };
    write(1, None).await;
    write(2, guard(json!("a word"))).await;
    write(3, None).await;
    let processor = writer.start(world.of_updates()).await;
    world.listed(&writer.domain, "b", &[1, 2, 3]).await;
    // The queue of the document continues with the next update.
    world.listed(&writer.domain, "a", &[1, 3]).await;
    let letter = writer.dead().await;
    assert_eq!(letter.event.failures, 1, "at once");
    assert!(letter.error.contains("the field has another value"), "{}", letter.error);
    assert!(!letter.error.contains("a word"), "{}", letter.error);
    writer.outbox.discard(&letter.event.id).await.expect("dropped");
    assert!(processor.stop(PATIENCE).await);
    // Or the queue waits, and other queues do not.
    let waits = world.of_updates().with_after_dead_letter(AfterDeadLetter::Wait);
    let processor = writer.start(waits).await;
    write(4, Some(Operation::add(world.target("a"), "/missing", 1))).await;
    write(5, None).await;
    world.listed(&writer.domain, "b", &[1, 2, 3, 4, 5]).await;
    let letter = writer.dead().await;
    assert!(letter.error.contains("there is no number"), "{}", letter.error);
    let blocked = writer.outbox.backlog().await.expect("counts");
    assert_eq!((blocked.blocked, blocked.dead), (1, 1));
    world.listed(&writer.domain, "a", &[1, 3]).await;
    let mended = json!([{"op": "add", "path": "/missing", "value": 0}]);
    let mended = Operation::Patch(Patch {
        target: world.target("a"),
        patch: serde_json::from_value(mended).expect("a patch"),
    });
    let mended = DependentWrite::new(Condition::Exists(true), mended);
    let version: Option<CommitVersion> =
        writer.dependents.write(&mended).await.expect("written").version;
    assert!(version.is_some());
    writer.outbox.retry(&letter.event.id).await.expect("tried again");
    world.listed(&writer.domain, "a", &[1, 3, 4, 5]).await;
    assert!(processor.stop(PATIENCE).await);
}
