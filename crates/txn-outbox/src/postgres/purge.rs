//! The removal of the state of unused keys, on both sides.
//!
//! Both sides are the database and the domain.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio_postgres::types::Type;
use txn_lock::instance::wall_ms;

use super::cursor::Position;
use super::database::Parameter;
use super::row::{column, number, unsigned};
use super::source::PostgresSource;
use crate::error::{OutboxError, Result};
use crate::purge::Purged;
use crate::queue::name::QueueName;

/// The number of keys per statement.
const PAGE: i64 = 500;

/// The idle keys after a given key.
///
/// Idle keys have no waiting event, no dead letter, and no emit since a given time.
const IDLE: &str = "SELECT topic, key, appended FROM txn_outbox.queue q \
     WHERE topic <> '' AND (topic, key) > ($1, $2) AND COALESCE(emitted_ms, 0) <= $3 AND NOT EXISTS \
     (SELECT FROM txn_outbox.event e WHERE e.topic = q.topic AND e.key = q.key) ORDER BY topic, key LIMIT $4";

/// Raises the number after which new keys start.
const RAISE: &str = "UPDATE txn_outbox.queue SET appended = greatest(appended, $1) \
     WHERE topic = '' AND key = '' RETURNING appended";

/// Deletes the found keys that had no emit in the meantime.
///
/// The statement never waits: it skips rows that another transaction has locked.
const DELETE: &str = "WITH free AS (SELECT q.topic, q.key FROM txn_outbox.queue q \
         JOIN unnest($1::text[], $2::text[], $3::bigint[]) AS found (topic, key, appended) \
         ON q.topic = found.topic AND q.key = found.key AND q.appended = found.appended \
         WHERE NOT EXISTS (SELECT FROM txn_outbox.event e WHERE e.topic = q.topic AND e.key = q.key) \
         FOR UPDATE OF q SKIP LOCKED) \
     DELETE FROM txn_outbox.queue q USING free WHERE q.topic = free.topic AND q.key = free.key RETURNING 1";

/// The given keys that the database does not have.
///
/// Also returns the number after which new keys start, and the epoch.
const UNKNOWN: &str = "SELECT asked.topic, asked.key, \
         (SELECT appended FROM txn_outbox.queue WHERE topic = '' AND key = ''), \
         (SELECT epoch::text FROM txn_outbox.settings) \
     FROM unnest($1::text[], $2::text[]) AS asked (topic, key) WHERE NOT EXISTS \
     (SELECT FROM txn_outbox.queue q WHERE q.topic = asked.topic AND q.key = asked.key)";

impl PostgresSource {
    /// Deletes the state of keys without waiting and recent events.
    ///
    /// A key is deleted if it had no emit for `age`, by the wall clock. The purge deletes its row
    /// in the database and its cursor in the domain. New events of a deleted key get larger
    /// numbers, so that event ids never repeat. Keys with dead letters stay. Other processes may
    /// emit during the purge.
    ///
    /// Requires the privileges to update and to delete rows of `txn_outbox.queue`, and the
    /// [`SCHEMA`](super::SCHEMA) of this version.
    ///
    /// # Errors
    /// [`OutboxError::Database`], [`OutboxError::Store`], or an error of the engine. Deleted rows
    /// and documents stay deleted.
    pub async fn purge(&self, age: Duration) -> Result<Purged> {
        let age = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        let before = number(wall_ms(&self.domain).saturating_sub(age))?;
        let queues = self.purge_queues(before).await?;
        self.purge_cursors().await?;
        Ok(Purged { queues, ..Purged::default() })
    }

    async fn purge_queues(&self, before: i64) -> Result<usize> {
        let (mut topic, mut key, mut purged) = (String::new(), String::new(), 0);
        loop {
            let parameters: [Parameter<'_>; 4] = [
                (&topic, Type::TEXT),
                (&key, Type::TEXT),
                (&before, Type::INT8),
                (&PAGE, Type::INT8),
            ];
            let found = self.scans.rows("find idle keys", IDLE, &parameters).await?;
            let (mut topics, mut keys, mut positions) = (Vec::new(), Vec::new(), Vec::new());
            for row in &found {
                topics.push(column::<String>(row, 0)?);
                keys.push(column::<String>(row, 1)?);
                positions.push(column::<i64>(row, 2)?);
            }
            let (Some(last_topic), Some(last_key), Some(most)) =
                (topics.last(), keys.last(), positions.iter().max())
            else {
                return Ok(purged);
            };
            (topic, key) = (last_topic.clone(), last_key.clone());
            // Commits the number before the first deletion, because a new key starts after this
            // number.
            let raised = self.scans.rows("note purged keys", RAISE, &[(most, Type::INT8)]).await?;
            if raised.is_empty() {
                let what = "its tables are those of an older version: apply PostgresSource::install, or SCHEMA";
                return Err(OutboxError::Database { what: what.to_owned(), source: None });
            }
            let parameters: [Parameter<'_>; 3] = [
                (&topics, Type::TEXT_ARRAY),
                (&keys, Type::TEXT_ARRAY),
                (&positions, Type::INT8_ARRAY),
            ];
            purged += self.scans.rows("purge idle keys", DELETE, &parameters).await?.len();
        }
    }

    /// Deletes cursors of keys that the database does not have.
    ///
    /// An interrupted purge may have left them.
    async fn purge_cursors(&self) -> Result<()> {
        let queues = self.cursors.queues().await?;
        for queues in queues.chunks(usize::try_from(PAGE).unwrap_or(1)) {
            // Reads the cursors before the database: an event that is handled later moves its
            // cursor, and a moved cursor stays.
            let positions: BTreeMap<&QueueName, Position> =
                queues.iter().zip(self.cursors.positions(queues).await?).collect();
            let topics: Vec<&str> = queues.iter().map(QueueName::topic).collect();
            let keys: Vec<&str> = queues.iter().map(QueueName::key).collect();
            let parameters: [Parameter<'_>; 2] =
                [(&topics, Type::TEXT_ARRAY), (&keys, Type::TEXT_ARRAY)];
            for row in self.scans.rows("find purged keys", UNKNOWN, &parameters).await? {
                self.check_epoch(column::<Option<String>>(&row, 3)?.as_deref())?;
                let floor = column::<Option<i64>>(&row, 2)?.map_or(0, unsigned);
                let (topic, key): (String, String) = (column(&row, 0)?, column(&row, 1)?);
                let name = QueueName::new(&topic, &key)?;
                // New events of the key get numbers after `floor`.
                if let Some(seen) = positions.get(&name).filter(|seen| seen.handled <= floor) {
                    self.cursors.delete_unmoved(&name, seen).await?;
                }
            }
        }
        Ok(())
    }
}
