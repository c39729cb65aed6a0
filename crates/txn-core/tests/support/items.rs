//! Items: documents with one number.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use txn_core::{AttemptId, Collection, Config, Domain, Options, Typed};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Item {
    pub(crate) n: i64,
}

pub(crate) type Items = Collection<Typed<Item>>;

/// Settings without a janitor, which a test calls by itself.
pub(crate) fn config() -> Config {
    Config::default().with_janitor_interval(None)
}

/// Waits until no lock and no open record is left. Applies run after the acknowledgement.
pub(crate) async fn drained(domain: &Domain) {
    for _ in 0..1_000 {
        if domain.admin().inspect().await.expect("inspects").is_clean() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("left over: {:?}", domain.admin().inspect().await);
}

/// Options of a transaction with a record of its own.
pub(crate) fn recorded() -> Options {
    Options::default().with_own_record(true)
}

/// Returns a tid of this process that no transaction uses.
pub(crate) fn fresh_tid(domain: &Domain) -> AttemptId {
    domain.begin(&recorded()).expect("begins").tid().expect("has its own record")
}
