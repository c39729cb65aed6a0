//! `cargo xtask`: servers for tests, and every check in one command.

mod administrators;
mod bench;
mod book;
mod cargo;
mod checks;
mod circles;
mod clients;
mod commits;
mod console;
mod decisions;
mod features;
mod lengths;
mod lexer;
mod links;
mod lint;
mod live;
mod monitoring;
mod package;
mod prerequisites;
mod programs;
mod prose;
mod servers;
mod steps;
mod threads;
mod times;
mod torture;

use std::error::Error;
use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use clap::builder::TypedValueParser as _;
use clap::{Parser, Subcommand};
use txn_testkit::servers::ServerKind;

/// An error, as text for the caller of the command.
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
    /// Run every check.
    ///
    /// The checks are format, lints, licenses, docs, tests, and the suites on real servers.
    Test {
        /// Leave out checks that need a server.
        #[arg(long)]
        quick: bool,
        /// Run one part, for jobs that run in parallel.
        #[arg(long, conflicts_with = "quick")]
        part: Option<checks::Part>,
    },
    /// Check rules that no compiler checks.
    ///
    /// Each rule of the protocol has its reason, its model and its mutation. No file and no
    /// function is too long. Crates depend downwards, and the links of the documents resolve.
    Lint,
    /// Check each package without features, and with each feature alone.
    Features,
    /// Test threads of the engine in chosen schedules.
    Threads {
        /// The number of schedules of each kind and test.
        #[arg(long)]
        schedules: Option<u32>,
    },
    /// Check that every published crate can be packed, and pack it.
    Package,
    /// Build the documents as a book, in the folder `book`.
    Book,
    /// Run the tests of the clients, and compare them with official clients.
    ///
    /// The clients are those in other languages. The comparison is that of the answers, with the
    /// answers of real servers. It also counts the requests that official clients repeat.
    ///
    /// Needs Python, Node with npm, Java and Maven, and their package registries.
    Clients {
        /// Only the tests of the project's own clients, without servers.
        #[arg(long)]
        thin: bool,
    },
    /// Kill a gateway under load, and operate its successor.
    ///
    /// A headless Chromium operates the console.
    ///
    /// Needs Chromium and its driver. Pictures of the pages are left in `target/console`.
    Console {
        /// The time of the load before the picture of the plots.
        #[arg(long, default_value_t = 0)]
        seconds: u64,
    },
    /// Run all suites for real servers against one version.
    Live {
        /// The version.
        #[arg(long, value_parser = versions())]
        target: ServerKind,
        /// Options of the test programs, after `--`.
        #[arg(last = true)]
        rest: Vec<String>,
    },
    /// Run loads with exact ledgers through faults, and print a table.
    Torture {
        /// The duration.
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        #[arg(long, value_enum)]
        target: torture::Target,
        /// Kill processes of a system on the engine instead.
        #[arg(long, value_enum, conflicts_with = "faults")]
        system: Option<torture::System>,
        /// Run every second worker of the system from this commit.
        #[arg(long, requires = "system")]
        commit: Option<String>,
        /// Run both versions in turn, each for 10 s, and kill all workers at each change.
        #[arg(long, requires = "commit")]
        in_turn: bool,
        /// The faults, in turn; all faults of the target by default.
        #[arg(long, value_delimiter = ',')]
        faults: Vec<String>,
        /// Further arguments, after `--`: the size of the load, and the seed.
        #[arg(last = true)]
        rest: Vec<String>,
    },
    /// Do administrators' work during a load of transactions, and check the result.
    Administrators {
        /// The version.
        #[arg(long, value_parser = versions())]
        target: ServerKind,
        /// The cases; all by default.
        #[arg(long, value_delimiter = ',')]
        cases: Vec<String>,
        /// Further arguments, after `--`.
        #[arg(last = true)]
        rest: Vec<String>,
    },
    /// Measure on an Elasticsearch, and print the table of aims.
    ///
    /// The table has the results. The report is written to docs/benchmarks.
    Bench(bench::Bench),
}

#[derive(Debug, Subcommand)]
enum ServersTask {
    /// Start servers, and print the variables that tests read.
    ///
    /// Servers that are up stay up.
    Up {
        /// The kinds of servers.
        #[arg(default_values = ["elasticsearch", "opensearch"], value_parser = kinds())]
        kinds: Vec<ServerKind>,
    },
    /// Stop servers and remove their data.
    Down {
        /// The kinds of servers; all by default.
        #[arg(value_parser = kinds())]
        kinds: Vec<ServerKind>,
    },
    /// List the servers that are up.
    Status,
    /// Run a server for another program, and print its address.
    ///
    /// Each line of the input kills and restarts the server. The server runs until the input ends.
    Private {
        /// The kind of the server.
        #[arg(value_parser = versions())]
        kind: ServerKind,
    },
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
        Task::Servers(ServersTask::Private { kind }) => {
            servers::private(kind, std::io::stdin().lock(), std::io::stdout().lock())
        }
        Task::Test { quick, part } => checks::test(quick, part),
        Task::Lint => lint::lint(),
        Task::Features => features::check(),
        Task::Threads { schedules } => threads::test(schedules),
        Task::Package => package::package(),
        Task::Book => book::build(),
        Task::Torture { seconds, target, system, commit, in_turn, faults, rest } => {
            let other = commit.map(|commit| torture::OtherVersion { commit, in_turn });
            torture::run(target, system, other.as_ref(), seconds, &faults, &rest)
        }
        Task::Administrators { target, cases, rest } => administrators::run(target, &cases, &rest),
        Task::Clients { thin } => clients::test(thin),
        Task::Console { seconds } => console::test(seconds),
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
    fn report_and_benchmark_arguments_differ() {
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
