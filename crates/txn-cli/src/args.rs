//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use txn_cli::{Access, Address, AddressParser};
use txn_core::AttemptId;
use txn_core::admin::TransactionState;
use txn_serve::operator::MOST_MINUTES;

use crate::selection::Condition;

/// The environment variable with the address of the store.
pub(crate) const STORE: &str = "TXN_STORE";

/// The environment variable with the path of the configuration.
pub(crate) const CONFIG: &str = "TXN_CONFIG";

const EXIT_CODES: &str = "\
Exit codes:
  0  well, or done
  1  not well: the output says what to do
  2  could not find out: wrong usage, or the store does not answer or is not fit

No command prints the body of a document. Logs: TXN_LOG=info.";

/// The operator's command for transactions over Elasticsearch and OpenSearch.
#[derive(Debug, Parser)]
#[command(name = "txn", version, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Global {
    /// A TOML file with defaults for these options, by their names. Options and the environment
    /// have more weight. Unless given: `txn/config.toml` below `$XDG_CONFIG_HOME` or `~/.config`
    #[arg(long, global = true, env = CONFIG, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The store: an embedded file, or servers. The address is `redb:PATH`,
    /// `http(s)://[user:password@]host:port[/prefix][,…]`, or `cloud:ID` for a deployment by its
    /// cloud id. In a user or a password, write `/ ? # @ ,` as `%2F %3F %23 %40 %2C`; better pass
    /// the address by the environment
    #[arg(long, global = true, env = STORE, hide_env_values = true, value_parser = AddressParser)]
    pub(crate) store: Option<Address>,
    #[command(flatten)]
    pub(crate) access: Access,
    /// The domain that holds the transactions
    #[arg(long, global = true, env = "TXN_DOMAIN")]
    pub(crate) domain: Option<String>,
    /// The lease in seconds. At least the longest lease of the processes of the domain: the command
    /// takes an owner for dead that gave no sign of life for one lease
    #[arg(long, global = true, env = "TXN_LEASE", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub(crate) lease: u64,
    /// Print JSON for programs
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// The greatest number of rows of a list
    #[arg(long, global = true, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(crate) limit: u16,
}

