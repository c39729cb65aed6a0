//! Helpers for stores without a server of their own: what a server would do with a request, as
//! pure functions. [`MemoryStore`](crate::MemoryStore) is made of them, and so is every other store
//! that keeps its documents in this process, so that all of them behave alike.
//!
//! A write is carried out in this order: [`refuse`] (nothing of the store is looked at), then the
//! collection (missing, blocked), then [`decide`] on the version that the document stands at.

use std::sync::Arc;

use crate::{
    Cursor, Filter, Key, Limits, Outcome, Page, Refusal, RefusalKind, Source, StoreError,
    StoreErrorKind, Version, Write, WriteOp,
};

/// Where a document is within its collection: id and routing. Documents order by it, those without
/// a routing first.
pub type Place = (Arc<str>, Option<Arc<str>>);

/// The limits of embedded stores: ids of 512 bytes, documents of 50 MiB.
pub const LIMITS: Limits = Limits::new(512, 50 << 20);

/// Whether a write can never be applied, whatever the store holds: id, size, and source.
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

/// Sources are JSON objects on one line; anything else would not survive a bulk request.
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

/// What to do for an operation on a document.
#[derive(Clone, PartialEq, Eq)]
pub enum Decision<'a> {
    /// Nothing is to be changed: this is the answer.
    Answer(Outcome),
    /// Store this source at a new version, and answer [`Outcome::Applied`] with it.
    Put(&'a Source),
    /// Remove the document, and answer [`Outcome::Applied`] with a new version.
    Remove,
}

/// Decides an operation by the version that its document stands at; `None` if there is none.
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

/// The answer to a write into a collection whose writes are blocked.
#[must_use]
pub fn blocked(write: &Write) -> Outcome {
    Outcome::Rejected(format!("writes to {} are blocked", write.key.collection))
}

/// The error for a name that is no collection and no alias.
#[must_use]
pub fn not_found(name: &str) -> StoreError {
    StoreError::new(StoreErrorKind::NotFound, format!("no collection {name:?}"))
}

/// Whether a document is one that the filter asks for. A source that is no JSON object matches
/// [`Filter::All`] alone.
#[must_use]
pub fn matches(filter: &Filter, source: &str) -> bool {
    let field = match filter {
        Filter::All => return true,
        Filter::Exists(field) | Filter::AnyOf(field, _) => *field,
    };
    let Ok(serde_json::Value::Object(object)) = serde_json::from_str(source) else { return false };
    let Some(value) = object.get(field).filter(|value| !value.is_null()) else { return false };
    let values = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
    let mut texts = values.iter().filter_map(serde_json::Value::as_str);
    match filter {
        Filter::AnyOf(_, wanted) => texts.any(|text| wanted.iter().any(|value| **value == *text)),
        Filter::All | Filter::Exists(_) => true,
    }
}

/// A page of a scan: of documents in their order, those that the filter asks for behind the cursor.
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
    // The cursor is the last key seen: documents written meanwhile may show up or not.
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

/// The cursor of a scan that has seen every document up to and with this one.
#[must_use]
pub fn cursor_after(id: &str, routing: Option<&str>) -> Cursor {
    Cursor(serde_json::json!([id, routing]).to_string())
}

/// The place after which a scan goes on: the reverse of [`cursor_after`].
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
    fn cursors_come_back() {
        for routing in [None, Some("r\"\n")] {
            let (id, back) = place_of(&cursor_after("a\"b\0", routing)).unwrap();
            assert_eq!((&*id, back.as_deref()), ("a\"b\0", routing));
        }
        let error = place_of(&Cursor("nonsense".to_owned())).unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Misconfigured);
    }
}
