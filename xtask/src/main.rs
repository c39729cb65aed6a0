//! `cargo xtask`: the servers that tests need, and every check in one command.

mod administrators;
mod bench;
mod book;
mod cargo;
mod checks;
mod circles;
mod links;
mod live;
mod package;
mod prerequisites;
mod programs;
mod servers;
mod steps;
mod tidy;
mod times;
mod torture;

use std::error::Error;
use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use clap::builder::TypedValueParser as _;
use clap::{Parser, Subcommand};
use txn_testkit::servers::ServerKind;

/// What went wrong, in words for whoever typed the command.
type Failure = Box<dyn Error>;

/// Servers for tests, and every check in one command.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Start, stop and list real servers on this machine.
    #[command(subcommand)]
    Servers(ServersTask),
    /// Run every check: format, lints, licenses, docs, tests, and the suites on real servers.
    Test {
        /// Leave out what needs a server.
        #[arg(long)]
        quick: bool,
    },
    /// Check what no compiler does: that each rule of the protocol has its reason, its model and its mutation, that no file is
    /// too long, that crates depend downwards, and that the links of the documents lead somewhere.
    Tidy,
    /// Check that every crate that is published has what a package needs, and pack it without building it.
    Package,
    /// Make a book of the documents, in the folder `book`.
    Book,
    /// Run the suites on real servers against one version: those that `test` runs there, and the others.
    Live {
        /// Which version.
        #[arg(long, value_parser = versions())]
        target: ServerKind,
        /// Options of the test programs, behind `--`.
        #[arg(last = true)]
        rest: Vec<String>,
    },
    /// Run loads with exact books through faults for as long as it is told, and end in a table.
    Torture {
        /// How long.
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// Where.
        #[arg(long, value_enum)]
        target: torture::Target,
        /// A kill soak of what stands on the engine instead, on an Elasticsearch or an OpenSearch.
        #[arg(long, value_enum, conflicts_with = "faults")]
        system: Option<torture::System>,
        /// Which faults, in turn; all that the target knows if none is named.
        #[arg(long, value_delimiter = ',')]
        faults: Vec<String>,
        /// Further arguments, behind `--`: how large the load is, and how it commits.
        #[arg(last = true)]
        rest: Vec<String>,
    },
    /// Do what administrators do, beside a load of transactions on one version, and judge what is left.
    Administrators {
        /// Which version.
        #[arg(long, value_parser = versions())]
        target: ServerKind,
        /// Which cases; all if none is named.
        #[arg(long, value_delimiter = ',')]
        cases: Vec<String>,
        /// Further arguments, behind `--`.
        #[arg(last = true)]
        rest: Vec<String>,
    },
    /// Measure on an Elasticsearch, print the table of aims with a figure beside each, and write docs/benchmarks.
    Bench(bench::Bench),
}

#[derive(Debug, Subcommand)]
enum ServersTask {
    /// Start servers, unless they are up, and print the variables that tests read.
    Up {
        /// Which ones.
        #[arg(default_values = ["elasticsearch", "opensearch"], value_parser = kinds())]
        kinds: Vec<ServerKind>,
    },
    /// Stop servers and remove their data.
    Down {
        /// Which ones; all if none is named.
        #[arg(value_parser = kinds())]
        kinds: Vec<ServerKind>,
    },
    /// List the servers that are up.
    Status,
}

fn kinds() -> impl clap::builder::TypedValueParser<Value = ServerKind> {
    PossibleValuesParser::new(ServerKind::ALL.map(ServerKind::name))
        .try_map(|name| name.parse::<ServerKind>())
}

fn versions() -> impl clap::builder::TypedValueParser<Value = ServerKind> {
    PossibleValuesParser::new(ServerKind::VERSIONS.map(ServerKind::name))
        .try_map(|name| name.parse::<ServerKind>())
}

fn main() -> ExitCode {
    let result = match Arguments::parse().task {
        Task::Servers(ServersTask::Up { kinds }) => servers::up(&kinds),
        Task::Servers(ServersTask::Down { kinds }) => servers::down(&kinds),
        Task::Servers(ServersTask::Status) => servers::status(),
        Task::Test { quick } => checks::test(quick),
        Task::Tidy => tidy::tidy(),
        Task::Package => package::package(),
        Task::Book => book::build(),
        Task::Torture { seconds, target, system, faults, rest } => {
            torture::run(target, system, seconds, &faults, &rest)
        }
        Task::Administrators { target, cases, rest } => administrators::run(target, &cases, &rest),
        Task::Live { target, rest } => live::run(target, &rest),
        Task::Bench(bench) => bench.run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn servers_have_a_default_and_names() {
        let parse = |line: &str| match Arguments::try_parse_from(line.split(' ')).unwrap().task {
            Task::Servers(ServersTask::Up { kinds } | ServersTask::Down { kinds }) => kinds,
            other => panic!("{other:?}"),
        };
        let default = [ServerKind::Elasticsearch, ServerKind::OpenSearch];
        assert_eq!(parse("xtask servers up"), default);
        assert_eq!(parse("xtask servers down cluster"), [ServerKind::Cluster]);
        assert!(Arguments::try_parse_from(["xtask", "servers", "up", "mysql"]).is_err());
    }

    #[test]
    fn a_report_and_a_benchmark_are_told_apart() {
        let parse = |line: &str| Arguments::try_parse_from(line.split(' ')).map(|found| found.task);
        for line in [
            "xtask bench --quick --json figures.json --target http://localhost:9200",
            "xtask bench --only hot,paths",
            "xtask bench --bench throughput -- spread 64",
        ] {
            assert!(matches!(parse(line), Ok(Task::Bench(_))), "{line}");
        }
        for line in ["xtask bench --quick --bench throughput", "xtask bench -- spread"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
