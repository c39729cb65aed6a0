//! `cargo xtask bench`.

use std::path::PathBuf;

use clap::Args;
use txn_testkit::env::ELASTICSEARCH_URL;
use txn_testkit::servers::ServerKind;

use crate::cargo::cargo;
use crate::servers::Borrowed;
use crate::{Failure, prerequisites};

/// The parts to measure, and the server.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// Measure less: within five minutes after the build.
    #[arg(long)]
    quick: bool,
    /// Also write the results to this file.
    #[arg(long)]
    json: Option<PathBuf>,
    /// The address of a server, instead of one that is started.
    #[arg(long)]
    target: Option<String>,
    /// Measure only these parts, and write no report.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Run this cargo benchmark instead.
    #[arg(long, conflicts_with_all = ["quick", "json", "only"])]
    bench: Option<String>,
    /// Arguments for that benchmark.
    #[arg(last = true, requires = "bench")]
    arguments: Vec<String>,
}

impl Bench {
    /// Whether TLS is measured, too.
    fn is_with_tls(&self) -> bool {
        match self.only.as_slice() {
            [] => !self.quick && self.bench.is_none(),
            only => only.iter().any(|part| part == "http"),
        }
    }

    /// Runs the benchmark to its end.
    pub(crate) fn run(self) -> Result<(), Failure> {
        let mut kinds = vec![ServerKind::Elasticsearch];
        if self.is_with_tls() {
            kinds.push(ServerKind::Secured);
        }
        let (servers, variables) = match &self.target {
            Some(url) => (None, vec![(ELASTICSEARCH_URL, url.clone())]),
            None => {
                prerequisites::for_servers(&kinds)?;
                let servers = Borrowed::up(&kinds)?;
                let variables = servers.variables().to_vec();
                (Some(servers), variables)
            }
        };
        let mut command = match &self.bench {
            Some(name) => {
                let mut command = cargo("bench -p txn-benches --bench");
                command.arg(name).arg("--").args(&self.arguments);
                command
            }
            None => {
                let mut command = cargo("run --profile bench -q -p txn-benches --bin report --");
                if self.quick {
                    command.arg("--quick");
                }
                if let Some(file) = &self.json {
                    command.arg("--json").arg(std::path::absolute(file)?);
                }
                if !self.only.is_empty() {
                    command.arg("--only").arg(self.only.join(","));
                }
                command
            }
        };
        let status = command.envs(variables).status()?;
        drop(servers);
        if status.success() { Ok(()) } else { Err(format!("the benchmark: {status}").into()) }
    }
}
