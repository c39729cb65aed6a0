//! Requests on a faulty store, with processors that start and stop.
//!
//! Each request has one effect and one result.

use std::sync::Arc;
use std::time::Duration;

use txn_core::ErrorKind::{Conflict, Unavailable, Unknown};
use txn_core::Raw;
use txn_core::store::MemoryStore;
use txn_outbox::{Outbox, OutboxConfig};
use txn_requests::{
    Document, Operation, Request, RequestError, Requests, RequestsConfig, Selection, State, Target,
};
use txn_sim::{FaultPlan, FaultStore};

use crate::scenarios::{self, PATIENCE, World};

/// Shorter than some answers of the store, so that leases expire.
const LEASE: Duration = Duration::from_secs(1);

/// Repeats a call after errors of a slow store.
async fn until_told<T, F>(mut call: impl FnMut() -> F) -> T
where
    F: Future<Output = Result<T, RequestError>>,
{
    loop {
        match call().await {
            Ok(told) => return told,
            Err(RequestError::Store(_)) => {}
            Err(RequestError::Engine(error))
                if matches!(error.kind(), Conflict | Unavailable | Unknown) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_request_happens_once_on_a_faulty_store() {
    for seed in 0..4_u64 {
        let store = Arc::new(FaultStore::new(Arc::new(MemoryStore::new()), FaultPlan::rough(seed)));
        store.set_enabled(false);
        let world = Arc::new(World { store: store.clone(), name: "test".to_owned(), lease: LEASE });
        let domain = world.fund(&[("alice", 12), ("bob", 0)]).await;
        // More requests than there is money for, with a low limit of failures.
        let (requests, count) = (16, 12);
        let client = world.requests().await;
        let workers: Vec<Requests> = vec![world.requests().await, world.requests().await];
        store.set_enabled(true);
        let mut tasks = tokio::task::JoinSet::new();
        for (at, worker) in workers.iter().enumerate() {
            let worker = worker.clone();
            tasks.spawn(async move {
                // Stops processors in the middle of their work, while other processors continue.
                for round in 0..4_u64 {
                    let processor = worker.start(None);
                    let moment = 5_000 + (seed * 977 + at as u64 * 331 + round * 7_919) % 40_000;
                    tokio::time::sleep(Duration::from_micros(moment)).await;
                    drop(processor);
                }
            });
        }
        for at in 0..requests {
            let (client, world) = (client.clone(), world.clone());
            tasks.spawn(async move {
                let (id, request) = (format!("r{at}"), world.transfer("alice", "bob", 1));
                until_told(|| client.submit(&request, &id)).await;
                // Repeats the submission, like a client that lost the answer.
                until_told(|| client.submit(&request, &id)).await;
                if at % 4 == 0 {
                    // Executes the request at the same time.
                    let _ = client.execute(&request, &id).await;
                }
            });
        }
        tasks.join_all().await;
        let processor = workers[0].start(None);
        let mut ends = Vec::new();
        for at in 0..requests {
            let id = format!("r{at}");
            let mut released = 0;
            ends.push(loop {
                let status = until_told(|| client.wait(&id, PATIENCE)).await;
                match status.state {
                    // The request failed too often on this store. Releases it, like an operator.
                    State::Quarantined => {
                        released += 1;
                        assert!(released < 20, "{status:?}");
                        let _ = client.release(&id).await;
                    }
                    state => break state,
                }
            });
        }
        store.set_enabled(false);
        store.settle().await;
        assert!(store.injected().total() > 0);
        assert!(processor.stop(PATIENCE).await);
        let committed = ends.iter().filter(|state| state.is_committed()).count();
        assert_eq!(committed, count, "seed {seed}: {ends:?}");
        let moved = [world.balance(&domain, "alice").await, world.balance(&domain, "bob").await];
        assert_eq!(moved, [0, i64::try_from(count).expect("few")], "seed {seed}");
        // An observed result never changes.
        for (at, end) in ends.iter().enumerate() {
            let now = client.status(&format!("r{at}")).await.expect("known").state;
            assert!(
                now == *end || (now.is_committed() && end.is_committed()),
                "seed {seed}: {now}"
            );
        }
        client.recover(None).await.expect("recovers");
        let open = Selection::default().with_states(State::OPEN);
        assert!(client.list(&open).await.expect("lists").is_empty(), "seed {seed}");
    }
}

/// Each call takes some time, so that each pause hits another step.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processor_is_paused_and_killed_at_each_step() {
    let slow = FaultPlan::none(7).with_delay(1.0, Duration::from_millis(4));
    let world = || {
        let store = Arc::new(FaultStore::new(Arc::new(MemoryStore::new()), slow));
        World { store, name: "test".to_owned(), lease: LEASE }
    };
    let moments: Vec<u64> = (0..12).map(|at| 4_000 + at * 5_000).collect();
    Box::pin(scenarios::a_processor_is_paused(&world(), &moments)).await;
    Box::pin(scenarios::kills_at(&world(), &moments)).await;
}

/// A request is cancelled during its execution. The first of both wins.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_request_happens_or_not_and_stays_so() {
    let world =
        World { store: Arc::new(MemoryStore::new()), name: "test".to_owned(), lease: LEASE };
    let domain = world.fund(&[("alice", 100), ("bob", 0)]).await;
    let (client, worker) = (world.requests().await, world.requests().await);
    let processor = worker.start(None);
    let (mut committed, mut cancelled) = (0, 0);
    for at in 0..40 {
        let id = format!("r{at}");
        let submitted =
            client.submit(&world.transfer("alice", "bob", 1), &id).await.expect("stored");
        assert_eq!(submitted.state, State::Created);
        if at % 2 == 0 {
            // A processor finds the request itself.
            worker.submit(&submitted.request, &id).await.expect("the same one");
            tokio::time::sleep(Duration::from_micros(at * 150)).await;
        }
        match client.cancel(&id, "changed my mind").await {
            Ok(status) => {
                assert_eq!(status.state, State::RolledBack, "{status:?}");
                cancelled += 1;
            }
            Err(RequestError::WrongState { state, .. }) => {
                assert!(state.is_committed(), "{state}");
                committed += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(processor.stop(PATIENCE).await);
    assert_eq!(world.balance(&domain, "bob").await, committed);
    assert!(cancelled > 0, "nothing was cancelled in time");
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused() {
    let world =
        World { store: Arc::new(MemoryStore::new()), name: "test".to_owned(), lease: LEASE };
    let domain = world.domain().await;
    for config in [
        world.config().with_concurrency(0),
        world.config().with_lease(Duration::ZERO),
        world.config().with_poll(Duration::ZERO),
        world.config().with_max_failures(0),
    ] {
        let refused = Requests::open(&domain, config).await.expect_err("refused");
        assert!(matches!(refused, RequestError::InvalidConfig(_)), "{refused}");
    }
}

#[tokio::test]
async fn a_document_under_two_names_is_one() {
    let world =
        World { store: Arc::new(MemoryStore::new()), name: "test".to_owned(), lease: LEASE };
    let domain = world.fund(&[("alice", 1)]).await;
    world.store.add_alias("other-name", &world.accounts_name()).await.expect("named");
    let requests = world.requests().await;
    let alias = Target::new("other-name", "alice");
    let twice = Request::new(vec![
        Operation::add(alias, "/balance", 1),
        Operation::put(world.target("alice"), Document::parse(r#"{"balance":5}"#).expect("JSON")),
    ]);
    let before = world.read(&domain, "alice").await;
    requests.execute(&twice, "twice").await.expect("done");
    assert_eq!(world.balance(&domain, "alice").await, 5);
    requests.reverse("twice", "back").await.expect("submitted");
    assert_eq!(requests.process_open(None).await.expect("looks").committed, 1);
    assert_eq!(world.read(&domain, "alice").await, before);
}

/// A protected collection is recognised under every name.
#[tokio::test]
async fn protected_collection_is_known_under_every_name() {
    let world =
        World { store: Arc::new(MemoryStore::new()), name: "test".to_owned(), lease: LEASE };
    let domain = world.fund(&[("alice", 1)]).await;
    let requests = world.requests().await;
    domain.create_collection::<Raw>("box-7", None).await.expect("made");
    let refused = async |collection: &str| {
        let request = Request::new(vec![Operation::Delete(Target::new(collection, "x"))]);
        match requests.execute(&request, &format!("on-{collection}")).await {
            Err(RequestError::Invalid(why)) => {
                assert!(why.contains("is reserved"), "{why}");
                true
            }
            done => {
                done.expect("done");
                false
            }
        }
    };
    assert!(!refused("box-7").await, "it is the application's");
    world.store.add_alias("test-outbox", "box-7").await.expect("named");
    world.store.add_alias("innocent", "box-7").await.expect("named");
    Outbox::open(&domain, OutboxConfig::default()).await.expect("opens");
    for name in ["test-outbox", "innocent", "box-7"] {
        assert!(refused(name).await, "{name}");
    }
    // Past versions belong to the engine.
    let accounts = world.accounts(&domain).await;
    domain.history().enable(&accounts, Duration::from_secs(3600)).await.expect("kept");
    let history = format!("{}-history", world.accounts_name());
    world.store.add_alias("past", &history).await.expect("named");
    for name in [&*history, "past"] {
        assert!(refused(name).await, "{name}");
    }
    assert!(!refused(&world.accounts_name()).await);
}

/// After many concurrent commits each request is finished soon, without a recovery.
#[tokio::test]
async fn concurrent_commits_are_finished_soon() {
    let world =
        World { store: Arc::new(MemoryStore::new()), name: "test".to_owned(), lease: LEASE };
    let domain = world.fund(&[("alice", 0)]).await;
    let config = RequestsConfig::default().with_concurrency(1);
    let requests = Requests::open(&domain, config).await.expect("opens");
    let request = Request::new(vec![Operation::add(world.target("alice"), "/balance", 1)]);
    let ids: Vec<String> = (0..32).map(|at| format!("r{at}")).collect();
    let executed = ids.iter().map(|id| requests.execute(&request, id));
    futures::future::try_join_all(executed).await.expect("done");
    let until = std::time::Instant::now() + Duration::from_secs(60);
    for id in &ids {
        while requests.status(id).await.expect("there").state != State::Finished {
            assert!(std::time::Instant::now() < until, "{id} is not finished");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}
