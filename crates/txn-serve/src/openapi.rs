//! The OpenAPI document.

use serde_json::{Map, Value, json};
use txn_requests::Request;

use crate::http::problem::Code;
use crate::http::route::{ROUTES, Work};
use crate::http::shape::Shape;
use crate::operator::MOST_MINUTES;
use crate::operator::answers::MOST;

/// The definitions of the schema of requests move to this place.
const SCHEMAS: &str = "#/components/schemas/";

/// The document of all paths, except the pages of the console.
pub(crate) fn openapi() -> Value {
    let mut paths = Map::new();
    for (methods, path, work, about) in
        ROUTES.iter().filter(|(_, _, work, _)| work.shape() != Shape::Page)
    {
        for method in *methods {
            let operation = operation(path, *work, about, method.as_str());
            let item = paths.entry((*path).to_owned()).or_insert_with(|| json!({}));
            item[method.as_str().to_lowercase()] = operation;
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "txn serve",
            "description": "Transactions over Elasticsearch, OpenSearch and embedded files.",
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "http://127.0.0.1:9280" }],
        "paths": paths,
        "components": { "schemas": schemas(), "securitySchemes": security_schemes() },
        // A gateway without tokens needs no login.
        "security": [{}, { "bearer": [] }, { "basic": [] }, { "apiKey": [] }],
    })
}

/// The logins of callers: a token, in one of three headers.
fn security_schemes() -> Value {
    let api_key = "ApiKey base64(NAME:TOKEN)";
    json!({
        "bearer": { "type": "http", "scheme": "bearer" },
        "basic": { "type": "http", "scheme": "basic" },
        "apiKey": {
            "type": "apiKey", "in": "header", "name": "Authorization", "description": api_key,
        },
    })
}

/// The parameters of an operation.
///
/// These are the parameters in the path, in the query and in headers.
fn parameters(path: &str, work: Work) -> Vec<Value> {
    let mut parameters: Vec<Value> = path
        .split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
        .map(|name| {
            let schema = match name {
                // Other names belong to calls of the servers.
                "index" => json!({ "type": "string", "pattern": "^[^_]" }),
                _ => json!({ "type": "string", "minLength": 1 }),
            };
            json!({ "name": name, "in": "path", "required": true, "schema": schema })
        })
        .collect();
    let query =
        |name: &str, schema: Value| json!({ "name": name, "in": "query", "schema": schema });
    let key = json!({
        "name": "Idempotency-Key", "in": "header",
        "schema": { "type": "string", "minLength": 1, "maxLength": 256 },
    });
    let refresh = query("refresh", json!({ "enum": ["", "true", "false", "wait_for"] }));
    let wait_for = query("wait_for", json!({ "enum": ["commit", "apply", "refresh"] }));
    let routing = query("routing", json!({ "type": "string" }));
    let number = |name: &str| query(name, json!({ "type": "integer", "minimum": 0 }));
    let limit = query("limit", json!({ "type": "integer", "minimum": 1, "maximum": MOST }));
    let range = json!({ "type": "integer", "minimum": 1, "maximum": MOST_MINUTES });
    let minutes = |name: &str| query(name, range.clone());
    match work {
        Work::Bulk | Work::BulkOf => parameters.extend([key, refresh, routing]),
        Work::Transaction | Work::Commit | Work::Emit => parameters.extend([key, wait_for]),
        Work::Transactions => {
            let state = json!({ "enum": ["no-record", "pending", "committed"] });
            let label = query("label", json!({ "type": "string" }));
            parameters.extend([limit, query("state", state), number("older"), label]);
        }
        Work::TransactionReport | Work::LockList | Work::DomainStatus => parameters.push(limit),
        Work::Hanging => parameters.extend([limit, number("older")]),
        Work::Locks => parameters.extend([limit, query("waiting", json!({ "type": "boolean" }))]),
        Work::Hot => parameters.extend([limit, minutes("minutes")]),
        Work::Waits => parameters.extend([limit, minutes("minutes"), minutes("against")]),
        Work::DeadLetters => {
            parameters.extend([limit, query("topic", json!({ "type": "string" }))]);
        }
        Work::RequestList => {
            parameters.extend([limit, query("application", json!({ "type": "string" }))]);
        }
        Work::LockAcquire => parameters.push(key),
        Work::Get => {
            parameters.extend([routing, query("_source", json!({ "type": "boolean" }))]);
        }
        Work::Source | Work::DocumentReport => parameters.push(routing),
        Work::Index | Work::IndexNew | Work::Create | Work::Update | Work::Delete => {
            parameters.extend([key, refresh, routing]);
            parameters.extend([number("if_seq_no"), number("if_primary_term")]);
            let op_type = query("op_type", json!({ "enum": ["index", "create"] }));
            parameters.extend(work.takes_op_type().then_some(op_type));
        }
        _ => {}
    }
    parameters
}

