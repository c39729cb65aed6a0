//! Rows of a relational outbox, relayed by processors with effects in documents.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio_postgres::{Client, NoTls};
use txn_fixtures::process::Process;
use txn_outbox::postgres::{Database as Reached, PostgresConfig, PostgresSource};
use txn_outbox::{
    AfterDeadLetter, EventSource, OutboxError, Processor, ProcessorConfig, QueueName, Shard,
};
use txn_testkit::servers::{PgBouncer, Postgres};

use super::world::{Desk, PATIENCE, SHARDS, World, orders, until, until_dead};

/// A database with entities and an outbox.
pub(super) struct Database {
    /// The optional pooler in front of the database. The drop ends it before the server.
    bouncer: Option<PgBouncer>,
    pub(super) server: Postgres,
    /// The tasks of the connections.
    tasks: tokio::task::JoinSet<()>,
}

impl Database {
    pub(super) async fn new(world: &World) -> Self {
        Self::on(world, || (Postgres::start().expect("PostgreSQL starts"), None)).await
    }

    /// A database with a pooler that has two connections for all transactions.
    pub(super) async fn behind_bouncer(world: &World) -> Self {
        let start = || {
            let server = Postgres::start().expect("PostgreSQL starts");
            let bouncer = PgBouncer::start(&server, 2).expect("PgBouncer starts");
            (server, Some(bouncer))
        };
        Self::on(world, start).await
    }

    pub(super) async fn on(world: &World, start: fn() -> (Postgres, Option<PgBouncer>)) -> Self {
        let started = tokio::task::spawn_blocking(start).await;
        let (server, bouncer) = started.expect("starts");
        let this = Self { server, bouncer, tasks: tokio::task::JoinSet::new() };
        let domain = world.desk().await.domain;
        let config = config().with_max_backlog(20);
        // A repeated installation changes nothing.
        for _ in 0..2 {
            PostgresSource::install(&domain, &this.reached(), &config).await.expect("installs");
        }
        this
    }

    pub(super) fn reached(&self) -> Reached {
        Reached::new(self.config())
    }

    pub(super) fn config(&self) -> tokio_postgres::Config {
        let mut config = tokio_postgres::Config::new();
        let socket = self.bouncer.as_ref().map_or(self.server.socket(), PgBouncer::socket);
        let port = self.server.tls().map_or(5432, |tls| tls.port);
        config.host_path(socket).port(port).user("postgres").dbname("postgres");
        config
    }

    pub(super) async fn client(&mut self) -> Client {
        let (client, connection) = self.config().connect(NoTls).await.expect("connects");
        self.tasks.spawn(async move {
            let _ = connection.await;
        });
        client
    }

    async fn with_entities(&mut self) -> Client {
        let client = self.client().await;
        let table = "CREATE TABLE entity (name text PRIMARY KEY, n bigint NOT NULL)";
        client.batch_execute(table).await.expect("made");
        client
    }

    pub(super) async fn source(&self, desk: &Desk) -> Arc<PostgresSource> {
        PostgresSource::open(&desk.domain, &self.reached(), config()).await.expect("opens")
    }

    pub(super) async fn start(
        &self,
        desk: &Desk,
        config: ProcessorConfig,
    ) -> (Processor, Arc<PostgresSource>) {
        let source = self.source(desk).await;
        let topics = orders(desk.handler());
        let processor = Processor::start(&desk.domain, source.clone(), config, topics).await;
        (processor.expect("starts"), source)
    }
}

/// All shards of the topic `orders`.
pub(super) fn all_shards() -> BTreeSet<Shard> {
    (0..SHARDS).map(|number| Shard { topic: "orders".into(), number }).collect()
}

pub(super) fn config() -> PostgresConfig {
    PostgresConfig::default().with_shards(SHARDS)
}

/// Increments an entity, and inserts the event in the same transaction.
async fn count(
    client: &mut Client,
    name: &str,
    commits: bool,
) -> Result<(), tokio_postgres::Error> {
    let tx = client.transaction().await?;
    let change = "INSERT INTO entity VALUES ($1, 1) ON CONFLICT (name) DO UPDATE SET n = entity.n + 1 RETURNING n";
    let n: i64 = tx.query_one(change, &[&name]).await?.get(0);
    emit(&tx, name, n).await?;
    match commits {
        true => tx.commit().await,
        false => tx.rollback().await,
    }
}

pub(super) async fn emit(
    client: &impl tokio_postgres::GenericClient,
    key: &str,
    n: i64,
) -> Result<(), tokio_postgres::Error> {
    let insert = "INSERT INTO txn_outbox.event (topic, key, payload) VALUES ('orders', $1, to_json($2::bigint))";
    client.execute(insert, &[&key, &n]).await.map(drop)
}

