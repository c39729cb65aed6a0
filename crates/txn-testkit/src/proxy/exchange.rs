//! One request on its way to the server and back.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, StreamExt};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, TRANSFER_ENCODING,
};
use hyper::http::{request, response};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use super::fault::{Fault, FaultKind, Outage, Refusal};
use super::hold::{Delivery, Point};
use super::matching::{Facts, Matching, Route};
use super::{Action, Ongoing, Shared, items};

pub(crate) type Upstream = Client<HttpConnector, Full<Bytes>>;
pub(crate) type Answer = Response<UnsyncBoxBody<Bytes, Cut>>;

/// The pause between the first half of an answer and the cut.
const HALFTIME: Duration = Duration::from_millis(5);

/// The connection to the client has to be cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut;

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cut")
    }
}

impl std::error::Error for Cut {}

impl From<Infallible> for Cut {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

pub(crate) fn upstream() -> Upstream {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    // The client replaces a pooled connection that the server closed while idle: nothing was sent
    // on it.
    Client::builder(TokioExecutor::new()).build(connector)
}

/// A request as it arrived.
#[derive(Clone)]
struct Message {
    parts: request::Parts,
    /// The path at the server, with the query.
    path: String,
    body: Bytes,
}

pub(crate) async fn exchange(
    shared: &Arc<Shared>,
    parts: request::Parts,
    body: Bytes,
) -> Result<Answer, Cut> {
    shared.tally.request();
    let manners = shared.manners();
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let Some(path) = manners.path(path).map(str::to_owned) else {
        return Ok(refusal(StatusCode::NOT_FOUND));
    };
    if manners.is_too_large(&body) {
        return Ok(refusal(StatusCode::PAYLOAD_TOO_LARGE));
    }
    let route = Route::of(&path);
    let facts = Facts { route, method: parts.method.as_str(), path: &path, body: &body };
    let action = shared.decide(&facts);
    let message = Message { parts, path, body };
    match action {
        Action::Pass => shared.forward(message).await.map(Whole::pass),
        Action::Fault(Fault::Refuse(refusal), behind, rule) => {
            shared.refuse_items(message, refusal, behind, rule).await
        }
        Action::Fault(fault, ..) => shared.spoil(message, fault).await,
        Action::Away(Outage::Silent) => Err(Cut),
        Action::Away(Outage::Hangs) => {
            shared.outage_ends(Outage::Hangs).await;
            Err(Cut)
        }
        Action::Away(Outage::Refuses) => Ok(refusal(StatusCode::TOO_MANY_REQUESTS)),
        Action::Hold(ticket) if ticket.point == Point::Before => match ticket.wait().await {
            Delivery::GoesOn => shared.forward(message).await.map(Whole::pass),
            Delivery::Lost => Err(Cut),
        },
        Action::Hold(ticket) => {
            let answer = shared.forward(message).await?;
            match ticket.wait().await {
                Delivery::GoesOn => Ok(answer.pass()),
                Delivery::Lost => Err(Cut),
            }
        }
    }
}

impl Shared {
    async fn spoil(self: &Arc<Self>, message: Message, fault: Fault) -> Result<Answer, Cut> {
        let kind = fault.kind();
        let happened = || self.tally.fault(kind);
        match fault {
            Fault::LoseAnswer => {
                self.forward(message).await?;
                happened();
                Err(Cut)
            }
            Fault::CutBefore => {
                happened();
                Err(Cut)
            }
            Fault::DelayBefore(delay) => {
                tokio::time::sleep(delay).await;
                let answer = self.forward(message).await?;
                happened();
                Ok(answer.pass())
            }
            Fault::DelayAfter(delay) => {
                let answer = self.forward(message).await?;
                tokio::time::sleep(delay).await;
                happened();
                Ok(answer.pass())
            }
            Fault::Duplicate => {
                let both = (self.forward(message.clone()), self.forward(message));
                let (first, second) = futures::join!(both.0, both.1);
                if first.is_ok() && second.is_ok() {
                    happened();
                }
                first.or(second).map(Whole::pass)
            }
            Fault::DuplicateLate(delay) => {
                let answer = self.forward(message.clone()).await?;
                self.repeat(message, delay);
                Ok(answer.pass())
            }
            Fault::TooManyRequests => {
                happened();
                Ok(refusal(StatusCode::TOO_MANY_REQUESTS))
            }
            Fault::ServiceUnavailable => {
                happened();
                Ok(refusal(StatusCode::SERVICE_UNAVAILABLE))
            }
            Fault::CutAnswer => {
                let answer = self.forward(message).await?;
                happened();
                answer.half()
            }
            Fault::Refuse(refusal) => self.refuse_items(message, refusal, None, None).await,
        }
    }

