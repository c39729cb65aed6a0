//! Findings about the servers of a domain, for `status` and `doctor`.

mod disks;
mod facts;
mod indices;
mod judge;
#[cfg(test)]
mod tests;

use txn_core::admin::Overview;
use txn_core::ids::Day;
use txn_core::store::Store;
use txn_es::EsStore;

use super::message::Message;
use super::privileges::{self, Access};

pub(super) use judge::{clock_differs, clock_remedy};

/// The number of hexadecimal digits at the end of a partition's name.
const DIGITS: usize = 16;

/// The parts of a domain that the servers hold.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Parts {
    /// The name of the domain.
    pub domain: String,
    /// The day of the check.
    pub today: Day,
    /// The partitions of the transaction table.
    pub partitions: Vec<(Day, String)>,
    /// The collections, with those of the library.
    pub collections: Vec<String>,
}

impl Parts {
    /// The partitions of a domain that cannot be opened.
    ///
    /// The names of the partitions show their days.
    pub async fn unopened(servers: &EsStore, domain: &str) -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let today = Day::of_unix_time(now.unwrap_or_default());
        let (partitions, collections) = (Vec::new(), Vec::new());
        let mut parts = Self { domain: domain.to_owned(), today, partitions, collections };
        // Without an answer the other findings are all that is known.
        let names = servers.list_collections(&parts.prefix()).await.unwrap_or_default();
        let dated = names.iter().filter_map(|name| Some((parts.day_of(name)?, name.to_string())));
        parts.partitions = dated.collect();
        parts
    }

    /// The day of a partition, by its name. `None` if no partition has such a name.
    #[must_use]
    pub fn day_of(&self, name: &str) -> Option<Day> {
        let (day, random) = name.strip_prefix(&*self.prefix())?.rsplit_once('-')?;
        let is_random = random.len() == DIGITS && random.bytes().all(|b| b.is_ascii_hexdigit());
        day.parse().ok().filter(|_| is_random)
    }

    /// The parts of an opened domain.
    #[must_use]
    pub fn of(overview: &Overview) -> Self {
        let now = std::time::Duration::from_millis(overview.now_ms);
        let partitions = overview.partitions.iter();
        Self {
            domain: overview.domain.clone(),
            today: Day::of_unix_time(now),
            partitions: partitions.map(|part| (part.day, part.name.clone())).collect(),
            collections: overview.collections.clone(),
        }
    }

    /// The beginning of the names of partitions.
    #[must_use]
    pub fn prefix(&self) -> String {
        format!("txn-{}-", privileges::own(&self.domain))
    }

    /// A name that the partition of a later day may have.
    ///
    /// A template that was added today spoils the first day that has no partition yet.
    fn later_partition(&self) -> String {
        format!("{}{}-0000000000000000", self.prefix(), self.today.plus(2))
    }

    fn names(&self) -> Vec<&str> {
        let partitions = self.partitions.iter().map(|(_, name)| &**name);
        ["txn-registry"]
            .into_iter()
            .chain(partitions)
            .chain(self.collections.iter().map(String::as_str))
            .collect()
    }

    /// Whether the library owns an index.
    fn is_of_the_library(&self, index: &str) -> bool {
        index == "txn-registry" || self.partitions.iter().any(|(_, name)| name == index)
    }

    fn access(&self) -> Access {
        privileges::application_access(&self.domain, &self.collections)
    }
}

/// Asks the servers, and returns the findings, causes before effects.
pub async fn server_findings(servers: &EsStore, parts: &Parts) -> Vec<Message> {
    judge::judge(&facts::ask(servers, parts).await, parts)
}
