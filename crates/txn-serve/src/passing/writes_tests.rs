use hyper::Method;
use proptest::prelude::*;
use serde_json::json;

use super::super::paths::segments;
use super::*;
use crate::http::problem::Code;

fn judged(method: &Method, path: &str) -> Result<(Kind, Option<String>), Code> {
    let segments = segments(path).map_err(|problem| problem.code())?;
    let judged = judge(method, path, &segments).map_err(|problem| problem.code());
    judged.map(|(kind, index)| (kind, index.map(str::to_owned)))
}

#[test]
fn writes_of_known_forms_are_passed() {
    for (method, path, kind) in [
        (Method::POST, "/logs/_doc", Kind::Documents),
        (Method::PUT, "/logs/_doc/a", Kind::Documents),
        (Method::PUT, "/logs/_doc/a%2Fb%20c", Kind::Documents),
        (Method::DELETE, "/logs/_doc/_x-4", Kind::Documents),
        (Method::PUT, "/logs/_create/a", Kind::Documents),
        (Method::POST, "/logs/_update/a", Kind::Documents),
        (Method::PUT, "/logs/_bulk", Kind::Documents),
        (Method::PUT, "/logs", Kind::Creation),
        (Method::DELETE, "/logs", Kind::Index),
        (Method::PUT, "/logs/_mapping", Kind::Index),
        (Method::PUT, "/Logs-2026.11_a/_settings", Kind::Index),
    ] {
        let (found, index) = judged(&method, path).expect(path);
        assert_eq!(found, kind, "{path}");
        assert!(index.is_some_and(|index| index.to_lowercase().starts_with("logs")), "{path}");
    }
    assert_eq!(judged(&Method::POST, "/_bulk"), Ok((Kind::Documents, None)));
}

#[test]
fn other_names_of_an_index_are_refused() {
    for index in [
        "%3Ca-%7Bnow%2Fd%7D%3E",
        "<a-{now}>",
        "a*",
        "a%2A",
        "a,b",
        "a%2Cb",
        "-a",
        "+a",
        "_all",
        "%5Fall",
        "a%62",
        "remote:a",
        ".kibana",
        "a%20b",
        "a%00",
        "%C3%A4",
        "*",
        "a%2Fb",
    ] {
        for path in [
            format!("/{index}/_doc/1"),
            format!("/{index}/_bulk"),
            format!("/{index}"),
            format!("/{index}/_mapping"),
            format!("/{index}/_settings"),
        ] {
            assert_eq!(judged(&Method::PUT, &path), Err(Code::NotPassed), "{path}");
        }
        assert_eq!(judged(&Method::DELETE, &format!("/{index}")), Err(Code::NotPassed), "{index}");
    }
}

