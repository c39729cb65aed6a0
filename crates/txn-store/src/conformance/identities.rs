//! Which collection a name stands for: asked of the server, never answered from memory.

use super::fixture::{Fixture, not_found, rule};
use crate::{CollectionIdentity, CollectionInfo};

pub(super) async fn run(fixture: &mut Fixture<'_>) {
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

    fixture.discard(&first.name).await;
    for asked in [&name, &alias] {
        let what = "identify of a dropped collection fails, whatever was answered before";
        not_found(what, fixture.store.identify(asked).await);
    }
    let again = fixture.data("docs").await;
    rule("a collection made again has another uid", again.uid != first.uid, &(&first, &again));
    let what = "identify of a collection made again gives its new uid";
    identifies(fixture, what, &name, &again).await;
    let what = "identify of an alias of a dropped collection fails, though its name is used again";
    not_found(what, fixture.store.identify(&alias).await);
}

async fn identifies(fixture: &Fixture<'_>, what: &str, asked: &str, info: &CollectionInfo) {
    let expected = CollectionIdentity { name: info.name.clone(), uid: info.uid.clone() };
    let identity = fixture.store.identify(asked).await;
    rule(what, identity.as_ref() == Ok(&expected), &(asked, &identity, &expected));
}
