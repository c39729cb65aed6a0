//! The options and the result of a transfer.

use std::time::Duration;

use txn_core::{AttemptId, Options};
use txn_outbox::http::HttpRequest;

use crate::input::NewAccount;
use crate::model::Transfer;

/// Whether a transfer moved money in this call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The call moved the money.
    Done,
    /// An earlier call with the same key moved the money.
    AlreadyDone,
}

/// A finished transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Transferred {
    /// Whether this call moved the money.
    pub status: Status,
    /// The stored transfer.
    pub transfer: Transfer,
    /// The transaction of this call. `None` if the transfer was already done.
    pub tid: Option<AttemptId>,
    /// The number of attempts of the transaction, from 1.
    pub attempts: u32,
}

/// Options of a transfer.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct TransferOptions {
    /// The options of the transaction.
    pub transaction: Options,
    /// A pause between the reads and the writes of the accounts.
    ///
    /// Simulates an application that calls another service in between.
    pub pause: Duration,
    /// Accounts that the transaction of the transfer opens first.
    pub open: Vec<NewAccount>,
    /// HTTP requests that are stored with the transfer.
    ///
    /// A [`Dispatcher`](txn_outbox::http::Dispatcher) sends them after the commit, at least once.
    pub after_commit: Vec<HttpRequest>,
}

impl TransferOptions {
    /// Sets [`TransferOptions::transaction`].
    #[must_use]
    pub fn with_transaction(mut self, options: Options) -> Self {
        self.transaction = options;
        self
    }

    /// Sets [`TransferOptions::pause`].
    #[must_use]
    pub fn with_pause(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }

    /// Sets [`TransferOptions::open`].
    #[must_use]
    pub fn with_open(mut self, open: impl IntoIterator<Item = NewAccount>) -> Self {
        self.open = open.into_iter().collect();
        self
    }

    /// Sets [`TransferOptions::after_commit`].
    #[must_use]
    pub fn with_after_commit(mut self, calls: impl IntoIterator<Item = HttpRequest>) -> Self {
        self.after_commit = calls.into_iter().collect();
        self
    }
}
