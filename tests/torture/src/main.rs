//! Loads with exact ledgers on real servers, through faults: `cargo xtask torture`.
//!
//! Two loads run in rounds, on several coordinators: a bank with an exact ledger, and list-append
//! transactions. The history of the lists is checked for strict serialisability. In each round
//! faults happen and end, and then all results are checked. The run prints a table, and fails after
//! a violation.
//!
//! With `--system` the run is a kill soak of a system on the engine. Its workers are processes of
//! this program.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use txn_testkit::env;
use txn_testkit::servers::ServerKind;
use txn_torture::fault::Fault;
use txn_torture::load::{Shape, Size};
use txn_torture::power_loss::{self, Guarantee};
use txn_torture::report::Report;
use txn_torture::systems::{self, OtherVersion, Plan, System};
use txn_torture::{cluster, life, overload, partitions, single, upgrade};

/// Loads with exact ledgers on real servers, through faults.
#[derive(Debug, Parser)]
struct Arguments {
    /// The time in which new rounds begin, in seconds.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    #[arg(long)]
    target: Target,
    /// The faults, in turn; all faults of the target by default.
    #[arg(long, value_delimiter = ',')]
    faults: Vec<Fault>,
    /// The seed of the random choices; random by default. For partitions, power losses, an overload
    /// and a server's life.
    #[arg(long, conflicts_with = "system")]
    seed: Option<u64>,
    /// The guarantee of the disks of power losses for names in folders.
    #[arg(long, default_value = "journaled")]
    disk: Guarantee,
    /// The heap of the server of an overload, in MiB.
    #[arg(long, default_value_t = 128)]
    heap: u32,
    /// The size of the load.
    #[command(flatten)]
    size: Size,
    /// A kill soak of this system instead, on one server.
    #[arg(long, conflicts_with_all = ["faults", "coordinators", "accounts"])]
    system: Option<System>,
    /// This program in another version, for every second worker of the soak.
    #[arg(long, requires = "system")]
    other: Option<PathBuf>,
    /// Run both versions in turn, each for 10 s, and kill all workers at each change.
    #[arg(long, requires = "other")]
    in_turn: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Target {
    /// The Elasticsearch 8 of `TXN_ELASTICSEARCH_URL`.
    Elasticsearch,
    /// The Elasticsearch 7 of `TXN_ELASTICSEARCH7_URL`.
    Elasticsearch7,
    /// The Elasticsearch 9 of `TXN_ELASTICSEARCH9_URL`.
    Elasticsearch9,
    /// The OpenSearch 3 of `TXN_OPENSEARCH_URL`.
    Opensearch,
    /// The OpenSearch 2 of `TXN_OPENSEARCH2_URL`.
    Opensearch2,
    /// Three own nodes.
    Cluster,
    /// Three own nodes of Elasticsearch 8 in network namespaces. Needs root.
    Partitions,
    /// Three own nodes of OpenSearch 3 in network namespaces. Needs root.
    PartitionsOpensearch,
    /// An own Elasticsearch 8 on a disk that loses its power. Needs root.
    PowerLoss,
    /// An own OpenSearch 3 on a disk that loses its power. Needs root.
    PowerLossOpensearch,
    /// Three own nodes of Elasticsearch 8 that lose their power. The disks lose their power at
    /// once. Needs root.
    PowerLossCluster,
    /// An own Elasticsearch 7 that becomes 8, and then 9.
    Upgrade,
    /// An own OpenSearch 2 that becomes 3.
    UpgradeOpensearch,
    /// An own Elasticsearch 8 with a small heap, and 1,000 clients.
    Overload,
    /// An own OpenSearch 3 with a small heap, and 1,000 clients.
    OverloadOpensearch,
    /// Three own nodes of Elasticsearch 8, with the jobs of administrators.
    Life,
    /// Three own nodes of OpenSearch 3, with the jobs of administrators.
    LifeOpensearch,
}

#[tokio::main]
async fn main() -> ExitCode {
    // A worker of a soak.
    let mut words = std::env::args().skip(1);
    if let (Some("--worker"), Some(job)) = (words.next().as_deref(), words.next()) {
        return match systems::work(&job).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => failed(&why),
        };
    }
    let arguments = Arguments::parse();
    let span = Duration::from_secs(arguments.seconds);
    let report = match arguments.system {
        Some(system) => soak(system, &arguments, span).await,
        None => load(&arguments, span).await,
    };
    match report {
        Ok(report) => {
            print!("{report}");
            if report.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(why) => failed(&why),
    }
}

fn failed(why: &str) -> ExitCode {
    eprintln!("error: {why}");
    ExitCode::FAILURE
}

impl Target {
    /// Returns the address of the server; `None` for own nodes.
    fn url(self) -> Option<String> {
        match self {
            Self::Elasticsearch => Some(env::elasticsearch_url()),
            Self::Elasticsearch7 => Some(env::elasticsearch7_url()),
            Self::Elasticsearch9 => Some(env::elasticsearch9_url()),
            Self::Opensearch => Some(env::opensearch_url()),
            Self::Opensearch2 => Some(env::opensearch2_url()),
            _ => None,
        }
    }
}

async fn soak(system: System, arguments: &Arguments, span: Duration) -> Result<Report, String> {
    let url = arguments.target.url().ok_or("a soak of a system runs on one server")?;
    let binary = std::env::current_exe().map_err(|error| error.to_string())?;
    let in_turn = arguments.in_turn;
    let other = arguments.other.clone().map(|binary| OtherVersion { binary, in_turn });
    Plan::new(system, &url, span, binary).with_other(other).run().await
}

async fn load(arguments: &Arguments, span: Duration) -> Result<Report, String> {
    let (faults, shape) = (arguments.faults.as_slice(), arguments.size.or(Shape::USUAL));
    // Short enough to type.
    let seed = arguments.seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
    let cut = |kind| partitions::run(kind, faults, seed, span, shape);
    let lose = |kind| power_loss::run(kind, arguments.disk, faults, seed, span, shape);
    let overload = |kind| {
        let shape = Shape { seed, ..arguments.size.or(overload::USUAL) };
        overload::run(kind, arguments.heap, faults, span, shape)
    };
    let live = |kind| life::run(kind, faults, seed, span, shape);
    match arguments.target {
        Target::Overload => overload(ServerKind::Elasticsearch).await,
        Target::OverloadOpensearch => overload(ServerKind::OpenSearch).await,
        Target::Life => live(ServerKind::Cluster).await,
        Target::LifeOpensearch => live(ServerKind::OpenSearchCluster).await,
        Target::Partitions => cut(ServerKind::Partitioned).await,
        Target::PartitionsOpensearch => cut(ServerKind::PartitionedOpenSearch).await,
        Target::PowerLoss => lose(ServerKind::Elasticsearch).await,
        Target::PowerLossOpensearch => lose(ServerKind::OpenSearch).await,
        Target::PowerLossCluster => lose(ServerKind::Cluster).await,
        Target::Upgrade => upgrade::run(&upgrade::ELASTICSEARCH, faults, span, shape).await,
        Target::UpgradeOpensearch => upgrade::run(&upgrade::OPENSEARCH, faults, span, shape).await,
        target => match target.url() {
            Some(url) => single::run(&url, faults, span, shape).await,
            None => cluster::run(faults, span, shape).await,
        },
    }
}
