//! Scenarios for every store, each an `async fn(&World)`.
#![allow(dead_code, unused_imports, unused_macros, reason = "each suite uses a part of it")]

mod dead_letters;
#[cfg(feature = "http")]
mod http;
mod inline;
mod knowledge;
mod purge;
#[cfg(feature = "postgres")]
mod relay;
#[cfg(feature = "postgres")]
mod relay_access;
#[cfg(feature = "postgres")]
mod relay_hostile;
mod timers;
mod watched;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Notify;
use txn_core::{Collection, Error, Raw, Transaction, Typed};
use txn_fixtures::process::Process;
use txn_outbox::{
    AfterDeadLetter, Assignment, Delivery, Event, Failure, OutboxConfig, OutboxError, QueueName,
    Shard, Topics,
};

pub(crate) use dead_letters::*;
#[cfg(feature = "http")]
pub(crate) use http::*;
pub(crate) use inline::*;
pub(crate) use knowledge::*;
pub(crate) use purge::*;
#[cfg(feature = "postgres")]
pub(crate) use relay::*;
#[cfg(feature = "postgres")]
pub(crate) use relay_access::*;
#[cfg(feature = "postgres")]
pub(crate) use relay_hostile::*;
pub(crate) use timers::*;
pub(crate) use watched::Watched;
pub(crate) use world::{
    Desk, PATIENCE, SHARDS, World, numbers, orders, until, until_dead, until_some,
};

/// Passes all scenarios to a macro that declares them as tests.
macro_rules! all {
    ($($on:ident)::+) => {
        $($on)::+! {
            events_commit_atomically_with_their_transaction;
            a_queue_keeps_the_order_of_the_commits;
            a_commit_wakes_the_processors_of_its_process;
            event_may_change_documents_and_emit;
            queue_continues_after_a_dead_letter;
            queue_waits_for_a_dead_letter;
            retried_dead_letters_keep_their_order;
            full_queue_refuses_events;
            timer_is_not_handled_before_its_time;
            timer_survives_its_processor;
            far_timers_are_not_read;
            state_of_idle_keys_is_purged;
            a_newer_format_is_refused_by_name;
            large_events_have_documents_of_their_own;
            dead_letters_return_to_their_place;
            shards_are_balanced_and_taken_over;
            processors_may_know_different_topics;
            new_topic_is_deployed_during_processing;
            a_static_processor_takes_its_own_shards_only;
            events_are_handled_where_they_are_emitted;
            waiting_events_of_a_key_end_in_few_commits;
            events_are_handled_once_despite_kills;
            paused_processor_repeats_no_effect;
            external_effects_are_fenced;
        }
    };
}
pub(crate) use all;

pub(crate) async fn events_commit_atomically_with_their_transaction(world: &World) {
    let desk = world.desk().await;
    desk.place("a", 1).await;
    let aborted = desk
        .domain
        .transact::<(), OutboxError, _>(async |tx| {
            desk.outbox.emit(tx, "orders", "a", &2).await?;
            Err(OutboxError::NotFound("the application's own".to_owned()))
        })
        .await;
    assert!(matches!(aborted, Err(OutboxError::NotFound(_))), "{aborted:?}");
    // Two events of one transaction, in their order.
    desk.domain
        .transact::<_, OutboxError, _>(async |tx| {
            desk.outbox.emit(tx, "orders", "a", &3).await?;
            desk.outbox.emit(tx, "orders", "a", &4).await
        })
        .await
        .expect("emitted");
    let source = desk.outbox.source();
    let queue = QueueName::new("orders", "a").expect("a name");
    let waiting = source.next(&queue, 10).await.expect("reads");
    let places: Vec<u64> = waiting.iter().map(|event| event.sequence).collect();
    assert_eq!(places, [1, 2, 3], "the aborted one has left no gap");
    let ids: BTreeSet<&str> = waiting.iter().map(|event| event.id.as_str()).collect();
    assert_eq!(ids.len(), 3);
    let backlog = source.backlog().await.expect("counts");
    assert_eq!((backlog.events, backlog.queues, backlog.dead), (3, 1, 0));
    assert!(backlog.oldest_ms.is_some());
    let processor = desk.start(world.config()).await;
    desk.seen("a", &[1, 3, 4]).await;
    assert!(source.next(&queue, 10).await.expect("reads").is_empty());
    let figures = until_some(|| Some(processor.figures()).filter(|f| f.handled == 3)).await;
    assert_eq!((figures.failed, figures.set_aside), (0, 0));
    assert!(processor.stop(PATIENCE).await);
    let backlog = source.backlog().await.expect("counts");
    assert_eq!((backlog.events, backlog.queues, backlog.oldest_ms), (0, 0, None));
}

