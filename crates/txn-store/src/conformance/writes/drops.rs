//! Missing and dropped collections: no write succeeds, and no collection returns.

use crate::conformance::fixture::{Fixture, not_found, rule};
use crate::{Key, Outcome, Version, Write, WriteOp};

const SOURCE: &str = r#"{"title":"gone"}"#;

pub(in crate::conformance) async fn run(fixture: &mut Fixture<'_>) {
    let missing = fixture.name("missing");
    fixture.discard(&missing).await;
    let some = Version::new(1, 1);
    nothing_there(fixture, "a collection that never was", &missing, some).await;
    let what = "block_writes of a missing collection fails";
    not_found(what, fixture.store.block_writes(&missing, true).await);

    let dropped = fixture.data("dropped").await.name;
    let alias = fixture.name("alias");
    let aliased = fixture.store.add_alias(&alias, &dropped).await;
    rule("add_alias of an existing collection succeeds", aliased.is_ok(), &aliased);
    let last = fixture.create(&Key::new(dropped.clone(), "1"), SOURCE).await;
    fixture.discard(&dropped).await;
    nothing_there(fixture, "a dropped collection", &dropped, last).await;
    nothing_there(fixture, "the alias of a dropped collection", &alias, last).await;
    fixture.discard(&dropped).await;
    let what = "the alias of a dropped collection cannot be added again";
    not_found(what, fixture.store.add_alias(&alias, &dropped).await);

    let again = fixture.data("dropped").await.name;
    let what = "a collection made again has no earlier documents";
    fixture.absent(what, &Key::new(again, "1")).await;
    let what = "a collection made again has no earlier aliases";
    fixture.no_collection(what, &alias).await;
}

/// Checks that no operation finds or creates a collection.
async fn nothing_there(fixture: &Fixture<'_>, which: &str, name: &str, version: Version) {
    let what = format!("{which} is missing");
    fixture.no_collection(&what, name).await;
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
            let outcomes = fixture.write_many(&[write]).await;
            let what = format!("a write into {which} is MissingCollection");
            rule(&what, outcomes[0] == Outcome::MissingCollection, &(&op, outcomes));
        }
    }
    let what = format!("a write into {which} does not make it");
    fixture.no_collection(&what, name).await;
}
