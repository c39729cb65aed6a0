//! Create, replace and delete: when they apply, and their outcome otherwise.

use crate::conformance::fixture::{Fixture, rule};
use crate::{Key, Outcome, Version, WriteOp};

const A: &str = r#"{"title":"a","number":1}"#;
const B: &str = r#"{"title":"b","number":2}"#;

pub(in crate::conformance) async fn run(fixture: &mut Fixture<'_>) {
    let docs = fixture.data("docs").await.name;
    let key = Key::new(docs.clone(), "1");
    fixture.absent("a document never written is absent", &key).await;

    let first = fixture.create(&key, A).await;
    fixture.stands("a created document is read back, at its version", &key, first, A).await;
    let what = "create of an existing document is Conflict";
    fixture.gives(what, &key, WriteOp::Create(B.into()), Outcome::Conflict).await;
    fixture.stands("a failed create leaves the document alone", &key, first, A).await;

    let what = "replace at the version is applied";
    let second = fixture.applied(what, &key, WriteOp::Replace(B.into(), first)).await;
    rule("replace gives a new version", second != first, &(first, second));
    fixture.stands("a replaced document is read back, at its version", &key, second, B).await;
    let what = "replace at an older version is Conflict";
    fixture.gives(what, &key, WriteOp::Replace(A.into(), first), Outcome::Conflict).await;
    for (what, version) in never(second) {
        let what = format!("replace at {what} is Conflict");
        fixture.gives(&what, &key, WriteOp::Replace(A.into(), version), Outcome::Conflict).await;
    }
    fixture.stands("a failed replace leaves the document alone", &key, second, B).await;

    let what = "replace by the same source gives a new version";
    let third = fixture.applied(what, &key, WriteOp::Replace(B.into(), second)).await;
    rule(what, third != second, &(second, third));

    let what = "delete at an older version is Conflict";
    fixture.gives(what, &key, WriteOp::Delete(second), Outcome::Conflict).await;
    for (what, version) in never(third) {
        let what = format!("delete at {what} is Conflict");
        fixture.gives(&what, &key, WriteOp::Delete(version), Outcome::Conflict).await;
    }
    fixture.stands("a failed delete leaves the document alone", &key, third, B).await;

    let deleted =
        fixture.applied("delete at the version is applied", &key, WriteOp::Delete(third)).await;
    rule("delete gives a new version", deleted != third, &(third, deleted));
    fixture.absent("a deleted document is absent", &key).await;

    let never_there = Key::new(docs, "never-there");
    for (which, key, version) in [
        ("missing document, at its last version,", &key, third),
        ("missing document, at the version of its deletion,", &key, deleted),
        ("document that never was", &never_there, third),
    ] {
        let what = format!("replace of a {which} is Conflict");
        fixture.gives(&what, key, WriteOp::Replace(A.into(), version), Outcome::Conflict).await;
        let what = format!("delete of a {which} is Conflict");
        fixture.gives(&what, key, WriteOp::Delete(version), Outcome::Conflict).await;
        fixture.absent("a failed write of a missing document makes nothing", key).await;
    }

    let what = "create of a deleted document is applied";
    let again = fixture.applied(what, &key, WriteOp::Create(A.into())).await;
    rule("a version does not return", ![first, second, third, deleted].contains(&again), &again);
    fixture.stands("a document created again is read back", &key, again, A).await;
}

/// Returns versions that the document never had.
fn never(version: Version) -> [(&'static str, Version); 3] {
    [
        ("a version yet to come", Version { seq_no: version.seq_no + 1_000_000, ..version }),
        ("the seq_no of another term", Version { term: version.term + 1, ..version }),
        ("a version of another incarnation", Version { incarnation: version.incarnation ^ 1, ..version }),
    ]
}
