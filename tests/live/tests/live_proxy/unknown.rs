//! Commits without an answer: `Unknown` first, and the truth from `outcome`.

use std::time::Duration;

use txn_core::{AttemptId, Config, Domain, Error, ErrorKind, Options, TransactionOutcome};
use txn_fixtures::bank::{self, Accounts};
use txn_fixtures::fixture::{Fixture, all_is_applied};
use txn_fixtures::wire;
use txn_testkit::proxy::{FaultKind, Hold, Odds, Point, Proxy, Schedule};

use super::{coordinator, proxy, soon};

const OPENING: i64 = 100;

/// A deadline between the waits and the requests. The deadline is shorter than the waits of the
/// tests, and longer than requests without a hold.
const DEADLINE: Duration = Duration::from_secs(12);

struct Stage {
    proxy: Proxy,
    domain: Domain,
    accounts: Accounts,
    names: Vec<String>,
}

impl Stage {
    async fn on(fixture: &Fixture) -> Self {
        let proxy = proxy(fixture).await;
        let config = Fixture::config().with_lease(Duration::from_millis(500));
        let domain = coordinator(fixture, &proxy, config.with_timeout(DEADLINE)).await;
        let accounts = bank::open(&domain, &fixture.name("accounts")).await;
        let names = bank::names(3);
        bank::fund(&domain, &accounts, &names, OPENING).await;
        Self { proxy, domain, accounts, names }
    }

    /// Starts a transfer, and returns when its commit is held.
    async fn to_the_commit(
        &self,
        point: Point,
    ) -> (Hold, tokio::task::JoinHandle<Result<txn_core::Receipt, Error>>) {
        let hold = self.proxy.hold(wire::commits(), point);
        let transfer = bank::begin_to_spread(&self.domain, &self.accounts, &self.names);
        soon(hold.reached()).await;
        (hold, transfer)
    }

    /// Cuts all requests from now on.
    fn cut_off(&self) {
        let nothing = Odds::none().with(FaultKind::CutBefore, 1.0);
        self.proxy.set_schedule(Schedule::new(0, nothing));
    }

    async fn ends(self, fixture: &Fixture, moved: bool) {
        let Self { proxy, domain, accounts, names } = self;
        proxy.clear();
        soon(proxy.settle()).await;
        let witness = fixture.domain().await;
        all_is_applied(&witness).await;
        let expected = if moved { [98, 101, 101] } else { [OPENING; 3] };
        assert_eq!(bank::balances(&witness, &accounts, &names).await, expected.map(Some));
        // Both processes can continue.
        for domain in [&domain, &witness] {
            let options = Options::default();
            bank::spread(domain, &accounts, &names, &options).await.expect("goes on");
        }
        domain.shutdown(txn_fixtures::fixture::PATIENCE).await;
        fixture.settle(&witness).await;
        let expected = expected.map(|balance| balance + 2);
        let [_, second, third] = expected;
        let found = bank::balances(&witness, &accounts, &names).await;
        assert_eq!(found, [expected[0] - 6, second, third].map(Some));
        proxy.shutdown().await;
    }
}

fn unknown(result: Result<txn_core::Receipt, Error>) -> AttemptId {
    let error = result.expect_err("the outcome is unknown");
    assert_eq!(error.kind(), ErrorKind::Unknown, "{error:?}");
    error.tid().expect("it has a record")
}

/// Opens a witness that soon takes the holder for dead.
async fn witness(fixture: &Fixture) -> Domain {
    let config: Config = Fixture::config().with_lease(Duration::from_millis(500));
    fixture.domain_on(fixture.store(), config).await
}

pub(crate) async fn unanswered_commit_is_committed(fixture: &Fixture) {
    let stage = Stage::on(fixture).await;
    let (hold, transfer) = stage.to_the_commit(Point::After).await;
    stage.cut_off();
    hold.discard();
    let tid = unknown(transfer.await.expect("no panic"));
    let witness = witness(fixture).await;
    let outcome = witness.outcome(tid).await.expect("known");
    assert!(matches!(outcome, TransactionOutcome::Committed { .. }), "{outcome:?}");
    assert_eq!(witness.outcome(tid).await.expect("known"), outcome);
    witness.shutdown(txn_fixtures::fixture::PATIENCE).await;
    stage.ends(fixture, true).await;
}

pub(crate) async fn commit_that_never_arrived_is_aborted(fixture: &Fixture) {
    let stage = Stage::on(fixture).await;
    let (hold, transfer) = stage.to_the_commit(Point::Before).await;
    stage.cut_off();
    hold.discard();
    let tid = unknown(transfer.await.expect("no panic"));
    let witness = witness(fixture).await;
    assert_eq!(witness.outcome(tid).await.expect("known"), TransactionOutcome::Aborted);
    witness.shutdown(txn_fixtures::fixture::PATIENCE).await;
    stage.ends(fixture, false).await;
}

pub(crate) async fn commit_arriving_after_an_abort_is_void(fixture: &Fixture) {
    let stage = Stage::on(fixture).await;
    let (hold, transfer) = stage.to_the_commit(Point::Before).await;
    stage.cut_off();
    // The request stays under way, and its owner gives up.
    let tid = unknown(transfer.await.expect("no panic"));
    let witness = witness(fixture).await;
    assert_eq!(witness.outcome(tid).await.expect("known"), TransactionOutcome::Aborted);
    hold.release();
    soon(stage.proxy.settle()).await;
    assert_eq!(witness.outcome(tid).await.expect("known"), TransactionOutcome::Aborted);
    witness.shutdown(txn_fixtures::fixture::PATIENCE).await;
    stage.ends(fixture, false).await;
}
