//! The table as a source of events.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::value::RawValue;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use txn_core::{Domain, Transaction};
use txn_lock::instance::wall_ms;

use super::connect::{Connector, Link};
use super::cursor::Cursors;
use crate::config::AfterDeath;
use crate::error::{OutboxError, Result};
use crate::event::{DeadLetter, Event};
use crate::name::{MOST_SHARDS, QueueName};
use crate::source::{Backlog, Claim, EventSource, Fresh, Noted, Verdict};

/// What makes the schema `txn_outbox`, for those who keep their migrations themselves.
pub const SCHEMA: &str = include_str!("schema.sql");

/// The newest format of rows that is known.
const NEWEST: i32 = 1;

/// Most bytes of the name of a source.
const MOST_NAME: usize = 32;

/// What every statement that a processor writes by begins with: a smaller token than before writes nothing.
const FENCED: &str = "WITH fenced AS (INSERT INTO txn_outbox.fence AS f (shard, token) VALUES ($1, $2) \
     ON CONFLICT (shard) DO UPDATE SET token = EXCLUDED.token WHERE f.token <= EXCLUDED.token RETURNING 1)";

/// The columns of an event.
const EVENT: &str =
    "topic, key, sequence, format, id, payload::text, emitted_ms, failures, error, died_ms";

/// Settings of a relational outbox.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PostgresConfig {
    /// The name of this source among those of the domain. Default `postgres`.
    pub name: String,
    /// How many shards a new one has. Default 16.
    pub shards: u16,
    /// Most events of one key that may wait in a new one; beyond, the application's insert is refused. Default 10,000.
    pub max_backlog: u32,
    /// How long the database may take for anything. Default 10 s.
    pub limit: Duration,
}

impl Default for PostgresConfig {
    fn default() -> Self {
        let (shards, max_backlog) = (16, 10_000);
        Self { name: "postgres".to_owned(), shards, max_backlog, limit: Duration::from_secs(10) }
    }
}

impl PostgresConfig {
    /// Sets [`PostgresConfig::name`].
    #[must_use]
    pub fn with_name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Sets [`PostgresConfig::shards`].
    #[must_use]
    pub fn with_shards(mut self, shards: u16) -> Self {
        self.shards = shards;
        self
    }

    /// Sets [`PostgresConfig::max_backlog`].
    #[must_use]
    pub fn with_max_backlog(mut self, max_backlog: u32) -> Self {
        self.max_backlog = max_backlog;
        self
    }

    /// Sets [`PostgresConfig::limit`].
    #[must_use]
    pub fn with_limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    fn check(&self) -> Result<()> {
        let refuse = |why| Err(OutboxError::InvalidConfig(why));
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if self.name.is_empty() || self.name.len() > MOST_NAME || !self.name.chars().all(is_plain) {
            return refuse("the name of a source is 1 to 32 letters, digits, '-' and '_'");
        }
        if self.name == "outbox" {
            return refuse("the source \"outbox\" is that of the domain");
        }
        if self.shards == 0 || self.shards > MOST_SHARDS {
            return refuse("the shards are not between 1 and 256");
        }
        if self.max_backlog == 0 || self.limit.is_zero() {
            return refuse("a bound is zero");
        }
        Ok(())
    }
}

/// The outbox tables of a database. Its events are handled by processors whose locks, and whose place in each queue, are
/// documents of a domain.
#[derive(Debug)]
pub struct PostgresSource {
    domain: Domain,
    config: PostgresConfig,
    link: Link,
    cursors: Cursors,
    shards: u16,
    fresh: Fresh,
}

impl PostgresSource {
    /// Makes the tables in a database, if they are not there. Needs the privilege to create a schema; several at once
    /// do it one after the other.
    ///
    /// # Errors
    /// [`OutboxError::InvalidConfig`], [`OutboxError::Database`].
    pub async fn install(
        domain: &Domain,
        connector: Arc<dyn Connector>,
        config: &PostgresConfig,
    ) -> Result<()> {
        config.check()?;
        let link = Link::new(connector, domain.config().clock.clone(), config.limit);
        let PostgresConfig { shards, max_backlog, .. } = config;
        // The number is any that nobody else uses.
        let all = format!(
            "BEGIN; SELECT pg_advisory_xact_lock(7240914411); {SCHEMA}; \
             INSERT INTO txn_outbox.settings (shards, max_backlog) VALUES ({shards}, {max_backlog}) \
             ON CONFLICT DO NOTHING; COMMIT;"
        );
        link.ask("make its tables", async |client| client.batch_execute(&all).await).await?;
        link.closing.cancel();
        link.tasks.close();
        link.tasks.wait().await;
        Ok(())
    }

