//! Versions that never return.

use std::collections::BTreeSet;

use crate::conformance::fixture::{Fixture, rule};
use crate::{Key, Outcome, Version, WriteOp};

const SOURCE: &str = r#"{"title":"always the same"}"#;

pub(in crate::conformance) async fn run(fixture: &mut Fixture<'_>) {
    let before = fixture.data("docs").await;
    let key = Key::new(before.name.clone(), "1");
    let mut seen = BTreeSet::new();
    for _ in 0..4 {
        let created = fixture.create(&key, SOURCE).await;
        fresh(&mut seen, created);
        refused(fixture, &key, &seen, created).await;
        let what = "replace at the version is applied";
        let replaced = fixture.applied(what, &key, WriteOp::Replace(SOURCE.into(), created)).await;
        fresh(&mut seen, replaced);
        refused(fixture, &key, &seen, replaced).await;
        let what = "delete at the version is applied";
        fresh(&mut seen, fixture.applied(what, &key, WriteOp::Delete(replaced)).await);
    }

    fixture.create(&key, SOURCE).await;
    let name = fixture.name("docs");
    fixture.discard(&name).await;
    let after = fixture.data("docs").await;
    let what = "a collection dropped and made again has another uid";
    rule(what, after.uid != before.uid, &(&before, &after));
    let key = Key::new(after.name, "1");
    fixture.absent("a collection made again is empty", &key).await;
    let created = fixture.create(&key, SOURCE).await;
    if fixture.options.versions_survive_drop {
        fresh(&mut seen, created);
        refused(fixture, &key, &seen, created).await;
    }
}

/// Checks that no version returns.
fn fresh(seen: &mut BTreeSet<Version>, version: Version) {
    rule("a version of a document is never given again", seen.insert(version), &version);
}

/// Checks that only the last version is accepted.
async fn refused(fixture: &Fixture<'_>, key: &Key, seen: &BTreeSet<Version>, last: Version) {
    for version in seen.iter().copied().filter(|version| *version != last) {
        for op in [
            WriteOp::Replace(SOURCE.into(), version),
            WriteOp::Delete(version),
            WriteOp::Verify(Some(version)),
        ] {
            let what = "a version of before is never accepted again";
            fixture.gives(what, key, op, Outcome::Conflict).await;
        }
    }
    fixture.stands("a refused write changes nothing", key, last, SOURCE).await;
}
