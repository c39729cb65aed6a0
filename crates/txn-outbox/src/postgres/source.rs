//! The outbox table as a source of events.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use txn_core::{Domain, Transaction};
use txn_lock::instance::wall_ms;

use super::config::PostgresConfig;
use super::cursor::{Cursors, Position};
use super::database::{Connections, Database, Parameter};
use super::row::{
    EVENT, check_format, column, dead_letter_of, epoch_of, event_of, id_of, number, queue_of,
    unsigned,
};
use crate::config::AfterDeadLetter;
use crate::error::{OutboxError, Result};
use crate::queue::event::{DeadLetter, DeadLetters, Event};
use crate::queue::local_wakeups::LocalWakeups;
use crate::queue::name::QueueName;
use crate::queue::shard::{MOST_SHARDS, Shard};
use crate::queue::source::{
    Backlog, Claim, Discovered, EventSource, FailureEffect, RecordedFailure,
};

/// The SQL text of the schema `txn_outbox`.
///
/// Applications with their own migrations apply this text.
pub const SCHEMA: &str = include_str!("schema.sql");

/// The start of each writing statement of a processor. A smaller token writes nothing.
const FENCED: &str = "WITH fenced AS (INSERT INTO txn_outbox.fence AS f (topic, shard, token) VALUES ($3, $1, $2) \
     ON CONFLICT (topic, shard) DO UPDATE SET token = EXCLUDED.token WHERE f.token <= EXCLUDED.token RETURNING 1)";

/// The maximum number of queues of each shard per poll. The next poll continues after them.
const MOST_POLLED: i64 = 100;

/// The maximum number of dead letters per read.
const PAGE: i64 = 100;

/// The maximum size of the payloads per read, beyond the first event.
const MOST_BYTES: i64 = 4 << 20;

/// The outbox tables of a database, as a source of events.
///
/// The processors' locks and the positions of the queues are documents of a domain.
#[derive(Debug)]
pub struct PostgresSource {
    pub(super) domain: Domain,
    config: PostgresConfig,
    /// Connections for single events.
    connections: Connections,
    /// The connection for scans. Events do not wait for slow scans.
    pub(super) scans: Connections,
    /// The key after which the next poll of a shard continues.
    poll_cursors: Mutex<BTreeMap<Shard, String>>,
    pub(super) cursors: Cursors,
    shards: u16,
    wakeups: LocalWakeups,
}

impl PostgresSource {
    /// Creates missing tables in a database.
    ///
    /// Requires the privilege to create a schema. Concurrent calls run one after the other.
    ///
    /// # Errors
    /// [`OutboxError::InvalidConfig`], [`OutboxError::Database`].
    pub async fn install(
        domain: &Domain,
        database: &Database,
        config: &PostgresConfig,
    ) -> Result<()> {
        config.check()?;
        let connections = Connections::new(database, domain.config().shared_clock(), config.limit)?;
        let PostgresConfig { shards, max_backlog, max_payload, .. } = config;
        // An arbitrary number that no other program uses.
        let all = format!(
            "SELECT pg_advisory_xact_lock(7240914411); {SCHEMA}; \
             INSERT INTO txn_outbox.settings (shards, max_backlog, max_payload) \
             VALUES ({shards}, {max_backlog}, {max_payload}) ON CONFLICT DO NOTHING"
        );
        let made = connections.run("make its tables", &all).await;
        connections.close();
        made
    }

