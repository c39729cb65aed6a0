//! The command line.

use clap::{Args, Parser, Subcommand};
use txn_cli::{Access, Address, AddressParser};

/// The environment variable with the address of the store.
pub(crate) const STORE: &str = "TXN_BANK_STORE";

const EXIT_CODES: &str = "\
Exit codes:
  0  done (also: it was done already under the same key)
  1  refused by the rules of the bank, or bad input; nothing was changed
  2  wrong usage of the command line
  3  the audit found something, or a document or the file is damaged
  4  the store does not answer or is not fit, or a conflict lasted until the deadline;
     nothing was changed, and a load committed no transfer
  5  the outcome of a transaction is unknown: all of it is committed, or nothing
  6  done, but the output could not be written

Amounts are whole minor units (cents). For locks, lost parts, waiting events and dead letters use the
operator's command `txn` with the same --store and --domain; for submitted transfers, too: `txn
requests status KEY`, `cancel KEY`, `stuck`.";

/// Account transfers over any number of accounts, each one transaction.
#[derive(Debug, Parser)]
#[command(name = "txn-bank", version, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Global {
    /// The store of the bank: a file, the servers, or the memory. The address is `redb:PATH`,
    /// `http(s)://[user:password@]host:port[/prefix][,…]`, `cloud:ID` for a deployment by its cloud
    /// id, or `memory:` (demo and load only) [default: redb:bank.redb]. In a user or a password,
    /// write `/ ? # @ ,` as `%2F %3F %23 %40 %2C`; better pass the address by the environment
    #[arg(
        long, global = true, env = STORE, hide_env_values = true,
        value_parser = AddressParser
    )]
    pub(crate) store: Option<Address>,
    #[command(flatten)]
    pub(crate) access: Access,
    /// The domain; each domain is a bank of its own
    #[arg(long, global = true, default_value = "bank")]
    pub(crate) domain: String,
    /// Print JSON for programs
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create the bank: its domain and its two collections
    Init {
        /// Also keep a document per owner, with the total over all accounts. In a bank with
        /// accounts: restart all processes, then run `rebuild-owners`
        #[arg(long)]
        owners: bool,
        /// Also keep a line for each change of an account, for `statement`. In a bank with
        /// accounts: restart all processes; earlier changes become one line
        #[arg(long)]
        statements: bool,
    },
    /// Open an account
    Open {
        /// The name of the account
        name: String,
        #[arg(long)]
        owner: String,
        /// The opening balance
        #[arg(long, default_value = "0", allow_hyphen_values = true)]
        balance: String,
        /// Three capital letters
        #[arg(long, default_value = "EUR")]
        currency: String,
        /// Let the balance fall below zero
        #[arg(long)]
        overdraft: bool,
    },
    /// Close an empty account, or move its balance to another one. A closed account never reopens
    Close {
        /// The name of the account
        name: String,
        /// The account that receives the balance, or pays the debt. Both happen in the same
        /// transaction
        #[arg(long, value_name = "NAME")]
        to: Option<String>,
    },
    /// Move money between any number of accounts: `txn-bank transfer alice:-30 bob:+20 carol:+10`
    Transfer {
        /// `ACCOUNT:AMOUNT`; the amounts of a currency sum to zero
        #[arg(value_name = "LEG")]
        legs: Vec<String>,
        /// A key. Money moves once per key, even if the command runs again
        #[arg(long, value_name = "KEY")]
        id: Option<String>,
        /// Open an empty account in the same transaction; may be repeated
        #[arg(long, value_name = "NAME=OWNER")]
        open: Vec<String>,
        /// The currency of the opened accounts
        #[arg(long, default_value = "EUR", requires = "open")]
        currency: String,
        /// POST the transfer as JSON to this address after the commit. `dispatch` sends the request
        /// at least once. May be repeated
        #[arg(long, value_name = "URL")]
        notify: Vec<String>,
    },
    /// Show all changes of an account by time, as of one moment. Each change has its balance
    Statement {
        /// The account
        name: String,
        /// The start of the period: `2026-05-01`, or `2026-05-01T10:30:00Z`
        #[arg(long, value_name = "TIME")]
        from: Option<String>,
        /// The end of the period, exclusive
        #[arg(long, value_name = "TIME")]
        to: Option<String>,
    },
    /// List the undecided submitted transfers of an account, with their effects
    Pending {
        /// The account
        name: String,
    },
    /// List accounts by their owner
    Accounts {
        /// The exact name of the owner
        #[arg(long)]
        owner: String,
    },
    /// Show balances as of one moment
    Balance {
        /// Accounts
        #[arg(value_name = "NAME", required = true)]
        names: Vec<String>,
    },
    /// Show an account, or `transfer KEY`
    Show {
        /// An account, or the word `transfer` before a key
        #[arg(value_name = "NAME | transfer KEY", num_args = 1..=2)]
        what: Vec<String>,
    },
    /// Recover transactions of crashed processes, and check the money. No money may be created or
    /// lost
    Audit {
        /// Check only, and change nothing
        #[arg(long)]
        no_recover: bool,
    },
    /// Store a transfer that `process` executes later; durable when the command returns
    Submit {
        /// `ACCOUNT:AMOUNT`; the amounts of a currency sum to zero
        #[arg(value_name = "LEG")]
        legs: Vec<String>,
        /// A key. Money moves once per key, even if the command runs again
        #[arg(long, value_name = "KEY")]
        id: Option<String>,
        /// POST the transfer as JSON to this address after the commit. `dispatch` sends the request
        /// at least once. May be repeated
        #[arg(long, value_name = "URL")]
        notify: Vec<String>,
    },
    /// Wait until a submitted transfer is decided, and show its state
    Wait {
        /// The key of the transfer
        key: String,
        /// The maximum wait in seconds
        #[arg(long, default_value_t = 30)]
        seconds: u64,
    },
    /// Submit the reversal of a committed transfer, at most once
    Reverse {
        /// The key of the transfer to reverse
        key: String,
        /// The key of the reversal [default: `reverse-KEY`]
        #[arg(long, value_name = "KEY")]
        id: Option<String>,
    },
    /// Execute submitted transfers
    Process {
        /// Continue for this time, also with newly submitted transfers
        #[arg(long)]
        seconds: Option<u64>,
    },
    /// Finish the submitted transfers of other processes
    Recover {
        /// Only transfers without a change for this number of seconds
        #[arg(long, default_value_t = 120)]
        older_than: u64,
    },
    /// Show an owner with the total over all accounts, as last derived
    Owner {
        /// The name of the owner
        name: String,
    },
    /// Derive owners from changed accounts, until no event waits
    Derive {
        /// Continue for this time, also with new changes
        #[arg(long)]
        seconds: Option<u64>,
    },
    /// Send the HTTP requests of `--notify`, until none waits
    Dispatch {
        /// An allowed origin, such as `https://api.example.com`. An origin has a scheme, a host and
        /// a port. Other origins are refused
        #[arg(long, value_name = "ORIGIN", required = true)]
        allow: Vec<String>,
        /// An allowed address or network, such as `10.1.0.0/16`. Only addresses outside of the
        /// public internet need this option
        #[arg(long, value_name = "NETWORK")]
        allow_address: Vec<String>,
        /// Continue for this time, also with new commits
        #[arg(long)]
        seconds: Option<u64>,
    },
    /// Rebuild all owners from the accounts
    RebuildOwners,
    /// Run many concurrent transfers and report times
    Load {
        /// The number of accounts (load-0001 and on), opened at first use
        #[arg(long, default_value_t = 100)]
        accounts: usize,
        /// The number of legs of each transfer
        #[arg(long, default_value_t = 3)]
        legs: usize,
        /// The number of concurrent transfers
        #[arg(long, default_value_t = 16)]
        workers: usize,
        /// The duration in seconds
        #[arg(long, default_value_t = 10)]
        seconds: u64,
        /// Use only the first H accounts
        #[arg(long, value_name = "H")]
        hot: Option<usize>,
        /// Submit the transfers, and wait for their processors
        #[arg(long)]
        submit: bool,
        /// The number of processors in this process; with 0, run `process` elsewhere
        #[arg(long, default_value_t = 1, requires = "submit")]
        processors: usize,
    },
    /// Kill a process in the middle of its transfers. Check that no money is lost
    Demo,
    /// Run one worker of the demo; ends with its standard input
    #[command(hide = true)]
    DemoWorker {
        /// The number of the worker
        #[arg(long)]
        worker: usize,
    },
}
