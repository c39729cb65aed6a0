//! Settings of a relational outbox.

use std::time::Duration;

use crate::error::{OutboxError, Result};
use crate::shard::MOST_SHARDS;

/// Most bytes of the name of a source.
const MOST_NAME: usize = 32;

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
    /// Most bytes of a payload in a new one; beyond, the application's insert is refused. A larger
    /// row that is there all the same is set aside. Default 256 KiB.
    pub max_payload: u32,
    /// How long the database may take for anything, 10 ms at least. A longer statement ends there,
    /// too (`statement_timeout`). Default 10 s.
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
