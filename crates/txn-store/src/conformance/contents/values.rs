//! Values that keep their bytes.

use crate::conformance::fixture::{Fixture, compact, rule, shows};
use crate::{Filter, Key, Outcome, Read, Role, Source, Version, Write, WriteOp};

/// Values that lose bytes in a careless parser.
const ODD: [&str; 30] = [
    "null",
    "true",
    "[]",
    "{}",
    "[[],{},[{}]]",
    r#""""#,
    "0",
    "-0",
    "-0.0",
    "1.0",
    "1.10",
    "1e3",
    "1E+3",
    "1e-7",
    "0.1000000000000000055511151231257827",
    "12345678901234567",
    "9007199254740993",
    "18446744073709551616",
    "123456789012345678901234567890",
    "1e308",
    r#""\u00e9""#,
    r#""é""#,
    r#""\ud83d\ude00 and 😀""#,
    r#""\/ and /""#,
    r#""\"\\\b\f\n\r\t""#,
    r#""\u000a\u0000\u2028""#,
    r#"{"z":1,"a":2,"Z":3,"":4}"#,
    r#"{"\u0061b":1,"a.b":2,"_id":3,"$ref":4,"é":5}"#,
    r#"{"transaction_tid":"inner","transaction_version":null}"#,
    r#""{\"create\":{\"_id\":\"x\"}}""#,
];

/// Sources that are odd as a whole.
const WHOLE: [&str; 5] = [
    "{}",
    r#" { "payload" : [ 1 , 2.50 , " a  b " ] } "#,
    r#"{"p\u0061yload":{"title":1}}"#,
    r#"{"payload":null}"#,
    r#"{"payload":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":[[[[[[[[1.0]]]]]]]]}}}}}}}}}"#,
];

pub(in crate::conformance) async fn run(fixture: &mut Fixture<'_>) {
    let mut spec = fixture.spec("docs", true);
    spec.role = Role::Data { owner: None };
    spec.mappings = fixture.options.opaque_mappings.clone();
    let docs = fixture.make(spec).await.name;
    let mut sources: Vec<Source> = WHOLE.iter().map(|source| (*source).into()).collect();
    let payload = |value: &str| Source::from(format!(r#"{{"payload":{{"value":{value}}}}}"#));
    sources.extend(ODD.iter().map(|value| payload(value)));
    if fixture.store.limits().max_document_bytes > 2 << 20 {
        let long = "a\\u00e9\u{e9}\\n 1.0 ".repeat((1 << 20) / 16);
        sources.push(payload(&format!("\"{long}\"")));
    }

    let keys: Vec<Key> =
        (0..sources.len()).map(|at| Key::new(docs.clone(), format!("id-{at}"))).collect();
    // Writes each value alone, so that the panic names a refused value.
    let mut first = Vec::new();
    for (key, source) in keys.iter().zip(&sources) {
        let what = "an odd value passes the dry run";
        fixture.gives(what, key, WriteOp::Check(source.clone()), Outcome::Holds).await;
        first.push(fixture.create(key, source).await);
    }
    shown(fixture, &docs, &keys, &first, &sources).await;

    // All values in one batch, each document with the value of another document.
    sources.rotate_left(1);
    let each = keys.iter().zip(&sources).zip(&first);
    let writes: Vec<Write> = each
        .map(|((key, source), at)| Write::new(key.clone(), WriteOp::Replace(source.clone(), *at)))
        .collect();
    let outcomes = fixture.write_many(&writes).await;
    let version = |outcome: &Outcome| match outcome {
        Outcome::Applied(version) => Some(*version),
        _ => None,
    };
    let second: Vec<Version> = outcomes.iter().filter_map(version).collect();
    rule("odd values are replaced in a batch", second.len() == keys.len(), &outcomes);
    shown(fixture, &docs, &keys, &second, &sources).await;
}

/// Checks that all reads show the bytes of keys and values.
///
/// Each kind of read must show every key and every value.
async fn shown(
    fixture: &Fixture<'_>,
    docs: &str,
    keys: &[Key],
    versions: &[Version],
    sources: &[Source],
) {
    for ((key, version), source) in keys.iter().zip(versions).zip(sources) {
        let what = "a source keeps the bytes of every key and value";
        fixture.stands(what, key, *version, source).await;
    }
    let what = "a source keeps the bytes of every key and value, in a batch of reads";
    let all = |reads: &[Read]| {
        let mut each = reads.iter().zip(versions).zip(sources);
        reads.len() == keys.len() && each.all(|((read, at), source)| shows(read, *at, source))
    };
    let reads = fixture.store.read_primary(keys).await;
    rule(what, all(&reads), &reads);
    fixture.soon(what, keys, all).await;

    let found = fixture.scan(docs, &Filter::All, 10).await;
    rule("a scan finds every document", found.len() == keys.len(), &found.len());
    for (key, _, source) in &found {
        let what = "a source keeps the bytes of every key and value, in a scan";
        let wanted = keys.iter().position(|wanted| wanted == key).map(|at| &sources[at]);
        let same = wanted.is_some_and(|wanted| compact(wanted) == compact(source));
        rule(what, same, &(key, wanted, source));
    }
}
