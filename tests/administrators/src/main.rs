//! `cargo xtask administrators`: every case on one server, and a table.
//!
//! A few cases run concurrently.

use std::panic::AssertUnwindSafe;
use std::process::ExitCode;

use clap::Parser;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use futures::{FutureExt as _, StreamExt as _, stream};
use txn_administrators::cases::{CASES, Case, PLANTED};
use txn_administrators::report;
use txn_administrators::server::Server;
use txn_testkit::servers::ServerKind;

/// Administrators' work during a load of transactions.
#[derive(Debug, Parser)]
struct Arguments {
    /// The server; the environment holds its address.
    #[arg(long, value_parser = targets())]
    target: ServerKind,
    /// The cases; all by default.
    #[arg(long, value_delimiter = ',', value_parser = names())]
    cases: Vec<String>,
    /// The number of concurrent cases.
    #[arg(long, default_value_t = 4)]
    at_once: usize,
}

fn targets() -> impl clap::builder::TypedValueParser<Value = ServerKind> {
    PossibleValuesParser::new(ServerKind::VERSIONS.map(ServerKind::name))
        .try_map(|name| name.parse::<ServerKind>())
}

fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(CASES.iter().map(|case| case.name))
}

#[tokio::main]
async fn main() -> ExitCode {
    let Arguments { target, cases, at_once } = Arguments::parse();
    let server = Server::of(target);
    let is_wanted = |case: &&Case| cases.is_empty() || cases.iter().any(|name| name == case.name);
    let runs_all = cases.is_empty();
    let cases: Vec<&Case> = CASES.iter().filter(is_wanted).collect();
    let count = cases.len();
    let mut ends = stream::iter(cases)
        .map(|case| {
            let server = server.clone();
            let run = async move { case.run(&server).await };
            async move { (case, AssertUnwindSafe(run).catch_unwind().await) }
        })
        .buffer_unordered(at_once.max(1));
    let mut failed = 0;
    while let Some((case, end)) = ends.next().await {
        match end {
            Ok(outcome) => {
                failed += usize::from(!outcome.violations.is_empty());
                print!("{}", report::lines(case, &outcome));
            }
            // The message of the panic is printed already.
            Err(_) => {
                failed += 1;
                println!("{:32} FAILED by a panic", case.name);
            }
        }
    }
    if runs_all {
        let planted = AssertUnwindSafe(PLANTED.run(&server)).catch_unwind().await;
        // A deleted pair and a changed balance.
        if planted.map_or(0, |outcome| outcome.violations.len()) < 2 {
            failed += 1;
            println!("{:32} FAILED: the checks do not detect a planted fault", PLANTED.name);
        }
    }
    println!("{}: {count} cases, {failed} failed", target.name());
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
