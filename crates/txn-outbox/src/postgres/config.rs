//! Settings of a relational outbox.

use std::time::Duration;

use crate::error::{OutboxError, Result};
use crate::queue::shard::MOST_SHARDS;

/// The maximum number of bytes of a source's name.
const MOST_NAME: usize = 32;

/// Settings of a relational outbox.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PostgresConfig {
    /// The name of this source within the domain. Default: `postgres`.
    pub name: String,
    /// The number of shards of a new outbox. Default: 16.
    pub shards: u16,
    /// The maximum number of waiting events per key, in a new outbox.
    ///
    /// Beyond this number the database refuses the insert of the application. Default: 10,000.
    pub max_backlog: u32,
    /// The maximum size of a payload, in a new outbox. Default: 256 KiB.
    ///
    /// Beyond this size the database refuses the insert of the application. A larger row becomes a
    /// dead letter.
    pub max_payload: u32,
    /// The time limit of each database request, at least 10 ms.
    ///
    /// The server ends a longer statement, too (`statement_timeout`). Default: 10 s.
    pub limit: Duration,
}

impl Default for PostgresConfig {
    fn default() -> Self {
        let (shards, max_backlog, max_payload) = (16, 10_000, 256 << 10);
        let (name, limit) = ("postgres".to_owned(), Duration::from_secs(10));
        Self { name, shards, max_backlog, max_payload, limit }
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

    /// Sets [`PostgresConfig::max_payload`].
    #[must_use]
    pub fn with_max_payload(mut self, max_payload: u32) -> Self {
        self.max_payload = max_payload;
        self
    }

    /// Sets [`PostgresConfig::limit`].
    #[must_use]
    pub fn with_limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    pub(super) fn check(&self) -> Result<()> {
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
        if self.max_backlog == 0 || self.max_payload == 0 || self.limit < Duration::from_millis(10)
        {
            return refuse("the backlog or the payload is zero, or the limit less than 10 ms");
        }
        Ok(())
    }
}
