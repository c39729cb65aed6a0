//! Scans like those of real servers.
//!
//! A scroll shows the state at its begin, and advances with each request, even if the answer is
//! lost.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;
use txn_store::embedded;
use txn_store::{Cursor, Filter, Key, Page, Source, StoreError, StoreErrorKind, Version};

use super::{Manners, Server, State, out_of_reach};

/// How long a scroll is kept open between two requests.
pub const KEEP_ALIVE: Duration = Duration::from_secs(90);

#[derive(Debug)]
struct Scroll {
    /// The remaining documents.
    rest: VecDeque<(Key, Version, Source)>,
    /// The number of documents per page.
    size: usize,
    asked: Instant,
}

/// The open scrolls.
#[derive(Debug, Default)]
pub(super) struct Scrolls {
    open: BTreeMap<String, Scroll>,
    opened: u64,
}

impl Scrolls {
    /// Opens a scroll.
    pub(super) fn open(&mut self, documents: Vec<(Key, Version, Source)>, size: usize) -> Cursor {
        self.opened += 1;
        let id = format!("scroll {}", self.opened);
        let scroll = Scroll { rest: documents.into(), size, asked: Instant::now() };
        self.open.insert(id.clone(), scroll);
        Cursor(id)
    }

    /// Returns the next page. A page that is not full is the last.
    pub(super) fn next(&mut self, cursor: &Cursor) -> Result<Page, StoreError> {
        self.open.retain(|_, scroll| scroll.asked.elapsed() <= KEEP_ALIVE);
        let Some(scroll) = self.open.get_mut(&cursor.0) else {
            let message = "no search context found";
            return Err(StoreError::new(StoreErrorKind::Unavailable, message));
        };
        scroll.asked = Instant::now();
        let full = scroll.rest.len() >= scroll.size;
        let shown = scroll.size.min(scroll.rest.len());
        let documents = scroll.rest.drain(..shown).collect();
        if !full {
            self.close(cursor);
        }
        Ok(Page { documents, next: full.then(|| cursor.clone()) })
    }

    /// Ends a scroll, or loses it with its node.
    pub(super) fn close(&mut self, cursor: &Cursor) {
        self.open.remove(&cursor.0);
    }
}

impl Server {
    /// Returns the next page of a scan.
    pub(super) fn page(
        &self,
        collection: &str,
        filter: &Filter,
        size: usize,
        from: Option<Cursor>,
    ) -> Result<Page, StoreError> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let Manners { lost_page, lost_scroll, .. } = state.manners;
        let cursor = match from {
            None => state.begin_scan(collection, filter, size)?,
            Some(cursor) => {
                state.existing(collection)?;
                if lost_scroll > 0.0 && state.dice.f64() < lost_scroll {
                    state.misdeeds.lost_scrolls += 1;
                    state.scrolls.close(&cursor);
                }
                cursor
            }
        };
        let page = state.scrolls.next(&cursor)?;
        if lost_page > 0.0 && state.dice.f64() < lost_page {
            state.misdeeds.lost_pages += 1;
            return Err(StoreError::new(StoreErrorKind::Unavailable, "the connection was reset"));
        }
        Ok(page)
    }
}

impl State {
    fn begin_scan(
        &mut self,
        collection: &str,
        filter: &Filter,
        size: usize,
    ) -> Result<Cursor, StoreError> {
        let name = self.resolve(collection).ok_or_else(|| embedded::not_found(collection))?;
        let Some(found) = self.collections.get(&name) else {
            return Err(embedded::not_found(collection));
        };
        out_of_reach(collection, found.reach)?;
        let documents = found.documents.iter().filter_map(|(place, document)| {
            let (version, source) = document.on_replica()?;
            Some((place, version, source))
        });
        let Page { mut documents, .. } =
            embedded::page(&name, documents, filter, usize::MAX, None)?;
        if !found.blocked {
            let before = documents.len();
            let Manners { scan_hides, scan_hides_all, .. } = self.manners;
            let shown = if scan_hides_all { 0 } else { found.refreshed };
            documents
                .retain(|(_, version, _)| self.dice.f64() >= scan_hides || version.seq_no <= shown);
            self.misdeeds.hidden += (before - documents.len()) as u64;
        }
        let size = self.manners.page.unwrap_or(size).min(size).max(1);
        Ok(self.scrolls.open(documents, size))
    }
}
