//! The start of a collection's history.

use std::time::Duration;

use crate::engine::admin::collections::{Collections, IfMissing};
use crate::engine::attempt_error::AttemptError;
use crate::engine::deadline::Deadline;
use crate::engine::history::heads::{HistoryEntry, history_entry};
use crate::engine::store::pages::PAGE;
use crate::engine::table::domain_document::RegistryDocument;
use crate::error::{Error, ErrorKind};
use txn_protocol::format::Format;
use txn_protocol::machines::domain::MakeOnce;
use txn_store::{Filter, Source};

/// The mappings of a history collection: no search uses its fields.
const UNSEARCHED: &str = r#"{"dynamic":false}"#;

impl Collections {
    /// Starts the history of a collection.
    ///
    /// Each process that opens the collection from now on keeps the overwritten versions.
    pub(crate) async fn enable_history(
        &self,
        name: &str,
        retention: Duration,
        deadline: &Deadline,
    ) -> Result<(), AttemptError> {
        let opened = self.open_collection(name, IfMissing::Fail, deadline).await?;
        let collection = format!("{}-history", opened.name);
        let unsearched = IfMissing::CreateForSystem(UNSEARCHED);
        let past = self.open_collection(&collection, unsearched, deadline).await?;
        let key = history_entry(&opened.uid);
        if self.table.read_registry(&key, deadline).await?.is_none() {
            self.check_free(&past.name, deadline).await?;
        }
        // The history starts now. Content that was committed before counts as the first version.
        let entry = HistoryEntry {
            format: Format::default(),
            collection: past.name.to_string(),
            since_ms: self.time.unix_millis(),
            retention_ms: millis(retention),
        };
        let source = serde_json::to_string(&entry).map_err(|e| Error::invalid(e.to_string()))?;
        let (place, source) =
            (RegistryDocument { table: &self.table, key: &key }, Source::from(source));
        let settled =
            self.store.settle(&place, &MakeOnce, (None, None), |_| Ok(source.clone()), deadline);
        settled.await.map_err(|e| e.while_doing("begin the history of the collection"))?;
        self.histories.learn_history(&opened, deadline).await?;
        match self.histories.of(&opened.name) {
            Some(history) if millis(history.retention) == millis(retention) => Ok(()),
            Some(history) => {
                let message = format!(
                    "the history of {name:?} is kept for {:?} already, which does not change",
                    history.retention
                );
                Err(Error::new(ErrorKind::Misconfigured, message).into())
            }
            None => Err(Error::damaged("the history that was begun is gone").at(&key).into()),
        }
    }

    /// Fails if the collection for a history is not empty.
    ///
    /// Entries of an earlier history count, too.
    async fn check_free(&self, name: &str, deadline: &Deadline) -> Result<(), AttemptError> {
        self.store.refresh(name, deadline).await?;
        let mut pages = self.store.pages(name, Filter::All, PAGE);
        while let Some(documents) = self.store.next_page(&mut pages, deadline).await? {
            if let Some((key, ..)) = documents.first() {
                let message = format!(
                    "the history would be kept in the collection {name:?}, which is not empty: delete or rename that one"
                );
                return Err(Error::new(ErrorKind::Misconfigured, message).at(key).into());
            }
        }
        Ok(())
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
