//! The call of a request: checks, name resolution, connection, and bounded reads.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use reqwest::dns::{Name, Resolve, Resolving};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, Url};
use secrecy::ExposeSecret;
use txn_core::clock::Clock;

use crate::http::config::{Destination, HttpConfig, address};
use crate::http::delivery::answer::{Answer, CallSecrets};
use crate::http::delivery::tls::Tls;
use crate::http::request::{Body, HeaderText, HttpRequest, origin};

/// The maximum number of addresses that a call tries.
const MOST_ADDRESSES: usize = 8;

/// The reason why a call has no answer.
#[derive(Debug)]
pub(crate) enum CallError {
    /// The configuration does not allow the request. Nothing was sent.
    Refused(String),
    /// No answer in time. The request may have been sent.
    Unanswered(String),
    /// A secret is unknown, or not valid in a header. Nothing was sent.
    Unknown(String),
    /// A service that the call needs is down. Nothing was sent.
    ///
    /// The failure says nothing about the request.
    Down(String),
}

/// Sends a request, and waits for the answer up to the limit.
///
/// The caller has checked the URL and its destination.
pub(crate) async fn call(
    config: &HttpConfig,
    request: &HttpRequest,
    (url, destination): (&Url, &Destination),
    (key, tls): (&str, &Tls),
    clock: &dyn Clock,
) -> Result<Answer, CallError> {
    let (limit, until) = (config.limit, clock.monotonic() + config.limit);
    let mut secrets = CallSecrets::default();
    let prepared = async {
        let headers = headers(config, request, url, key, &mut secrets).await?;
        Ok((headers, addresses(config, url, destination).await?))
    };
    let (headers, addresses) = tokio::select! {
        biased;
        prepared = prepared => prepared?,
        () = clock.sleep(limit) => {
            let why = format!("its secrets and its name were not looked up within {limit:?}");
            return Err(CallError::Down(why));
        }
    };
    let mut response = tokio::select! {
        biased;
        sent = send(request, url, headers, &addresses, tls) => sent?,
        () = clock.sleep(until.saturating_sub(clock.monotonic())) => {
            return Err(CallError::Unanswered(format!("no answer within {limit:?}")));
        }
    };
    let wall_ms = u64::try_from(clock.wall().as_millis()).unwrap_or(u64::MAX);
    let mut answer = Answer::new(&response, &config.result_headers, &secrets, wall_ms);
    if config.result_body > 0 {
        // The call removes secrets before it shortens the body, because it cannot detect half a
        // secret.
        let most = config.result_body + secrets.longest();
        let left = until.saturating_sub(clock.monotonic());
        let read = body(&mut response, most, clock, left).await;
        let mut text = secrets.redact(&String::from_utf8_lossy(&read));
        let end =
            (0..=config.result_body.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or(0));
        answer.body = Some(text);
    }
    Ok(answer)
}

/// The addresses to connect to. The call resolves the name only here.
async fn addresses(
    config: &HttpConfig,
    url: &Url,
    destination: &Destination,
) -> Result<Vec<SocketAddr>, CallError> {
    let (host, port) = (url.host_str().unwrap_or_default(), url.port_or_known_default());
    let port = port.unwrap_or_default();
    let mut found =
        match address(url) {
            Some(address) => vec![address],
            None => config.resolver.resolve(host, port).await.map_err(|error| {
                CallError::Down(format!("{host} could not be resolved: {error}"))
            })?,
        };
    // A single special address refuses the call: such a name is not trustworthy.
    if let Some(special) =
        found.iter().find(|address| !destination.admits(**address, &config.nat64))
    {
        let why = "is not of the public internet, and the destination does not list it";
        return Err(CallError::Refused(format!("{host} has the address {special}, which {why}")));
    }
    if found.is_empty() {
        return Err(CallError::Down(format!("{host} has no address")));
    }
    found.truncate(MOST_ADDRESSES);
    Ok(found.into_iter().map(|address| SocketAddr::new(address, port)).collect())
}

