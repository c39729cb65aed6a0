//! Errors of opening, and the answers of a closed store.

use std::sync::Arc;
use std::time::Duration;

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use txn_redb::{OpenErrorKind, RedbConfig, RedbStore};
use txn_store::{Filter, Key, Outcome, Read, RefusalKind, Store, StoreErrorKind, Write, WriteOp};

use crate::{Place, create, make, one};

const DOCUMENTS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("txn_documents");
const META: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("txn_meta");

#[tokio::test]
async fn second_open_reports_the_file_in_use() {
    let place = Place::new();
    let first = place.open();
    let error = RedbStore::open(&place.path).unwrap_err();
    assert_eq!(error.kind(), OpenErrorKind::InUse);
    assert!(error.to_string().contains("open already"), "{error}");
    assert!(error.to_string().contains("store.redb"), "{error}");
    let clone = first.clone();
    drop(first);
    assert_eq!(RedbStore::open(&place.path).unwrap_err().kind(), OpenErrorKind::InUse);
    drop(clone);
    let shared: Arc<dyn Store> = Arc::new(place.open());
    drop(shared);
    place.open();
}

#[test]
fn faults_of_opening_have_different_kinds() {
    let place = Place::new();
    let kind = |path: &std::path::Path| {
        let error = RedbStore::open(path).unwrap_err();
        assert!(error.to_string().contains(&*path.to_string_lossy()), "{error}");
        error.kind()
    };
    let missing = place.path.with_file_name("missing").join("store.redb");
    assert_eq!(kind(&missing), OpenErrorKind::MissingDirectory);
    let directory = place.path.parent().unwrap();
    assert_eq!(kind(directory), OpenErrorKind::NotAStore);
    let text = place.path.with_file_name("text");
    for content in ["short", "a longer text, which is no database either ".repeat(200).as_str()] {
        std::fs::write(&text, content).unwrap();
        assert_eq!(kind(&text), OpenErrorKind::NotAStore);
    }
    assert_eq!(kind(&text.join("store.redb")), OpenErrorKind::MissingDirectory);
    let other = place.path.with_file_name("other");
    let database = Database::create(&other).unwrap();
    let writer = database.begin_write().unwrap();
    writer.open_table(TableDefinition::<&str, u64>::new("theirs")).unwrap();
    writer.commit().unwrap();
    drop(database);
    assert_eq!(kind(&other), OpenErrorKind::NotAStore);
    // An empty file is a new store.
    let empty = place.path.with_file_name("empty");
    std::fs::write(&empty, "").unwrap();
    RedbStore::open(&empty).unwrap();
}

#[test]
#[cfg(unix)]
fn a_file_that_may_not_be_written_is_denied() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    drop(place.open());
    std::fs::set_permissions(&place.path, std::fs::Permissions::from_mode(0o400)).unwrap();
    if std::fs::OpenOptions::new().write(true).open(&place.path).is_ok() {
        // A superuser may write every file, so the test cannot show anything.
        return;
    }
    assert_eq!(RedbStore::open(&place.path).unwrap_err().kind(), OpenErrorKind::Denied);
}

#[test]
fn other_format_and_damaged_counter_are_reported() {
    let place = Place::new();
    let set = |key: &[u8], value: &[u8]| {
        drop(place.open());
        let database = Database::open(&place.path).unwrap();
        let writer = database.begin_write().unwrap();
        let old = {
            let mut meta = writer.open_table(META).unwrap();
            meta.insert(key, value).unwrap().map(|old| old.value().to_vec())
        };
        writer.commit().unwrap();
        old.unwrap()
    };
    let old = set(b"format", &9_u64.to_be_bytes());
    let error = RedbStore::open(&place.path).unwrap_err();
    assert_eq!(error.kind(), OpenErrorKind::NotAStore);
    assert!(error.to_string().contains("format 9"), "{error}");
    let database = Database::open(&place.path).unwrap();
    let writer = database.begin_write().unwrap();
    writer.open_table(META).unwrap().insert(&b"format"[..], old.as_slice()).unwrap();
    writer.commit().unwrap();
    drop(database);
    set(b"clock", b"123");
    assert_eq!(RedbStore::open(&place.path).unwrap_err().kind(), OpenErrorKind::Damaged);
}

