//! The creation of the index for a collection. Pure functions.
//!
//! The request states every setting that the library needs, so that no index template changes it.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use txn_store::fields::{DELETES, STATE};
use txn_store::{CollectionSpec, Role, StoreError};

use crate::index::definition;
use crate::index::mapping::Index;

/// Settings of the library's own indices that need the servers' defaults.
///
/// An index template must not change them. Some servers know only some of these settings.
const DEFAULTS: &[&str] = &[
    // Reads and writes.
    "index.blocks.metadata",
    "index.blocks.read",
    "index.blocks.read_only",
    "index.blocks.read_only_allow_delete",
    "index.blocks.write",
    // Conditional writes.
    "index.disable_sequence_numbers",
    // Complete documents.
    "index.mapping.source.mode",
    "index.mode",
    // No policy deletes, shrinks or rolls over the index.
    "index.lifecycle.name",
    "index.lifecycle.rollover_alias",
    // Pages of scans, and their visibility.
    "index.max_result_window",
    "index.refresh_interval",
    "index.search.default_pipeline",
    // Records have no routing.
    "index.routing_partition_size",
];

/// Excludes an index from the index state management of OpenSearch.
const UNMANAGED: &str = "index.plugins.index_state_management.auto_manage";

/// Returns the body of the request that creates a collection.
///
/// Leaves out settings that the server is known not to know.
pub(crate) fn creation(
    spec: &CollectionSpec,
    unknown: &BTreeSet<String>,
) -> Result<Value, StoreError> {
    let (mappings, settings) = definition::of(spec)?;
    let mut index = Index::unmade(&spec.name, mappings, settings);
    index.add_setting("index.translog.durability", json!("request"));
    index.add_setting("index.final_pipeline", json!("_none"));
    index.add_mapping("_source", json!({"enabled": true}));
    // Keys usually have no routing. An application that requires one sets this in its mappings.
    index.add_mapping("_routing", json!({"required": false}));
    if let Some(Value::Object(mut change)) = index.change(&spec.role)? {
        let fields = change.remove("properties").unwrap_or_default();
        index.map(fields)?;
        index.extend_mappings(change);
    }
    if !matches!(spec.role, Role::Data { .. }) {
        state_everything(&mut index);
    }
    if spec.role == Role::Partition {
        index.map(json!({
            STATE: {"type": "keyword"},
            DELETES: {"type": "keyword"},
            "body": {"type": "object", "enabled": false},
        }))?;
    }
    index.check(&spec.role)?;
    Ok(index.into_body(unknown))
}

/// Sets the settings of an index that only the library writes to.
fn state_everything(index: &mut Index) {
    // The index is small, and the library reads it by key: one shard is enough. `0-1` adds a copy
    // on a second node, and on one node leaves no shard unassigned.
    index.add_setting("index.number_of_shards", json!("1"));
    index.add_setting("index.auto_expand_replicas", json!("0-1"));
    index.add_setting("index.default_pipeline", json!("_none"));
    index.add_setting(UNMANAGED, json!("false"));
    for setting in DEFAULTS {
        index.add_setting(setting, Value::Null);
    }
    index.add_mapping("dynamic", json!(false));
}

/// Returns the settings that a server does not know, from its answer.
pub(crate) fn unknown_settings(answer: &[u8]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    collect_unknown(&serde_json::from_slice(answer).unwrap_or_default(), &mut found);
    found
}

/// Collects the settings that an error names.
///
/// The suppressed errors count, too; each names one setting.
fn collect_unknown(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::String(text) => {
            let rest = text.split_once("unknown setting [").map(|(_, rest)| rest);
            found.extend(
                rest.and_then(|rest| rest.split_once(']')).map(|(name, _)| name.to_owned()),
            );
        }
        Value::Array(values) => values.iter().for_each(|value| collect_unknown(value, found)),
        Value::Object(fields) => fields.values().for_each(|value| collect_unknown(value, found)),
        _ => {}
    }
}

/// Whether the library adds a setting that a server need not know.
pub(crate) fn is_optional(setting: &str) -> bool {
    setting == UNMANAGED || DEFAULTS.contains(&setting)
}

#[cfg(test)]
mod tests {
    use txn_store::StoreErrorKind;

    use super::*;

    const DATA: Role = Role::Data { owner: None };

