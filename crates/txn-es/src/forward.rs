//! Requests of other programs with the login of the store.
//!
//! The requests go to the nodes of the store.

use std::fmt;

use bytes::Bytes;
use reqwest::Method;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use txn_store::{StoreError, StoreErrorKind};

use crate::guarded::Hide;
use crate::secrets::Secrets;
use crate::transport::{AnswerMeter, Failure, Request, RequestClass, Transport};

/// A request of another program, for [`EsStore::forward`](crate::EsStore::forward).
#[derive(Clone)]
pub struct ForwardedRequest {
    /// The method, such as `POST`.
    pub method: String,
    /// The path, with its names already escaped.
    pub path: String,
    /// The parameters of the query, not escaped.
    pub query: Vec<(String, String)>,
    /// The types of content that the program accepts.
    pub accept: Option<String>,
    /// The type of the body.
    pub content_type: Option<String>,
    /// The body; `None` for a request without one.
    pub body: Option<Bytes>,
    /// The largest accepted answer, in bytes.
    pub max_answer: usize,
    /// Asked before each part of the answer is kept. A refusal ends the answer as too large.
    pub meter: Option<AnswerMeter>,
}

/// The answer of a server, with any status.
#[derive(Clone)]
pub struct ForwardedAnswer {
    /// The HTTP status, such as 404.
    pub status: u16,
    /// The names in lower case and the values of those headers that programs use: `content-type`,
    /// `location`, `retry-after`, `warning` and `x-elastic-product`.
    pub headers: Vec<(&'static str, String)>,
    /// The body as the server sent it.
    pub body: Bytes,
}

/// The headers of an answer that programs use.
const USED: [&str; 5] = ["content-type", "location", "retry-after", "warning", "x-elastic-product"];

/// The reason why a request has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForwardError {
    /// No node has received a byte of the request.
    NotSent(StoreError),
    /// The outcome is unknown. The request may have been carried out, or may be carried out later.
    Lost(StoreError),
    /// A server has answered, and the answer exceeds the limit.
    TooLarge(StoreError),
}

/// Leaves bodies and parameters out of logs.
impl fmt::Debug for ForwardedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { method, path, .. } = self;
        f.debug_struct("ForwardedRequest")
            .field("method", method)
            .field("path", path)
            .finish_non_exhaustive()
    }
}

/// Leaves the body out of logs.
impl fmt::Debug for ForwardedAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForwardedAnswer").field("status", &self.status).finish_non_exhaustive()
    }
}

impl fmt::Display for ForwardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::NotSent(error) | Self::Lost(error) | Self::TooLarge(error)) = self;
        error.fmt(f)
    }
}

impl std::error::Error for ForwardError {}

impl Hide for Result<ForwardedAnswer, ForwardError> {
    fn hide(self, secrets: &Secrets) -> Self {
        self.map_err(|error| match error {
            ForwardError::NotSent(error) => ForwardError::NotSent(secrets.hide_in_error(error)),
            ForwardError::Lost(error) => ForwardError::Lost(secrets.hide_in_error(error)),
            ForwardError::TooLarge(error) => ForwardError::TooLarge(secrets.hide_in_error(error)),
        })
    }
}

/// Sends a request once.
pub(crate) async fn forward(
    transport: &Transport,
    forwarded: ForwardedRequest,
) -> Result<ForwardedAnswer, ForwardError> {
    let unfit = |what: &str| {
        let text = format!("the forwarded request has an unfit {what}");
        ForwardError::NotSent(StoreError::new(StoreErrorKind::Misconfigured, text))
    };
    let method = Method::try_from(&*forwarded.method).map_err(|_| unfit("method"))?;
    let mut headers = HeaderMap::new();
    for (name, value) in [(ACCEPT, forwarded.accept), (CONTENT_TYPE, forwarded.content_type)] {
        if let Some(value) = value {
            let value = HeaderValue::try_from(value).map_err(|_| unfit("header"))?;
            headers.insert(name, value);
        }
    }
    let query: Vec<(&str, &str)> =
        forwarded.query.iter().map(|(name, value)| (&**name, &**value)).collect();
    let request = Request {
        method,
        path: &forwarded.path,
        query: &query,
        body: forwarded.body,
        items: 0,
        room: forwarded.max_answer,
        class: RequestClass::Write,
    };
    let answer =
        transport.forward(request, headers, forwarded.meter).await.map_err(
            |failure| match failure {
                Failure::NotSent(error) => ForwardError::NotSent(error),
                Failure::Lost(error) => ForwardError::Lost(error),
                Failure::TooLarge(error) => ForwardError::TooLarge(error),
            },
        )?;
    let of_name = |name: &'static str| {
        let values = answer.headers.get_all(name).iter();
        values.filter_map(move |value| Some((name, value.to_str().ok()?.to_owned())))
    };
    let headers = USED.into_iter().flat_map(of_name).collect();
    Ok(ForwardedAnswer { status: answer.status, headers, body: answer.body })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;
    use crate::fake::Fake;

    fn request(path: &str) -> ForwardedRequest {
        ForwardedRequest {
            method: "POST".to_owned(),
            path: path.to_owned(),
            query: vec![("q".to_owned(), "a b".to_owned())],
            accept: None,
            content_type: Some("application/json".to_owned()),
            body: Some(Bytes::from_static(b"{}")),
            max_answer: 100,
            meter: None,
        }
    }

    #[tokio::test]
    async fn request_is_sent_once_as_it_is() {
        let fake = Fake::new(|path, body| match path {
            "/a%2Fb/_search?q=a+b" if body == "{}" => (404, "none".to_owned()),
            "/large?q=a+b" => (200, "x".repeat(101)),
            // The connection is closed without an answer.
            _ => (0, String::new()),
        })
        .await;
        let answer = fake.store.forward(request("/a%2Fb/_search")).await.expect("an answer");
        assert_eq!((answer.status, &*answer.body), (404, b"none".as_slice()));
        let large = fake.store.forward(request("/large")).await.expect_err("too large");
        assert!(matches!(large, ForwardError::TooLarge(_)), "{large}");
        let lost = fake.store.forward(request("/lost")).await.expect_err("no answer");
        assert!(matches!(lost, ForwardError::Lost(_)), "{lost}");
        let asked = fake.asked.lock();
        assert_eq!(asked.iter().filter(|path| path.starts_with("/lost")).count(), 1);
    }

    #[tokio::test]
    async fn meter_counts_each_byte_and_ends_an_answer() {
        let fake = Fake::new(|_, _| (200, "x".repeat(90))).await;
        let counted = Arc::new(Mutex::new(0));
        let counter = counted.clone();
        let meter: AnswerMeter = Arc::new(move |bytes| {
            *counter.lock() += bytes;
            true
        });
        let metered = ForwardedRequest { meter: Some(meter), ..request("/whole") };
        fake.store.forward(metered).await.expect("an answer");
        assert_eq!(*counted.lock(), 90);
        let refused = ForwardedRequest { meter: Some(Arc::new(|_| false)), ..request("/ended") };
        let large = fake.store.forward(refused).await.expect_err("ended");
        assert!(matches!(large, ForwardError::TooLarge(_)), "{large}");
    }
}
