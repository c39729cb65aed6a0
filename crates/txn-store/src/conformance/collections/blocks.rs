//! The write block.

use crate::conformance::fixture::{Fixture, invalid, rule, shows};
use crate::{Filter, Key, Outcome, Read, RefusalKind, WriteOp};

const A: &str = r#"{"title":"a"}"#;
const B: &str = r#"{"title":"b"}"#;

pub(in crate::conformance) async fn run(fixture: &mut Fixture<'_>) {
    let docs = fixture.data("docs").await.name;
    let free = Key::new(fixture.data("free").await.name, "1");
    let (key, new) = (Key::new(docs.clone(), "1"), Key::new(docs.clone(), "2"));
    let version = fixture.create(&key, A).await;

    for _ in 0..2 {
        block(fixture, &docs, true).await;
        for (key, op) in [
            (&new, WriteOp::Create(B.into())),
            (&key, WriteOp::Replace(B.into(), version)),
            (&key, WriteOp::Delete(version)),
        ] {
            let outcome = fixture.write(key, op.clone()).await;
            let what = "a write into a blocked collection is Rejected";
            rule(what, matches!(outcome, Outcome::Rejected(_) | Outcome::RejectedInDoubt(_)), &(op, outcome));
        }
        for op in [WriteOp::Check(B.into()), WriteOp::Verify(Some(version))] {
            let outcome = fixture.write(&key, op.clone()).await;
            let what = "check and verify in a blocked collection hold or are refused";
            let told = matches!(op, WriteOp::Check(_)) && invalid(&outcome, RefusalKind::Blocked);
            let fine = told
                || matches!(outcome, Outcome::Holds | Outcome::Rejected(_) | Outcome::RejectedInDoubt(_));
            rule(what, fine, &(op, outcome));
        }
        let what = "get_many continues in a blocked collection";
        let keys = [key.clone(), new.clone()];
        let unchanged =
            |reads: &[Read]| shows(&reads[0], version, A) && reads[1] == Read::Absent;
        fixture.soon(what, &keys, unchanged).await;
        let read = fixture.read(&key).await;
        let what = "read_primary in a blocked collection shows the document, or Unavailable";
        let fine = shows(&read, version, A) || matches!(read, Read::Unavailable(_));
        rule(what, fine, &read);
        let found = fixture.scan(&docs, &Filter::All, 10).await;
        let what = "scans continue in a blocked collection, and nothing was written";
        let same = found.len() == 1 && found[0].0 == key && found[0].1 == version;
        rule(what, same, &found);
    }
    fixture.create(&free, B).await;

    for _ in 0..2 {
        block(fixture, &docs, false).await;
    }
    fixture.stands("what was refused by a block is not written later", &key, version, A).await;
    fixture.absent("what was refused by a block is not written later", &new).await;
    let what = "once the block is lifted writes are applied";
    fixture.applied(what, &key, WriteOp::Replace(B.into(), version)).await;
    fixture.applied(what, &new, WriteOp::Create(B.into())).await;

    // A blocked collection can be dropped.
    block(fixture, &docs, true).await;
    fixture.discard(&docs).await;
    fixture.no_collection("a blocked collection can be dropped", &docs).await;
}

async fn block(fixture: &Fixture<'_>, collection: &str, blocked: bool) {
    let done = fixture.store.block_writes(collection, blocked).await;
    rule("block_writes succeeds, and once more", done.is_ok(), &(blocked, done));
}
