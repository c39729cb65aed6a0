//! Random requests against a sequential reference, and their reversals.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};
use txn_core::store::MemoryStore;
use txn_core::{Collection, Config, Domain, Typed};
use txn_requests::{
    Add, Condition, Document, Expect, Field, Merge, Operation, Put, Request, RequestError,
    Requests, RequestsConfig, Target,
};

type World = BTreeMap<String, Value>;

/// Executes an operation on the reference. Returns `false` for a refusal.
fn reference(world: &mut World, operation: &Operation) -> bool {
    let id = operation.target().id.clone();
    let parsed = |put: &Put| serde_json::from_str::<Value>(put.document.as_str()).expect("JSON");
    match operation {
        Operation::Put(put) => drop(world.insert(id, parsed(put))),
        Operation::Insert(put) => {
            if world.contains_key(&id) {
                return false;
            }
            world.insert(id, parsed(put));
        }
        Operation::Delete(_) => drop(world.remove(&id)),
        Operation::Merge(merge) => {
            let Some(Value::Object(found)) = world.get_mut(&id) else { return false };
            for (name, value) in &merge.patch {
                match value {
                    Value::Null => drop(found.remove(name)),
                    value => drop(found.insert(name.clone(), value.clone())),
                }
            }
        }
        Operation::Add(add) => {
            let Some(number) = world.get(&id).and_then(|found| found.get("n")) else {
                return false;
            };
            let Some(number) = number.as_i64() else { return false };
            let sum = number + add.amount.as_i64().expect("whole");
            if add.min.as_ref().is_some_and(|min| sum < min.as_i64().expect("whole")) {
                return false;
            }
            world.get_mut(&id).expect("exists")["n"] = json!(sum);
        }
        Operation::Expect(expect) => match &expect.that {
            Condition::Exists(exists) => return world.contains_key(&id) == *exists,
            Condition::Field(Field { equals, .. }) => {
                return world
                    .get(&id)
                    .is_some_and(|found| found.get("n").unwrap_or(&Value::Null) == equals);
            }
            other => panic!("not generated: {other:?}"),
        },
        other => panic!("not generated: {other:?}"),
    }
    true
}

fn document() -> impl Strategy<Value = Value> {
    (proptest::option::of(-5_i64..5), proptest::option::of("[ab]{1,2}")).prop_map(|(n, s)| {
        let mut document = serde_json::Map::new();
        document.extend(n.map(|n| ("n".to_owned(), json!(n))));
        document.extend(s.map(|s| ("s".to_owned(), json!(s))));
        Value::Object(document)
    })
}

fn operation() -> impl Strategy<Value = Operation> {
    let target = (0..3).prop_map(|at| Target::new("things", format!("t{at}")));
    let what = (0..7, document(), -3_i64..4, any::<bool>());
    (target, what).prop_map(|(target, (kind, value, number, flag))| {
        let document = Document::new(&value).expect("an object");
        let path = "/n".to_owned();
        match kind {
            0 => Operation::put(target, document),
            1 => Operation::insert(target, document),
            2 => Operation::Delete(target),
            3 => {
                let patch = [("s".to_owned(), json!(number)), ("n".to_owned(), value["n"].clone())];
                Operation::Merge(Merge { target, patch: patch.into_iter().collect() })
            }
            4 | 5 => {
                let min = flag.then(|| 0.into());
                Operation::Add(Add { target, path, amount: number.into(), min, max: None })
            }
            _ if flag => Operation::Expect(Expect { target, that: Condition::Exists(number > 0) }),
            _ => {
                let equals = value["n"].clone();
                let that = Condition::Field(Field { path, equals });
                Operation::Expect(Expect { target, that })
            }
        }
    })
}

async fn read(domain: &Domain, things: &Collection<Typed<Value>>) -> World {
    let ids = ["t0", "t1", "t2"];
    let found = domain.reader().verified().get_many(things, ids).await.expect("reads");
    let pairs = ids.into_iter().zip(found);
    pairs.filter_map(|(id, value)| Some((id.to_owned(), value?))).collect()
}

async fn check(before: World, operations: Vec<Operation>) {
    let config = Config::default().with_janitor_interval(None);
    let domain =
        Domain::open_or_create(Arc::new(MemoryStore::new()), "test", config).await.expect("opens");
    let things = domain.create_collection::<Typed<Value>>("things", None).await.expect("opens");
    domain
        .transact::<_, txn_core::Error, _>(async |tx| {
            before.iter().try_for_each(|(id, value)| tx.put(&things, id, value))
        })
        .await
        .expect("written");
    let requests = Requests::open(&domain, RequestsConfig::default()).await.expect("opens");
    let mut expected = before.clone();
    let refused_at = operations.iter().position(|operation| !reference(&mut expected, operation));
    let done = requests.execute(&Request::new(operations), "one").await;
    match (done, refused_at) {
        (Err(RequestError::Refused(refusal)), Some(at)) => {
            assert_eq!(refusal.operation, at);
            assert_eq!(read(&domain, &things).await, before, "it was refused");
        }
        (Ok(_), None) => {
            assert_eq!(read(&domain, &things).await, expected);
            match requests.reverse("one", "back").await {
                Ok(_) => {
                    requests.process_open(None).await.expect("looks");
                    let back = requests.status("back").await.expect("known");
                    // Bounds apply to the reversal, too. If the bounds hold, the reversal restores
                    // all documents.
                    match back.state.is_committed() {
                        true => assert_eq!(read(&domain, &things).await, before),
                        false => assert_eq!(read(&domain, &things).await, expected, "{back:?}"),
                    }
                }
                Err(RequestError::Invalid(_)) => assert_eq!(before, expected, "nothing to reverse"),
                Err(error) => panic!("{error}"),
            }
        }
        (done, at) => panic!("{done:?} where the reference was refused at {at:?}"),
    }
    requests.shutdown(std::time::Duration::from_secs(30)).await;
    domain.shutdown(std::time::Duration::from_secs(30)).await;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn requests_and_reversals_match_the_reference(
        before in proptest::collection::btree_map("t[0-2]", document(), 0..3),
        operations in proptest::collection::vec(operation(), 1..7),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("starts");
        runtime.block_on(check(before, operations));
    }
}