fn operation(path: &str, work: Work, about: &str, method: &str) -> Value {
    let reference = |name: &str| json!({ "$ref": format!("{SCHEMAS}{name}") });
    let json_body = |schema: Value| json!({ "application/json": { "schema": schema } });
    let body = match work {
        Work::Bulk | Work::BulkOf => {
            Some(json!({ "application/x-ndjson": { "schema": { "type": "string" } } }))
        }
        Work::RequestSubmit => Some(json_body(reference("Request"))),
        Work::RequestCancel => Some(json_body(reference("Cancel"))),
        Work::LockAcquire => Some(json_body(reference("LockRequest"))),
        Work::LockRenew | Work::LockRelease => Some(json_body(reference("LockToken"))),
        Work::Read => Some(json_body(reference("Read"))),
        Work::Transaction | Work::Commit => Some(json_body(reference("Commit"))),
        Work::Emit => Some(json_body(reference("Events"))),
        Work::Index | Work::IndexNew | Work::Create | Work::Update => {
            Some(json_body(json!({ "type": "object" })))
        }
        _ => None,
    };
    let success = match work {
        Work::Metrics => json!({ "text/plain": { "schema": { "type": "string" } } }),
        Work::Read => json_body(reference("Documents")),
        Work::Outcome => json_body(reference("Outcome")),
        _ => json_body(json!({ "type": "object" })),
    };
    let name = path.replace(|c: char| !c.is_ascii_alphanumeric(), "");
    let mut operation = json!({
        "operationId": format!("{}{}{name}", method.to_lowercase(), as_word(work)),
        "summary": about,
        "parameters": parameters(path, work),
        "responses": {
            "2XX": { "description": "The answer.", "content": success },
            "4XX": { "description": "Nothing was changed.", "content": problem(work.shape()) },
            "5XX": { "description": "See `code`.", "content": problem(work.shape()) },
        },
    });
    if matches!(work, Work::Get | Work::Delete) {
        // As on the servers, a missing document is no error.
        let content = json_body(json!({ "type": "object" }));
        operation["responses"]["404"] = json!({ "description": "There is no such document or collection.", "content": content });
    }
    if let Some(content) = body {
        let is_required = work != Work::RequestCancel;
        operation["requestBody"] = json!({ "required": is_required, "content": content });
    }
    operation
}

fn as_word(work: Work) -> String {
    format!("{work:?}")
}

/// The content of a refusal, in the shape of the path.
fn problem(shape: Shape) -> Value {
    let schema = |name: &str| json!({ "schema": { "$ref": format!("{SCHEMAS}{name}") } });
    match shape {
        Shape::Server => json!({ "application/json": schema("ServerError") }),
        _ => json!({ "application/problem+json": schema("Problem") }),
    }
}

fn schemas() -> Value {
    let mut request = Request::schema().to_value();
    let mut schemas = Map::new();
    if let Some(Value::Object(definitions)) =
        request.as_object_mut().and_then(|request| request.remove("$defs"))
    {
        schemas.extend(definitions);
    }
    schemas.insert("Request".to_owned(), request);
    let own = transaction_schemas().into_iter().chain(own_schemas());
    schemas.extend(own.map(|(name, schema)| (name.to_owned(), schema)));
    let mut schemas = Value::Object(schemas);
    move_references(&mut schemas);
    schemas
}

