//! What is kept of keys that are not used any more goes with time, on both sides.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio_postgres::types::Type;
use txn_lock::instance::wall_ms;

use super::cursor::Place;
use super::database::Parameter;
use super::row::{column, number, unsigned};
use super::source::PostgresSource;
use crate::error::{OutboxError, Result};
use crate::name::QueueName;
use crate::purge::Purged;

/// Most keys that are looked at by one statement.
const PAGE: i64 = 500;

/// The keys behind another one that nothing waits of, nothing was set aside of, and nothing was emitted of since.
const IDLE: &str = "SELECT topic, key, appended FROM txn_outbox.queue q \
     WHERE topic <> '' AND (topic, key) > ($1, $2) AND COALESCE(emitted_ms, 0) <= $3 AND NOT EXISTS \
     (SELECT FROM txn_outbox.event e WHERE e.topic = q.topic AND e.key = q.key) ORDER BY topic, key LIMIT $4";

/// Raises the number from which on new keys count.
const RAISE: &str = "UPDATE txn_outbox.queue SET appended = greatest(appended, $1) \
     WHERE topic = '' AND key = '' RETURNING appended";

/// Deletes those of these keys of which nothing was emitted since they were found. Waits for nobody: what somebody is at stays.
const DELETE: &str = "WITH free AS (SELECT q.topic, q.key FROM txn_outbox.queue q \
         JOIN unnest($1::text[], $2::text[], $3::bigint[]) AS found (topic, key, appended) \
         ON q.topic = found.topic AND q.key = found.key AND q.appended = found.appended \
         WHERE NOT EXISTS (SELECT FROM txn_outbox.event e WHERE e.topic = q.topic AND e.key = q.key) \
         FOR UPDATE OF q SKIP LOCKED) \
     DELETE FROM txn_outbox.queue q USING free WHERE q.topic = free.topic AND q.key = free.key RETURNING 1";

/// Those of these keys that the database knows nothing of, the number from which on new keys count, and the epoch.
const UNKNOWN: &str = "SELECT asked.topic, asked.key, \
         (SELECT appended FROM txn_outbox.queue WHERE topic = '' AND key = ''), \
         (SELECT epoch::text FROM txn_outbox.settings) \
     FROM unnest($1::text[], $2::text[]) AS asked (topic, key) WHERE NOT EXISTS \
     (SELECT FROM txn_outbox.queue q WHERE q.topic = asked.topic AND q.key = asked.key)";

impl PostgresSource {
    /// Deletes what is kept of keys that no event waits of and none was emitted of for `age`, by the wall clock: their rows in the
    /// database, and how far they were handled in the domain. Events of these keys go on to be numbered behind all that there
    /// ever were, so that none gets the id of another. Keys with dead letters stay. Anybody may emit meanwhile.
    ///
    /// Needs the privileges to change and to delete rows of `txn_outbox.queue`, and [`SCHEMA`](super::SCHEMA) as this version has
    /// it.
    ///
    /// # Errors
    /// [`OutboxError::Database`], [`OutboxError::Store`], or the engine's; what was deleted stays so.
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
            let found = self.looks.rows("look for idle keys", IDLE, &parameters).await?;
            let (mut topics, mut keys, mut places) = (Vec::new(), Vec::new(), Vec::new());
            for row in &found {
                topics.push(column::<String>(row, 0)?);
                keys.push(column::<String>(row, 1)?);
                places.push(column::<i64>(row, 2)?);
            }
            let (Some(last_topic), Some(last_key), Some(most)) =
                (topics.last(), keys.last(), places.iter().max())
            else {
                return Ok(purged);
            };
            (topic, key) = (last_topic.clone(), last_key.clone());
            // First, and committed before any of them goes: whoever finds one gone counts on from there.
            let raised = self.looks.rows("note purged keys", RAISE, &[(most, Type::INT8)]).await?;
            if raised.is_empty() {
                let what = "its tables are those of an older version: apply PostgresSource::install, or SCHEMA";
                return Err(OutboxError::Database { what: what.to_owned(), source: None });
            }
            let parameters: [Parameter<'_>; 3] = [
                (&topics, Type::TEXT_ARRAY),
                (&keys, Type::TEXT_ARRAY),
                (&places, Type::INT8_ARRAY),
            ];
            purged += self.looks.rows("purge idle keys", DELETE, &parameters).await?.len();
        }
    }

    /// Deletes how far those keys were handled that the database knows nothing of, also where an earlier purge did not come to it.
    async fn purge_cursors(&self) -> Result<()> {
        let queues = self.cursors.queues().await?;
        for queues in queues.chunks(usize::try_from(PAGE).unwrap_or(1)) {
            // Before the database is asked: an event that is handled after that moves its cursor, which stays then.
            let places: BTreeMap<&QueueName, Place> =
                queues.iter().zip(self.cursors.places(queues).await?).collect();
            let topics: Vec<&str> = queues.iter().map(QueueName::topic).collect();
            let keys: Vec<&str> = queues.iter().map(QueueName::key).collect();
            let parameters: [Parameter<'_>; 2] =
                [(&topics, Type::TEXT_ARRAY), (&keys, Type::TEXT_ARRAY)];
            for row in self.looks.rows("look for purged keys", UNKNOWN, &parameters).await? {
                self.check_epoch(column::<Option<String>>(&row, 3)?.as_deref())?;
                let floor = column::<Option<i64>>(&row, 2)?.map_or(0, unsigned);
                let (topic, key): (String, String) = (column(&row, 0)?, column(&row, 1)?);
                let name = QueueName::new(&topic, &key)?;
                // Whatever begins to be emitted of the key now comes behind that number.
                if let Some(seen) = places.get(&name).filter(|seen| seen.handled <= floor) {
                    self.cursors.forget(&name, seen).await?;
                }
            }
        }
        Ok(())
    }
}
