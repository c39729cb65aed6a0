//! A received request.

use std::sync::Arc;

use bytes::Bytes;
use hyper::Method;
use hyper::header::{self, HeaderMap};
use hyper::http::request::Parts;
use serde::de::DeserializeOwned;
use txn_core::{AttemptId, IdempotencyKey};

use crate::access::caller::Caller;
use crate::audit::Named;
use crate::config::ServeConfig;
use crate::http::limits::ReadBudget;
use crate::http::parameters::Parameters;
use crate::http::problem::{Code, Problem};
use crate::http::route::{Route, Work};

/// The header with the key of a request.
pub(crate) const KEY: &str = "idempotency-key";

/// The maximum number of bytes of a key.
const MOST_KEY: usize = 256;

/// A request with its route and its body.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) route: Route,
    pub(crate) parameters: Parameters,
    pub(crate) key: Option<IdempotencyKey>,
    /// The text of the key, with the name of the caller.
    pub(crate) key_text: Option<String>,
    /// The names for the audit log.
    pub(crate) named: Arc<Named>,
    pub(crate) caller: Caller,
    /// The bytes of contents that the request may read.
    pub(crate) budget: ReadBudget,
    body: Bytes,
}

impl Asked {
    pub(crate) fn new(
        route: Route,
        parts: &Parts,
        body: Bytes,
        config: &ServeConfig,
        (caller, named, budget): (Caller, Arc<Named>, ReadBudget),
    ) -> Result<Self, Problem> {
        let key_text = key_text(parts, &caller)?;
        let changes = !matches!(parts.method, Method::GET | Method::HEAD);
        if key_text.is_some() && changes && !route.work.takes_key() && route.work != Work::Read {
            let detail = "the path takes no Idempotency-Key: ask for the state before you repeat the request";
            return Err(Problem::new(Code::Unsupported, detail));
        }
        let key = key_text.as_deref().map(|text| key(text, parts, &body, config));
        let parameters = Parameters::parse(parts.uri.query());
        Ok(Self { route, parameters, key, key_text, named, caller, budget, body })
    }

    /// Refuses a parameter that the route did not take.
    pub(crate) fn finish_parameters(&mut self) -> Result<(), Problem> {
        std::mem::replace(&mut self.parameters, Parameters::parse(None)).finish()
    }

    /// The tid in the path.
    pub(crate) fn tid(&self) -> Result<AttemptId, Problem> {
        self.route.value(0).parse().map_err(|_| {
            let detail = "the path has no tid, such as `tid` or X-Transaction-Id of an answer: a UUID \
                          of version 1";
            Problem::new(Code::Invalid, detail)
        })
    }

    /// The body as text.
    pub(crate) fn text(&self) -> Result<&str, Problem> {
        let text = std::str::from_utf8(&self.body);
        text.map_err(|_| Problem::new(Code::Invalid, "the body is not UTF-8"))
    }

    pub(crate) fn has_body(&self) -> bool {
        !self.body.is_empty()
    }

    /// The body as JSON.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        serde_json::from_str(self.text()?)
            .map_err(|error| Problem::new(Code::Invalid, format!("the body does not fit: {error}")))
    }
}

/// Refuses a body of another type than JSON.
///
/// A page of another site can send a few types without asking first, and JSON is none of them.
pub(crate) fn check_content(headers: &HeaderMap, body: &Bytes) -> Result<(), Problem> {
    if let Some(encoding) = headers.get(header::CONTENT_ENCODING)
        && encoding != "identity"
    {
        return Err(Problem::new(Code::ContentType, "the gateway reads no compressed bodies"));
    }
    if body.is_empty() {
        return Ok(());
    }
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let content_type = content_type.and_then(|value| value.split(';').next()).unwrap_or_default();
    let is_known = [
        "application/json",
        "application/x-ndjson",
        "application/vnd.elasticsearch+json",
        "application/vnd.elasticsearch+x-ndjson",
    ]
    .iter()
    .any(|known| content_type.trim().eq_ignore_ascii_case(known));
    match is_known {
        true => Ok(()),
        false => {
            let detail =
                "send the header `Content-Type: application/json`, or application/x-ndjson";
            Err(Problem::new(Code::ContentType, detail))
        }
    }
}

/// The text of the key. No caller gets the answers of another token, or takes its keys.
fn key_text(parts: &Parts, caller: &Caller) -> Result<Option<String>, Problem> {
    let mut values = parts.headers.get_all(KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let text = value.to_str().unwrap_or_default();
    // The draft of the header writes a string with quotes.
    let text = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    if values.next().is_some() || text.is_empty() || text.len() > MOST_KEY {
        let detail = format!("an Idempotency-Key has 1 to {MOST_KEY} visible ASCII characters");
        return Err(Problem::new(Code::Invalid, detail));
    }
    Ok(Some(match caller.name() {
        Some(name) => format!("{name}/{text}"),
        None => text.to_owned(),
    }))
}

/// The key of the request.
///
/// The key is bound to the method, the path, the query and the body.
fn key(text: &str, parts: &Parts, body: &Bytes, config: &ServeConfig) -> IdempotencyKey {
    let target = parts.uri.path_and_query().map_or("", |target| target.as_str());
    let mut request = format!("{} {target}\n", parts.method).into_bytes();
    request.extend_from_slice(body);
    IdempotencyKey::new(text, config.idempotency_ttl).for_request(request)
}
