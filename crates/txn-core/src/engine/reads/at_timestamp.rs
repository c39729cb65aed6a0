//! Reads as of a timestamp, in collections with history.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;

use crate::engine::attempt_error::AttemptError;
use crate::engine::deadline::Deadline;
use crate::engine::history::HistorySettings;
use crate::engine::history::heads::{overwritten, read_head};
use crate::engine::read_entry::ReadEntry;
use crate::engine::reads::Reads;
use crate::engine::wait_reason::WaitReason;
use crate::error::Error;
use txn_protocol::document::Image;
use txn_protocol::history::{Before, Head, Links};
use txn_protocol::ids::{AttemptId, CommitVersion};
use txn_store::Key;

/// The maximum number of reads of a document that contradicts its history.
///
/// After them the reader reports a write by a client that keeps no history.
const LOOKS: u32 = 8;

/// A document with its history head, as currently stored.
struct Now {
    key: Key,
    document: ReadEntry,
    head: Option<(Head, Option<CommitVersion>)>,
}

/// The content at a timestamp, by document and head.
enum PastContent {
    /// The current document is the content.
    Is(Option<Image>),
    /// The content is in the past versions.
    Past,
    /// Document and head do not match, or do not match yet.
    Torn,
}

impl Now {
    fn at(&self, time: Duration) -> PastContent {
        let observed = &self.document.observed;
        let stood = |tid: Option<CommitVersion>| tid.is_none_or(|tid| tid.unix_time() <= time);
        let before =
            Before { commit_version: observed.commit_version, image: observed.image.as_ref() };
        match &self.head {
            // No transaction has written the document since its history began.
            None if observed.image.is_none() || stood(observed.commit_version) => {
                PastContent::Is(observed.image.clone())
            }
            None => PastContent::Torn,
            Some((_, tid)) if !stood(*tid) => PastContent::Past,
            Some((head, tid)) if before.is_of(head, *tid) => {
                PastContent::Is(observed.image.clone())
            }
            Some(_) => PastContent::Torn,
        }
    }
}

impl Reads {
    pub(crate) fn history_of(&self, collection: &str) -> Result<Arc<HistorySettings>, Error> {
        self.histories.of(collection).ok_or_else(|| {
            Error::invalid(format!(
                "the collection {collection:?} keeps no history: see History::enable"
            ))
        })
    }

    pub(crate) fn check_kept(
        &self,
        history: &HistorySettings,
        time: Duration,
    ) -> Result<(), Error> {
        let oldest = self.time.utc().saturating_sub(history.retention);
        if time < history.since {
            return Err(Error::invalid(
                "the history of the collection began later than that moment",
            ));
        }
        if time < oldest {
            let message = format!("the history is kept for {:?} only", history.retention);
            return Err(Error::invalid(message));
        }
        Ok(())
    }

    /// Reads documents as of a timestamp.
    ///
    /// `enclosing`: the attempts in whose closures the caller runs.
    pub(crate) async fn read_at(
        &self,
        keys: &[Key],
        history: &HistorySettings,
        time: Duration,
        enclosing: &[AttemptId],
        deadline: &Deadline,
    ) -> Result<Vec<Option<Image>>, AttemptError> {
        let mut images: BTreeMap<Key, Option<Image>> = BTreeMap::new();
        let mut past = Vec::new();
        let mut open: Vec<Key> = keys.to_vec();
        open.sort();
        open.dedup();
        let mut backoff = self.context.backoff();
        for look in 1.. {
            let mut torn = Vec::new();
            for now in self.as_they_stand(open, history, time, enclosing, deadline).await? {
                match (now.at(time), &now.head) {
                    (PastContent::Is(image), _) => drop(images.insert(now.key, image)),
                    (PastContent::Past, Some((head, _))) => {
                        past.push((now.key, head.links.clone()));
                    }
                    (PastContent::Torn, head) if look == LOOKS => {
                        let tid = head.as_ref().and_then(|(_, tid)| *tid);
                        return Err(overwritten(&now.key, tid).into());
                    }
                    (PastContent::Past | PastContent::Torn, _) => torn.push(now.key),
                }
            }
            let Some(first) = torn.first() else { break };
            let reason = WaitReason::Changing(first.clone());
            self.context.pause(deadline, &mut backoff, reason).await?;
            open = torn;
        }
        let look_back = |(key, links): (Key, Links)| async move {
            let image = self.histories.look_back(&key, history, links, time, deadline).await?;
            Ok::<_, AttemptError>((key, image))
        };
        images.extend(try_join_all(past.into_iter().map(look_back)).await?);
        Ok(keys.iter().map(|key| images.get(key).cloned().flatten()).collect())
    }

    /// Reads documents with their heads.
    ///
    /// A holder that began after the timestamp cannot commit before the timestamp, so the read does
    /// not wait for that holder.
    async fn as_they_stand(
        &self,
        keys: Vec<Key>,
        history: &HistorySettings,
        time: Duration,
        enclosing: &[AttemptId],
        deadline: &Deadline,
    ) -> Result<Vec<Now>, AttemptError> {
        let both: Vec<Key> = keys.iter().flat_map(|key| [key.clone(), history.head(key)]).collect();
        let matters = |holder: AttemptId| holder.unix_time() <= time;
        let mut entries = self.read_decided(&both, matters, enclosing, deadline).await?.into_iter();
        let mut now = Vec::with_capacity(keys.len());
        for key in keys {
            let (Some(document), Some(head)) = (entries.next(), entries.next()) else { break };
            let at = history.head(&key);
            let read = |image: &Image| {
                Ok::<_, Error>((read_head(&at, image)?, head.observed.commit_version))
            };
            let head = head.observed.image.as_ref().map(read).transpose()?;
            now.push(Now { key, document, head });
        }
        Ok(now)
    }
}
