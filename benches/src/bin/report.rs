//! Measures, prints the table of aims with results, and writes the report.
//!
//! `cargo xtask bench` calls this program.

use std::path::PathBuf;

use clap::Parser;
use txn_benches::Failure;
use txn_benches::report::{Report, Scale, Section};
use txn_benches::systems::gateway::serve;
use txn_benches::systems::gateway_clients::Assignment;

/// Measures transactions and plain requests, and writes a report.
#[derive(Debug, Parser)]
struct Arguments {
    /// The address of the server.
    #[arg(long, env = "TXN_ELASTICSEARCH_URL")]
    target: String,
    /// Measure less: within five minutes.
    #[arg(long)]
    quick: bool,
    /// Also write the results to this file.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Measure only these parts, and print the table without writing the report.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Section>,
    /// Send the requests of this assignment. The report itself starts such processes.
    #[arg(long, hide = true)]
    clients: Option<String>,
    /// Serve the gateway of this domain. The report itself starts such a process.
    #[arg(long, hide = true)]
    gateway: Option<String>,
    /// The folder of the report.
    #[arg(long, default_value = "docs/benchmarks")]
    folder: PathBuf,
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let Arguments { target, quick, json, only, clients, gateway, folder } = Arguments::parse();
    if let Some(assignment) = clients {
        return serde_json::from_str::<Assignment>(&assignment)?.carry_out().await;
    }
    if let Some(domain) = gateway {
        return serve(&target, &domain).await;
    }
    let scale = if quick { Scale::quick() } else { Scale::full() };
    let report = Report::make(&target, scale, &only).await?;
    if let Some(json) = json {
        report.write_figures(&json)?;
    }
    println!("{}", report.table());
    print!("{:.0} s", report.took);
    if only.is_empty() {
        report.write(&folder)?;
        print!("; the report is in {}", folder.display());
    }
    println!();
    Ok(())
}
