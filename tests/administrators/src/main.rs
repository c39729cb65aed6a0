//! `cargo xtask administrators`: every case on one server, a few at the same time, and a table in the end.

use std::panic::AssertUnwindSafe;
use std::process::ExitCode;

use clap::Parser;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use futures::{FutureExt as _, StreamExt as _, stream};
use txn_administrators::cases::{CASES, Case};
use txn_administrators::report;
use txn_administrators::server::Server;
use txn_testkit::servers::ServerKind;

/// What administrators do, beside a load of transactions.
#[derive(Debug, Parser)]
struct Arguments {
    /// The server; the environment names its address.
    #[arg(long, value_parser = targets())]
    target: ServerKind,
    /// Which cases; all if none is named.
    #[arg(long, value_delimiter = ',', value_parser = names())]
    cases: Vec<String>,
    /// How many cases run at the same time.
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
            // Its message is printed already.
            Err(_) => {
                failed += 1;
                println!("{:32} FAILED by a panic", case.name);
            }
        }
    }
    println!("{}: {count} cases, {failed} failed", target.name());
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
