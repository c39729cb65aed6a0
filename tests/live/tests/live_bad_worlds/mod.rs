//! Damage by other clients to documents, records and indices.
//!
//! The transaction is at a known step. Each case ends in repair, or in a typed error and an event
//! that names the document. No loss stays unreported.

mod indices;
mod pipelines;
mod records;
mod writers;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinHandle;
use txn_core::event::{Event, Observer};
use txn_core::{AttemptId, Domain, Error, Options, Receipt};
use txn_es::{EsConfig, EsStore};
use txn_fixtures::bank::{self, Accounts};
use txn_fixtures::fixture::{Fixture, PATIENCE, soon};
use txn_testkit::proxy::{Hold, Matching, Point, Proxy};

const OPENING: i64 = 100;
const LEASE: Duration = Duration::from_millis(400);

/// Records damage and voided locks.
#[derive(Debug, Default)]
struct Log(Mutex<Vec<Event>>);

impl Observer for Log {
    fn on_event(&self, event: &Event) {
        if matches!(event, Event::Damaged { .. } | Event::AbortedByRecovery { .. }) {
            self.0.lock().push(event.clone());
        }
    }
}

impl Log {
    /// Returns the reported damage: ids of documents, and messages.
    fn damages(&self) -> Vec<(String, String)> {
        let damage = |event: &Event| match event {
            Event::Damaged { document, what, .. } => Some((document.id.to_string(), what.clone())),
            _ => None,
        };
        self.0.lock().iter().filter_map(damage).collect()
    }

    /// Returns the transactions that were taken for dead and aborted.
    fn voided(&self) -> Vec<AttemptId> {
        let voided = |event: &Event| match event {
            Event::AbortedByRecovery { tid, .. } => Some(*tid),
            _ => None,
        };
        let mut tids: Vec<AttemptId> = self.0.lock().iter().filter_map(voided).collect();
        tids.sort();
        tids.dedup();
        tids
    }

    /// Returns the ids of damaged documents.
    fn damaged(&self) -> Vec<String> {
        let mut ids: Vec<String> = self.damages().into_iter().map(|(id, _)| id).collect();
        ids.sort();
        ids.dedup();
        ids
    }
}

/// A coordinator behind a proxy, and a witness without one.
///
/// Both use three accounts.
struct Stage {
    proxy: Proxy,
    log: Arc<Log>,
    domain: Domain,
    witness: Domain,
    witness_log: Arc<Log>,
    accounts: Accounts,
    names: Vec<String>,
}

impl Stage {
    async fn on(fixture: &Fixture) -> Self {
        let proxy = Proxy::start(fixture.plain.url()).await.expect("starts");
        let config = EsConfig::from_url(&proxy.url()).expect("an address");
        let store = Arc::new(EsStore::connect(config).await.expect("answers"));
        let (log, witness_log) = (Arc::new(Log::default()), Arc::new(Log::default()));
        let config = || Fixture::config().with_lease(LEASE).with_timeout(Duration::from_secs(15));
        let told = config().with_observer(Some(log.clone()));
        let domain = fixture.domain_on(store, told).await;
        let told = config().with_observer(Some(witness_log.clone()));
        let witness = fixture.domain_on(fixture.store(), told).await;
        let accounts = bank::open(&domain, &fixture.name("accounts")).await;
        let names = bank::names(3);
        bank::fund(&domain, &accounts, &names, OPENING).await;
        // The witness opens the collection, too.
        bank::open(&witness, &fixture.name("accounts")).await;
        Self { proxy, log, domain, witness, witness_log, accounts, names }
    }

    /// Starts a transfer from `a0`, and returns when it is held.
    async fn held(&self, at: Matching, point: Point) -> (Hold, JoinHandle<Result<Receipt, Error>>) {
        let hold = self.proxy.hold(at, point);
        let transfer = bank::begin_to_spread(&self.domain, &self.accounts, &self.names);
        soon(hold.reached()).await;
        (hold, transfer)
    }

    /// Runs a transfer by the witness.
    async fn spread(&self) -> Result<Receipt, Error> {
        bank::spread(&self.witness, &self.accounts, &self.names, &Options::default()).await
    }

    async fn balances(&self) -> Vec<Option<i64>> {
        bank::balances(&self.witness, &self.accounts, &self.names).await
    }

    /// Returns the document as a plain client sees it.
    async fn source(&self, fixture: &Fixture, id: &str) -> Option<String> {
        fixture.plain.source(self.accounts.name(), id).await
    }

    /// Writes the whole document by a plain client.
    async fn replace(&self, fixture: &Fixture, id: &str, source: &str) {
        fixture.plain.put(self.accounts.name(), id, source).await;
    }

    async fn ends(self) {
        soon(self.proxy.settle()).await;
        self.domain.shutdown(PATIENCE).await;
        self.witness.shutdown(PATIENCE).await;
        self.proxy.shutdown().await;
    }
}

/// Waits until a condition holds.
async fn until(what: &str, condition: impl Fn() -> bool) {
    let began = std::time::Instant::now();
    while !condition() {
        assert!(began.elapsed() < PATIENCE, "it never came: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

txn_fixtures::on_both_kinds! {
    indices::made_again_before_the_locks;
    indices::made_again_with_the_locks_taken;
    indices::made_again_after_the_commit;
    indices::made_again_and_written_since;
    pipelines::default_pipeline_is_skipped;
    pipelines::final_pipeline_blocks_the_apply_until_removed;
    records::removed_record_of_a_live_owner_is_restored;
    records::removed_record_of_a_dead_owner_is_undone;
    records::commit_after_a_removed_abort_reports_lost_writes;
    writers::full_replace_before_the_commit;
    writers::full_replace_after_the_commit;
    writers::deletion_after_the_commit;
    writers::removed_lock_keeps_the_content;
    writers::removed_lock_and_another_transaction;
    writers::forged_lock_of_an_unknown_transaction;
    writers::forged_lock_of_a_finished_transaction;
}
