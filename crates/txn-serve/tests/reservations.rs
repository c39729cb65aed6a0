//! Reads for update.
//!
//! The tests cover reservations, contents of running commits, and commits that follow them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use txn_core::store::{MemoryStore, Store};
use txn_core::{Domain, Error, Raw};
use txn_lock::{Leases, LockName};
use txn_serve::ServeConfig;
use txn_sim::tapped::{Delivery, Tap, Tapped};

use super::desk::{Answer, Desk, config};

/// Longer than any test.
const LONG: Duration = Duration::from_secs(3_600);

fn target(id: &str) -> Value {
    json!({ "collection": "stock", "id": id })
}

fn settings() -> ServeConfig {
    ServeConfig::default().with_create_collections(true)
}

/// Stops all writes while it is closed.
#[derive(Debug)]
struct Gate {
    is_open: watch::Sender<bool>,
    /// Whether the answer of the next commit is lost. All later calls then fail.
    cuts_commit: AtomicBool,
    is_cut: AtomicBool,
}

#[async_trait::async_trait]
impl Tap for Gate {
    async fn on_write(&self, writes: &[txn_core::store::Write]) -> Delivery {
        drop(self.is_open.subscribe().wait_for(|is_open| *is_open).await);
        let is_record =
            |write: &txn_core::store::Write| write.key.collection.starts_with("txn-shop-");
        if self.cuts_commit.load(Ordering::Acquire) && writes.iter().any(is_record) {
            return match self.is_cut.swap(true, Ordering::AcqRel) {
                false => Delivery::Lose,
                true => Delivery::Swallow,
            };
        }
        self.on_call().await
    }

    async fn on_call(&self) -> Delivery {
        match self.is_cut.load(Ordering::Acquire) {
            true => Delivery::Swallow,
            false => Delivery::Pass,
        }
    }
}

/// Returns a gateway behind a gate, and the store behind it.
///
/// The store has the document `a`.
async fn gated(groups: bool) -> (Arc<Desk>, Arc<Gate>, Arc<dyn Store>) {
    gated_by(groups, settings()).await
}

async fn gated_by(groups: bool, settings: ServeConfig) -> (Arc<Desk>, Arc<Gate>, Arc<dyn Store>) {
    let (is_open, _) = watch::channel(true);
    let (cuts_commit, is_cut) = (AtomicBool::new(false), AtomicBool::new(false));
    let gate = Arc::new(Gate { is_open, cuts_commit, is_cut });
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let tapped = Arc::new(Tapped::new(store.clone(), gate.clone()));
    let config = config().with_group_commit(Some(groups));
    let domain = Domain::open_or_create(tapped, "shop", config).await.expect("opens");
    let desk = Desk::of(domain, settings.with_reservation(LONG));
    desk.put("/stock/_doc/a", &json!({ "n": 0 })).await.is(201);
    // The first key creates the collection of the answers.
    let insert = json!({ "insert": { "target": target("z"), "document": {} } });
    desk.keyed("/_txn", "first", &json!({ "operations": [insert] })).await.is(200);
    (Arc::new(desk), gate, store)
}

async fn read(desk: &Desk, ids: &[&str]) -> Value {
    let targets: Vec<Value> = ids.iter().map(|id| target(id)).collect();
    desk.post("/_txn/read", &json!({ "targets": targets, "for_update": true })).await.is(200)
}

/// Lets all tasks of this test run until they wait. The store is in memory, so none waits for I/O.
async fn wait_for_the_queue() {
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
}

/// A commit that adds 1 to each document of a read.
fn adding(read: &Value) -> Value {
    let documents = read["documents"].as_array().expect("documents");
    let reads: Vec<Value> = documents
        .iter()
        .map(|it| json!({ "target": it["target"], "token": it["token"] }))
        .collect();
    let add = |it: &Value| {
        let n = it["document"]["n"].as_i64().expect("a number");
        json!({ "merge": { "target": it["target"], "patch": { "n": n + 1 } } })
    };
    let operations: Vec<Value> = documents.iter().map(add).collect();
    let reservations: Vec<&Value> = read.get("reservation").into_iter().collect();
    json!({ "reads": reads, "operations": operations, "reservations": reservations })
}

/// Reads for update and commits until a commit succeeds. Returns the number of conflicts.
async fn transact(desk: &Desk, ids: &[&str], key: &str) -> u32 {
    for conflicts in 0..1_000 {
        let commit = adding(&read(desk, ids).await);
        let answer = desk.keyed("/_txn/commit", &format!("{key}-{conflicts}"), &commit).await;
        if answer.status == 200 {
            return conflicts;
        }
        answer.fails(409, "changed");
    }
    panic!("{key} never succeeded");
}

