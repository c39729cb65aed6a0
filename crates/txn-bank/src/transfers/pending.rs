//! Submitted transfers that are not decided, by account.

use serde::Serialize;
use txn_requests::{Reason, State, Status};

use crate::input::Leg;
use crate::model::Account;
use crate::transfers::requests::legs_of;

/// A submitted transfer that is not decided.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Pending {
    /// The key of the transfer.
    pub key: String,
    /// The state: created, pending, or quarantined. A quarantined transfer waits for a release.
    pub state: State,
    /// The amount for the account, in minor units.
    ///
    /// A negative amount would leave the account.
    pub amount: i64,
    /// All legs of the transfer.
    #[serde(serialize_with = "as_pairs")]
    pub legs: Vec<Leg>,
    /// The time of the submission, in milliseconds since the Unix epoch.
    pub submitted_at: u64,
    /// The number of failures.
    pub failures: u32,
    /// The last failure.
    pub reason: Option<Reason>,
}

fn as_pairs<S: serde::Serializer>(legs: &[Leg], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(legs.iter().map(|leg| (&leg.account, leg.amount)))
}

/// An account and its undecided transfers.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PendingTransfers {
    /// The account, read before the transfers.
    pub account: Account,
    /// The transfers, oldest first.
    pub transfers: Vec<Pending>,
}

impl PendingTransfers {
    /// Selects the requests with a leg of the account.
    pub(crate) fn of(account: Account, name: &str, found: Vec<Status>) -> Self {
        let pending = found.into_iter().filter_map(|status| {
            let legs = legs_of(&status)?;
            let amount = legs.iter().find(|leg| leg.account == name)?.amount;
            let (key, state, submitted_at) = (status.id, status.state, status.times.created_ms);
            let (failures, reason) = (status.failures, status.reason);
            Some(Pending { key, state, amount, legs, submitted_at, failures, reason })
        });
        Self { account, transfers: pending.collect() }
    }

    /// The balance after all of the transfers, in minor units.
    #[must_use]
    pub fn would_hold(&self) -> i128 {
        let amounts = self.transfers.iter().map(|one| i128::from(one.amount));
        i128::from(self.account.balance) + amounts.sum::<i128>()
    }
}
