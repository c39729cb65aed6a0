//! The OpenAPI document beside the routes that it describes.

use hyper::Method;
use serde_json::{Value, json};

use super::desk::Desk;

/// A value that fits a schema.
fn sample(schema: &Value) -> String {
    let first = schema["enum"].as_array().and_then(|values| values.last());
    match (first, schema["type"].as_str()) {
        (Some(value), _) => value.as_str().expect("a text").to_owned(),
        (None, Some("integer")) => "1".to_owned(),
        (None, Some("boolean")) => "true".to_owned(),
        _ => "a".to_owned(),
    }
}

/// Asks a path with one parameter. Returns whether the path has refused the parameter by its name.
async fn refuses(desk: &Desk, method: &str, path: &str, (name, value): (&str, &str)) -> bool {
    let method: Method = method.to_uppercase().parse().expect("a method");
    let events = json!([{ "topic": "t", "key": "k", "payload": 1 }]);
    let body = match path {
        "/_txn/read" => json!({ "targets": [] }),
        "/_txn" => json!({ "operations": [], "events": events }),
        "/_outbox" => json!({ "events": events }),
        "/_txn/commit" => {
            let target = json!({ "collection": "stock", "id": "a" });
            json!({ "reads": [{ "target": target, "token": "absent" }] })
        }
        _ => json!({ "doc": { "n": 1 } }),
    };
    let body = match path.ends_with("_bulk") {
        true => "{\"delete\": {\"_index\": \"stock\", \"_id\": \"a\"}}\n".to_owned(),
        false => body.to_string(),
    };
    let tid = "e537e874-ec10-11f1-8001-93d1799375f8";
    let path = path.replace("{index}", "stock").replace("{tid}", tid).replace("{id}", "a");
    let path = path.replace("{collection}", "stock").replace("{category}", "c");
    let headers = [("content-type", "application/json")];
    let answer = desk.send(method, &format!("{path}?{name}={value}"), &headers, body).await;
    answer.text.contains(&format!("the parameter \\\"{name}\\\" is not supported"))
}

#[tokio::test]
async fn paths_take_the_parameters_of_the_document() {
    let desk = Desk::memory().await;
    desk.put("/stock/_doc/a", &json!({ "n": 1 })).await.is(201);
    let document = desk.get("/openapi.json").await.is(200);
    let mut taken = 0;
    for (path, item) in document["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("operations") {
            for parameter in operation["parameters"].as_array().expect("parameters") {
                if parameter["in"] == "query" {
                    let name = parameter["name"].as_str().expect("a name");
                    let value = sample(&parameter["schema"]);
                    let is_refused = refuses(&desk, method, path, (name, &value)).await;
                    assert!(!is_refused, "{method} {path}?{name}={value}");
                    taken += 1;
                }
            }
        }
    }
    assert!(taken > 40, "{taken}");
    for (method, path) in [
        ("post", "/_bulk"),
        ("post", "/_txn"),
        ("post", "/_txn/commit"),
        ("get", "/_txn/locks"),
        ("delete", "/{index}/_doc/{id}"),
        ("post", "/_outbox"),
    ] {
        assert!(refuses(&desk, method, path, ("unheard", "1")).await, "{path}");
    }
    for path in ["/{index}/_doc/{id}", "/{index}/_update/{id}"] {
        let method = if path.contains("_update") { "post" } else { "delete" };
        assert!(refuses(&desk, method, path, ("op_type", "index")).await, "{path}");
    }
}
