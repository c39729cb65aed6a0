//! The submitted transfers of a bank: submit, reverse, list.

use std::sync::Arc;

use txn_outbox::http::HttpRequest;
use txn_requests::{
    Refusal, Request, RequestError, Requests, RequestsConfig, Selection, State, Status, Why,
};

use crate::bank::Bank;
use crate::error::{BankError, Result};
use crate::input::Leg;
use crate::transfers::hook::{CLOSED, TransferHook};
use crate::transfers::pending::PendingTransfers;
use crate::transfers::requests::{APPLICATION, known, legs_of, request_of, same};
use crate::transfers::rules::check_transfer;

impl Bank {
    /// Opens the requests of this bank, with its outbox if any.
    ///
    /// # Errors
    /// As [`Requests::open`].
    pub async fn requests(&self, config: RequestsConfig) -> Result<Requests> {
        let hook = TransferHook::new(self.ledger.clone());
        let outbox = config.outbox.clone().or_else(|| self.known_outbox().cloned());
        let config = config.with_outbox(outbox);
        Ok(Requests::open_with(&self.domain, config, Arc::new(hook)).await?)
    }

    /// Submits a transfer, which a processor executes later.
    ///
    /// The submission is durable when the call returns. Money moves once per key, even after
    /// repeated submissions. The execution checks the funds.
    ///
    /// # Errors
    /// Errors of [`BankError`] about legs, accounts and keys; as [`Requests::submit`].
    pub async fn submit(&self, requests: &Requests, key: &str, legs: &[Leg]) -> Result<Status> {
        self.submit_with(requests, key, legs, Vec::new()).await
    }

    /// As [`Bank::submit`], with HTTP requests after the commit.
    ///
    /// A [`Dispatcher`](txn_outbox::http::Dispatcher) sends the HTTP requests at least once. Open
    /// the requests with an [`Outbox`](txn_outbox::Outbox) of the domain.
    ///
    /// # Errors
    /// As [`Bank::submit`].
    pub async fn submit_with(
        &self,
        requests: &Requests,
        key: &str,
        legs: &[Leg],
        after_commit: Vec<HttpRequest>,
    ) -> Result<Status> {
        check_transfer(Some(key), legs)?;
        // A request with the same legs is the same transfer, even if its creation time differs.
        if let Some(found) = known(requests, key).await? {
            return same(found, key, legs, &after_commit);
        }
        let request = request_of(&self.domain, &self.ledger, key, legs, &after_commit).await?;
        let request = after_commit.into_iter().fold(request, Request::with_after_commit);
        match requests.submit(&request, key).await {
            Err(RequestError::IdReused(_)) => {
                same(requests.status(key).await?, key, legs, &request.after_commit)
            }
            submitted => Ok(submitted?),
        }
    }

    /// Submits the reversal of a transfer, under its own key.
    ///
    /// A transfer has at most one reversal. The ledger keeps both.
    ///
    /// # Errors
    /// As [`Requests::reverse_with`].
    pub async fn reverse(&self, requests: &Requests, key: &str, reversal: &str) -> Result<Status> {
        let is_this = |found: &Status| found.reverses.as_deref() == Some(key);
        if let Some(found) = known(requests, reversal).await?.filter(is_this) {
            return Ok(found);
        }
        let legs = legs_of(&requests.status(key).await?);
        let legs = legs.ok_or_else(|| BankError::UnknownTransfer(key.to_owned()))?;
        let overflow = |leg: &Leg| BankError::AmountTooLarge(leg.amount.to_string());
        let turned = legs.iter().map(|leg| {
            let amount = leg.amount.checked_neg().ok_or_else(|| overflow(leg))?;
            Ok(Leg::new(&*leg.account, amount))
        });
        let turned = turned.collect::<Result<Vec<Leg>>>()?;
        check_transfer(Some(reversal), &turned)?;
        let request = request_of(&self.domain, &self.ledger, reversal, &turned, &[]).await?;
        match requests.reverse_with(key, reversal, &request).await {
            // Another process may have submitted the same reversal at another time in between.
            Err(RequestError::IdReused(reused)) => {
                let found = known(requests, reversal).await?.filter(is_this);
                Ok(found.ok_or(RequestError::IdReused(reused))?)
            }
            submitted => Ok(submitted?),
        }
    }

    /// The refusal of a submitted transfer as an error, if one fits.
    #[must_use]
    pub fn refused(&self, refusal: &Refusal) -> Option<BankError> {
        let is_closed = refusal.target.collection == self.ledger.accounts().name()
            && refusal.path.as_deref() == Some(CLOSED)
            && refusal.why == Why::FieldDiffers;
        is_closed.then(|| BankError::AccountClosed(refusal.target.id.clone()))
    }

    /// Lists the undecided submitted transfers of an account.
    ///
    /// The account does not show their effects yet. The call scans all such requests: at most
    /// [`max_open`](txn_requests::RequestsConfig::max_open), the quarantined ones, and
    /// [`max_scheduled`](txn_requests::RequestsConfig::max_scheduled) before their moment. The list
    /// is no snapshot, because a transfer may be decided during the call.
    ///
    /// # Errors
    /// [`BankError::UnknownAccount`], [`BankError::InvalidName`]; as [`Requests::list`].
    pub async fn pending(&self, requests: &Requests, name: &str) -> Result<PendingTransfers> {
        let account = self.accounts(&[name]).await?.pop();
        let account = account.ok_or_else(|| BankError::UnknownAccount(name.to_owned()))?;
        let states = [State::Created, State::Pending, State::Quarantined];
        let selection = Selection::default().with_states(states);
        let found = requests.list(&selection.with_application_name(Some(APPLICATION))).await?;
        Ok(PendingTransfers::of(account, name, found))
    }
}
