//! Helpers for stores that keep their documents in this process.
//!
//! Pure functions decide what a server would decide. [`MemoryStore`](crate::MemoryStore) and every
//! other embedded store use these functions, so that all of them behave alike.
//!
//! A store carries out a write in this order:
//! - [`refuse`], without reading the store;
//! - the state of the collection (missing, blocked);
//! - [`decide`], with the current version of the document.

use std::sync::Arc;

use crate::{
    Cursor, Filter, Key, Limits, Outcome, Page, Refusal, RefusalKind, Source, StoreError,
    StoreErrorKind, Version, Write, WriteOp,
};

/// The position of a document in its collection: id and routing.
///
/// Documents sort by this pair, so that a document without routing comes first.
pub type Place = (Arc<str>, Option<Arc<str>>);

/// The limits of embedded stores. Ids have at most 512 bytes, documents at most 50 MiB.
pub const LIMITS: Limits = Limits::new(512, 50 << 20);

/// Returns a refusal if no state of the store could accept `write`.
///
/// Checks id, size, and source.
#[must_use]
pub fn refuse(limits: &Limits, write: &Write) -> Option<Refusal> {
    if let Err(refusal) = limits.check(&write.key, write.op.source_len()) {
        return Some(refusal);
    }
    match &write.op {
        WriteOp::Create(s) | WriteOp::Replace(s, _) | WriteOp::Check(s) => refuse_source(s),
        WriteOp::Delete(_) | WriteOp::Verify(_) => None,
    }
}

/// Accepts only a JSON object on one line.
///
/// Other text would not survive a bulk request.
fn refuse_source(source: &Source) -> Option<Refusal> {
    let refuse = |reason: String| Some(Refusal { kind: RefusalKind::Document, reason });
    if source.contains(['\n', '\r']) {
        return refuse("the source has a raw line break".to_owned());
    }
    if !source.trim_start().starts_with('{') {
        return refuse("the source is not a JSON object".to_owned());
    }
    serde_json::from_str::<serde::de::IgnoredAny>(source).err().and_then(|e| refuse(e.to_string()))
}

/// The result of [`decide`].
#[derive(Clone, PartialEq, Eq)]
pub enum Decision<'a> {
    /// The store changes nothing and returns this outcome.
    Answer(Outcome),
    /// The store writes this source, and returns [`Outcome::Applied`] with the new version.
    Put(&'a Source),
    /// The store removes the document, and returns [`Outcome::Applied`] with a new version.
    Remove,
}

/// Decides an operation by the current version of its document.
///
/// `None` means that the document is absent.
#[must_use]
pub fn decide(op: &WriteOp, current: Option<Version>) -> Decision<'_> {
    let (holds, then) = match op {
        WriteOp::Check(_) => (true, Decision::Answer(Outcome::Holds)),
        WriteOp::Verify(expected) => (current == *expected, Decision::Answer(Outcome::Holds)),
        WriteOp::Create(source) => (current.is_none(), Decision::Put(source)),
        WriteOp::Replace(source, version) => (current == Some(*version), Decision::Put(source)),
        WriteOp::Delete(version) => (current == Some(*version), Decision::Remove),
    };
    if holds { then } else { Decision::Answer(Outcome::Conflict) }
}

/// Returns the outcome of a write to a blocked collection.
#[must_use]
pub fn blocked(write: &Write) -> Outcome {
    Outcome::Rejected(format!("writes to {} are blocked", write.key.collection))
}

/// Returns the error for a name without a collection or an alias.
#[must_use]
pub fn not_found(name: &str) -> StoreError {
    StoreError::new(StoreErrorKind::NotFound, format!("no collection {name:?}"))
}

