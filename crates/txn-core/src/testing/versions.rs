//! Versions that never return.

use std::collections::BTreeSet;

use super::ground::{Ground, rule};
use crate::store::{Key, Outcome, Version, WriteOp};

const SOURCE: &str = r#"{"title":"always the same"}"#;

pub(super) async fn run(ground: &mut Ground<'_>) {
    let before = ground.data("docs").await;
    let key = Key::new(before.name.clone(), "1");
    let mut seen = BTreeSet::new();
    for _ in 0..4 {
        let created = ground.create(&key, SOURCE).await;
        fresh(&mut seen, created);
        refused(ground, &key, &seen, created).await;
        let what = "replace at the version is applied";
        let replaced = ground.applied(what, &key, WriteOp::Replace(SOURCE.into(), created)).await;
        fresh(&mut seen, replaced);
        refused(ground, &key, &seen, replaced).await;
        let what = "delete at the version is applied";
        fresh(&mut seen, ground.applied(what, &key, WriteOp::Delete(replaced)).await);
    }

    ground.create(&key, SOURCE).await;
    let name = ground.name("docs");
    ground.discard(&name).await;
    let after = ground.data("docs").await;
    let what = "a collection dropped and made again has another uid";
    rule(what, after.uid != before.uid, &(&before, &after));
    let key = Key::new(after.name, "1");
    ground.absent("a collection made again is empty", &key).await;
    let created = ground.create(&key, SOURCE).await;
    if ground.options.versions_survive_drop {
        fresh(&mut seen, created);
        refused(ground, &key, &seen, created).await;
    }
}

/// No version is given twice.
fn fresh(seen: &mut BTreeSet<Version>, version: Version) {
    rule("a version of a document is never given again", seen.insert(version), &version);
}

/// No version but the last is accepted.
async fn refused(ground: &Ground<'_>, key: &Key, seen: &BTreeSet<Version>, last: Version) {
    for version in seen.iter().copied().filter(|version| *version != last) {
        for op in [
            WriteOp::Replace(SOURCE.into(), version),
            WriteOp::Delete(version),
            WriteOp::Verify(Some(version)),
        ] {
            let what = "a version of before is never accepted again";
            ground.gives(what, key, op, Outcome::Conflict).await;
        }
    }
    ground.stands("a refused write changes nothing", key, last, SOURCE).await;
}
