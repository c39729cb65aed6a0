//! Sequences of operations on one document, against a sequential reference.
//!
//! The operations are put, insert, delete and get.

use proptest::prelude::*;
use txn_core::{Error, ErrorKind, LockMode, Options, ReadMode, Transaction};

use crate::support::{Item, Items, Setup, World};

#[derive(Clone, Copy, Debug)]
enum Step {
    Get,
    Put(i64),
    Insert(i64),
    Delete,
}

/// The steps on one document, and the settings around the steps.
#[derive(Clone, Debug)]
struct Plan {
    before: Option<i64>,
    steps: Vec<Step>,
    lock_mode: LockMode,
    read_mode: ReadMode,
    writes_another: bool,
}

/// The results of the steps in sequence, up to a refused insert.
///
/// `seen` has the content of each `get`. `end` has the last content, or `None` after a refusal.
struct Reference {
    seen: Vec<Option<i64>>,
    end: Option<Option<i64>>,
}

fn reference(plan: &Plan) -> Reference {
    let (mut now, mut seen) = (plan.before, Vec::new());
    for step in &plan.steps {
        match *step {
            Step::Get => seen.push(now),
            Step::Put(n) => now = Some(n),
            Step::Insert(_) if now.is_some() => return Reference { seen, end: None },
            Step::Insert(n) => now = Some(n),
            Step::Delete => now = None,
        }
    }
    Reference { seen, end: Some(now) }
}

/// Runs all steps, past refused inserts. Returns the contents of the reads.
async fn run(tx: &Transaction, items: &Items, steps: &[Step]) -> Vec<Option<i64>> {
    let mut seen = Vec::new();
    for step in steps {
        let done = match *step {
            Step::Get => tx.get(items, "a").await.map(|item| seen.push(item.map(|item| item.n))),
            Step::Put(n) => tx.put(items, "a", &Item { n }),
            Step::Insert(n) => tx.insert(items, "a", &Item { n }),
            Step::Delete => tx.delete(items, "a"),
        };
        if let Err(error) = done {
            assert_eq!((error.kind(), matches!(step, Step::Insert(_))), (ErrorKind::Exists, true));
        }
    }
    seen
}

async fn check(plan: &Plan) {
    let World { domain, items, .. }: World = Setup::default().open().await;
    if let Some(n) = plan.before {
        let first = domain.transact::<_, Error, _>(async |tx| tx.put(&items, "a", &Item { n }));
        first.await.expect("puts");
    }
    let options = Options::default().with_lock_mode(plan.lock_mode).with_read_mode(plan.read_mode);
    let tx = domain.begin(&options).expect("begins");
    if plan.writes_another {
        tx.put(&items, "b", &Item { n: 0 }).expect("buffers");
    }
    let seen = run(&tx, &items, &plan.steps).await;
    let committed = tx.commit().await;
    let expected = reference(plan);
    assert_eq!(seen[..expected.seen.len()], expected.seen);
    match expected.end {
        Some(_) => assert!(committed.is_ok(), "{committed:?}"),
        None => assert_eq!(committed.expect_err("refused").kind(), ErrorKind::Exists),
    }
    let found = domain.reader().verified().get_many(&items, ["a", "b"]).await.expect("reads");
    let found: Vec<Option<i64>> = found.into_iter().map(|item| item.map(|item| item.n)).collect();
    let other = expected.end.and(plan.writes_another.then_some(0));
    assert_eq!(found, [expected.end.unwrap_or(plan.before), other]);
    assert!(domain.shutdown(std::time::Duration::from_secs(5)).await, "drained");
    assert!(domain.admin().inspect().await.expect("inspects").is_clean());
}

fn plan() -> impl Strategy<Value = Plan> {
    let step = prop_oneof![
        Just(Step::Get),
        (10_i64..20).prop_map(Step::Put),
        (20_i64..30).prop_map(Step::Insert),
        Just(Step::Delete),
    ];
    let before = prop_oneof![Just(None), Just(Some(1))];
    let steps = prop::collection::vec(step, 1..=6);
    let lock_mode = prop_oneof![Just(LockMode::AtCommit), Just(LockMode::AtRead)];
    let read_mode = prop_oneof![4 => Just(ReadMode::Validate), 1 => Just(ReadMode::Lock)];
    (before, steps, lock_mode, read_mode, any::<bool>()).prop_map(
        |(before, steps, lock_mode, read_mode, writes_another)| Plan {
            before,
            steps,
            lock_mode,
            read_mode,
            writes_another,
        },
    )
}

fn in_virtual_time(plan: &Plan) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(check(plan));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn sequence_on_one_document_matches_the_reference(plan in plan()) {
        in_virtual_time(&plan);
    }
}

#[test]
fn withdrawn_insert_changes_no_existing_document() {
    for steps in [
        vec![Step::Insert(2), Step::Delete],
        vec![Step::Insert(2), Step::Delete, Step::Insert(3)],
        vec![Step::Insert(2), Step::Delete, Step::Put(3)],
    ] {
        for lock_mode in [LockMode::AtCommit, LockMode::AtRead] {
            let steps = steps.clone();
            let (read_mode, writes_another) = (ReadMode::Validate, false);
            let plan = Plan { before: Some(1), steps, lock_mode, read_mode, writes_another };
            assert!(reference(&plan).end.is_none());
            in_virtual_time(&plan);
        }
    }
}
