//! Loads with exact books on real servers, through faults, for as long as it is told: `cargo xtask torture`.
//!
//! Two loads run in rounds, on two coordinators: a bank with an exact ledger, and list-append transactions whose
//! history is checked for strict serialisability. In each round faults happen; then they end, and everything is
//! compared. It ends in a table, and fails if there was a violation.

mod cluster;
mod load;
mod report;
mod single;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use txn_testkit::env;

use report::Report;

/// Loads with exact books on real servers, through faults.
#[derive(Debug, Parser)]
struct Arguments {
    /// How long new rounds begin.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// What is tortured.
    #[arg(long)]
    target: Target,
    /// Which faults, in turn; all that the target knows if none is named.
    #[arg(long, value_delimiter = ',')]
    faults: Vec<Fault>,
    /// Workers of each of the two coordinators.
    #[arg(long, default_value_t = 2)]
    workers: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Target {
    /// The Elasticsearch of `TXN_ELASTICSEARCH_URL`.
    Elasticsearch,
    /// The OpenSearch of `TXN_OPENSEARCH_URL`.
    Opensearch,
    /// Three nodes of its own.
    Cluster,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Fault {
    /// Requests and answers are lost, doubled, delayed, refused and cut. For one server.
    Network,
    /// The node with the primary is killed and started again.
    KillPrimary,
    /// The nodes are restarted one after the other.
    RollingRestart,
    /// The node with the primary is paused and goes on.
    StopAndContinue,
    /// Writes are blocked by hand.
    WriteBlock,
    /// Writes are blocked as on a full disk.
    FloodStage,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let span = Duration::from_secs(arguments.seconds);
    let faults = arguments.faults.as_slice();
    let report: Result<Report, String> = match arguments.target {
        Target::Elasticsearch => {
            single::run(&env::elasticsearch_url(), faults, span, arguments.workers).await
        }
        Target::Opensearch => {
            single::run(&env::opensearch_url(), faults, span, arguments.workers).await
        }
        Target::Cluster => cluster::run(faults, span, arguments.workers).await,
    };
    match report {
        Ok(report) => {
            print!("{report}");
            if report.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}
