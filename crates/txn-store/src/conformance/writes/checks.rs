//! The dry run: accepts and refuses without a write.

use crate::conformance::fixture::{Fixture, invalid, rule};
use crate::{Key, Outcome, RefusalKind, Write, WriteOp};

const STANDING: &str = r#"{"title":"standing","number":1}"#;
const OTHER: &str = r#"{"title":"other","number":2}"#;

/// Texts that are not a JSON object.
const NO_OBJECTS: [&str; 9] =
    ["", "null", "7", "[1]", r#""text""#, r#"{"a":"#, r#"{"a":1}}"#, r#"{"a":1}{"b":2}"#, "{a:1}"];

pub(in crate::conformance) async fn run(fixture: &mut Fixture<'_>) {
    let docs = fixture.data("docs").await.name;
    let (present, absent) = (Key::new(docs.clone(), "present"), Key::new(docs.clone(), "absent"));
    let version = fixture.create(&present, STANDING).await;

    for source in [STANDING, OTHER, "{}"] {
        for key in [&present, &absent] {
            let what = "check of a fitting source holds, be the document present or absent";
            fixture.gives(what, key, WriteOp::Check(source.into()), Outcome::Holds).await;
        }
        fixture.absent("check writes no document", &absent).await;
        fixture.stands("check moves no version", &present, version, STANDING).await;
    }

    for (at, source) in NO_OBJECTS.into_iter().enumerate() {
        let beside = Key::new(docs.clone(), format!("beside-{at}"));
        let outcomes = fixture
            .write_many(&[
                Write::new(absent.clone(), WriteOp::Check(source.into())),
                Write::new(present.clone(), WriteOp::Check(source.into())),
                Write::new(absent.clone(), WriteOp::Create(source.into())),
                Write::new(present.clone(), WriteOp::Replace(source.into(), version)),
                Write::new(beside.clone(), WriteOp::Create(OTHER.into())),
            ])
            .await;
        let what = "a source that is no JSON object is Invalid (Document), for check and write";
        let all = outcomes[..4].iter().all(|outcome| invalid(outcome, RefusalKind::Document));
        rule(what, all, &(source, &outcomes[..4]));
        let Outcome::Applied(written) = outcomes[4] else {
            return rule("an invalid write does not harm the rest of its batch", false, &outcomes);
        };
        fixture.stands("the rest of a batch is written", &beside, written, OTHER).await;
    }
    fixture.absent("a refused write writes no document", &absent).await;
    fixture.stands("a refused write moves no version", &present, version, STANDING).await;

    let what = "a version is still good after checks";
    fixture.applied(what, &present, WriteOp::Replace(OTHER.into(), version)).await;
    fixture.create(&absent, OTHER).await;
}
