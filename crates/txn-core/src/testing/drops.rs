//! Missing and dropped collections: nothing is written, nothing comes back.

use super::ground::{Ground, not_found, rule};
use crate::store::{Key, Outcome, Version, Write, WriteOp};

const SOURCE: &str = r#"{"title":"gone"}"#;

pub(super) async fn run(ground: &mut Ground<'_>) {
    let missing = ground.name("missing");
    ground.discard(&missing).await;
    let some = Version { term: 1, seq_no: 1 };
    nothing_there(ground, "a collection that never was", &missing, some).await;
    let what = "block_writes of a missing collection fails";
    not_found(what, ground.store.block_writes(&missing, true).await);

    let dropped = ground.data("dropped").await.name;
    let alias = ground.name("alias");
    let aliased = ground.store.add_alias(&alias, &dropped).await;
    rule("add_alias of an existing collection succeeds", aliased.is_ok(), &aliased);
    let last = ground.create(&Key::new(dropped.clone(), "1"), SOURCE).await;
    ground.discard(&dropped).await;
    nothing_there(ground, "a dropped collection", &dropped, last).await;
    nothing_there(ground, "the alias of a dropped collection", &alias, last).await;
    ground.discard(&dropped).await;
    let what = "the alias of a dropped collection can not be added again";
    not_found(what, ground.store.add_alias(&alias, &dropped).await);

    let again = ground.data("dropped").await.name;
    let what = "a collection made again has no documents of before";
    ground.absent(what, &Key::new(again, "1")).await;
    let what = "a collection made again has no aliases of before";
    ground.no_collection(what, &alias).await;
}

/// No operation finds a collection, and none makes it.
async fn nothing_there(ground: &Ground<'_>, which: &str, name: &str, version: Version) {
    let what = format!("{which} is missing");
    ground.no_collection(&what, name).await;
    for op in [
        WriteOp::Create(SOURCE.into()),
        WriteOp::Replace(SOURCE.into(), version),
        WriteOp::Delete(version),
        WriteOp::Check(SOURCE.into()),
        WriteOp::Verify(None),
        WriteOp::Verify(Some(version)),
    ] {
        for require_alias in [false, true] {
            let key = Key::new(name, "1");
            let write = Write { key, require_alias, op: op.clone() };
            let outcomes = ground.write_many(&[write]).await;
            let what = format!("a write into {which} is MissingCollection");
            rule(&what, outcomes[0] == Outcome::MissingCollection, &(&op, outcomes));
        }
    }
    let what = format!("a write into {which} does not make it");
    ground.no_collection(&what, name).await;
}
