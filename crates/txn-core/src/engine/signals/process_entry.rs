//! The entry of one process in the registry of processes.

use serde::{Deserialize, Serialize};
use txn_protocol::format::Format;

/// A process of the domain, as it described itself.
///
/// Each field has a default, so that every version of the library reads the entries of the others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ProcessEntry {
    /// The format version of the process's transaction records.
    pub format: Format,
    /// The random part of the process's commit versions, in hexadecimal.
    ///
    /// The first four digits are the number of the process in its tids.
    pub node: String,
    /// The name of the machine.
    pub host: String,
    /// The process id on that machine.
    pub pid: u32,
    /// The name of the executable file.
    pub program: String,
    /// [`Config::with_process_name`](crate::Config::with_process_name).
    pub process: String,
    /// [`Config::with_application_name`](crate::Config::with_application_name).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub application: Option<String>,
    /// The version of this library in the process.
    pub library: String,
    /// When the process started the domain, in milliseconds since the Unix epoch.
    pub since_ms: u64,
    /// The last renewal of the entry, in milliseconds since the Unix epoch.
    pub renewed_ms: u64,
    /// The interval between renewals in milliseconds.
    pub interval_ms: u64,
    /// [`Config::with_metrics_address`](crate::Config::with_metrics_address).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics_address: Option<String>,
    /// [`Config::with_write_contention`](crate::Config::with_write_contention).
    pub writes_contention: bool,
    /// The lead of the machine's clock over the server's clock, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_ahead_ms: Option<i64>,
}

impl ProcessEntry {
    /// Reads a stored entry; `None` if its text is no entry.
    pub(crate) fn parse(source: &str) -> Option<Self> {
        serde_json::from_str(source).ok()
    }

    /// The number of the process in its tids; empty without a node.
    #[must_use]
    pub fn number(&self) -> &str {
        number_of(&self.node)
    }

    /// The time after which an unchanged entry is dropped, in milliseconds.
    pub(crate) fn kept_for_ms(&self) -> u64 {
        /// An hour. The time is enough to name the program of a lock that a dead process left.
        const KEPT: u64 = 3_600_000;
        self.interval_ms.saturating_mul(10).max(KEPT)
    }
}

/// The number of a process by its node; empty without a node.
pub(crate) fn number_of(node: &str) -> &str {
    node.get(..4).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_of_another_version_is_read() {
        let entry = ProcessEntry::parse(r#"{"format":9,"node":"a1b2c3d4e5f6","later":[1]}"#);
        let entry = entry.expect("an entry");
        assert_eq!((entry.number(), &*entry.host, entry.clock_ahead_ms), ("a1b2", "", None));
        assert_eq!(ProcessEntry::parse("\"no entry\""), None);
        assert_eq!(ProcessEntry::default().number(), "");
    }
}
