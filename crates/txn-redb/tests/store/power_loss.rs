//! Power losses lose no acknowledged write, and split no request.
//!
//! A store writes until its disk loses the power. The next store opens the bytes that survived. So
//! a chain of stores has one power loss each, some of them during the opening and its repair.
//! `TXN_REDB_POWER_LOSSES=100000` tries more power losses.

use std::collections::BTreeMap;

use txn_redb::{RedbConfig, RedbStore};
use txn_store::{Key, Outcome, Read, Store, Version, Write, WriteOp};

use crate::disk::{Dice, Disk, Sync};
use crate::spec;

/// The number of power losses in a test run.
const FEW: usize = 1_500;
/// The number of power losses of one chain.
const LIVES: usize = 25;
/// The number of documents, and the number that one request writes.
const DOCUMENTS: usize = 40;
const TOGETHER: usize = 4;

/// A document: its number and its version.
type Content = (u64, Version);

/// The expected state.
#[derive(Debug, Default)]
struct Expected {
    acknowledged: BTreeMap<String, Content>,
    /// The numbers that the request of the power loss writes. A deletion has none.
    under_way: BTreeMap<String, Option<u64>>,
    /// The largest version so far.
    last: u64,
    count: u64,
}

/// The number of survived power losses. A second number counts those with acknowledged writes.
#[derive(Debug, Default)]
struct Survived {
    losses: usize,
    acknowledged: usize,
    /// How often the request of the power loss was there afterwards.
    landed: usize,
    during_opening: usize,
}