/// Clients that each commit several times. Returns the number of conflicts.
async fn hot_clients(desk: &Arc<Desk>, ids: &'static [&'static [&'static str]]) -> u32 {
    for id in ["a", "b", "c"] {
        desk.put(&format!("/stock/_doc/{id}"), &json!({ "n": 0 })).await;
    }
    let clients = (0..8).map(|client| {
        let desk = desk.clone();
        tokio::spawn(async move {
            let mut conflicts = 0;
            for round in 0..6 {
                let ids = ids[(client + round) % ids.len()];
                conflicts += transact(&desk, ids, &format!("k-{client}-{round}")).await;
            }
            conflicts
        })
    });
    let mut conflicts = 0;
    for client in clients.collect::<Vec<_>>() {
        conflicts += client.await.expect("no panic");
    }
    let mut expected: BTreeMap<&str, i64> = BTreeMap::new();
    for (client, round) in (0..8).flat_map(|client| (0..6).map(move |round| (client, round))) {
        for id in ids[(client + round) % ids.len()] {
            *expected.entry(id).or_default() += 1;
        }
    }
    for (id, n) in expected {
        assert_eq!(desk.content(&format!("/stock/_doc/{id}")).await, json!({ "n": n }), "{id}");
    }
    conflicts
}

#[tokio::test(start_paused = true)]
async fn reserved_commits_have_no_conflict() {
    let store = Arc::new(MemoryStore::new());
    let desk = Arc::new(Desk::with(store, settings().with_reservation(LONG)).await);
    assert_eq!(hot_clients(&desk, &[&["a"]]).await, 0);
}

#[tokio::test(start_paused = true)]
async fn overlapping_reservations_have_no_deadlock() {
    let store = Arc::new(MemoryStore::new());
    let desk = Arc::new(Desk::with(store, settings().with_reservation(LONG)).await);
    let ids: &[&[&str]] = &[&["a", "b"], &["b", "a", "c"], &["c"], &["c", "a"]];
    assert_eq!(hot_clients(&desk, ids).await, 0);
}

#[tokio::test]
async fn reserved_commits_of_groups_rarely_conflict() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = txn_redb::RedbStore::open(directory.path().join("shop.redb")).expect("opens");
    let desk = Desk::with(Arc::new(store), settings().with_reservation(LONG)).await;
    let conflicts = hot_clients(&Arc::new(desk), &[&["a"]]).await;
    // A group that waits too long for a closure leaves it out, and the later ones then conflict.
    assert!(conflicts <= 12, "{conflicts} conflicts of 48 commits");
}

/// All clients read before the first of them has committed.
#[tokio::test]
async fn reads_follow_commits_that_still_run() {
    let (desk, gate, _) = gated(true).await;
    let first = read(&desk, &["a"]).await;
    let (sender, mut contents) = mpsc::unbounded_channel();
    let client = |number: i64, first: Option<Value>| {
        let (desk, sender) = (desk.clone(), sender.clone());
        tokio::spawn(async move {
            let read = match first {
                Some(read) => read,
                None => read(&desk, &["a"]).await,
            };
            let n = read["documents"][0]["document"]["n"].as_i64();
            assert_eq!(read["undecided"] == true, n != Some(0), "{read}");
            sender.send(n).expect("the test waits");
            let mut commit = adding(&read);
            let target = target(&format!("new-{number}"));
            let insert = json!({ "insert": { "target": target, "document": {} } });
            commit["operations"].as_array_mut().expect("operations").push(insert);
            desk.keyed("/_txn/commit", &format!("k-{number}"), &commit).await.is(200);
        })
    };
    let mut clients: Vec<_> = (1..6).map(|number| client(number, None)).collect();
    wait_for_the_queue().await;
    gate.is_open.send_replace(false);
    clients.push(client(0, Some(first)));
    drop(sender);
    for n in 0..6 {
        assert_eq!(contents.recv().await.expect("a read"), Some(n));
    }
    gate.is_open.send_replace(true);
    for client in clients {
        client.await.expect("no conflict");
    }
    assert_eq!(desk.content("/stock/_doc/a").await, json!({ "n": 6 }));
}

