//! Submitted transfers, which any process may execute later.

use std::sync::Arc;

use serde_json::{Value, json};
use txn_core::{Options, Typed};
use txn_outbox::http::HttpRequest;
use txn_requests::{
    Add, Condition, Document, Expect, Field, Operation, Refusal, Request, RequestError, Requests,
    RequestsConfig, Status, Target, Why,
};

use crate::bank::Bank;
use crate::error::{BankError, Result};
use crate::input::Leg;
use crate::model::{Account, Kind, Transfer};
use crate::transfers::companion::{Accompanies, CLOSED};
use crate::transfers::rules;

/// The application name of the bank's requests.
pub const APPLICATION: &str = "txn-bank";

impl Bank {
    /// Opens the requests of this bank, with its outbox if any.
    ///
    /// # Errors
    /// As [`Requests::open`].
    pub async fn requests(&self, config: RequestsConfig) -> Result<Requests> {
        let (owners, statements) = (self.owners().cloned(), self.statements().cloned());
        let (accounts, transfers) = self.collections();
        let (accounts, transfers) = (accounts.clone(), transfers.name().to_owned());
        let clock = self.domain().config().shared_clock();
        let companion = Accompanies { owners, statements, accounts, transfers, clock };
        let outbox = config.outbox.clone().or_else(|| self.known_outbox().cloned());
        let config = config.with_outbox(outbox);
        Ok(Requests::open_with(self.domain(), config, Arc::new(companion)).await?)
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
        rules::check_transfer(Some(key), legs)?;
        // A request with the same legs is the same transfer, even if its creation time differs.
        if let Some(found) = known(requests, key).await? {
            return same(found, key, legs, &after_commit);
        }
        let request = self.request(key, legs, &after_commit).await?;
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
        rules::check_transfer(Some(reversal), &turned)?;
        let request = self.request(reversal, &turned, &[]).await?;
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
        let is_closed = refusal.target.collection == self.collections().0.name()
            && refusal.path.as_deref() == Some(CLOSED)
            && refusal.why == Why::FieldDiffers;
        is_closed.then(|| BankError::AccountClosed(refusal.target.id.clone()))
    }

    /// A transfer as a request: conditions, sums, and the ledger entry.
    async fn request(&self, key: &str, legs: &[Leg], calls: &[HttpRequest]) -> Result<Request> {
        let extras = rules::extras(&[], calls)?;
        let (accounts, transfers) = self.collections();
        let names: Vec<&str> = legs.iter().map(|leg| leg.account.as_str()).collect();
        let options = Options::default().with_read_only(true);
        let found = self.domain().run::<_, BankError, _>(&options, async |tx| {
            Ok(tx.get_many::<Typed<Account>, _>(accounts, names.iter().copied()).await?)
        });
        let (currencies, mut entries) = rules::entries(legs, found.await?.value)?;
        let mut operations = Vec::new();
        for (leg, account) in legs.iter().zip(&currencies) {
            let target = Target::new(accounts.name(), &*leg.account);
            // The account may be closed before the execution.
            for (path, equals) in [("/currency", json!(account.currency)), (CLOSED, Value::Null)] {
                let that = Condition::Field(Field { path: path.to_owned(), equals });
                operations.push(Operation::Expect(Expect { target: target.clone(), that }));
            }
            let (path, amount) = ("/balance".to_owned(), leg.amount.into());
            let min = (!account.overdraft && leg.amount < 0).then(|| 0.into());
            // The bank stores signed integers of 64 bits.
            let max = Some(i64::MAX.into());
            operations.push(Operation::Add(Add { target, path, amount, min, max }));
        }
        entries.sort();
        let (kind, created_at) = (Kind::Transfer, self.now());
        let transfer = Transfer { kind, key: key.to_owned(), legs: entries, created_at, extras };
        let document =
            Document::new(&transfer).map_err(|e| RequestError::Invalid(e.to_string()))?;
        operations.push(Operation::insert(Target::new(transfers.name(), key), document));
        let legs: Vec<_> = legs.iter().map(|leg| json!([leg.account, leg.amount])).collect();
        let request = Request::new(operations).with_application_name(APPLICATION);
        Ok(request.with_metadata(json!({ "legs": legs })))
    }
}

/// The status of a request, if it exists.
async fn known(requests: &Requests, key: &str) -> Result<Option<Status>> {
    match requests.status(key).await {
        Ok(status) => Ok(Some(status)),
        Err(RequestError::NotFound(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The status of a found request for the same transfer.
///
/// Fails if the legs or the HTTP requests differ.
fn same(found: Status, key: &str, legs: &[Leg], calls: &[HttpRequest]) -> Result<Status> {
    let sorted = |mut legs: Vec<Leg>| {
        legs.sort_by(|a, b| a.account.cmp(&b.account));
        legs
    };
    let is_same = legs_of(&found).map(sorted) == Some(sorted(legs.to_vec()));
    match is_same && found.request.after_commit == calls {
        true => Ok(found),
        false => Err(BankError::KeyReused(key.to_owned())),
    }
}

/// The legs of a transfer that this bank submitted.
pub(crate) fn legs_of(status: &Status) -> Option<Vec<Leg>> {
    let legs = status.request.metadata.as_ref()?.get("legs")?.as_array()?;
    let leg =
        |leg: &serde_json::Value| Some(Leg::new(leg.get(0)?.as_str()?, leg.get(1)?.as_i64()?));
    legs.iter().map(leg).collect()
}
