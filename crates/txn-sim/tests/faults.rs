//! The store with faults: each fault is as documented, and seeds repeat.
//!
//! Writers that settle their outcomes add up.

use std::sync::Arc;
use std::time::Duration;

use txn_sim::{CountingStore, FaultPlan, FaultStore, Injected, Scripted};
use txn_store::conformance::{self, Options, races};
use txn_store::{
    CollectionSpec, Filter, Key, MemoryStore, Outcome, Read, Role, Store, StoreErrorKind, Version,
    Write, WriteOp,
};

const COLLECTION: &str = "docs";

/// Returns a memory store with an empty collection, and faults over it.
async fn faulty(plan: FaultPlan) -> Arc<FaultStore> {
    let memory = MemoryStore::new();
    let (name, role) = (COLLECTION.to_owned(), Role::Data { owner: None });
    let spec = CollectionSpec { name, role, create: true, mappings: None };
    memory.open_collection(&spec).await.expect("memory opens it");
    Arc::new(FaultStore::new(Arc::new(memory), plan))
}

fn key(id: &str) -> Key {
    Key::new(COLLECTION, id)
}

async fn write(store: &FaultStore, op: WriteOp) -> Outcome {
    store.write_many(&[Write::new(key("1"), op)]).await.pop().expect("one answer")
}

/// Writes with faults disabled, so the write is applied.
async fn calmly(store: &FaultStore, op: WriteOp) -> Version {
    store.set_enabled(false);
    let outcome = write(store, op).await;
    store.set_enabled(true);
    match outcome {
        Outcome::Applied(version) => version,
        other => panic!("a calm write is applied, not {other:?}"),
    }
}

/// Returns the document on the primary, without faults.
async fn stands(store: &FaultStore) -> Read {
    store.set_enabled(false);
    let read = store.read_primary(&[key("1")]).await.pop().expect("one answer");
    store.set_enabled(true);
    read
}

