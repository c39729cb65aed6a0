//! Checks, changes and refusals when a collection is opened, on running servers.

use serde_json::{Value, json};
use txn_es::EsStore;
use txn_store::{
    CollectionInfo, CollectionSpec, Filter, Key, Outcome, Read, RefusalKind, Role, Store,
    StoreError, StoreErrorKind, Write, WriteOp,
};

use crate::live::{self, Plain};

/// Runs a test on every server.
///
/// The test may use the name that it receives.
async fn everywhere<F: Future<Output = ()>>(
    what: &str,
    test: impl Fn(EsStore, Plain, String) -> F,
) {
    for variable in live::ALL {
        let (store, plain) = (live::store(variable).await, Plain::new(variable));
        let name = live::unique(what);
        eprintln!("{}: {name}", store.server());
        test(store.clone(), plain, name.clone()).await;
        store.drop_collection(&name).await.expect("dropping what the test made");
    }
}

fn spec(name: &str, owner: Option<&str>) -> CollectionSpec {
    let role = Role::Data { owner: owner.map(str::to_owned) };
    CollectionSpec { name: name.to_owned(), role, create: false, mappings: None }
}

async fn open(store: &EsStore, name: &str) -> Result<CollectionInfo, StoreError> {
    store.open_collection(&spec(name, None)).await
}

/// Checks that opening fails as misconfigured, with all these words.
async fn refused(store: &EsStore, name: &str, words: &[&str]) {
    let error = open(store, name).await.expect_err("an index that is not fit");
    assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{error}");
    for word in words {
        assert!(error.message.contains(word), "{word} is not in: {error}");
    }
}

async fn write(store: &EsStore, key: &Key, op: WriteOp) -> Outcome {
    store.write_many(&[Write::new(key.clone(), op)]).await.remove(0)
}

async fn mapping(plain: &Plain, name: &str) -> Value {
    let answer = plain.send("GET", &format!("/{name}/_mapping"), None).await.1;
    answer[name]["mappings"].clone()
}

#[tokio::test]
async fn reserved_fields_are_added_to_a_strict_mapping() {
    everywhere("strict", |store, plain, name| async move {
        let mappings = json!({"dynamic": "strict", "properties": {"n": {"type": "long"}}});
        plain.ok("PUT", &format!("/{name}"), json!({"mappings": mappings})).await;
        for _ in 0..2 {
            open(&store, &name).await.expect("a strict mapping is fit");
        }
        let mapping = mapping(&plain, &name).await;
        assert_eq!(mapping["dynamic"], "strict");
        let fields = &mapping["properties"];
        assert_eq!(fields["transaction_tid"]["type"], "keyword");
        assert_eq!(fields["transaction_version"]["type"], "keyword");
        let recent = json!({"type": "keyword", "index": false, "doc_values": false});
        assert_eq!(fields["transaction_recent"], recent);
        assert_eq!(fields["transaction_absent"]["type"], "boolean");
        let source = r#"{"transaction_tid":"t","transaction_version":"u","transaction_recent":["u"],"transaction_absent":true,"n":1}"#;
        let outcome = write(&store, &Key::new(name, "1"), WriteOp::Create(source.into())).await;
        assert!(matches!(outcome, Outcome::Applied(_)), "{outcome:?}");
    })
    .await;
}

#[tokio::test]
async fn dry_run_refuses_terms_that_are_too_long() {
    everywhere("terms", |store, plain, name| async move {
        let fields = json!({"k": {"type": "keyword"}, "t": {"type": "text"}});
        let mappings = json!({"properties": fields});
        plain.ok("PUT", &format!("/{name}"), json!({"mappings": mappings})).await;
        open(&store, &name).await.expect("fit");
        let long = "x".repeat(32_767);
        let key = Key::new(name, "1");
        for op in [WriteOp::Check, WriteOp::Create] {
            let source = json!({"t": "short", "k": long}).to_string();
            let outcome = write(&store, &key, op(source.into())).await;
            let Outcome::Invalid(refusal) = outcome else { panic!("{outcome:?}") };
            assert!(refusal.reason.contains('k'), "{refusal:?}");
            assert!(!refusal.reason.contains("xxx"), "no values in errors");
        }
        let fits = json!({"t": long.replace('x', "x "), "k": "x".repeat(32_766)}).to_string();
        assert_eq!(write(&store, &key, WriteOp::Check(fits.as_str().into())).await, Outcome::Holds);
        let outcome = write(&store, &key, WriteOp::Create(fits.into())).await;
        assert!(matches!(outcome, Outcome::Applied(_)), "{outcome:?}");
    })
    .await;
}