    fn made(role: Role, mappings: Option<&str>) -> Result<Value, StoreError> {
        let mappings = mappings.map(Into::into);
        let spec = CollectionSpec { name: "a".to_owned(), role, create: true, mappings };
        creation(&spec, &BTreeSet::new())
    }

    #[test]
    fn index_of_an_application_sets_required_settings() {
        let mappings = r#"{"dynamic":"strict","properties":{"n":{"type":"long"}}}"#;
        let body = made(DATA, Some(mappings)).unwrap();
        assert_eq!(body["mappings"]["dynamic"], "strict");
        assert_eq!(body["mappings"]["properties"].as_object().unwrap().len(), 5);
        assert_eq!(body["mappings"]["_source"], json!({"enabled": true}));
        assert_eq!(body["mappings"]["_routing"], json!({"required": false}));
        let routed = made(DATA, Some(r#"{"_routing":{"required":true}}"#)).unwrap();
        assert_eq!(routed["mappings"]["_routing"], json!({"required": true}));
        let settings =
            json!({"index.translog.durability": "request", "index.final_pipeline": "_none"});
        assert_eq!(body["settings"], settings);
        assert_eq!(body["mappings"]["_meta"], json!({"txn": {"fields": 1}}));
        let both = r#"{"settings":{"number_of_shards":3},"mappings":{"_meta":{"app":1}}}"#;
        let body = made(DATA, Some(both)).unwrap();
        assert_eq!(body["settings"]["index.number_of_shards"], "3");
        assert_eq!(body["mappings"]["_meta"], json!({"app": 1, "txn": {"fields": 1}}));
        for mappings in [
            r#"{"properties":{"transaction_version":{"type":"long"}}}"#,
            r#"{"properties":{"transaction_version":{"type":"keyword"}}}"#,
            r#"{"settings":{"translog":{"durability":"async"}}}"#,
            r#"{"settings":{"index.final_pipeline":"p"}}"#,
            r#"{"settings":{"index":{"mode":"time_series"}}}"#,
            r#"{"mappings":{"_source":{"enabled":false}}}"#,
            r#"{"properties":[]}"#,
            "[]",
        ] {
            let error = made(DATA, Some(mappings)).unwrap_err();
            assert_eq!(error.kind, StoreErrorKind::Misconfigured);
        }
    }

    #[test]
    fn index_of_the_library_sets_every_setting() {
        let system = Role::System { owner: Some("shop".to_owned()) };
        let bodies = [
            made(system, Some(r#"{"dynamic":"strict","properties":{}}"#)).unwrap(),
            made(Role::Partition, None).unwrap(),
            made(Role::Registry, None).unwrap(),
        ];
        for body in &bodies {
            let settings = body["settings"].as_object().unwrap();
            assert_eq!(settings["index.auto_expand_replicas"], "0-1");
            for pipeline in ["index.default_pipeline", "index.final_pipeline"] {
                assert_eq!(settings[pipeline], "_none");
            }
            assert!(settings["index.lifecycle.name"].is_null());
            assert_eq!(body["mappings"]["_routing"], json!({"required": false}));
            assert_eq!(body["mappings"]["_source"], json!({"enabled": true}));
        }
        let [system, partition, registry] = bodies;
        assert_eq!(system["mappings"]["dynamic"], "strict");
        assert_eq!(system["mappings"]["_meta"]["txn"]["domain"], "shop");
        assert_eq!(partition["mappings"]["dynamic"], false);
        let body = json!({"type": "object", "enabled": false});
        assert_eq!(partition["mappings"]["properties"]["body"], body);
        assert_eq!(registry["mappings"].get("properties"), None);
    }

    #[test]
    fn unknown_settings_are_left_out() {
        let answer = br#"{"error":{"type":"illegal_argument_exception","reason":"unknown setting [index.mode] did you mean [x]?",
            "suppressed":[{"reason":"unknown setting [index.lifecycle.name] please check"}]},"status":400}"#;
        let unknown = unknown_settings(answer);
        assert_eq!(
            unknown,
            BTreeSet::from(["index.mode", "index.lifecycle.name"].map(str::to_owned))
        );
        let name = "a".to_owned();
        let spec = CollectionSpec { name, role: Role::Registry, create: true, mappings: None };
        let settings = &creation(&spec, &unknown).unwrap()["settings"];
        assert!(settings.get("index.mode").is_none());
        assert!(settings.get("index.max_result_window").is_some());
        assert!(!is_optional("index.final_pipeline"));
        assert!(unknown_settings(b"{").is_empty());
    }
}
