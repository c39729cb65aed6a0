//! Which reads the gateway passes through to the servers.
//!
//! The servers carry them out with the login of the gateway. The module [`writes`](super::writes)
//! has the writes.

use hyper::Method;

use crate::http::problem::{Code, Problem};

/// The effect of a request on the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// Calls that read, and have a body. They stand behind an index, or alone.
const SEARCHES: [&str; 18] = [
    "_analyze",
    "_async_search",
    "_count",
    "_field_caps",
    "_knn_search",
    "_mget",
    "_msearch",
    "_mtermvectors",
    "_pit",
    "_query",
    "_rank_eval",
    "_refresh",
    "_search",
    "_search_shards",
    "_sql",
    "_terms_enum",
    "_termvectors",
    "_mvt",
];

/// Calls of two words that read, and have a body.
const SEARCHES_OF_TWO: [(&str, &str); 8] = [
    ("_eql", "search"),
    ("_msearch", "template"),
    ("_query", "async"),
    ("_render", "template"),
    ("_search", "point_in_time"),
    ("_search", "scroll"),
    ("_search", "template"),
    ("_validate", "query"),
];

/// Calls that read one document, and may have a body.
const READS_OF_ONE: [&str; 2] = ["_explain", "_termvectors"];

/// Calls of administrators that may be read without an index.
const SHOWN: [&str; 14] = [
    "_alias",
    "_aliases",
    "_cat",
    "_cluster",
    "_data_stream",
    "_index_template",
    "_license",
    "_mapping",
    "_nodes",
    "_resolve",
    "_segments",
    "_settings",
    "_stats",
    "_template",
];

/// Judges a request by its method and its decoded path.
///
/// `segments` are the parts of the path.
///
/// # Errors
/// [`Code::NotPassed`] if the request is no read.
pub(crate) fn judge(method: &Method, segments: &[String]) -> Result<(), Problem> {
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    let reads = match *method {
        Method::GET | Method::HEAD => is_shown(&segments),
        Method::POST => is_search(&segments),
        Method::DELETE => is_end_of_search(&segments),
        _ => false,
    };
    if reads {
        return Ok(());
    }
    let detail = "the gateway passes only reads through: send the request to the servers";
    Err(Problem::new(Code::NotPassed, detail))
}

fn is_name(segment: &str) -> bool {
    !segment.is_empty() && !segment.starts_with('_')
}

/// Whether a GET shows no secrets of administrators.
///
/// `_security` is a call that shows such secrets.
fn is_shown(segments: &[&str]) -> bool {
    match segments {
        [""] => true,
        [first, ..] if is_name(first) => true,
        [call] if SEARCHES.contains(call) => true,
        [call, second] if SEARCHES_OF_TWO.contains(&(*call, *second)) => true,
        ["_async_search", _] | ["_query", "async", _] => true,
        [call, ..] => SHOWN.contains(call),
        [] => false,
    }
}

fn is_search(segments: &[&str]) -> bool {
    match segments {
        [call] => SEARCHES.contains(call),
        [index, call] if is_name(index) => SEARCHES.contains(call),
        [call, second] => SEARCHES_OF_TWO.contains(&(*call, *second)),
        [index, call, second] if is_name(index) => {
            SEARCHES_OF_TWO.contains(&(*call, *second)) || READS_OF_ONE.contains(call)
        }
        _ => false,
    }
}

/// Whether a DELETE only frees what a search holds.
fn is_end_of_search(segments: &[&str]) -> bool {
    matches!(
        segments,
        ["_pit"]
            | ["_search", "point_in_time" | "scroll"]
            | ["_search", "scroll", _]
            | ["_async_search", _]
            | ["_query", "async", _]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(method: Method, path: &str) -> Result<(), Code> {
        let segments: Vec<String> = path.split('/').skip(1).map(str::to_owned).collect();
        judge(&method, &segments).map_err(|problem| problem.code())
    }

    #[test]
    fn reads_are_passed() {
        for path in [
            "/",
            "/stock/_search",
            "/_search",
            "/stock/_mapping",
            "/stock*/_count",
            "/_cat/indices",
            "/_search/scroll",
        ] {
            assert_eq!(judged(Method::GET, path), Ok(()), "{path}");
        }
        for path in [
            "/stock/_search",
            "/_msearch",
            "/stock/_refresh",
            "/_pit",
            "/_query",
            "/_query/async",
            "/_search/scroll",
            "/stock/_explain/apple",
            "/stock/_search/point_in_time",
            "/stock/_search/template",
            "/stock/_termvectors/apple",
        ] {
            assert_eq!(judged(Method::POST, path), Ok(()), "{path}");
        }
        for path in [
            "/_pit",
            "/_search/point_in_time",
            "/_search/scroll",
            "/_async_search/a",
            "/_query/async/a",
        ] {
            assert_eq!(judged(Method::DELETE, path), Ok(()), "{path}");
        }
    }

    #[test]
    fn writes_are_refused() {
        for (method, path) in [
            (Method::POST, "/logs/_bulk"),
            (Method::PUT, "/_bulk"),
            (Method::POST, "/logs/_delete_by_query"),
            (Method::DELETE, "/logs"),
            (Method::PUT, "/stock/_mapping"),
            (Method::PUT, "/stock/_settings"),
            (Method::POST, "/_reindex"),
            (Method::POST, "/_aliases"),
            (Method::PUT, "/_cluster/settings"),
            // Typed paths of version 7, whose type may look like a call.
            (Method::PUT, "/stock/_search/apple"),
            (Method::POST, "/stock/_search/apple"),
            (Method::DELETE, "/stock/_search/apple"),
            // It would end the searches of other programs.
            (Method::DELETE, "/_search/point_in_time/_all"),
            (Method::POST, "/<stock>/_doc/apple"),
            (Method::POST, "/_security/user/_search"),
        ] {
            assert_eq!(judged(method, path), Err(Code::NotPassed), "{path}");
        }
        assert_eq!(judged(Method::GET, "/_security/user"), Err(Code::NotPassed));
    }
}
