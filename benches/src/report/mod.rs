//! The report: the table of aims with results, plots, and all measurements.

mod alone;
mod documents;
mod findings;
mod gateway;
mod growth;
mod http;
mod loads;
mod machine;
mod overload;
mod page;
mod peer;
mod plots;
mod pools;
mod scale;
mod shop;
mod systems;
mod table;

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use clap::ValueEnum;
use serde::Serialize;

pub use scale::Scale;

use crate::Failure;
use crate::seed::Way;
use crate::world::World;
use findings::Findings;
use machine::Machine;
use table::{Aim, Row};

/// A whole report.
#[derive(Debug, Serialize)]
pub struct Report {
    machine: Machine,
    scale: Scale,
    findings: Findings,
    /// The duration of the report, in seconds.
    pub took: f64,
}

impl Report {
    /// Measures on this server: everything, or only some sections.
    ///
    /// # Errors
    /// If the server does not answer. A failure of a section becomes a row of the table instead.
    pub async fn make(url: &str, scale: Scale, only: &[Section]) -> Result<Self, Failure> {
        let began = Instant::now();
        let world = World::open(url).await?;
        let machine = Machine::look(world.plain()).await?;
        let peer = if machine.has_scripts { Way::Scripts } else { Way::Conditions };
        let mut findings = Findings::default();
        for section in Section::ALL {
            if !only.is_empty() && !only.contains(&section) {
                continue;
            }
            eprintln!("{:>5.0} s  {section:?}", began.elapsed().as_secs_f64());
            if section.is_for_full_runs() && scale.quick && only.is_empty() {
                let why = "only without --quick".to_owned();
                findings.rows.push(Row::missing(section.name(), Aim::Words(String::new()), why));
            } else if let Err(failure) =
                section.run(&world, (url, peer), &scale, &mut findings).await
            {
                let why = failure.to_string();
                findings.rows.push(Row::missing(section.name(), Aim::Words(String::new()), why));
            }
        }
        findings.rows.extend(books(&findings));
        world.close().await?;
        Ok(Self { machine, scale, findings, took: began.elapsed().as_secs_f64() })
    }

    /// Returns the table, for a terminal.
    #[must_use]
    pub fn table(&self) -> String {
        table::plain(&self.findings.rows)
    }

    /// Writes the page, its plots and the results into a folder.
    ///
    /// # Errors
    /// If the folder cannot be written.
    pub fn write(&self, folder: &Path) -> Result<(), Failure> {
        std::fs::create_dir_all(folder)?;
        let plots = plots::plots(&self.findings)?;
        for plot in &plots {
            std::fs::write(folder.join(plot.file), &plot.svg)?;
        }
        let page = page::page(&self.machine, &self.scale, &self.findings, &plots);
        std::fs::write(folder.join("report.md"), page)?;
        self.write_figures(&folder.join("report.json"))
    }

    /// Writes only the results, as JSON.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write_figures(&self, file: &Path) -> Result<(), Failure> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        Ok(std::fs::write(file, text)?)
    }
}

/// The parts of a report, in order.
///
/// The overload depends on the capacity that the spread load found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Section {
    /// One client: latencies by the number of documents.
    OneClient,
    /// The counted cost of each path.
    Paths,
    /// More and more clients on 10,000 accounts.
    Spread,
    /// Ten accounts, and a counter.
    Hot,
    /// Fewer and fewer accounts.
    Contention,
    /// Several processes.
    Processes,
    /// The comparison with the original two-phase commit.
    TwoPhaseCommit,
    /// Processor time by the number of documents.
    Sizes,
    /// Processor time by open, kept and recovered transactions.
    Growth,
    /// Twice the capacity.
    Overload,
    /// Loads with reads.
    Mixes,
    /// The workload of the account transactions.
    Pools,
    /// Requests, events and locks, each with a peer.
    Systems,
    /// A shop in one, two and four processes, and in a file.
    Shop,
    /// The gateway: its clients beside the library and plain requests.
    Gateway,
    /// Documents of several sizes, and the writes of their locks.
    Documents,
    /// Connections, compression, TLS.
    Http,
}

impl Section {
    const ALL: [Self; 17] = [
        Self::OneClient,
        Self::Paths,
        Self::Spread,
        Self::Hot,
        Self::Contention,
        Self::Processes,
        Self::TwoPhaseCommit,
        Self::Sizes,
        Self::Growth,
        Self::Overload,
        Self::Mixes,
        Self::Pools,
        Self::Systems,
        Self::Shop,
        Self::Gateway,
        Self::Documents,
        Self::Http,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::OneClient => "1 client",
            Self::Paths => "round trips and document writes",
            Self::Spread => "many clients, spread",
            Self::Hot => "hot accounts",
            Self::Contention => "throughput against contention",
            Self::Processes => "several processes",
            Self::TwoPhaseCommit => "the seed's two-phase commit",
            Self::Sizes => "processor time in N",
            Self::Growth => "processor time in what is open, kept and recovered",
            Self::Overload => "overload",
            Self::Mixes => "95 and 50 of 100 only read; uniform, zipf 0.99, hot",
            Self::Pools => "the workload of the account transactions",
            Self::Systems => "the systems beside their peers",
            Self::Shop => "a shop",
            Self::Gateway => "the gateway",
            Self::Documents => "documents of 200 bytes, of 20 kB, and with 50 indexed fields",
            Self::Http => "connections, compression, TLS",
        }
    }

    fn is_for_full_runs(self) -> bool {
        matches!(
            self,
            Self::Mixes | Self::Pools | Self::Shop | Self::Gateway | Self::Documents | Self::Http
        )
    }

    async fn run(
        self,
        world: &Arc<World>,
        (url, peer): (&str, Way),
        scale: &Scale,
        findings: &mut Findings,
    ) -> Result<(), Failure> {
        match self {
            Self::OneClient => alone::latencies(world, scale, findings).await,
            Self::Paths => alone::paths(world, findings).await,
            Self::Spread => loads::spread(world, scale, findings).await,
            Self::Hot => loads::hot(world, scale, findings).await,
            Self::Contention => loads::contention(world, scale, findings).await,
            Self::Processes => loads::processes(world, scale, findings).await,
            Self::TwoPhaseCommit => peer::peer(url, peer, scale, findings).await,
            Self::Sizes => loads::sizes(world, scale, findings).await,
            Self::Growth => growth::growth(scale, findings).await,
            Self::Overload => overload::overload(world, scale, findings).await,
            Self::Mixes => loads::mixes(world, scale, findings).await,
            Self::Pools => pools::pools(world, url, peer, findings).await,
            Self::Systems => systems::systems(url, peer, scale, findings).await,
            Self::Shop => shop::shop(url, scale, findings).await,
            Self::Gateway => gateway::gateway(world, scale, findings).await,
            Self::Documents => documents::documents(url, scale, findings).await,
            Self::Http => http::http(url, scale, findings).await,
        }
    }
}

/// Returns the row about losses of transactions in all loads.
fn books(findings: &Findings) -> Option<Row> {
    let ours: Vec<_> = findings.loads.iter().filter(|(_, one)| !one.cell.way.is_plain()).collect();
    let off = ours.iter().map(|(_, one)| one.drift.lost.abs() + one.drift.money.abs());
    let off = off.sum::<i64>() as f64;
    let detail = format!("{} loads, each compared behind it", ours.len());
    let what = "changes and money that transactions lost, in all loads";
    (!ours.is_empty()).then(|| Row::found(what, Aim::AtMost(0.0), off, detail))
}
