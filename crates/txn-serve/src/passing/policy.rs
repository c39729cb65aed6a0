//! Which requests the gateway passes through to the servers.
//!
//! The servers carry them out with the login of the gateway. So the gateway passes reads, and
//! writes to indices that are no collections of the domain. A write to a collection would bypass
//! the locks of transactions.

use std::collections::BTreeSet;

use hyper::Method;
use serde_json::{Map, Value};

use crate::http::problem::{Code, Problem};

/// Calls that read, or change nothing but caches and files, with any method.
const READS: [&str; 24] = [
    "_analyze",
    "_async_search",
    "_count",
    "_eql",
    "_explain",
    "_field_caps",
    "_flush",
    "_forcemerge",
    "_mget",
    "_msearch",
    "_mtermvectors",
    "_pit",
    "_ppl",
    "_rank_eval",
    "_refresh",
    "_render",
    "_search",
    "_search_shards",
    "_sql",
    "_terms_enum",
    "_termvectors",
    "_validate",
    "_mvt",
    "_knn_search",
];

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

/// Calls that change an index and none of its documents.
const ADMINISTRATIVE: [&str; 2] = ["_mapping", "_settings"];

/// The targets of a request: whether the gateway passes it depends on them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Passing {
    /// In any case.
    Always,
    /// If none of these names is a collection of the domain.
    UnlessCollection(Vec<String>),
}

/// Judges a request by its method and the decoded parts of its path.
pub(crate) fn judge(method: &Method, segments: &[String]) -> Result<Passing, Problem> {
    let reads = matches!(*method, Method::GET | Method::HEAD);
    let first = segments.first().map_or("", String::as_str);
    let has_index = !first.is_empty() && !first.starts_with('_');
    let call = segments.iter().map(String::as_str).find(|segment| segment.starts_with('_'));
    let listed = |calls: &[&str]| call.is_some_and(|call| calls.contains(&call));
    if listed(&READS) || (reads && (has_index || first.is_empty() || listed(&SHOWN))) {
        return Ok(Passing::Always);
    }
    if !has_index {
        let detail = "the gateway passes no writes through that name no index, and no calls of \
                      administrators: send the request to the servers";
        return Err(Problem::new(Code::NotPassed, detail));
    }
    if listed(&ADMINISTRATIVE) {
        return Ok(Passing::Always);
    }
    let names: Vec<String> = first.split(',').map(str::to_owned).collect();
    if names.iter().any(|name| name.is_empty() || name.contains(['*', '<']) || name == "_all") {
        let detail = "the gateway passes writes through to indices by their names, not by patterns";
        return Err(Problem::new(Code::NotPassed, detail));
    }
    Ok(Passing::UnlessCollection(names))
}

/// The indices that the actions of a bulk name.
///
/// `None` if a line is no action, or names no index. The parser of bulks then names the fault.
pub(crate) fn indices_of_bulk(body: &str, default: Option<&str>) -> Option<BTreeSet<String>> {
    let mut indices = BTreeSet::new();
    let mut lines = body.lines().filter(|line| !line.trim().is_empty());
    while let Some(line) = lines.next() {
        let header = serde_json::from_str::<Map<String, Value>>(line).ok()?;
        let (verb, fields) = header.iter().next()?;
        let index = fields.get("_index").and_then(Value::as_str).or(default)?;
        if !indices.contains(index) {
            indices.insert(index.to_owned());
        }
        if verb != "delete" {
            lines.next()?;
        }
    }
    Some(indices)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(method: Method, path: &str) -> Result<Passing, Code> {
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
        ] {
            assert_eq!(judged(Method::GET, path), Ok(Passing::Always), "{path}");
        }
        for path in ["/stock/_search", "/_msearch", "/stock/_refresh", "/_pit", "/_search/scroll"] {
            assert_eq!(judged(Method::POST, path), Ok(Passing::Always), "{path}");
        }
    }

    #[test]
    fn writes_are_passed_to_named_indices() {
        let names = |names: &[&str]| {
            Ok(Passing::UnlessCollection(names.iter().map(|name| (*name).to_owned()).collect()))
        };
        assert_eq!(judged(Method::POST, "/logs/_delete_by_query"), names(&["logs"]));
        assert_eq!(judged(Method::DELETE, "/logs,other"), names(&["logs", "other"]));
        assert_eq!(judged(Method::PUT, "/stock/_mapping"), Ok(Passing::Always));
    }

    #[test]
    fn other_writes_are_refused() {
        for (method, path) in [
            (Method::POST, "/_reindex"),
            (Method::POST, "/_aliases"),
            (Method::PUT, "/_cluster/settings"),
            (Method::GET, "/_security/user"),
            (Method::POST, "/sto*/_delete_by_query"),
            (Method::POST, "/_all/_delete_by_query"),
            (Method::DELETE, "/logs,"),
        ] {
            assert_eq!(judged(method, path), Err(Code::NotPassed), "{path}");
        }
    }

    #[test]
    fn bulk_names_its_indices() {
        let body =
            "{\"index\":{\"_index\":\"a\"}}\n{\"_index\":\"x\"}\n{\"delete\":{\"_id\":\"1\"}}\n";
        let names = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect());
        assert_eq!(indices_of_bulk(body, Some("b")), names(&["a", "b"]));
        assert_eq!(indices_of_bulk(body, None), None);
        assert_eq!(indices_of_bulk("x\n", Some("b")), None);
    }
}