#[test]
fn other_forms_of_a_write_are_refused() {
    for (method, path) in [
        // Typed paths of version 7.
        (Method::PUT, "/logs/type/1"),
        (Method::PUT, "/logs/type/1/_create"),
        (Method::POST, "/logs/_doc/1/_update"),
        (Method::POST, "/logs/type/_bulk"),
        (Method::POST, "/logs/_doc/_bulk"),
        (Method::PUT, "/logs/_doc/_mapping"),
        (Method::POST, "/logs/_doc/_update_by_query"),
        (Method::PUT, "/logs/_mapping/type"),
        // Escaped calls.
        (Method::POST, "/%5Fbulk"),
        (Method::POST, "/logs/%5Fbulk"),
        (Method::PUT, "/logs/_do%63/1"),
        (Method::POST, "/logs/_bulk/"),
        (Method::PUT, "/logs/"),
        // Ids that another server could read as a path.
        (Method::PUT, "/logs/_doc/..%2F..%2Fstock%2F_doc%2F1"),
        (Method::PUT, "/logs/_doc/1%2F_update"),
        (Method::PUT, "/logs/_doc/%2F%2Fstock"),
        // Jobs, and changes of other things than one index.
        (Method::POST, "/_reindex"),
        (Method::POST, "/logs/_update_by_query"),
        (Method::POST, "/logs/_delete_by_query"),
        (Method::POST, "/_aliases"),
        (Method::PUT, "/logs/_alias/stock"),
        (Method::PUT, "/logs/_aliases/stock"),
        (Method::DELETE, "/logs/_alias/stock-committed"),
        (Method::POST, "/logs/_rollover"),
        (Method::POST, "/logs/_rollover/stock"),
        (Method::PUT, "/stock/_clone/logs"),
        (Method::PUT, "/logs/_split/stock"),
        (Method::PUT, "/logs/_shrink/stock"),
        (Method::POST, "/logs/_close"),
        (Method::PUT, "/_ingest/pipeline/p"),
        (Method::PUT, "/_scripts/s"),
        (Method::PUT, "/_template/t"),
        (Method::PUT, "/_index_template/t"),
        (Method::PUT, "/_data_stream/d"),
        (Method::PUT, "/_settings"),
        (Method::PUT, "/_mapping"),
        (Method::PUT, "/_all/_settings"),
        (Method::DELETE, "/_all"),
        (Method::DELETE, "/*"),
        (Method::PUT, "/_cluster/settings"),
        (Method::POST, "/_snapshot/r/s/_restore"),
        (Method::PUT, "/_security/user/a"),
        (Method::POST, "/_tasks/1/_cancel"),
        (Method::PATCH, "/logs/_doc/1"),
        (Method::POST, "/logs"),
    ] {
        assert_eq!(judged(&method, path), Err(Code::NotPassed), "{method} {path}");
    }
    assert_eq!(judged(&Method::PUT, "/logs/../stock/_doc/1"), Err(Code::Invalid));
}

#[test]
fn names_of_the_engine_are_reserved() {
    for name in ["txn-registry", "txn-shop-2026.11.27", "stock-txn-0123", "stock-committed"] {
        assert!(is_reserved(name), "{name}");
    }
    assert!(!is_reserved("logs") && !is_reserved("txns"));
}

#[test]
fn parameters_that_move_a_write_are_refused() {
    check_parameters(Some("refresh=true&routing=a&pipeline=_none&pretty")).expect("known");
    for query in [
        "pipeline=p",
        "pipeline=_none&pipeline=p",
        "source=x&source_content_type=application/json",
        "%70ipeline=p",
        "include_type_name=true",
    ] {
        let refused = check_parameters(Some(query)).expect_err(query);
        assert_eq!(refused.code(), Code::NotPassed, "{query}");
    }
}

#[test]
fn new_index_brings_no_aliases() {
    for body in ["", "{}", r#"{"settings":{},"mappings":{"properties":{}},"aliases":{ }}"#] {
        check_creation(body).expect(body);
    }
    for body in [
        r#"{"aliases":{"stock-committed":{"is_write_index":true}}}"#,
        r#"{"\u0061liases":{"stock":{}}}"#,
        r#"{"aliases":{},"aliases":{"stock":{}}}"#,
        r#"{"aliases":["stock"]}"#,
        r#"{"alias":{"stock":{}}}"#,
    ] {
        assert_eq!(check_creation(body).expect_err(body).code(), Code::NotPassed, "{body}");
    }
    assert_eq!(check_creation("[]").expect_err("no object").code(), Code::Invalid);
}

