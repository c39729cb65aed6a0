use super::*;
use crate::identity::target::MAX_NAME_BYTES;
use crate::identity::uuid::samples::uuid;

fn index(mappings: Value, settings: Value) -> Index {
    let mut settings = settings;
    settings["index.uuid"] = json!(**uuid("uu").text());
    let answer = json!({"a": {"aliases": {}, "mappings": mappings, "settings": settings}});
    sole("a", answer.to_string().as_bytes()).unwrap()
}

const DATA: Role = Role::Data { owner: None };

fn owned(owner: &str) -> Role {
    Role::Data { owner: Some(owner.to_owned()) }
}

fn fault(mappings: Value, settings: Value) -> String {
    let error = index(mappings, settings).check(&DATA).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Misconfigured);
    assert!(error.message.starts_with('a'), "{}", error.message);
    error.message
}

#[test]
fn name_means_one_index() {
    let two = json!({"a": {}, "b": {}}).to_string();
    let error = sole("alias", two.as_bytes()).unwrap_err();
    assert!(error.message.contains("alias stands for 2 indices (a, b)"), "{}", error.message);
    let stream = json!({".ds-s-1": {"data_stream": "s"}}).to_string();
    assert!(sole("s", stream.as_bytes()).unwrap_err().message.contains("data stream s"));
    for alias in [
        json!({"is_write_index": false}),
        json!({"is_write_index": true}),
        json!({"index_routing": "1"}),
    ] {
        let answer = json!({"a": {"aliases": {"alias": alias}}}).to_string();
        assert_eq!(
            sole("alias", answer.as_bytes()).unwrap_err().kind,
            StoreErrorKind::Misconfigured
        );
        assert!(sole("a", answer.as_bytes()).is_ok());
    }
    for policy in ["index.lifecycle", "index.plugins.index_state_management"] {
        let settings = json!({format!("{policy}.rollover_alias"): "alias"});
        let answer = json!({"a": {"aliases": {"alias": {}, "other": {}}, "settings": settings}});
        let answer = answer.to_string();
        let error = sole("alias", answer.as_bytes()).unwrap_err();
        assert!(error.message.contains("one to roll over"), "{}", error.message);
        assert!(sole("other", answer.as_bytes()).is_ok() && sole("a", answer.as_bytes()).is_ok());
    }
    assert_eq!(sole("a", b"{}").unwrap_err().kind, StoreErrorKind::NotFound);
}

#[test]
fn settings_that_lose_or_change_documents_are_refused() {
    assert!(index(json!({}), json!({})).check(&DATA).is_ok());
    assert!(index(json!({}), json!({"index.translog.durability": "REQUEST"})).check(&DATA).is_ok());
    let text = fault(json!({}), json!({"index.translog.durability": "ASYNC"}));
    assert!(text.contains("set index.translog.durability to request"), "{text}");
    let text = fault(json!({}), json!({"index.final_pipeline": "stamp"}));
    assert!(text.contains("stamp") && text.contains("index.final_pipeline to _none"), "{text}");
    assert!(index(json!({}), json!({"index.final_pipeline": "_none"})).check(&DATA).is_ok());
    let text = fault(json!({}), json!({"index.disable_sequence_numbers": "true"}));
    assert!(text.contains("index.disable_sequence_numbers cannot be changed"), "{text}");
    let kept = json!({"index.disable_sequence_numbers": "false"});
    assert!(index(json!({}), kept).check(&DATA).is_ok());
    for role in [Role::Registry, Role::Partition] {
        let settings = json!({"index.translog.durability": "async"});
        assert!(index(json!({}), settings).check(&role).is_err());
    }
}

#[test]
fn sources_have_to_be_complete() {
    for source in [
        json!({"excludes": ["secret.*"]}),
        json!({"includes": ["a"]}),
        json!({"enabled": false}),
        json!({"mode": "synthetic"}),
        json!({"mode": "disabled"}),
    ] {
        let text = fault(json!({"_source": source}), json!({}));
        assert!(text.contains("reindex"), "{source}: {text}");
    }
    for settings in [
        json!({"index.mapping.source.mode": "SYNTHETIC"}),
        json!({"index.mode": "logsdb"}),
        json!({"index.mode": "time_series"}),
    ] {
        fault(json!({}), settings);
    }
    for source in [json!({"enabled": true}), json!({"excludes": []}), json!({"mode": "stored"})] {
        assert!(index(json!({"_source": source}), json!({})).check(&DATA).is_ok(), "{source}");
    }
    let stored = json!({"index.mode": "logsdb", "index.mapping.source.mode": "stored"});
    assert!(index(json!({}), stored).check(&DATA).is_ok());
}