/// Whether a document matches the filter.
///
/// A source that is not a JSON object matches only [`Filter::All`].
#[must_use]
pub fn matches(filter: &Filter, source: &str) -> bool {
    let field = match filter {
        Filter::All => return true,
        Filter::Exists(field)
        | Filter::AnyOf(field, _)
        | Filter::AnyOfUpTo { field, .. }
        | Filter::Range { field, .. } => *field,
    };
    let Ok(serde_json::Value::Object(object)) = serde_json::from_str(source) else { return false };
    if let Filter::AnyOfUpTo { number, bound, .. } = filter
        && object.get(*number).and_then(serde_json::Value::as_u64).is_some_and(|n| n > *bound)
    {
        return false;
    }
    let Some(value) = object.get(field).filter(|value| !value.is_null()) else { return false };
    let values = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
    let mut texts = values.iter().filter_map(serde_json::Value::as_str);
    match filter {
        Filter::AnyOf(_, wanted) | Filter::AnyOfUpTo { values: wanted, .. } => {
            texts.any(|text| wanted.iter().any(|value| **value == *text))
        }
        Filter::Range { from, to, .. } => {
            let mut numbers = values.iter().filter_map(serde_json::Value::as_i64);
            numbers.any(|number| (*from..=*to).contains(&number))
        }
        Filter::All | Filter::Exists(_) => true,
    }
}

/// Returns a page of a scan: the matching documents after the cursor.
///
/// The page keeps the order of `documents`.
///
/// # Errors
/// As [`place_of`].
pub fn page<'a>(
    collection: &Arc<str>,
    documents: impl IntoIterator<Item = (&'a Place, Version, &'a Source)>,
    filter: &Filter,
    size: usize,
    from: Option<&Cursor>,
) -> Result<Page, StoreError> {
    // The cursor is the last key seen, so the page may or may not contain documents that were
    // written during the scan.
    let after = from.map(place_of).transpose()?;
    let mut page = Page::default();
    for (place, version, source) in documents {
        if after.as_ref().is_some_and(|after| place <= after) || !matches(filter, source) {
            continue;
        }
        if page.documents.len() == size.max(1) {
            let last = page.documents.last().map(|(key, ..): &(Key, _, _)| key);
            page.next = last.map(|key| cursor_after(&key.id, key.routing.as_deref()));
            break;
        }
        let (id, routing) = place.clone();
        let key = Key { collection: collection.clone(), id, routing };
        page.documents.push((key, version, source.clone()));
    }
    Ok(page)
}

/// Returns the cursor of a scan whose last document was this one.
#[must_use]
pub fn cursor_after(id: &str, routing: Option<&str>) -> Cursor {
    Cursor(serde_json::json!([id, routing]).to_string())
}

/// Returns the position after which a scan continues: the reverse of [`cursor_after`].
///
/// # Errors
/// [`StoreErrorKind::Misconfigured`] if the text was not made by [`cursor_after`].
pub fn place_of(cursor: &Cursor) -> Result<Place, StoreError> {
    serde_json::from_str(&cursor.0).map_err(|e| {
        StoreError::new(StoreErrorKind::Misconfigured, format!("not a cursor of this store: {e}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_follow_the_version() {
        let source: Source = "{}".into();
        let (v, w) = (Version::new(1, 1), Version::new(1, 2));
        let conflict = Decision::Answer(Outcome::Conflict);
        let holds = Decision::Answer(Outcome::Holds);
        let put = Decision::Put(&source);
        let table = [
            (WriteOp::Create(source.clone()), None, put.clone()),
            (WriteOp::Create(source.clone()), Some(v), conflict.clone()),
            (WriteOp::Replace(source.clone(), v), Some(v), put),
            (WriteOp::Replace(source.clone(), v), Some(w), conflict.clone()),
            (WriteOp::Replace(source.clone(), v), None, conflict.clone()),
            (WriteOp::Delete(v), Some(v), Decision::Remove),
            (WriteOp::Delete(v), Some(w), conflict.clone()),
            (WriteOp::Delete(v), None, conflict.clone()),
            (WriteOp::Check(source.clone()), None, holds.clone()),
            (WriteOp::Check(source.clone()), Some(v), holds.clone()),
            (WriteOp::Verify(Some(v)), Some(v), holds.clone()),
            (WriteOp::Verify(Some(v)), None, conflict.clone()),
            (WriteOp::Verify(None), None, holds),
            (WriteOp::Verify(None), Some(v), conflict),
        ];
        for (op, current, expected) in table {
            assert_eq!(decide(&op, current), expected, "{op:?} at {current:?}");
        }
    }

    #[test]
    fn cursors_round_trip() {
        for routing in [None, Some("r\"\n")] {
            let (id, back) = place_of(&cursor_after("a\"b\0", routing)).unwrap();
            assert_eq!((&*id, back.as_deref()), ("a\"b\0", routing));
        }
        let error = place_of(&Cursor("nonsense".to_owned())).unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Misconfigured);
    }
}
