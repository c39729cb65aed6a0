//! Access to a relational outbox: privileges, poolers, TLS, and payload limits.

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, NoTls};
use txn_outbox::postgres::{Database as Reached, PostgresSource};
use txn_outbox::{EventSource, Processor};
use txn_testkit::servers::Postgres;

use super::relay::{Database, config, emit, queue};
use super::relay_hostile::until_nothing_waits_for_a_lock;
use super::world::{Desk, PATIENCE, World, orders, until_dead};

/// The documented privileges of an application.
const OF_APPLICATION: &str = "GRANT USAGE ON SCHEMA txn_outbox TO app; \
     GRANT INSERT (topic, key, payload) ON txn_outbox.event TO app";

/// The documented privileges of processors.
const OF_PROCESSORS: &str = "GRANT USAGE ON SCHEMA txn_outbox TO relay; GRANT SELECT ON txn_outbox.settings TO relay; \
     GRANT SELECT, UPDATE, DELETE ON txn_outbox.event, txn_outbox.queue TO relay; \
     GRANT SELECT, INSERT, UPDATE ON txn_outbox.fence TO relay";

impl Database {
    fn config_of(&self, user: &str) -> tokio_postgres::Config {
        let mut config = self.config();
        config.user(user);
        config
    }

    async fn client_of(&self, user: &str) -> (Client, tokio::task::JoinHandle<()>) {
        let (client, connection) = self.config_of(user).connect(NoTls).await.expect("connects");
        let connected = tokio::spawn(async move {
            let _ = connection.await;
        });
        (client, connected)
    }

    async fn start_as(
        &self,
        desk: &Desk,
        world: &World,
        reached: &Reached,
    ) -> (Processor, Arc<PostgresSource>) {
        let source = PostgresSource::open(&desk.domain, reached, config()).await.expect("opens");
        let config = world.config().with_max_failures(1);
        let topics = orders(desk.handler());
        let processor = Processor::start(&desk.domain, source.clone(), config, topics).await;
        (processor.expect("starts"), source)
    }
}

/// An application may insert events, and can break nothing else.
///
/// The order of events and the waits of other clients stay correct.
pub(crate) async fn application_needs_to_insert_three_columns(world: &World) {
    let mut database = Database::new(world).await;
    let owner = database.client().await;
    owner.batch_execute("CREATE ROLE app LOGIN; CREATE ROLE relay LOGIN").await.expect("made");
    owner.batch_execute(OF_APPLICATION).await.expect("granted");
    owner.batch_execute(OF_PROCESSORS).await.expect("granted");
    // Functions that the application finds first are not those that the trigger calls.
    owner
        .batch_execute(
            "CREATE SCHEMA app AUTHORIZATION app; \
             CREATE FUNCTION app.sha256(bytea) RETURNS bytea LANGUAGE sql AS $$ SELECT 1 / 0; SELECT $1 $$; \
             CREATE FUNCTION app.octet_length(text) RETURNS integer LANGUAGE sql AS $$ SELECT 1 / 0 $$; \
             ALTER ROLE app SET search_path = app, pg_catalog, txn_outbox",
        )
        .await
        .expect("made");
    let (app, _kept) = database.client_of("app").await;
    let desk = world.desk().await;
    for n in 1..=3 {
        emit(&app, "a", n).await.expect("it may insert");
    }
    emit(&app, "dead", -1).await.expect("it may insert");
    for refused in [
        "UPDATE txn_outbox.event SET sequence = sequence + 10",
        "UPDATE txn_outbox.event SET failures = 0",
        "UPDATE txn_outbox.queue SET appended = 0",
        "DELETE FROM txn_outbox.event",
        "SELECT payload FROM txn_outbox.event",
        "INSERT INTO txn_outbox.queue VALUES ('orders', 'b', 7)",
        "INSERT INTO txn_outbox.event (topic, key, payload, sequence) VALUES ('orders', 'a', '1', 1)",
        "UPDATE txn_outbox.settings SET epoch = gen_random_uuid()",
        "SELECT txn_outbox.place()",
    ] {
        let error = app.batch_execute(refused).await.expect_err(refused);
        let code = error.code().expect("by the database");
        let expected = [&SqlState::INSUFFICIENT_PRIVILEGE, &SqlState::FEATURE_NOT_SUPPORTED];
        assert!(expected.contains(&code), "{refused}: {error}");
    }
    // The privileges of processors suffice for all their statements.
    let reached = Reached::new(database.config_of("relay"));
    let (processor, source) = database.start_as(&desk, world, &reached).await;
    desk.seen("a", &[1, 2, 3]).await;
    let letter = until_dead(&*source).await;
    source.retry(&letter.event.id).await.expect("there");
    until_dead(&*source).await;
    source.discard(&letter.event.id).await.expect("there");
    assert!(processor.stop(PATIENCE).await);
    while source.backlog().await.expect("counts").events > 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(source.purge(Duration::ZERO).await.expect("purges").queues, 2);
    source.close();
}