/// The headers to send, with the current secrets.
async fn headers(
    config: &HttpConfig,
    request: &HttpRequest,
    url: &Url,
    key: &str,
    secrets: &mut CallSecrets,
) -> Result<HeaderMap, CallError> {
    let mut headers = HeaderMap::new();
    let kind = match &request.body {
        Some(Body::Json(_)) => Some("application/json"),
        Some(Body::Text(_)) => Some("text/plain; charset=utf-8"),
        None => None,
    };
    if let Some(kind) = kind {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    }
    let odd = |name: &str| CallError::Refused(format!("the header {name:?} cannot be sent"));
    for (name, text) in &request.headers {
        let field = HeaderName::from_bytes(name.as_bytes()).map_err(|_| odd(name))?;
        let value = match text {
            HeaderText::Text(text) => HeaderValue::from_str(text).map_err(|_| odd(name))?,
            HeaderText::Secret { secret } => {
                let explained = |why| format!("the secret {secret:?} {why}");
                let failed = |why| CallError::Unknown(explained(why));
                let found = config.secrets.secret(secret, &origin(url)).await;
                let found =
                    found.map_err(|_| CallError::Down(explained("could not be looked up")))?;
                let found = found.ok_or_else(|| failed("is not known"))?;
                let value = HeaderValue::from_str(found.expose_secret());
                let mut value = value.map_err(|_| failed("is not valid in a header"))?;
                value.set_sensitive(true);
                secrets.0.push(found);
                value
            }
        };
        headers.insert(field, value);
    }
    let key = HeaderValue::from_str(key).map_err(|_| odd("idempotency-key"))?;
    headers.insert("idempotency-key", key);
    Ok(headers)
}

/// A resolver that always fails: the call has resolved its name already.
#[derive(Debug)]
struct RefusingResolver;

impl Resolve for RefusingResolver {
    fn resolve(&self, _: Name) -> Resolving {
        Box::pin(async { Err("it was resolved already".into()) })
    }
}

async fn send(
    request: &HttpRequest,
    url: &Url,
    headers: HeaderMap,
    addresses: &[SocketAddr],
    tls: &Tls,
) -> Result<Response, CallError> {
    // Each call has its own client: one connection to these addresses, without decoding. All
    // clients share the state of TLS.
    let client = Client::builder()
        .use_preconfigured_tls(tls.client())
        .redirect(Policy::none())
        .retry(reqwest::retry::never())
        .no_proxy()
        .referer(false)
        .http1_only()
        .no_gzip()
        .no_brotli()
        .no_zstd()
        .no_deflate()
        .pool_max_idle_per_host(0)
        .dns_resolver(Arc::new(RefusingResolver))
        .resolve_to_addrs(url.host_str().unwrap_or_default(), addresses)
        .build()
        .map_err(failed)?;
    let method = reqwest::Method::from_bytes(request.method.name().as_bytes());
    let method = method.map_err(|error| CallError::Refused(error.to_string()))?;
    let mut call = client.request(method, url.clone()).headers(headers);
    match &request.body {
        Some(Body::Json(value)) => call = call.body(value.to_string()),
        Some(Body::Text(text)) => call = call.body(text.clone()),
        None => {}
    }
    call.send().await.map_err(failed)
}

/// The body, up to `most` bytes and up to the limit.
async fn body(response: &mut Response, most: usize, clock: &dyn Clock, limit: Duration) -> Vec<u8> {
    let mut read = Vec::new();
    let over = clock.sleep(limit);
    tokio::pin!(over);
    while read.len() < most {
        let chunk = tokio::select! {
            biased;
            chunk = response.chunk() => chunk,
            () = &mut over => break,
        };
        let Ok(Some(chunk)) = chunk else { break };
        read.extend_from_slice(&chunk);
    }
    read.truncate(most);
    read
}

/// Describes an error of the client without the URL.
///
/// The query of the URL may be confidential.
fn failed(error: reqwest::Error) -> CallError {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    CallError::Unanswered(text)
}
