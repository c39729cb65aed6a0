//! Ids and routings of any text.

use std::collections::BTreeMap;

use crate::conformance::fixture::{Fixture, rule, shows};
use crate::{Filter, Key, Outcome, Read, Version, Write, WriteOp};

/// Names that a layer could misread. Some differ only by case, by white space, or by the
/// composition of a letter.
const ODD: [&str; 48] = [
    "plain",
    "PLAIN",
    "plain ",
    " plain",
    "two words",
    " ",
    "a/b",
    "/",
    "//",
    "..",
    ".",
    "../escape",
    "\"",
    "'",
    "quo\"ted",
    "back\\slash",
    "\\",
    "\\n",
    "\\u0041",
    "%",
    "%2F",
    "%00",
    "50%",
    "+",
    "a+b",
    "a&b=c",
    "#",
    "#top",
    "?",
    "?routing=x",
    "_leading",
    "_doc",
    "_id",
    "-dash",
    "*",
    "a*",
    "<b>",
    "{\"_id\":1}",
    "a,b",
    "a:b;c|d",
    "null",
    "0",
    "\u{e9}",
    "e\u{301}",
    "\u{65e5}\u{672c}\u{8a9e}",
    "\u{1f4b6}\u{1f469}\u{200d}\u{1f52c}",
    "tab\tbell\u{7}del\u{7f}",
    "\u{2028}\u{feff}",
];

pub(in crate::conformance) async fn run(fixture: &mut Fixture<'_>) {
    let docs = fixture.data("docs").await.name;
    let keys = ODD.iter().map(|id| Key::new(docs.clone(), *id)).collect();
    round(fixture, &docs, "an odd id", keys).await;

    let docs = fixture.data("routed").await.name;
    let routed = |(at, routing): (usize, &&str)| {
        Key::new(docs.clone(), format!("{at}-{routing}")).routed(*routing)
    };
    let keys = ODD.iter().enumerate().map(routed).collect();
    round(fixture, &docs, "an odd routing", keys).await;
}

/// Carries out every operation on documents of these keys.
async fn round(fixture: &Fixture<'_>, docs: &str, which: &str, keys: Vec<Key>) {
    let source = |at: usize| format!(r#"{{"title":"number {at}"}}"#);
    let ops = |op: &dyn Fn(usize) -> WriteOp| -> Vec<Write> {
        keys.iter().enumerate().map(|(at, key)| Write::new(key.clone(), op(at))).collect()
    };
    let what = format!("a document of {which} is created");
    let writes = ops(&|at| WriteOp::Create(source(at).into()));
    let first = all_applied(fixture, &what, writes).await;

    let what = format!("a document of {which} is verified, and nothing else has that key");
    for (key, version) in keys.iter().zip(&first) {
        fixture.gives(&what, key, WriteOp::Verify(Some(*version)), Outcome::Holds).await;
    }
    let what = format!("a document of {which} is replaced");
    let replaced = |at: usize| source(at + 1000);
    let writes = ops(&|at| WriteOp::Replace(replaced(at).into(), first[at]));
    let second = all_applied(fixture, &what, writes).await;

    let what = format!("a document of {which} is read back");
    let all = |reads: &[Read]| {
        let mut each = reads.iter().zip(&second).enumerate();
        reads.len() == second.len() && each.all(|(at, (r, v))| shows(r, *v, &replaced(at)))
    };
    for (at, key) in keys.iter().enumerate() {
        fixture.stands(&what, key, second[at], &replaced(at)).await;
    }
    let reads = fixture.store.read_primary(&keys).await;
    rule(&what, all(&reads), &reads);
    fixture.soon(&what, &keys, all).await;

    let what = format!("a scan shows {which} as it was written");
    let found: BTreeMap<Key, Version> =
        fixture.scan(docs, &Filter::All, 20).await.into_iter().map(|(k, v, _)| (k, v)).collect();
    let wanted: BTreeMap<Key, Version> =
        keys.iter().cloned().zip(second.iter().copied()).collect();
    rule(&what, found == wanted, &differing(&found, &wanted));

    let what = format!("a document of {which} is deleted");
    let writes = ops(&|at| WriteOp::Delete(second[at]));
    all_applied(fixture, &what, writes).await;
    for key in &keys {
        fixture.absent(&what, key).await;
    }
}

async fn all_applied(fixture: &Fixture<'_>, what: &str, writes: Vec<Write>) -> Vec<Version> {
    let outcomes = fixture.write_many(&writes).await;
    let version = |(write, outcome): (&Write, &Outcome)| match outcome {
        Outcome::Applied(version) => Some(*version),
        _ => {
            rule(what, false, &(&write.key, &write.key.routing, outcome));
            None
        }
    };
    writes.iter().zip(&outcomes).filter_map(version).collect()
}

/// Returns the keys that only one map has, with their routings.
fn differing(one: &BTreeMap<Key, Version>, other: &BTreeMap<Key, Version>) -> Vec<String> {
    let lacks = |a: &BTreeMap<Key, Version>, b: &BTreeMap<Key, Version>| {
        let keys = a.iter().filter(|(key, version)| b.get(key) != Some(version));
        keys.map(|(key, _)| format!("{:?} {:?}", key.id, key.routing)).collect::<Vec<_>>()
    };
    [lacks(one, other), lacks(other, one)].concat()
}