/// The pooler gives each transaction another connection.
///
/// No statement may depend on the session of a connection.
pub(crate) async fn pooler_in_transaction_mode_changes_nothing(world: &World) {
    let mut database = Database::behind_bouncer(world).await;
    let client = database.client().await;
    let desk = world.desk().await;
    let mut processors = Vec::new();
    // More clients than the pooler has connections, each with frequent first statements.
    for _ in 0..3 {
        let desk = world.desk().await;
        processors.push(database.start_as(&desk, world, &database.reached()).await);
    }
    for n in 1..=10 {
        for key in ["a", "b", "c"] {
            let insert = format!(
                "INSERT INTO txn_outbox.event (topic, key, payload) VALUES ('orders', '{key}', '{n}')"
            );
            client.batch_execute(&insert).await.expect("emitted");
        }
    }
    client
        .batch_execute(
            "INSERT INTO txn_outbox.event (topic, key, payload) VALUES ('orders', 'd', '-1')",
        )
        .await
        .expect("emitted");
    for key in ["a", "b", "c"] {
        desk.seen(key, &(1..=10).collect::<Vec<_>>()).await;
    }
    let (_, source) = &processors[0];
    let letter = until_dead(&**source).await;
    source.discard(&letter.event.id).await.expect("there");
    for (processor, source) in processors {
        assert!(processor.stop(PATIENCE).await);
        source.purge(Duration::ZERO).await.expect("purges");
        source.close();
    }
    // A statement beyond the limit ends in the database, and the pooler continues.
    let mut direct = tokio_postgres::Config::new();
    direct.host_path(database.server.socket()).user("postgres").dbname("postgres");
    let (mut direct, connection) = direct.connect(NoTls).await.expect("connects");
    let connected = tokio::spawn(connection);
    let limited = config().with_limit(Duration::from_secs(1));
    let source = PostgresSource::open(&desk.domain, &database.reached(), limited).await;
    let source = source.expect("opens");
    let locked = direct.transaction().await.expect("begins");
    locked.batch_execute("LOCK TABLE txn_outbox.event").await.expect("locked");
    source.next(&queue("a"), 1).await.expect_err("it waits for the lock");
    until_nothing_waits_for_a_lock(&locked).await;
    locked.rollback().await.expect("unlocked");
    assert!(source.next(&queue("a"), 1).await.expect("reads").is_empty());
    source.close();
    connected.abort();
}

/// Required TLS is always used, and checks the certificate of the server.
pub(crate) async fn tls_is_used_and_checked(world: &World) {
    let start = || (Postgres::start_with_tls().expect("PostgreSQL starts"), None);
    let mut database = Database::on(world, start).await;
    let desk = world.desk().await;
    let tls = database.server.tls().expect("it was started so").clone();
    let by_tls = |host: &str| {
        let mut config = tokio_postgres::Config::new();
        config.host(host).port(tls.port).user("postgres").dbname("postgres");
        config
    };
    let trusting = |host: &str, pem: &str| {
        Reached::new(by_tls(host))
            .with_certificate_authorities(pem.as_bytes())
            .expect("certificates")
    };
    let reached = trusting("127.0.0.1", &tls.authority);
    let client = database.client().await;
    emit(&client, "a", 1).await.expect("emitted");
    let (processor, source) = database.start_as(&desk, world, &reached).await;
    desk.seen("a", &[1]).await;
    let encrypted = "SELECT count(*) FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) \
         WHERE s.ssl AND a.client_addr IS NOT NULL";
    let count: i64 = client.query_one(encrypted, &[]).await.expect("asked").get(0);
    assert!(count > 0, "nothing is encrypted");
    assert!(processor.stop(PATIENCE).await);
    source.close();
    // Refuses a connection without TLS, another authority, and another name.
    let other = Postgres::start_with_tls().expect("PostgreSQL starts");
    let elsewhere = &other.tls().expect("it was started so").authority;
    let mut socket = database.config();
    socket.host_path(database.server.socket());
    let without = Reached::new(socket).with_certificate_authorities(tls.authority.as_bytes());
    for (refused, why) in [
        (Reached::new(by_tls("127.0.0.1")), "no pg_hba.conf entry"),
        (trusting("127.0.0.1", elsewhere), "certificate"),
        (trusting("127.0.0.2", &tls.authority), ""),
        (without.expect("certificates"), ""),
    ] {
        let error = PostgresSource::open(&desk.domain, &refused, config()).await;
        let error = error.expect_err("refused").to_string();
        assert!(error.contains(why), "{why}: {error}");
    }
}

