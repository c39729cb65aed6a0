//! Execution of a request's operations, and the notes for their reversal.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value};
use txn_core::store::Key;
use txn_core::{Collection, CommitVersion, DocumentId, Error, Raw, Transaction, Typed};
use txn_lock::exact;

use crate::contents::number::{compare, negated, sum};
use crate::contents::patch::{self, CopyBudget};
use crate::contents::refusal::{Refusal, Why};
use crate::contents::request::{
    Add, Condition, Document, Expect, Field, Operation, Patch, Put, Target,
};

/// The reason why the operations were not executed.
#[derive(Debug)]
pub(crate) enum Stop {
    Refused(Box<Refusal>),
    Engine(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}

/// A collection, for documents as text and as values.
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    pub(crate) raw: Collection<Raw>,
    pub(crate) values: Collection<Typed<Value>>,
}

/// The collections that a request names.
pub(crate) type Handles = BTreeMap<String, Handle>;

/// The reversal of a request's effect on one document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Undo {
    /// Adds the same amounts with the other sign. Other requests may have added in the meantime.
    Add(Add),
    /// Restores the previous content, unless another transaction has changed the document.
    Restore {
        target: Target,
        before: Option<Document>,
        /// Whether the request left a document.
        left: bool,
    },
}

impl Undo {
    /// The reversing operations of a request with this commit version.
    pub(crate) fn operations(steps: &[Self], version: CommitVersion) -> Vec<Operation> {
        let mut operations = Vec::new();
        for step in steps {
            let (target, before, left) = match step {
                Self::Add(add) => {
                    operations.push(Operation::Add(add.clone()));
                    continue;
                }
                Self::Restore { target, before, left } => (target, before, *left),
            };
            let that = match left {
                true => Condition::Version(version.to_string()),
                false => Condition::Exists(false),
            };
            operations.push(Operation::Expect(Expect { target: target.clone(), that }));
            operations.push(match before.clone() {
                Some(document) => Operation::Put(Put { target: target.clone(), document }),
                None => Operation::Delete(target.clone()),
            });
        }
        operations
    }
}

/// Executes the operations. Their `copy` steps add at most `most_copied` bytes.
///
/// After a refusal the transaction must not commit.
pub(crate) async fn carry_out(
    tx: &Transaction,
    handles: &Handles,
    operations: &[Operation],
    most_copied: usize,
) -> Result<Vec<Undo>, Stop> {
    // Compares physical names, because an alias may name the same collection.
    let mut keys = Vec::with_capacity(operations.len());
    for target in operations.iter().map(Operation::target) {
        keys.push(handle(handles, target)?.raw.key(id_of(target)));
    }
    tx.prefetch(keys.iter().cloned()).await?;
    let mut before: BTreeMap<&Key, (&Target, Option<Document>)> = BTreeMap::new();
    for (key, target) in keys.iter().zip(operations.iter().map(Operation::target)) {
        if !before.contains_key(key) {
            before.insert(key, (target, content(tx, handles, target).await?));
        }
    }
    perform(tx, handles, operations, most_copied).await?;
    let mut steps = Vec::new();
    for (key, (target, before)) in before {
        let on_it = || keys.iter().zip(operations).filter(|(of, _)| *of == key).map(|(_, on)| on);
        let changes = || on_it().filter(|operation| !matches!(operation, Operation::Expect(_)));
        if changes().all(|operation| matches!(operation, Operation::Add(_))) {
            for operation in changes() {
                let Operation::Add(add) = operation else { continue };
                // The validation of the request guarantees that each amount has an opposite.
                let Some(amount) = negated(&add.amount) else { continue };
                steps.push(Undo::Add(Add { amount, ..add.clone() }));
            }
            continue;
        }
        let left = content(tx, handles, target).await?.is_some();
        if left || before.is_some() {
            steps.push(Undo::Restore { target: target.clone(), before, left });
        }
    }
    Ok(steps)
}

/// Executes the operations, without notes for a reversal.
///
/// After a refusal the transaction must not commit.
pub(crate) async fn perform(
    tx: &Transaction,
    handles: &Handles,
    operations: &[Operation],
    most_copied: usize,
) -> Result<(), Stop> {
    let mut read = Vec::new();
    for operation in operations {
        // The other operations write without a read.
        if !matches!(operation, Operation::Put(_) | Operation::Delete(_)) {
            let target = operation.target();
            read.push(handle(handles, target)?.raw.key(id_of(target)));
        }
    }
    tx.prefetch(read).await?;
    // Checks versions before the first write, because a write hides the version of a document.
    for (at, operation) in operations.iter().enumerate() {
        if let Operation::Expect(Expect { target, that: Condition::Version(version) }) = operation {
            let raw = &handle(handles, target)?.raw;
            let found = tx.version(raw, id_of(target)).await?.map(|tid| tid.to_string());
            if found.as_deref() != Some(&**version) {
                let current = found.map(Value::from);
                return Err(refused(at, target, None, Why::VersionDiffers, current));
            }
        }
    }
    let mut copies = CopyBudget::new(most_copied);
    for (at, operation) in operations.iter().enumerate() {
        carry_out_one(tx, handles, at, operation, &mut copies).await?;
    }
    Ok(())
}