pub(super) fn queue(key: &str) -> QueueName {
    QueueName::new("orders", key).expect("a name")
}

pub(crate) async fn rows_commit_atomically_with_their_transaction(world: &World) {
    let mut database = Database::new(world).await;
    let mut client = database.with_entities().await;
    let desk = world.desk().await;
    for commits in [true, false, true] {
        count(&mut client, "a", commits).await.expect("counted");
    }
    let source = database.source(&desk).await;
    let waiting = source.next(&queue("a"), 10).await.expect("reads");
    let places: Vec<u64> = waiting.iter().map(|event| event.sequence).collect();
    assert_eq!(places, [1, 2], "what was rolled back has left no gap");
    assert_eq!(waiting[0].id, "orders/1/a");
    // Trigger and processor compute the same shard.
    let shard: i32 = client
        .query_one("SELECT shard FROM txn_outbox.event WHERE sequence = 1", &[])
        .await
        .expect("asked")
        .get(0);
    assert_eq!(u16::try_from(shard), Ok(queue("a").shard(SHARDS).number));
    let backlog = source.backlog().await.expect("counts");
    assert_eq!((backlog.events, backlog.queues), (2, 1));
    let (processor, _) = database.start(&desk, world.config()).await;
    desk.seen("a", &[1, 2]).await;
    until(|| processor.figures().handled == 2).await;
    assert!(processor.stop(PATIENCE).await);
    assert_eq!(source.backlog().await.expect("counts").events, 0);
    source.close();
}