    /// Opens the outbox tables of a database.
    ///
    /// # Errors
    /// [`OutboxError::InvalidConfig`]; [`OutboxError::Database`], also if the tables are not there;
    /// [`OutboxError::NewerFormat`]; the engine's.
    pub async fn open(
        domain: &Domain,
        connector: Arc<dyn Connector>,
        config: PostgresConfig,
    ) -> Result<Arc<Self>> {
        config.check()?;
        let link = Link::new(connector, domain.config().clock.clone(), config.limit);
        let settings = "SELECT format, shards, epoch::text FROM txn_outbox.settings";
        let found =
            link.ask("read its settings", async |client| client.query_opt(settings, &[]).await);
        let Some(found) = found.await? else {
            let what = "txn_outbox.settings is empty: make the tables by PostgresSource::install";
            return Err(OutboxError::Database { what: what.to_owned(), source: None });
        };
        check_format("txn_outbox.settings", column(&found, 0)?)?;
        let shards = u16::try_from(column::<i32>(&found, 1)?).unwrap_or(1).clamp(1, MOST_SHARDS);
        let cursors = Cursors::open(domain, &config.name, column(&found, 2)?).await?;
        let (domain, fresh) = (domain.clone(), Fresh::default());
        Ok(Arc::new(Self { domain, config, link, cursors, shards, fresh }))
    }

    /// Ends the connection, and waits for that at most for `deadline`. Stop the processors first.
    pub async fn shutdown(&self, deadline: Duration) -> bool {
        self.link.closing.cancel();
        self.link.tasks.close();
        tokio::select! {
            biased;
            () = self.link.tasks.wait() => true,
            () = self.domain.config().clock.sleep(deadline) => false,
        }
    }

    async fn rows(
        &self,
        doing: &str,
        statement: &str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>> {
        self.link.ask(doing, async |client| client.query(statement, parameters).await).await
    }

    /// Carries out a change that a claim allows, and returns what it returned; `None` if it changed nothing.
    async fn fenced<'a>(
        &self,
        claim: &Claim,
        event: &'a Event,
        change: &str,
        more: &[&'a (dyn ToSql + Sync)],
    ) -> Result<Option<i32>> {
        let (shard, token) = (i32::from(claim.shard()), number(claim.token())?);
        let (topic, key) = (event.queue.topic(), event.queue.key());
        let sequence = number(event.sequence)?;
        let mut parameters: Vec<&(dyn ToSql + Sync)> =
            vec![&shard, &token, &topic, &key, &sequence];
        parameters.extend_from_slice(more);
        let statement = format!(
            "{FENCED}, changed AS ({change} WHERE topic = $3 AND key = $4 AND sequence = $5 AND died_ms IS NULL \
             AND EXISTS (SELECT FROM fenced) RETURNING failures) \
             SELECT EXISTS (SELECT FROM fenced), (SELECT failures FROM changed)"
        );
        let rows = self.rows("say what became of an event", &statement, &parameters).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        match column::<bool>(row, 0)? {
            true => column(row, 1),
            // A later holder of the shard has written.
            false => Err(OutboxError::NotNext(event.id.clone())),
        }
    }

    /// Rows that a transaction of the domain handled, and whose removal was lost.
    async fn forget(&self, queue: &QueueName, handled: u64) -> Result<()> {
        let handled = number(handled)?;
        let statement = "DELETE FROM txn_outbox.event \
             WHERE topic = $1 AND key = $2 AND sequence <= $3 AND died_ms IS NULL";
        let parameters: [&(dyn ToSql + Sync); 3] = [&queue.topic(), &queue.key(), &handled];
        self.rows("remove what is handled", statement, &parameters).await.map(drop)
    }

    async fn revive(&self, id: &str, doing: &str, statement: &str) -> Result<()> {
        let rows = self.rows(doing, statement, &[&id]).await?;
        let Some(row) = rows.first() else { return Err(OutboxError::NotFound(id.to_owned())) };
        let queue = queue_of(row)?;
        self.fresh.add(&queue);
        Ok(())
    }
}

#[async_trait]
impl EventSource for PostgresSource {
    fn name(&self) -> &str {
        &self.config.name
    }

