//! Deletes past versions that no reader can ask for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;

use txn_protocol::history::Ancestor;
use txn_protocol::ids::CommitVersion;

use crate::engine::attempt_error::AttemptError;
use crate::engine::deadline::Deadline;
use crate::engine::history::heads::read_head;
use crate::engine::history::{Histories, HistorySettings};
use crate::engine::store::store_access::ReadPreference;
use crate::error::ErrorKind;
use txn_protocol::document::View;
use txn_store::{Filter, Key, Outcome, Version, Write, WriteOp};

/// The number of documents in one page. Past versions may be large.
const PAGE: usize = 100;

struct PastVersion {
    at: Key,
    version: Version,
    commit: Option<CommitVersion>,
}

impl Histories {
    /// Deletes the past versions that no reader can ask for.
    ///
    /// The version that was current at the start of the retention stays. Returns the number of
    /// deletions. The head of each document decides. If the head is missing or unreadable, the past
    /// versions stay.
    pub(crate) async fn purge_history(
        &self,
        collection: &Arc<str>,
        history: &HistorySettings,
    ) -> Result<u64, AttemptError> {
        self.time.confirm_not_ahead().await?;
        // No reader asks for an earlier time, even if its clock is wrong.
        let horizon = self.time.settled_until().saturating_sub(history.retention);
        self.store
            .refresh(&history.collection, &self.context.deadline(self.context.config.timeout))
            .await?;
        let mut pages = self.store.pages(&history.collection, Filter::All, PAGE);
        let mut deleted = 0;
        loop {
            // Each page has a deadline of its own, for any size of collection.
            let deadline = &self.context.deadline(self.context.config.timeout);
            let Some(documents) = self.store.next_page(&mut pages, deadline).await? else {
                return Ok(deleted);
            };
            let mut past: BTreeMap<Key, Vec<PastVersion>> = BTreeMap::new();
            for (at, version, _) in documents {
                let Some((key, commit)) = history.document(collection, &at) else { continue };
                if commit.is_none_or(|commit| commit.unix_time() <= horizon) {
                    past.entry(key).or_default().push(PastVersion { at, version, commit });
                }
            }
            let oldest = past.keys().map(|key| self.oldest_kept(key, history, horizon, deadline));
            let oldest = join_all(oldest).await;
            let mut deletes = Vec::new();
            for (found, oldest) in past.into_values().zip(oldest) {
                let Some(oldest) = oldest? else { continue };
                let before = |found: &PastVersion| match oldest {
                    // A concurrent write may overwrite the current version, and keep it as a past
                    // version already.
                    Oldest::Now(commit) => found.commit < commit,
                    Oldest::Past(Ancestor { commit, .. }) => found.commit < commit,
                };
                let drop = found.into_iter().filter(before);
                deletes.extend(drop.map(|old| Write::new(old.at, WriteOp::Delete(old.version))));
            }
            let outcomes = self.store.write_all(&deletes).await;
            // The next call finds deletions without an acknowledgement again.
            let gone = |outcome: &&Outcome| matches!(outcome, Outcome::Applied(_));
            deleted += outcomes.iter().filter(gone).count() as u64;
        }
    }

    /// The oldest version that a reader may still ask for.
    ///
    /// `None` if the head does not tell.
    async fn oldest_kept(
        &self,
        key: &Key,
        history: &HistorySettings,
        horizon: Duration,
        deadline: &Deadline,
    ) -> Result<Option<Oldest>, AttemptError> {
        let at = history.head(key);
        let keys = std::slice::from_ref(&at);
        let views = self.store.read_documents(keys, ReadPreference::Primary, deadline).await?;
        let Some(View::Present { stored, .. }) = views.first().filter(|view| exists(view)) else {
            cov_mark::hit!(past_without_a_head_stays);
            return Ok(None);
        };
        if stored.commit_version.is_some_and(|commit| commit.unix_time() <= horizon) {
            return Ok(Some(Oldest::Now(stored.commit_version)));
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

/// The oldest version that a reader may still ask for.
enum Oldest {
    /// The current content, and the commit that wrote it.
    Now(Option<CommitVersion>),
    /// A past version.
    Past(Ancestor),
}

fn exists(view: &View) -> bool {
    matches!(view, View::Present { stored, .. } if !stored.absent)
}
