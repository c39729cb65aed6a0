//! Refusals of the bank, each as one line of text.

use txn_core::store::StoreError;
use txn_lock::LockError;
use txn_outbox::OutboxError;
use txn_requests::RequestError;

use crate::model::Currency;

/// The result of an operation of the bank.
pub type Result<T, E = BankError> = std::result::Result<T, E>;

/// The reason why a call failed.
///
/// A failed call changed nothing, except for a [`BankError::Engine`] of the kind `Unknown`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BankError {
    /// The account does not exist.
    #[error("there is no account {0:?}")]
    UnknownAccount(String),
    /// An account of this name is already open.
    #[error("the account {0:?} is open already")]
    AccountExists(String),
    /// The account is closed.
    #[error(
        "the account {0:?} is closed: no money moves in or out, and its name is not used again"
    )]
    AccountClosed(String),
    /// The account to close has a balance.
    #[error(
        "the account {account:?} holds {balance} {currency}: close it with `--to` an account that gets it"
    )]
    NotEmpty {
        /// The name of the account.
        account: String,
        /// The balance in minor units.
        balance: i64,
        /// The currency of the account.
        currency: Currency,
    },
    /// The transfer opens an account, and has no leg of this account.
    #[error(
        "the account {0:?} is to be opened and has no leg in the transfer: add one, or open it by itself"
    )]
    NoLeg(String),
    /// The transfer does not exist.
    #[error("there is no transfer {0:?}")]
    UnknownTransfer(String),
    /// An account has more than one leg.
    #[error("the account {0:?} is in more than one leg: add its amounts up")]
    DuplicateLeg(String),
    /// The transfer has fewer than two legs.
    #[error("a transfer needs at least two legs, not {0}")]
    TooFewLegs(usize),
    /// A leg has the amount zero.
    #[error("the leg of {0:?} moves nothing")]
    ZeroLeg(String),
    /// The legs of a currency do not sum to zero.
    #[error("the legs in {currency} sum to {sum:+}, not to zero")]
    Unbalanced {
        /// The currency of these legs.
        currency: Currency,
        /// The sum of the legs.
        sum: i128,
    },
    /// The account has too little money, and no overdraft.
    #[error("the account {account:?} holds {balance} {currency}: not enough for {amount:+}")]
    InsufficientFunds {
        /// The name of the account.
        account: String,
        /// The balance in minor units.
        balance: i64,
        /// The amount of the leg.
        amount: i64,
        /// The currency of the account.
        currency: Currency,
    },
    /// The new balance does not fit into 64 bits.
    #[error("the account {account:?} cannot hold {balance} {amount:+}: the number does not fit")]
    Overflow {
        /// The name of the account.
        account: String,
        /// The balance in minor units.
        balance: i64,
        /// The amount of the leg.
        amount: i64,
    },
    /// Another transfer has this key.
    ///
    /// The transfer has other legs, other HTTP requests, or other accounts to open.
    #[error(
        "another transfer was made under the key {0:?}, with other legs, notifications or accounts to open: use a new key"
    )]
    KeyReused(String),
    /// The extras of a transfer cannot be written as JSON.
    #[error("the notifications cannot be written as JSON: {0}")]
    InvalidExtras(String),
    /// The opening balance is negative.
    #[error("an account cannot be opened with {0}: the opening balance is a deposit")]
    NegativeDeposit(i64),
    /// The name is not valid for an account.
    #[error(
        "{0:?} cannot name an account: use 1 to 64 letters, digits, '-', '_', '.' and '@', beginning with a letter or a digit"
    )]
    InvalidName(String),
    /// The key is not valid for a transfer.
    #[error(
        "{0:?} cannot be the key of a transfer: use 1 to 128 bytes without white space that do not begin with \"open:\" or \"close:\""
    )]
    InvalidKey(String),
    /// The text is not a currency.
    #[error("{0:?} is no currency: use three capital letters, such as EUR")]
    InvalidCurrency(String),
    /// The owner cannot be stored.
    #[error("the owner has to be 1 to 200 characters on one line")]
    InvalidOwner,
    /// The text is not a leg.
    #[error("{0:?} is no leg: write ACCOUNT:AMOUNT, such as alice:-30 or bob:+30")]
    InvalidLeg(String),
    /// The number does not fit into 64 bits.
    #[error("{0:?} does not fit: amounts are whole minor units from {min} to {max}", min = i64::MIN, max = i64::MAX)]
    AmountTooLarge(String),
    /// The settings of the load are not valid.
    #[error("this load cannot run: {0}")]
    InvalidLoad(String),
    /// The bank does not exist in the store.
    #[error("there is no bank {domain:?} in this store: make it with `txn-bank init`")]
    NotInitialised {
        /// The name of the domain.
        domain: String,
    },
    /// The bank does not keep owners.
    #[error(
        "the bank {domain:?} keeps no owners: enable them with `txn-bank init --owners`, then run `txn-bank rebuild-owners`"
    )]
    NoOwners {
        /// The name of the domain.
        domain: String,
    },
    /// The bank does not keep statements.
    #[error(
        "the bank {domain:?} keeps no statements: enable them with `txn-bank init --statements`; they start then"
    )]
    NoStatements {
        /// The name of the domain.
        domain: String,
    },
    /// A line of a statement is missing, or was changed elsewhere.
    #[error(
        "the statement of {account:?} is damaged: line {line} {what}; run `txn-bank audit` for all damage"
    )]
    StatementDamaged {
        /// The name of the account.
        account: String,
        /// The number of the line.
        line: u64,
        /// The kind of damage.
        what: String,
    },
    /// The owner does not exist, or is not derived yet.
    #[error("there is no owner {0:?}, or nothing was derived yet: run `txn-bank derive`")]
    UnknownOwner(String),
    /// The total of an owner does not fit into 64 bits.
    #[error("the total of the owner {owner:?} in {currency} does not fit")]
    TotalTooLarge {
        /// The name of the owner.
        owner: String,
        /// The currency of the total.
        currency: Currency,
    },
    /// The outbox refused an event, or a dead letter does not exist.
    #[error(transparent)]
    Outbox(Box<OutboxError>),
    /// A request was refused, or is not the expected one.
    #[error(transparent)]
    Request(Box<RequestError>),
    /// A lock does not exist, or could not be broken.
    #[error(transparent)]
    Lock(Box<LockError>),
    /// An error of the engine.
    #[error(transparent)]
    Engine(#[from] txn_core::Error),
    /// An error of the store during a scan.
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