async fn carry_out_one(
    tx: &Transaction,
    handles: &Handles,
    at: usize,
    operation: &Operation,
    copies: &mut CopyBudget,
) -> Result<(), Stop> {
    let target = operation.target();
    let of = handle(handles, target)?;
    let Handle { raw, .. } = of;
    let refuse = |path: Option<&str>, why, current| Err(refused(at, target, path, why, current));
    match operation {
        Operation::Put(put) => tx.put(raw, id_of(target), &Raw::new(put.document.as_str()))?,
        Operation::Insert(put) => {
            if tx.get(raw, id_of(target)).await?.is_some() {
                return refuse(None, Why::Exists, None);
            }
            tx.put(raw, id_of(target), &Raw::new(put.document.as_str()))?;
        }
        Operation::Delete(_) => tx.delete(raw, id_of(target))?,
        Operation::Merge(merge) => {
            let patch = Value::Object(merge.patch.clone());
            change(tx, of, at, target, |value| {
                json_patch::merge(value, &patch);
                Ok(())
            })
            .await?;
        }
        Operation::Patch(Patch { patch: json_patch::Patch(steps), .. }) => {
            change(tx, of, at, target, |value| {
                patch::apply(value, steps, copies).map_err(|(step, why)| {
                    let path = steps.get(step).map(|step| step.path().as_str().to_owned());
                    let current = path.as_deref().and_then(|path| value.pointer(path).cloned());
                    (path, why, current)
                })
            })
            .await?;
        }
        Operation::Add(add) => {
            let Some(text) = tx.get(raw, id_of(target)).await? else {
                return refuse(None, Why::Missing, None);
            };
            match add_to(text.as_str(), add) {
                Ok(text) => tx.put(raw, id_of(target), &Raw::new(text))?,
                Err((path, why, current)) => return refuse(path.as_deref(), why, current),
            }
        }
        // The loop above has checked all versions.
        Operation::Expect(Expect { that: Condition::Version(_), .. }) => {}
        Operation::Expect(expect) => {
            let content = tx.get(raw, id_of(target)).await?;
            let text = content.as_ref().map(Raw::as_str);
            if let Err((path, why, current)) = check(text, &expect.that) {
                return refuse(path.as_deref(), why, current);
            }
        }
    }
    Ok(())
}

/// Checks a condition on a document's text, except its version.
fn check(text: Option<&str>, condition: &Condition) -> Result<(), Misfit> {
    match (condition, text) {
        (Condition::Exists(true), None) => Err((None, Why::Missing, None)),
        (Condition::Exists(false), Some(_)) => Err((None, Why::Exists, None)),
        (Condition::Exists(_) | Condition::Version(_), _) => Ok(()),
        (Condition::Field(Field { path, .. }), None) => {
            Err((Some(path.clone()), Why::Missing, None))
        }
        (Condition::Field(Field { path, equals }), Some(text)) => {
            let found = exact::pointer(text, path);
            if exact::same(found.unwrap_or("null"), &equals.to_string()) {
                return Ok(());
            }
            let found = found.and_then(|found| serde_json::from_str(found).ok());
            Err((Some(path.clone()), Why::FieldDiffers, found))
        }
    }
}

/// Adds an amount to a number of a document's text. All other bytes stay.
fn add_to(text: &str, add: &Add) -> Result<String, Misfit> {
    let fail = |why, current| Err((Some(add.path.clone()), why, current));
    let Some(found) = exact::pointer(text, &add.path) else {
        return fail(Why::NotANumber, None);
    };
    let current = || serde_json::from_str(found).ok();
    let number = match serde_json::from_str::<Number>(found) {
        Ok(number) if exact::is_exact(found) => number,
        _ if found.starts_with(|c: char| c == '-' || c.is_ascii_digit()) => {
            return fail(Why::WouldRound, None);
        }
        _ => return fail(Why::NotANumber, current()),
    };
    match added(&number, add) {
        Ok(sum) => Ok(exact::replaced(text, found, &sum.to_string())),
        Err(why) => fail(why, current()),
    }
}

