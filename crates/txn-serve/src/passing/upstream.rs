//! The passage of a request to the servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use hyper::header::{self, HeaderName};
use hyper::http::request::Parts;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use txn_core::store::{StoreError, StoreErrorKind};
use txn_es::{EsStore, ForwardError, ForwardedAnswer, ForwardedRequest};
use url::form_urlencoded;

use super::policy::Access;
use crate::asked::KEY;
use crate::http::limits::Share;
use crate::http::problem::{Code, Problem};

/// Characters that need no escape in a part of a path.
const PLAIN: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Passes a request through. The login of the caller stays behind.
///
/// The answer takes its bytes from `share`. The answer of a write may exceed the share, because the
/// servers have carried the write out.
pub(crate) async fn pass(
    servers: &EsStore,
    parts: &Parts,
    segments: &[String],
    access: Access,
    body: Bytes,
    (max_answer, share): (usize, Arc<Share>),
) -> Result<ForwardedAnswer, Problem> {
    if parts.headers.contains_key(KEY) {
        let detail = "an Idempotency-Key holds for collections of the domain only, and this request \
                      is for the servers";
        return Err(Problem::new(Code::Unsupported, detail));
    }
    let text = |name: HeaderName| {
        parts.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
    };
    let is_write = access == Access::Write;
    let is_full = Arc::new(AtomicBool::new(false));
    let full = is_full.clone();
    let meter = move |more: usize| {
        let grown = share.grow(more);
        full.fetch_or(!grown, Ordering::Relaxed);
        grown || is_write
    };
    let names = segments.iter().map(|segment| utf8_percent_encode(segment, &PLAIN).to_string());
    let query = form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes());
    let request = ForwardedRequest {
        method: parts.method.to_string(),
        path: format!("/{}", names.collect::<Vec<_>>().join("/")),
        query: query.into_owned().collect(),
        accept: text(header::ACCEPT),
        content_type: text(header::CONTENT_TYPE),
        body: Some(body).filter(|body| !body.is_empty()),
        max_answer,
        meter: Some(Arc::new(meter)),
    };
    let answer = servers.forward(request).await;
    let answer = answer.map_err(|error| failed(&error, access, is_full.load(Ordering::Relaxed)))?;
    // Most clients repeat these statuses at once. A node or a proxy may answer so after it has sent
    // the write on.
    if is_write && matches!(answer.status, 502..=504) {
        let status = answer.status;
        let detail = format!(
            "the servers or a proxy answered {status}, and may have carried the request out"
        );
        return Err(Problem::new(Code::Unknown, detail));
    }
    Ok(answer)
}

/// The problem of a request without an answer. `is_full` means that its share was refused.
fn failed(error: &ForwardError, access: Access, is_full: bool) -> Problem {
    match (error, access) {
        (ForwardError::NotSent(error), _) => unsent(error),
        (ForwardError::Lost(_), Access::Read) => Problem::new(Code::Unavailable, error.to_string()),
        (ForwardError::Lost(_), Access::Write) => {
            let detail = format!("the servers may have carried the request out: {error}");
            Problem::new(Code::Unknown, detail)
        }
        (ForwardError::TooLarge(_), Access::Read) if is_full => Problem::overloaded_by_bytes(),
        (ForwardError::TooLarge(_), Access::Read) => {
            let detail = format!("ask for less at once: {error}");
            Problem::new(Code::LargeAnswer, detail)
        }
        (ForwardError::TooLarge(_), Access::Write) => {
            let detail =
                format!("the servers have answered, and have carried out what they could: {error}");
            Problem::new(Code::Unknown, detail)
        }
    }
}

/// The problem of a request that has changed nothing.
pub(super) fn unsent(error: &StoreError) -> Problem {
    match error.kind {
        StoreErrorKind::Unavailable => Problem::new(Code::Unavailable, error.to_string()),
        _ => Problem::new(Code::Misconfigured, error.to_string()),
    }
}