impl Global {
    pub(crate) fn limit(&self) -> usize {
        usize::from(self.limit)
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show whether the domain is well, and the remedy of each fault
    Status {
        /// Repeat every N seconds, until interrupted
        #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
        watch: Option<u64>,
        /// Also show the time of a lock and of a commit. Writes two documents of the collection
        /// DOMAIN-probe, which it creates
        #[arg(long)]
        probe: bool,
    },
    /// List the open transactions, oldest first
    Ls {
        /// Only this state
        #[arg(long)]
        state: Option<OpenState>,
        /// Only transactions that began at least this number of seconds ago
        #[arg(long, value_name = "SECONDS")]
        older: Option<u64>,
        /// Only transactions with this label. A group has the labels of its members, joined by `+`
        #[arg(long)]
        label: Option<String>,
    },
    /// Show one transaction: record, present participants, and verdict
    Show {
        /// The id of the attempt
        tid: AttemptId,
    },
    /// Show one document: its lock, the holder, and its last commits
    Why {
        /// The collection (index), or an alias of it
        collection: String,
        /// The id of the document
        id: String,
        /// The routing value of the document
        #[arg(long)]
        routing: Option<String>,
    },
    /// List the locked documents with their holders
    Locks {
        /// List the transactions that wait for locks instead, the longest first
        #[arg(long)]
        waiting: bool,
    },
    /// List the processes of the domain
    Processes,
    /// List the hottest documents: those for which transactions waited longest in total
    Hot {
        /// Only waits that ended in the last N minutes
        #[arg(long, value_name = "N", value_parser = minutes())]
        minutes: Option<u64>,
    },
    /// List past waits for locks, newest first, or compare two ranges
    History {
        /// Only waits that ended in the last N minutes
        #[arg(long, value_name = "N", value_parser = minutes())]
        minutes: Option<u64>,
        /// Compare with an earlier range of the same length, by document. The earlier range ended M
        /// minutes ago. M is at least --minutes
        #[arg(long, value_name = "M", requires = "minutes", value_parser = minutes())]
        against: Option<u64>,
    },
    /// Find transactions and locks that make no progress. Exit code 1 if there are any
    Hanging {
        /// Only what began at least this number of seconds ago
        #[arg(long, value_name = "SECONDS", default_value_t = 30)]
        older: u64,
    },
    /// Abort a transaction that is not committed, even if its owner lives
    Abort {
        /// The id of the attempt
        tid: AttemptId,
        /// The reason, stored in the record
        #[arg(long, default_value = "by command")]
        why: String,
        /// Change nothing; only show the effect
        #[arg(long)]
        dry_run: bool,
    },
    /// Run one pass of the janitor. Recover dead transactions, and drop no days
    Recover {
        /// Change nothing; only show what is open
        #[arg(long)]
        dry_run: bool,
    },
    /// Find the final outcome of a transaction. After one lease without a sign of life, the
    /// transaction is aborted
    Outcome {
        /// The id of the attempt
        tid: AttemptId,
        /// Change nothing; report the present state
        #[arg(long)]
        dry_run: bool,
    },
    /// Check locks, commits and documents. Each lock needs an owner, each commit is applied, and
    /// no document has lost a recent commit
    Verify {
        /// Compare the documents with the commits of the last N minutes
        #[arg(long, value_name = "N", default_value_t = 60, value_parser = minutes())]
        minutes: u64,
    },
    /// Create the domain, and optionally collections
    Init {
        /// Collections to create or to take over
        #[arg(value_name = "COLLECTION")]
        collections: Vec<String>,
        /// A file with the mapping of the collections
        #[arg(long, value_name = "FILE", requires = "collections")]
        mappings: Option<PathBuf>,
    },
    /// Print the roles for application, janitor and reader, as request bodies
    Roles {
        /// The collections of the domain
        #[arg(value_name = "COLLECTION", required = true)]
        collections: Vec<String>,
    },
    /// Check the parts of the domain one by one
    Doctor {
        /// Only this collection
        collection: Option<String>,
    },
    /// Show the lost parts of the domain; with --processes-stopped, rebuild the domain
    Rebuild {
        /// Confirm the rebuild. All processes of the domain are stopped, and there is no snapshot
        /// to restore
        #[arg(long)]
        processes_stopped: bool,
    },
    /// List, retry or drop the dead letters of the outbox
    #[command(subcommand)]
    Dead(Dead),
    /// List or break the locks of txn-lock
    #[command(subcommand)]
    Lock(Lock),
    /// List, show, cancel or release submitted requests
    #[command(subcommand)]
    Requests(Requests),
    /// Show the backlog of the outbox
    Outbox,
    /// Submit a declarative request from a file. The request takes effect once under its key
    Run {
        /// A file with the request as JSON; `-` means standard input
        file: PathBuf,
        /// The key of the request
        #[arg(long, value_name = "KEY")]
        id: String,
        /// Execute the request in this process. Only for a domain whose programs have no companion
        /// of requests, because this command does not run the companion
        #[arg(long)]
        execute: bool,
    },
    /// Print the JSON schema of the output of --json
    Schema,
    /// Run the HTTP gateway: transactions for clients of every language
    ///
    /// Without --store the gateway keeps the domain `main` in the embedded file `txn.redb`. SIGTERM
    /// and Ctrl-C end it, after the running requests. `txn serve token` makes a token for a caller.
    Serve(Box<Serve>),
    /// Write the manual pages into a directory
    Man {
        /// An existing directory, such as `/usr/local/share/man/man1`
        directory: PathBuf,
    },
    /// Print completions for a shell
    Completions {
        /// The shell to complete the commands in
        shell: clap_complete::Shell,
    },
}

/// A range of past waits in minutes.
fn minutes() -> clap::builder::RangedU64ValueParser<u64> {
    clap::value_parser!(u64).range(1..=MOST_MINUTES)
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Serve {
    #[command(subcommand)]
    pub(crate) what: Option<ServeVerb>,
    /// The address to listen on. Any other address than a loopback one needs --tokens and
    /// --tls-certificate, or --insecure-listen
    #[arg(long, value_name = "ADDRESS", env = "TXN_LISTEN", default_value = "127.0.0.1:9280")]
    pub(crate) listen: std::net::SocketAddr,
    /// The file with the tokens of callers and their rights. The gateway reads the file again
    /// after a change. Without it each caller may send each request
    #[arg(long, value_name = "FILE")]
    pub(crate) tokens: Option<PathBuf>,
    /// The file with the certificate of the gateway, in PEM. The file also has all intermediate
    /// certificates. The gateway reads the file again after a change
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_certificate: Option<PathBuf>,
    /// The file with the key of the certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Listen on any address without tokens or without TLS. A proxy in front has both
    #[arg(long)]
    pub(crate) insecure_listen: bool,
    /// Create a missing collection at the first write. Always on with an embedded file
    #[arg(long)]
    pub(crate) create_collections: bool,
    /// Carry out submitted requests (`POST /_requests/ID`)
    #[arg(long)]
    pub(crate) processor: bool,
    /// Send the HTTP requests (`after_commit`) of committed transactions to this origin, such as
    /// `https://hooks.example.com`. Its addresses outside of the public internet need their
    /// networks: `http://hooks.internal:8080=10.1.0.0/16,10.2.0.0/16`
    #[arg(long = "destination", value_name = "ORIGIN[=NETWORKS]")]
    pub(crate) destinations: Vec<String>,
    /// The folder with the secrets of HTTP requests. The secret NAME for HOST is in the file
    /// HOST:PORT/NAME, which is read for each call
    #[arg(long, value_name = "FOLDER", requires = "destinations")]
    pub(crate) secrets: Option<PathBuf>,
    /// Run no janitor. Another process of the domain has to run one. Only processes with a janitor
    /// are listed by `txn processes`
    #[arg(long)]
    pub(crate) no_janitor: bool,
    /// The requests that pass through to the servers of --store. Requests for collections never
    /// pass through
    #[arg(long, value_enum, value_name = "WHICH", default_value_t = Pass::All)]
    pub(crate) pass: Pass,
    /// Send the header `X-Elastic-Product`, which the official clients of Elasticsearch need. In
    /// front of Elasticsearch the gateway sends it in any case
    #[arg(long)]
    pub(crate) elastic_product: bool,
    /// The greatest number of requests that run at the same time
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) max_requests: u32,
    /// Write the waits for locks into the domain, for `txn hot`, `txn history` and `txn locks
    /// --waiting`
    #[arg(long)]
    pub(crate) write_contention: bool,
    /// The address of `GET /metrics` as other machines reach it, for `txn processes`
    #[arg(long, value_name = "URL")]
    pub(crate) metrics_address: Option<String>,
    /// A label of transactions that the metrics count under its own name. The other labels count
    /// as `other`. At most 50 labels
    #[arg(long = "metric-label", value_name = "LABEL")]
    pub(crate) metric_labels: Vec<String>,
    /// The pause between two counts of waiting events and submitted requests for the metrics, in
    /// seconds. A count costs a few searches. 0: count none, because another process does
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    pub(crate) count_every: u64,
    /// The address of a collector of OpenTelemetry, to which the gateway sends traces over HTTP,
    /// such as `http://localhost:4318`. Without it OTEL_EXPORTER_OTLP_ENDPOINT counts
    #[cfg(feature = "opentelemetry")]
    #[arg(long, value_name = "URL")]
    pub(crate) otlp_endpoint: Option<String>,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ServeVerb {
    /// Make a token for a caller, and the entry for --tokens
    ///
    /// Nothing keeps the token. The entry for the file of --tokens has the hash of the token.
    Token(NewToken),
}

#[derive(Clone, Debug, Args)]
pub(crate) struct NewToken {
    /// The name for logs and refusals
    #[arg(long)]
    pub(crate) name: String,
    /// A collection or an index of the right, for lock a category, for emit a topic, for call an
    /// origin such as `https://hooks.example.com:443`. A `*` at the end stands for all that follow
    #[arg(long = "collection", value_name = "PATTERN")]
    pub(crate) collections: Vec<String>,
    /// A verb of the right. The verbs are read, write, create, lock, emit, call, pass-reads,
    /// pass-writes, submit, metrics, operate and act
    #[arg(long = "verb", value_name = "VERB", required = true)]
    pub(crate) verbs: Vec<String>,
}

/// The requests that pass through to the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Pass {
    /// No request
    None,
    /// Reads of any index
    Reads,
    /// Reads of any index, and writes to indices that are no collections
    All,
}

/// A state of open transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OpenState {
    /// No record yet
    NoRecord,
    /// A heartbeat, and no commit
    Pending,
    /// Committed, and not applied
    Committed,
}

