//! Answers of the gateway, and the types of their content.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Response, StatusCode};
use serde::{Deserialize, Serialize};
use txn_core::Receipt;
use txn_es::ForwardedAnswer;

use super::limits::Share;
use super::problem::Problem;
use super::shape::Shape;
use crate::console::error_page;

/// The header that the clients of Elasticsearch look for.
const PRODUCT: HeaderName = HeaderName::from_static("x-elastic-product");

/// The header with the tid of a transaction.
const TID: HeaderName = HeaderName::from_static("x-transaction-id");

/// The scheme of logins for programs. `Basic` would make a browser ask for a password.
const SCHEME: HeaderValue = HeaderValue::from_static("Bearer realm=\"txn\"");

/// The scheme of logins on the pages, for which a browser asks.
const BROWSER_SCHEME: HeaderValue =
    HeaderValue::from_static("Basic realm=\"txn console\", charset=\"UTF-8\"");

/// The permissions of a page: its own style, and own forms. The forms go to the own site. No page
/// runs a script.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
);

/// The pause for a client after a temporary refusal, in seconds.
const PAUSE: HeaderValue = HeaderValue::from_static("1");

/// The JSON types of requests from Elasticsearch clients. Each type belongs to a major version of
/// the client.
const COMPATIBLE: [(&str, HeaderValue); 3] = [
    (
        "compatible-with=9",
        HeaderValue::from_static("application/vnd.elasticsearch+json;compatible-with=9"),
    ),
    (
        "compatible-with=8",
        HeaderValue::from_static("application/vnd.elasticsearch+json;compatible-with=8"),
    ),
    (
        "compatible-with=7",
        HeaderValue::from_static("application/vnd.elasticsearch+json;compatible-with=7"),
    ),
];

/// An answer, which an `Idempotency-Key` may store.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Reply {
    status: u16,
    content: Content,
    body: String,
    /// The body for the caller of the transaction, if a repetition receives a shorter one.
    #[serde(skip)]
    long_body: Option<String>,
    #[serde(skip)]
    receipt: Option<Receipt>,
    /// The share of the body, until the client has taken it.
    #[serde(skip)]
    share: Option<Arc<Share>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Content {
    Json,
    /// A refusal: its type depends on the path.
    Problem,
    /// Plain text, such as metrics.
    Plain,
    /// A page of the console.
    Page,
    /// The style of the pages.
    Style,
}

/// Leaves the body out of logs.
impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").field("status", &self.status).finish_non_exhaustive()
    }
}

impl Reply {
    fn new(status: StatusCode, content: Content, body: String) -> Self {
        let (long_body, receipt, share) = (None, None, None);
        Self { status: status.as_u16(), content, body, long_body, receipt, share }
    }

    pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> Self {
        // All keys are texts, so that each body can be written.
        Self::new(status, Content::Json, serde_json::to_string(body).unwrap_or_default())
    }

    /// A refusal as an answer.
    pub(crate) fn problem(problem: &Problem, shape: Shape) -> Self {
        Self::new(problem.status, Content::Problem, problem.body(shape).to_string())
    }

    /// A refusal with a list beside the error. The bytes of its entries stay.
    ///
    /// A repetition receives an empty list, because a stored answer has no room for contents.
    pub(crate) fn problem_with(
        (problem, shape): (&Problem, Shape),
        name: &str,
        list: &[impl Serialize],
    ) -> Self {
        let body = problem.body(shape).to_string();
        let fields = body.strip_prefix('{').unwrap_or_default();
        let list = serde_json::to_string(list).unwrap_or_default();
        let [short, long] = ["[]", &*list].map(|list| format!("{{\"{name}\":{list},{fields}"));
        Self { long_body: Some(long), ..Self::new(problem.status, Content::Problem, short) }
    }

    pub(crate) fn plain(body: String) -> Self {
        Self::new(StatusCode::OK, Content::Plain, body)
    }

    pub(crate) fn page(status: StatusCode, body: String) -> Self {
        Self::new(status, Content::Page, body)
    }

    pub(crate) fn style(body: &str) -> Self {
        Self::new(StatusCode::OK, Content::Style, body.to_owned())
    }

    /// Adds the tid of the transaction to the body.
    ///
    /// Without a transaction the body stays unchanged.
    #[must_use]
    pub(crate) fn with_tid(mut self) -> Self {
        let tid = self.receipt.and_then(|receipt| receipt.tid);
        if let (Some(tid), Some(fields)) = (tid, self.body.strip_suffix('}')) {
            self.body = format!("{fields},\"tid\":\"{tid}\"}}");
        }
        self
    }