/// Two reads, the second with the content of the first's commit.
///
/// `interfere` runs while the writes of this gateway wait.
async fn two_commits(groups: bool, interfere: impl AsyncFnOnce(Arc<dyn Store>)) -> [Answer; 2] {
    let commits = [adding as fn(&Value) -> Value; 2];
    commits_of(gated(groups).await, (commits, Some(["one", "two"])), interfere).await
}

/// As [`two_commits`], with other commits, and without keys.
async fn commits_of(
    (desk, gate, store): (Arc<Desk>, Arc<Gate>, Arc<dyn Store>),
    ([first, second], keys): ([impl Fn(&Value) -> Value; 2], Option<[&'static str; 2]>),
    interfere: impl AsyncFnOnce(Arc<dyn Store>),
) -> [Answer; 2] {
    let first_read = read(&desk, &["a"]).await;
    let second_read = tokio::spawn({
        let desk = desk.clone();
        async move { read(&desk, &["a"]).await }
    });
    wait_for_the_queue().await;
    gate.is_open.send_replace(false);
    let send = |key: Option<&'static str>, commit: Value| {
        let desk = desk.clone();
        tokio::spawn(async move {
            match key {
                Some(key) => desk.keyed("/_txn/commit", key, &commit).await,
                None => desk.post("/_txn/commit", &commit).await,
            }
        })
    };
    let first = send(keys.map(|keys| keys[0]), first(&first_read));
    let second_read = second_read.await.expect("no panic");
    assert_eq!(
        (&second_read["documents"][0]["document"], &second_read["undecided"]),
        (&json!({ "n": 1 }), &json!(true))
    );
    let second = send(keys.map(|keys| keys[1]), second(&second_read));
    wait_for_the_queue().await;
    interfere(store).await;
    gate.is_open.send_replace(true);
    [first.await.expect("no panic"), second.await.expect("no panic")]
}

/// A commit without operations.
fn confirming(read: &Value) -> Value {
    let mut commit = adding(read);
    commit["operations"] = json!([]);
    commit
}

#[tokio::test]
async fn confirmation_waits_for_the_outcome() {
    for keys in [None, Some(["one", "two"])] {
        let commits = [adding as fn(&Value) -> Value, confirming];
        let answers = commits_of(gated(true).await, (commits, keys), async |_| {}).await;
        for answer in answers {
            answer.is(200);
        }
    }
}

/// A commit of its reservation without its read.
fn adding_blindly(read: &Value) -> Value {
    let mut commit = adding(read);
    commit["reads"] = json!([]);
    commit
}

#[tokio::test]
async fn blind_write_passes_its_content_on() {
    let commits = [adding_blindly as fn(&Value) -> Value, adding];
    let answers = commits_of(gated(true).await, (commits, None), async |_| {}).await;
    for answer in answers {
        answer.is(200);
    }
}

/// Makes the commit of a read.
type CommitOf = Box<dyn Fn(&Value) -> Value>;

/// The answer of a commit on another commit's contents.
///
/// The other commit has lost its lock.
///
/// `cuts`: whether the answer of the commit is lost.
async fn after_a_lost_lock(
    (desk, gate, store): (Arc<Desk>, Arc<Gate>, Arc<dyn Store>),
    cuts: bool,
) -> Answer {
    let owner = json!({ "owner": "a", "lease_ms": 60_000 });
    let lock = desk.post("/_locks/reports/monthly", &owner).await.is(200);
    let token = lock["token"].clone();
    let held = token.clone();
    let locked = move |read: &Value| {
        let mut commit = adding(read);
        let lock = json!({ "category": "reports", "id": "monthly", "token": held });
        commit["locks"] = json!([lock]);
        commit
    };
    let inserting = |read: &Value| {
        let mut commit = adding(read);
        let insert = json!({ "insert": { "target": target("new"), "document": {} } });
        commit["operations"].as_array_mut().expect("operations").push(insert);
        commit
    };
    let release = async |store: Arc<dyn Store>| {
        let other = Domain::open(store, "shop", config()).await.expect("opens");
        let leases = Leases::open(&other).await.expect("opens");
        let name = LockName::new("reports", "monthly").expect("a name");
        let token = token.as_u64().expect("a token");
        assert!(leases.release(&name, token).await.expect("releases"));
        gate.cuts_commit.store(cuts, Ordering::Release);
    };
    let commits: [CommitOf; 2] = [Box::new(locked), Box::new(inserting)];
    let [first, second] = commits_of((desk, gate.clone(), store), (commits, None), release).await;
    first.fails(409, "lost");
    second
}

#[tokio::test]
async fn refused_commit_names_no_transaction() {
    let (desk, gate, store) = gated(true).await;
    let refused = after_a_lost_lock((desk.clone(), gate, store), false).await;
    assert_eq!(refused.header("x-transaction-id"), "");
    let changed = refused.fails(409, "changed");
    assert_eq!(changed.get("tid"), None, "{changed}");
    assert_eq!(changed["changed"][0]["document"], json!({ "n": 0 }), "{changed}");
    assert_eq!(desk.content("/stock/_doc/a").await, json!({ "n": 0 }));
    assert_eq!(desk.get("/stock/_doc/new").await.status, 404);
}

#[tokio::test]
async fn refusal_without_an_answer_is_not_unknown() {
    let settings = settings().with_timeout(Duration::from_secs(2));
    let (desk, gate, store) = gated_by(true, settings).await;
    let refused = after_a_lost_lock((desk, gate.clone(), store), true).await;
    assert!(gate.is_cut.load(Ordering::Acquire));
    // The transaction is committed, but without the operations.
    let conflict = refused.fails(409, "conflict");
    assert_eq!(conflict.get("tid"), None, "{conflict}");
}

#[tokio::test]
async fn commit_under_a_lost_lock_passes_nothing_on() {
    let (desk, gate, _) = gated(true).await;
    desk.post("/_locks/reports/monthly", &json!({ "owner": "a" })).await.is(200);
    let first = read(&desk, &["a"]).await;
    let next = tokio::spawn({
        let desk = desk.clone();
        async move { read(&desk, &["a"]).await }
    });
    wait_for_the_queue().await;
    gate.is_open.send_replace(false);
    let mut commit = adding(&first);
    commit["locks"] = json!([{ "category": "reports", "id": "monthly", "token": 99 }]);
    let commit = tokio::spawn({
        let desk = desk.clone();
        // The refusal is stored under the key, so the commit is not decided before the gate opens.
        async move { desk.keyed("/_txn/commit", "k", &commit).await }
    });
    wait_for_the_queue().await;
    gate.is_open.send_replace(true);
    let next = next.await.expect("no panic");
    assert_eq!(next["documents"][0]["document"], json!({ "n": 0 }), "{next}");
    commit.await.expect("no panic").fails(409, "lost");
}

#[tokio::test]
async fn commit_on_undecided_content_follows() {
    for groups in [false, true] {
        for answer in two_commits(groups, async |_| {}).await {
            answer.is(200);
        }
    }
}

#[tokio::test]
async fn commit_on_content_that_never_was_is_refused() {
    for groups in [false, true] {
        let answers = two_commits(groups, async |store| {
            let other = Domain::open(store, "shop", config()).await.expect("opens");
            let stock = other.collection::<Raw>("stock").await.expect("opens");
            let content = Raw::new(r#"{"n":100}"#);
            let put = async |tx: &txn_core::Transaction| tx.put(&stock, "a", &content);
            other.transact::<_, Error, _>(put).await.expect("writes");
        });
        for answer in answers.await {
            let changed = answer.fails(409, "changed");
            assert_eq!(changed["changed"][0]["document"], json!({ "n": 100 }), "{changed}");
        }
    }
}

/// A read of two documents, of which one was committed while the other was reserved.
///
/// `interfere` runs between the two.
async fn read_after_a_commit(interfere: impl AsyncFnOnce(&Desk)) -> (Arc<Desk>, Value) {
    let settings = settings().with_reservation(LONG);
    let desk = Arc::new(Desk::with(Arc::new(MemoryStore::new()), settings).await);
    for id in ["a", "b"] {
        desk.put(&format!("/stock/_doc/{id}"), &json!({ "n": 0 })).await.is(201);
    }
    let (of_a, of_b) = (read(&desk, &["a"]).await, read(&desk, &["b"]).await);
    let of_both = tokio::spawn({
        let desk = desk.clone();
        async move { read(&desk, &["a", "b"]).await }
    });
    wait_for_the_queue().await;
    desk.post("/_txn/commit", &adding(&of_a)).await.is(200);
    interfere(&desk).await;
    desk.post("/_txn/commit", &adding(&of_b)).await.is(200);
    let of_both = of_both.await.expect("no panic");
    assert_eq!(of_both["undecided"], true, "{of_both}");
    (desk, of_both)
}

#[tokio::test(start_paused = true)]
async fn waiting_read_gets_contents_of_ended_commits() {
    let (desk, read) = read_after_a_commit(async |_| {}).await;
    assert_eq!(read["documents"][0]["document"], json!({ "n": 1 }), "{read}");
    desk.post("/_txn/commit", &adding(&read)).await.is(200);
    assert_eq!(desk.content("/stock/_doc/a").await, json!({ "n": 2 }));
}

#[tokio::test(start_paused = true)]
async fn stale_content_of_a_commit_costs_one_conflict() {
    let change = async |desk: &Desk| {
        desk.put("/stock/_doc/a", &json!({ "n": 100 })).await.is(200);
    };
    let (desk, stale) = read_after_a_commit(change).await;
    let changed = desk.post("/_txn/commit", &adding(&stale)).await.fails(409, "changed");
    assert_eq!(changed["changed"][0]["document"], json!({ "n": 100 }), "{changed}");
    let fresh = read(&desk, &["a", "b"]).await;
    assert_eq!(fresh["documents"][0]["document"], json!({ "n": 100 }), "{fresh}");
    desk.post("/_txn/commit", &adding(&fresh)).await.is(200);
}

#[tokio::test(start_paused = true)]
async fn reservation_of_a_lost_client_ends() {
    let desk = Desk::with(Arc::new(MemoryStore::new()), settings()).await;
    desk.put("/stock/_doc/a", &json!({ "n": 0 })).await.is(201);
    let (lost, next) = (read(&desk, &["a"]).await, read(&desk, &["a"]).await);
    assert!(lost["reservation"].is_string() && next["reservation"].is_string());
    assert_ne!(lost["reservation"], next["reservation"]);
    desk.post("/_txn/commit", &adding(&next)).await.is(200);
    // The client is back: its reservation has ended, and its tokens are compared.
    desk.post("/_txn/commit", &adding(&lost)).await.fails(409, "changed");
    assert_eq!(desk.content("/stock/_doc/a").await, json!({ "n": 1 }));
}

#[tokio::test(start_paused = true)]
async fn reservation_without_an_end_delays_a_read_only() {
    let desk = Desk::with(Arc::new(MemoryStore::new()), settings().with_reservation(LONG)).await;
    desk.put("/stock/_doc/a", &json!({ "n": 0 })).await.is(201);
    let holder = read(&desk, &["a"]).await;
    let other = read(&desk, &["a"]).await;
    assert_eq!(other.get("reservation"), None, "{other}");
    desk.post("/_txn/commit", &adding(&other)).await.is(200);
    desk.post("/_txn/commit", &adding(&holder)).await.fails(409, "changed");
    // Other documents, and reads that are not for update, never wait.
    assert!(read(&desk, &["b"]).await["reservation"].is_string());
    let plain = json!({ "targets": [target("a")] });
    assert_eq!(desk.post("/_txn/read", &plain).await.is(200).get("reservation"), None);
}

#[tokio::test(start_paused = true)]
async fn dropped_read_leaves_its_queue() {
    let desk =
        Arc::new(Desk::with(Arc::new(MemoryStore::new()), settings().with_reservation(LONG)).await);
    desk.put("/stock/_doc/a", &json!({ "n": 0 })).await.is(201);
    let first = read(&desk, &["a"]).await;
    let waiting = tokio::spawn({
        let desk = desk.clone();
        async move { read(&desk, &["a"]).await }
    });
    wait_for_the_queue().await;
    waiting.abort();
    waiting.await.expect_err("the client is gone");
    desk.post("/_txn/commit", &adding(&first)).await.is(200);
    assert!(read(&desk, &["a"]).await["reservation"].is_string());
}

#[tokio::test]
async fn unknown_reservation_has_no_effect() {
    let desk = Desk::with(Arc::new(MemoryStore::new()), settings()).await;
    desk.put("/stock/_doc/a", &json!({ "n": 0 })).await.is(201);
    let mut commit = adding(&read(&desk, &["a"]).await);
    for malformed in ["", "x", "+2345678901234567890123456789012"] {
        commit["reservations"] = json!([malformed]);
        desk.post("/_txn/commit", &commit).await.fails(400, "invalid");
    }
    commit["reservations"] = json!(vec!["0".repeat(32); 101]);
    desk.post("/_txn/commit", &commit).await.fails(400, "invalid");
    // The reservation of another gateway.
    commit["reservations"] = json!(["0".repeat(32)]);
    desk.post("/_txn/commit", &commit).await.is(200);
}