#[test]
fn clashing_fields_are_named() {
    for (field, found, what) in [
        ("transaction_version", json!({"type": "long"}), "mapped as long"),
        ("transaction_tid", json!({"type": "text"}), "mapped as text"),
        ("transaction_tid", json!({"type": "keyword", "index": false}), "cannot be searched"),
        ("transaction_tid", json!({"type": "keyword", "ignore_above": 8}), "cannot be searched"),
        ("transaction_recent", json!({"properties": {}}), "mapped as object"),
        ("transaction_absent", json!({"type": "keyword"}), "mapped as keyword"),
    ] {
        let text = fault(json!({"properties": {field: found}}), json!({}));
        assert!(text.contains(field) && text.contains(what) && text.contains("rename"), "{text}");
    }
    let dynamic =
        json!({"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 256}}});
    let text = fault(json!({"properties": {"transaction_version": dynamic}}), json!({}));
    assert!(text.contains("transaction_version") && text.contains("without its mapping"), "{text}");
    assert!(
        fault(json!({"runtime": {"transaction_version": {"type": "long"}}}), json!({}))
            .contains("runtime")
    );
}

#[test]
fn missing_fields_and_the_owner_are_added() {
    let bare =
        index(json!({"dynamic": "strict", "properties": {"n": {"type": "long"}}}), json!({}));
    let change = bare.change(&DATA).unwrap().unwrap();
    let fields = change["properties"].as_object().unwrap();
    assert_eq!(fields.len(), 4);
    let recent = json!({"type": "keyword", "index": false, "doc_values": false});
    assert_eq!(fields["transaction_recent"], recent);
    // One request holds the mark and the fields.
    assert_eq!(change["_meta"], json!({"txn": {"fields": 1}}));

    let meta = json!({"app": {"x": 1}, "txn": {"note": "n", "fields": 1}});
    let mappings = json!({"_meta": meta, "properties": change["properties"]});
    let full = index(mappings, json!({}));
    assert_eq!(full.change(&DATA).unwrap(), None);
    let change = full.change(&owned("bank")).unwrap().unwrap();
    let merged = json!({"app": {"x": 1}, "txn": {"note": "n", "fields": 1, "domain": "bank"}});
    assert_eq!(change, json!({"_meta": merged}));
    let mappings = json!({"_meta": merged, "properties": full.mappings["properties"]});
    let done = index(mappings, json!({}));
    assert_eq!(done.owner().as_deref(), Some("bank"));
    assert_eq!(done.change(&owned("bank")).unwrap(), None);
    let taken = index(json!({"_meta": {"txn": "mine"}}), json!({}));
    assert_eq!(taken.owner(), None);
    assert!(taken.change(&owned("bank")).is_err());
}

/// An older version of the application made the index. The strict mapping would refuse the new
/// fields.
#[test]
fn strict_index_gets_missing_fields() {
    let fields = index(json!({}), json!({})).change(&DATA).unwrap().unwrap();
    let inner = json!({"type": "nested", "properties": {"a": {"type": "long"}}});
    let old = |dynamic: Value| {
        let mut mappings = fields.clone();
        mappings["dynamic"] = dynamic;
        mappings["properties"]["n"] = json!({"type": "long"});
        mappings["properties"]["legs"] = inner.clone();
        index(mappings, json!({}))
    };
    let spec = |role: &Role, dynamic: &str, create: bool| {
        CollectionSpec {
        name: "a".to_owned(),
        role: role.clone(),
        create,
        mappings: Some(
            json!({"dynamic": dynamic, "properties": {
                "n": {"type": "keyword"}, "closed": {"type": "date"}, "transaction_version": {"type": "keyword"},
                "legs": {"type": "nested", "properties": {"a": {"type": "long"}, "b": {"type": "long"}}},
                "note": {"properties": {"x": {"type": "long"}}}}})
            .to_string()
            .into(),
        ),
    }
    };
    let role = owned("bank");
    let change = old(json!("strict")).change_for(&spec(&role, "strict", true)).unwrap().unwrap();
    assert_eq!(
        change["properties"],
        json!({"closed": {"type": "date"}, "note": {"properties": {"x": {"type": "long"}}},
            "legs": {"type": "nested", "properties": {"b": {"type": "long"}}}}),
        "what is there stays as it is"
    );
    assert_eq!(change["_meta"]["txn"]["domain"], "bank");
    let bare = index(json!({"dynamic": "strict"}), json!({}));
    let change = bare.change_for(&spec(&role, "strict", true)).unwrap().unwrap();
    assert_eq!(change["properties"].as_object().unwrap().len(), 8, "beside those of ours");
    // A foreign index, an index that takes any field, and a spec without `create`.
    for (index, spec) in [
        (old(json!("strict")), spec(&DATA, "strict", true)),
        (old(json!(false)), spec(&role, "strict", true)),
        (old(json!("strict")), spec(&role, "false", true)),
        (old(json!("strict")), spec(&role, "strict", false)),
    ] {
        let change = index.change_for(&spec).unwrap().unwrap_or_default();
        assert_eq!(change.get("properties"), None);
    }
}

#[test]
fn reserved_fields_of_an_unprepared_index_are_foreign() {
    let fields: Map<_, _> =
        reserved().into_iter().map(|(name, field)| (name.to_owned(), field)).collect();
    for (field, mapping) in &fields {
        let mut properties = Map::new();
        properties.insert(field.clone(), mapping.clone());
        let text = fault(json!({"properties": properties}), json!({}));
        assert!(text.contains(field) && text.contains("rename"), "{text}");
        assert!(text.contains("_meta"), "{text}");
    }
    for mark in [json!({"fields": 1}), json!({"domain": "bank"}), json!({"fields": 0, "x": 1})] {
        let mappings = json!({"_meta": {"txn": mark}, "properties": fields});
        assert!(index(mappings, json!({})).check(&DATA).is_ok(), "{mark}");
    }
    for mark in [json!({}), json!({"note": "n"}), json!("mine")] {
        fault(json!({"_meta": {"txn": mark}, "properties": fields}), json!({}));
    }
    let newer = json!({"_meta": {"txn": {"fields": 2, "domain": "bank"}}, "properties": fields});
    assert!(fault(newer, json!({})).contains("newer version"));
}

#[test]
fn release_removes_owner_and_aliases() {
    let meta = |meta| index(json!({"_meta": meta}), json!({})).without_owner();
    let ours = json!({"app": {"x": 1}, "txn": {"domain": "bank"}});
    assert_eq!(meta(ours), Some(json!({"_meta": {"app": {"x": 1}}})));
    let noted = json!({"txn": {"domain": "bank", "note": "n"}});
    assert_eq!(meta(noted), Some(json!({"_meta": {"txn": {"note": "n"}}})));
    assert_eq!(meta(json!({"app": 1})), None);
    let mut index = index(json!({}), json!({}));
    let (identity, committed) = (identity_alias("a", &uuid("uu")), committed_alias("a"));
    for alias in ["mine", &identity] {
        index.aliases.insert(alias.to_owned(), json!({}));
    }
    let remove = |alias: &str| json!({"remove": {"index": "a", "alias": alias}});
    // An application's alias with that name.
    index.aliases.insert(committed.clone(), json!({"filter": {"term": {"paid": true}}}));
    assert_eq!(index.release_actions(), Some(json!({"actions": [remove(&identity)]})));
    let ours = committed_actions("a")["actions"][0]["add"]["filter"].clone();
    index.aliases.insert(committed.clone(), json!({"filter": ours}));
    let both = json!({"actions": [remove(&committed), remove(&identity)]});
    assert_eq!(index.release_actions(), Some(both));
    index.aliases.retain(|alias, _| alias == "mine");
    assert_eq!(index.release_actions(), None);
}

#[test]
fn index_has_one_identity_alias() {
    let mine = index(json!({}), json!({})).identity_alias().unwrap();
    assert_eq!(mine, identity_alias("a", &uuid("uu")));
    // The identity alias of the original of this copy, and the former format of names.
    let former = format!("txn-identity-{}", "75".repeat(22));
    for other in [identity_alias("b", &uuid("vv")), identity_alias("a", &uuid("vv")), former] {
        let mut index = index(json!({}), json!({}));
        assert!(!index.has_identity_alias(&mine));
        index.aliases.insert(mine.clone(), json!({}));
        assert!(index.has_identity_alias(&mine));
        index.aliases.insert(other.clone(), json!({}));
        assert!(!index.has_identity_alias(&mine));
        let actions = index.identity_actions(&mine);
        assert_eq!(actions["actions"][0]["add"]["alias"], mine);
        assert_eq!(actions["actions"][1]["remove"]["alias"], other);
    }
}

#[test]
fn name_too_long_for_its_alias_is_refused() {
    let named = |len| Index { name: "a".repeat(len), ..index(json!({}), json!({})) };
    assert!(named(MAX_NAME_BYTES).identity_alias().is_ok());
    let error = named(MAX_NAME_BYTES + 1).identity_alias().unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Misconfigured);
    assert!(error.message.contains("219 bytes, and the limit is 218"), "{error}");
}