/// Later numbers become visible first. No event is missed, and keys keep their order.
pub(crate) async fn commits_out_of_order_lose_nothing(world: &World) {
    let mut database = Database::new(world).await;
    let mut early = database.with_entities().await;
    let (mut late, mut third) = (database.client().await, database.client().await);
    let desk = world.desk().await;
    let (processor, source) = database.start(&desk, world.config()).await;
    let open = early.transaction().await.expect("begins");
    emit(&open, "a", 1).await.expect("emitted");
    for n in 1..=3 {
        emit(&late, "b", n).await.expect("emitted");
    }
    // Events of later transactions are handled while the earlier one may still commit.
    desk.seen("b", &[1, 2, 3]).await;
    assert!(source.next(&queue("a"), 1).await.expect("reads").is_empty());
    // A transaction of the same key waits for the earlier one.
    let waiting = tokio::spawn(async move {
        let tx = late.transaction().await?;
        emit(&tx, "a", 2).await?;
        tx.commit().await
    });
    let is_waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    let mut looks = 0;
    while third.query_one(is_waiting, &[]).await.expect("asked").get::<_, i64>(0) == 0 {
        looks += 1;
        assert!(looks < 6_000 && !waiting.is_finished(), "it did not wait");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    open.commit().await.expect("committed");
    waiting.await.expect("ends").expect("committed");
    desk.seen("a", &[1, 2]).await;
    // A rollback leaves its number to the next transaction.
    let open = third.transaction().await.expect("begins");
    emit(&open, "a", 9).await.expect("emitted");
    open.rollback().await.expect("rolled back");
    emit(&third, "a", 3).await.expect("emitted");
    desk.seen("a", &[1, 2, 3]).await;
    assert!(processor.stop(PATIENCE).await);
    source.close();
}

/// Clients count and sometimes roll back, and processors are killed.
///
/// Each row of a committed transaction is handled once, in the order of its key.
pub(crate) async fn rows_outlive_killed_processors(world: &World) {
    let mut database = Database::new(world).await;
    let _kept = database.with_entities().await;
    let (keys, clients, rounds) = (["a", "b", "c"], 3, 5_usize);
    // The number of dead processes must not make a dead letter here.
    let config = world.config().with_max_unfinished(u32::MAX);
    let mut tasks = tokio::task::JoinSet::new();
    for at in 0..clients {
        let mut client = database.client().await;
        tasks.spawn(async move {
            for round in 0..rounds {
                for key in keys {
                    count(&mut client, key, (at + round) % 4 != 0).await.expect("counted");
                    tokio::time::sleep(Duration::from_millis(3)).await;
                }
            }
        });
    }
    for moment in [0, 700, 2_000, 5_000, 12_000, 30_000] {
        let process = Process::new();
        process
            .run(async {
                let desk = world.desk().await;
                let (processor, source) = database.start(&desk, config.clone()).await;
                until(|| !processor.shards().is_empty()).await;
                tokio::time::sleep(Duration::from_micros(moment)).await;
                std::mem::forget((processor, source, desk));
            })
            .await;
        drop(process);
    }
    tasks.join_all().await;
    let committed = (0..clients)
        .flat_map(|at| (0..rounds).map(move |round| (at + round) % 4 != 0))
        .filter(|commits| *commits)
        .count();
    let numbers: Vec<i64> = (1..=i64::try_from(committed).expect("few")).collect();
    let desk = world.desk().await;
    let (processor, source) = database.start(&desk, config).await;
    for key in keys {
        desk.seen(key, &numbers).await;
    }
    let all = all_shards();
    let looked = std::time::Instant::now();
    while !source.discover(&all).await.expect("looks").queues.is_empty() {
        assert!(looked.elapsed() < PATIENCE, "rows are left that were handled");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(processor.stop(PATIENCE).await);
    source.close();
}

pub(crate) async fn failing_rows_become_dead_letters(world: &World) {
    let mut database = Database::new(world).await;
    let client = database.client().await;
    let desk = world.desk().await;
    for (key, n) in [("a", -1), ("a", 2), ("b", 1)] {
        emit(&client, key, n).await.expect("emitted");
    }
    let config = world.config().with_max_failures(2).with_first_pause(Duration::from_millis(5));
    let waits = config.clone().with_after_dead_letter(AfterDeadLetter::Wait);
    let (processor, source) = database.start(&desk, waits).await;
    desk.seen("b", &[1]).await;
    let dead = until_dead(&*source).await;
    assert_eq!((dead.event.id.as_str(), dead.event.failures), ("orders/1/a", 2));
    assert!(dead.error.contains("-1 is negative"), "{}", dead.error);
    let backlog = source.backlog().await.expect("counts");
    assert_eq!((backlog.events, backlog.blocked, backlog.dead), (1, 1, 1));
    assert_eq!(desk.read("a").await, [0; 0], "later events of the key wait");
    desk.forgiving.store(true, Ordering::Release);
    source.retry("orders/1/a").await.expect("there");
    desk.seen("a", &[-1, 2]).await;
    assert!(processor.stop(PATIENCE).await);
    // If queues continue after a dead letter, a retried event goes to the end.
    desk.forgiving.store(false, Ordering::Release);
    let (processor, source) = database.start(&desk, config).await;
    for n in [-3, 4, -5, 6] {
        emit(&client, "a", n).await.expect("emitted");
    }
    desk.seen("a", &[-1, 2, 4, 6]).await;
    let dead = source.dead_letters().await.expect("lists").letters;
    let ids: Vec<&str> = dead.iter().map(|dead| dead.event.id.as_str()).collect();
    assert_eq!(ids, ["orders/3/a", "orders/5/a"]);
    source.discard(ids[1]).await.expect("there");
    desk.forgiving.store(true, Ordering::Release);
    source.retry(ids[0]).await.expect("there");
    desk.seen("a", &[-1, 2, 4, 6, -3]).await;
    let gone = source.retry(ids[0]).await.expect_err("gone");
    assert!(matches!(gone, OutboxError::NotFound(_)), "{gone}");
    assert!(processor.stop(PATIENCE).await);
    source.close();
}

pub(crate) async fn tables_refuse_invalid_rows(world: &World) {
    let mut database = Database::new(world).await;
    let client = database.client().await;
    let desk = world.desk().await;
    for n in 1..=20 {
        emit(&client, "full", n).await.expect("there is room");
    }
    let refused = emit(&client, "full", 21).await.expect_err("there is none");
    let said = refused.as_db_error().expect("by the database");
    assert!(said.message().contains("20 events of orders/full wait already"), "{said}");
    for (topic, key) in [("a/b", "k"), ("", "k"), ("t", ""), ("t", "a\nb")] {
        let insert = "INSERT INTO txn_outbox.event (topic, key, payload) VALUES ($1, $2, '1')";
        client.execute(insert, &[&topic, &key]).await.expect_err("no name");
    }
    // A row of a newer format stops its queue with an error.
    emit(&client, "new", 1).await.expect("emitted");
    emit(&client, "new", 2).await.expect("emitted");
    let newer = "UPDATE txn_outbox.event SET format = 2 WHERE key = 'new' AND sequence = 2";
    client.batch_execute(newer).await.expect("written");
    let (processor, source) = database.start(&desk, world.config()).await;
    desk.seen("new", &[1]).await;
    desk.seen("full", &(1..=20).collect::<Vec<_>>()).await;
    let refused = source.next(&queue("new"), 1).await.expect_err("newer");
    assert!(
        matches!(&refused, OutboxError::NewerFormat { document, format: 2 } if document.contains("orders/2/new")),
        "{refused}"
    );
    assert!(processor.stop(PATIENCE).await);
    source.close();
    client.batch_execute("UPDATE txn_outbox.settings SET format = 2").await.expect("written");
    let refused = PostgresSource::open(&desk.domain, &database.reached(), config()).await;
    assert!(matches!(refused.expect_err("newer"), OutboxError::NewerFormat { .. }));
    client.batch_execute("DROP SCHEMA txn_outbox CASCADE").await.expect("dropped");
    let refused = PostgresSource::open(&desk.domain, &database.reached(), config()).await;
    assert!(matches!(refused.expect_err("missing"), OutboxError::Database { .. }));
}

/// The database restarts while a processor runs.
pub(crate) async fn lost_connection_is_reopened(world: &World) {
    let mut database = Database::new(world).await;
    let client = database.client().await;
    let desk = world.desk().await;
    let (processor, source) = database.start(&desk, world.config()).await;
    emit(&client, "a", 1).await.expect("emitted");
    desk.seen("a", &[1]).await;
    let others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
         WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'";
    client.query(others, &[]).await.expect("ended");
    emit(&client, "a", 2).await.expect("emitted");
    desk.seen("a", &[1, 2]).await;
    assert!(processor.stop(PATIENCE).await);
    source.close();
}

/// A purged key starts after all earlier positions, under each isolation level.
pub(crate) async fn state_of_drained_keys_is_purged(world: &World) {
    let mut database = Database::new(world).await;
    let client = database.client().await;
    let mut late = database.client().await;
    let desk = world.desk().await;
    for (key, n) in [("a", 1), ("a", 2), ("b", 1), ("dead", -1)] {
        emit(&client, key, n).await.expect("emitted");
    }
    let (processor, source) = database.start(&desk, world.config().with_max_failures(1)).await;
    desk.seen("a", &[1, 2]).await;
    desk.seen("b", &[1]).await;
    until_dead(&*source).await;
    let until_empty = std::time::Instant::now() + PATIENCE;
    while source.backlog().await.expect("counts").events > 0 {
        assert!(std::time::Instant::now() < until_empty, "what is handled is not removed");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(processor.stop(PATIENCE).await);
    emit(&client, "waits", 1).await.expect("emitted");
    let before = late.build_transaction();
    let before = before.isolation_level(tokio_postgres::IsolationLevel::RepeatableRead);
    let before = before.start().await.expect("begins");
    before.query("SELECT FROM txn_outbox.event", &[]).await.expect("sees what is there");
    let held = database.client().await;
    held.batch_execute("BEGIN").await.expect("begins");
    emit(&held, "b", 2).await.expect("emitted");
    let purge = async |age| source.purge(age).await.expect("purges").queues;
    assert_eq!(purge(Duration::from_secs(3600)).await, 0, "they were used a moment ago");
    assert_eq!(purge(Duration::ZERO).await, 1, "the purge skips locked rows");
    held.batch_execute("ROLLBACK").await.expect("ends");
    assert_eq!(purge(Duration::ZERO).await, 1, "those with an event or a dead letter stay");
    assert_eq!(purge(Duration::ZERO).await, 0);
    let cursors = "SELECT count(*) FROM txn_outbox.queue WHERE topic <> ''";
    assert_eq!(client.query_one(cursors, &[]).await.expect("counts").get::<_, i64>(0), 2);
    let name = desk.domain.collection_name("outbox");
    let scanned = |desk: &Desk| {
        let (store, name) = (desk.domain.store().clone(), name.clone());
        async move {
            store.refresh(&name).await.expect("refreshes");
            let mut pages =
                txn_core::store::Pages::new(&*store, name, txn_core::store::Filter::All, 100);
            let mut found = Vec::new();
            while let Some(page) = pages.next().await.expect("scans") {
                found.extend(page.into_iter().map(|(key, ..)| key.id.to_string()));
            }
            found.retain(|id| id.starts_with("cursor:"));
            found
        }
    };
    assert_eq!(scanned(&desk).await, ["cursor:postgres/orders/dead"]);
    // The snapshot of this transaction is older than the purge, so the number of the key is
    // unknown.
    let refused = emit(&before, "a", 3).await.expect_err("the world has changed");
    assert_eq!(refused.code(), Some(&tokio_postgres::error::SqlState::T_R_SERIALIZATION_FAILURE));
    before.rollback().await.expect("ends");
    for (key, n, id) in [("a", 3, "orders/3/a"), ("new", 1, "orders/3/new"), ("a", 4, "orders/4/a")]
    {
        emit(&client, key, n).await.expect("emitted");
        let last = source.next(&queue(key), 9).await.expect("reads").pop().expect("there");
        assert_eq!(last.id, id);
    }
    let (processor, source) = database.start(&desk, world.config()).await;
    desk.seen("a", &[1, 2, 3, 4]).await;
    desk.seen("new", &[1]).await;
    desk.seen("waits", &[1]).await;
    assert!(processor.stop(PATIENCE).await);
    source.close();
}