/// The schemas of reads and commits.
fn transaction_schemas() -> [(&'static str, Value); 3] {
    let target = || json!({ "$ref": format!("{SCHEMAS}Target") });
    [
        (
            "Read",
            json!({
                "type": "object", "required": ["targets"], "additionalProperties": false,
                "properties": {
                    "targets": { "type": "array", "items": target() },
                    "for_update": { "type": "boolean" },
                },
            }),
        ),
        (
            "Documents",
            json!({
                "type": "object", "required": ["documents"],
                "properties": {
                    "documents": { "type": "array", "items": {
                        "type": "object", "required": ["target", "token", "document"],
                        "properties": {
                            "target": target(), "token": { "type": "string" },
                            "document": { "type": ["object", "null"] },
                        },
                    } },
                    "reservation": { "type": "string" },
                    "undecided": { "type": "boolean" },
                },
            }),
        ),
        (
            "Commit",
            json!({
                "type": "object", "additionalProperties": false,
                "properties": {
                    "reads": { "type": "array", "items": {
                        "type": "object", "required": ["target", "token"],
                        "additionalProperties": false,
                        "properties": { "target": target(), "token": { "type": "string" } },
                    } },
                    "operations": { "type": "array", "items": { "$ref": format!("{SCHEMAS}Operation") } },
                    "metadata": true,
                    "events": { "type": "array", "items": { "$ref": format!("{SCHEMAS}Emit") } },
                    "after_commit": { "type": "array", "items": { "$ref": format!("{SCHEMAS}HttpRequest") } },
                    "locks": { "type": "array", "items": {
                        "type": "object", "required": ["category", "id", "token"],
                        "additionalProperties": false,
                        "properties": {
                            "category": { "type": "string" }, "id": { "type": "string" },
                            "token": { "type": "integer" },
                        },
                    } },
                    "reservations": { "type": "array", "items": { "type": "string" } },
                },
            }),
        ),
    ]
}

/// The schemas of other bodies that only the gateway has.
fn own_schemas() -> [(&'static str, Value); 7] {
    [
        (
            "Events",
            json!({
                "type": "object", "required": ["events"], "additionalProperties": false,
                "properties": {
                    "events": {
                        "type": "array", "minItems": 1,
                        "items": { "$ref": format!("{SCHEMAS}Emit") },
                    },
                },
            }),
        ),
        (
            "Outcome",
            json!({
                "type": "object", "required": ["tid", "outcome"],
                "properties": {
                    "tid": { "type": "string" }, "commit_version": { "type": "string" },
                    "outcome": { "enum": ["committed", "aborted", "unknown", "forgotten"] },
                },
            }),
        ),
        (
            "LockRequest",
            json!({
                "type": "object", "required": ["owner"], "additionalProperties": false,
                "properties": {
                    "owner": { "type": "string", "minLength": 1, "maxLength": 200 },
                    "lease_ms": { "type": "integer", "minimum": 100, "maximum": 3_600_000 },
                    "wait_ms": { "type": "integer", "minimum": 0 },
                },
            }),
        ),
        (
            "Cancel",
            json!({
                "type": "object", "additionalProperties": false,
                "properties": { "why": { "type": "string", "maxLength": 1_000 } },
            }),
        ),
        (
            "LockToken",
            json!({
                "type": "object", "required": ["token"], "additionalProperties": false,
                "properties": { "token": { "type": "integer" } },
            }),
        ),
        ("Problem", problem_schema()),
        ("ServerError", server_error_schema()),
    ]
}

fn codes() -> Value {
    Code::ALL.iter().map(|code| code.text()).collect()
}

/// An error in the servers' shape. The answer of a bulk has `errors` and `items`, too.
fn server_error_schema() -> Value {
    json!({
        "type": "object", "required": ["error", "status"],
        "properties": {
            "status": { "type": "integer" }, "took": { "type": "integer" },
            "errors": { "type": "boolean" },
            "items": { "type": "array", "items": { "type": "object" } },
            "error": {
                "type": "object", "required": ["type", "reason", "root_cause", "code"],
                "properties": {
                    "type": { "type": "string" }, "reason": { "type": "string" },
                    "root_cause": { "type": "array", "items": { "type": "object" } },
                    "code": { "enum": codes() }, "tid": { "type": "string" },
                },
            },
        },
    })
}

fn problem_schema() -> Value {
    json!({
        "type": "object", "required": ["type", "title", "status", "detail", "code", "error"],
        "properties": {
            "type": { "type": "string" }, "title": { "type": "string" },
            "status": { "type": "integer" }, "detail": { "type": "string" },
            "code": { "enum": codes() }, "tid": { "type": "string" },
            "error": { "type": "object" },
        },
    })
}

/// Makes references to definitions references to components.
fn move_references(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("$schema");
            for (name, value) in fields {
                match value.as_str().and_then(|text| text.strip_prefix("#/$defs/")) {
                    Some(rest) if name == "$ref" => *value = format!("{SCHEMAS}{rest}").into(),
                    _ => move_references(value),
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(move_references),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn references(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
                fields.values().for_each(|value| references(value, found));
            }
            Value::Array(values) => values.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }

    #[test]
    fn all_references_have_a_schema() {
        let document = openapi();
        let mut found = BTreeSet::new();
        references(&document, &mut found);
        assert!(found.len() > 5, "{found:?}");
        for reference in found {
            let pointer = reference.strip_prefix('#').expect("a local reference");
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
    }

    #[test]
    fn body_of_a_cancellation_is_optional() {
        let document = openapi();
        let body = &document["paths"]["/_requests/{id}/cancel"]["post"]["requestBody"];
        assert_eq!(body["required"], false, "{body}");
        let schema = &body["content"]["application/json"]["schema"]["$ref"];
        assert_eq!(schema, "#/components/schemas/Cancel");
    }

    #[test]
    fn operations_have_ids_of_their_own() {
        let document = openapi();
        let paths = document["paths"].as_object().expect("paths");
        let operations: Vec<&Value> =
            paths.values().filter_map(Value::as_object).flat_map(Map::values).collect();
        let ids: BTreeSet<&str> =
            operations.iter().filter_map(|it| it["operationId"].as_str()).collect();
        let described = ROUTES.iter().filter(|(_, _, work, _)| work.shape() != Shape::Page);
        let routes: usize = described.map(|(methods, ..)| methods.len()).sum();
        assert_eq!((ids.len(), operations.len()), (routes, routes));
    }
}
