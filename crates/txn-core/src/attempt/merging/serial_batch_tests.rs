use std::time::Duration;

use proptest::prelude::*;
use txn_protocol::document::{Stored, View};
use txn_protocol::rules::testing::{self, tid, version};
use txn_protocol::rules::validate::Observed;

use super::*;
use crate::attempt::Edit;

/// The contents of the documents 0 to 2.
type State = [Option<u8>; 3];

/// A call of a transaction on a document.
#[derive(Clone, Copy, Debug)]
enum Call {
    Read,
    Put(u8),
    Insert(u8),
    Delete,
    /// Write a content that depends on the content that is read.
    Add,
}

fn key(n: usize) -> Key {
    Key::new("c", n.to_string())
}

fn image(n: u8) -> Image {
    Image::parse(&format!(r#"{{"n":{n}}}"#)).expect("valid")
}

/// The entry of a read when `state` is committed at `at`.
fn found(state: &State, at: u8, n: usize) -> ReadEntry {
    let view = match state[n] {
        None => View::Absent,
        Some(content) => {
            let stored = Stored {
                commit_version: Some(testing::commit(at)),
                image: image(content),
                ..Stored::default()
            };
            View::Present { version: version(at.into()), source: stored.encode(), stored }
        }
    };
    ReadEntry { observed: Observed::of(&view), view, read_at: Duration::from_secs(at.into()) }
}

/// Runs the calls. Returns the reads and writes, or an error.
fn run(
    calls: &[(usize, Call)],
    look: impl Fn(usize) -> ReadEntry,
) -> Result<(ReadWriteSet, Vec<Option<Image>>), ()> {
    let mut working = ReadWriteSet::default();
    let mut seen = Vec::new();
    for (n, call) in calls {
        let key = key(*n);
        let read = |working: &mut ReadWriteSet| match working.writes.get(&key) {
            Some(mutation) => mutation.image().cloned(),
            None => {
                working.note_read(key.clone(), look(*n));
                working.reads[&key].observed.image.clone()
            }
        };
        let edit = match call {
            Call::Read => {
                seen.push(read(&mut working));
                continue;
            }
            Call::Add => {
                let before = read(&mut working);
                seen.push(before.clone());
                let text = before.map_or(0, |image| image.as_str().len());
                Edit::Put(image(u8::try_from(text % 200).expect("small")))
            }
            Call::Put(content) => Edit::Put(image(*content)),
            Call::Insert(content) => Edit::Insert(image(*content)),
            Call::Delete => Edit::Delete,
        };
        let mutation = Mutation::after(working.writes.get(&key), edit).ok_or(())?;
        working.note_write(key, mutation);
    }
    Ok((working, seen))
}

/// The state after a commit of these writes.
///
/// `None` if an insert finds an existing document.
fn commit(images: &[Option<Image>; 3], working: &ReadWriteSet) -> Option<[Option<Image>; 3]> {
    let mut after = images.clone();
    for (key, mutation) in &working.writes {
        let n: usize = key.id.parse().expect("a number");
        let must_be_new = matches!(mutation, Mutation::Insert(_) | Mutation::Withdrawn);
        if must_be_new && images[n].is_some() {
            return None;
        }
        after[n] = mutation.image().cloned();
    }
    Some(after)
}

fn call() -> impl Strategy<Value = (usize, Call)> {
    let call = prop_oneof![
        Just(Call::Read),
        any::<u8>().prop_map(Call::Put),
        any::<u8>().prop_map(Call::Insert),
        Just(Call::Delete),
        Just(Call::Add),
    ];
    (0_usize..3, call)
}

fn transactions() -> impl Strategy<Value = Vec<(Vec<(usize, Call)>, bool)>> {
    let one = (proptest::collection::vec(call(), 1..5), any::<bool>());
    proptest::collection::vec(one, 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// A merged batch has the result of a serial execution.
    ///
    /// The closures run on an old state, or on the batch so far.
    #[test]
    fn merged_batch_equals_serial_execution(
        old in any::<State>(),
        now in any::<State>(),
        transactions in transactions(),
    ) {
        let mut batch = SerialBatch::new(tid(9, 0));
        for n in 0..3 {
            batch.seed_read(&key(n), found(&now, 2, n));
        }
        let mut serial = now.map(|content| content.map(image));
        for (calls, is_old) in transactions {
            let ran = match is_old {
                true => run(&calls, |n| found(&old, 1, n)),
                false => run(&calls, |n| batch.read(&key(n)).expect("known")),
            };
            let Ok((working, seen)) = ran else { continue };
            if batch.merge(&working) != Merge::Merged {
                continue;
            }
            // A run without a batch at this position reads the same, and its writes come to the
            // same.
            let here = serial.clone();
            let look = |n: usize| {
                let mut entry = found(&[None; 3], 1, n);
                entry.observed.image = here[n].clone();
                entry
            };
            let (alone, seen_alone) = run(&calls, look).expect("it ran before");
            prop_assert_eq!(seen, seen_alone);
            serial = commit(&serial, &alone).expect("it is not refused");
        }
        let before = now.map(|content| content.map(image));
        let working = batch.working();
        for (key, read) in &working.reads {
            let n: usize = key.id.parse().expect("a number");
            prop_assert_eq!(&read.observed.image, &before[n]);
        }
        prop_assert_eq!(commit(&before, &working), Some(serial));
    }
}

#[test]
fn batch_uses_the_latest_read() {
    let (old, new) = ([Some(1), None, None], [Some(2), None, None]);
    let mut batch = SerialBatch::new(tid(9, 0));
    for (state, at) in [(&old, 1), (&new, 2), (&old, 1)] {
        batch.seed_read(&key(0), found(state, at, 0));
    }
    let look = batch.read(&key(0)).expect("known");
    assert_eq!(look.observed.image, Some(image(2)));
    assert!(batch.read(&key(1)).is_none());
    let (working, _) = run(&[(0, Call::Add)], |n| found(&old, 1, n)).expect("it runs");
    assert_eq!(batch.merge(&working), Merge::StaleRead);
    assert!(batch.working().reads.is_empty());
}

#[test]
fn known_version_is_compared_besides_the_content() {
    let state = [Some(1), None, None];
    let read = |at| {
        let run = run(&[(0, Call::Read), (1, Call::Read)], |n| found(&state, at, n));
        run.expect("it runs").0
    };
    let knowing = |at| ReadWriteSet { known_versions: [key(0), key(1)].into(), ..read(at) };
    let mut batch = SerialBatch::new(tid(9, 0));
    batch.seed_read(&key(0), found(&state, 2, 0));
    assert_eq!(batch.merge(&read(1)), Merge::Merged);
    assert_eq!(batch.merge(&knowing(1)), Merge::StaleRead);
    assert_eq!(batch.merge(&knowing(2)), Merge::Merged);
    let (again, _) = run(&[(0, Call::Put(1))], |n| found(&state, 2, n)).expect("it runs");
    assert_eq!(batch.merge(&again), Merge::Merged);
    assert_eq!(batch.merge(&read(2)), Merge::Merged);
    assert_eq!(batch.merge(&knowing(2)), Merge::StaleRead);
}
