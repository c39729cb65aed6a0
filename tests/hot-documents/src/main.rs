//! Prints the tables of the simulation.

use clap::{Parser, ValueEnum};
use txn_hot_documents::report::Report;

#[derive(Parser)]
#[command(about = "Simulates processes that contend for hot documents, and prints tables")]
struct Arguments {
    #[arg(required = true)]
    scenarios: Vec<Scenario>,
    /// The seeds, separated by commas. Seeds 1 to 10 chose the numbers of the policy.
    #[arg(long, value_delimiter = ',', default_values_t = [11, 12, 13])]
    seeds: Vec<u64>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Scenario {
    Table,
    Shop,
    Slow,
    Lone,
    Faults,
    Server,
    Kinds,
    Wide,
    Collisions,
    Open,
}

fn main() {
    let Arguments { scenarios, seeds } = Arguments::parse();
    let report = Report { seeds };
    for scenario in scenarios {
        match scenario {
            Scenario::Table => report.table(),
            Scenario::Shop => report.shop(),
            Scenario::Slow => report.slow(),
            Scenario::Lone => report.lone(),
            Scenario::Faults => report.faults(),
            Scenario::Server => report.server(),
            Scenario::Kinds => report.kinds(),
            Scenario::Wide => report.wide(),
            Scenario::Collisions => report.collisions(),
            Scenario::Open => report.open(),
        }
        println!();
    }
}