fn source(n: u64, length: usize) -> String {
    format!(r#"{{"n":{n},"text":"{}"}}"#, "x".repeat(length))
}

fn number(source: &str) -> Option<u64> {
    serde_json::from_str::<serde_json::Value>(source).ok()?["n"].as_u64()
}

async fn contents(store: &RedbStore) -> Result<BTreeMap<String, Content>, String> {
    let keys: Vec<Key> = (0..DOCUMENTS).map(|n| Key::new("c", n.to_string())).collect();
    let mut found = BTreeMap::new();
    for (key, read) in keys.iter().zip(store.read_primary(&keys).await) {
        match read {
            Read::Found { version, source } => {
                let n = number(&source).ok_or(format!("{} has half a document", key.id))?;
                found.insert(key.id.to_string(), (n, version));
            }
            Read::Absent => {}
            other => return Err(format!("{} cannot be read: {other:?}", key.id)),
        }
    }
    Ok(found)
}

impl Expected {
    /// Compares the contents after a power loss. Returns whether the last request landed.
    fn compare(&mut self, found: BTreeMap<String, Content>) -> Result<bool, String> {
        let mut landed = Vec::new();
        for (id, wanted) in &self.under_way {
            let there = found.get(id).map(|(n, _)| *n);
            let before = self.acknowledged.get(id).map(|(n, _)| *n);
            if there != *wanted && there != before {
                return Err(format!("{id} has {there:?}, not {before:?} or {wanted:?}"));
            }
            landed.push(there == *wanted);
        }
        let has_landed = landed.first().copied().unwrap_or(false);
        if landed.iter().any(|one| *one != has_landed) {
            return Err(format!("the request is half there: {:?}", self.under_way));
        }
        for n in 0..DOCUMENTS {
            let id = n.to_string();
            let (was, is) = (self.acknowledged.get(&id), found.get(&id));
            if self.under_way.contains_key(&id) && has_landed {
                if is.is_some_and(|(_, version)| version.seq_no <= self.last) {
                    return Err(format!("{id} has a version that was used before: {is:?}"));
                }
            } else if was != is {
                return Err(format!("{id} was acknowledged as {was:?}, and is {is:?}"));
            }
        }
        let versions = found.values().map(|(_, version)| version.seq_no);
        self.last = versions.max().unwrap_or_default().max(self.last);
        self.acknowledged = found;
        self.under_way.clear();
        Ok(has_landed)
    }

    /// Returns the next request: some documents that are written or deleted.
    fn next(&mut self, dice: &mut Dice) -> Vec<Write> {
        let first = dice.below(DOCUMENTS);
        let length = [0, 30, 700, 5_000][dice.below(4)];
        let mut writes = Vec::new();
        for n in first..first + TOGETHER {
            let id = (n % DOCUMENTS).to_string();
            self.count += 1;
            let text = source(self.count, length).into();
            let old = self.acknowledged.get(&id).map(|(_, version)| *version);
            let (op, wanted) = match old {
                None => (WriteOp::Create(text), Some(self.count)),
                Some(old) if dice.below(5) == 0 => (WriteOp::Delete(old), None),
                Some(old) => (WriteOp::Replace(text, old), Some(self.count)),
            };
            writes.push(Write::new(Key::new("c", id.clone()), op));
            self.under_way.insert(id, wanted);
        }
        writes
    }

    /// Notes an acknowledged request.
    fn acknowledge(&mut self, writes: &[Write], outcomes: &[Outcome]) -> Result<(), String> {
        for (write, outcome) in writes.iter().zip(outcomes) {
            let Outcome::Applied(version) = outcome else {
                return Err(format!("{} was refused with the power on: {outcome:?}", write.key.id));
            };
            let id = write.key.id.to_string();
            self.last = self.last.max(version.seq_no);
            match self.under_way.remove(&id).flatten() {
                Some(n) => self.acknowledged.insert(id, (n, *version)),
                None => self.acknowledged.remove(&id),
            };
        }
        Ok(())
    }
}

/// Runs one store until its power loss. Returns the bytes that survive.
async fn live(
    bytes: Vec<u8>,
    expected: &mut Expected,
    dice: &mut Dice,
    sync: Sync,
    survived: &mut Survived,
) -> Result<Vec<u8>, String> {
    let disk = Disk::new(bytes, 1 + dice.below(120), sync);
    survived.losses += 1;
    let config = RedbConfig::default().with_cache_bytes(1 << 20);
    let store = match RedbStore::open_backend("disk", disk.clone(), &config) {
        Ok(store) => store,
        Err(_) if disk.is_off() => {
            survived.during_opening += 1;
            return Ok(disk.survivors(dice));
        }
        Err(error) => return Err(error.to_string()),
    };
    match contents(&store).await {
        Ok(found) => survived.landed += usize::from(expected.compare(found)?),
        Err(_) if disk.is_off() => return Ok(disk.survivors(dice)),
        Err(why) => return Err(why),
    }
    loop {
        let writes = expected.next(dice);
        let outcomes = store.write_many(&writes).await;
        if disk.is_off() && !outcomes.iter().all(|one| matches!(one, Outcome::Applied(_))) {
            // Closing first: redb would also write at its end, and the disk is off.
            drop(store);
            return Ok(disk.survivors(dice));
        }
        expected.acknowledge(&writes, &outcomes)?;
        survived.acknowledged += 1;
    }
}

/// Runs a chain of stores. Returns the first violation.
async fn chain(seed: u64, sync: Sync, survived: &mut Survived) -> Result<(), String> {
    let mut dice = Dice::new(seed);
    let mut expected = Expected::default();
    // The file exists before the first power loss, and its collection too.
    let disk = Disk::new(Vec::new(), usize::MAX, Sync::Honest);
    let store = RedbStore::open_backend("disk", disk.clone(), &RedbConfig::default());
    let store = store.map_err(|error| error.to_string())?;
    store.open_collection(&spec("c", None)).await.map_err(|error| error.to_string())?;
    drop(store);
    let mut bytes = disk.survivors(&mut dice);
    for life in 0..LIVES {
        bytes = live(bytes, &mut expected, &mut dice, sync, survived)
            .await
            .map_err(|why| format!("seed {seed}, power loss {life}: {why}"))?;
    }
    Ok(())
}

fn losses() -> usize {
    let count = std::env::var("TXN_REDB_POWER_LOSSES").ok();
    count.and_then(|count| count.parse().ok()).unwrap_or(FEW)
}

#[tokio::test]
async fn power_loss_loses_no_acknowledged_write() {
    let mut survived = Survived::default();
    for seed in 0.. {
        if survived.losses >= losses() {
            break;
        }
        chain(seed, Sync::Honest, &mut survived).await.unwrap_or_else(|why| panic!("{why}"));
    }
    println!("{survived:?}");
    let Survived { losses, acknowledged, landed, during_opening } = survived;
    assert!(acknowledged > losses, "few requests were acknowledged");
    assert!(landed > 0 && landed < losses, "no request landed, or each one");
    assert!(during_opening > 0, "no power loss during an opening");
}

#[tokio::test]
async fn disk_that_lies_about_a_sync_is_noticed() {
    let mut noticed = 0;
    for seed in 0..10 {
        noticed += usize::from(chain(seed, Sync::Lying, &mut Survived::default()).await.is_err());
    }
    assert_eq!(noticed, 10, "an acknowledgement before the sync was not noticed");
}

#[tokio::test]
async fn same_seed_gives_the_same_bytes() {
    let mut both = Vec::new();
    for _ in 0..2 {
        let (mut dice, mut expected) = (Dice::new(7), Expected::default());
        let disk = Disk::new(Vec::new(), usize::MAX, Sync::Honest);
        let store = RedbStore::open_backend("disk", disk.clone(), &RedbConfig::default()).unwrap();
        store.open_collection(&spec("c", None)).await.unwrap();
        drop(store);
        let mut bytes = disk.survivors(&mut dice);
        for _ in 0..5 {
            let survived = &mut Survived::default();
            bytes = live(bytes, &mut expected, &mut dice, Sync::Honest, survived).await.unwrap();
        }
        both.push(bytes);
    }
    assert!(both[0] == both[1], "two runs of one seed differ");
}

#[test]
fn half_a_request_is_noticed() {
    let version = |seq_no| Version { incarnation: 1, term: 1, seq_no };
    let mut expected = Expected { last: 2, ..Expected::default() };
    for (id, n) in [("1", 1), ("2", 2)] {
        expected.acknowledged.insert(id.to_owned(), (n, version(n)));
        expected.under_way.insert(id.to_owned(), Some(n + 2));
    }
    let mut found = expected.acknowledged.clone();
    found.insert("1".to_owned(), (3, version(3)));
    assert!(expected.compare(found.clone()).unwrap_err().contains("half there"));
    found.insert("2".to_owned(), (4, version(4)));
    assert_eq!(expected.compare(found), Ok(true));
    assert!(expected.compare(BTreeMap::new()).unwrap_err().contains("acknowledged"));
}