/// Many clients emit to few keys.
///
/// Each event has the number that its transaction gave to the counter of the key.
pub(crate) async fn a_queue_keeps_the_order_of_the_commits(world: &World) {
    let desk = Arc::new(world.desk().await);
    let processor = desk.start(world.config()).await;
    let (keys, clients, each) = (["a", "b", "c"], 4, 6);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..clients {
        let desk = desk.clone();
        tasks.spawn(async move {
            for at in 0..each {
                desk.count(keys[at % keys.len()]).await;
            }
        });
    }
    tasks.join_all().await;
    let numbers: Vec<i64> =
        (1..=i64::try_from(clients * each / keys.len()).expect("few")).collect();
    for key in keys {
        desk.seen(key, &numbers).await;
    }
    assert!(processor.stop(PATIENCE).await);
}

/// The processor polls once per hour, so the commit must wake it.
pub(crate) async fn a_commit_wakes_the_processors_of_its_process(world: &World) {
    let desk = world.desk().await;
    let config = world.config().with_delay(Duration::from_secs(3600));
    let processor = desk.start(config).await;
    until(|| processor.shards().len() == usize::from(SHARDS)).await;
    for number in 1..=3 {
        desk.place("a", number).await;
        desk.seen("a", &(1..=number).collect::<Vec<_>>()).await;
    }
    assert!(processor.stop(PATIENCE).await);
}

pub(crate) async fn event_may_change_documents_and_emit(world: &World) {
    let desk = world.desk().await;
    let (outbox, log) = (desk.outbox.clone(), desk.log.clone());
    let handler = move |delivery: Delivery| {
        let (outbox, log) = (outbox.clone(), log.clone());
        async move {
            let event = delivery.event().clone();
            let names: Vec<String> = match event.queue.topic() {
                "groups" => event.payload()?,
                _ => vec![event.queue.key().to_owned()],
            };
            let more = event.queue.topic() == "groups";
            delivery
                .transact::<_, Failure, _>(async |tx| {
                    for name in &names {
                        if more {
                            outbox.emit(tx, "members", name, &7).await?;
                            tx.put(&log, format!("of-{name}"), &json!({"seen": [1]}))?;
                        } else {
                            tx.put(&log, name, &json!({"seen": [7]}))?;
                        }
                    }
                    Ok(())
                })
                .await
        }
    };
    let topics = Topics::new().with("groups", handler.clone()).with("members", handler);
    let processor = desk.outbox.start(world.config(), topics).await.expect("starts");
    desk.domain
        .transact::<_, OutboxError, _>(async |tx| {
            desk.outbox.emit(tx, "groups", "all", &["x", "y", "z"]).await
        })
        .await
        .expect("emitted");
    for name in ["x", "y", "z"] {
        desk.seen(name, &[7]).await;
        desk.seen(&format!("of-{name}"), &[1]).await;
    }
    assert!(processor.stop(PATIENCE).await);
}

pub(crate) async fn full_queue_refuses_events(world: &World) {
    let desk = world.desk_with(OutboxConfig::default().with_max_backlog(2)).await;
    desk.place("a", 1).await;
    desk.place("a", 2).await;
    let refused = desk.try_place("a", 3).await.expect_err("no room");
    assert!(
        matches!(&refused, OutboxError::Full { queue, waiting: 2, most: 2 } if queue == "orders/a"),
        "{refused}"
    );
    desk.place("b", 1).await;
    for (topic, key) in [("", "a"), ("a/b", "a"), ("a", "\n")] {
        let refused = desk
            .domain
            .transact(async |tx| desk.outbox.emit(tx, topic, key, &1).await)
            .await
            .expect_err("no name");
        assert!(matches!(refused, OutboxError::InvalidName { .. }), "{refused}");
    }
    let processor = desk.start(world.config()).await;
    desk.seen("a", &[1, 2]).await;
    desk.place("a", 3).await;
    desk.seen("a", &[1, 2, 3]).await;
    assert!(processor.stop(PATIENCE).await);
}

