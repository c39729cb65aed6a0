//! The command line.

use std::ffi::OsStr;

use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand};

use crate::console::access::Access;
use crate::console::address::Address;

const EXIT_CODES: &str = "\
Exit codes:
  0  done (also: it was done already under the same key)
  1  refused by the rules of the bank, or bad input; nothing was changed
  2  wrong usage of the command line
  3  the audit found something, or a document or the file is damaged
  4  the store does not answer or is not fit, or others were in the way until the deadline;
     nothing was changed, by a load: no transfer was committed
  5  the outcome of a transaction is unknown: it is whole or not there at all
  6  done, but the output could not be written

Amounts are whole minor units (cents).";

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
    /// Where the bank is: `redb:PATH`, `http(s)://[user:password@]host:port[/prefix][,…]`,
    /// `cloud:ID` for a deployment by its cloud id, or `memory:` (demo and load only) [default:
    /// redb:bank.redb]. In a user or a password, write `/ ? # @ ,` as `%2F %3F %23 %40 %2C`; better
    /// give it by the environment
    #[arg(
        long, global = true, env = "TXN_BANK_STORE", hide_env_values = true,
        value_parser = AddressParser
    )]
    pub(crate) store: Option<Address>,
    #[command(flatten)]
    pub(crate) access: Access,
    /// The domain: one bank of its own
    #[arg(long, global = true, default_value = "bank")]
    pub(crate) domain: String,
    /// Print JSON for programs
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// Reads an address without ever repeating it: it may hold a password.
#[derive(Clone)]
struct AddressParser;

impl TypedValueParser for AddressParser {
    type Value = Address;

