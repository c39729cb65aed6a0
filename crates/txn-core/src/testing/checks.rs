//! The dry run: accepts and refuses without writing.

use super::ground::{Ground, invalid, rule};
use crate::store::{Key, Outcome, RefusalKind, Write, WriteOp};

const STANDING: &str = r#"{"title":"standing","number":1}"#;
const OTHER: &str = r#"{"title":"other","number":2}"#;

/// Texts that are no JSON object.
const NO_OBJECTS: [&str; 9] =
    ["", "null", "7", "[1]", r#""text""#, r#"{"a":"#, r#"{"a":1}}"#, r#"{"a":1}{"b":2}"#, "{a:1}"];

pub(super) async fn run(ground: &mut Ground<'_>) {
    let docs = ground.data("docs").await.name;
    let (present, absent) = (Key::new(docs.clone(), "present"), Key::new(docs.clone(), "absent"));
    let version = ground.create(&present, STANDING).await;

    for source in [STANDING, OTHER, "{}"] {
        for key in [&present, &absent] {
            let what = "check of a fitting source holds, be the document present or absent";
            ground.gives(what, key, WriteOp::Check(source.into()), Outcome::Holds).await;
        }
        ground.absent("check writes no document", &absent).await;
        ground.stands("check moves no version", &present, version, STANDING).await;
    }

    for (at, source) in NO_OBJECTS.into_iter().enumerate() {
        let beside = Key::new(docs.clone(), format!("beside-{at}"));
        let outcomes = ground
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
        ground.stands("the rest of a batch is written", &beside, written, OTHER).await;
    }
    ground.absent("a refused write writes no document", &absent).await;
    ground.stands("a refused write moves no version", &present, version, STANDING).await;

    let what = "a version is still good after checks";
    ground.applied(what, &present, WriteOp::Replace(OTHER.into(), version)).await;
    ground.create(&absent, OTHER).await;
}
