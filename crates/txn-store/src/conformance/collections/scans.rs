//! Scans: complete, page by page, filtered.

use std::collections::BTreeMap;

use crate::conformance::fixture::{Fixture, compact, not_found, rule};
use crate::{CollectionSpec, Filter, Key, Outcome, Role, Source, Version, Write, WriteOp};

/// The number of documents in the paged collection.
const DOCUMENTS: usize = 57;

type Documents = BTreeMap<Key, (Version, Source)>;

pub(in crate::conformance) async fn run(fixture: &mut Fixture<'_>) {
    let missing = fixture.name("missing");
    fixture.discard(&missing).await;
    let what = "a scan of a missing collection fails";
    not_found(what, fixture.store.scan(&missing, &Filter::All, 10, None).await);
    pages(fixture).await;
    exists(fixture).await;
    any_of(fixture).await;
    any_of_up_to(fixture).await;
    range(fixture).await;
}

async fn pages(fixture: &mut Fixture<'_>) {
    let docs = fixture.data("docs").await.name;
    let empty = fixture.scan(&docs, &Filter::All, 10).await;
    rule("a scan of an empty collection finds nothing", empty.is_empty(), &empty);

    let source = |at: usize| format!(r#"{{"title":"number {at}"}}"#);
    let keys = (0..DOCUMENTS).map(|at| {
        let key = Key::new(docs.clone(), format!("id-{at}"));
        if at % 5 == 0 { key.routed(format!("route {}", at % 3)) } else { key }
    });
    let mut standing = write(fixture, keys.enumerate().map(|(at, key)| (key, source(at)))).await;
    for size in [1, 10, DOCUMENTS, 500] {
        same(fixture, &docs, &Filter::All, size, &standing).await;
    }

    // A deleted document is absent, and a replaced one has its new source.
    let (gone, (version, _)) = standing.pop_first().expect("there are documents");
    fixture.applied("delete at the version is applied", &gone, WriteOp::Delete(version)).await;
    let (changed, (version, _)) = standing.pop_last().expect("there are documents");
    let new: Source = source(DOCUMENTS).into();
    let op = WriteOp::Replace(new.clone(), version);
    let version = fixture.applied("replace at the version is applied", &changed, op).await;
    standing.insert(changed, (version, new));
    same(fixture, &docs, &Filter::All, 10, &standing).await;
}

async fn exists(fixture: &mut Fixture<'_>) {
    let docs = fixture.data("locks").await.name;
    let source = |at: usize| match at % 4 {
        0 => format!(r#"{{"transaction_tid":"tid-{at}"}}"#),
        1 => r#"{"transaction_tid":null}"#.to_owned(),
        2 => r#"{"title":"transaction_tid"}"#.to_owned(),
        _ => r#"{"nested":{"transaction_tid":"inner"}}"#.to_owned(),
    };
    let keys = (0..24).map(|at| (Key::new(docs.clone(), format!("id-{at}")), source(at)));
    let mut standing = write(fixture, keys).await;
    same(fixture, &docs, &Filter::All, 7, &standing).await;
    standing.retain(|_, (_, source)| source.starts_with(r#"{"transaction_tid":"tid"#));
    // `Exists` does not match null, another field with this text, or a nested field.
    for size in [2, 500] {
        same(fixture, &docs, &Filter::Exists("transaction_tid"), size, &standing).await;
    }
}

async fn any_of(fixture: &mut Fixture<'_>) {
    let name = fixture.name("records");
    let spec = CollectionSpec { name, role: Role::Partition, create: true, mappings: None };
    let records = fixture.make(spec).await.name;
    const STATES: [&str; 3] = ["pending", "committed", "finished"];
    let source = |at: usize| match STATES.get(at % 5) {
        Some(state) => format!(r#"{{"state":"{state}"}}"#),
        None => r#"{"state":null}"#.to_owned(),
    };
    let keys = (0..25).map(|at| (Key::new(records.clone(), format!("id-{at}")), source(at)));
    let standing = write(fixture, keys).await;
    for values in [&STATES[..], &STATES[..2], &STATES[2..3], &["pend", "Pending"], &[]] {
        let mut wanted = standing.clone();
        wanted.retain(|_, (_, source)| {
            values.iter().any(|value| **source == *format!(r#"{{"state":"{value}"}}"#))
        });
        for size in [3, 500] {
            let filter = Filter::any_of("state", values.iter().copied());
            same(fixture, &records, &filter, size, &wanted).await;
        }
    }
}

async fn any_of_up_to(fixture: &mut Fixture<'_>) {
    const MAPPINGS: &str = r#"{"properties":{"kind":{"type":"keyword"},
        "due_ms":{"type":"date","format":"epoch_millis"}}}"#;
    // Moments of our time, in milliseconds, and the greatest moment of all dates.
    const MOMENTS: [u64; 5] = [0, 9, 1_900_000_000_000, 1_900_000_000_001, 253_402_300_799_999];
    let spec = CollectionSpec { mappings: Some(MAPPINGS.into()), ..fixture.spec("due", true) };
    let docs = fixture.make(spec).await.name;
    let due = |at: usize| MOMENTS.get(at % 7).copied();
    let kind = |at: usize| ["timer", "event", "other"][at % 3];
    let source = |at: usize| match due(at) {
        Some(due) => format!(r#"{{"kind":"{}","due_ms":{due}}}"#, kind(at)),
        None if at % 7 == 5 => format!(r#"{{"kind":"{}","due_ms":null}}"#, kind(at)),
        None => format!(r#"{{"kind":"{}"}}"#, kind(at)),
    };
    let keys: Vec<Key> = (0..42).map(|at| Key::new(docs.clone(), format!("id-{at}"))).collect();
    let documents = keys.iter().enumerate().map(|(at, key)| (key.clone(), source(at)));
    let standing = write(fixture, documents).await;
    for kinds in [&["timer"][..], &["timer", "event"], &["tim"], &[]] {
        for bound in [0, 8, 1_900_000_000_000, 253_402_300_799_999] {
            let mut wanted = standing.clone();
            for (at, key) in keys.iter().enumerate() {
                let is_due = due(at).is_none_or(|due| due <= bound);
                if !is_due || !kinds.contains(&kind(at)) {
                    wanted.remove(key);
                }
            }
            let values = kinds.iter().copied();
            let filter = Filter::any_of_up_to("kind", values, "due_ms", bound);
            for size in [3, 500] {
                same(fixture, &docs, &filter, size, &wanted).await;
            }
        }
    }
}

async fn range(fixture: &mut Fixture<'_>) {
    const MAPPINGS: &str = r#"{"properties":{"left":{"type":"long"},
        "expires_ms":{"type":"date","format":"epoch_millis"}}}"#;
    let spec = CollectionSpec { mappings: Some(MAPPINGS.into()), ..fixture.spec("range", true) };
    let docs = fixture.make(spec).await.name;
    let number = |at: usize| i64::try_from(at).expect("is small") - 3;
    let source = |at: usize| match at % 4 {
        0 => format!(r#"{{"left":{},"expires_ms":{}}}"#, number(at), at * 1_000),
        1 => format!(r#"{{"left":[{},{}]}}"#, number(at), 1_000),
        2 => r#"{"left":null}"#.to_owned(),
        _ => r#"{"title":"1"}"#.to_owned(),
    };
    let keys: Vec<Key> = (0..24).map(|at| Key::new(docs.clone(), format!("id-{at}"))).collect();
    let documents = keys.iter().enumerate().map(|(at, key)| (key.clone(), source(at)));
    let standing = write(fixture, documents).await;
    let of = |field: &'static str, at: usize| match (at % 4, field) {
        (0, "left") => vec![number(at)],
        (1, "left") => vec![number(at), 1_000],
        (0, _) => vec![i64::try_from(at).expect("is small") * 1_000],
        _ => Vec::new(),
    };
    let bounds = [(i64::MIN, i64::MAX), (-3, 5), (0, 5), (1, 1), (6, 999), (4_000, 8_000), (5, -5)];
    for field in ["left", "expires_ms"] {
        // Elasticsearch before 8.2 refuses dates before 1970.
        for (from, to) in bounds.into_iter().filter(|bounds| field == "left" || *bounds != (-3, 5)) {
            let mut wanted = standing.clone();
            for (at, key) in keys.iter().enumerate() {
                if !of(field, at).iter().any(|number| (from..=to).contains(number)) {
                    wanted.remove(key);
                }
            }
            for size in [3, 500] {
                same(fixture, &docs, &Filter::range(field, from..=to), size, &wanted).await;
            }
        }
    }
}

/// Creates documents in one batch, and returns the documents that exist afterwards.
async fn write(fixture: &Fixture<'_>, documents: impl Iterator<Item = (Key, String)>) -> Documents {
    let documents: Vec<(Key, Source)> = documents.map(|(k, s)| (k, s.into())).collect();
    let create = |(key, source): &(Key, Source)| {
        Write::new(key.clone(), WriteOp::Create(source.clone()))
    };
    let writes: Vec<Write> = documents.iter().map(create).collect();
    let outcomes = fixture.write_many(&writes).await;
    let mut standing = Documents::new();
    for ((key, source), outcome) in documents.into_iter().zip(outcomes) {
        let Outcome::Applied(version) = outcome else {
            rule("create of an absent document is applied", false, &(key, outcome));
            continue;
        };
        standing.insert(key, (version, source));
    }
    standing
}

/// Checks that the scan finds exactly these documents, each once.
async fn same(
    fixture: &Fixture<'_>,
    collection: &str,
    filter: &Filter,
    size: usize,
    wanted: &Documents,
) {
    let mut found = BTreeMap::new();
    for (key, version, source) in fixture.scan(collection, filter, size).await {
        let what = "a scan finds only what the filter asks for, with its routing";
        let Some((at, text)) = wanted.get(&key) else {
            return rule(what, false, &(filter, key, source));
        };
        let same = *at == version && compact(text) == compact(&source);
        let what = "a scan after a refresh shows the current document";
        rule(what, same, &(&key, version, &source));
        let twice = found.insert(key.clone(), version).is_some();
        rule("a scan finds each document once", !twice, &(filter, size, &key));
    }
    let lost: Vec<&Key> = wanted.keys().filter(|key| !found.contains_key(key)).collect();
    let what = "a scan after a refresh finds every document that the filter asks for";
    rule(what, lost.is_empty(), &(filter, size, lost));
}