    fn shards(&self) -> u16 {
        self.shards
    }

    fn fresh(&self) -> &Fresh {
        &self.fresh
    }

    async fn discover(&self, shards: &BTreeSet<u16>) -> Result<Vec<QueueName>> {
        let shards: Vec<i32> = shards.iter().copied().map(i32::from).collect();
        let statement = "SELECT DISTINCT topic, key FROM txn_outbox.event e \
             WHERE shard = ANY ($1) AND died_ms IS NULL AND NOT EXISTS \
             (SELECT FROM txn_outbox.event b WHERE b.topic = e.topic AND b.key = e.key AND b.blocks)";
        let rows = self.rows("look for events", statement, &[&shards]).await?;
        rows.iter().map(queue_of).collect()
    }

    async fn next(&self, queue: &QueueName, most: usize) -> Result<Vec<Event>> {
        let handled = self.cursors.handled(queue).await?;
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let statement = format!(
            "SELECT {EVENT} FROM txn_outbox.event e WHERE topic = $1 AND key = $2 AND died_ms IS NULL \
             AND NOT EXISTS (SELECT FROM txn_outbox.event b WHERE b.topic = $1 AND b.key = $2 AND b.blocks) \
             ORDER BY sequence LIMIT $3"
        );
        let rows =
            self.rows("read events", &statement, &[&queue.topic(), &queue.key(), &most]).await?;
        let mut events = Vec::with_capacity(rows.len());
        for row in &rows {
            match event_of(row) {
                Ok(event) => events.push(event),
                // Those before it are handled first.
                Err(_) if !events.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        if events.first().is_some_and(|event| event.sequence <= handled) {
            self.forget(queue, handled).await?;
            events.retain(|event| event.sequence > handled);
            if events.is_empty() {
                // There may be more behind them.
                self.fresh.add(queue);
            }
        }
        Ok(events)
    }

    async fn take(&self, tx: &Transaction, event: &Event) -> Result<()> {
        self.cursors.advance(tx, event).await
    }

    async fn taken(&self, claim: &Claim, event: &Event) -> Result<()> {
        self.done(claim, event).await
    }

    async fn done(&self, claim: &Claim, event: &Event) -> Result<()> {
        self.fenced(claim, event, "DELETE FROM txn_outbox.event", &[]).await.map(drop)
    }

    async fn failed(
        &self,
        claim: &Claim,
        event: &Event,
        why: &str,
        verdict: Verdict,
    ) -> Result<Noted> {
        // What a text of the database cannot hold.
        let error: String = why.chars().filter(|c| *c != '\0').collect();
        let (died_ms, blocks) = match verdict {
            Verdict::Again => (None, false),
            Verdict::SetAside(after) => {
                (Some(number(wall_ms(&self.domain))?), after == AfterDeath::Waits)
            }
        };
        let change = "UPDATE txn_outbox.event \
             SET failures = failures + 1, error = $6, died_ms = $7::bigint, blocks = $8";
        let failures = self.fenced(claim, event, change, &[&error, &died_ms, &blocks]).await?;
        Ok(match failures {
            None => Noted::Gone,
            Some(_) if died_ms.is_some() => Noted::SetAside,
            Some(failures) => Noted::Failed(u32::try_from(failures).unwrap_or(u32::MAX)),
        })
    }

    async fn dead_letters(&self) -> Result<Vec<DeadLetter>> {
        let statement =
            format!("SELECT {EVENT} FROM txn_outbox.event WHERE died_ms IS NOT NULL ORDER BY id");
        let rows = self.rows("list dead letters", &statement, &[]).await?;
        let letter = |row: &Row| {
            let error: Option<String> = column(row, 8)?;
            let died_ms: Option<i64> = column(row, 9)?;
            let event = event_of(row)?;
            Ok(DeadLetter {
                event,
                error: error.unwrap_or_default(),
                died_ms: unsigned(died_ms.unwrap_or(0)),
            })
        };
        rows.iter().map(letter).collect()
    }

    async fn retry(&self, id: &str) -> Result<()> {
        let statement = "WITH dead AS (SELECT topic, key, sequence, blocks FROM txn_outbox.event \
                 WHERE id = $1 AND died_ms IS NOT NULL FOR UPDATE), \
             placed AS (UPDATE txn_outbox.queue q SET appended = q.appended + 1 FROM dead d \
                 WHERE q.topic = d.topic AND q.key = d.key AND NOT d.blocks RETURNING q.appended) \
             UPDATE txn_outbox.event e SET sequence = COALESCE((SELECT appended FROM placed), e.sequence), \
                 died_ms = NULL, failures = 0, error = NULL, blocks = false FROM dead d \
                 WHERE e.topic = d.topic AND e.key = d.key AND e.sequence = d.sequence \
             RETURNING e.topic, e.key";
        self.revive(id, "try a dead letter again", statement).await
    }

    async fn discard(&self, id: &str) -> Result<()> {
        let statement = "DELETE FROM txn_outbox.event WHERE id = $1 AND died_ms IS NOT NULL \
             RETURNING topic, key";
        self.revive(id, "drop a dead letter", statement).await
    }

    async fn backlog(&self) -> Result<Backlog> {
        let statement = "SELECT shard, count(*) FILTER (WHERE died_ms IS NULL), \
                 count(DISTINCT (topic, key)) FILTER (WHERE died_ms IS NULL), \
                 count(*) FILTER (WHERE died_ms IS NOT NULL), count(*) FILTER (WHERE blocks), \
                 min(emitted_ms) FILTER (WHERE died_ms IS NULL) \
             FROM txn_outbox.event GROUP BY shard";
        let mut backlog = Backlog::default();
        for row in self.rows("count events", statement, &[]).await? {
            let shard = u16::try_from(column::<i32>(&row, 0)?).unwrap_or_default();
            let count = |at| Ok::<_, OutboxError>(unsigned(column::<i64>(&row, at)?));
            let size = |at| Ok::<_, OutboxError>(usize::try_from(count(at)?).unwrap_or(usize::MAX));
            let waiting = count(1)?;
            if waiting > 0 {
                let oldest: Option<i64> = column(&row, 5)?;
                backlog.add(shard, waiting, oldest.map(unsigned));
                backlog.queues += size(2)?.saturating_sub(1);
            }
            backlog.dead += size(3)?;
            backlog.blocked += size(4)?;
        }
        Ok(backlog)
    }
}

fn check_format(document: &str, format: i32) -> Result<()> {
    match format > NEWEST {
        true => Err(OutboxError::NewerFormat {
            document: document.to_owned(),
            format: format.unsigned_abs(),
        }),
        false => Ok(()),
    }
}

fn event_of(row: &Row) -> Result<Event> {
    let id: String = column(row, 4)?;
    check_format(&format!("the row {id:?} of txn_outbox.event"), column(row, 3)?)?;
    let invalid = |why: serde_json::Error| OutboxError::InvalidPayload {
        queue: id.clone(),
        why: why.to_string(),
    };
    let payload = RawValue::from_string(column(row, 5)?).map_err(invalid)?;
    Ok(Event {
        queue: queue_of(row)?,
        sequence: unsigned(column(row, 2)?),
        emitted_ms: unsigned(column(row, 6)?),
        failures: u32::try_from(column::<i32>(row, 7)?).unwrap_or_default(),
        payload,
        id,
    })
}

/// The queue of a row that begins with topic and key.
fn queue_of(row: &Row) -> Result<QueueName> {
    QueueName::new(&column::<String>(row, 0)?, &column::<String>(row, 1)?)
}

fn column<'a, T: tokio_postgres::types::FromSql<'a>>(row: &'a Row, at: usize) -> Result<T> {
    row.try_get(at).map_err(|error| OutboxError::Database {
        what: format!("it is not what this version expects: column {at} of an answer"),
        source: Some(Box::new(error)),
    })
}

/// Numbers of the database have a sign.
fn number(number: u64) -> Result<i64> {
    i64::try_from(number).map_err(|_| OutboxError::Database {
        what: format!("{number} does not fit into its numbers"),
        source: None,
    })
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}
