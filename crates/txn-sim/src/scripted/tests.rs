use super::*;
use std::sync::atomic::AtomicUsize;
use tokio::time::Instant;
use txn_store::{MemoryStore, Role, WriteOp};

async fn scripted() -> Scripted {
    let memory = MemoryStore::new();
    let (name, role) = ("c".to_owned(), Role::Data { owner: None });
    let spec = CollectionSpec { name, role, create: true, mappings: None };
    memory.open_collection(&spec).await.unwrap();
    Scripted::new(Arc::new(memory))
}

fn key(id: &str) -> Key {
    Key::new("c", id)
}

fn creates(ids: &[&str]) -> Vec<Write> {
    ids.iter().map(|id| Write::new(key(id), WriteOp::Create("{}".into()))).collect()
}

async fn write(store: &dyn Store, ids: &[&str]) -> Vec<Outcome> {
    store.write_many(&creates(ids)).await
}

async fn exist(store: &Scripted, ids: &[&str]) -> Vec<bool> {
    let keys: Vec<Key> = ids.iter().map(|id| key(id)).collect();
    let reads = store.inner.get_many(&keys).await;
    reads.iter().map(|read| matches!(read, Read::Found { .. })).collect()
}

#[tokio::test]
async fn fates_decide_effect_and_answer_of_each_write() {
    let store = scripted().await;
    store.play(|write| match &*write.key.id {
        "refused" => Fate::RefuseWith(Outcome::Conflict),
        "answered" => Fate::AnswerWith(Outcome::Holds),
        _ => Fate::Pass,
    });
    let outcomes = write(&store, &["refused", "passed", "answered"]).await;
    assert!(
        matches!(outcomes[..], [Outcome::Conflict, Outcome::Applied(_), Outcome::Holds]),
        "{outcomes:?}"
    );
    assert_eq!(exist(&store, &["refused", "passed", "answered"]).await, [false, true, true]);
}

#[tokio::test(start_paused = true)]
async fn writes_after_a_hanging_write_are_lost() {
    let store = scripted().await;
    store.play(|write| if write.key.id == "b".into() { Fate::Hang } else { Fate::Pass });
    let hung = write(&store, &["a", "b", "c"]);
    assert!(tokio::time::timeout(Duration::from_secs(60), hung).await.is_err());
    assert_eq!(exist(&store, &["a", "b", "c"]).await, [true, true, false]);
}

#[tokio::test(start_paused = true)]
async fn failed_step_sends_no_call_before_the_store() {
    let store = scripted().await;
    let (before, begun) = (Arc::new(AtomicBool::new(true)), Instant::now());
    let is_before = before.clone();
    let fail = |call: Call<'_>, fails: bool| match fails && call.has(|key| *key.id == *"a") {
        true => Step::delay(Duration::from_secs(1)).fail(unavailable("lost")),
        false => Step::pass(),
    };
    store.before(move |call| fail(call, is_before.load(Ordering::SeqCst)));
    assert_eq!(write(&store, &["a"]).await, [Outcome::Unknown("lost".to_owned())]);
    assert!(begun.elapsed() >= Duration::from_secs(1));
    assert_eq!(exist(&store, &["a"]).await, [false]);
    before.store(false, Ordering::SeqCst);
    store.after(move |call| fail(call, true));
    assert_eq!(write(&store, &["a"]).await, [Outcome::Unknown("lost".to_owned())]);
    assert_eq!(exist(&store, &["a"]).await, [true]);
    let reads = Store::get_many(&store, &[key("a")]).await;
    assert_eq!(reads, [Read::Unavailable(unavailable("lost"))]);
}

#[tokio::test]
async fn closed_collection_fails_to_the_stated_extent() {
    let store = scripted().await;
    for (closed, scans) in [(Closed::Documents, true), (Closed::Entirely, false)] {
        store.close("c", closed);
        assert!(matches!(write(&store, &["a"]).await[..], [Outcome::RejectedInDoubt(_)]));
        let reads = Store::read_primary(&store, &[key("a")]).await;
        assert!(matches!(reads[..], [Read::Unavailable(_)]), "{reads:?}");
        assert_eq!(Store::scan(&store, "c", &Filter::All, 1, None).await.is_ok(), scans);
        assert_eq!(Store::refresh(&store, "c").await.is_ok(), scans);
    }
    store.reopen("c");
    assert!(matches!(write(&store, &["a"]).await[..], [Outcome::Applied(_)]));
    store.set_down(true);
    assert_eq!(write(&store, &["b"]).await, [Outcome::Rejected("down".to_owned())]);
    assert!(Store::refresh(&store, "c").await.is_err());
}

#[tokio::test]
async fn hooks_see_each_call_and_its_documents() {
    let store = scripted().await;
    let counts: [Arc<AtomicUsize>; 2] = Default::default();
    let [documents, times] = counts.clone();
    store.before(move |call| {
        documents.fetch_add(usize::from(call.has(|_| true)), Ordering::SeqCst);
        times.fetch_add(usize::from(matches!(call, Call::ServerTime)), Ordering::SeqCst);
        Step::pass()
    });
    write(&store, &["a"]).await;
    Store::get_many(&store, &[key("a")]).await;
    assert_eq!(Store::server_time(&store).await, Ok(None));
    store.tell_time(|| Some(Duration::from_secs(9)));
    assert_eq!(Store::server_time(&store).await, Ok(Some(Duration::from_secs(9))));
    assert_eq!(counts.map(|count| count.load(Ordering::SeqCst)), [2, 2]);
}

#[tokio::test(start_paused = true)]
async fn breakpoint_stops_one_call_until_its_release() {
    let (store, point) = (Arc::new(scripted().await), Arc::new(Breakpoint::default()));
    let stops = point.clone();
    store.before(move |call| match call.writes(|_| true) {
        true => stops.step(),
        false => Step::pass(),
    });
    write(&*store, &["a"]).await;
    point.set();
    let stopped = tokio::spawn({
        let store = store.clone();
        async move { write(&*store, &["b"]).await }
    });
    point.reached().await;
    write(&*store, &["c"]).await;
    assert_eq!(exist(&store, &["a", "b", "c"]).await, [true, false, true]);
    point.release();
    assert!(matches!(stopped.await.unwrap()[..], [Outcome::Applied(_)]));
}
