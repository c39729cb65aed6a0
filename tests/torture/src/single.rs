//! One server behind a proxy with network faults.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use txn_testkit::proxy::{Odds, Proxy, Schedule};

use crate::fault::Fault;
use crate::load::{Load, Shape, Timing};
use crate::report::{Report, progress};

/// The duration of the faults in each round.
const ROUND: Duration = Duration::from_secs(15);

/// Runs the load for `span`, and reports.
///
/// # Errors
/// If the load cannot run.
pub async fn run(
    url: &str,
    faults: &[Fault],
    span: Duration,
    shape: Shape,
) -> Result<Report, String> {
    if faults.iter().any(|fault| *fault != Fault::Network) {
        return Err(
            "one server knows the fault `network` only; the other faults need `cluster`".to_owned()
        );
    }
    let proxy = Proxy::start(url).await.map_err(|error| format!("no proxy: {error}"))?;
    let mut load = open(&proxy.url(), url, shape).await?;
    let (began, bar) = (Instant::now(), progress(span));
    let mut rounds = 0;
    while began.elapsed() < span {
        proxy.set_schedule(Schedule::new(rounds, Odds::rough()));
        let faults = async {
            tokio::time::sleep(ROUND).await;
            proxy.clear();
            proxy.settle().await;
        };
        load.round(shape.workers, faults).await;
        rounds += 1;
        bar.set_position(began.elapsed().as_secs());
        bar.set_message(load.line());
    }
    bar.finish_and_clear();
    let counts = proxy.counts().faults;
    let counts: BTreeMap<String, u64> =
        counts.into_iter().map(|(kind, times)| (format!("{kind:?}"), times)).collect();
    let violations = load.violations.clone();
    let report = Report::new(began, rounds, load.counted(), &counts, violations);
    load.close().await;
    proxy.shutdown().await;
    Ok(report)
}

/// Opens the load on a server.
///
/// The load has the address of the coordinators and that of the checks.
pub(crate) async fn open(url: &str, witness: &str, shape: Shape) -> Result<Load, String> {
    let name = txn_fixtures::unique("torture");
    let urls_of = |_| vec![url.to_owned()];
    Load::open(&name, shape, Timing::ONE_SERVER, urls_of, vec![witness.to_owned()]).await
}
