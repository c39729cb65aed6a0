//! Three nodes, and jobs of an administrator during the load.

mod jobs;
mod schedule;

use std::time::{Duration, Instant};

use futures::future::try_join_all;
use indicatif::ProgressBar;
use txn_fixtures::faults::Cluster;
use txn_testkit::servers::ServerKind;

use crate::cluster::open;
use crate::fault::Fault;
use crate::load::{Load, Shape, goes_on};
use crate::report::{Report, missed, progress};
use jobs::Administrator;
use schedule::{Round, Schedule};

/// The duration of the load before the jobs of a round.
const CALM: Duration = Duration::from_secs(2);

/// The number of transfers after the jobs of a round.
const TRANSFERS: u64 = 20;

/// Runs the load on three nodes of this kind, and reports.
///
/// The load runs for `span`.
///
/// # Errors
/// If the load cannot run, or a job fails.
pub async fn run(
    kind: ServerKind,
    faults: &[Fault],
    seed: u64,
    span: Duration,
    shape: Shape,
) -> Result<Report, String> {
    let mut schedule = Schedule::new(seed, faults)?;
    eprintln!("seed {seed}");
    let cluster = Cluster::start_kind(kind).await;
    let mut load = open(&cluster, shape, |_| cluster.urls().to_vec()).await?;
    let administrator = Administrator::new(&cluster, load.ledger(), load.lists());
    let (began, bar) = (Instant::now(), progress(span));
    let mut rounds = 0;
    while let (true, Some(round)) = (began.elapsed() < span, schedule.next()) {
        rounds += 1;
        let known = load.violations.len();
        play(&mut load, shape, &round, &administrator, &cluster)
            .await
            .map_err(|why| format!("seed {seed}, round {rounds}: {round}: {why}"))?;
        show(rounds, &round, &administrator, &bar);
        load.show_round(rounds, known, began, &bar);
    }
    bar.finish_and_clear();
    let mut lines = vec![("seed".to_owned(), seed)];
    lines.extend(administrator.lines());
    lines.extend(load.refused());
    lines.extend(load.counted());
    let jobs = administrator.counts();
    let mut violations = load.violations.clone();
    violations.extend(missed(span, schedule.planned(), &jobs));
    let report = Report::new(began, rounds, lines, &jobs, violations);
    load.close().await;
    cluster.end().await;
    Ok(report)
}

/// Plays one round: calm, the jobs, and further transfers.
async fn play(
    load: &mut Load,
    shape: Shape,
    round: &Round,
    administrator: &Administrator,
    cluster: &Cluster,
) -> Result<(), String> {
    // Transactions on a closed index are refused for this reason.
    load.permit(round.apart.is_some().then_some("closed"));
    let ledger = load.ledger();
    let mut result = Ok(());
    let jobs = async {
        try_join_all(round.together.iter().map(|job| administrator.run(job))).await?;
        if let Some(job) = &round.apart {
            administrator.run(job).await?;
        }
        goes_on(&ledger, TRANSFERS).await
    };
    let course = async {
        tokio::time::sleep(CALM).await;
        result = jobs.await;
        cluster.is_green().await;
    };
    load.round(shape.workers, Box::pin(course)).await;
    result
}

fn show(number: u64, round: &Round, administrator: &Administrator, bar: &ProgressBar) {
    bar.suspend(|| {
        eprintln!("round {number}: {round}");
        for note in administrator.take_notes() {
            eprintln!("  {note}");
        }
    });
}
