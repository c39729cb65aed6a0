//! Tests of the server's faults.

use txn_store::{CollectionSpec, Cursor, Filter, Role, Store, WriteOp};

use super::*;

fn key(id: &str) -> Key {
    Key::new("things", id)
}

async fn server(slow_replication: f64) -> Arc<Server> {
    let server = Server::new(1, Manners { slow_replication, ..Manners::default() });
    open(&server).await;
    server
}

async fn open(server: &Server) {
    let role = Role::Data { owner: None };
    let spec = CollectionSpec { name: "things".to_owned(), role, create: true, mappings: None };
    server.open_collection(&spec).await.expect("opens");
}

#[tokio::test(start_paused = true)]
async fn unacknowledged_write_vanishes_with_its_primary() {
    let server = server(1.0).await;
    let task = tokio::spawn({
        let server = server.clone();
        async move {
            let create = Write::new(key("a"), WriteOp::Create("{}".into()));
            server.write_many(&[create]).await
        }
    });
    tokio::task::yield_now().await;
    let seen = server.read_primary(&[key("a")]).await;
    assert!(matches!(seen[0], Read::Found { .. }));
    server.crash();
    assert_eq!(server.read_primary(&[key("a")]).await, [Read::Absent]);
    assert!(matches!(task.await.expect("no panic")[0], Outcome::Unknown(_)));
    assert_eq!(server.mirages().len(), 1);
    let again = Write::new(key("a"), WriteOp::Create("{}".into()));
    let outcomes = server.write_many(&[again]).await;
    // The sequence number returns under another term.
    let [Outcome::Applied(version)] = outcomes[..] else { panic!("{outcomes:?}") };
    assert_eq!((version.term, version.seq_no), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn dropped_index_acknowledges_no_running_write() {
    let server = server(1.0).await;
    let creates = [Write::new(key("a"), WriteOp::Create("{}".into()))];
    let made_again = async {
        while server.read_primary(&[key("a")]).await == [Read::Absent] {
            tokio::task::yield_now().await;
        }
        server.drop_collection("things").await.expect("drops");
        open(&server).await;
    };
    let (outcomes, ()) = tokio::join!(server.write_many(&creates), made_again);
    assert!(matches!(outcomes[..], [Outcome::Unknown(_)]), "{outcomes:?}");
    assert_eq!(server.read_primary(&[key("a")]).await, [Read::Absent]);
}

#[tokio::test(start_paused = true)]
async fn repeated_item_answers_for_its_last_try() {
    let server = server(0.0).await;
    server.set_manners(Manners { sent_again: 0.7, sent_and_missed: 0.3, ..Manners::default() });
    let creates: Vec<Write> =
        (0..100).map(|n| Write::new(key(&n.to_string()), WriteOp::Create("{}".into()))).collect();
    let keys: Vec<Key> = creates.iter().map(|write| write.key.clone()).collect();
    let outcomes = server.write_many(&creates).await;
    assert!(outcomes.iter().all(|outcome| !outcome.is_certainly_not_applied()));
    assert!(!outcomes.iter().any(|outcome| matches!(outcome, Outcome::Applied(_))));
    let stand = async || {
        let reads = server.read_primary(&keys).await;
        reads.iter().filter(|read| matches!(read, Read::Found { .. })).count()
    };
    let at_once = stand().await;
    assert!((40..90).contains(&at_once), "{at_once}");
    tokio::time::sleep(FIRST_TRY).await;
    assert_eq!(stand().await, 100, "every first try is carried out");
    assert_eq!(server.misdeeds().sent_again, 100);
}

#[tokio::test(start_paused = true)]
async fn unreachable_server_applies_and_loses_nothing() {
    let server = server(0.0).await;
    let create = |id| [Write::new(key(id), WriteOp::Create("{}".into()))];
    server.write_many(&create("a")).await;
    server.set_reach("things", Reach::Closed);
    assert!(matches!(server.write_many(&create("b")).await[..], [Outcome::RejectedInDoubt(_)]));
    assert!(matches!(server.get_many(&[key("a")]).await[..], [Read::Unavailable(_)]));
    let refreshed = server.refresh("things").await.expect_err("closed");
    assert_eq!(refreshed.kind, StoreErrorKind::Unavailable);
    server.set_reach("things", Reach::Unknown);
    assert_eq!(server.write_many(&create("b")).await, [Outcome::MissingCollection]);
    assert_eq!(server.read_primary(&[key("a")]).await, [Read::MissingCollection]);
    let page = server.scan("things", &Filter::All, 10, None).await.expect_err("unknown");
    assert_eq!(page.kind, StoreErrorKind::NotFound);
    server.set_reach("things", Reach::Open);
    assert!(matches!(server.get_many(&[key("a")]).await[..], [Read::Found { .. }]));
    assert_eq!(server.get_many(&[key("b")]).await, [Read::Absent]);
}

#[tokio::test(start_paused = true)]
async fn acknowledged_write_makes_earlier_writes_durable() {
    let server = server(0.0).await;
    let first = Write::new(key("a"), WriteOp::Create("{}".into()));
    let Arrived::Answered(Outcome::Applied(version)) = server.arrive(&first) else {
        panic!("not applied")
    };
    server.state.lock().manners.slow_replication = 1.0;
    let second = Write::new(key("a"), WriteOp::Replace("{\"n\":2}".into(), version));
    let Arrived::Replicating { write, version: v2, collection, term, .. } = server.arrive(&second)
    else {
        panic!("not replicating")
    };
    server.state.lock().manners.slow_replication = 0.0;
    let third = Write::new(key("a"), WriteOp::Replace("{\"n\":3}".into(), v2));
    assert!(matches!(server.arrive(&third), Arrived::Answered(Outcome::Applied(_))));
    let outcome = server.replicated(&key("a"), write, v2, &collection, term);
    assert_eq!(outcome, Outcome::Applied(v2));
    assert!(server.documents()["things"]["a"].contains('3'));
}

/// Puts documents on every shard, and makes one shard slow.
async fn slow_shard(reads: Duration, writes: Duration) -> (Arc<Server>, Key, Key) {
    let server = server(0.0).await;
    let cold = key("cold");
    let mut others = (0..10).map(|n| key(&n.to_string()));
    let warm = others.find(|key| shard_of(key) != shard_of(&cold)).expect("three shards");
    let creates = [&cold, &warm].map(|key| Write::new(key.clone(), WriteOp::Create("{}".into())));
    server.write_many(&creates).await;
    let shard = Some(shard_of(&cold));
    server.slow_down(Some(SlowPart { collections: "thing".to_owned(), shard, reads, writes }));
    (server, cold, warm)
}

#[tokio::test(start_paused = true)]
async fn request_is_as_slow_as_its_slowest_document() {
    let (server, cold, warm) = slow_shard(REPLICATION, Duration::ZERO).await;
    let begun = Instant::now();
    let reads = server.get_many(std::slice::from_ref(&warm)).await;
    assert!(matches!(reads[..], [Read::Found { .. }]) && begun.elapsed() == Duration::ZERO);
    let reads = server.read_primary(&[warm.clone(), cold.clone()]).await;
    assert!(matches!(reads[..], [Read::Found { .. }, Read::Found { .. }]), "{reads:?}");
    assert!(begun.elapsed() >= REPLICATION);
    let held_up: Vec<Key> = server.held_up().into_iter().map(|held_up| held_up.key).collect();
    assert_eq!(held_up, [warm]);
    let written = server.write_many(&[Write::new(cold, WriteOp::Create("{}".into()))]).await;
    assert_eq!(written, [Outcome::Conflict], "writes are quick");
    assert!(begun.elapsed() < 2 * REPLICATION);
}

#[tokio::test(start_paused = true)]
async fn hung_request_is_carried_out_without_an_answer() {
    let hangs = 5 * REQUEST_TIMEOUT;
    let (server, cold, warm) = slow_shard(hangs, hangs).await;
    let found = server.get_many(&[cold.clone(), warm.clone()]).await;
    assert!(matches!(found[..], [Read::Unavailable(_), Read::Unavailable(_)]), "{found:?}");
    let incarnation = server.identify("things").await.expect("it is there").incarnation;
    let version = Version { incarnation, term: 1, seq_no: 1 };
    let replace = WriteOp::Replace("{\"n\":1}".into(), version);
    let also = Write::new(key("also"), WriteOp::Create("{}".into()));
    let outcomes = server.write_many(&[Write::new(cold.clone(), replace), also]).await;
    assert!(matches!(outcomes[..], [Outcome::Unknown(_), Outcome::Unknown(_)]), "{outcomes:?}");
    assert!(server.refresh("things").await.is_err());
    assert!(server.scan("things", &Filter::All, 10, None).await.is_err());
    tokio::time::sleep(hangs).await;
    server.slow_down(None);
    let found = server.get_many(&[cold]).await;
    assert!(
        matches!(&found[..], [Read::Found { source, .. }] if source.contains('1')),
        "{found:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn scroll_advances_despite_a_lost_answer() {
    let server = server(0.0).await;
    let creates: Vec<Write> =
        (0..7).map(|n| Write::new(key(&n.to_string()), WriteOp::Create("{}".into()))).collect();
    server.write_many(&creates).await;
    let manners = Manners { page: Some(2), ..Manners::default() };
    let page = async |from: Option<Cursor>, lost_page: f64| {
        server.set_manners(Manners { lost_page, ..manners });
        server.scan("things", &Filter::All, 500, from).await
    };
    let first = page(None, 0.0).await.expect("the first page");
    assert_eq!(first.documents.len(), 2);
    let cursor = first.next;
    page(cursor.clone(), 1.0).await.expect_err("the second one is lost");
    let third = page(cursor.clone(), 0.0).await.expect("the third page");
    assert_eq!(third.documents[0].0, key("4"));
    // The scroll shows the state at its begin.
    server.write_many(&[Write::new(key("7"), WriteOp::Create("{}".into()))]).await;
    let last = page(third.next, 0.0).await.expect("the last page");
    assert_eq!((last.documents.len(), last.next), (1, None));
    assert!(page(cursor, 0.0).await.is_err(), "it is ended");
    let first = page(None, 0.0).await.expect("a page");
    tokio::time::sleep(KEEP_ALIVE + REPLICATION).await;
    assert!(page(first.next, 0.0).await.is_err(), "it is given up");
}
