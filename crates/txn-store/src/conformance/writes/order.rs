//! The order of results, and of several writes to one document.

use crate::conformance::fixture::{Fixture, rule, shows};
use crate::{Key, Outcome, Read, Version, Write, WriteOp};

const A: &str = r#"{"title":"a"}"#;
const B: &str = r#"{"title":"b"}"#;
const C: &str = r#"{"title":"c"}"#;

/// The number of documents of each kind in the mixed batches.
const EACH: usize = 6;

pub(in crate::conformance) async fn run(fixture: &mut Fixture<'_>) {
    let docs = fixture.data("docs").await.name;
    let key = |id: &str| Key::new(docs.clone(), id);

    let nothing = fixture.write_many(&[]).await;
    rule("an empty batch of writes has no outcomes", nothing.is_empty(), &nothing);
    for reads in [fixture.store.get_many(&[]).await, fixture.store.read_primary(&[]).await] {
        rule("an empty batch of reads has no answers", reads.is_empty(), &reads);
    }

    let standing = mixed_writes(fixture, &docs).await;
    mixed_reads(fixture, &docs, &standing).await;

    let one = key("create-twice");
    let outcomes = both(fixture, &one, WriteOp::Create(A.into()), WriteOp::Create(B.into())).await;
    let (Outcome::Applied(version), Outcome::Conflict) = outcomes else {
        return rule("of two creates in one call the first is applied", false, &outcomes);
    };
    fixture.stands("of two creates in one call the first is applied", &one, version, A).await;

    let replace = |source: &str| WriteOp::Replace(source.into(), version);
    let outcomes = both(fixture, &one, replace(B), replace(C)).await;
    let (Outcome::Applied(version), Outcome::Conflict) = outcomes else {
        return rule("of two replaces of one version the first is applied", false, &outcomes);
    };
    fixture.stands("of two replaces of one version the first is applied", &one, version, B).await;

    let outcomes = both(fixture, &one, WriteOp::Delete(version), WriteOp::Create(C.into())).await;
    let (Outcome::Applied(_), Outcome::Applied(version)) = outcomes else {
        return rule("a delete and then a create in one call are both applied", false, &outcomes);
    };
    fixture.stands("a create after a delete in one call is applied", &one, version, C).await;

    let outcomes = both(fixture, &one, WriteOp::Create(A.into()), WriteOp::Delete(version)).await;
    let (Outcome::Conflict, Outcome::Applied(_)) = outcomes else {
        let what = "a create of an existing document and then its delete are Conflict and Applied";
        return rule(what, false, &outcomes);
    };
    fixture.absent("a document deleted at the end of a call is absent", &one).await;
}

/// Writes one document twice in one call.
///
/// An operation on another document is between the two writes.
async fn both(fixture: &Fixture<'_>, key: &Key, first: WriteOp, second: WriteOp) -> (Outcome, Outcome) {
    let between = Key::new(key.collection.clone(), "between");
    let mut outcomes = fixture
        .write_many(&[
            Write::new(key.clone(), first),
            Write::new(between, WriteOp::Check(A.into())),
            Write::new(key.clone(), second),
        ])
        .await;
    rule("the write in between has its own outcome", outcomes[1] == Outcome::Holds, &outcomes);
    let second = outcomes.pop().expect("three outcomes, checked");
    (outcomes.swap_remove(0), second)
}

/// Writes a mixed batch with every kind of outcome.
///
/// Returns the documents that exist afterwards.
async fn mixed_writes(fixture: &Fixture<'_>, docs: &str) -> Vec<(Key, Version, String)> {
    let key = |kind: &str, at: usize| Key::new(docs, format!("{kind}-{at}"));
    let source = |at: usize| format!(r#"{{"title":"written-{at}"}}"#);
    let missing = fixture.name("missing");
    fixture.discard(&missing).await;
    let (mut writes, mut wanted) = (Vec::new(), Vec::new());
    for at in 0..EACH {
        let version = fixture.create(&key("there", at), A).await;
        let mut add = |key: Key, op: WriteOp, want: &'static str| {
            writes.push(Write::new(key, op));
            wanted.push(want);
        };
        add(key("new", at), WriteOp::Create(source(at).into()), "Applied");
        add(key("there", at), WriteOp::Create(B.into()), "Conflict");
        add(Key::new(missing.as_str(), "1"), WriteOp::Create(B.into()), "MissingCollection");
        add(key("none", at), WriteOp::Verify(None), "Holds");
        add(key("none", at), WriteOp::Replace(B.into(), version), "Conflict");
        if at % 2 == 0 {
            add(key("there", at), WriteOp::Replace(source(at).into(), version), "Applied");
        } else {
            add(key("there", at), WriteOp::Check(C.into()), "Holds");
        }
        add(key("none", at), WriteOp::Check(r"[1]".into()), "Invalid");
    }
    let outcomes = fixture.write_many(&writes).await;
    let mut standing = Vec::new();
    for ((write, want), outcome) in writes.iter().zip(wanted).zip(&outcomes) {
        let name = match outcome {
            Outcome::Applied(_) => "Applied",
            Outcome::Holds => "Holds",
            Outcome::Conflict => "Conflict",
            Outcome::MissingCollection => "MissingCollection",
            Outcome::Invalid(_) => "Invalid",
            _ => "no answer",
        };
        let what = "outcomes come in the order of the writes";
        rule(what, name == want, &(write, want, outcome));
        if let (Outcome::Applied(version), WriteOp::Create(s) | WriteOp::Replace(s, _)) =
            (outcome, &write.op)
        {
            standing.push((write.key.clone(), *version, s.to_string()));
        }
    }
    for (key, version, source) in &standing {
        let what = "a version belongs to the write that it is the outcome of";
        fixture.stands(what, key, *version, source).await;
    }
    standing
}

/// Reads present, absent and doubled documents and a missing collection, mixed.
async fn mixed_reads(fixture: &Fixture<'_>, docs: &str, standing: &[(Key, Version, String)]) {
    let missing = Key::new(fixture.name("missing"), "1");
    let none = Key::new(docs, "none-0");
    let mut keys = Vec::new();
    for (key, ..) in standing.iter().chain(standing.iter().rev()) {
        keys.extend([key.clone(), none.clone(), missing.clone(), key.clone()]);
    }
    let in_order = |reads: &[Read]| {
        reads.len() == keys.len()
            && keys.iter().zip(reads).all(|(key, read)| {
                match standing.iter().find(|(standing, ..)| standing == key) {
                    Some((_, version, source)) => shows(read, *version, source),
                    None if *key == missing => *read == Read::MissingCollection,
                    None => *read == Read::Absent,
                }
            })
    };
    let reads = fixture.store.read_primary(&keys).await;
    rule("answers of read_primary come in the order of the keys", in_order(&reads), &reads);
    fixture.soon("answers of get_many come in the order of the keys", &keys, in_order).await;
}