    /// Carries the request out, and answers its successful writes with a refusal.
    ///
    /// An outage begins before the answer is sent. If no write was refused, the rule is armed
    /// again.
    async fn refuse_items(
        &self,
        message: Message,
        refusal: Refusal,
        behind: Option<Ongoing>,
        rule: Option<Matching>,
    ) -> Result<Answer, Cut> {
        let mut answer = self.forward(message).await?;
        if let Some(refused) = items::refused(&answer.body, refusal) {
            answer.body = refused;
            self.tally.fault(Fault::Refuse(refusal).kind());
            if let Some(behind) = behind {
                self.begins(behind);
            }
        } else if let Some(rule) = rule {
            self.arm(rule, Action::Fault(Fault::Refuse(refusal), behind, None));
        }
        Ok(answer.pass())
    }

    /// Repeats a request after a delay.
    fn repeat(self: &Arc<Self>, message: Message, delay: Duration) {
        let this = self.clone();
        self.exchanges.spawn(async move {
            let again = async {
                tokio::time::sleep(delay).await;
                this.forward(message).await
            };
            tokio::select! {
                () = this.stop.cancelled() => {}
                answer = again => {
                    if answer.is_ok() {
                        this.tally.fault(FaultKind::DuplicateLate);
                    }
                }
            }
        });
    }

    /// Sends a request to the server. Without an answer, the client's connection is cut.
    async fn forward(&self, Message { parts, path, body }: Message) -> Result<Whole, Cut> {
        let mut request = Request::builder()
            .method(parts.method.clone())
            .uri(format!("{}{path}", self.target))
            .body(Full::new(body))
            .map_err(|_| Cut)?;
        *request.headers_mut() = parts.headers;
        strip(request.headers_mut());
        request.headers_mut().remove(HOST);
        let answer = self.client.request(request).await.map_err(|_| Cut)?;
        let (mut head, body) = answer.into_parts();
        let body = body.collect().await.map_err(|_| Cut)?.to_bytes();
        // The answer to a HEAD request states the length of the absent body.
        let length = head.headers.get(CONTENT_LENGTH).cloned();
        strip(&mut head.headers);
        if let (Method::HEAD, Some(length)) = (parts.method, length) {
            head.headers.insert(CONTENT_LENGTH, length);
        }
        self.tally.forwarded();
        let body = self.manners().hide(Route::of(&path), &path, &body).unwrap_or(body);
        Ok(Whole { head, body })
    }
}

/// Removes headers of the connection, and headers that follow from the body.
fn strip(headers: &mut HeaderMap) {
    for name in [CONNECTION, TRANSFER_ENCODING, CONTENT_LENGTH] {
        headers.remove(name);
    }
    headers.remove("keep-alive");
}

/// A complete answer of the server.
struct Whole {
    head: response::Parts,
    body: Bytes,
}

impl Whole {
    fn pass(self) -> Answer {
        Response::from_parts(self.head, whole(self.body))
    }

    /// Sends the first half, and then cuts the connection.
    fn half(self) -> Result<Answer, Cut> {
        let Self { mut head, body } = self;
        head.headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len().max(2)));
        let first = body.slice(..body.len() / 2);
        let first = stream::once(async move { Ok(Frame::data(first)) });
        let end = stream::once(async {
            tokio::time::sleep(HALFTIME).await;
            Err(Cut)
        });
        Ok(Response::from_parts(head, StreamBody::new(first.chain(end)).boxed_unsync()))
    }
}

fn whole(body: Bytes) -> UnsyncBoxBody<Bytes, Cut> {
    Full::new(body).map_err(Cut::from).boxed_unsync()
}

/// Refuses as an overloaded server or a proxy does.
fn refusal(status: StatusCode) -> Answer {
    let (kind, text) = match status {
        StatusCode::TOO_MANY_REQUESTS => (
            "application/json",
            r#"{"error":{"type":"es_rejected_execution_exception","reason":"refused by the proxy"},"status":429}"#,
        ),
        StatusCode::PAYLOAD_TOO_LARGE => {
            ("text/html", "<html><head><title>413 Request Entity Too Large</title></head></html>")
        }
        StatusCode::NOT_FOUND => {
            ("text/html", "<html><head><title>404 Not Found</title></head></html>")
        }
        _ => ("application/json", r#"{"message":"refused by the proxy"}"#),
    };
    let mut answer = Response::new(whole(Bytes::from_static(text.as_bytes())));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}
