//! Scans by scroll: requests and answers. No I/O.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use txn_store::{Cursor, Filter, Key, Source, StoreError, StoreErrorKind, Version};

use crate::answers::text::{Text, not_utf8};
use crate::identity::target::Target;

/// How long the servers keep a scroll between two pages.
///
/// The contract's minute, and a margin.
pub(crate) const KEEP_ALIVE: &str = "90s";

/// The servers' limit of one page, in documents.
pub(crate) const MAX_PAGE: usize = 10_000;

/// Returns the body of the first request of a scan.
pub(crate) fn first(filter: &Filter, size: usize) -> String {
    let terms = |field: &str, values: &[Arc<str>]| {
        let values: Vec<&str> = values.iter().map(|value| &**value).collect();
        json!({"terms": {field: values}})
    };
    let exists = |field: &str| json!({"exists": {"field": field}});
    let query = match filter {
        Filter::All => json!({"match_all": {}}),
        Filter::Exists(field) => exists(field),
        Filter::AnyOf(field, values) => terms(field, values),
        Filter::AnyOfUpTo { field, values, number, bound } => {
            // The greatest number that the servers have.
            let bound = (*bound).min(i64::MAX.unsigned_abs());
            let exceeds = json!({"range": {*number: {"gt": bound}}});
            json!({"bool": {"filter": [terms(field, values)], "must_not": [exceeds]}})
        }
        // The servers refuse a range whose bounds are in the wrong order.
        Filter::Range { from, to, .. } if from > to => json!({"match_none": {}}),
        Filter::Range { field, from: i64::MIN, to: i64::MAX } => exists(field),
        // A date of the servers has no room for the outermost integers.
        Filter::Range { field, from: i64::MIN, to } => json!({"range": {*field: {"lte": to}}}),
        Filter::Range { field, from, to: i64::MAX } => json!({"range": {*field: {"gte": from}}}),
        Filter::Range { field, from, to } => json!({"range": {*field: {"gte": from, "lte": to}}}),
    };
    let sort = match filter {
        Filter::AnyOfUpTo { number, .. } => {
            json!([{*number: {"order": "asc", "missing": "_first", "unmapped_type": "long"}}])
        }
        Filter::Range { field, .. } => json!([{*field: {"order": "asc", "unmapped_type": "long"}}]),
        Filter::All | Filter::Exists(_) | Filter::AnyOf(..) => json!(["_doc"]),
    };
    json!({"size": size, "sort": sort, "seq_no_primary_term": true, "query": query}).to_string()
}

/// Returns the body of the next request.
pub(crate) fn next(scroll_id: &str) -> String {
    json!({"scroll": KEEP_ALIVE, "scroll_id": scroll_id}).to_string()
}

/// Returns the cursor: the scan's page size, and the servers' scroll id.
pub(crate) fn cursor(size: usize, scroll_id: &str) -> Cursor {
    Cursor(format!("{size} {scroll_id}"))
}

pub(crate) fn parts(cursor: &Cursor) -> Result<(usize, &str), StoreError> {
    let parts = cursor.0.split_once(' ');
    let parts = parts.and_then(|(size, scroll_id)| Some((size.parse().ok()?, scroll_id)));
    parts.filter(|(size, _)| *size > 0).ok_or_else(|| {
        StoreError::new(StoreErrorKind::Misconfigured, "the cursor is none of this store")
    })
}

/// Returns the body of the request that ends a scan early.
pub(crate) fn clear(scroll_id: &str) -> String {
    json!({"scroll_id": scroll_id}).to_string()
}

#[derive(Deserialize)]
struct Search<'a> {
    #[serde(rename = "_scroll_id", borrow)]
    scroll_id: Option<Cow<'a, str>>,
    timed_out: bool,
    #[serde(rename = "_shards")]
    shards: Shards,
    #[serde(borrow)]
    hits: Hits<'a>,
}

#[derive(Deserialize)]
struct Shards {
    failed: u64,
}

#[derive(Deserialize)]
struct Hits<'a> {
    #[serde(borrow)]
    hits: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct Hit<'a> {
    #[serde(rename = "_index", borrow)]
    index: Cow<'a, str>,
    #[serde(rename = "_id", borrow)]
    id: Cow<'a, str>,
    #[serde(rename = "_routing", borrow)]
    routing: Option<Cow<'a, str>>,
    #[serde(rename = "_seq_no")]
    seq_no: Option<u64>,
    #[serde(rename = "_primary_term")]
    primary_term: Option<u64>,
    #[serde(rename = "_source", borrow)]
    source: Option<&'a RawValue>,
}

/// One page, and its scroll.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) documents: Vec<(Key, Version, Source)>,
    pub(crate) scroll_id: Option<String>,
}

/// Returns the scroll id of a useless answer.
///
/// The id serves to end the scroll.
pub(crate) fn scroll_of(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Scroll {
        #[serde(rename = "_scroll_id")]
        scroll_id: Option<String>,
    }
    serde_json::from_slice::<Scroll>(body).ok()?.scroll_id
}

