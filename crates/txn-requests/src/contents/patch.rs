//! JSON patches (RFC 6902) with bounds.
//!
//! A `copy` step may double a document, and a step may nest a value within itself. Size and depth
//! therefore grow exponentially with the number of steps. The code checks both before each step.

use std::io;

use json_patch::{PatchOperation, patch_unsafe};
use serde::Serialize;
use serde_json::Value;

use crate::contents::refusal::Why;

/// The maximum nesting depth. serde_json reads no deeper document.
const MOST_DEPTH: usize = 127;

/// The remaining bytes that `copy` steps of a request may add.
///
/// The unit is bytes of JSON. A copy counts as content that the client could have sent.
#[derive(Debug)]
pub(crate) struct CopyBudget {
    left: usize,
}

impl CopyBudget {
    /// Creates a budget of this many bytes.
    pub(crate) fn new(bytes: usize) -> Self {
        Self { left: bytes }
    }

    /// Subtracts the size of a value, if enough bytes are left.
    fn take(&mut self, value: &Value) -> bool {
        let mut counter = Counter(self.left);
        let fits = value.serialize(&mut serde_json::Serializer::new(&mut counter)).is_ok();
        if fits {
            self.left = counter.0;
        }
        fits
    }
}

/// A sink that fails beyond a number of bytes.
struct Counter(usize);

impl io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::FileTooLarge)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Applies a patch. Returns the failing step and the reason.
///
/// After a failure the value is partly patched, and must be discarded.
pub(crate) fn apply(
    value: &mut Value,
    steps: &[PatchOperation],
    copies: &mut CopyBudget,
) -> Result<(), (usize, Why)> {
    for (at, step) in steps.iter().enumerate() {
        check(value, step, copies).map_err(|why| (at, why))?;
        patch_unsafe(value, std::slice::from_ref(step)).map_err(|_| (at, Why::PatchFails))?;
    }
    Ok(())
}

/// Checks that a step stays within the bounds.
fn check(value: &Value, step: &PatchOperation, copies: &mut CopyBudget) -> Result<(), Why> {
    let (path, placed) = match step {
        PatchOperation::Add(step) => (&step.path, Some(&step.value)),
        PatchOperation::Replace(step) => (&step.path, Some(&step.value)),
        PatchOperation::Move(step) => (&step.path, value.pointer(step.from.as_str())),
        PatchOperation::Copy(step) => (&step.path, value.pointer(step.from.as_str())),
        PatchOperation::Remove(_) | PatchOperation::Test(_) => return Ok(()),
    };
    // A missing source makes the step itself fail.
    let Some(placed) = placed else { return Ok(()) };
    if path.count() + depth(placed) > MOST_DEPTH {
        return Err(Why::TooDeep);
    }
    match step {
        PatchOperation::Copy(_) if !copies.take(placed) => Err(Why::CopiesTooMuch),
        _ => Ok(()),
    }
}

/// The nesting depth of a value, at most [`MOST_DEPTH`].
fn depth(value: &Value) -> usize {
    let deepest = match value {
        Value::Array(values) => values.iter().map(depth).max(),
        Value::Object(fields) => fields.values().map(depth).max(),
        _ => return 0,
    };
    1 + deepest.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn steps(steps: Value) -> Vec<PatchOperation> {
        serde_json::from_value::<json_patch::Patch>(steps).unwrap().0
    }

    fn applied(mut value: Value, patch: Value, most: usize) -> Result<Value, (usize, Why)> {
        apply(&mut value, &steps(patch), &mut CopyBudget::new(most)).map(|()| value)
    }

    #[test]
    fn patch_does_what_its_steps_say() {
        let patch = json!([
            {"op": "test", "path": "/a", "value": 1}, {"op": "copy", "from": "/a", "path": "/b/-"},
            {"op": "move", "from": "/a", "path": "/c"}, {"op": "replace", "path": "/b/0", "value": 3},
            {"op": "add", "path": "/d", "value": {"e": []}}, {"op": "remove", "path": "/d/e"}
        ]);
        let done = applied(json!({"a": 1, "b": [2]}), patch, 1);
        assert_eq!(done, Ok(json!({"b": [3, 1], "c": 1, "d": {}})));
        let missing = json!([{"op": "test", "path": "/a", "value": 1}, {"op": "copy", "from": "/x", "path": "/y"}]);
        assert_eq!(applied(json!({"a": 1}), missing, 9), Err((1, Why::PatchFails)));
    }

    #[test]
    fn copies_that_double_a_document_are_bounded() {
        let double = |at: usize| json!({"op": "copy", "from": "", "path": format!("/x{at}")});
        let patch: Value = (0..64).map(double).collect();
        let Err((step, why)) = applied(json!({"a": "0123456789"}), patch, 1 << 16) else {
            panic!("it was applied");
        };
        assert_eq!(why, Why::CopiesTooMuch);
        assert!((8..16).contains(&step), "{step}");
        // The copies of one request share the budget.
        let mut copies = CopyBudget::new(20);
        let patch = steps(json!([{"op": "copy", "from": "/a", "path": "/b"}]));
        let text = json!({"a": "012345678"});
        assert_eq!(apply(&mut text.clone(), &patch, &mut copies), Ok(()));
        assert_eq!(apply(&mut text.clone(), &patch, &mut copies), Err((0, Why::CopiesTooMuch)));
    }

    #[test]
    fn steps_that_nest_a_value_are_bounded() {
        // Each copy doubles the depth, so a few dozen of them would overflow the stack.
        let double =
            |at: u32| json!({"op": "copy", "from": "/a", "path": "/a".repeat(2_usize.pow(at) + 1)});
        let patch: Value = (0..10).map(double).collect();
        let nested = applied(json!({"a": {}}), patch, usize::MAX);
        assert_eq!(nested, Err((6, Why::TooDeep)));
        let mut deep = json!({});
        for _ in 1..100 {
            deep = json!({"a": deep});
        }
        let add = |path: &str| json!([{"op": "add", "path": path, "value": deep}]);
        assert_eq!(applied(deep.clone(), add(&"/a".repeat(28)), 0), Err((0, Why::TooDeep)));
        let deepest = applied(deep.clone(), add(&"/a".repeat(27)), 0).unwrap();
        let text = deepest.to_string();
        assert!(serde_json::from_str::<Value>(&text).is_ok(), "it is read again");
        let moved = json!([{"op": "add", "path": "/b", "value": deep}, {"op": "move", "from": "/b", "path": "/a".repeat(50)}]);
        assert_eq!(applied(deep.clone(), moved, 0), Err((1, Why::TooDeep)));
    }
}
