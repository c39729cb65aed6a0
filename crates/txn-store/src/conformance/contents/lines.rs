//! Sources with raw line breaks are never executed.
//!
//! In a line protocol a raw line break inside a source begins another action. The engine never
//! sends such a source. A store still has to refuse it, or to write the source as one document.

use crate::conformance::fixture::{Fixture, invalid, rule, shows};
use crate::{Filter, Key, Outcome, RefusalKind, Source, Write, WriteOp};

const SOURCE: &str = r#"{"title":"standing"}"#;

pub(in crate::conformance) async fn run(fixture: &mut Fixture<'_>) {
    let docs = fixture.data("docs").await.name;
    let victim = Key::new(docs.clone(), "victim");
    let version = fixture.create(&victim, SOURCE).await;
    let mut standing = vec![victim.clone()];

    let delete = format!(r#"{{"delete":{{"_index":"{docs}","_id":"victim"}}}}"#);
    let create = format!(r#"{{"create":{{"_index":"{docs}","_id":"smuggled"}}}}"#);
    for (at, lf) in ["\n", "\r\n", "\r"].into_iter().enumerate() {
        let sources = [
            format!(r#"{{"title":{lf}"one"}}"#),
            format!(r#"{{"title":"one"}}{lf}"#),
            format!("{SOURCE}{lf}{delete}"),
            format!("{SOURCE}{lf}{delete}{lf}{create}{lf}{SOURCE}"),
            format!(r#"{{"nested":{lf}{delete}{lf}}}"#),
            format!(r#"{{"nested":[1,{lf}{delete}{lf}]}}"#),
        ];
        for (which, source) in sources.into_iter().enumerate() {
            let source: Source = source.into();
            let id = |kind: &str| Key::new(docs.clone(), format!("{kind}-{at}-{which}"));
            let [before, broken, after] = ["before", "broken", "after"].map(id);
            let outcomes = fixture
                .write_many(&[
                    Write::new(before.clone(), WriteOp::Create(SOURCE.into())),
                    Write::new(broken.clone(), WriteOp::Check(source.clone())),
                    Write::new(broken.clone(), WriteOp::Create(source.clone())),
                    Write::new(after.clone(), WriteOp::Create(SOURCE.into())),
                ])
                .await;
            let seen = (&source, &outcomes);
            let around = matches!(
                (&outcomes[0], &outcomes[3]),
                (Outcome::Applied(_), Outcome::Applied(_))
            );
            rule("a raw line break does not harm the rest of its batch", around, &seen);
            let what = "a source with a raw line break is refused (Document), or one document";
            match &outcomes[2] {
                Outcome::Applied(version) => {
                    let read = fixture.read(&broken).await;
                    rule(what, shows(&read, *version, &source), &(seen, read));
                    standing.push(broken);
                }
                refused => {
                    rule(what, invalid(refused, RefusalKind::Document), &seen);
                    rule(what, invalid(&outcomes[1], RefusalKind::Document), &seen);
                    fixture.absent(what, &broken).await;
                }
            }
            let what = "nothing inside a source is executed";
            fixture.stands(what, &victim, version, SOURCE).await;
            fixture.absent(what, &Key::new(docs.clone(), "smuggled")).await;
            standing.extend([before, after]);
        }
    }
    let mut found: Vec<Key> =
        fixture.scan(&docs, &Filter::All, 100).await.into_iter().map(|(key, ..)| key).collect();
    found.sort();
    standing.sort();
    rule("nothing inside a source is executed", found == standing, &found);
}
