//! Many concurrent writers share commits, and add up exactly.

use std::time::Instant;

use txn_redb::RedbStore;
use txn_store::{Key, Outcome, Store, Write, WriteOp};

use crate::{Place, create, make, one, read};

fn count(source: &str) -> u64 {
    let value: serde_json::Value = serde_json::from_str(source).expect("JSON");
    value["n"].as_u64().expect("a count")
}

/// Adds one to a document, and retries until the write is applied.
async fn increment(store: &RedbStore, key: &Key) {
    loop {
        let (version, source) = read(store, key).await.expect("the document");
        let next = format!(r#"{{"n":{}}}"#, count(&source) + 1);
        match one(store, key, WriteOp::Replace(next.into(), version)).await {
            Outcome::Applied(_) => return,
            Outcome::Conflict => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn increments_by_many_writers_add_up() {
    const WRITERS: u64 = 32;
    const INCREMENTS: u64 = 20;
    let place = Place::new();
    let store = place.open();
    make(&store, "c").await;
    let keys: Vec<Key> = (0..4).map(|n| Key::new("c", n.to_string())).collect();
    for key in &keys {
        create(&store, key, r#"{"n":0}"#).await;
    }
    let writers = (0..WRITERS).map(|writer| {
        let (store, keys) = (store.clone(), keys.clone());
        tokio::spawn(async move {
            for n in 0..INCREMENTS {
                increment(&store, &keys[(writer + n) as usize % keys.len()]).await;
            }
        })
    });
    for done in futures::future::join_all(writers).await {
        done.unwrap();
    }
    store.close();
    let store = place.open();
    let mut sum = 0;
    for key in &keys {
        sum += count(&read(&store, key).await.unwrap().1);
    }
    assert_eq!(sum, WRITERS * INCREMENTS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_of_many_creates_wins_and_drops_race_cleanly() {
    let place = Place::new();
    let store = place.open();
    for round in 0..10 {
        make(&store, "c").await;
        let key = Key::new("c", "a");
        let racers = (0..16).map(|_| one(&store, &key, WriteOp::Create("{}".into())));
        let outcomes = futures::future::join_all(racers).await;
        let wins = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Applied(_)));
        assert_eq!(wins.count(), 1, "{outcomes:?}");
        let others = (0..16).map(|n| {
            let (store, key) = (store.clone(), Key::new("c", format!("{round}-{n}")));
            tokio::spawn(async move { one(&store, &key, WriteOp::Create("{}".into())).await })
        });
        let others: Vec<_> = others.collect();
        store.drop_collection("c").await.unwrap();
        for outcome in futures::future::join_all(others).await {
            let outcome = outcome.unwrap();
            let fine = matches!(outcome, Outcome::Applied(_) | Outcome::MissingCollection);
            assert!(fine, "{outcome:?}");
        }
        assert!(store.refresh("c").await.is_err(), "a late write brought the collection back");
    }
}

#[tokio::test]
async fn close_answers_queued_requests() {
    let place = Place::new();
    let store = place.open();
    make(&store, "c").await;
    let keys: Vec<Key> = (0..50).map(|n| Key::new("c", n.to_string())).collect();
    let writes: Vec<_> = keys
        .iter()
        .map(|key| {
            let (store, key) = (store.clone(), key.clone());
            tokio::spawn(async move { one(&store, &key, WriteOp::Create("{}".into())).await })
        })
        .collect();
    tokio::task::yield_now().await;
    store.close();
    let outcomes = futures::future::join_all(writes).await;
    let store = place.open();
    for (key, outcome) in keys.iter().zip(outcomes) {
        let found = read(&store, key).await.is_some();
        match outcome.unwrap() {
            Outcome::Applied(_) => assert!(found, "{key} was acknowledged and is gone"),
            Outcome::Rejected(_) => assert!(!found, "{key} was rejected and is there"),
            other => panic!("{other:?}"),
        }
    }
}

/// Prints the cost of a commit.
///
/// Run with `cargo test --release -p txn-redb -- --ignored --nocapture figures`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn figures() {
    let place = Place::new();
    let store = place.open();
    make(&store, "c").await;
    for writers in [1_u32, 8, 64, 256] {
        let per_writer = if writers == 1 { 1000 } else { 400 };
        let start = Instant::now();
        let tasks = (0..writers).map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                let mut times = Vec::with_capacity(per_writer);
                for n in 0..per_writer {
                    let key = Key::new("c", format!("{writers}-{writer}-{n}"));
                    let source = r#"{"balance":1000,"owner":"another","padding":"0123456789"}"#;
                    let write = Write::new(key, WriteOp::Create(source.into()));
                    let start = Instant::now();
                    assert!(matches!(store.write_many(&[write]).await[0], Outcome::Applied(_)));
                    times.push(start.elapsed());
                }
                times
            })
        });
        let tasks = futures::future::join_all(tasks).await;
        let elapsed = start.elapsed();
        let mut times: Vec<_> = tasks.into_iter().flat_map(Result::unwrap).collect();
        times.sort();
        let (p50, p99) = (times[times.len() / 2], times[times.len() * 99 / 100]);
        let rate = times.len() as f64 / elapsed.as_secs_f64();
        println!("{writers} writers: {rate:.0} writes/s, median {p50:?}, p99 {p99:?}");
    }
    for (keys, busy) in [(1, false), (10, false), (64, false), (65, false), (1, true)] {
        let background = busy.then(|| {
            let store = store.clone();
            tokio::spawn(async move {
                for n in 0.. {
                    let key = Key::new("c", format!("background-{n}"));
                    create(&store, &key, "{}").await;
                }
            })
        });
        let keys: Vec<_> = (0..keys).map(|n| Key::new("c", format!("256-3-{n}"))).collect();
        let mut times = Vec::new();
        for _ in 0..5000 {
            let start = Instant::now();
            store.get_many(&keys).await;
            times.push(start.elapsed());
        }
        times.sort();
        let (p50, p99) = (times[2500], times[4950]);
        println!("reads of {} keys, busy {busy}: median {p50:?}, p99 {p99:?}", keys.len());
        if let Some(background) = background {
            background.abort();
        }
    }
    let start = Instant::now();
    store.drop_collection("c").await.unwrap();
    println!("drop of the collection: {:?}", start.elapsed());
}
