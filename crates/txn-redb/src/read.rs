//! Reads of a committed state: documents, conditions, pages of a scan.

use std::ops::Bound;
use std::sync::Arc;
use std::time::Instant;

use txn_store::embedded::{self, Place};
use txn_store::{
    CollectionInfo, Filter, Key, Outcome, Page, Read, StoreError, StoreErrorKind, Write,
};

use crate::codec;
use crate::error::Fault;
use crate::file::{File, Snapshot};
use crate::view::{Resolved, Step};

/// The size at which a page ends even if not full.
///
/// The documents of a page do not exceed this size, except for a single larger one.
const PAGE_BYTES: usize = 64 << 20;
/// How many documents a scan reads between checks of the clock.
const STRIDE: usize = 128;

/// Reads documents, all of them in one state of the file.
pub(crate) fn get_many(file: &File, keys: &[Key]) -> Vec<Read> {
    let all = file.look(|snapshot| {
        // The keys of one call mostly share their collection.
        let mut last: Option<(Arc<str>, Option<u64>)> = None;
        let mut read = |key: &Key| -> Result<Read, Fault> {
            let uid = match &last {
                Some((name, uid)) if *name == key.collection => *uid,
                _ => snapshot.resolve(&key.collection)?.map(|found| found.record.uid),
            };
            last = Some((key.collection.clone(), uid));
            let Some(uid) = uid else { return Ok(Read::MissingCollection) };
            snapshot.read(&codec::document_key(uid, &key.id, key.routing.as_deref()))
        };
        let read =
            |key| read(key).unwrap_or_else(|fault| Read::Unavailable(file.explain(fault).into()));
        Ok(keys.iter().map(read).collect())
    });
    all.unwrap_or_else(|fault| vec![Read::Unavailable(fault.into()); keys.len()])
}

/// Judges writes that change nothing, in one state of the file.
pub(crate) fn answer_all(file: &File, writes: &[Write]) -> Vec<Outcome> {
    let all = file.look(|snapshot| {
        let answer = |write| match snapshot.judge(write) {
            Ok(Step::Answer(outcome)) => outcome,
            Ok(Step::Put(..) | Step::Remove(_)) => {
                Outcome::Rejected("a change was sent as a question".to_owned())
            }
            Err(fault) => (&file.explain(fault)).into(),
        };
        Ok(writes.iter().map(answer).collect())
    });
    all.unwrap_or_else(|fault| vec![(&fault).into(); writes.len()])
}

/// Finds the collection with this name or alias.
pub(crate) fn find(file: &File, name: &str) -> Result<Option<CollectionInfo>, StoreError> {
    Ok(file.look(|snapshot| snapshot.resolve(name))?.map(info))
}

/// Lists the names of the collections with a prefix.
pub(crate) fn list(file: &File, prefix: &str) -> Result<Vec<Arc<str>>, StoreError> {
    let names = file.look(|snapshot| {
        let mut names = Vec::new();
        for entry in snapshot.collections.range(prefix.as_bytes()..)? {
            let name = entry?.0;
            if !name.value().starts_with(prefix.as_bytes()) {
                break;
            }
            let damaged = |_| Fault::damaged("the name of a collection");
            names.push(str::from_utf8(name.value()).map_err(damaged)?.into());
        }
        Ok(names)
    });
    Ok(names?)
}

/// Returns the public description of a collection.
pub(crate) fn info(found: Resolved) -> CollectionInfo {
    let uid = found.record.shown_uid();
    CollectionInfo { name: found.name, uid, owner: found.record.owner }
}

/// A request for a page of a scan.
#[derive(Debug)]
pub(crate) struct PageOf {
    pub(crate) collection: String,
    pub(crate) filter: Filter,
    pub(crate) size: usize,
    pub(crate) after: Option<Place>,
    /// When to end the page early.
    pub(crate) deadline: Instant,
}

/// Returns one page of documents after a position, ordered by key.
///
/// The page ends when it is full, when its documents exceed `PAGE_BYTES`, or at the deadline. Then
/// the cursor is the last document that the scan read, even if the filter excluded the document.
pub(crate) fn page(file: &File, of: &PageOf) -> Result<Page, StoreError> {
    let page = file.look(|snapshot| {
        let Some(found) = snapshot.resolve(&of.collection)? else { return Ok(None) };
        fill(file, snapshot, &found, of).map(Some)
    });
    page?.ok_or_else(|| embedded::not_found(&of.collection))?
}

fn fill(
    file: &File,
    snapshot: &Snapshot,
    found: &Resolved,
    of: &PageOf,
) -> Result<Result<Page, StoreError>, Fault> {
    let uid = found.record.uid;
    let (below, above) = codec::document_bounds(uid);
    let after = of.after.as_ref();
    let after = after.map(|(id, routing)| codec::document_key(uid, id, routing.as_deref()));
    let start = Bound::Excluded(after.as_deref().unwrap_or(&below));
    let range = snapshot.documents.range::<&[u8]>((start, Bound::Excluded(&*above)))?;
    let mut page = Page::default();
    let mut bytes = 0;
    let mut last: Option<Place> = None;
    for (seen, entry) in range.enumerate() {
        let (key, value) = entry?;
        let (version, source) = codec::decode_document(key.value(), value.value())?;
        let wanted = embedded::matches(&of.filter, source);
        if wanted && page.documents.len() >= of.size.max(1) {
            page.next = last.map(|(id, routing)| embedded::cursor_after(&id, routing.as_deref()));
            break;
        }
        let large = wanted && bytes > 0 && bytes + source.len() > PAGE_BYTES;
        let late = seen % STRIDE == STRIDE - 1 && Instant::now() >= of.deadline;
        if large || late {
            page.next = last.map(|(id, routing)| embedded::cursor_after(&id, routing.as_deref()));
            break;
        }
        if file.is_closing() {
            let message = Fault::Closed.to_string();
            return Ok(Err(StoreError::new(StoreErrorKind::Unavailable, message)));
        }
        let place = codec::decode_place(key.value())?;
        if wanted {
            bytes += source.len();
            let (id, routing) = place.clone();
            let key = Key { collection: found.name.clone(), id, routing };
            page.documents.push((key, version, source.into()));
        }
        last = Some(place);
    }
    Ok(Ok(page))
}