fn create() -> WriteOp {
    WriteOp::Create(r#"{"by":"create"}"#.into())
}

fn replace(version: Version) -> WriteOp {
    WriteOp::Replace(r#"{"by":"replace"}"#.into(), version)
}

fn contains(read: &Read, text: &str) -> bool {
    matches!(read, Read::Found { source, .. } if source.contains(text))
}

#[tokio::test(start_paused = true)]
async fn applied_write_may_get_another_answer() {
    let store = faulty(FaultPlan::none(1).with_applied_conflict(1.0)).await;
    assert_eq!(write(&store, create()).await, Outcome::Conflict);
    assert!(contains(&stands(&store).await, "create"));
    assert_eq!(store.injected().applied_conflict, 1);
    assert_eq!(write(&store, create()).await, Outcome::Conflict);
    assert_eq!(store.injected().applied_conflict, 1, "a true conflict is no fault");

    let store = faulty(FaultPlan::none(1).with_applied_unknown(1.0)).await;
    assert!(matches!(write(&store, create()).await, Outcome::Unknown(_)));
    assert!(contains(&stands(&store).await, "create"));
}

#[tokio::test(start_paused = true)]
async fn applied_and_answered_with_a_refusal() {
    let store = faulty(FaultPlan::none(1).with_applied_rejected(1.0)).await;
    assert!(matches!(write(&store, create()).await, Outcome::RejectedInDoubt(_)));
    assert!(contains(&stands(&store).await, "create"));
    assert_eq!(write(&store, create()).await, Outcome::Conflict, "nothing to refuse");
    assert_eq!(store.injected().applied_rejected, 1);

    let store = faulty(FaultPlan::none(1).with_applied_missing(1.0)).await;
    assert_eq!(write(&store, create()).await, Outcome::MissingCollection);
    assert!(contains(&stands(&store).await, "create"));

    let store = faulty(FaultPlan::none(1).with_late_rejected(1.0)).await;
    assert!(matches!(write(&store, create()).await, Outcome::RejectedInDoubt(_)));
    assert_eq!(stands(&store).await, Read::Absent);
    store.settle().await;
    assert!(contains(&stands(&store).await, "create"));

    let store = faulty(FaultPlan::none(1).with_lost_rejected(1.0)).await;
    assert!(matches!(write(&store, create()).await, Outcome::RejectedInDoubt(_)));
    store.settle().await;
    assert_eq!(stands(&store).await, Read::Absent);
}

#[tokio::test(start_paused = true)]
async fn outage_follows_a_refusal_and_ends() {
    let second = Duration::from_secs(1);
    let plan = FaultPlan::none(1).with_applied_rejected(1.0).with_outage(1.0, second, second);
    let store = faulty(plan).await;
    assert!(matches!(write(&store, create()).await, Outcome::RejectedInDoubt(_)));
    assert_eq!(store.injected().outage, 1);
    for reads in [store.get_many(&[key("1")]).await, store.read_primary(&[key("1")]).await] {
        assert!(matches!(reads[..], [Read::Unavailable(_)]), "{reads:?}");
    }
    let page = store.scan(COLLECTION, &Filter::All, 10, None).await;
    assert_eq!(page.unwrap_err().kind, StoreErrorKind::Unavailable);
    let refreshed = store.refresh(COLLECTION).await;
    assert_eq!(refreshed.unwrap_err().kind, StoreErrorKind::Unavailable);
    let other = Write::new(key("2"), create());
    let outcomes = store.write_many(std::slice::from_ref(&other)).await;
    assert!(matches!(outcomes[..], [Outcome::Rejected(_)]), "{outcomes:?}");

    tokio::time::sleep(second).await;
    assert_eq!(store.get_many(&[key("2")]).await, [Read::Absent], "it was not carried out");
    assert!(contains(&store.get_many(&[key("1")]).await[0], "create"));
    // An outage of one collection.
    store.begin_outage(Some("another".into()), second);
    assert!(matches!(store.get_many(&[key("1")]).await[..], [Read::Found { .. }]));
    store.begin_outage(Some(COLLECTION.into()), second);
    assert!(matches!(store.get_many(&[key("1")]).await[..], [Read::Unavailable(_)]));
    // Disabling faults ends the outage.
    assert!(contains(&stands(&store).await, "create"));
}

#[tokio::test(start_paused = true)]
async fn lost_and_rejected_writes_are_never_applied() {
    let lost = FaultPlan::none(1).with_lost_unknown(1.0);
    let rejected = FaultPlan::none(1).with_rejected(1.0);
    for plan in [lost, rejected] {
        let store = faulty(plan).await;
        let outcome = write(&store, create()).await;
        assert!(matches!(outcome, Outcome::Unknown(_) | Outcome::Rejected(_)), "{outcome:?}");
        assert_eq!(matches!(outcome, Outcome::Rejected(_)), plan.rejected > 0.0);
        store.settle().await;
        assert_eq!(stands(&store).await, Read::Absent);
    }
}

#[tokio::test(start_paused = true)]
async fn late_writes_arrive_and_keep_their_condition() {
    let store = faulty(FaultPlan::none(1).with_late_unknown(1.0)).await;
    assert!(matches!(write(&store, create()).await, Outcome::Unknown(_)));
    assert_eq!(stands(&store).await, Read::Absent);
    store.settle().await;
    let Read::Found { version, .. } = stands(&store).await else { panic!("it has arrived") };

    assert!(matches!(write(&store, replace(version)).await, Outcome::Unknown(_)));
    let op = WriteOp::Replace(r#"{"by":"another"}"#.into(), version);
    calmly(&store, op).await;
    store.settle().await;
    assert!(contains(&stands(&store).await, "another"), "the late replace came too late");
}

#[tokio::test(start_paused = true)]
async fn repeated_create_restores_a_deleted_document() {
    let store = faulty(FaultPlan::none(1).with_create_twice(1.0)).await;
    let Outcome::Applied(version) = write(&store, create()).await else { panic!("is applied") };
    calmly(&store, WriteOp::Delete(version)).await;
    assert_eq!(stands(&store).await, Read::Absent);
    store.settle().await;
    assert!(contains(&stands(&store).await, "create"));
    assert_eq!(store.injected().create_twice, 1);

    // While the document exists, the second delivery has no effect.
    let Read::Found { version, .. } = stands(&store).await else { panic!("it is back") };
    assert!(matches!(write(&store, replace(version)).await, Outcome::Applied(_)));
    assert_eq!(write(&store, create()).await, Outcome::Conflict);
    store.settle().await;
    assert!(contains(&stands(&store).await, "replace"));
}

#[tokio::test(start_paused = true)]
async fn only_non_primary_reads_are_stale() {
    let store = faulty(FaultPlan::none(1).with_stale_read(1.0)).await;
    let get = async || store.get_many(&[key("1")]).await.pop().expect("one answer");
    assert_eq!(get().await, Read::Absent, "nothing else was ever seen");
    let first = calmly(&store, create()).await;
    assert_eq!(get().await, Read::Absent);
    let second = calmly(&store, replace(first)).await;
    let (mut absent, mut old) = (0, 0);
    for _ in 0..50 {
        match get().await {
            Read::Absent => absent += 1,
            Read::Found { version, .. } if version == first => old += 1,
            other => panic!("not an earlier content: {other:?}"),
        }
        let read = store.read_primary(&[key("1")]).await.pop().expect("one answer");
        assert!(matches!(read, Read::Found { version, .. } if version == second));
        let verify = write(&store, WriteOp::Verify(Some(first))).await;
        assert_eq!(verify, Outcome::Conflict);
    }
    assert!(absent > 5 && old > 5, "{absent} absent, {old} old");
}

#[tokio::test(start_paused = true)]
async fn missing_answers_are_unavailable() {
    let store = faulty(FaultPlan::none(1).with_read_unavailable(1.0)).await;
    for reads in [store.get_many(&[key("1")]).await, store.read_primary(&[key("1")]).await] {
        assert!(matches!(reads[..], [Read::Unavailable(_)]), "{reads:?}");
    }
    let store = faulty(FaultPlan::none(1).with_scan_unavailable(1.0)).await;
    let page = store.scan(COLLECTION, &Filter::All, 10, None).await;
    assert_eq!(page.unwrap_err().kind, StoreErrorKind::Unavailable);

    let store = faulty(FaultPlan::none(1).with_scan_hides(0.5)).await;
    let creates: Vec<Write> =
        (0..40).map(|at| Write::new(key(&at.to_string()), create())).collect();
    store.write_many(&creates).await;
    let page = store.scan(COLLECTION, &Filter::All, 100, None).await.unwrap();
    assert!((10..30).contains(&page.documents.len()), "{}", page.documents.len());
    assert_eq!(store.injected().scan_hides, 40 - page.documents.len() as u64);
    store.refresh(COLLECTION).await.unwrap();
    let page = store.scan(COLLECTION, &Filter::All, 100, None).await.unwrap();
    assert_eq!(page.documents.len(), 40, "what was refreshed is shown");
}

#[tokio::test(start_paused = true)]
async fn checks_and_verifies_are_answered_truly_or_not() {
    let store = faulty(FaultPlan::rough(5)).await;
    let version = calmly(&store, create()).await;
    for _ in 0..500 {
        for (op, wrong) in [
            (WriteOp::Verify(Some(version)), Outcome::Conflict),
            (WriteOp::Verify(None), Outcome::Holds),
            (WriteOp::Check("{}".into()), Outcome::Conflict),
        ] {
            assert_ne!(write(&store, op).await, wrong);
        }
    }
    store.settle().await;
    let Read::Found { version: now, .. } = stands(&store).await else { panic!("it stands") };
    assert_eq!(now, version);
}

/// Makes many calls of every kind, and returns every answer.
async fn story(seed: u64) -> (Vec<String>, Injected) {
    let store = faulty(FaultPlan::rough(seed)).await;
    let mut told = Vec::new();
    let mut version = Version::new(1, 1);
    for round in 0..100 {
        let keys: Vec<Key> = (0..5).map(|at| key(&format!("{}", (round + at) % 7))).collect();
        let ops = [create(), replace(version), WriteOp::Delete(version), WriteOp::Verify(None)];
        let writes: Vec<Write> =
            keys.iter().cloned().zip(ops).map(|(key, op)| Write::new(key, op)).collect();
        told.push(format!("{:?}", store.write_many(&writes).await));
        let reads = store.get_many(&keys).await;
        if let Some(Read::Found { version: v, .. }) = reads.get(2) {
            version = *v;
        }
        told.push(format!("{reads:?}"));
        told.push(format!("{:?}", store.scan(COLLECTION, &Filter::All, 3, None).await));
    }
    store.settle().await;
    (told, store.injected())
}

#[tokio::test(start_paused = true)]
async fn same_seed_gives_the_same_faults() {
    let (first, again, other) = (story(11).await, story(11).await, story(12).await);
    assert_eq!(first, again);
    assert_ne!(first.0, other.0);
    let kinds = first.1;
    assert!(kinds.applied_conflict * kinds.late_unknown * kinds.stale_read * kinds.delay > 0);
    assert!(kinds.to_string().contains("late"), "{kinds}");
}

/// Increments one counter this often.
///
/// The document holds every increment. `settles` decides whether the writer settles an answer that
/// is not `Applied`, or believes it.
async fn increments(store: Arc<FaultStore>, writer: u32, count: u32, settles: bool) {
    for target in 1..=count {
        let me = format!("w{writer}-{target}.");
        loop {
            let Some(Read::Found { version, source }) = store.read_primary(&[key("1")]).await.pop()
            else {
                continue;
            };
            // `log` holds every increment, so a writer recognises its own increment after later
            // ones.
            let log = source.strip_prefix(r#"{"log":""#).and_then(|s| s.strip_suffix(r#""}"#));
            let log = log.expect("a counter");
            let ours = settles && log.contains(&me);
            let log = if ours { log.to_owned() } else { format!("{log}{me}") };
            let op = WriteOp::Replace(format!(r#"{{"log":"{log}"}}"#).into(), version);
            // An acknowledged write on top of an increment proves the increment.
            if let Outcome::Applied(_) = write(&store, op).await {
                break;
            }
        }
    }
}

/// Returns the number of increments in the document, and the expected number.
async fn race(seed: u64, settles: bool) -> (usize, usize, Injected) {
    let (writers, count) = (6, 20);
    let store = faulty(FaultPlan::rough(seed)).await;
    calmly(&store, WriteOp::Create(r#"{"log":""}"#.into())).await;
    let tasks: Vec<_> = (0..writers)
        .map(|writer| tokio::spawn(increments(store.clone(), writer, count, settles)))
        .collect();
    for task in tasks {
        task.await.expect("no writer panics");
    }
    store.settle().await;
    let Read::Found { source, .. } = stands(&store).await else { panic!("it stands") };
    (source.matches('.').count(), (writers * count) as usize, store.injected())
}

#[tokio::test(start_paused = true)]
async fn writers_that_settle_outcomes_add_up() {
    for seed in 0..20 {
        let (stand, made, injected) = race(seed, true).await;
        assert_eq!(stand, made, "seed {seed}: {injected}");
        assert!(injected.applied_conflict + injected.late_unknown > 0, "{injected}");
    }
}

#[tokio::test(start_paused = true)]
async fn writers_that_trust_a_conflict_do_not_add_up() {
    let mut wrong = 0;
    for seed in 0..5 {
        let (stand, made, _) = race(seed, false).await;
        wrong += usize::from(stand != made);
    }
    assert!(wrong > 0, "the faults are harmless");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrappers_without_faults_pass_the_suite() {
    let scripted = Arc::new(Scripted::new(Arc::new(MemoryStore::new())));
    let calm = Arc::new(FaultStore::new(scripted, FaultPlan::none(1)));
    let counting = Arc::new(CountingStore::new(calm.clone()));
    conformance::run(counting.clone(), Options::new("wrapped").with_race(4, 10)).await;
    assert_eq!(calm.injected(), Injected::default());
    let counts = counting.counts();
    assert!(counts.requests() > 500, "{counts}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conformance_race_passes_with_faults() {
    let plan = FaultPlan::rough(9).with_delay(0.2, Duration::from_millis(1));
    let faulty = Arc::new(FaultStore::new(Arc::new(MemoryStore::new()), plan));
    let store: Arc<dyn Store> = faulty.clone();
    races(&store, &Options::new("rough").with_race(8, 15)).await;
    faulty.settle().await;
    assert!(faulty.injected().total() > 100, "{}", faulty.injected());
}
