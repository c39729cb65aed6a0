//! Lists of collections, collections that are released, and the server's clock.

use std::time::Duration;

use super::ground::{Ground, not_found, rule};
use crate::store::{CollectionSpec, Key, Role};

const SOURCE: &str = r#"{"title":"kept"}"#;

pub(super) async fn run(ground: &mut Ground<'_>) {
    lists(ground).await;
    releases(ground).await;
    let told = ground.store.server_time().await;
    // Whoever answers in seconds or from the start of the machine is far below.
    let fits = |time: Duration| time > Duration::from_secs(1_500_000_000);
    let sound = matches!(&told, Ok(time) if time.is_none_or(fits));
    rule("server_time is the time since the Unix epoch", sound, &told);
}

async fn lists(ground: &mut Ground<'_>) {
    let prefix = ground.name("list");
    let list = async |ground: &Ground<'_>| {
        let mut names = ground.store.list_collections(&prefix).await;
        if let Ok(names) = &mut names {
            names.sort();
        }
        names
    };
    for of in ["list-a", "list-b"] {
        let name = ground.name(of);
        ground.discard(&name).await;
    }
    let none = list(ground).await;
    rule("list_collections of nothing is empty", none == Ok(Vec::new()), &none);
    let [a, b] = [ground.data("list-a").await.name, ground.data("list-b").await.name];
    ground.data("other").await;
    let aliased = ground.store.add_alias(&format!("{prefix}-alias"), &a).await;
    rule("add_alias of an existing collection succeeds", aliased.is_ok(), &aliased);
    let both = list(ground).await;
    let what = "list_collections names every collection with the prefix, no other, and no alias";
    rule(what, both == Ok(vec![a.clone(), b.clone()]), &both);
    ground.discard(&a).await;
    let one = list(ground).await;
    rule("list_collections does not name what was dropped", one == Ok(vec![b]), &one);
}

async fn releases(ground: &mut Ground<'_>) {
    let missing = ground.name("missing");
    ground.discard(&missing).await;
    let what = "release_collection of a missing collection fails";
    not_found(what, ground.store.release_collection(&missing).await);
    let info = ground.data("released").await;
    let key = Key::new(info.name.clone(), "1");
    let version = ground.create(&key, SOURCE).await;
    let role = Role::Data { owner: Some("somebody".to_owned()) };
    let name = ground.name("released");
    let owned = CollectionSpec { name, role, create: false, mappings: None };
    for spec in [owned.clone(), owned] {
        let opened = ground.store.open_collection(&spec).await;
        rule("opening an existing collection succeeds", opened.is_ok(), &opened);
        for _ in 0..2 {
            let released = ground.store.release_collection(&info.name).await;
            rule("release_collection succeeds, and once more", released.is_ok(), &released);
        }
        let look = ground.store.open_collection(&ground.spec("released", false)).await;
        let free = matches!(&look, Ok(look) if look.owner.is_none() && look.uid == info.uid);
        rule("a released collection has no owner, and is the same", free, &look);
        ground.stands("a released collection keeps its documents", &key, version, SOURCE).await;
    }
}
