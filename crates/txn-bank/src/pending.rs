//! Transfers that are submitted and not decided, by the accounts that they concern.

use serde::Serialize;
use txn_requests::{Reason, Requests, Selection, State};

use crate::bank::Bank;
use crate::error::{BankError, Result};
use crate::input::Leg;
use crate::model::Account;
use crate::requests::{APPLICATION, legs_of};

/// A submitted transfer that is not decided.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Pending {
    /// Its key.
    pub key: String,
    /// Where it stands: created, pending, or quarantined, which is tried again once somebody releases it.
    pub state: State,
    /// What it would add to the account, in minor units; negative: what it would take.
    pub amount: i64,
    /// All that it would change.
    #[serde(serialize_with = "as_pairs")]
    pub legs: Vec<Leg>,
    /// When it was submitted, in milliseconds since the Unix epoch.
    pub submitted_at: u64,
    /// How often trying it failed.
    pub failures: u32,
    /// Why it failed last.
    pub reason: Option<Reason>,
}

fn as_pairs<S: serde::Serializer>(legs: &[Leg], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(legs.iter().map(|leg| (&leg.account, leg.amount)))
}

/// An account, and what would change it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PendingTransfers {
    /// The account, read before the transfers were looked for.
    pub account: Account,
    /// The transfers, the oldest first.
    pub transfers: Vec<Pending>,
}

impl PendingTransfers {
    /// What the account would hold if all of them were made, in minor units.
    #[must_use]
    pub fn would_hold(&self) -> i128 {
        let amounts = self.transfers.iter().map(|one| i128::from(one.amount));
        i128::from(self.account.balance) + amounts.sum::<i128>()
    }
}

impl Bank {
    /// The submitted transfers that concern an account and are neither made nor rolled back. Nothing of them is visible in
    /// the account yet. Costs a scan of all such requests, of which there are at most
    /// [`max_open`](txn_requests::RequestsConfig::max_open) beside those that were set aside. It is no snapshot: one may be
    /// decided meanwhile.
    ///
    /// # Errors
    /// [`BankError::UnknownAccount`], [`BankError::InvalidName`]; as [`Requests::list`].
    pub async fn pending(&self, requests: &Requests, name: &str) -> Result<PendingTransfers> {
        let account = self.accounts(&[name]).await?.pop();
        let account = account.ok_or_else(|| BankError::UnknownAccount(name.to_owned()))?;
        let states = [State::Created, State::Pending, State::Quarantined];
        let selection = Selection::default().with_states(states);
        let found = requests.list(&selection.with_application(Some(APPLICATION))).await?;
        let pending = found.into_iter().filter_map(|status| {
            let legs = legs_of(&status)?;
            let amount = legs.iter().find(|leg| leg.account == name)?.amount;
            let (key, state, submitted_at) = (status.id, status.state, status.times.created_ms);
            let (failures, reason) = (status.failures, status.reason);
            Some(Pending { key, state, amount, legs, submitted_at, failures, reason })
        });
        Ok(PendingTransfers { account, transfers: pending.collect() })
    }
}
