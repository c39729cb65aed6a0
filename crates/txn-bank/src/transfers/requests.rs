//! Submitted transfers, which any process may execute later.

use serde_json::{Value, json};
use txn_core::{Domain, Options, Typed};
use txn_outbox::http::HttpRequest;
use txn_requests::{
    Add, Condition, Document, Expect, Field, Operation, Request, RequestError, Requests, Status,
    Target,
};

use crate::error::{BankError, Result};
use crate::input::Leg;
use crate::model::{Account, Kind, Transfer};
use crate::transfers::hook::CLOSED;
use crate::transfers::ledger::Ledger;
use crate::transfers::rules;

/// The application name of the bank's requests.
pub const APPLICATION: &str = "txn-bank";

/// A transfer as a request: conditions, sums, and the ledger entry.
pub(crate) async fn request_of(
    domain: &Domain,
    ledger: &Ledger,
    key: &str,
    legs: &[Leg],
    calls: &[HttpRequest],
) -> Result<Request> {
    let extras = rules::extras(&[], calls)?;
    let (accounts, transfers) = (ledger.accounts(), ledger.transfers());
    let names: Vec<&str> = legs.iter().map(|leg| leg.account.as_str()).collect();
    let options = Options::default().with_read_only(true);
    let found = domain.run::<_, BankError, _>(&options, async |tx| {
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
    let (kind, created_at) = (Kind::Transfer, ledger.now());
    let transfer = Transfer { kind, key: key.to_owned(), legs: entries, created_at, extras };
    let document = Document::new(&transfer).map_err(|e| RequestError::Invalid(e.to_string()))?;
    operations.push(Operation::insert(Target::new(transfers.name(), key), document));
    let legs: Vec<_> = legs.iter().map(|leg| json!([leg.account, leg.amount])).collect();
    let request = Request::new(operations).with_application_name(APPLICATION);
    Ok(request.with_metadata(json!({ "legs": legs })))
}

/// The status of a request, if it exists.
pub(crate) async fn known(requests: &Requests, key: &str) -> Result<Option<Status>> {
    match requests.status(key).await {
        Ok(status) => Ok(Some(status)),
        Err(RequestError::NotFound(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The status of a found request for the same transfer.
///
/// Fails if the legs or the HTTP requests differ.
pub(crate) fn same(
    found: Status,
    key: &str,
    legs: &[Leg],
    calls: &[HttpRequest],
) -> Result<Status> {
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