    /// Opens the outbox tables of a database.
    ///
    /// # Errors
    /// [`OutboxError::InvalidConfig`]; [`OutboxError::Database`], for example if the tables are
    /// missing; [`OutboxError::NewerFormat`]; errors of the engine.
    pub async fn open(
        domain: &Domain,
        database: &Database,
        config: PostgresConfig,
    ) -> Result<Arc<Self>> {
        config.check()?;
        let clock = || domain.config().shared_clock();
        let connections = Connections::new(database, clock(), config.limit)?;
        let scans = Connections::for_scans(database, clock(), config.limit)?;
        let settings = "SELECT format, shards, epoch::text FROM txn_outbox.settings";
        let Some(found) = connections.rows("read its settings", settings, &[]).await?.pop() else {
            let what = "txn_outbox.settings is empty: make the tables by PostgresSource::install";
            return Err(OutboxError::Database { what: what.to_owned(), source: None });
        };
        check_format("txn_outbox.settings", column(&found, 0)?)?;
        let shards = u16::try_from(column::<i32>(&found, 1)?).unwrap_or(1).clamp(1, MOST_SHARDS);
        let cursors = Cursors::open(domain, &config.name, column(&found, 2)?).await?;
        let (domain, wakeups) = (domain.clone(), LocalWakeups::default());
        let poll_cursors = Mutex::default();
        Ok(Arc::new(Self {
            domain,
            config,
            connections,
            scans,
            poll_cursors,
            cursors,
            shards,
            wakeups,
        }))
    }

    /// Closes the connections. Stop the processors first: each later request fails.
    pub fn close(&self) {
        self.connections.close();
        self.scans.close();
    }

