//! Disturbances of a relational outbox.
//!
//! The scenarios have later holders, background commits, lost commits, invalid rows, and locked
//! tables.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio_postgres::GenericClient;
use txn_outbox::postgres::{Database as Reached, PostgresSource};
use txn_outbox::{Delivery, EventSource, Failure, OutboxError, Processor, QueueName};

use super::relay::{Database, all_shards, config, emit, queue};
use super::watched::Watched;
use super::world::{PATIENCE, SHARDS, World, orders, until, until_some};

/// Waits until a count in the database has this value.
async fn until_count(client: &tokio_postgres::Client, statement: &str, wanted: i64) {
    let until = std::time::Instant::now() + PATIENCE;
    loop {
        let count: i64 = client.query_one(statement, &[]).await.expect("asked").get(0);
        if count == wanted {
            return;
        }
        assert!(std::time::Instant::now() < until, "{statement}: {count}, not {wanted}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

const EVENTS: &str = "SELECT count(*) FROM txn_outbox.event";

/// A claim raises the token before the first read.
///
/// The raised token fences the previous holder. A larger token than the holder's is reported by
/// name.
pub(crate) async fn smaller_token_is_refused(world: &World) {
    let mut database = Database::new(world).await;
    let client = database.client().await;
    let desk = world.desk().await;
    let source = database.source(&desk).await;
    let (turns, errs) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (seen, fails) = (turns.clone(), errs.clone());
    // The effects of this handler are outside of the domain.
    let handler = move |_: Delivery| {
        seen.fetch_add(1, Ordering::Relaxed);
        let fails = fails.load(Ordering::Relaxed);
        async move {
            match fails {
                false => Ok(()),
                true => Err(std::io::Error::other("it failed").into()),
            }
        }
    };
    let config = world.config().with_max_failures(1);
    let processor = Processor::start(&desk.domain, source.clone(), config.clone(), orders(handler));
    let processor = processor.await.expect("starts");
    let claimed = "SELECT count(*) FROM txn_outbox.fence WHERE token > 0";
    until_count(&client, claimed, i64::from(SHARDS)).await;
    assert_eq!(turns.load(Ordering::Relaxed), 0, "no event was there yet");
    // Simulates a later holder of all shards.
    client.batch_execute("UPDATE txn_outbox.fence SET token = 1000000").await.expect("written");
    for fails in [false, true] {
        errs.store(fails, Ordering::Relaxed);
        let before = turns.load(Ordering::Relaxed);
        emit(&client, if fails { "b" } else { "a" }, 1).await.expect("emitted");
        until(|| turns.load(Ordering::Relaxed) > before).await;
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    let backlog = source.backlog().await.expect("counts");
    assert_eq!((backlog.events, backlog.dead), (2, 0), "neither removed nor set aside");
    assert!(processor.stop(PATIENCE).await);
    // A processor with smaller tokens receives no shard, and an error with the reason.
    let watched = Watched::new(source.clone(), 0);
    let idle = |_: Delivery| async { Ok::<(), Failure>(()) };
    let processor = Processor::start(&desk.domain, watched.clone(), config, orders(idle)).await;
    let processor = processor.expect("starts");
    let told = until_some(|| watched.refused.lock().take()).await;
    assert!(told.contains("the token 1000000 of the shard"), "{told}");
    assert!(processor.shards().is_empty());
    client.batch_execute("UPDATE txn_outbox.fence SET token = 0").await.expect("written");
    until_count(&client, EVENTS, 0).await;
    assert!(processor.stop(PATIENCE).await);
    source.close();
}

/// A transaction handles an event, and its handler fails afterwards.
///
/// The failure does not count.
pub(crate) async fn background_commit_is_not_a_failure(world: &World) {
    let mut database = Database::new(world).await;
    let client = database.client().await;
    let desk = world.desk().await;
    let source = database.source(&desk).await;
    emit(&client, "a", 1).await.expect("emitted");
    emit(&client, "a", 2).await.expect("emitted");
    let (domain, log, taking) = (desk.domain.clone(), desk.log.clone(), source.clone());
    let handler = move |delivery: Delivery| {
        let (domain, log, taking) = (domain.clone(), log.clone(), taking.clone());
        async move {
            let event = delivery.event().clone();
            domain
                .transact::<_, Failure, _>(async |tx| {
                    delivery.claim().check(tx).await?;
                    taking.take(tx, &event).await?;
                    let found = tx.get(&log, "a").await?;
                    let mut seen = found.unwrap_or_else(|| json!({"seen": []}));
                    let number: i64 = event.payload()?;
                    seen["seen"].as_array_mut().expect("a list").push(json!(number));
                    Ok(tx.put(&log, "a", &seen)?)
                })
                .await?;
            Err(std::io::Error::other("its answer was lost").into())
        }
    };
    let config = world.config().with_max_failures(1);
    let processor = Processor::start(&desk.domain, source.clone(), config, orders(handler)).await;
    let processor = processor.expect("starts");
    desk.seen("a", &[1, 2]).await;
    until_count(&client, EVENTS, 0).await;
    assert_eq!(processor.figures().set_aside, 0);
    assert!(processor.stop(PATIENCE).await);
    source.close();
}

/// A database lost commits, and reuses the numbers of handled events.
///
/// The new events are neither handled nor deleted before the database has a new epoch.
pub(crate) async fn lost_commits_of_the_database_are_reported(world: &World) {
    let mut database = Database::new(world).await;
    let client = database.client().await;
    let desk = world.desk().await;
    let (processor, source) = database.start(&desk, world.config()).await;
    for n in 1..=3 {
        emit(&client, "a", n).await.expect("emitted");
    }
    desk.seen("a", &[1, 2, 3]).await;
    until_count(&client, EVENTS, 0).await;
    client.batch_execute("UPDATE txn_outbox.queue SET appended = 1").await.expect("forgotten");
    emit(&client, "a", 4).await.expect("emitted");
    let named = source.next(&queue("a"), 10).await.expect_err("named");
    assert!(
        matches!(&named, OutboxError::PositionsRestarted { event, handled: 3 } if event == "orders/2/a"),
        "{named}"
    );
    until_count(&client, EVENTS, 1).await;
    client
        .batch_execute("UPDATE txn_outbox.settings SET epoch = gen_random_uuid()")
        .await
        .expect("written");
    // A source with the old epoch fails.
    let stale = source.next(&queue("a"), 10).await.expect_err("stale");
    assert!(stale.to_string().contains("epoch"), "{stale}");
    assert!(processor.stop(PATIENCE).await);
    source.close();
    until_count(&client, EVENTS, 1).await;
    let (processor, source) = database.start(&desk, world.config()).await;
    desk.seen("a", &[1, 2, 3, 4]).await;
    assert!(processor.stop(PATIENCE).await);
    source.close();
}

/// Polls find all queues step by step, within the time limit.
///
/// A slow poll delays nothing else.
pub(crate) async fn polls_are_bounded(world: &World) {
    let mut database = Database::new(world).await;
    let mut client = database.client().await;
    let desk = world.desk().await;
    let many = "INSERT INTO txn_outbox.event (topic, key, payload) \
         SELECT 'orders', 'k' || n, '1' FROM generate_series(1, 2000) n";
    client.batch_execute(many).await.expect("emitted");
    let limit = Duration::from_secs(2);
    let source =
        PostgresSource::open(&desk.domain, &database.reached(), config().with_limit(limit)).await;
    let source = source.expect("opens");
    let (mut found, mut looks) = (BTreeSet::new(), 0);
    while found.len() < 2000 {
        let one = source.discover(&all_shards()).await.expect("looks").queues;
        assert!(one.len() <= 800, "{}", one.len());
        found.extend(one);
        looks += 1;
        assert!(looks < 20, "{} are not found", 2000 - found.len());
    }
    let clients = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'";
    source.next(&queue("k1"), 1).await.expect("reads");
    until_count(&client, clients, 3).await;
    let open = client.transaction().await.expect("begins");
    open.batch_execute("LOCK TABLE txn_outbox.event").await.expect("locked");
    source.discover(&all_shards()).await.expect_err("it waits for the lock");
    until_nothing_waits_for_a_lock(&open).await;
    open.rollback().await.expect("unlocked");
    source.close();
}

/// Waits until the database has ended all statements that were given up.
pub(super) async fn until_nothing_waits_for_a_lock(client: &impl GenericClient) {
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    for _ in 0..1_000 {
        let row = client.query_one(waits, &[]).await.expect("asked");
        if row.get::<_, i64>(0) == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the statement goes on in the database");
}

/// An invalid row does not hide other rows.
pub(crate) async fn bad_row_hides_no_other_row(world: &World) {
    let mut database = Database::new(world).await;
    let client = database.client().await;
    let desk = world.desk().await;
    let bad = "ALTER TABLE txn_outbox.event DROP CONSTRAINT event_topic_check; \
         INSERT INTO txn_outbox.event (topic, key, payload) VALUES ('a/b', 'k', '1');";
    client.batch_execute(bad).await.expect("written");
    emit(&client, "a", 1).await.expect("emitted");
    let (processor, source) = database.start(&desk, world.config()).await;
    desk.seen("a", &[1]).await;
    // The processor deletes the row after the effects.
    assert!(processor.stop(PATIENCE).await);
    assert_eq!(source.discover(&all_shards()).await.expect("looks").queues, []);
    source.close();
}

/// Both sides accept the same names, in each encoding of the database.
pub(crate) async fn names_are_counted_in_utf8(world: &World) {
    let mut database = Database::new(world).await;
    let client = database.client().await;
    let desk = world.desk().await;
    let latin =
        "CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0";
    client.batch_execute(latin).await.expect("made");
    let mut of_latin = database.config();
    of_latin.dbname("latin");
    let latin = Reached::new(of_latin.clone());
    PostgresSource::install(&desk.domain, &latin, &config()).await.expect("installs");
    let (client, connection) = of_latin.connect(tokio_postgres::NoTls).await.expect("connects");
    let connected = tokio::spawn(connection);
    let insert = "INSERT INTO txn_outbox.event (topic, key, payload) VALUES ($1, 'k', '1')";
    let (fits, long) = ("\u{e9}".repeat(32), "\u{e9}".repeat(33));
    QueueName::new(&fits, "k").expect("fits");
    client.execute(insert, &[&fits]).await.expect("fits");
    for refused in [long.as_str(), "a\u{85}", "a\u{7f}"] {
        QueueName::new(refused, "k").expect_err("refused");
        client.execute(insert, &[&refused]).await.expect_err("refused");
    }
    let utf8 = database.client().await;
    for odd in (0x600..0x700).chain(0x2000..0x2100).filter_map(char::from_u32) {
        let topic = format!("a{odd}");
        let inserted = utf8.execute(insert, &[&topic]).await.is_ok();
        assert_eq!(inserted, QueueName::new(&topic, "k").is_ok(), "{odd:?}");
    }
    connected.abort();
}
