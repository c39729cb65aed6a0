//! Each fault at each request of a transaction: it commits, once.

use std::time::Duration;

use txn_core::{Error, Options, WaitFor};
use txn_fixtures::bank::{self, Account, account};
use txn_fixtures::fixture::{Fixture, all_is_applied};
use txn_fixtures::wire;
use txn_testkit::proxy::{Fault, FaultKind, Matching, Route};

use super::{coordinator, proxy, soon};

const OPENING: i64 = 1_000;

/// A delay after which later transfers have come first. The delay is short enough for the test.
const LATE: Duration = Duration::from_millis(300);

pub(crate) async fn every_fault_at_every_step(fixture: &Fixture) {
    let proxy = proxy(fixture).await;
    let domain = coordinator(fixture, &proxy, Fixture::config()).await;
    let accounts = bank::open(&domain, &fixture.name("accounts")).await;
    let names = bank::names(3);
    bank::fund(&domain, &accounts, &names, OPENING).await;
    let faults = [
        Fault::LoseAnswer,
        Fault::CutBefore,
        Fault::DelayBefore(LATE / 10),
        Fault::DelayAfter(LATE / 10),
        Fault::Duplicate,
        Fault::DuplicateLate(LATE),
        Fault::TooManyRequests,
        Fault::ServiceUnavailable,
        Fault::CutAnswer,
    ];
    // Refusals of carried-out writes have a test of their own.
    let kinds: Vec<FaultKind> =
        FaultKind::ALL.into_iter().filter(|kind| !kind.is_refusal()).collect();
    assert_eq!(faults.len(), kinds.len());
    let steps = [
        ("read", Matching::route(Route::MultiGet)),
        ("lock", wire::locks()),
        ("validate", wire::validates()),
        ("commit", wire::commits()),
        ("apply", wire::applies()),
        ("finish", wire::finishes()),
    ];
    let options = Options::default().with_wait_for(WaitFor::Apply);
    let mut moved = 0;
    for (step, matching) in &steps {
        for fault in faults {
            proxy.inject(matching.clone(), fault);
            // The third account is only read. The slip is inserted and deleted in turn.
            domain
                .run::<_, Error, _>(&options, async |tx| {
                    let ids = names.iter().map(String::as_str).chain(["slip"]);
                    let found = tx.get_many(&accounts, ids).await?;
                    let [Some(from), Some(to), Some(_), slip] = found[..] else {
                        panic!("exist: {found:?}")
                    };
                    tx.put(&accounts, "a0", &account(from.balance - 1))?;
                    tx.put(&accounts, "a1", &account(to.balance + 1))?;
                    match slip {
                        Some(_) => tx.delete(&accounts, "slip"),
                        None => tx.insert(&accounts, "slip", &account(0)),
                    }
                })
                .await
                .unwrap_or_else(|error| panic!("{fault:?} at {step}: {error:?}"));
            moved += 1;
            let slip = (moved % 2 == 1).then_some(Account { balance: 0 });
            let found = domain.reader().verified().get(&accounts, "slip").await.expect("reads");
            assert_eq!(found, slip, "{fault:?} at {step}");
            let found = bank::balances(&domain, &accounts, &names).await;
            let expected = [OPENING - moved, OPENING + moved, OPENING].map(Some);
            assert_eq!(found, expected, "{fault:?} at {step}");
        }
    }
    soon(proxy.settle()).await;
    let counts = proxy.counts();
    let each = u64::try_from(steps.len()).expect("a few");
    for kind in kinds {
        assert_eq!(counts.of(kind), each, "{kind:?} did not happen at every step: {counts:?}");
    }
    assert!(domain.shutdown(txn_fixtures::fixture::PATIENCE).await, "drained");
    let witness = fixture.domain().await;
    all_is_applied(&witness).await;
    let expected = [OPENING - moved, OPENING + moved, OPENING].map(Some);
    assert_eq!(bank::balances(&witness, &accounts, &names).await, expected);
    assert_eq!(witness.reader().verified().get(&accounts, "slip").await.expect("reads"), None);
    fixture.settle(&witness).await;
    proxy.shutdown().await;
}
