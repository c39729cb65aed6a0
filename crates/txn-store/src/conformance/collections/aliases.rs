//! Aliases, the result of opening a collection, and `require_alias`.

use crate::conformance::fixture::{Fixture, not_found, rule, shows};
use crate::{CollectionInfo, CollectionSpec, Key, Outcome, Read, Role, Write, WriteOp};

const A: &str = r#"{"title":"a"}"#;
const B: &str = r#"{"title":"b"}"#;

pub(in crate::conformance) async fn run(fixture: &mut Fixture<'_>) {
    opening(fixture).await;
    let info = fixture.data("docs").await;
    let docs = info.name.clone();
    let alias = fixture.name("alias");
    fixture.no_collection("an alias never added is missing", &alias).await;
    for _ in 0..2 {
        let added = fixture.store.add_alias(&alias, &docs).await;
        rule("add_alias succeeds, and once more", added.is_ok(), &added);
    }
    let missing = fixture.name("missing");
    fixture.discard(&missing).await;
    let other = fixture.name("other-alias");
    let what = "add_alias of a missing collection fails";
    not_found(what, fixture.store.add_alias(&other, &missing).await);
    fixture.no_collection("a failed add_alias adds nothing", &other).await;
    fixture.no_collection("a failed add_alias makes no collection", &missing).await;

    let opened = open(fixture, fixture.spec("alias", false)).await;
    let what = "opening an alias gives the physical name and the uid of its collection";
    rule(what, (&opened.name, &opened.uid) == (&info.name, &info.uid), &opened);

    // One document by two names.
    let (by_alias, by_name) = (Key::new(alias, "1"), Key::new(docs, "1"));
    let version = fixture.create(&by_alias, A).await;
    for key in [&by_alias, &by_name] {
        fixture.stands("a document written by the alias is read by both", key, version, A).await;
    }
    let what = "replace by the name is applied";
    let version = fixture.applied(what, &by_name, WriteOp::Replace(B.into(), version)).await;
    let both = [by_alias.clone(), by_name.clone()];
    let reads = fixture.store.read_primary(&both).await;
    let shown = reads.len() == 2 && reads.iter().all(|read| shows(read, version, B));
    rule("a document written by the name is read by both, in one call", shown, &reads);
    let what = "verify by the alias holds";
    fixture.gives(what, &by_alias, WriteOp::Verify(Some(version)), Outcome::Holds).await;

    require_alias(fixture, &by_alias, &by_name).await;
}

async fn require_alias(fixture: &Fixture<'_>, by_alias: &Key, by_name: &Key) {
    let Read::Found { version, source } = fixture.read(by_name).await else {
        return rule("a document stays in its collection", false, &by_name);
    };
    let required = |key: Key, op: WriteOp| [Write { key, require_alias: true, op }];
    let beside = Key::new(by_name.collection.clone(), "beside");
    for (key, op) in [
        (&beside, WriteOp::Create(A.into())),
        (by_name, WriteOp::Replace(A.into(), version)),
        (by_name, WriteOp::Delete(version)),
    ] {
        let outcomes = fixture.write_many(&required(key.clone(), op.clone())).await;
        let what = "with require_alias a write by the physical name is MissingCollection";
        rule(what, outcomes[0] == Outcome::MissingCollection, &(op, outcomes));
    }
    fixture.absent("with require_alias a write by the physical name makes nothing", &beside).await;
    let what = "with require_alias a write by the physical name changes nothing";
    fixture.stands(what, by_name, version, &source).await;

    let what = "with require_alias a write by the alias is applied";
    let op = WriteOp::Replace(A.into(), version);
    let outcomes = fixture.write_many(&required(by_alias.clone(), op)).await;
    let Outcome::Applied(version) = outcomes[0] else { return rule(what, false, &outcomes) };
    fixture.stands(what, by_name, version, A).await;
    let outcomes = fixture.write_many(&required(by_alias.clone(), WriteOp::Delete(version))).await;
    rule(what, matches!(outcomes[0], Outcome::Applied(_)), &outcomes);
    let create = WriteOp::Create(B.into());
    let outcomes = fixture.write_many(&required(by_alias.clone(), create)).await;
    rule(what, matches!(outcomes[0], Outcome::Applied(_)), &outcomes);
}

/// Checks that opening is idempotent, and shows owner and identity.
async fn opening(fixture: &mut Fixture<'_>) {
    let name = fixture.name("opened");
    fixture.discard(&name).await;
    let found = fixture.store.open_collection(&fixture.spec("opened", false)).await;
    not_found("opening a missing collection without create fails", found);
    fixture.no_collection("opening a missing collection without create makes nothing", &name).await;

    let info = fixture.data("opened").await;
    let key = Key::new(info.name.clone(), "1");
    let version = fixture.create(&key, A).await;
    let owner = Some("another".to_owned());
    let role = Role::Data { owner: owner.clone() };
    let owned = CollectionSpec { name, role, create: true, mappings: None };
    for (spec, expected) in [
        (fixture.spec("opened", true), None),
        (owned.clone(), owner.clone()),
        (owned, owner.clone()),
        (fixture.spec("opened", false), owner),
    ] {
        let again = open(fixture, spec).await;
        let what = "a collection opened again keeps its name and its uid";
        rule(what, (&again.name, &again.uid) == (&info.name, &info.uid), &(&info, &again));
        let what = "opening sets the owner where the spec names one, and shows it";
        rule(what, again.owner == expected, &(again.owner, expected));
        fixture.stands("opening leaves the documents alone", &key, version, A).await;
    }
}

async fn open(fixture: &Fixture<'_>, spec: CollectionSpec) -> CollectionInfo {
    let info = fixture.store.open_collection(&spec).await;
    rule("opening an existing collection succeeds", info.is_ok(), &info);
    info.expect("checked above")
}
