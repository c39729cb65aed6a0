//! The validation of whole requests before the first write.

use json_patch::PatchOperation;
use txn_core::store::{Key, Limits};
use txn_core::{CommitVersion, json::Image};
use txn_lock::name;

use crate::contents::number::{compare, negated};
use crate::contents::request::{Add, Condition, Operation, Patch, Request};

/// The maximum number of bytes of an application's name.
const MOST_APPLICATION: usize = 200;

/// The reason why a request is impossible.
///
/// The text has the number of the operation, if the reason concerns one.
pub(crate) fn check(
    request: &Request,
    bytes: usize,
    max_operations: usize,
    max_bytes: usize,
    limits: &Limits,
) -> Result<(), String> {
    if request.operations.is_empty() {
        return Err("it has no operations".to_owned());
    }
    let operations: usize = request.operations.iter().map(steps).sum();
    let count = operations + request.events.len() + request.after_commit.len();
    if count > max_operations {
        return Err(format!(
            "it has {count} operations, patch steps, events and HTTP requests, at most {max_operations} are allowed"
        ));
    }
    if bytes > max_bytes {
        return Err(format!("it has {bytes} bytes, at most {max_bytes} are allowed"));
    }
    if let Some(application) = &request.application
        && !name::fits(application, MOST_APPLICATION)
    {
        return Err(format!(
            "the application has to be 1 to {MOST_APPLICATION} bytes without control characters"
        ));
    }
    of_operations(&request.operations, limits)
}

/// The number of operations that one counts as. Each step of a patch counts.
pub(crate) fn steps(operation: &Operation) -> usize {
    match operation {
        Operation::Patch(patch) => patch.patch.0.len(),
        _ => 1,
    }
}

/// The reason why one of these operations is impossible.
pub(crate) fn of_operations(operations: &[Operation], limits: &Limits) -> Result<(), String> {
    for (at, operation) in operations.iter().enumerate() {
        of_one(operation, limits).map_err(|why| format!("operation {at}: {why}"))?;
    }
    Ok(())
}

fn of_one(operation: &Operation, limits: &Limits) -> Result<(), String> {
    let target = operation.target();
    if target.collection.is_empty() {
        return Err("the collection has no name".to_owned());
    }
    let mut key = Key::new(&*target.collection, &*target.id);
    if let Some(routing) = &target.routing {
        key = key.routed(&**routing);
    }
    let size = match operation {
        Operation::Put(put) | Operation::Insert(put) => put.document.as_str().len(),
        _ => 0,
    };
    limits.check(&key, size).map_err(|refusal| refusal.reason)?;
    match operation {
        Operation::Put(put) | Operation::Insert(put) => {
            let parsed = Image::parse(put.document.as_str());
            parsed.map(drop).map_err(|error| format!("the document: {error}"))
        }
        Operation::Merge(merge) => {
            let text = serde_json::to_string(&merge.patch).map_err(|error| error.to_string())?;
            // Members of the patch become members of the document.
            Image::parse(&text).map(drop).map_err(|error| format!("the patch: {error}"))
        }
        Operation::Patch(patch) => of_patch(patch),
        Operation::Add(add) => of_sum(add),
        Operation::Expect(expect) => match &expect.that {
            Condition::Exists(_) => Ok(()),
            Condition::Field(field) => pointer(&field.path),
            Condition::Version(version) => version
                .parse::<CommitVersion>()
                .map(drop)
                .map_err(|_| "the version is not a commit version".to_owned()),
        },
        Operation::Delete(_) => Ok(()),
    }
}

fn of_patch(patch: &Patch) -> Result<(), String> {
    if patch.patch.0.is_empty() {
        return Err("the patch is empty".to_owned());
    }
    for step in &patch.patch.0 {
        let tests = matches!(step, PatchOperation::Test(_));
        let writes = match step {
            PatchOperation::Move(step) => vec![step.path.as_ptr(), step.from.as_ptr()],
            step => vec![step.path()],
        };
        for path in writes {
            let first = path.tokens().next().map(|token| token.decoded().into_owned());
            match first {
                Some(field) if !tests && txn_core::store::fields::RESERVED.contains(&&*field) => {
                    return Err(format!("the field {field} is reserved"));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

fn of_sum(add: &Add) -> Result<(), String> {
    pointer(&add.path)?;
    let first = add.path.split('/').nth(1).unwrap_or_default();
    if txn_core::store::fields::RESERVED.contains(&first) {
        return Err(format!("the field {first} is reserved"));
    }
    if negated(&add.amount).is_none() {
        return Err("the amount does not fit into 64 bits with the other sign".to_owned());
    }
    if let (Some(min), Some(max)) = (&add.min, &add.max)
        && compare(min, max).is_gt()
    {
        return Err("the minimum is above the maximum".to_owned());
    }
    Ok(())
}

fn pointer(path: &str) -> Result<(), String> {
    match path.starts_with('/') {
        true => Ok(()),
        false => Err("the path is no JSON pointer to a field: it begins with a slash".to_owned()),
    }
}