/// Returns the page in a 200 answer.
///
/// A partial answer is an error, because it would pass for a short page.
pub(crate) fn decode(target: &Target, body: &[u8]) -> Result<Found, StoreError> {
    let fail =
        |kind, text: &str| Err(StoreError::new(kind, format!("scanning {}: {text}", target.name)));
    let unavailable = |text| fail(StoreErrorKind::Unavailable, text);
    let body = Text::of(body);
    let Ok(answer) = serde_json::from_str::<Search<'_>>(body.as_str()) else {
        return unavailable("the answer cannot be read");
    };
    if answer.shards.failed > 0 || answer.timed_out {
        return unavailable("only a part of the shards answered; try again");
    }
    let mut documents = Vec::with_capacity(answer.hits.hits.len());
    for hit in answer.hits.hits {
        let Ok(hit) = serde_json::from_str::<Hit<'_>>(hit.get()) else {
            return unavailable("the answer about one document cannot be read");
        };
        if *hit.index != *target.name {
            return unavailable("the answer is from another index than that of the name");
        }
        let version = hit.seq_no.zip(hit.primary_term);
        let Some(version) = version.and_then(|(seq_no, term)| target.version(seq_no, term)) else {
            return unavailable("a document came without its version");
        };
        let Some(source) = hit.source else {
            return fail(
                StoreErrorKind::Misconfigured,
                "the index does not store the _source of its documents",
            );
        };
        if !body.is_as_sent(source.get()) {
            let StoreError { kind, message } = not_utf8();
            return fail(kind, &format!("{:?}: {message}", hit.id));
        }
        let routing = hit.routing.map(Into::into);
        let key = Key { collection: target.name.clone(), id: hit.id.into(), routing };
        documents.push((key, version, source.get().into()));
    }
    Ok(Found { documents, scroll_id: answer.scroll_id.map(Cow::into_owned) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::uuid::samples::uuid;

    const PAGE: &str = r#"{"_scroll_id":"s","took":1,"timed_out":false,"_shards":{"total":1,"successful":1,"skipped":0,"failed":0},
        "hits":{"total":{"value":1,"relation":"eq"},"max_score":null,"hits":[
        {"_index":"a","_type":"_doc","_id":"1","_seq_no":7,"_primary_term":2,"_score":null,"_routing":"r","_source":{"n":1.10},"sort":[0]}]}}"#;

    #[test]
    fn pages() {
        let target = Target::new("a", &uuid("uu"), true);
        let found = decode(&target, PAGE.as_bytes()).unwrap();
        let key = Key::new("a", "1").routed("r");
        let version = target.version(7, 2).unwrap();
        assert_eq!(found.documents, [(key, version, "{\"n\":1.10}".into())]);
        assert_eq!(found.scroll_id.as_deref(), Some("s"));
        assert_eq!(scroll_of(PAGE.as_bytes()).as_deref(), Some("s"));
    }

    #[test]
    fn partial_pages_are_errors() {
        let target = Target::new("a", &uuid("uu"), true);
        for (from, to, kind) in [
            ("\"failed\":0", "\"failed\":1", StoreErrorKind::Unavailable),
            ("\"timed_out\":false", "\"timed_out\":true", StoreErrorKind::Unavailable),
            ("\"_seq_no\":7,", "", StoreErrorKind::Unavailable),
            ("\"_index\":\"a\"", "\"_index\":\"b\"", StoreErrorKind::Unavailable),
            ("\"_source\":{\"n\":1.10},", "", StoreErrorKind::Misconfigured),
        ] {
            assert!(PAGE.contains(from));
            let error = decode(&target, PAGE.replace(from, to).as_bytes()).unwrap_err();
            assert_eq!(error.kind, kind, "{from}");
        }
    }

    #[test]
    fn document_with_invalid_utf8_is_named() {
        let target = Target::new("a", &uuid("uu"), true);
        let page = PAGE.replace("1.10", "\"?\"").into_bytes();
        let bad = page.iter().map(|byte| if *byte == b'?' { 0xFF } else { *byte });
        let error = decode(&target, &bad.collect::<Vec<_>>()).unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Damaged);
        assert!(error.message.contains("\"1\"") && error.message.contains("UTF-8"), "{error}");
    }

    #[test]
    fn cursors() {
        assert_eq!(parts(&cursor(10, "s 1")), Ok((10, "s 1")));
        for text in ["", "s", "0 s", "x s"] {
            assert!(parts(&Cursor(text.to_owned())).is_err(), "{text}");
        }
    }

    #[test]
    fn queries() {
        let body = first(&Filter::any_of("state", ["pending", "committed"]), 10);
        let value: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(value["query"], json!({"terms": {"state": ["pending", "committed"]}}));
        let body = first(&Filter::any_of("owner", ["Ann \"A\""]), 10);
        let value: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(value["query"], json!({"terms": {"owner": ["Ann \"A\""]}}));
        let body = first(&Filter::any_of_up_to("state", ["created"], "due_ms", u64::MAX), 10);
        let value: serde_json::Value = serde_json::from_str(&body).unwrap();
        let exceeds = json!({"range": {"due_ms": {"gt": i64::MAX}}});
        let query = json!({"filter": [{"terms": {"state": ["created"]}}], "must_not": [exceeds]});
        assert_eq!(value["query"], json!({ "bool": query }));
        assert_eq!(value["sort"][0]["due_ms"]["missing"], "_first");
        let query = |range| {
            let body = first(&range, 10);
            serde_json::from_str::<serde_json::Value>(&body).unwrap()["query"].clone()
        };
        let due = json!({"range": {"due_ms": {"lte": 8}}});
        assert_eq!(query(Filter::range("due_ms", ..9)), due);
        assert_eq!(query(Filter::range("due_ms", 9..9)), json!({"match_none": {}}));
        let body = first(&Filter::Exists("transaction_tid"), 10);
        assert!(body.contains(r#""sort":["_doc"]"#), "{body}");
        assert!(body.contains(r#""exists":{"field":"transaction_tid"}"#), "{body}");
    }
}
