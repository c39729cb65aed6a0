//! The handler that sends requests.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use txn_core::{Codec, Domain, Options};
use txn_lock::instance::wall_ms;
use txn_lock::stored::{Format, Stored};
use url::Url;

use crate::error::{OutboxError, Result};
use crate::handler::{Delivery, Failure, Handler};
use crate::http::config::HttpConfig;
use crate::http::delivery::answer::Answer;
use crate::http::delivery::call::{CallError, call};
use crate::http::delivery::call_limits::CallLimits;
use crate::http::delivery::retries::Retry;
use crate::http::delivery::tls::Tls;
use crate::http::request::origin;
use crate::http::result::{HttpResult, HttpResults, HttpState};
use crate::http::stored_request::{StoredRequest, StoredRequests, TOPIC};

/// How long the dispatcher tries to write the result of a call.
const LONGEST_RESULT_WRITE: Duration = Duration::from_secs(5);

/// The handler of HTTP requests: events of the topic [`TOPIC`](crate::http::TOPIC).
///
/// Register it in [`Topics`](crate::Topics), alone or with other handlers. Cheap to clone: clones
/// share the limit of concurrent calls.
#[derive(Clone)]
pub struct Dispatcher(Arc<Inner>);

struct Inner {
    config: HttpConfig,
    results: HttpResults,
    limits: CallLimits,
    tls: Tls,
}

impl fmt::Debug for Dispatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dispatcher").field("config", &self.0.config).finish_non_exhaustive()
    }
}

impl Dispatcher {
    /// Opens a dispatcher that stores its results in a domain.
    ///
    /// # Errors
    /// [`OutboxError::InvalidConfig`], or an error of the engine.
    pub async fn open(domain: &Domain, config: HttpConfig) -> Result<Self> {
        config.check()?;
        let results = HttpResults::open(domain).await?;
        let (limits, tls) = (CallLimits::new(&config), Tls::new(&config.certificate_authorities)?);
        Ok(Self(Arc::new(Inner { config, results, limits, tls })))
    }

    /// The results of the requests that were sent.
    #[must_use]
    pub fn results(&self) -> &HttpResults {
        &self.0.results
    }
}

#[async_trait]
impl Handler for Dispatcher {
    async fn handle(&self, delivery: Delivery) -> Result<(), Failure> {
        let Inner { config, results, limits, tls } = &*self.0;
        let event = delivery.event();
        if event.queue.topic() != TOPIC {
            return Err(Failure::transient(format!(
                "{:?} is no topic of HTTP requests",
                event.queue.topic()
            )));
        }
        let stored = stored_request(&delivery)?;
        let clock = delivery.domain.config().clock();
        let key = stored.idempotency_key(&event.id);
        let called = match config.allowed(&stored.request) {
            Err(why) => Err(CallError::Refused(why)),
            Ok((url, destination)) => {
                let Some(_permit) = limits.acquire(&url, clock).await else {
                    return Err(Failure::transient("the limit of concurrent calls is reached"));
                };
                call(config, &stored.request, (&url, destination), (&key, tls), clock).await
            }
        };
        let now = wall_ms(&delivery.domain);
        let mut result = result(&stored, &event.id, key, &called, now);
        tracing::debug!(event = event.id, to = result.to, status = result.status, "called");
        let Some(retry) = retry(config, &called) else {
            return done(&delivery, results, &result).await;
        };
        let first = results.first_ms(&event.id).await;
        result.first_ms = first.ok().flatten().unwrap_or(now);
        let is_over = |first_ms: u64| match retry {
            Retry::Never => true,
            Retry::Counted => false,
            Retry::For(longest) => Duration::from_millis(now.saturating_sub(first_ms)) >= longest,
        };
        let mut over = is_over(result.first_ms);
        result.state = if over { HttpState::Refused } else { HttpState::Failed };
        let recorded = delivery.domain.transact(async |tx| {
            delivery.claim.check(tx).await?;
            results.record(tx, &result).await
        });
        if let Err(error) = recorded.await {
            // A failing store shows again when the processor notes the failure itself. Without the
            // result, the age of the event ends its retries.
            tracing::debug!(event = event.id, %error, "a result is not noted");
            over = over || is_over(event.emitted_ms);
        }
        let why = result.error.unwrap_or_default();
        let failure = match retry {
            Retry::For(longest) if over => {
                Failure::permanent(format!("{why}, for longer than {longest:?}"))
            }
            Retry::Never | Retry::For(_) if over => Failure::permanent(why),
            Retry::Counted => Failure::counted(why),
            Retry::Never | Retry::For(_) => Failure::transient(why),
        };
        let pause = called.ok().and_then(|answer| answer.retry_after).unwrap_or_default();
        Err(failure.after(pause.min(config.longest_retry_after)))
    }
}

