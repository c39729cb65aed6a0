//! Verify: answers for the current version, and moves nothing.

use crate::conformance::fixture::Fixture;
use crate::{Key, Outcome, Version, WriteOp};

const SOURCE: &str = r#"{"title":"verified"}"#;

pub(in crate::conformance) async fn run(fixture: &mut Fixture<'_>) {
    let docs = fixture.data("docs").await.name;
    let key = Key::new(docs.clone(), "1");
    let expect = async |what: &str, expected: Option<Version>, want: Outcome| {
        fixture.gives(what, &key, WriteOp::Verify(expected), want).await;
    };

    expect("verify None of an absent document holds", None, Outcome::Holds).await;
    fixture.absent("verify makes no document", &key).await;
    let other = fixture.create(&Key::new(docs, "2"), SOURCE).await;
    let what = "verify Some of an absent document is Conflict";
    expect(what, Some(other), Outcome::Conflict).await;

    let first = fixture.create(&key, SOURCE).await;
    for _ in 0..2 {
        expect("verify at the version holds", Some(first), Outcome::Holds).await;
    }
    expect("verify None of a present document is Conflict", None, Outcome::Conflict).await;
    fixture.stands("verify moves no version", &key, first, SOURCE).await;

    let what = "a version is still good after it was verified";
    let second = fixture.applied(what, &key, WriteOp::Replace(SOURCE.into(), first)).await;
    expect("verify at an older version is Conflict", Some(first), Outcome::Conflict).await;
    expect("verify at the version holds", Some(second), Outcome::Holds).await;

    let what = "delete at the version is applied";
    let deleted = fixture.applied(what, &key, WriteOp::Delete(second)).await;
    for version in [first, second, deleted] {
        let what = "verify Some of a deleted document is Conflict";
        expect(what, Some(version), Outcome::Conflict).await;
    }
    expect("verify None of a deleted document holds", None, Outcome::Holds).await;
    fixture.create(&key, SOURCE).await;
    let what = "verify at a version of before the deletion is Conflict";
    expect(what, Some(second), Outcome::Conflict).await;
}