#[test]
fn odd_bulks_are_not_read() {
    for body in [
        "",
        "\n",
        "{\"index\":{\"_index\":\"logs\"}}\n{}",
        "{\"index\":{\"_index\":\"logs\",\"_index\":\"stock\"}}\n{}\n",
        "{\"index\":{\"_index\":\"logs\",\"\\u005findex\":\"stock\"}}\n{}\n",
        "{\"index\":{\"_index\":\"logs\"},\"delete\":{\"_index\":\"stock\",\"_id\":\"1\"}}\n{}\n",
        "{\"index\":{\"_index\":\"logs\"}} {\"delete\":{\"_index\":\"stock\"}}\n{}\n",
        "{\"index\":{\"_index\":null}}\n{}\n",
        "{\"index\":{\"_index\":7}}\n{}\n",
        "{\"index\":{\"_index\":\"\"}}\n{}\n",
        "{\"index\":{\"_index\":\"logs\"}}\n",
        "{\"index\":{\"_index\":\"logs\"}}\n\n{\"delete\":{\"_index\":\"stock\",\"_id\":\"1\"}}\n",
        "// comment\n{\"delete\":{\"_index\":\"logs\",\"_id\":\"1\"}}\n",
        "{\"index\":null}\n{}\n",
        "{\"Index\":{\"_index\":\"logs\"}}\n{}\n",
        "[{\"index\":{}}]\n{}\n",
    ] {
        assert_eq!(read_bulk(body, Some("logs")), None, "{body}");
    }
    assert_eq!(read_bulk("{\"index\":{}}\n{}\n", None), None, "no index");
    for field in ["pipeline", "_type", "version_map", "_parent"] {
        let line = json!({ "index": { "_index": "logs", (field): "x" } });
        let bulk = read_bulk(&format!("{line}\n{{}}\n"), None).expect(field);
        assert_eq!(bulk.unfit.as_deref(), Some(field));
    }
}

/// Parts of paths with several meanings.
///
/// Other servers or versions could understand such a part in several ways.
fn part() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("logs".to_owned()),
        Just("_doc".to_owned()),
        Just("_bulk".to_owned()),
        Just("%5Fbulk".to_owned()),
        Just("_update".to_owned()),
        Just("_create".to_owned()),
        Just("_mapping".to_owned()),
        Just("..".to_owned()),
        Just(String::new()),
        "[a-z*,<>{}%+_.:-]{0,6}",
    ]
}

/// An action of a bulk: its line, its content, and its index.
fn action() -> impl Strategy<Value = (String, Option<String>)> {
    let index = prop_oneof![Just(None), "[a-z]{1,4}".prop_map(Some)];
    let verb = prop_oneof![Just("index"), Just("create"), Just("update"), Just("delete")];
    // A content may look like an action.
    let content = prop_oneof![
        Just("{}".to_owned()),
        Just("{\"delete\":{\"_index\":\"stock\",\"_id\":\"1\"}}".to_owned()),
    ];
    let blank = prop_oneof![Just(""), Just("\n"), Just(" \r\n")];
    (index, verb, content, blank, prop_oneof![Just("\n"), Just("\r\n")]).prop_map(
        |(index, verb, content, blank, end)| {
            let mut fields = json!({ "_id": "1" });
            if let Some(index) = &index {
                fields["_index"] = json!(index);
            }
            let line = json!({ verb: fields });
            let content = if verb == "delete" { String::new() } else { format!("{content}{end}") };
            (format!("{blank}{line}{end}{content}"), index)
        },
    )
}

proptest! {
    #[test]
    fn passed_path_names_its_index_literally(parts in prop::collection::vec(part(), 1..5), at in 0..3) {
        let method = [Method::PUT, Method::POST, Method::DELETE][usize::try_from(at).unwrap_or(0)].clone();
        let path = format!("/{}", parts.join("/"));
        if let Ok((_, index)) = judged(&method, &path) {
            match index {
                Some(index) => prop_assert!(is_literal(&index) && parts[0] == index, "{}", path),
                None => prop_assert_eq!(path, "/_bulk"),
            }
        }
    }

    #[test]
    fn each_action_of_a_bulk_is_read(actions in prop::collection::vec(action(), 1..8)) {
        let body: String = actions.iter().map(|(text, _)| text.as_str()).collect();
        let bulk = read_bulk(&body, Some("logs")).expect("a bulk");
        let found: Vec<&str> = bulk.entries.iter().map(|entry| &*entry.index).collect();
        let expected: Vec<&str> =
            actions.iter().map(|(_, index)| index.as_deref().unwrap_or("logs")).collect();
        prop_assert_eq!(found, expected);
        prop_assert_eq!(bulk.unfit, None);
    }
}
