//! The bounds that the store declares.

use crate::conformance::fixture::{Fixture, invalid, rule, shows};
use crate::{Key, Outcome, Read, RefusalKind, Source, Version, Write, WriteOp};

const SOURCE: &str = r#"{"title":"bounded"}"#;

/// The largest ids and documents that the suite creates, in bytes. The suite only reads larger
/// bounds.
const MADE: (usize, usize) = (1 << 16, 64 << 20);

pub(in crate::conformance) async fn run(fixture: &mut Fixture<'_>) {
    let docs = fixture.data("docs").await.name;
    let limits = fixture.store.limits();
    rule("an id may have at least 64 bytes", limits.max_id_bytes >= 64, &limits);
    rule("a document may have at least 64 KiB", limits.max_document_bytes >= 1 << 16, &limits);
    if limits.max_id_bytes <= MADE.0 {
        names(fixture, &docs, limits.max_id_bytes).await;
    }
    size(fixture, &docs, limits.max_document_bytes).await;
}

/// Checks ids and routings up to the bound, and above it.
async fn names(fixture: &Fixture<'_>, docs: &str, max: usize) {
    let ascii = "x".repeat(max);
    let wide = format!("{}{}", "\u{e9}".repeat(max / 2), "x".repeat(max % 2));
    let routed = Key::new(docs, "routed").routed(ascii.as_str());
    for key in [Key::new(docs, ascii.as_str()), Key::new(docs, wide.as_str()), routed] {
        let what = "an id or routing of exactly the longest length works";
        let version = fixture.applied(what, &key, WriteOp::Create(SOURCE.into())).await;
        fixture.stands(what, &key, version, SOURCE).await;
        fixture.gives(what, &key, WriteOp::Verify(Some(version)), Outcome::Holds).await;
        fixture.applied(what, &key, WriteOp::Delete(version)).await;
    }

    let version = Version::new(1, 1);
    let bad = [
        Key::new(docs, format!("{ascii}x")),
        Key::new(docs, format!("{wide}x")),
        Key::new(docs, ""),
        Key::new(docs, "badly-routed").routed(format!("{ascii}x")),
        Key::new(docs, "badly-routed").routed(""),
    ];
    for (at, bad) in bad.iter().enumerate() {
        let ops = [
            WriteOp::Create(SOURCE.into()),
            WriteOp::Replace(SOURCE.into(), version),
            WriteOp::Delete(version),
            WriteOp::Check(SOURCE.into()),
            WriteOp::Verify(None),
            WriteOp::Verify(Some(version)),
        ];
        for (which, op) in ops.into_iter().enumerate() {
            let good = |side: &str| Key::new(docs, format!("{side}-{at}-{which}"));
            let create = |key: Key| Write::new(key, WriteOp::Create(SOURCE.into()));
            let outcomes = fixture
                .write_many(&[
                    create(good("left")),
                    Write::new(bad.clone(), op.clone()),
                    create(good("right")),
                ])
                .await;
            let (length, seen) = (bad.id.len(), (&op, &outcomes));
            let what = format!("an id of {length} bytes or a bad routing is Invalid (Id)");
            rule(&what, invalid(&outcomes[1], RefusalKind::Id), &seen);
            for (side, outcome) in [("left", &outcomes[0]), ("right", &outcomes[2])] {
                let what = "a bad id does not harm the rest of its batch";
                let Outcome::Applied(version) = outcome else { return rule(what, false, &seen) };
                fixture.stands(what, &good(side), *version, SOURCE).await;
            }
        }
        bad_read(fixture, bad, &Key::new(docs, format!("left-{at}-0"))).await;
    }
}

/// Checks that an impossible key does not harm the call.
///
/// The impossible key is not found, and the other keys are answered.
async fn bad_read(fixture: &Fixture<'_>, bad: &Key, good: &Key) {
    let keys = [good.clone(), bad.clone(), good.clone()];
    let Read::Found { version, source } = fixture.read(good).await else {
        return rule("a document is read back", false, good);
    };
    let fine = |reads: &[Read]| {
        reads.len() == 3
            && shows(&reads[0], version, &source)
            && matches!(reads[1], Read::Absent | Read::Unavailable(_))
            && shows(&reads[2], version, &source)
    };
    let what = "reading a bad id finds nothing and does not harm the rest of its batch";
    let reads = fixture.store.read_primary(&keys).await;
    rule(what, fine(&reads), &reads);
    fixture.soon(what, &keys, fine).await;
}

/// Checks that a document above the bound is refused, alone.
async fn size(fixture: &Fixture<'_>, docs: &str, max: usize) {
    let key = Key::new(docs, "large");
    let limits = fixture.store.limits();
    let kind = |len| limits.check(&key, len).map_err(|refusal| refusal.kind);
    rule("the limits allow the largest document", kind(max).is_ok(), &limits);
    let past = kind(max.saturating_add(1));
    rule("the limits refuse more", past == Err(RefusalKind::TooLarge) || max == usize::MAX, &past);
    if max > MADE.1 {
        return;
    }
    let frame = r#"{"payload":""}"#.len();
    let large: Source = format!(r#"{{"payload":"{}"}}"#, "x".repeat(max + 1 - frame)).into();
    let create = |id: &str, source: &Source| {
        Write::new(Key::new(docs, id), WriteOp::Create(source.clone()))
    };
    let small: Source = SOURCE.into();
    let writes = [create("before", &small), create("large", &large), create("after", &small)];
    let outcomes = fixture.write_many(&writes).await;
    let what = "a document of one byte too many is Invalid (TooLarge)";
    rule(what, invalid(&outcomes[1], RefusalKind::TooLarge), &outcomes);
    let both = [&outcomes[0], &outcomes[2]].iter().all(|o| matches!(o, Outcome::Applied(_)));
    rule("a document too large does not harm the rest of its batch", both, &outcomes);
    let check = fixture.write(&key, WriteOp::Check(large)).await;
    let what = "check of a document too large is Invalid (TooLarge)";
    rule(what, invalid(&check, RefusalKind::TooLarge), &check);
    fixture.absent("a document too large is not written", &key).await;
}