    fn parse_ref(
        &self,
        command: &clap::Command,
        _: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<Address, clap::Error> {
        let address = value.to_str().ok_or_else(|| "it is not UTF-8".to_owned());
        address.and_then(str::parse).map_err(|why| {
            let message = format!("--store or TXN_BANK_STORE is no address of a store: {why}\n");
            clap::Error::raw(ErrorKind::ValueValidation, message).with_cmd(command)
        })
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make the bank: its domain and its two collections
    Init {
        /// Keep a document for each owner, too, with the total over all accounts. In a bank that has accounts: let every process
        /// open it anew, then run `rebuild-owners`
        #[arg(long)]
        owners: bool,
        /// Keep a line for every change of every account, too: what `statement` shows. In a bank that has accounts: let every
        /// process open it anew; what was before is one line
        #[arg(long)]
        statements: bool,
    },
    /// Open an account
    Open {
        /// Its name
        name: String,
        /// Whose it is
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
    /// Close an account: one that holds nothing, or whose rest goes to another. It stays closed
    Close {
        /// Its name
        name: String,
        /// The account that gets what it holds, or pays what it owes, in the same transaction
        #[arg(long, value_name = "NAME")]
        to: Option<String>,
    },
    /// Move money between any number of accounts: `txn-bank transfer alice:-30 bob:+20 carol:+10`
    Transfer {
        /// `ACCOUNT:AMOUNT`; the amounts of a currency sum to zero
        #[arg(value_name = "LEG")]
        legs: Vec<String>,
        /// Under the same key money moves once, however often this is run
        #[arg(long, value_name = "KEY")]
        id: Option<String>,
        /// Open an account in the same transaction, with nothing in it: for each account of this kind once
        #[arg(long, value_name = "NAME=OWNER")]
        open: Vec<String>,
        /// The currency of the accounts that are opened
        #[arg(long, default_value = "EUR", requires = "open")]
        currency: String,
        /// POST the transfer as JSON to this address once it is done, by `dispatch`: at least once. More than one may be named
        #[arg(long, value_name = "URL")]
        notify: Vec<String>,
    },
    /// Show every change of an account by time, each with the balance behind it, as of one moment
    Statement {
        /// The account
        name: String,
        /// Nothing before this time: `2026-05-01`, or `2026-05-01T10:30:00Z`
        #[arg(long, value_name = "TIME")]
        from: Option<String>,
        /// Only what is before this time
        #[arg(long, value_name = "TIME")]
        to: Option<String>,
    },
    /// List the submitted transfers that concern an account and are not decided, with what they would change
    Pending {
        /// The account
        name: String,
    },
    /// List accounts by their owner
    Accounts {
        /// Whose, by the exact name
        #[arg(long)]
        owner: String,
    },
    /// Show balances, as they stood at one moment
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
    /// Recover what crashed processes left behind, then check that no money was made or lost
    Audit {
        /// Change nothing: only look
        #[arg(long)]
        no_recover: bool,
    },
    /// Store a transfer that is made later, by `process`; durable when this returns
    Submit {
        /// `ACCOUNT:AMOUNT`; the amounts of a currency sum to zero
        #[arg(value_name = "LEG")]
        legs: Vec<String>,
        /// Under the same key money moves once, however often this is run
        #[arg(long, value_name = "KEY")]
        id: Option<String>,
        /// POST the transfer as JSON to this address once it is done, by `dispatch`: at least once. More than one may be named
        #[arg(long, value_name = "URL")]
        notify: Vec<String>,
    },
    /// Show where a submitted transfer stands
    Status {
        /// Its key
        key: String,
    },
    /// Wait until a submitted transfer is decided
    Wait {
        /// Its key
        key: String,
        /// For how long at most
        #[arg(long, default_value_t = 30)]
        seconds: u64,
    },
    /// Roll back a submitted transfer that is not committed
    Cancel {
        /// Its key
        key: String,
        /// The reason, kept with it
        #[arg(long, default_value = "by command")]
        why: String,
    },
    /// Submit the transfer that takes a committed one back; once only
    Reverse {
        /// The key of the one that is taken back
        key: String,
        /// The key of the one that does it [default: `reverse-KEY`]
        #[arg(long, value_name = "KEY")]
        id: Option<String>,
    },
    /// Make the transfers that were submitted
    Process {
        /// Go on for so long, also with those that are submitted meanwhile
        #[arg(long)]
        seconds: Option<u64>,
    },
    /// Bring to their end the submitted transfers that others left
    Recover {
        /// Those that have stood unchanged for so many seconds
        #[arg(long, default_value_t = 120)]
        older_than: u64,
    },
    /// List submitted transfers that make no progress, with the reason
    Stuck {
        /// Those that have stood unchanged for so many seconds
        #[arg(long, default_value_t = 3_600)]
        older_than: u64,
    },
    /// Let a submitted transfer be tried again that was set aside
    Release {
        /// Its key
        key: String,
    },
    /// Show an owner with the total over all accounts, as last derived
    Owner {
        /// Whose accounts
        name: String,
    },
    /// Derive owners from the accounts that were changed, until no event waits
    Derive {
        /// Go on for so long, also with what is changed meanwhile
        #[arg(long)]
        seconds: Option<u64>,
    },
    /// Perform the HTTP requests of `--notify`, until none waits
    Dispatch {
        /// Where it may call: a scheme, a host and a port, such as `https://api.example.com`. Nothing else is called
        #[arg(long, value_name = "ORIGIN", required = true)]
        allow: Vec<String>,
        /// An address or a network that a name may have although it is not of the public internet, such as `10.1.0.0/16`
        #[arg(long, value_name = "NETWORK")]
        allow_address: Vec<String>,
        /// Go on for so long, also with what is committed meanwhile
        #[arg(long)]
        seconds: Option<u64>,
    },
    /// Show how many events wait to be handled, and for how long
    Events,
    /// Build all owners anew from the accounts
    RebuildOwners,
    /// Show which part of the domain is lost; with --processes-stopped, rebuild the domain, then
    /// audit the bank
    RebuildDomain {
        /// Every process of the domain is stopped, and there is no snapshot to restore: rebuild it
        #[arg(long)]
        processes_stopped: bool,
    },
    /// List the events that were set aside because handling them failed, each with its error; try them again, or drop them
    DeadLetters {
        /// Only those of this topic: `owners`, or `http-requests`
        #[arg(long, global = true)]
        topic: Option<String>,
        #[command(subcommand)]
        what: Option<DeadLetters>,
    },
    /// List the locks of the domain that are held
    Locks,
    /// Take a lock of the domain from whoever holds it
    Break {
        /// Its category
        category: String,
        /// Its id within the category
        id: String,
    },
    /// Make many transfers at once and say what they took
    Load {
        /// Accounts load-0001 and on, opened on first use
        #[arg(long, default_value_t = 100)]
        accounts: usize,
        /// Legs of each transfer
        #[arg(long, default_value_t = 3)]
        legs: usize,
        /// Transfers under way at once
        #[arg(long, default_value_t = 16)]
        workers: usize,
        /// For how long
        #[arg(long, default_value_t = 10)]
        seconds: u64,
        /// Use only the first H of the accounts
        #[arg(long, value_name = "H")]
        hot: Option<usize>,
        /// Submit the transfers, and wait for the processors that make them
        #[arg(long)]
        submit: bool,
        /// Processors in this process; with 0 others have to run, by `process`
        #[arg(long, default_value_t = 1, requires = "submit")]
        processors: usize,
    },
    /// Kill a process in the middle of its transfers, and see that no money is lost
    Demo,
    /// One worker of the demo; ends when its standard input does
    #[command(hide = true)]
    DemoWorker {
        /// Its number
        #[arg(long)]
        worker: usize,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum DeadLetters {
    /// Let them be handled again
    Retry(Which),
    /// Forget them
    Drop(Which),
}

#[derive(Debug, Args)]
pub(crate) struct Which {
    /// One of them
    #[arg(required_unless_present = "all")]
    pub(crate) id: Option<String>,
    /// All of them
    #[arg(long, conflicts_with = "id")]
    pub(crate) all: bool,
    /// Change nothing: only show which
    #[arg(long)]
    pub(crate) dry_run: bool,
}
