//! A load under random faults, with an exact ledger.

use std::time::Duration;

use txn_core::Config;
use txn_fixtures::fixture::{Fixture, PATIENCE};
use txn_fixtures::ledger::{Ledger, Plan};
use txn_fixtures::wire;
use txn_testkit::proxy::{FaultKind, Odds, Point, Schedule};

use super::{proxy, soon, through};

/// The required transfers, and the required faults of each kind.
const TRANSFERS: u64 = 150;
const FAULTS: u64 = 5;

/// The timeout of a transfer. An outage lasts as long.
const DEADLINE: Duration = Duration::from_secs(5);

pub(crate) async fn transfers_under_rough_faults(fixture: &Fixture) {
    let proxy = proxy(fixture).await;
    let coordinators = vec![through(&proxy).await, through(&proxy).await];
    let config = Config::default()
        .with_lease(Duration::from_millis(500))
        .with_janitor_interval(Some(Duration::from_secs(2)))
        .with_timeout(DEADLINE);
    let plan = Plan::new(&fixture.name("rough")).with_accounts(40).with_config(config).with_seed(7);
    let ledger = Ledger::open(plan, coordinators, fixture.store()).await;

    let rough = Schedule::new(7, Odds::rough());
    proxy.set_schedule(rough.clone());
    let usual = || FaultKind::ALL.into_iter().filter(|kind| *kind != FaultKind::RefuseMissing);
    let every_kind = || usual().all(|kind| proxy.counts().of(kind) >= FAULTS);
    let enough = async {
        ledger.acknowledges(TRANSFERS).await;
        while !every_kind() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // After a carried-out commit the network is cut until its owner has given up.
        let unknown = ledger.counts().unknown;
        while ledger.counts().unknown == unknown {
            // Only a record that is created as committed, which no recovery has touched.
            let commit = wire::commits().with_body("{\"create\":");
            let hold = proxy.hold(commit, Point::After);
            hold.reached().await;
            let nothing = Odds::none().with(FaultKind::CutBefore, 1.0);
            proxy.set_schedule(Schedule::new(7, nothing));
            hold.discard();
            tokio::time::sleep(DEADLINE).await;
            proxy.set_schedule(rough.clone());
        }
        ledger.acknowledges(TRANSFERS / 10).await;
    };
    let bounded = tokio::time::timeout(2 * PATIENCE, enough);
    ledger.run(3, async { bounded.await.expect("transfers go on") }).await;
    proxy.clear();
    soon(proxy.settle()).await;

    let wrong = ledger.verify().await;
    let (counts, faults) = (ledger.counts(), proxy.counts());
    println!("{counts:?}\n{faults:?}");
    assert_eq!(wrong, Vec::<String>::new(), "{counts:?} {faults:?}");
    assert!(counts.acknowledged >= TRANSFERS && counts.ticks > 0 && counts.looks > 0);
    assert!(every_kind(), "{faults:?}");
    assert!(counts.settled_committed + counts.settled_aborted > 0, "{counts:?}");
    ledger.close().await;
    fixture.drop_domain(&fixture.name("rough")).await;
    proxy.shutdown().await;
}
