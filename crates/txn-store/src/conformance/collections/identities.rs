//! The collection that a name means: the server answers, never a cache.

use crate::conformance::fixture::{Fixture, not_found, rule};
use crate::{CollectionIdentity, CollectionInfo, Key};

pub(in crate::conformance) async fn run(fixture: &mut Fixture<'_>) {
    let missing = fixture.name("missing");
    fixture.discard(&missing).await;
    let what = "identify of a missing collection fails";
    not_found(what, fixture.store.identify(&missing).await);
    fixture.no_collection("identify makes no collection", &missing).await;

    let first = fixture.data("docs").await;
    let (name, alias) = (fixture.name("docs"), fixture.name("alias"));
    let added = fixture.store.add_alias(&alias, &first.name).await;
    rule("add_alias of an existing collection succeeds", added.is_ok(), &added);
    for asked in [&name, &alias] {
        let what = "identify gives the name and the uid that opening gave";
        identifies(fixture, what, asked, &first).await;
    }
    let before = carries(fixture, &first).await;

    fixture.discard(&first.name).await;
    for asked in [&name, &alias] {
        let what = "identify of a dropped collection fails, even after an earlier answer";
        not_found(what, fixture.store.identify(asked).await);
    }
    let again = fixture.data("docs").await;
    rule("a collection made again has another uid", again.uid != first.uid, &(&first, &again));
    let what = "identify of a collection made again gives its new uid";
    identifies(fixture, what, &name, &again).await;
    let after = carries(fixture, &again).await;
    let what = "a collection made again has another incarnation, or none has any";
    rule(what, after != before || after == 0, &(before, after));
    let what = "identify of an alias of a dropped collection fails, though its name is used again";
    not_found(what, fixture.store.identify(&alias).await);
}

async fn identifies(fixture: &Fixture<'_>, what: &str, asked: &str, info: &CollectionInfo) {
    let identity = fixture.store.identify(asked).await;
    let is_it = |found: &CollectionIdentity| found.name == info.name && found.uid == info.uid;
    rule(what, identity.as_ref().is_ok_and(is_it), &(asked, &identity, info));
}

/// Returns the incarnation of a collection.
///
/// Checks that the versions of its documents carry the incarnation.
async fn carries(fixture: &Fixture<'_>, info: &CollectionInfo) -> u64 {
    let identity = fixture.store.identify(&info.name).await;
    let incarnation = identity.as_ref().map_or(0, |identity| identity.incarnation);
    let version = fixture.create(&Key::new(info.name.clone(), "1"), "{}").await;
    let what = "versions carry the incarnation that identify gives";
    rule(what, version.incarnation == incarnation, &(version, &identity));
    incarnation
}
