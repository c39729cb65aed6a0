//! Targets of the settlement loop: a record, and a document.

use txn_protocol::document::View;
use txn_protocol::ids::AttemptId;
use txn_protocol::machines::record::Standing;

use crate::engine::Engine;
use crate::engine::attempt_error::AttemptError;
use crate::engine::deadline::Deadline;
use crate::engine::store::settle::{Place, Settled};
use crate::engine::store::store_access::ReadPreference;
use crate::engine::table::transaction_table::RecordLookup;
use crate::error::Error;
use crate::store::{Key, Outcome, Source, Version, WriteOp};

/// The record of an attempt.
pub(crate) struct RecordOf(pub(crate) AttemptId);

impl Place for RecordOf {
    type Found = RecordLookup;
    type Seen = Standing;

    fn seen(found: &RecordLookup) -> &Standing {
        &found.standing
    }

    fn source(found: &RecordLookup) -> Option<Source> {
        found.source.clone()
    }

    fn key(&self, engine: &Engine) -> Key {
        engine.table.record_key(self.0)
    }

    async fn write(
        &self,
        engine: &Engine,
        op: &WriteOp,
        deadline: &Deadline,
    ) -> Result<Outcome, AttemptError> {
        engine.write_record(self.0, op, deadline).await
    }

    async fn look(
        &self,
        engine: &Engine,
        deadline: &Deadline,
    ) -> Result<RecordLookup, AttemptError> {
        engine.record_of(self.0, ReadPreference::Primary, deadline).await
    }
}

impl<P> Settled<P, RecordLookup> {
    /// The current version of the record.
    pub(crate) fn version(&self) -> Result<Version, Error> {
        let version = self.written.or(self.found.version());
        version.ok_or_else(|| Error::damaged("a record without a version"))
    }
}

/// A document of a collection.
pub(crate) struct Document<'a>(pub(crate) &'a Key);

impl Place for Document<'_> {
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

    fn key(&self, _: &Engine) -> Key {
        self.0.clone()
    }

    async fn look(&self, engine: &Engine, deadline: &Deadline) -> Result<View, AttemptError> {
        let keys = std::slice::from_ref(self.0);
        let mut views = engine.read_documents(keys, ReadPreference::Primary, deadline).await?;
        Ok(views.pop().unwrap_or(View::Absent))
    }
}
