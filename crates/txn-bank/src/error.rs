//! Why the bank refuses something: each variant is one clear line.

use txn_core::store::StoreError;
use txn_lock::LockError;
use txn_outbox::OutboxError;
use txn_requests::RequestError;

use crate::model::Currency;

/// Results of the bank.
pub type Result<T, E = BankError> = std::result::Result<T, E>;

/// Why the bank did not do what was asked. Unless it is [`BankError::Engine`] of the kind `Unknown`,
/// nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BankError {
    /// No such account.
    #[error("there is no account {0:?}")]
    UnknownAccount(String),
    /// An account of that name is open already.
    #[error("the account {0:?} is open already")]
    AccountExists(String),
    /// The account is closed.
    #[error(
        "the account {0:?} is closed: no money moves in or out, and its name is not used again"
    )]
    AccountClosed(String),
    /// An account that is to be closed holds something, or owes it.
    #[error(
        "the account {account:?} holds {balance} {currency}: close it with `--to` an account that gets it"
    )]
    NotEmpty {
        /// The account.
        account: String,
        /// What it holds, in minor units.
        balance: i64,
        /// Its currency.
        currency: Currency,
    },
    /// An account that is opened by a transfer has no leg in it.
    #[error(
        "the account {0:?} is to be opened and has no leg in the transfer: add one, or open it by itself"
    )]
    NoLeg(String),
    /// No such transfer.
    #[error("there is no transfer {0:?}")]
    UnknownTransfer(String),
    /// One account in two legs.
    #[error("the account {0:?} is in more than one leg: add its amounts up")]
    DuplicateLeg(String),
    /// Fewer than two legs.
    #[error("a transfer needs at least two legs, not {0}")]
    TooFewLegs(usize),
    /// A leg that moves nothing.
    #[error("the leg of {0:?} moves nothing")]
    ZeroLeg(String),
    /// The legs of a currency do not sum to zero.
    #[error("the legs in {currency} sum to {sum:+}, not to zero")]
    Unbalanced {
        /// The currency.
        currency: Currency,
        /// What its legs sum to.
        sum: i128,
    },
    /// The account does not hold enough and may not be overdrawn.
    #[error("the account {account:?} holds {balance} {currency}: not enough for {amount:+}")]
    InsufficientFunds {
        /// The account.
        account: String,
        /// What it holds, in minor units.
        balance: i64,
        /// The leg.
        amount: i64,
        /// Its currency.
        currency: Currency,
    },
    /// The new balance does not fit into 64 bits.
    #[error("the account {account:?} cannot hold {balance} {amount:+}: the number does not fit")]
    Overflow {
        /// The account.
        account: String,
        /// What it holds, in minor units.
        balance: i64,
        /// The leg.
        amount: i64,
    },
    /// Another transfer was made under this key: of other legs, or with other HTTP requests or accounts to open.
    #[error(
        "another transfer was made under the key {0:?}, with other legs, notifications or accounts to open: use a new key"
    )]
    KeyReused(String),
    /// What was asked for with a transfer cannot be written as JSON.
    #[error("the notifications cannot be written as JSON: {0}")]
    InvalidExtras(String),
    /// An opening balance below zero.
    #[error("an account cannot be opened with {0}: the opening balance is a deposit")]
    NegativeDeposit(i64),
    /// A name that no account can have.
    #[error(
        "{0:?} cannot name an account: use 1 to 64 letters, digits, '-', '_', '.' and '@', beginning with a letter or a digit"
    )]
    InvalidName(String),
    /// A key that no transfer can have.
    #[error(
        "{0:?} cannot be the key of a transfer: use 1 to 128 bytes without white space that do not begin with \"open:\" or \"close:\""
    )]
    InvalidKey(String),
    /// No currency.
    #[error("{0:?} is no currency: use three capital letters, such as EUR")]
    InvalidCurrency(String),
    /// An owner that cannot be stored.
    #[error("the owner has to be 1 to 200 characters on one line")]
    InvalidOwner,
    /// No leg.
    #[error("{0:?} is no leg: write ACCOUNT:AMOUNT, such as alice:-30 or bob:+30")]
    InvalidLeg(String),
    /// A whole number that does not fit into 64 bits.
    #[error("{0:?} does not fit: amounts are whole minor units from {min} to {max}", min = i64::MIN, max = i64::MAX)]
    AmountTooLarge(String),
    /// A load that cannot run.
    #[error("this load cannot run: {0}")]
    InvalidLoad(String),
    /// The bank was not made yet.
    #[error("there is no bank {domain:?} in this store: make it with `txn-bank init`")]
    NotInitialised {
        /// The domain.
        domain: String,
    },
    /// The bank keeps no owners.
    #[error(
        "the bank {domain:?} keeps no owners: let it by `txn-bank init --owners`, then `txn-bank rebuild-owners`"
    )]
    NoOwners {
        /// The domain.
        domain: String,
    },
    /// The bank keeps no statements.
    #[error(
        "the bank {domain:?} keeps no statements: let it by `txn-bank init --statements`; they begin then"
    )]
    NoStatements {
        /// The domain.
        domain: String,
    },
    /// A line of a statement is missing or was changed by something else.
    #[error(
        "the statement of {account:?} is damaged: line {line} {what}; `txn-bank audit` says what else is"
    )]
    StatementDamaged {
        /// The account.
        account: String,
        /// The number of the line.
        line: u64,
        /// What is wrong with it.
        what: String,
    },
    /// Nothing is known of this owner, or not yet.
    #[error("there is no owner {0:?}, or nothing was derived yet: `txn-bank derive` does")]
    UnknownOwner(String),
    /// What an owner holds does not fit into 64 bits.
    #[error("the total of the owner {owner:?} in {currency} does not fit")]
    TotalTooLarge {
        /// The owner.
        owner: String,
        /// The currency.
        currency: Currency,
    },
    /// An event was not taken, or a dead letter not found.
    #[error(transparent)]
    Outbox(Box<OutboxError>),
    /// A request was not taken, or is not what was asked for.
    #[error(transparent)]
    Request(Box<RequestError>),
    /// A lock was not found, or not taken away.
    #[error(transparent)]
    Lock(Box<LockError>),
    /// The engine's own error.
    #[error(transparent)]
    Engine(#[from] txn_core::Error),
    /// The store's own error, while the bank looked through its collections.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<RequestError> for BankError {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Engine(error) => Self::Engine(error),
            RequestError::Store(error) => Self::Store(error),
            error => Self::Request(Box::new(error)),
        }
    }
}

impl From<OutboxError> for BankError {
    fn from(error: OutboxError) -> Self {
        match error {
            OutboxError::Engine(error) => Self::Engine(error),
            OutboxError::Store(error) => Self::Store(error),
            error => Self::Outbox(Box::new(error)),
        }
    }
}

impl From<LockError> for BankError {
    fn from(error: LockError) -> Self {
        match error {
            LockError::Engine(error) => Self::Engine(error),
            LockError::Store(error) => Self::Store(error),
            error => Self::Lock(Box::new(error)),
        }
    }
}
