//! A document as a target of the settlement loop.

use txn_protocol::document::View;

use crate::engine::attempt_error::AttemptError;
use crate::engine::deadline::Deadline;
use crate::engine::store::settle::SettleTarget;
use crate::engine::store::store_access::{ReadPreference, StoreAccess};
use txn_store::{Key, Source};

/// A document of a collection.
pub(crate) struct Document<'a> {
    pub(crate) store: &'a StoreAccess,
    pub(crate) key: &'a Key,
}

impl SettleTarget for Document<'_> {
    type Found = View;
    type Seen = View;

    fn seen(found: &View) -> &View {
        found
    }

    fn source(found: &View) -> Option<Source> {
        match found {
            View::Present { source, .. } => Some(source.clone()),
            View::Absent => None,
        }
    }

    fn store(&self) -> &StoreAccess {
        self.store
    }

    fn key(&self) -> Key {
        self.key.clone()
    }

    async fn look(&self, deadline: &Deadline) -> Result<View, AttemptError> {
        let keys = std::slice::from_ref(self.key);
        let mut views = self.store.read_documents(keys, ReadPreference::Primary, deadline).await?;
        Ok(views.pop().unwrap_or(View::Absent))
    }
}
