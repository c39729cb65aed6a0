//! The passage of a request to the servers.

use bytes::Bytes;
use hyper::Method;
use hyper::header::{self, HeaderName};
use hyper::http::request::Parts;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use txn_core::store::{StoreError, StoreErrorKind};
use txn_es::{EsStore, ForwardError, ForwardedAnswer, ForwardedRequest};
use url::form_urlencoded;

use crate::asked::KEY;
use crate::http::problem::{Code, Problem};

/// Characters that need no escape in a part of a path.
const PLAIN: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// The decoded parts of a path.
///
/// A part that a server could read as another path is refused.
pub(crate) fn segments(path: &str) -> Result<Vec<String>, Problem> {
    let path = path.strip_prefix('/').unwrap_or(path);
    let mut segments = Vec::new();
    for segment in path.split('/') {
        let decoded = percent_decode_str(segment).decode_utf8();
        let decoded = decoded.map_err(|_| Problem::new(Code::Invalid, "the path is not UTF-8"))?;
        if matches!(&*decoded, "." | "..") || decoded.contains('\\') {
            return Err(Problem::new(Code::Invalid, "the path has a part that is no name"));
        }
        segments.push(decoded.into_owned());
    }
    // A slash at the end.
    if segments.len() > 1 && segments.last().is_some_and(String::is_empty) {
        segments.pop();
    }
    let has_empty = segments.len() > 1 && segments.iter().any(String::is_empty);
    match has_empty {
        true => Err(Problem::new(Code::Invalid, "the path has an empty part")),
        false => Ok(segments),
    }
}

/// Passes a request through. The login of the caller stays behind.
pub(crate) async fn pass(
    servers: &EsStore,
    parts: &Parts,
    segments: &[String],
    body: Bytes,
    max_answer: usize,
) -> Result<ForwardedAnswer, Problem> {
    if parts.headers.contains_key(KEY) {
        let detail = "an Idempotency-Key holds for collections of the domain only, and this request \
                      is for the servers";
        return Err(Problem::new(Code::Unsupported, detail));
    }
    let text = |name: HeaderName| {
        parts.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
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
    };
    let reads = matches!(parts.method, Method::GET | Method::HEAD);
    servers.forward(request).await.map_err(|error| match error {
        ForwardError::NotSent(error) => unsent(&error),
        ForwardError::Lost(error) if reads => Problem::new(Code::Unavailable, error.to_string()),
        ForwardError::Lost(error) => {
            let detail = format!("the servers may have carried the request out: {error}");
            Problem::new(Code::Unknown, detail)
        }
    })
}

fn unsent(error: &StoreError) -> Problem {
    match error.kind {
        StoreErrorKind::Unavailable => Problem::new(Code::Unavailable, error.to_string()),
        _ => Problem::new(Code::Misconfigured, error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_are_other_paths_are_refused() {
        assert_eq!(segments("/a%2Fb/_doc/1").expect("a path"), ["a/b", "_doc", "1"]);
        assert_eq!(segments("/").expect("a path"), [""]);
        assert_eq!(segments("/_cat/").expect("a path"), ["_cat"]);
        for path in ["/a/../_security", "/a/%2e%2e/_x", "/a/./b", "//a", "/a//b", "/a%5Cb", "/%ff"]
        {
            let problem = segments(path).expect_err(path);
            assert_eq!(problem.code(), Code::Invalid, "{path}");
        }
    }
}