#[tokio::test]
async fn clashing_fields_are_refused() {
    everywhere("clash", |store, plain, name| async move {
        // The dynamic mapping of the first text.
        plain
            .ok(
                "PUT",
                &format!("/{name}/_doc/1?refresh=true"),
                json!({"transaction_version": "mine"}),
            )
            .await;
        refused(
            &store,
            &name,
            &[&name, "transaction_version", "mapped it by itself", "another name"],
        )
        .await;
    })
    .await;
}

#[tokio::test]
async fn application_fields_with_reserved_names_are_refused() {
    everywhere("reserved", |store, plain, name| async move {
        let mine =
            json!({"mappings": {"properties": {"transaction_version": {"type": "keyword"}}}});
        plain.ok("PUT", &format!("/{name}"), mine.clone()).await;
        plain.ok("PUT", &format!("/{name}/_doc/1"), json!({"transaction_version": "mine"})).await;
        refused(&store, &name, &[&name, "transaction_version", "rename", "_meta"]).await;
        let error = store.open_collection(&spec(&name, Some("bank"))).await;
        assert_eq!(error.expect_err("not fit").kind, StoreErrorKind::Misconfigured);
        assert_eq!(mapping(&plain, &name).await, mine["mappings"], "nothing was changed");
    })
    .await;
}