/// The retries after a call. `None` if the request is done.
fn retry(config: &HttpConfig, called: &Result<Answer, CallError>) -> Option<Retry> {
    match called {
        Ok(answer) if answer.is_done() => None,
        Ok(answer) => Some(config.retries.of(answer.status)),
        Err(CallError::Refused(_)) => Some(Retry::Never),
        Err(CallError::Unanswered(_)) => Some(config.unanswered),
        Err(CallError::Unknown(_)) => Some(Retry::Counted),
        Err(CallError::Down(_)) => Some(Retry::For(config.longest_outage)),
    }
}

/// Marks a request as done, together with its result.
///
/// If the store does not write the result for a while, only the mark is written. Without the mark
/// the request would be sent again.
async fn done(
    delivery: &Delivery,
    results: &HttpResults,
    result: &HttpResult,
) -> Result<(), Failure> {
    // Leaves the rest of the handler's time for the mark without the result.
    let patience =
        LONGEST_RESULT_WRITE.min(delivery.limit() / 4).min(delivery.domain.config().timeout());
    let options = Options::default().with_timeout(Some(patience));
    let recorded = delivery
        .run::<_, OutboxError, _>(&options, async |tx| results.record(tx, result).await)
        .await;
    match recorded {
        Ok(()) => return Ok(()),
        Err(error @ (OutboxError::Lock(_) | OutboxError::NotNext(_))) => return Err(error.into()),
        Err(error) => {
            tracing::warn!(event = result.id, %error, "a request is done, and its result is not kept");
        }
    }
    Ok(delivery.transact::<_, OutboxError, _>(async |_| Ok(())).await?)
}

/// The stored request. A request of a newer format waits for a newer program.
fn stored_request(delivery: &Delivery) -> Result<StoredRequest, Failure> {
    let event = delivery.event();
    let document = event.queue.event_document(event.sequence);
    match StoredRequests::decode(event.payload.get()) {
        Ok(Stored::Known(stored)) => Ok(stored),
        Ok(Stored::Newer(format)) => {
            Err(Failure::transient(OutboxError::NewerFormat { document, format }))
        }
        // The parse error may repeat confidential content, so the text leaves it out.
        Err(_) => Err(Failure::permanent(format!("the payload of {document} is no HTTP request"))),
    }
}

fn result(
    stored: &StoredRequest,
    id: &str,
    key: String,
    called: &Result<Answer, CallError>,
    at_ms: u64,
) -> HttpResult {
    let to = Url::parse(&stored.request.url).map(|url| origin(&url)).unwrap_or_default();
    let (state, error) = match called {
        Ok(answer) if answer.is_done() => (HttpState::Done, None),
        Ok(answer) => (HttpState::Failed, Some(format!("{to} {}", answer.why()))),
        Err(CallError::Refused(why)) => (HttpState::Refused, Some(why.clone())),
        Err(CallError::Unanswered(why) | CallError::Unknown(why) | CallError::Down(why)) => {
            (HttpState::Failed, Some(format!("{to}: {why}")))
        }
    };
    let (status, headers, body) = match called {
        Ok(answer) => (Some(answer.status), answer.headers.clone(), answer.body.clone()),
        Err(_) => (None, BTreeMap::new(), None),
    };
    let (id, idempotency_key, method) = (id.to_owned(), key, stored.request.method);
    let (format, attempts, first_ms) = (Format, 0, at_ms);
    HttpResult {
        format,
        id,
        idempotency_key,
        method,
        to,
        state,
        status,
        attempts,
        at_ms,
        first_ms,
        error,
        headers,
        body,
    }
}
