//! Which indices a name stands for, and whose they are.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;
use txn_es::{EsStore, ForwardError, ForwardedRequest};

use super::upstream::unsent;
use super::writes::{is_reserved, refused};
use crate::http::problem::Problem;

/// The parts of an index that show owner and pipelines. A pipeline changes writes to the index.
const PARTS: &str = "error.type,*.aliases,*.data_stream,*.mappings._meta.txn,*.settings.index.uuid,\
                     *.settings.index.default_pipeline,*.settings.index.final_pipeline";

/// The largest description of the indices of one name, in bytes.
const MOST_DESCRIPTION: usize = 4 << 20;

/// The owner of the indices behind a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// There is no such index.
    Missing,
    /// Each index belongs to an application.
    Application {
        /// The ingest pipeline of an index.
        pipeline: Option<String>,
    },
    /// An index is a collection of this domain.
    Domain,
    /// An index belongs to another domain, or to the engine.
    Engine,
}

/// An index, as the servers describe it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Index {
    aliases: BTreeMap<String, Value>,
    mappings: Value,
    settings: Value,
}

impl Index {
    fn domain(&self) -> Option<&str> {
        self.mappings["_meta"]["txn"]["domain"].as_str()
    }

    /// The ingest pipeline of the index.
    ///
    /// The servers apply the pipeline to each document, or at the end.
    fn pipeline(&self) -> Option<&str> {
        let settings = &self.settings["index"];
        let names = ["default_pipeline", "final_pipeline"].map(|name| settings[name].as_str());
        names.into_iter().flatten().find(|name| *name != "_none")
    }
}

/// Asks the servers about a literal name. No answer is kept, because an alias may move.
///
/// `collections` has the physical names of the collections of the domain.
pub(crate) async fn owner(
    servers: &EsStore,
    name: &str,
    domain: &str,
    collections: &BTreeSet<String>,
) -> Result<Owner, Problem> {
    let request = ForwardedRequest {
        method: "GET".to_owned(),
        path: format!("/{name}"),
        query: vec![("filter_path".to_owned(), PARTS.to_owned())],
        accept: None,
        content_type: None,
        body: None,
        max_answer: MOST_DESCRIPTION,
        meter: None,
    };
    let answer = servers.forward(request).await.map_err(|error| unanswered(&error))?;
    if answer.status == 404 && is_no_index(&answer.body) {
        return Ok(match collections.contains(name) || is_reserved(name) {
            true => Owner::Domain,
            false => Owner::Missing,
        });
    }
    let indices = match answer.status {
        200 => serde_json::from_slice::<BTreeMap<String, Index>>(&answer.body).ok(),
        _ => None,
    };
    let Some(indices) = indices.filter(|indices| !indices.is_empty()) else {
        let status = answer.status;
        let detail = format!("the servers do not show the index {name}: they answer with {status}");
        return Err(refused(detail));
    };
    Ok(judge(domain, collections, &indices))
}

fn judge(domain: &str, collections: &BTreeSet<String>, indices: &BTreeMap<String, Index>) -> Owner {
    let is_ours = |(name, index): (&String, &Index)| {
        collections.contains(name) || index.domain() == Some(domain)
    };
    // The engine gives each collection an alias of its own.
    let is_engines = |(name, index): (&String, &Index)| {
        is_reserved(name)
            || index.domain().is_some()
            || index.aliases.keys().any(|alias| is_reserved(alias))
    };
    if indices.iter().any(is_ours) {
        return Owner::Domain;
    }
    if indices.iter().any(is_engines) {
        return Owner::Engine;
    }
    let pipeline = indices.values().find_map(Index::pipeline).map(str::to_owned);
    Owner::Application { pipeline }
}

fn is_no_index(body: &[u8]) -> bool {
    let body = serde_json::from_slice::<Value>(body).unwrap_or_default();
    body["error"]["type"] == "index_not_found_exception"
}

fn unanswered(error: &ForwardError) -> Problem {
    let (ForwardError::NotSent(inner) | ForwardError::Lost(inner)) = error else {
        return refused(format!("the servers describe too many indices: {error}"));
    };
    unsent(inner)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn judged(indices: Value) -> Owner {
        let collections = BTreeSet::from(["stock".to_owned()]);
        judge("shop", &collections, &serde_json::from_value(indices).expect("indices"))
    }

    #[test]
    fn collection_is_known_by_any_of_its_marks() {
        for index in [
            json!({ "stock": {} }),
            json!({ "logs": {}, "stock": {} }),
            json!({ "other": { "mappings": { "_meta": { "txn": { "domain": "shop" } } } } }),
        ] {
            assert_eq!(judged(index.clone()), Owner::Domain, "{index}");
        }
        for index in [
            json!({ "other": { "mappings": { "_meta": { "txn": { "domain": "bank" } } } } }),
            json!({ "logs": {}, "other": { "aliases": { "other-txn-0123": {} } } }),
            json!({ "other": { "aliases": { "other-committed": {} } } }),
            json!({ "txn-registry": {} }),
            json!({ "txn-shop-2026.11.27": {} }),
        ] {
            assert_eq!(judged(index.clone()), Owner::Engine, "{index}");
        }
    }

    #[test]
    fn pipeline_of_an_index_is_found() {
        let index = |name: &str, pipeline: &str| json!({ "logs": { "aliases": { "all": {} }, "settings": { "index": { name: pipeline } } } });
        let of =
            |pipeline: Option<&str>| Owner::Application { pipeline: pipeline.map(str::to_owned) };
        assert_eq!(judged(index("default_pipeline", "p")), of(Some("p")));
        assert_eq!(judged(index("final_pipeline", "p")), of(Some("p")));
        assert_eq!(judged(index("default_pipeline", "_none")), of(None));
        // A released collection keeps the mark of its fields, without a domain.
        let released = json!({ "logs": { "mappings": { "_meta": { "txn": { "fields": 1 } } } } });
        assert_eq!(judged(released), of(None));
    }

    #[test]
    fn only_a_missing_index_is_absent() {
        assert!(is_no_index(br#"{"error":{"type":"index_not_found_exception"},"status":404}"#));
        for body in ["", "{}", r#"{"error":"no handler found"}"#, r#"{"error":{"type":"other"}}"#] {
            assert!(!is_no_index(body.as_bytes()), "{body}");
        }
    }
}