#[tokio::test]
async fn prepared_index_stays_valid() {
    everywhere("prepared", |store, plain, name| async move {
        plain.ok("PUT", &format!("/{name}"), json!({})).await;
        // A process died before it recorded the owner of the index.
        open(&store, &name).await.expect("fit");
        let key = Key::new(name.as_str(), "1");
        let outcome =
            write(&store, &key, WriteOp::Create(r#"{"transaction_version":"t"}"#.into())).await;
        let Outcome::Applied(version) = outcome else { panic!("{outcome:?}") };
        store.open_collection(&spec(&name, Some("bank"))).await.expect("fit");
        let outcome = write(&store, &key, WriteOp::Delete(version)).await;
        assert!(matches!(outcome, Outcome::Applied(_)), "{outcome:?}");
        open(&store, &name).await.expect("emptied");
        // A restore or a copy creates the index from its own mapping.
        let copy = mapping(&plain, &name).await;
        store.drop_collection(&name).await.expect("dropped");
        plain.ok("PUT", &format!("/{name}"), json!({"mappings": copy})).await;
        open(&store, &name).await.expect("a copy of a prepared index");
    })
    .await;
}

#[tokio::test]
async fn a_new_index_has_the_settings_that_are_given() {
    everywhere("given", |store, plain, name| async move {
        let create = |definition: Value| CollectionSpec {
            create: true,
            mappings: Some(definition.to_string().into()),
            ..spec(&name, None)
        };
        let fields =
            json!({"name": {"type": "keyword"}, "text": {"type": "text", "analyzer": "x"}});
        let analyzer = json!({"type": "custom", "tokenizer": "standard", "filter": ["lowercase"]});
        let settings = json!({"number_of_shards": 3, "index": {"number_of_replicas": 0}});
        for (definition, word) in [
            (fields.clone(), "properties"),
            (json!({"settings": {"translog": {"durability": "async"}}}), "request"),
            (json!({"settings": {"index.final_pipeline": "p"}}), "final_pipeline"),
            (json!({"mappings": {"_source": {"enabled": false}}}), "_source"),
            (json!({"properties": {"transaction_version": {"type": "keyword"}}}), "rename"),
            (json!({"settings": {"no_such_setting": 1}}), "no_such_setting"),
        ] {
            let error = store.open_collection(&create(definition)).await.expect_err("not fit");
            assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{error}");
            assert!(error.message.contains(word), "{error}");
            let missing = open(&store, &name).await.expect_err("nothing was made");
            assert_eq!(missing.kind, StoreErrorKind::NotFound, "{missing}");
            assert!(missing.message.contains("create_collection"), "{missing}");
        }
        let mut definition = json!({"settings": settings, "mappings": {"properties": fields}});
        definition["settings"]["analysis"] = json!({"analyzer": {"x": analyzer}});
        store.open_collection(&create(definition)).await.expect("made");
        let shown = plain.send("GET", &format!("/{name}"), None).await.1[&name].clone();
        let index = &shown["settings"]["index"];
        assert_eq!(
            (&index["number_of_shards"], &index["number_of_replicas"]),
            (&json!("3"), &json!("0"))
        );
        assert_eq!(index["translog"]["durability"], "request");
        assert_eq!(index["analysis"]["analyzer"]["x"], analyzer);
        assert_eq!(shown["mappings"]["properties"]["text"]["analyzer"], "x");
        assert_eq!(shown["mappings"]["_meta"]["txn"]["fields"], 1);
    })
    .await;
}

#[tokio::test]
async fn incomplete_sources_are_refused() {
    everywhere("source", |store, plain, name| async move {
        let sources = [
            (json!({"excludes": ["secret"]}), "excludes"),
            (json!({"includes": ["n"]}), "includes"),
            (json!({"enabled": false}), "disabled"),
        ];
        for (source, word) in sources {
            let body = json!({"mappings": {"_source": source}});
            plain.ok("PUT", &format!("/{name}"), body).await;
            refused(&store, &name, &[&name, word, "_source", "reindex"]).await;
            store.drop_collection(&name).await.expect("dropped");
        }
        // Only if the server knows the setting and keeps it: some servers ignore it in the mapping.
        for body in [
            json!({"mappings": {"_source": {"mode": "synthetic"}}}),
            json!({"settings": {"index.mapping.source.mode": "synthetic"}}),
        ] {
            if plain.send("PUT", &format!("/{name}"), Some(body)).await.0 != 200 {
                continue;
            }
            let (_, shown) = plain.send("GET", &format!("/{name}"), None).await;
            match open(&store, &name).await {
                Err(error) => assert!(error.message.contains("synthetic"), "{error}"),
                Ok(_) => assert!(!shown.to_string().contains("synthetic"), "{shown}"),
            }
            store.drop_collection(&name).await.expect("dropped");
        }
    })
    .await;
}

#[tokio::test]
async fn settings_that_endanger_documents_are_refused() {
    everywhere("settings", |store, plain, name| async move {
        let path = format!("/{name}");
        plain.ok("PUT", &path, json!({"settings": {"index.translog.durability": "async"}})).await;
        refused(&store, &name, &[&name, "index.translog.durability to request"]).await;
        for role in [Role::Registry, Role::Partition] {
            let spec = CollectionSpec { role, ..spec(&name, None) };
            let error = store.open_collection(&spec).await.expect_err("loses writes");
            assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{error}");
        }
        store.drop_collection(&name).await.expect("dropped");
        plain.ok("PUT", &path, json!({"settings": {"index.final_pipeline": "stamp"}})).await;
        refused(&store, &name, &[&name, "stamp", "index.final_pipeline to _none"]).await;
    })
    .await;
}

#[tokio::test]
async fn names_of_other_objects_are_refused() {
    everywhere("names", |store, plain, name| async move {
        let second = format!("{name}-2");
        let alias = format!("{name}-alias");
        for index in [&name, &second] {
            let body = json!({"aliases": {&alias: {}}});
            plain.ok("PUT", &format!("/{index}"), body).await;
        }
        refused(&store, &alias, &[&alias, "2 indices", &name, &second]).await;
        refused(&store, &format!("{name}*"), &["wildcards"]).await;
        for odd in ["_all", "a,b", "<a-{now/d}>", "", "cluster:a"] {
            refused(&store, odd, &[]).await;
        }
        let error = store.drop_collection(&format!("{name}*")).await.expect_err("a wildcard");
        assert_eq!(error.kind, StoreErrorKind::Misconfigured);
        let error = store.drop_collection(&alias).await.expect_err("an alias");
        assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{error}");
        // No index was dropped, and the alias works again once it names one index.
        store.drop_collection(&second).await.expect("dropped");
        let info = open(&store, &alias).await.expect("an alias of one index");
        assert_eq!(*info.name, *name);
    })
    .await;
}

#[tokio::test]
async fn data_streams_are_refused() {
    everywhere("stream", |store, plain, name| async move {
        let template = format!("/_index_template/{name}");
        let body = json!({
            "index_patterns": [format!("{name}*")], "data_stream": {}, "priority": 900,
        });
        let (made, _) = plain.send("PUT", &template, Some(body)).await;
        let (status, _) = plain.send("PUT", &format!("/_data_stream/{name}"), None).await;
        if made == 200 && status == 200 {
            let error = open(&store, &name).await.expect_err("a data stream");
            assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{error}");
            assert!(error.message.contains("data stream"), "{error}");
            plain.send("DELETE", &format!("/_data_stream/{name}"), None).await;
        } else {
            eprintln!("left out: this package has no data streams ({status})");
        }
        plain.send("DELETE", &template, None).await;
    })
    .await;
}

#[tokio::test]
async fn the_owner_is_merged_into_the_metadata() {
    everywhere("owner", |store, plain, name| async move {
        let meta = json!({"app": {"schema": 7}, "txn": {"note": "kept"}});
        plain.ok("PUT", &format!("/{name}"), json!({"mappings": {"_meta": meta}})).await;
        assert_eq!(open(&store, &name).await.expect("fit").owner, None);
        let info = store.open_collection(&spec(&name, Some("bank"))).await.expect("fit");
        assert_eq!(info.owner.as_deref(), Some("bank"));
        let mark = json!({"note": "kept", "fields": 1, "domain": "bank"});
        let merged = json!({"app": {"schema": 7}, "txn": mark});
        assert_eq!(mapping(&plain, &name).await["_meta"], merged);
        assert_eq!(open(&store, &name).await.expect("fit").owner.as_deref(), Some("bank"));
    })
    .await;
}

#[tokio::test]
async fn placeholders_stay_out_of_searches() {
    everywhere("new", |store, plain, name| async move {
        for role in [Role::Registry, Role::Partition, Role::Data { owner: Some("bank".into()) }] {
            store.drop_collection(&name).await.expect("dropped");
            let spec = CollectionSpec { role: role.clone(), create: true, ..spec(&name, None) };
            let other = store.clone();
            let (one, two) =
                futures::join!(store.open_collection(&spec), other.open_collection(&spec));
            assert_eq!(one.expect("made"), two.expect("made by another"), "{role:?}");
            let health = plain
                .send(
                    "GET",
                    &format!(
                        "/_cluster/health/{name}?wait_for_no_initializing_shards=true&timeout=10s"
                    ),
                    None,
                )
                .await
                .1;
            if !matches!(role, Role::Data { .. }) {
                assert_eq!(health["status"], "green", "{role:?} {health}");
            }
        }
        let document = |absent| format!(r#"{{"transaction_absent":{absent},"n":1}}"#);
        for (id, absent) in [("1", "null"), ("2", "true")] {
            let op = WriteOp::Create(document(absent).into());
            write(&store, &Key::new(name.as_str(), id), op).await;
        }
        store.refresh(&name).await.expect("refreshed");
        let path = format!("/{name}-committed/_search");
        let hits = plain.send("GET", &path, None).await.1["hits"]["hits"].clone();
        assert_eq!(hits.as_array().map(Vec::len), Some(1), "{hits}");
        assert_eq!(hits[0]["_id"], "1");
        let found = store.scan(&name, &Filter::Exists("transaction_absent"), 10, None).await;
        assert_eq!(found.expect("scanned").documents.len(), 1);
    })
    .await;
}

#[tokio::test]
async fn refusal_names_the_field_and_hides_the_value() {
    everywhere("refusal", |store, plain, name| async move {
        let properties = json!({
            "balance": {"type": "long"}, "at": {"type": "date"}, "ok": {"type": "boolean"},
            "ip": {"type": "ip"}, "small": {"type": "byte"}, "where": {"type": "geo_point"}, "code": {"type": "keyword"},
            "o": {"properties": {"n": {"type": "integer"}}},
        });
        let mappings = json!({"dynamic": "strict", "properties": properties});
        plain.ok("PUT", &format!("/{name}"), json!({"mappings": mappings})).await;
        open(&store, &name).await.expect("fit");
        let key = Key::new(name, "1");
        for (source, field) in [
            (r#"{"balance":"hunter2"}"#, "balance"),
            (r#"{"balance":{"hunter2":1}}"#, "balance"),
            (r#"{"balance":123456789012345678901234}"#, "balance"),
            (r#"{"at":"hunter2"}"#, "at"),
            (r#"{"ok":"hunter2"}"#, "ok"),
            (r#"{"ip":"hunter2"}"#, "ip"),
            (r#"{"where":"hunter2!,a"}"#, "where"),
            (r#"{"where":"hunter2!"}"#, "where"),
            (r#"{"where":{"lat":1234567.5,"lon":1}}"#, "where"),
            (r#"{"small":1234567}"#, "small"),
            (r#"{"small":"1234567"}"#, "small"),
            (r#"{"balance":"\ud800"}"#, "balance"),
            (r#"{"code":{"a":"hunter2"}}"#, "code"),
            (r#"{"o":"hunter2"}"#, "o"),
            (r#"{"o":{"n":"hunter2"}}"#, "o.n"),
            (r#"{"unheard":"hunter2"}"#, "unheard"),
            (r#"{"balance":1,"balance":1234567}"#, "balance"),
        ] {
            for op in [WriteOp::Check(source.into()), WriteOp::Create(source.into())] {
                let outcome = write(&store, &key, op).await;
                let Outcome::Invalid(refusal) = outcome else { panic!("{source}: {outcome:?}") };
                assert_eq!(refusal.kind, RefusalKind::Document, "{refusal:?}");
                let reason = refusal.reason;
                assert!(reason.contains(field), "{field} is not in: {reason}");
                assert!(!reason.contains("hunter2") && !reason.contains("1234567"), "{reason}");
            }
        }
        let long = format!(r#"{{"code":"{}"}}"#, "hunter2".repeat(5000));
        // Some versions find the fault in the dry run, and some only in the write.
        let dry = write(&store, &key, WriteOp::Check(long.as_str().into())).await;
        assert!(matches!(dry, Outcome::Holds | Outcome::Invalid(_)), "{dry:?}");
        eprintln!("a term over 32,766 bytes, dry run: {dry:?}");
        let outcome = write(&store, &key, WriteOp::Create(long.into())).await;
        let Outcome::Invalid(refusal) = outcome else { panic!("{outcome:?}") };
        assert!(
            refusal.reason.contains("code") && !refusal.reason.contains("104, 117"),
            "{refusal:?}"
        );
    })
    .await;
}

#[tokio::test]
async fn recreated_index_has_another_identity() {
    everywhere("again", |store, plain, name| async move {
        let path = format!("/{name}");
        plain.ok("PUT", &path, json!({})).await;
        let first = open(&store, &name).await.expect("fit");
        let key = Key::new(name.as_str(), "1");
        let old = match write(&store, &key, WriteOp::Create("{}".into())).await {
            Outcome::Applied(version) => version,
            other => panic!("{other:?}"),
        };
        // Another client drops and recreates the index, with a document at the same seq_no.
        assert_eq!(plain.send("DELETE", &path, None).await.0, 200);
        plain.ok("PUT", &path, json!({})).await;
        plain.ok("PUT", &format!("{path}/_doc/1"), json!({"new": true})).await;
        for op in
            [WriteOp::Replace("{}".into(), old), WriteOp::Delete(old), WriteOp::Verify(Some(old))]
        {
            let outcome = write(&store, &key, op.clone()).await;
            let harmless = matches!(outcome, Outcome::Conflict | Outcome::MissingCollection);
            assert!(harmless, "{op:?}: {outcome:?}");
        }
        let second = open(&store, &name).await.expect("fit");
        assert_ne!(first.uid, second.uid);
        let reads = [
            store.get_many(std::slice::from_ref(&key)).await.remove(0),
            store.read_primary(std::slice::from_ref(&key)).await.remove(0),
        ];
        for read in reads {
            let Read::Found { version, source } = read else { panic!("{read:?}") };
            assert_ne!(version, old);
            assert_eq!(&*source, r#"{"new":true}"#);
        }
    })
    .await;
}

#[tokio::test]
async fn index_is_usable_without_opening_it() {
    everywhere("unopened", |store, plain, name| async move {
        plain.ok("PUT", &format!("/{name}"), json!({})).await;
        open(&store, &name).await.expect("fit");
        let key = Key::new(name.as_str(), "1");
        let Outcome::Applied(version) = write(&store, &key, WriteOp::Create("{}".into())).await
        else {
            panic!("not created")
        };
        for variable in live::ALL {
            let other = live::store(variable).await;
            if other.server() != store.server() {
                continue;
            }
            let outcome = write(&other, &key, WriteOp::Verify(Some(version))).await;
            assert_eq!(outcome, Outcome::Holds);
            let read = other.get_many(std::slice::from_ref(&key)).await.remove(0);
            assert!(matches!(read, Read::Found { version: v, .. } if v == version), "{read:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn released_index_has_no_owner_and_no_aliases() {
    everywhere("released", |store, plain, name| async move {
        let meta = json!({"app": {"x": 1}});
        let body = json!({"mappings": {"_meta": meta}, "aliases": {format!("{name}-mine"): {}}});
        plain.ok("PUT", &format!("/{name}"), body).await;
        store.open_collection(&spec(&name, Some("bank"))).await.expect("opens");
        assert_eq!(mapping(&plain, &name).await["_meta"]["txn"]["domain"], "bank");
        for _ in 0..2 {
            store.release_collection(&name).await.expect("releases");
        }
        // The reserved fields stay, and so does the mark that they belong to this library.
        let left = &mapping(&plain, &name).await["_meta"];
        assert_eq!((&left["app"], &left["txn"]), (&meta["app"], &json!({"fields": 1})));
        let answer = plain.send("GET", &format!("/{name}/_alias"), None).await.1;
        let left = answer[&name]["aliases"].as_object().expect("aliases");
        assert_eq!(left.keys().collect::<Vec<_>>(), [&format!("{name}-mine")]);
    })
    .await;
}

#[tokio::test]
async fn closed_and_hidden_indices_are_listed() {
    everywhere("listed", |store, plain, name| async move {
        let hidden = format!("{name}-hidden");
        plain.ok("PUT", &format!("/{name}"), json!({})).await;
        let settings = json!({"settings": {"index.hidden": true}});
        plain.ok("PUT", &format!("/{hidden}"), settings).await;
        assert_eq!(plain.send("POST", &format!("/{name}/_close"), None).await.0, 200);
        let mut names = store.list_collections(&name).await.expect("lists");
        names.sort();
        assert_eq!(names, [name.as_str().into(), hidden.as_str().into()]);
        store.drop_collection(&hidden).await.expect("drops");
    })
    .await;
}

#[tokio::test]
async fn servers_report_their_time() {
    for variable in live::ALL {
        let time = live::store(variable).await.server_time().await.expect("answers");
        // The servers of the tests run on this machine.
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let apart = now.expect("later").abs_diff(time.expect("tells it"));
        assert!(apart < std::time::Duration::from_secs(60), "{variable}: {apart:?}");
    }
}