impl From<OpenState> for TransactionState {
    fn from(state: OpenState) -> Self {
        match state {
            OpenState::NoRecord => Self::NoRecord,
            OpenState::Pending => Self::Pending,
            OpenState::Committed => Self::Committed,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Dead {
    /// List the dead letters, each with its error
    List(Conditions),
    /// Retry dead letters
    Retry(Which),
    /// Drop dead letters
    Drop(Which),
}

#[derive(Debug, Args)]
pub(crate) struct Conditions {
    /// Only dead letters with this property: topic=TOPIC, key=KEY, error=TEXT (a part of the error)
    /// or older=SECONDS. Several conditions must all hold
    #[arg(long = "where", value_name = "CONDITION")]
    pub(crate) conditions: Vec<Condition>,
}

#[derive(Debug, Args)]
pub(crate) struct Which {
    /// A single dead letter, by its event id
    #[arg(required_unless_present_any = ["all", "conditions"], conflicts_with = "conditions")]
    pub(crate) id: Option<String>,
    /// All dead letters
    #[arg(long, conflicts_with_all = ["id", "conditions"])]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) conditions: Conditions,
    /// Change nothing; only show the dead letters
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Lock {
    /// List the held locks
    Ls,
    /// Take a lock from its holder by force
    Break {
        /// The category of the lock
        category: String,
        /// The id within the category
        id: String,
        /// Change nothing; only show the holder
        #[arg(long)]
        dry_run: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Requests {
    /// List the open and the quarantined requests, oldest first
    Ls {
        /// Only this application
        #[arg(long)]
        application: Option<String>,
    },
    /// List requests without progress, with the reason. Exit code 1 if there are any
    Stuck {
        /// Only requests without a change for this number of seconds
        #[arg(long, value_name = "SECONDS", default_value_t = 3_600)]
        older: u64,
    },
    /// Show the state of a request
    Status {
        /// The key of the request
        key: String,
    },
    /// Roll back a request that is not committed
    Cancel {
        /// The key of the request
        key: String,
        /// The reason, stored with the request
        #[arg(long, default_value = "by command")]
        why: String,
    },
    /// Release a quarantined request for another try
    Release {
        /// The key of the request
        key: String,
    },
}