pub(crate) async fn a_newer_format_is_refused_by_name(world: &World) {
    let desk = world.desk().await;
    desk.place("a", 1).await;
    // The queue's document contains the first 16 events.
    let first: Vec<i64> = (1..=16).collect();
    for number in 1..=17 {
        desk.place("b", number).await;
    }
    let raw =
        desk.domain.collection::<Raw>(&desk.domain.collection_name("outbox")).await.expect("opens");
    let write = async |id: &str, text: &str| {
        let newer = Raw::new(text);
        desk.domain
            .transact::<_, Error, _>(async |tx| tx.put(&raw, id, &newer))
            .await
            .expect("written");
    };
    write(
        "queue:orders/new",
        r#"{"format":9,"kind":"queue","topic":"orders","key":"new","pending":"00"}"#,
    )
    .await;
    write(
        "event:orders/17/b",
        r#"{"format":9,"kind":"event","id":"x","topic":"orders","key":"b"}"#,
    )
    .await;
    write("dead:orders/9/z", r#"{"format":9,"kind":"dead","id":"x"}"#).await;
    let named = |error: &OutboxError, name: &str| matches!(error, OutboxError::NewerFormat { document, format: 9 } if document == name);
    let refused = desk.try_place("new", 1).await.expect_err("newer");
    assert!(named(&refused, "queue:orders/new"), "{refused}");
    let source = desk.outbox.source();
    let queue = |key| QueueName::new("orders", key).expect("a name");
    let refused = source.next(&queue("new"), 1).await.expect_err("newer");
    assert!(named(&refused, "queue:orders/new"), "{refused}");
    // Events before the newer one are handled, and so are other queues.
    let processor = desk.start(world.config().with_max_failures(1)).await;
    desk.seen("a", &[1]).await;
    desk.seen("b", &first).await;
    let refused = source.next(&queue("b"), 1).await.expect_err("newer");
    assert!(named(&refused, "event:orders/17/b"), "{refused}");
    let refused = source.dead_letter("orders/9/z").await.expect_err("newer");
    assert!(named(&refused, "dead:orders/9/z"), "{refused}");
    // The newer dead letter does not hide the rest.
    desk.place("c", -1).await;
    until_dead(&*source).await;
    let dead = source.dead_letters().await.expect("lists");
    assert_eq!(dead.letters.len(), 1);
    assert_eq!(dead.newer, BTreeMap::from([("orders/9/z".to_owned(), 9)]));
    assert_eq!(source.dead_letter("orders/1/c").await.expect("there").event.failures, 1);
    let missing = source.dead_letter("orders/2/c").await.expect_err("missing");
    assert!(matches!(missing, OutboxError::NotFound(_)), "{missing}");
    assert!(named(&source.retry("orders/9/z").await.expect_err("newer"), "dead:orders/9/z"));
    assert!(processor.stop(PATIENCE).await);
    write("settings", r#"{"format":9,"kind":"settings"}"#).await;
    let refused = txn_outbox::Outbox::open(&desk.domain, OutboxConfig::default()).await;
    assert!(named(&refused.expect_err("newer"), "settings"));
}

pub(crate) async fn shards_are_balanced_and_taken_over(world: &World) {
    let all = usize::from(SHARDS);
    let (one, two) = (world.desk().await, world.desk().await);
    let first = one.start(world.config()).await;
    until(|| first.shards().len() == all).await;
    let second = two.start(world.config()).await;
    until(|| first.shards().len() == all / 2 && second.shards().len() == all / 2).await;
    assert!(first.shards().is_disjoint(&second.shards()));
    for key in 0..20 {
        one.place(&format!("k{key}"), 1).await;
    }
    for key in 0..20 {
        one.seen(&format!("k{key}"), &[1]).await;
    }
    // A stopped processor releases its shards. A killed one loses them after a lease.
    assert!(second.stop(PATIENCE).await);
    until(|| first.shards().len() == all).await;
    let process = Process::new();
    let shared = process
        .run(async {
            let desk = world.desk().await;
            let third = desk.start(world.config()).await;
            until(|| third.shards().len() == all / 2).await;
            let shards = third.shards();
            std::mem::forget((third, desk));
            shards
        })
        .await;
    until(|| first.shards().is_disjoint(&shared)).await;
    drop(process);
    until(|| first.shards().len() == all).await;
    assert!(first.stop(PATIENCE).await);
}

pub(crate) async fn a_static_processor_takes_its_own_shards_only(world: &World) {
    let (desk, elsewhere) = (world.desk().await, world.desk().await);
    let own: BTreeSet<u16> = (0..SHARDS).filter(|shard| shard % 2 == 0).collect();
    let others: BTreeSet<u16> = (0..SHARDS).filter(|shard| shard % 2 == 1).collect();
    let of = |own: &BTreeSet<u16>| world.config().with_assignment(Assignment::Static(own.clone()));
    let even = desk.start(of(&own)).await;
    until(|| numbers(&even) == own).await;
    let shard = |key: &str| QueueName::new("orders", key).expect("a name").shard(SHARDS).number;
    let keys: Vec<String> = (0..12).map(|at| format!("k{at}")).collect();
    for key in &keys {
        elsewhere.place(key, 1).await;
    }
    for key in keys.iter().filter(|key| own.contains(&shard(key))) {
        desk.seen(key, &[1]).await;
    }
    for key in keys.iter().filter(|key| others.contains(&shard(key))) {
        assert_eq!(desk.read(key).await, [0; 0], "no processor has its shard");
    }
    // Events of a process with a processor go into the shards of that process.
    for key in (0..12).map(|at| format!("here-{at}")) {
        desk.place(&key, 1).await;
        desk.seen(&key, &[1]).await;
    }
    let odd = desk.start(of(&others)).await;
    for key in &keys {
        desk.seen(key, &[1]).await;
    }
    let beyond = of(&BTreeSet::from([SHARDS]));
    let refused = desk
        .outbox
        .start(beyond, orders(desk.handler()))
        .await
        .expect_err("there is no such shard");
    assert!(matches!(refused, OutboxError::InvalidConfig(_)), "{refused}");
    assert!(even.stop(PATIENCE).await && odd.stop(PATIENCE).await);
}

/// Two processes divide the shards. Each handles its own events.
///
/// A key to which both emit keeps its order.
pub(crate) async fn events_are_handled_where_they_are_emitted(world: &World) {
    let desks = [world.desk().await, world.desk().await];
    let handled = Arc::new(Mutex::new(Vec::new()));
    let mut processors = Vec::new();
    for (at, desk) in desks.iter().enumerate() {
        let (handler, handled) = (desk.handler(), handled.clone());
        let noting = move |delivery: Delivery| {
            handled.lock().push((at, delivery.event().queue.key().to_owned()));
            handler(delivery)
        };
        let topics = orders(noting);
        processors.push(desk.outbox.start(world.config(), topics).await.expect("starts"));
    }
    let half = usize::from(SHARDS) / 2;
    until(|| processors.iter().all(|processor| processor.shards().len() == half)).await;
    let keys: Vec<(usize, String)> =
        (0..16).map(|at| (at % 2, format!("{}-{at}", at % 2))).collect();
    for (at, key) in &keys {
        desks[*at].place(key, 1).await;
        desks[at ^ 1].count("both").await;
    }
    for (at, key) in &keys {
        desks[*at].seen(key, &[1]).await;
    }
    let numbers: Vec<i64> = (1..=16).collect();
    desks[0].seen("both", &numbers).await;
    let handled = handled.lock().clone();
    for (at, key) in handled.iter().filter(|(_, key)| key != "both") {
        assert_eq!(key.split('-').next(), Some(at.to_string().as_str()), "{key} at {at}");
    }
    for processor in processors {
        assert!(processor.stop(PATIENCE).await);
    }
}

/// Many events of two keys wait for a batching handler. A single event fails.
pub(crate) async fn waiting_events_of_a_key_end_in_few_commits(world: &World) {
    let (desk, elsewhere) = (world.desk().await, world.desk().await);
    for number in 1..=30 {
        elsewhere.place("sound", number).await;
        elsewhere.place("failing", if number == 20 { -1 } else { number }).await;
    }
    let handle = async |log: &Collection<Typed<Value>>, tx: &Transaction, event: &Event| {
        let (number, key): (i64, _) = (event.payload()?, event.queue.key());
        if number < 0 {
            return Err(Failure::permanent("it is negative"));
        }
        let mut logged = tx.get(log, key).await?.unwrap_or_else(|| json!({"seen": []}));
        logged["seen"].as_array_mut().expect("a list").push(json!(number));
        Ok(tx.put(log, key, &logged)?)
    };
    let topics = Topics::new().with_transaction("orders", desk.log.clone(), handle);
    let processor = desk.outbox.start(world.config(), topics).await.expect("starts");
    let sound: Vec<i64> = (1..=30).collect();
    let others: Vec<i64> = (1..=30).filter(|number| *number != 20).collect();
    desk.seen("sound", &sound).await;
    desk.seen("failing", &others).await;
    let dead = until_dead(&*desk.outbox.source()).await;
    assert_eq!((dead.event.queue.key(), dead.event.sequence), ("failing", 20));
    let story = desk.domain.admin().document(desk.log.name(), "sound", None).await.expect("reads");
    assert!(story.commit.is_some());
    assert_eq!(story.earlier, [], "all events waited before the processor began");
    until(|| processor.figures().handled == 59).await;
    assert_eq!(processor.figures().set_aside, 1);
    assert!(processor.stop(PATIENCE).await);
}

/// Processors are killed at different moments.
///
/// Each event of a committed transaction is handled once and in order. Events of aborted
/// transactions are never handled.
pub(crate) async fn events_are_handled_once_despite_kills(world: &World) {
    kills_at(world, &[0, 400, 900, 1_700, 3_000, 6_000, 12_000, 30_000]).await;
}

pub(crate) async fn kills_at(world: &World, moments: &[u64]) {
    let desk = world.desk().await;
    let keys = ["a", "b", "c", "d"];
    // The number of dead processes must not make a dead letter here.
    let config = world.config().with_max_unfinished(u32::MAX);
    for moment in moments {
        for key in keys {
            desk.count(key).await;
            desk.abort(key).await;
        }
        let process = Process::new();
        process
            .run(async {
                let desk = world.desk().await;
                let processor = desk.start(config.clone()).await;
                until(|| !processor.shards().is_empty()).await;
                tokio::time::sleep(Duration::from_micros(*moment)).await;
                std::mem::forget((processor, desk));
            })
            .await;
        drop(process);
    }
    let processor = desk.start(config).await;
    let numbers: Vec<i64> = (1..=i64::try_from(moments.len()).expect("few")).collect();
    for key in keys {
        desk.seen(key, &numbers).await;
    }
    assert!(processor.stop(PATIENCE).await);
    assert_eq!(desk.outbox.source().backlog().await.expect("counts").events, 0);
}

/// A processor that is paused during an event wakes after the takeover.
pub(crate) async fn paused_processor_repeats_no_effect(world: &World) {
    let desk = world.desk().await;
    let process = Process::new();
    let (entered, go) = (Arc::new(AtomicBool::new(false)), Arc::new(Notify::new()));
    let paused = process
        .run(async {
            let paused = world.desk().await;
            let slow = paused.handler();
            let (entered, go, seen) = (entered.clone(), go.clone(), entered.clone());
            let handler = move |delivery: Delivery| {
                let (slow, entered, go) = (slow.clone(), entered.clone(), go.clone());
                async move {
                    entered.store(true, Ordering::Release);
                    go.notified().await;
                    slow(delivery).await
                }
            };
            let processor =
                paused.outbox.start(world.config(), orders(handler)).await.expect("starts");
            desk.place("a", 1).await;
            until(|| seen.load(Ordering::Acquire)).await;
            (processor, paused)
        })
        .await;
    // The first processor is paused from here on. Another one handles its event.
    let processor = desk.start(world.config()).await;
    desk.seen("a", &[1]).await;
    desk.place("a", 2).await;
    desk.seen("a", &[1, 2]).await;
    go.notify_one();
    process
        .run(async {
            // The first processor continues, and detects the loss.
            tokio::time::sleep(Duration::from_millis(200)).await;
            let (processor, _paused) = paused;
            processor.stop(PATIENCE).await;
        })
        .await;
    desk.place("a", 3).await;
    desk.seen("a", &[1, 2, 3]).await;
    assert!(processor.stop(PATIENCE).await);
}

/// Effects outside of the domain happen at least once.
///
/// The token keeps two holders of a shard from making effects at the same time.
pub(crate) async fn external_effects_are_fenced(world: &World) {
    #[derive(Default)]
    struct Elsewhere {
        /// The largest token of each shard.
        tokens: Mutex<BTreeMap<Shard, u64>>,
        effects: Mutex<Vec<String>>,
        refused: AtomicU64,
    }
    impl Elsewhere {
        fn make(&self, delivery: &Delivery) -> bool {
            let claim = delivery.claim();
            let mut tokens = self.tokens.lock();
            let largest = tokens.entry(claim.shard().clone()).or_default();
            if claim.token() < *largest {
                self.refused.fetch_add(1, Ordering::Relaxed);
                return false;
            }
            *largest = claim.token();
            self.effects.lock().push(delivery.event().id.clone());
            true
        }
    }
    let elsewhere = Arc::new(Elsewhere::default());
    let desk = world.desk().await;
    let process = Process::new();
    let (entered, go) = (Arc::new(AtomicBool::new(false)), Arc::new(Notify::new()));
    let tried = Arc::new(AtomicBool::new(false));
    let paused = process
        .run(async {
            let paused = world.desk().await;
            let (elsewhere, entered, go, tried) =
                (elsewhere.clone(), entered.clone(), go.clone(), tried.clone());
            let seen = entered.clone();
            let handler = move |delivery: Delivery| {
                let (elsewhere, entered, go, tried) =
                    (elsewhere.clone(), entered.clone(), go.clone(), tried.clone());
                async move {
                    entered.store(true, Ordering::Release);
                    // Like a request under way: the task does not notice the loss of the shard.
                    let task = tokio::spawn(async move {
                        go.notified().await;
                        elsewhere.make(&delivery);
                        tried.store(true, Ordering::Release);
                    });
                    Ok(task.await?)
                }
            };
            let processor =
                paused.outbox.start(world.config(), orders(handler)).await.expect("starts");
            desk.place("a", 1).await;
            until(|| seen.load(Ordering::Acquire)).await;
            (processor, paused)
        })
        .await;
    let other = elsewhere.clone();
    let handler = move |delivery: Delivery| {
        let elsewhere = other.clone();
        async move {
            match elsewhere.make(&delivery) {
                true => Ok(()),
                false => Err(Failure::transient("another processor has the shard")),
            }
        }
    };
    let processor = desk.outbox.start(world.config(), orders(handler)).await.expect("starts");
    until(|| elsewhere.effects.lock().len() == 1).await;
    go.notify_one();
    process
        .run(async {
            until(|| tried.load(Ordering::Acquire)).await;
            let (processor, _paused) = paused;
            processor.stop(PATIENCE).await;
        })
        .await;
    assert_eq!(elsewhere.refused.load(Ordering::Relaxed), 1, "the paused one came through");
    desk.place("a", 2).await;
    until(|| elsewhere.effects.lock().len() >= 2).await;
    assert!(processor.stop(PATIENCE).await);
    assert_eq!(*elsewhere.effects.lock(), ["orders/1/a", "orders/2/a"]);
}
