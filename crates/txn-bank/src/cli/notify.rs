//! HTTP requests that notify other services of a transfer.

use serde_json::json;
use txn_bank::{BankError, Leg};
use txn_outbox::http::{Body, Destination, HttpConfig, HttpRequest, Method};

use crate::console::failure::Failure;

/// A request to each URL, with the key and the legs.
///
/// The same transfer always has the same requests.
pub(crate) fn calls(urls: &[String], key: &str, legs: &[Leg]) -> Vec<HttpRequest> {
    let mut legs: Vec<&Leg> = legs.iter().collect();
    legs.sort_by(|a, b| a.account.cmp(&b.account));
    let leg = |leg: &&Leg| json!({ "account": leg.account, "amount": leg.amount });
    let legs: Vec<_> = legs.iter().map(leg).collect();
    let body = json!({ "transfer": key, "legs": legs });
    let call =
        |url: &String| HttpRequest::new(Method::Post, url).with_body(Body::Json(body.clone()));
    urls.iter().map(call).collect()
}

/// Allows these origins, at public addresses or at the listed ones.
pub(crate) fn http_config(origins: &[String], addresses: &[String]) -> Result<HttpConfig, Failure> {
    let mut destinations = Vec::new();
    for origin in origins {
        let listed = |listed: Destination, address: &String| listed.with_address(address);
        let destination = Destination::new(origin).map_err(BankError::from)?;
        let destination = addresses.iter().try_fold(destination, listed);
        destinations.push(destination.map_err(BankError::from)?);
    }
    Ok(HttpConfig::default().with_destinations(destinations))
}
