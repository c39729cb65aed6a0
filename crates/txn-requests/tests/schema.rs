//! The published schema matches the types.
//!
//! The types read all requests that the schema admits. The schema admits all requests that the
//! types write.

use std::path::Path;

use proptest::prelude::*;
use serde_json::{Number, Value, json};
use txn_outbox::http::{Body, HeaderText, HttpRequest, Method};
use txn_requests::{
    Add, Condition, Document, Emit, Expect, Field, Merge, Operation, Patch, Put, Request, Target,
};

fn published() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("request.schema.json");
    let expected = serde_json::to_string_pretty(&Request::schema()).expect("a schema") + "\n";
    if std::env::var_os("TXN_WRITE_SCHEMA").is_some() {
        std::fs::write(&path, &expected).expect("written");
    }
    let text = std::fs::read_to_string(path).expect("it is published");
    assert!(
        text == expected,
        "the schema is not that of the types: run this test with TXN_WRITE_SCHEMA=1"
    );
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn published_schema_matches_the_types() {
    published();
}

#[test]
fn schema_refuses_invalid_requests() {
    let schema = jsonschema::validator_for(&published()).expect("a schema");
    let target = json!({"collection": "c", "id": "i"});
    let sound = json!({"operations": [{"delete": target}]});
    assert!(schema.is_valid(&sound) && serde_json::from_value::<Value>(sound.clone()).is_ok());
    for unsound in [
        json!({}),
        json!({"operations": [{"delete": target}], "more": 1}),
        json!({"operations": [{"drop": target}]}),
        json!({"operations": [{"delete": {"collection": "c"}}]}),
        json!({"operations": [{"delete": {"collection": "c", "id": "i", "more": 1}}]}),
        json!({"operations": [{"put": {"target": target}}]}),
        json!({"operations": [{"put": {"target": target, "document": {}, "more": 1}}]}),
        json!({"operations": [{"add": {"target": target, "path": "/n", "amount": "1"}}]}),
        json!({"operations": [{"merge": {"target": target, "patch": [1]}}]}),
        json!({"operations": [{"patch": {"target": target, "patch": [{"op": "fly", "path": "/a"}]}}]}),
        json!({"operations": [{"expect": {"target": target, "that": {"wish": 1}}}]}),
        json!({"operations": [{"expect": {"target": target, "that": {"exists": 1}}}]}),
        json!({"operations": {}}),
        json!({"operations": [{"delete": target}], "application": 5}),
        json!({"operations": [{"delete": target}], "events": [{"topic": "t", "key": "k"}]}),
        json!({"operations": [{"delete": target}], "events": [{"topic": "t", "key": "k", "payload": 1, "more": 1}]}),
        json!({"operations": [{"delete": target}], "after_commit": [{"method": "POST"}]}),
        json!({"operations": [{"delete": target}], "after_commit": [{"method": "TRACE", "url": "https://a.example"}]}),
        json!({"operations": [{"delete": target}], "after_commit": [
            {"method": "POST", "url": "https://a.example", "headers": {"a": {"secret": 1}}}]}),
    ] {
        let text = unsound.to_string();
        assert!(!schema.is_valid(&unsound), "the schema admits {text}");
        assert!(serde_json::from_str::<Request>(&text).is_err(), "the types read {text}");
    }
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z]{0,8}".prop_map(Value::from),
        Just(json!({"a": [1, {"b": null}]})),
    ]
}

fn target() -> impl Strategy<Value = Target> {
    ("[a-z]{1,8}", "[a-z]{1,8}", proptest::option::of("[a-z]{1,4}"))
        .prop_map(|(collection, id, routing)| Target { collection, id, routing })
}

fn operation() -> impl Strategy<Value = Operation> {
    let document = proptest::collection::btree_map("[a-z]{1,5}", value(), 0..4)
        .prop_map(|fields| Document::new(&fields).expect("an object"));
    let put = (target(), document).prop_map(|(target, document)| Put { target, document }).boxed();
    let number = any::<i64>().prop_map(Number::from);
    let condition = prop_oneof![
        any::<bool>().prop_map(Condition::Exists),
        value().prop_map(|equals| Condition::Field(Field { path: "/a/b".to_owned(), equals })),
        "[a-f0-9]{1,10}".prop_map(Condition::Version),
    ];
    let patch: json_patch::Patch = serde_json::from_value(json!([
        {"op": "add", "path": "/a", "value": 1}, {"op": "remove", "path": "/b"},
        {"op": "replace", "path": "/c", "value": null}, {"op": "test", "path": "/d", "value": []},
        {"op": "move", "path": "/e", "from": "/f"}, {"op": "copy", "path": "/g", "from": "/h"},
    ]))
    .expect("a patch");
    prop_oneof![
        put.clone().prop_map(Operation::Put),
        put.prop_map(Operation::Insert),
        (target(), value()).prop_map(|(target, value)| {
            let patch = [("x".to_owned(), value)].into_iter().collect();
            Operation::Merge(Merge { target, patch })
        }),
        target().prop_map(move |target| Operation::Patch(Patch { target, patch: patch.clone() })),
        target().prop_map(Operation::Delete),
        (
            target(),
            number.clone(),
            proptest::option::of(number.clone()),
            proptest::option::of(number)
        )
            .prop_map(|(target, amount, min, max)| {
                Operation::Add(Add { target, path: "/n".to_owned(), amount, min, max })
            }),
        (target(), condition).prop_map(|(target, that)| Operation::Expect(Expect { target, that })),
    ]
}

fn call() -> impl Strategy<Value = HttpRequest> {
    let body = prop_oneof![value().prop_map(Body::Json), "[a-z]{0,8}".prop_map(Body::Text)];
    let header = prop_oneof![
        "[a-z]{0,8}".prop_map(HeaderText::Text),
        "[a-z]{1,8}".prop_map(HeaderText::secret),
    ];
    let key = proptest::option::of("[a-z]{1,8}");
    (header, proptest::option::of(body), key).prop_map(|(header, body, key)| {
        let mut request =
            HttpRequest::new(Method::Post, "https://a.example/x").with_header("x-a", header);
        (request.body, request.key) = (body, key);
        request
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn schema_and_types_accept_written_requests(
        operations in proptest::collection::vec(operation(), 1..6),
        application in proptest::option::of("[a-z]{1,8}"),
        metadata in value(),
        events in proptest::collection::vec(("[a-z]{1,8}", "[a-z]{1,8}", value()), 0..3),
        calls in proptest::collection::vec(call(), 0..3),
    ) {
        let mut request = Request::new(operations);
        request.events =
            events.into_iter().map(|(topic, key, payload)| Emit::new(topic, key, payload)).collect();
        request.after_commit = calls;
        request.application = application;
        request.metadata = Some(metadata).filter(|value| !value.is_null());
        let text = serde_json::to_string(&request).expect("JSON");
        let schema = jsonschema::validator_for(&published()).expect("a schema");
        let value: Value = serde_json::from_str(&text).expect("JSON");
        prop_assert!(schema.is_valid(&value), "{text}");
        prop_assert_eq!(serde_json::from_str::<Request>(&text).expect("reads"), request);
    }
}