/// The insert refuses a payload beyond the limit.
///
/// A larger row that exists all the same blocks no key.
pub(crate) async fn huge_payload_blocks_no_key(world: &World) {
    let mut database = Database::new(world).await;
    let client = database.client().await;
    let desk = world.desk().await;
    let insert = "INSERT INTO txn_outbox.event (topic, key, payload) \
         VALUES ('orders', 'a', to_json(repeat('x', $1::integer)))";
    let refused = client.execute(insert, &[&300_000]).await.expect_err("too large");
    let said = refused.as_db_error().expect("by the database").message().to_owned();
    assert!(said.contains("300002 bytes, at most 262144 are allowed"), "{said}");
    let allow = |bytes: i64| format!("UPDATE txn_outbox.settings SET max_payload = {bytes}");
    client.batch_execute(&allow(100_000_000)).await.expect("written");
    client.execute(insert, &[&64_000_000]).await.expect("emitted");
    client.batch_execute(&allow(262_144)).await.expect("written");
    emit(&client, "a", 2).await.expect("emitted");
    let (processor, source) = database.start_as(&desk, world, &database.reached()).await;
    desk.seen("a", &[2]).await;
    let letter = until_dead(&*source).await;
    assert_eq!((letter.event.id.as_str(), letter.event.payload.get()), ("orders/1/a", "null"));
    assert!(letter.error.contains("64000002 bytes, more than max_payload"), "{}", letter.error);
    // Large payloads within the limit arrive a few at a time.
    for _ in 0..18 {
        client.execute(insert, &[&250_000]).await.expect("emitted");
    }
    assert!(processor.stop(PATIENCE).await);
    let read = source.next(&queue("a"), 50).await.expect("reads");
    assert!((1..=16).contains(&read.len()), "{} events at once", read.len());
    source.close();
}

/// An insert reads one row, however large the backlog is.
pub(crate) async fn insert_cost_does_not_grow_with_the_backlog(world: &World) {
    let mut database = Database::new(world).await;
    let mut client = database.client().await;
    let settings = "UPDATE txn_outbox.settings SET max_backlog = 3000";
    client.batch_execute(settings).await.expect("written");
    let many = "INSERT INTO txn_outbox.event (topic, key, payload) \
         SELECT 'orders', 'a', to_json(n) FROM generate_series(1, 3000) n; ANALYZE txn_outbox.event";
    client.batch_execute(many).await.expect("emitted");
    let refused = emit(&client, "a", 3001).await.expect_err("as many wait as may");
    let said = refused.as_db_error().expect("by the database").message().to_owned();
    assert!(said.contains("3000 events of orders/a wait already"), "{said}");
    let settings = "UPDATE txn_outbox.settings SET max_backlog = 4000";
    client.batch_execute(settings).await.expect("written");
    let tx = client.transaction().await.expect("begins");
    let read =
        "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'event'";
    let before: i64 = tx.query_one(read, &[]).await.expect("asked").get(0);
    emit(&tx, "a", 3001).await.expect("there is room");
    let after: i64 = tx.query_one(read, &[]).await.expect("asked").get(0);
    assert!(after - before <= 2, "{} rows were read", after - before);
    tx.commit().await.expect("committed");
}