    /// Counts the body among the answers.
    ///
    /// # Errors
    /// [`Code::Overloaded`] if the answers are too large, and the answer may be refused.
    pub(crate) fn counted(mut self, share: Arc<Share>, refusable: bool) -> Result<Self, Problem> {
        if self.long_body.as_ref().is_some_and(|body| !share.grow_to(body.len())) {
            // The client reads again.
            self.long_body = None;
        }
        match share.grow_to(self.body.len()) {
            false if refusable => Err(Problem::overloaded_by_bytes()),
            _ => {
                self.share = Some(share);
                Ok(self)
            }
        }
    }

    /// Names the transaction in a header. A refusal names none, because it has no effect.
    #[must_use]
    pub(crate) fn of_transaction(mut self, receipt: Option<Receipt>) -> Self {
        self.receipt = receipt.filter(|_| !self.is_refusal());
        self
    }

    /// Whether a transaction of this request has committed.
    pub(crate) fn is_of_transaction(&self) -> bool {
        self.receipt.is_some()
    }

    /// Whether the request is refused.
    pub(crate) fn is_refusal(&self) -> bool {
        self.content == Content::Problem
    }
}

/// Writes the answer of a request.
pub(crate) fn response(
    answer: Result<Reply, Problem>,
    shape: Shape,
    asked: &HeaderMap,
    elastic_product: bool,
) -> Response<Full<Bytes>> {
    let allow = answer.as_ref().err().and_then(|problem| allow(problem.methods()));
    let (reply, passing) = match answer {
        Ok(reply) => (reply, false),
        Err(problem) if shape == Shape::Page => {
            (Reply::page(problem.status, error_page(&problem)), problem.is_passing())
        }
        Err(problem) => (Reply::problem(&problem, shape), problem.is_passing()),
    };
    let content_type = match (reply.content, shape) {
        (Content::Problem, Shape::Problem) => HeaderValue::from_static("application/problem+json"),
        (Content::Json | Content::Problem, _) => json_type(asked),
        (Content::Page, _) => HeaderValue::from_static("text/html; charset=utf-8"),
        (Content::Style, _) => HeaderValue::from_static("text/css; charset=utf-8"),
        (Content::Plain, _) => HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8"),
    };
    let body = Bytes::from(reply.long_body.unwrap_or(reply.body));
    let body = match &reply.share {
        Some(share) => share.bind(body),
        None => body,
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = StatusCode::from_u16(reply.status).unwrap_or_default();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, content_type);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if matches!(reply.content, Content::Page | Content::Style) {
        headers.insert(header::CONTENT_SECURITY_POLICY, POLICY);
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        // With `no-referrer`, a form of the page itself would name no origin.
        headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    }
    if passing {
        headers.insert(header::RETRY_AFTER, PAUSE);
    }
    if let Some(allow) = allow {
        headers.insert(header::ALLOW, allow);
    }
    if reply.status == StatusCode::UNAUTHORIZED.as_u16() {
        let scheme = if shape == Shape::Page { BROWSER_SCHEME } else { SCHEME };
        headers.insert(header::WWW_AUTHENTICATE, scheme);
    }
    if elastic_product {
        headers.insert(PRODUCT, HeaderValue::from_static("Elasticsearch"));
    }
    let tid = reply.receipt.and_then(|receipt| receipt.tid).map(|tid| tid.to_string());
    if let Some(tid) = tid.and_then(|tid| HeaderValue::from_str(&tid).ok()) {
        headers.insert(TID, tid);
    }
    response
}

/// The methods of a path, as a header names them.
fn allow(methods: &[Method]) -> Option<HeaderValue> {
    let names: Vec<&str> = methods.iter().map(Method::as_str).collect();
    HeaderValue::try_from(names.join(", ")).ok().filter(|allow| !allow.is_empty())
}

/// Writes the answer of the servers, which holds its share.
pub(crate) fn passed(answer: ForwardedAnswer, share: &Share) -> Response<Full<Bytes>> {
    let ForwardedAnswer { status, headers, body } = answer;
    let mut response = Response::new(Full::new(share.bind(body)));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
    for (name, value) in headers {
        if let Ok(value) = HeaderValue::try_from(value) {
            response.headers_mut().append(name, value);
        }
    }
    response
}

/// The type of JSON that the client asks for.
fn json_type(asked: &HeaderMap) -> HeaderValue {
    let accept = asked.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    let accept = accept.unwrap_or_default();
    if accept.contains("application/vnd.elasticsearch+json") {
        for (version, content_type) in COMPATIBLE {
            if accept.contains(version) {
                return content_type;
            }
        }
    }
    HeaderValue::from_static("application/json")
}
