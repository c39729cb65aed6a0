use txn_store::{StoreErrorKind, Version};

use super::*;
use crate::identity::uuid::samples::uuid;

fn target() -> Arc<Target> {
    Arc::new(Target::new("a", &uuid("uu"), true))
}

fn item(op: Op<'static>) -> Item<'static> {
    let (target, route) = (target(), "identity_alias".into());
    Item { at: 0, route, require_alias: true, target, id: "1", routing: None, op }
}

fn version(seq_no: u64, term: u64) -> Version {
    target().version(seq_no, term).unwrap()
}

const AT_7_2: Condition = Condition { seq_no: 7, primary_term: 2 };

fn outcome(op: Op<'static>, reply: &str) -> Outcome {
    let body = format!(r#"{{"took":3,"errors":false,"items":[{reply}]}}"#);
    match decode(&[item(op)], body.as_bytes()).remove(0) {
        Settled::Write(outcome) => outcome,
        Settled::Read(read) => panic!("{read:?}"),
    }
}

fn read(reply: &str) -> Read {
    let body = format!(r#"{{"took":3,"errors":false,"items":[{reply}]}}"#);
    match decode(&[item(Op::Read)], body.as_bytes()).remove(0) {
        Settled::Read(read) => read,
        Settled::Write(outcome) => panic!("{outcome:?}"),
    }
}

#[test]
fn lines() {
    let mut delete = item(Op::Delete(AT_7_2));
    delete.routing = Some("r\"1");
    let items = [
        item(Op::Create("{\"a\":1}")),
        item(Op::Replace("{\"a\":2}", AT_7_2)),
        item(Op::Check("{}")),
        delete,
        item(Op::Verify(Some(AT_7_2))),
        item(Op::Verify(None)),
        Item { require_alias: false, id: "ü\n\\", ..item(Op::Read) },
    ];
    let expected = r#"{"create":{"_index":"identity_alias","_id":"1","require_alias":true}}
{"a":1}
{"index":{"_index":"identity_alias","_id":"1","if_seq_no":7,"if_primary_term":2,"require_alias":true}}
{"a":2}
{"index":{"_index":"identity_alias","_id":"1","if_seq_no":9007199254740991,"if_primary_term":9007199254740991,"require_alias":true}}
{}
{"delete":{"_index":"identity_alias","_id":"1","routing":"r\"1","if_seq_no":7,"if_primary_term":2,"require_alias":true}}
{"update":{"_index":"identity_alias","_id":"1","if_seq_no":7,"if_primary_term":2,"require_alias":true}}
{"doc":{}}
{"update":{"_index":"identity_alias","_id":"1","require_alias":true}}
{"doc":{}}
{"update":{"_index":"identity_alias","_id":"ü\u000a\\","_source":true}}
{"doc":{}}
"#
    .replace(r#""routing":"r"1""#, r#""routing":"r\"1""#);
    assert_eq!(encode(&items), expected);
    assert!(encode(&items).len() <= items.iter().map(Item::len).sum());
}

#[test]
fn successes() {
    let done = |action: &str, result: &str, status: u16| {
        format!(
            r#"{{"{action}":{{"_index":"a","_type":"_doc","_id":"1","_version":1,"result":"{result}","_shards":{{"total":2,"successful":1,"failed":0}},"_seq_no":7,"_primary_term":2,"status":{status}}}}}"#
        )
    };
    let applied = Outcome::Applied(version(7, 2));
    assert_eq!(outcome(Op::Create("{}"), &done("create", "created", 201)), applied);
    assert_eq!(outcome(Op::Replace("{}", AT_7_2), &done("index", "updated", 200)), applied);
    assert_eq!(outcome(Op::Delete(AT_7_2), &done("delete", "deleted", 200)), applied);
    assert_eq!(outcome(Op::Verify(Some(AT_7_2)), &done("update", "noop", 200)), Outcome::Holds);
    assert_eq!(outcome(Op::Verify(None), &done("update", "noop", 200)), Outcome::Conflict);
    // Impossible answers leave the outcome unknown.
    let cases = [
        (Op::Check("{}"), done("index", "created", 201)),
        (Op::Create("{}"), done("index", "created", 201)),
        (Op::Create("{}"), done("create", "updated", 200)),
        (Op::Replace("{}", AT_7_2), done("index", "created", 201)),
        (Op::Verify(Some(Condition { seq_no: 8, ..AT_7_2 })), done("update", "noop", 200)),
        (Op::Create("{}"), done("create", "created", 201).replace("\"1\"", "\"2\"")),
        (Op::Create("{}"), done("create", "created", 201).replace("\"a\"", "\"b\"")),
        (Op::Create("{}"), done("create", "created", 201).replace("_seq_no", "_other")),
    ];
    for (op, reply) in cases {
        let outcome = outcome(op, &reply);
        assert!(matches!(outcome, Outcome::Unknown(_)), "{op:?} {reply}: {outcome:?}");
    }
}

#[test]
fn errors_by_operation() {
    let failed = |action: &str, kind: &str, status: u16| {
        format!(
            r#"{{"{action}":{{"_index":"identity_alias","_id":"1","status":{status},"error":{{"type":"{kind}","reason":"r","index_uuid":"u","shard":"0","index":"a"}}}}}}"#
        )
    };
    let conflict = "version_conflict_engine_exception";
    let gone = "document_missing_exception";
    let cases = [
        (Op::Create("{}"), failed("create", conflict, 409), Outcome::Conflict),
        (Op::Replace("{}", AT_7_2), failed("index", conflict, 409), Outcome::Conflict),
        (Op::Delete(AT_7_2), failed("delete", conflict, 409), Outcome::Conflict),
        (Op::Check("{}"), failed("index", conflict, 409), Outcome::Holds),
        (Op::Verify(Some(AT_7_2)), failed("update", conflict, 409), Outcome::Conflict),
        (Op::Verify(Some(AT_7_2)), failed("update", gone, 404), Outcome::Conflict),
        (Op::Verify(None), failed("update", gone, 404), Outcome::Holds),
        (
            Op::Verify(None),
            failed("update", "index_not_found_exception", 404),
            Outcome::MissingCollection,
        ),
        (
            Op::Check("{}"),
            failed("index", "document_parsing_exception", 400),
            Outcome::Invalid(Refusal {
                kind: RefusalKind::Document,
                reason: "document_parsing_exception".to_owned(),
            }),
        ),
        (
            Op::Create("{}"),
            failed("create", "unavailable_shards_exception", 503),
            Outcome::Unknown("unavailable_shards_exception".to_owned()),
        ),
    ];
    for (op, reply, expected) in cases {
        assert_eq!(outcome(op, &reply), expected, "{op:?} {reply}");
    }
}

#[test]
fn temporarily_refused_item_is_in_doubt() {
    for (kind, status) in [
        ("es_rejected_execution_exception", 429),
        ("circuit_breaking_exception", 429),
        ("cluster_block_exception", 403),
        ("cluster_block_exception", 429),
        ("index_closed_exception", 400),
        ("index_not_found_exception", 404),
        ("security_exception", 403),
        ("unavailable_shards_exception", 503),
        ("node_disconnected_exception", 500),
        ("illegal_argument_exception", 500),
        ("resource_not_found_exception", 404),
        ("document_missing_exception", 404),
        ("", 500),
    ] {
        for (op, action) in [
            (Op::Create("{}"), "create"),
            (Op::Replace("{}", AT_7_2), "index"),
            (Op::Delete(AT_7_2), "delete"),
        ] {
            let error = format!(r#"{{"type":"{kind}","reason":"r"}}"#);
            let reply = |error: &str| {
                format!(
                    r#"{{"{action}":{{"_index":"identity_alias","_id":"1","status":{status},"error":{error}}}}}"#
                )
            };
            let outcome = outcome(op, &reply(&error));
            assert!(!outcome.is_certainly_not_applied(), "{op:?} {kind}: {outcome:?}");
            assert!(!matches!(outcome, Outcome::Applied(_) | Outcome::Holds), "{outcome:?}");
        }
    }
    let busy = r#"{"create":{"_index":"identity_alias","_id":"1","status":429,"error":{"type":"es_rejected_execution_exception","reason":"r"}}}"#;
    let text = "es_rejected_execution_exception".to_owned();
    assert_eq!(outcome(Op::Create("{}"), busy), Outcome::RejectedInDoubt(text));
    let text = r#"{"create":{"_index":"identity_alias","_id":"1","status":500,"error":"closed"}}"#;
    assert_eq!(outcome(Op::Create("{}"), text), Outcome::Unknown("closed".to_owned()));
}

#[test]
fn an_item_that_is_not_found_is_a_missing_collection() {
    for kind in ["index_not_found_exception", "resource_not_found_exception", "nobody_knows"] {
        let error = format!(r#""status":404,"error":{{"type":"{kind}","reason":"r"}}"#);
        let update = format!(r#"{{"update":{{"_index":"a","_id":"1",{error}}}}}"#);
        assert_eq!(read(&update), Read::MissingCollection, "{kind}");
        let create = update.replace("update", "create");
        assert_eq!(outcome(Op::Create("{}"), &create), Outcome::MissingCollection, "{kind}");
    }
}

#[test]
fn reads_keep_the_bytes() {
    let source = r#"{"n":1.10,"big":12345678901234567890123,  "k\u0065y":"\u00fc" }"#;
    let found = format!(
        r#"{{"update":{{"_index":"a","_id":"1","_version":4,"result":"noop","_seq_no":7,"_primary_term":2,"status":200,"get":{{"_seq_no":7,"_primary_term":2,"found":true,"_routing":"x","_source":{source}}}}}}}"#
    );
    assert_eq!(read(&found), Read::Found { version: version(7, 2), source: source.into() });
    let error = |kind: &str, status: u16| {
        format!(
            r#"{{"update":{{"_index":"a","_id":"1","status":{status},"error":{{"type":"{kind}","reason":"r"}}}}}}"#
        )
    };
    assert_eq!(read(&error("document_missing_exception", 404)), Read::Absent);
    for (kind, status, expected) in [
        ("unavailable_shards_exception", 503, StoreErrorKind::Unavailable),
        ("security_exception", 403, StoreErrorKind::Denied),
        ("cluster_block_exception", 403, StoreErrorKind::Unavailable),
        ("illegal_argument_exception", 400, StoreErrorKind::Misconfigured),
    ] {
        let Read::Unavailable(error) = read(&error(kind, status)) else { panic!("{kind}") };
        assert_eq!(error.kind, expected, "{kind}");
    }
    let bare = found.replace(&format!(",\"_source\":{source}"), "");
    let Read::Unavailable(error) = read(&bare) else { panic!("no source is no document") };
    assert_eq!(error.kind, StoreErrorKind::Misconfigured);
}

#[test]
fn short_and_garbled_answers_are_unknown() {
    let items = [item(Op::Create("{}")), item(Op::Create("{}"))];
    let one = r#"{"create":{"_index":"a","_id":"1","result":"created","_seq_no":7,"_primary_term":2,"status":201}}"#;
    let short = format!(r#"{{"took":1,"errors":false,"items":[{one}]}}"#);
    let settled = decode(&items, short.as_bytes());
    assert_eq!(settled[0], Settled::Write(Outcome::Applied(version(7, 2))));
    assert!(matches!(settled[1], Settled::Write(Outcome::Unknown(_))));
    let long = format!(r#"{{"items":[{one},{one},{one}]}}"#);
    for body in [&long, "", "{}", "<html>", &short[..short.len() - 3], r#"{"items":[{"x":{}}]}"#] {
        for settled in decode(&items, body.as_bytes()) {
            assert!(matches!(settled, Settled::Write(Outcome::Unknown(_))), "{body}: {settled:?}");
        }
    }
}

/// Invalid UTF-8 that a plain client can store inside a string.
const NO_TEXT: [&[u8]; 3] = [b"\xED\xA0\x80", b"\xC0\x80", b"\xF4\x90\x80\x80"];

/// Returns the text with `bytes` in place of each `?`.
fn with_bytes(text: &str, bytes: &[u8]) -> Vec<u8> {
    text.as_bytes().split(|byte| *byte == b'?').collect::<Vec<_>>().join(bytes)
}

#[test]
fn lone_surrogate_in_an_error_affects_no_other_item() {
    let items = [item(Op::Create("{}")), item(Op::Check("{}")), item(Op::Create("{}"))];
    let done = r#"{"create":{"_index":"a","_id":"1","result":"created","_seq_no":7,"_primary_term":2,"status":201}}"#;
    let refused = r#"{"index":{"_index":"a","_id":"1","status":400,"error":{"type":"document_parsing_exception","reason":"[1:6] failed to parse field [n] of type [long] in document with id '1'. Preview of field's value: '\uD800'","caused_by":{"type":"illegal_argument_exception","reason":"For input string: \"\uD800\""}}}}"#;
    let body = format!(r#"{{"errors":true,"took":0,"items":[{done},{refused},{done}]}}"#);
    let settled = decode(&items, body.as_bytes());
    let applied = Settled::Write(Outcome::Applied(version(7, 2)));
    assert_eq!((&settled[0], &settled[2]), (&applied, &applied));
    let Settled::Write(Outcome::Invalid(refusal)) = &settled[1] else { panic!("{settled:?}") };
    assert_eq!(refusal.kind, RefusalKind::Document);
    assert!(refusal.reason.contains("field [n] of type [long]"), "{refusal:?}");
}

#[test]
fn invalid_utf8_damages_only_its_document() {
    let items = [item(Op::Read), item(Op::Read), item(Op::Read)];
    let read = |source: &str| {
        format!(
            r#"{{"update":{{"_index":"a","_id":"1","result":"noop","_seq_no":7,"_primary_term":2,"status":200,"get":{{"found":true,"_source":{source}}}}}}}"#
        )
    };
    let (good, bad) = (read(r#"{"n":"ü"}"#), read(r#"{"n":"?"}"#));
    for bytes in NO_TEXT {
        let body = with_bytes(&format!(r#"{{"items":[{good},{bad},{good}]}}"#), bytes);
        let settled = decode(&items, &body);
        let found = Read::Found { version: version(7, 2), source: r#"{"n":"ü"}"#.into() };
        let found = Settled::Read(found);
        assert_eq!((&settled[0], &settled[2]), (&found, &found));
        let Settled::Read(Read::Unavailable(error)) = &settled[1] else { panic!("{settled:?}") };
        assert_eq!(error.kind, StoreErrorKind::Damaged);
    }
}

#[test]
fn unreadable_item_is_settled_by_its_status() {
    let error = r#"{"type":"document_parsing_exception","reason":"'?\ud800'","caused_by":7}"#;
    for (status, error, expected) in [
        (400, error, "Invalid(Refusal { kind: Document"),
        (409, r#"{"type":"?","reason":"r"}"#, "Conflict"),
        (409, "7", "Conflict"),
        (429, "{}", "RejectedInDoubt(\"status 429"),
        (403, "[]", "RejectedInDoubt(\"status 403"),
        (400, r#"{"type":"\ud800"}"#, "RejectedInDoubt(\"status 400"),
        (404, "{}", "MissingCollection"),
        (503, "{}", "Unknown(\"status 503"),
    ] {
        let reply =
            format!(r#"{{"create":{{"_index":"a","_id":"1","status":{status},"error":{error}}}}}"#);
        let body = with_bytes(&format!(r#"{{"items":[{reply}]}}"#), b"\xFF");
        let settled = format!("{:?}", decode(&[item(Op::Create("{}"))], &body)[0]);
        assert!(settled.starts_with(&format!("Write({expected}")), "{status} {error}: {settled}");
    }
}

#[test]
fn unreadable_item_alone_is_unknown() {
    let items = [item(Op::Create("{}")), item(Op::Create("{}"))];
    let done = r#"{"create":{"_index":"a","_id":"1","result":"created","_seq_no":7,"_primary_term":2,"status":201}}"#;
    for bad in ["7", "null", r#"{"x":{}}"#, &done.replace("201", "\"\"") as &str] {
        let settled = decode(&items, format!(r#"{{"items":[{bad},{done}]}}"#).as_bytes());
        assert!(matches!(settled[0], Settled::Write(Outcome::Unknown(_))), "{bad}: {settled:?}");
        assert_eq!(settled[1], Settled::Write(Outcome::Applied(version(7, 2))), "{bad}");
    }
}

#[test]
fn endless_causes_are_read_up_to_a_limit() {
    let deep = format!("{}{{}}{}", r#"{"caused_by":"#.repeat(100_000), "}".repeat(100_000));
    let reply = format!(r#"{{"create":{{"_index":"a","_id":"1","status":500,"error":{deep}}}}}"#);
    assert!(matches!(outcome(Op::Create("{}"), &reply), Outcome::Unknown(_)));
}
