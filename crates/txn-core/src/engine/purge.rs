//! Dropping past versions that nobody may ask for any more.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;

use txn_protocol::history::Ancestor;
use txn_protocol::ids::CommitVersion;

use crate::engine::Engine;
use crate::engine::attempt_error::AttemptError;
use crate::engine::deadline::Deadline;
use crate::engine::history::{History, read_head};
use crate::engine::store_access::ReadPreference;
use crate::error::ErrorKind;
use crate::store::{Filter, Key, Outcome, Version, Write, WriteOp};
use txn_protocol::document::View;

/// Documents of one page: they may be large.
const PAGE: usize = 100;

/// A past version that was found.
struct Found {
    at: Key,
    version: Version,
    tid: Option<CommitVersion>,
}

impl Engine {
    /// Deletes the past versions before the one that stood there when the retention began. Returns how many. Each is
    /// judged by the head of its document; one whose head is not there yet, or cannot be read, stays.
    pub(crate) async fn purge_history(
        &self,
        collection: &Arc<str>,
        history: &History,
    ) -> Result<u64, AttemptError> {
        self.confirm_not_ahead().await?;
        // No reader is at a moment before this, whatever its clock says.
        let horizon = self.settled_until().saturating_sub(history.retention);
        self.refresh(&history.collection, &self.deadline(self.config.deadline)).await?;
        let mut pages = self.pages(&history.collection, Filter::All, PAGE);
        let mut deleted = 0;
        loop {
            // Each page has its time, however large the collection is.
            let deadline = &self.deadline(self.config.deadline);
            let Some(documents) = self.next_page(&mut pages, deadline).await? else {
                return Ok(deleted);
            };
            let mut past: BTreeMap<Key, Vec<Found>> = BTreeMap::new();
            for (at, version, _) in documents {
                let Some((key, tid)) = history.document(collection, &at) else { continue };
                if tid.is_none_or(|tid| tid.unix_time() <= horizon) {
                    past.entry(key).or_default().push(Found { at, version, tid });
                }
            }
            let oldest = past.keys().map(|key| self.oldest_kept(key, history, horizon, deadline));
            let oldest = join_all(oldest).await;
            let mut deletes = Vec::new();
            for (found, oldest) in past.into_values().zip(oldest) {
                let Some(oldest) = oldest? else { continue };
                let before = |found: &Found| match oldest {
                    // What stands there now may be overwritten this moment, and its version kept already.
                    Oldest::Now(tid) => found.tid < tid,
                    Oldest::Past(Ancestor { tid, .. }) => found.tid < tid,
                };
                let drop = found.into_iter().filter(before);
                deletes.extend(drop.map(|old| Write::new(old.at, WriteOp::Delete(old.version))));
            }
            let outcomes = self.write_all(&deletes).await;
            // What is not acknowledged is found again by the next call.
            let gone = |outcome: &&Outcome| matches!(outcome, Outcome::Applied(_));
            deleted += outcomes.iter().filter(gone).count() as u64;
        }
    }

    /// The oldest version of a document that somebody may still ask for; none if that is not known.
    async fn oldest_kept(
        &self,
        key: &Key,
        history: &History,
        horizon: Duration,
        deadline: &Deadline,
    ) -> Result<Option<Oldest>, AttemptError> {
        let at = history.head(key);
        let keys = std::slice::from_ref(&at);
        let views = self.read_documents(keys, ReadPreference::Primary, deadline).await?;
        let Some(View::Present { stored, .. }) = views.first().filter(|view| exists(view)) else {
            cov_mark::hit!(past_without_a_head_stays);
            return Ok(None);
        };
        if stored.tid.is_some_and(|tid| tid.unix_time() <= horizon) {
            return Ok(Some(Oldest::Now(stored.tid)));
        }
        let located = match read_head(&at, &stored.image) {
            Ok(head) => self.locate(key, history, head.links, horizon, deadline).await,
            Err(unreadable) => Err(unreadable.into()),
        };
        match located {
            Ok(version) => Ok(Some(Oldest::Past(version))),
            Err(AttemptError::Fail(error)) if error.kind() != ErrorKind::Unavailable => {
                cov_mark::hit!(past_of_an_unreadable_head_stays);
                tracing::warn!(document = %key, why = %error, "its past versions stay");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// The oldest version that somebody may still ask for.
enum Oldest {
    /// What stands there now, and the commit that wrote it.
    Now(Option<CommitVersion>),
    /// A past one.
    Past(Ancestor),
}

fn exists(view: &View) -> bool {
    matches!(view, View::Present { stored, .. } if !stored.absent)
}