    /// Runs a change under a claim. Returns `None` if nothing changed.
    async fn fenced<'a>(
        &self,
        claim: &Claim,
        event: &'a Event,
        change: &str,
        more: &[Parameter<'a>],
    ) -> Result<Option<i32>> {
        let (shard, token) = (i32::from(claim.shard().number), number(claim.token())?);
        let (topic, key) = (event.queue.topic(), event.queue.key());
        let (sequence, mark) = (number(event.sequence)?, event.mark.as_deref());
        let mut parameters: Vec<Parameter<'_>> = vec![
            (&shard, Type::INT4),
            (&token, Type::INT8),
            (&topic, Type::TEXT),
            (&key, Type::TEXT),
            (&sequence, Type::INT8),
            (&mark, Type::TEXT),
        ];
        parameters.extend_from_slice(more);
        let statement = format!(
            "{FENCED}, changed AS ({change} WHERE topic = $3 AND key = $4 AND sequence = $5 AND mark = $6::text::uuid \
             AND died_ms IS NULL AND EXISTS (SELECT FROM fenced) RETURNING failures) \
             SELECT EXISTS (SELECT FROM fenced), (SELECT failures FROM changed)"
        );
        let rows =
            self.connections.rows("store the result of an event", &statement, &parameters).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        match column::<bool>(row, 0)? {
            true => column(row, 1),
            false => Err(self.refused(claim).await?),
        }
    }

    /// The reason why the database refused a token.
    ///
    /// A later holder has a larger token. If this holder still has the shard, the tokens of the
    /// domain have started again.
    async fn refused(&self, claim: &Claim) -> Result<OutboxError> {
        let shard = claim.shard();
        let (topic, at) = (&*shard.topic, i32::from(shard.number));
        let statement = "SELECT token FROM txn_outbox.fence WHERE topic = $1 AND shard = $2";
        let parameters: [Parameter<'_>; 2] = [(&topic, Type::TEXT), (&at, Type::INT4)];
        let rows =
            self.connections.rows("read the token of a shard", statement, &parameters).await?;
        let seen = rows.first().map(|row| column::<i64>(row, 0)).transpose()?.map_or(0, unsigned);
        // Read after the token: a later holder would fail this check.
        self.domain.transact(async |tx| claim.check(tx).await).await?;
        Ok(OutboxError::TokensRestarted { shard: shard.clone(), token: claim.token(), seen })
    }

    /// Repeats the lost removal of a handled event.
    async fn remove_handled(&self, event: &Event) -> Result<()> {
        let mark = event.mark.as_deref();
        let statement = "DELETE FROM txn_outbox.event WHERE mark = $3::text::uuid AND topic = $1 AND key = $2 AND died_ms IS NULL";
        let (topic, key) = (event.queue.topic(), event.queue.key());
        let parameters: [Parameter<'_>; 3] =
            [(&topic, Type::TEXT), (&key, Type::TEXT), (&mark, Type::TEXT)];
        self.connections.rows("remove what is handled", statement, &parameters).await.map(drop)
    }

    /// Checks that the database has the epoch of the cursors.
    pub(super) fn check_epoch(&self, epoch: Option<&str>) -> Result<()> {
        if epoch == Some(&self.cursors.epoch) {
            return Ok(());
        }
        let what = "its epoch is not the one with which this source was opened: stop the processors, open it again, and \
                    start them";
        Err(OutboxError::Database { what: what.to_owned(), source: None })
    }

    async fn change_dead_letter(&self, id: &str, doing: &str, statement: &str) -> Result<()> {
        let rows = self.connections.rows(doing, statement, &[(&id, Type::TEXT)]).await?;
        let Some(row) = rows.first() else { return Err(OutboxError::NotFound(id.to_owned())) };
        let queue = queue_of(row)?;
        self.wakeups.notify(&queue, &queue.shard(self.shards));
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

    fn local_wakeups(&self) -> &LocalWakeups {
        &self.wakeups
    }

    async fn claimed(&self, claim: &Claim) -> Result<()> {
        let Shard { topic, number: at } = claim.shard();
        let (topic, shard, token) = (&**topic, i32::from(*at), number(claim.token())?);
        let statement = format!("{FENCED} SELECT EXISTS (SELECT FROM fenced)");
        let parameters: [Parameter<'_>; 3] =
            [(&shard, Type::INT4), (&token, Type::INT8), (&topic, Type::TEXT)];
        let rows = self.connections.rows("claim a shard", &statement, &parameters).await?;
        match rows.first().map(|row| column(row, 0)).transpose()?.unwrap_or(false) {
            true => Ok(()),
            false => Err(self.refused(claim).await?),
        }
    }

    async fn discover(&self, shards: &BTreeSet<Shard>) -> Result<Discovered> {
        let topics: Vec<&str> = shards.iter().map(|shard| &*shard.topic).collect();
        let numbers: Vec<i32> = shards.iter().map(|shard| i32::from(shard.number)).collect();
        let behind: Vec<String> = {
            let poll_cursors = self.poll_cursors.lock();
            shards
                .iter()
                .map(|shard| poll_cursors.get(shard).cloned().unwrap_or_default())
                .collect()
        };
        let statement = "SELECT polled.topic, found.key, polled.shard \
             FROM unnest($1::text[], $2::integer[], $3::text[]) AS polled (topic, shard, key), LATERAL \
             (SELECT DISTINCT key FROM txn_outbox.event e \
              WHERE e.shard = polled.shard AND e.topic = polled.topic AND died_ms IS NULL AND e.key > polled.key AND NOT EXISTS \
              (SELECT FROM txn_outbox.event b WHERE b.topic = e.topic AND b.key = e.key AND b.blocks) \
              ORDER BY key LIMIT $4) AS found ORDER BY polled.topic, polled.shard, found.key";
        let parameters: [Parameter<'_>; 4] = [
            (&topics, Type::TEXT_ARRAY),
            (&numbers, Type::INT4_ARRAY),
            (&behind, Type::TEXT_ARRAY),
            (&MOST_POLLED, Type::INT8),
        ];
        let rows = self.scans.rows("poll for events", statement, &parameters).await?;
        let mut found = Vec::with_capacity(rows.len());
        let mut last: BTreeMap<(String, i32), (i64, &Row)> = BTreeMap::new();
        for row in &rows {
            match queue_of(row) {
                Ok(queue) => found.push(queue),
                Err(error) => {
                    tracing::warn!(%error, "events with invalid queue names are skipped");
                }
            }
            let (count, at) = last.entry((column(row, 0)?, column(row, 2)?)).or_insert((0, row));
            (*count, *at) = (*count + 1, row);
        }
        let mut leaves_some = false;
        let mut poll_cursors = self.poll_cursors.lock();
        for shard in shards {
            // A full page may have a successor. Otherwise the next poll restarts.
            let of = (shard.topic.to_string(), i32::from(shard.number));
            match last.get(&of).filter(|(count, _)| *count >= MOST_POLLED) {
                Some((_, row)) => {
                    leaves_some = true;
                    poll_cursors.insert(shard.clone(), column(row, 1)?);
                }
                None => {
                    poll_cursors.remove(shard);
                }
            }
        }
        Ok(Discovered { queues: found, leaves_some })
    }

    async fn next(&self, queue: &QueueName, most: usize) -> Result<Vec<Event>> {
        let position = self.cursors.position(queue).await?;
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        // Returns few large payloads at a time, and no payload beyond the limit.
        let statement = format!(
            "SELECT {EVENT} FROM (SELECT e.*, sum(bytes) OVER (ORDER BY sequence) AS so_far, \
                 row_number() OVER (ORDER BY sequence) AS at \
             FROM txn_outbox.event e WHERE topic = $1 AND key = $2 AND died_ms IS NULL \
             AND NOT EXISTS (SELECT FROM txn_outbox.event b WHERE b.topic = $1 AND b.key = $2 AND b.blocks) \
             ORDER BY sequence LIMIT $3) AS e WHERE so_far <= $4 OR at = 1 ORDER BY sequence"
        );
        let (topic, key) = (queue.topic(), queue.key());
        let parameters: [Parameter<'_>; 4] = [
            (&topic, Type::TEXT),
            (&key, Type::TEXT),
            (&most, Type::INT8),
            (&MOST_BYTES, Type::INT8),
        ];
        let rows = self.connections.rows("read events", &statement, &parameters).await?;
        let mut events = Vec::with_capacity(rows.len());
        for row in &rows {
            self.check_epoch(epoch_of(row)?.as_deref())?;
            match event_of(row) {
                Ok(event) => events.push(event),
                // Returns the events before the unreadable one first.
                Err(_) if !events.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        if events.first().is_some_and(|event| event.sequence <= position.handled) {
            // Only one handled event can be left, because a queue continues only after the removal
            // of the previous event.
            let handled = events.remove(0);
            if let Some(event) = unless_handled(&position, &handled, events.first()) {
                let event = event.id.clone();
                return Err(OutboxError::PositionsRestarted { event, handled: position.handled });
            }
            self.remove_handled(&handled).await?;
            if events.is_empty() {
                // Further events may follow.
                self.wakeups.notify(queue, &queue.shard(self.shards));
            }
        }
        Ok(events)
    }

    async fn begin(&self, claim: &Claim, event: &Event) -> Result<()> {
        let change = "UPDATE txn_outbox.event SET unfinished = unfinished + 1";
        match self.fenced(claim, event, change, &[]).await? {
            Some(_) => Ok(()),
            None => Err(OutboxError::NotNext(event.id.clone())),
        }
    }

    async fn take(&self, tx: &Transaction, event: &Event) -> Result<Option<u64>> {
        self.cursors.advance(tx, event).await?;
        Ok(None)
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
        effect: FailureEffect,
    ) -> Result<RecordedFailure> {
        // A commit in the background may have handled the event.
        if self.cursors.is_handled(claim, event).await? {
            self.done(claim, event).await?;
            return Ok(RecordedFailure::AlreadyHandled);
        }
        // A text of the database cannot hold this character.
        let error: String = why.chars().filter(|c| *c != '\0').collect();
        let (died_ms, blocks) = match effect {
            FailureEffect::Retry => (None, false),
            FailureEffect::SetAside(after) => {
                (Some(number(wall_ms(&self.domain))?), after == AfterDeadLetter::Wait)
            }
        };
        let change = "UPDATE txn_outbox.event \
             SET failures = failures + 1, unfinished = 0, error = $7, died_ms = $8, blocks = $9";
        let more: [Parameter<'_>; 3] =
            [(&error, Type::TEXT), (&died_ms, Type::INT8), (&blocks, Type::BOOL)];
        let failures = self.fenced(claim, event, change, &more).await?;
        Ok(match failures {
            None => RecordedFailure::AlreadyHandled,
            Some(_) if died_ms.is_some() => RecordedFailure::SetAside,
            Some(failures) => RecordedFailure::Failed(u32::try_from(failures).unwrap_or(u32::MAX)),
        })
    }

    async fn dead_letters(&self) -> Result<DeadLetters> {
        let statement = format!(
            "SELECT {EVENT} FROM txn_outbox.event e WHERE died_ms IS NOT NULL AND id > $1 ORDER BY id LIMIT $2"
        );
        let (mut dead, mut behind) = (DeadLetters::default(), String::new());
        loop {
            let parameters: [Parameter<'_>; 2] = [(&behind, Type::TEXT), (&PAGE, Type::INT8)];
            let page = self.scans.rows("list dead letters", &statement, &parameters).await?;
            let Some(last) = page.last() else {
                return Ok(DeadLetters::new(dead.letters, dead.newer));
            };
            behind = id_of(last)?;
            for row in &page {
                match dead_letter_of(row) {
                    Ok(letter) => dead.letters.push(letter),
                    Err(OutboxError::NewerFormat { format, .. }) => {
                        dead.newer.insert(id_of(row)?, format);
                    }
                    Err(error) => return Err(error),
                }
            }
        }
    }

    async fn dead_letter(&self, id: &str) -> Result<DeadLetter> {
        let statement =
            format!("SELECT {EVENT} FROM txn_outbox.event WHERE died_ms IS NOT NULL AND id = $1");
        let rows =
            self.connections.rows("read a dead letter", &statement, &[(&id, Type::TEXT)]).await?;
        rows.first().map_or_else(|| Err(OutboxError::NotFound(id.to_owned())), dead_letter_of)
    }

    async fn retry(&self, id: &str) -> Result<()> {
        let statement = "WITH dead AS (SELECT topic, key, sequence, blocks FROM txn_outbox.event \
                 WHERE id = $1 AND died_ms IS NOT NULL FOR UPDATE), \
             placed AS (UPDATE txn_outbox.queue q SET appended = q.appended + 1 FROM dead d \
                 WHERE q.topic = d.topic AND q.key = d.key AND NOT d.blocks RETURNING q.appended) \
             UPDATE txn_outbox.event e SET sequence = COALESCE((SELECT appended FROM placed), e.sequence), \
                 died_ms = NULL, failures = 0, unfinished = 0, error = NULL, blocks = false FROM dead d \
                 WHERE e.topic = d.topic AND e.key = d.key AND e.sequence = d.sequence \
             RETURNING e.topic, e.key";
        self.change_dead_letter(id, "try a dead letter again", statement).await
    }

    async fn discard(&self, id: &str) -> Result<()> {
        let statement = "DELETE FROM txn_outbox.event WHERE id = $1 AND died_ms IS NOT NULL \
             RETURNING topic, key";
        self.change_dead_letter(id, "drop a dead letter", statement).await
    }

    async fn backlog(&self) -> Result<Backlog> {
        let statement = "SELECT topic, shard, count(*) FILTER (WHERE died_ms IS NULL), \
                 count(DISTINCT (topic, key)) FILTER (WHERE died_ms IS NULL), \
                 count(*) FILTER (WHERE died_ms IS NOT NULL), count(*) FILTER (WHERE blocks), \
                 min(emitted_ms) FILTER (WHERE died_ms IS NULL) \
             FROM txn_outbox.event GROUP BY topic, shard";
        let mut backlog = Backlog::default();
        for row in self.scans.rows("count events", statement, &[]).await? {
            let topic: String = column(&row, 0)?;
            let number = u16::try_from(column::<i32>(&row, 1)?).unwrap_or_default();
            let count = |at| Ok::<_, OutboxError>(unsigned(column::<i64>(&row, at)?));
            let size = |at| Ok::<_, OutboxError>(usize::try_from(count(at)?).unwrap_or(usize::MAX));
            let waiting = count(2)?;
            if waiting > 0 {
                let oldest: Option<i64> = column(&row, 6)?;
                let shard = Shard { topic: topic.into(), number };
                backlog.add(&shard, waiting, oldest.map(unsigned));
                backlog.queues += size(3)?.saturating_sub(1);
            }
            backlog.dead += size(4)?;
            backlog.blocked += size(5)?;
        }
        Ok(backlog)
    }
}

/// An event at a handled position that is not the handled event. `None` is the normal case.
fn unless_handled<'a>(
    position: &Position,
    first: &'a Event,
    next: Option<&'a Event>,
) -> Option<&'a Event> {
    let is_other = |event: &&Event| event.sequence <= position.handled;
    Some(first).filter(|first| !position.matches(first)).or_else(|| next.filter(is_other))
}