fn added(found: &Number, add: &Add) -> Result<Number, Why> {
    let sum = sum(found, &add.amount).ok_or(Why::Overflow)?;
    if add.min.as_ref().is_some_and(|min| compare(&sum, min).is_lt()) {
        return Err(Why::BelowMinimum);
    }
    if add.max.as_ref().is_some_and(|max| compare(&sum, max).is_gt()) {
        return Err(Why::AboveMaximum);
    }
    Ok(sum)
}

/// A change that does not fit: path, reason, and current value.
type Misfit = (Option<String>, Why, Option<Value>);

/// Changes the value of an existing document. Unchanged fields keep their bytes.
async fn change(
    tx: &Transaction,
    Handle { raw, values }: &Handle,
    at: usize,
    target: &Target,
    change: impl FnOnce(&mut Value) -> Result<(), Misfit>,
) -> Result<(), Stop> {
    // Tries the change on a copy first, because `update` writes its value even after an error.
    let text = tx.get(raw, id_of(target)).await?;
    let (Some(text), Some(mut value)) = (text, tx.get(values, id_of(target)).await?) else {
        return Err(refused(at, target, None, Why::Missing, None));
    };
    if let Err((path, why, current)) = change(&mut value) {
        return Err(refused(at, target, path.as_deref(), why, current));
    }
    let Some(fields) = value.as_object() else {
        return Err(refused(at, target, None, Why::NoDocument, None));
    };
    if let Some(field) = rounded(text.as_str(), fields) {
        return Err(refused(at, target, Some(&field), Why::WouldRound, None));
    }
    tx.update(values, id_of(target), |found| *found = value).await?;
    Ok(())
}

/// A changed field with a number that would be rounded.
fn rounded(text: &str, after: &Map<String, Value>) -> Option<String> {
    if exact::is_exact(text) {
        return None;
    }
    let before: BTreeMap<String, &RawValue> = serde_json::from_str(text).ok()?;
    let changes = |(name, raw): &(&String, &&RawValue)| {
        let new = after.get(*name);
        new.is_some() && new != serde_json::from_str(raw.get()).ok().as_ref()
    };
    let inexact = |(_, raw): &(&String, &&RawValue)| !exact::is_exact(raw.get());
    let name = before.iter().filter(inexact).find(changes).map(|(name, _)| name)?;
    Some(format!("/{}", name.replace('~', "~0").replace('/', "~1")))
}

/// The content of a document in the transaction.
async fn content(
    tx: &Transaction,
    handles: &Handles,
    target: &Target,
) -> Result<Option<Document>, Stop> {
    let found = tx.get(&handle(handles, target)?.raw, id_of(target)).await?;
    // Stored documents are always JSON.
    Ok(found.and_then(|found| Document::parse(found.as_str()).ok()))
}

pub(crate) fn id_of(target: &Target) -> DocumentId {
    match &target.routing {
        Some(routing) => DocumentId::routed(&target.id, routing),
        None => target.id.as_str().into(),
    }
}

fn handle<'a>(handles: &'a Handles, target: &Target) -> Result<&'a Handle, Stop> {
    // The caller has opened all collections of the request.
    handles.get(&target.collection).ok_or_else(|| {
        let why = Why::Missing;
        refused(0, target, None, why, None)
    })
}

fn refused(
    operation: usize,
    target: &Target,
    path: Option<&str>,
    why: Why,
    current: Option<Value>,
) -> Stop {
    let (target, path) = (target.clone(), path.map(str::to_owned));
    Stop::Refused(Box::new(Refusal { operation, target, path, why, current }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sum_replaces_its_number_only() {
        let add = |path: &str| {
            let target = json!({"collection": "c", "id": "i"});
            serde_json::from_value::<Add>(json!({"target": target, "path": path, "amount": 2}))
                .expect("an operation")
        };
        let text = r#"{"n": 1.50, "list": [ -3, 1e400 ], "big": 123456789012345678901}"#;
        let sum = r#"{"n": 1.50, "list": [ -1, 1e400 ], "big": 123456789012345678901}"#;
        assert_eq!(add_to(text, &add("/list/0")).expect("a number"), sum);
        for (path, expected) in [
            ("/big", Why::WouldRound),
            ("/list/1", Why::WouldRound),
            ("/list", Why::NotANumber),
            ("/list/2", Why::NotANumber),
            ("", Why::NotANumber),
        ] {
            let (found, why, _) = add_to(text, &add(path)).expect_err(path);
            assert_eq!((found.as_deref(), why), (Some(path), expected));
        }
    }
}