#[tokio::test]
async fn damaged_documents_are_reported_and_stop_no_other() {
    let place = Place::new();
    let store = place.open();
    make(&store, "c").await;
    let (bad, good) = (Key::new("c", "bad"), Key::new("c", "good"));
    create(&store, &bad, "{}").await;
    let version = create(&store, &good, "{}").await;
    store.close();
    {
        let database = Database::open(&place.path).unwrap();
        let key = {
            let reader = database.begin_read().unwrap();
            let documents = reader.open_table(DOCUMENTS).unwrap();
            documents.first().unwrap().unwrap().0.value().to_vec()
        };
        let writer = database.begin_write().unwrap();
        writer.open_table(DOCUMENTS).unwrap().insert(key.as_slice(), &b"xy"[..]).unwrap();
        writer.commit().unwrap();
    }
    let store = place.open();
    let reads = store.get_many(&[bad.clone(), good.clone()]).await;
    assert!(
        matches!(&reads[0], Read::Unavailable(e) if e.kind == StoreErrorKind::Damaged),
        "{reads:?}"
    );
    assert!(matches!(reads[1], Read::Found { .. }), "{reads:?}");
    let writes = [
        Write::new(bad.clone(), WriteOp::Delete(version)),
        Write::new(good, WriteOp::Delete(version)),
    ];
    let outcomes = store.write_many(&writes).await;
    let damaged = |o: &Outcome| matches!(o, Outcome::Invalid(r) if r.kind == RefusalKind::Damaged);
    assert!(damaged(&outcomes[0]), "{outcomes:?}");
    assert!(matches!(&outcomes[1], Outcome::Applied(_)), "{outcomes:?}");
    let error = store.scan("c", &Filter::All, 10, None).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Damaged);
}

#[tokio::test]
async fn closed_store_reports_that_it_is_closed() {
    let place = Place::new();
    let store = place.open();
    make(&store, "c").await;
    store.close();
    store.close();
    let key = Key::new("c", "a");
    for op in [WriteOp::Create("{}".into()), WriteOp::Verify(None)] {
        let outcome = one(&store, &key, op).await;
        assert!(
            matches!(&outcome, Outcome::Rejected(why) if why.contains("closed")),
            "{outcome:?}"
        );
    }
    assert!(matches!(store.get_many(&[key]).await[0], Read::Unavailable(_)));
    for error in [
        store.scan("c", &Filter::All, 10, None).await.unwrap_err(),
        store.refresh("c").await.unwrap_err(),
        store.drop_collection("c").await.unwrap_err(),
    ] {
        assert_eq!(error.kind, StoreErrorKind::Unavailable);
    }
}

#[tokio::test]
async fn writers_wait_for_a_full_queue_until_their_timeout() {
    let place = Place::new();
    let config =
        RedbConfig::default().with_queue_bytes(1).with_request_timeout(Duration::from_secs(20));
    let store = RedbStore::open_with(&place.path, &config).unwrap();
    assert_eq!(store.request_timeout(), Duration::from_secs(20));
    make(&store, "c").await;
    // The queue has space for one request at a time: all of them succeed in turn.
    let keys: Vec<Key> = (0..20).map(|n| Key::new("c", n.to_string())).collect();
    let writes = keys.iter().map(|key| one(&store, key, WriteOp::Create("{}".into())));
    for outcome in futures::future::join_all(writes).await {
        assert!(matches!(outcome, Outcome::Applied(_)), "{outcome:?}");
    }
    store.close();
    let impatient = config.with_request_timeout(Duration::ZERO);
    let store = RedbStore::open_with(&place.path, &impatient).unwrap();
    let writes = keys.iter().map(|key| one(&store, key, WriteOp::Create("{}".into())));
    let outcomes = futures::future::join_all(writes).await;
    // Requests without space were not sent. The outcomes of the other requests are unknown.
    let rejected = |o: &&Outcome| matches!(o, Outcome::Rejected(why) if why.contains("queue"));
    let unsent = outcomes.iter().filter(rejected).count();
    assert!(unsent > 0, "{outcomes:?}");
    let known =
        |o: &Outcome| matches!(o, Outcome::Rejected(_) | Outcome::Unknown(_) | Outcome::Conflict);
    assert!(outcomes.iter().all(known), "{outcomes:?}");
}
