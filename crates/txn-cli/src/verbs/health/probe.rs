//! A probe of the latency of locks and commits.

use std::time::Instant;

use serde_json::{Value, json};
use txn_core::{Domain, LockMode, Options, Raw};

use crate::answer::Failure;

/// The mapping of the documents of the probe.
const MAPPINGS: &str = r#"{"dynamic":"strict","properties":{}}"#;

/// The documents that the probe writes.
const DOCUMENTS: [&str; 2] = ["a", "b"];

/// The time of two locks and of a commit, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    lock_ms: u64,
    commit_ms: u64,
}

impl Probe {
    /// Commits a write of two locked documents.
    ///
    /// The documents are in the collection `<domain>-probe`.
    pub(super) async fn run(domain: &Domain) -> Result<Self, Failure> {
        let name = domain.collection_name("probe");
        let probes = domain.create_system_collection::<Raw>(&name, MAPPINGS).await?;
        let options = Options::default().with_label("txn-probe").with_lock_mode(LockMode::AtRead);
        let tx = domain.begin(&options)?;
        let asked = Instant::now();
        tx.get_many(&probes, DOCUMENTS).await?;
        let lock_ms = since(asked);
        for document in DOCUMENTS {
            tx.put(&probes, document, &Raw::new("{}"))?;
        }
        let asked = Instant::now();
        tx.commit().await?;
        Ok(Self { lock_ms, commit_ms: since(asked) })
    }

    /// The probe for operators.
    pub(super) fn text(self) -> String {
        format!("; a lock took {} ms, a commit {} ms", self.lock_ms, self.commit_ms)
    }

    pub(super) fn json(self) -> Value {
        json!({ "lock_ms": self.lock_ms, "commit_ms": self.commit_ms })
    }
}

/// The milliseconds since a moment.
fn since(asked: Instant) -> u64 {
    u64::try_from(asked.elapsed().as_millis()).unwrap_or(u64::MAX)
}
