//! Many concurrent writers: increments add up exactly, and one creator wins.
//!
//! Each counter holds the progress of every writer. A writer recognises its own write after a
//! conflict or an unknown outcome, and a lost write shows at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::conformance::fixture::{Fixture, rule};
use crate::{Key, Outcome, Read, Source, Store, Version, Write, WriteOp};

/// The counters of a batch, and the documents that creators race for.
const DOCUMENTS: usize = 8;

/// A counter, with the increments of each writer.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Counter {
    count: u64,
    by: BTreeMap<String, u64>,
}

pub(in crate::conformance) async fn run(fixture: &mut Fixture<'_>) {
    let docs = fixture.data("docs").await.name;
    let keys = |kind: &str, count: usize| -> Vec<Key> {
        (0..count).map(|at| Key::new(docs.clone(), format!("{kind}-{at}"))).collect()
    };
    let increments = fixture.options.increments;
    count(fixture, keys("hot", 1), increments).await;
    count(fixture, keys("batch", DOCUMENTS), increments.div_ceil(3)).await;
    creators(fixture, keys("created", DOCUMENTS)).await;
}

/// Lets every writer increment every counter this often.
async fn count(fixture: &Fixture<'_>, keys: Vec<Key>, increments: u32) {
    let (store, writers) = (fixture.store, fixture.options.writers);
    for key in &keys {
        let zero = source(&Counter::default());
        while let Read::Absent = settled_read(store, key).await {
            store.write_many(&[Write::new(key.clone(), WriteOp::Create(zero.clone()))]).await;
        }
    }
    let mut tasks = JoinSet::new();
    for writer in 0..writers {
        tasks.spawn(increment(store.clone(), keys.clone(), writer, increments.into()));
    }
    join(&mut tasks).await;
    for key in &keys {
        let read = settled_read(store, key).await;
        let (_, counter) = counter(&read);
        let wanted = u64::from(writers) * u64::from(increments);
        let each = counter.by.values().all(|count| *count == u64::from(increments));
        let exact = counter.count == wanted && each && counter.by.len() == writers as usize;
        rule("in a race increments of many writers add up exactly", exact, &(key, wanted, counter));
    }
}

/// Increments each counter until all own increments are known.
///
/// All increments of this writer must have happened.
async fn increment(store: Arc<dyn Store>, keys: Vec<Key>, writer: u32, increments: u64) {
    let me = format!("writer-{writer}");
    for target in 1..=increments {
        let mut open = keys.clone();
        for attempt in 0_u32.. {
            // Alternate reads that may be stale, on which a write has to fail, and primary reads.
            let primary = attempt % 2 == 1;
            let reads = match primary {
                true => store.read_primary(&open).await,
                false => store.get_many(&open).await,
            };
            tokio::task::yield_now().await;
            let (mut writes, mut waiting) = (Vec::new(), Vec::new());
            for (key, read) in open.iter().zip(&reads) {
                if !matches!(read, Read::Found { .. }) {
                    waiting.push(key.clone());
                    continue;
                }
                let (version, mut counter) = counter(read);
                let mine = counter.by.get(&me).copied().unwrap_or_default();
                if primary {
                    let what = "in a race no acknowledged write is lost, and primary reads show it";
                    rule(what, mine + 1 >= target, &(key, &me, target, &counter));
                    if mine >= target {
                        continue;
                    }
                } else if mine >= target {
                    waiting.push(key.clone());
                    continue;
                }
                counter.count += 1;
                counter.by.insert(me.clone(), target);
                let op = WriteOp::Replace(source(&counter), version);
                writes.push(Write::new(key.clone(), op));
            }
            let outcomes = store.write_many(&writes).await;
            for (write, outcome) in writes.into_iter().zip(outcomes) {
                match outcome {
                    Outcome::Applied(_) => {}
                    Outcome::Conflict
                    | Outcome::Unknown(_)
                    | Outcome::Rejected(_)
                    | Outcome::RejectedInDoubt(_) => {
                        waiting.push(write.key);
                    }
                    other => rule("a fitting write is not refused", false, &(write, other)),
                }
            }
            open = waiting;
            if open.is_empty() {
                break;
            }
            // Without a pause that differs per writer, the slowest writer never succeeds.
            let pause = (u64::from(writer) * 7 + u64::from(attempt) * 3) % 11;
            tokio::time::sleep(Duration::from_millis(pause.min(attempt.into()))).await;
        }
    }
}

/// Lets all writers create the same documents.
async fn creators(fixture: &Fixture<'_>, keys: Vec<Key>) {
    let store = fixture.store;
    let mut tasks = JoinSet::new();
    for writer in 0..fixture.options.writers {
        let (store, keys) = (store.clone(), keys.clone());
        tasks.spawn(async move {
            let source: Source = format!(r#"{{"creator":{writer}}}"#).into();
            let create = |key: Key| Write::new(key, WriteOp::Create(source.clone()));
            let writes: Vec<Write> = keys.into_iter().map(create).collect();
            (source.clone(), store.write_many(&writes).await)
        });
    }
    let answers = join(&mut tasks).await;
    for (at, key) in keys.iter().enumerate() {
        let of_key = || answers.iter().map(|(source, outcomes)| (source, &outcomes[at]));
        let applied: Vec<_> = of_key().filter(|(_, o)| matches!(o, Outcome::Applied(_))).collect();
        rule("one creator wins", applied.len() <= 1, &(key, &applied));
        let read = settled_read(store, key).await;
        if let Some((wrote, Outcome::Applied(at))) = applied.first() {
            let stands = crate::conformance::fixture::shows(&read, *at, wrote);
            rule("the document is that of the winning creator", stands, &(wrote, at, &read));
        }
        let some = of_key().any(|(_, o)| matches!(o, Outcome::Applied(_) | Outcome::Conflict));
        let found = matches!(read, Read::Found { .. });
        rule("after a create was applied or in conflict the document exists", !some || found, key);
    }
}

/// Waits for all tasks, and passes on a panic.
async fn join<T: 'static>(tasks: &mut JoinSet<T>) -> Vec<T> {
    let mut all = Vec::new();
    while let Some(done) = tasks.join_next().await {
        match done {
            Ok(value) => all.push(value),
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
    all
}

/// Repeats a primary read until it is answered.
async fn settled_read(store: &Arc<dyn Store>, key: &Key) -> Read {
    loop {
        let mut reads = store.read_primary(std::slice::from_ref(key)).await;
        rule("read_primary gives one read per key", reads.len() == 1, &reads);
        match reads.pop() {
            Some(Read::Unavailable(_)) | None => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Some(read) => return read,
        }
    }
}

fn counter(read: &Read) -> (Version, Counter) {
    let parsed = match read {
        Read::Found { version, source } => {
            serde_json::from_str(source).ok().map(|counter| (*version, counter))
        }
        _ => None,
    };
    rule("a counter is read back", parsed.is_some(), read);
    parsed.expect("checked above")
}

fn source(counter: &Counter) -> Source {
    serde_json::to_string(counter).expect("a counter is JSON").into()
}
