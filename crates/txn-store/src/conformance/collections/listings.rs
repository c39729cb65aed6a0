//! Lists of collections, released collections, and the server's clock.

use std::time::Duration;

use crate::conformance::fixture::{Fixture, not_found, rule};
use crate::{CollectionSpec, Key, Role};

const SOURCE: &str = r#"{"title":"kept"}"#;

pub(in crate::conformance) async fn run(fixture: &mut Fixture<'_>) {
    lists(fixture).await;
    releases(fixture).await;
    let told = fixture.store.server_time().await;
    // A time in seconds, or a time since the start of the machine, is far below this bound.
    let fits = |time: Duration| time > Duration::from_secs(1_500_000_000);
    let sound = matches!(&told, Ok(time) if time.is_none_or(fits));
    rule("server_time is the time since the Unix epoch", sound, &told);
}

async fn lists(fixture: &mut Fixture<'_>) {
    let prefix = fixture.name("list");
    let list = async |fixture: &Fixture<'_>| {
        let mut names = fixture.store.list_collections(&prefix).await;
        if let Ok(names) = &mut names {
            names.sort();
        }
        names
    };
    for of in ["list-a", "list-b"] {
        let name = fixture.name(of);
        fixture.discard(&name).await;
    }
    let none = list(fixture).await;
    rule("list_collections of nothing is empty", none == Ok(Vec::new()), &none);
    let [a, b] = [fixture.data("list-a").await.name, fixture.data("list-b").await.name];
    fixture.data("other").await;
    let aliased = fixture.store.add_alias(&format!("{prefix}-alias"), &a).await;
    rule("add_alias of an existing collection succeeds", aliased.is_ok(), &aliased);
    let both = list(fixture).await;
    let what = "list_collections names every collection with the prefix, no other, and no alias";
    rule(what, both == Ok(vec![a.clone(), b.clone()]), &both);
    fixture.discard(&a).await;
    let one = list(fixture).await;
    rule("list_collections does not name what was dropped", one == Ok(vec![b]), &one);
}

async fn releases(fixture: &mut Fixture<'_>) {
    let missing = fixture.name("missing");
    fixture.discard(&missing).await;
    let what = "release_collection of a missing collection fails";
    not_found(what, fixture.store.release_collection(&missing).await);
    let info = fixture.data("released").await;
    let key = Key::new(info.name.clone(), "1");
    let version = fixture.create(&key, SOURCE).await;
    let role = Role::Data { owner: Some("another".to_owned()) };
    let name = fixture.name("released");
    let owned = CollectionSpec { name, role, create: false, mappings: None };
    for spec in [owned.clone(), owned] {
        let opened = fixture.store.open_collection(&spec).await;
        rule("opening an existing collection succeeds", opened.is_ok(), &opened);
        for _ in 0..2 {
            let released = fixture.store.release_collection(&info.name).await;
            rule("release_collection succeeds, and once more", released.is_ok(), &released);
        }
        let look = fixture.store.open_collection(&fixture.spec("released", false)).await;
        let free = matches!(&look, Ok(look) if look.owner.is_none() && look.uid == info.uid);
        rule("a released collection has no owner, and is the same", free, &look);
        fixture.stands("a released collection keeps its documents", &key, version, SOURCE).await;
    }
}
