//! Index templates that match the names of collections, on running servers.

use serde_json::{Value, json};
use txn_store::{CollectionSpec, Key, Outcome, Role, Store, StoreErrorKind, Write, WriteOp};

use crate::live::{self, Plain};

fn spec(name: &str, role: Role) -> CollectionSpec {
    CollectionSpec { name: name.to_owned(), role, create: true, mappings: None }
}

fn roles() -> [Role; 4] {
    let owner = Some("shop".to_owned());
    [Role::Partition, Role::Registry, Role::System { owner: owner.clone() }, Role::Data { owner }]
}

/// A template for every index of a name. The test removes the template at the end.
struct Template {
    plain: Plain,
    path: String,
}

impl Template {
    async fn put(variable: &str, name: &str, template: Value) -> Self {
        let (plain, path) = (Plain::new(variable), format!("/_index_template/{name}"));
        let patterns = [format!("{name}*")];
        let body = json!({"index_patterns": patterns, "priority": 900, "template": template});
        plain.ok("PUT", &path, body).await;
        Self { plain, path }
    }

    async fn remove(self) {
        let (status, answer) = self.plain.send("DELETE", &self.path, None).await;
        assert_eq!(status, 200, "{answer}");
    }
}

#[tokio::test]
async fn templates_change_no_required_setting() {
    for variable in live::ALL {
        let (store, name) = (live::store(variable).await, live::unique("template"));
        let settings = json!({
            "index.final_pipeline": "missing", "index.default_pipeline": "missing",
            "index.blocks.write": true, "index.max_result_window": 10,
            "index.translog.durability": "async", "index.number_of_replicas": 3,
            "index.refresh_interval": "1h",
        });
        let mappings = json!({"_source": {"enabled": false}, "dynamic": "strict"});
        let template = json!({"settings": settings, "mappings": mappings});
        let template = Template::put(variable, &name, template).await;
        for (at, role) in roles().into_iter().enumerate() {
            // All other settings of the index belong to the application.
            if matches!(role, Role::Data { .. }) {
                continue;
            }
            let name = format!("{name}-{at}");
            let info = store.open_collection(&spec(&name, role.clone())).await;
            let info = info.unwrap_or_else(|error| panic!("{role:?}: {error}"));
            let write = Write::new(Key::new(info.name, "1"), WriteOp::Create("{}".into()));
            let outcome = store.write_many(&[write]).await.remove(0);
            assert!(matches!(outcome, Outcome::Applied(_)), "{role:?}: {outcome:?}");
            let settings = template.plain.send("GET", &format!("/{name}/_settings"), None).await.1;
            let settings = &settings[&name]["settings"]["index"];
            assert_eq!(settings["auto_expand_replicas"], "0-1", "{role:?}");
            assert_eq!(settings["number_of_replicas"], "0", "{role:?}: a single node stays green");
            store.drop_collection(&name).await.expect("dropped");
        }
        template.remove().await;
    }
}

#[tokio::test]
async fn index_spoiled_by_a_template_is_dropped() {
    for variable in live::ALL {
        let store = live::store(variable).await;
        for (field, about) in
            [("_source", json!({"excludes": ["secret"]})), ("_routing", json!({"required": true}))]
        {
            let name = live::unique("spoiled");
            let template = json!({"mappings": {field: about}});
            let template = Template::put(variable, &name, template).await;
            for (at, role) in roles().into_iter().enumerate() {
                let (index, role_name) = (format!("{name}-{at}"), format!("{role:?}"));
                for _ in 0..2 {
                    let Err(error) = store.open_collection(&spec(&index, role.clone())).await
                    else {
                        // On some servers the request overrules the template.
                        store.drop_collection(&index).await.expect("dropped");
                        continue;
                    };
                    assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{role_name}: {error}");
                    for word in [field, &name, "index_patterns"] {
                        assert!(error.message.contains(word), "{role_name}: {word} in {error}");
                    }
                }
            }
            let left = store.list_collections(&name).await.expect("lists");
            assert!(left.is_empty(), "{left:?}");
            template.remove().await;
        }
    }
}

#[tokio::test]
async fn template_for_data_streams_is_named() {
    for variable in live::ALL {
        let (store, name) = (live::store(variable).await, live::unique("stream"));
        let (plain, path) = (Plain::new(variable), format!("/_index_template/{name}"));
        let body =
            json!({"index_patterns": [format!("{name}*")], "priority": 900, "data_stream": {}});
        let (status, answer) = plain.send("PUT", &path, Some(body)).await;
        if status != 200 {
            // Some packages have no data streams.
            eprintln!("{}: {answer}", store.server());
            continue;
        }
        let error = store.open_collection(&spec(&format!("{name}-1"), Role::Partition)).await;
        let error = error.expect_err("a data stream takes no updates");
        assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{error}");
        assert!(error.message.contains(&format!("{name:?}")), "{error}");
        assert_eq!(plain.send("DELETE", &path, None).await.0, 200);
    }
}
