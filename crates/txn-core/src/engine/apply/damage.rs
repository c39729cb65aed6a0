//! Reports of damage that an operator must inspect.

use crate::engine::apply::Applier;
use crate::engine::apply::progress::Apply;
use crate::event::{DamageCause, Event};
use txn_protocol::ids::AttemptId;
use txn_store::Key;

impl Applier {
    /// Emits the damage that an operator must inspect.
    pub(super) fn emit_damage(&self, apply: &Apply) {
        let tid = apply.record.tid;
        for (document, error) in &apply.unapplied {
            if error.kind().needs_operator() {
                tracing::error!(%tid, %document, %error, "committed but not applied");
                let damage = apply.damages.get(document).cloned();
                let (cause, what) =
                    damage.unwrap_or_else(|| (DamageCause::NotApplicable, error.to_string()));
                let document = document.clone();
                self.context.emit(&Event::Damaged { tid, document, cause, what });
            }
        }
    }

    /// Reports that the commit overwrites a plain client's write.
    ///
    /// The plain client changed or deleted the document under the owner's lock.
    pub(super) fn emit_overwritten(&self, tid: AttemptId, key: &Key) {
        tracing::error!(%tid, document = %key, "another client's write to a locked document is overwritten");
        let what =
            "another client wrote or deleted the locked document; the commit overwrites that";
        let (document, cause) = (key.clone(), DamageCause::LockBypassed);
        self.context.emit(&Event::Damaged { tid, document, cause, what: what.to_owned() });
    }

    /// Reports a committed write that is lost for good.
    ///
    /// A plain client removed the lock, and another transaction committed on top of the old
    /// content. Only an operator can correct the document.
    pub(super) fn emit_overtaken(&self, tid: AttemptId, key: &Key) {
        tracing::error!(%tid, document = %key, "a committed write is lost: another client took its lock off");
        let what = "another client took the lock off, and a later transaction wrote the document without what this \
                    one committed; that write is lost";
        let (document, cause) = (key.clone(), DamageCause::LockBypassed);
        self.context.emit(&Event::Damaged { tid, document, cause, what: what.to_owned() });
    }

    /// Emits that a committed write is lost with its collection.
    pub(super) fn emit_lost(&self, tid: AttemptId, key: &Key, what: &str) {
        tracing::error!(%tid, document = %key, what, "a committed write is lost with its collection");
        let (document, cause) = (key.clone(), DamageCause::CollectionLost);
        self.context.emit(&Event::Damaged { tid, document, cause, what: what.to_owned() });
    }

    /// Reports that the record of a committed transaction was removed.
    ///
    /// An acknowledged write has shown the removal.
    pub(super) fn tell_of_removed(&self, tid: AttemptId) {
        let document = self.table.record_key(tid);
        tracing::error!(%tid, record = %document, "a committed record was removed");
        let what = "its committed record was removed; it is written again".to_owned();
        let cause = DamageCause::RecordRemoved;
        self.context.emit(&Event::Damaged { tid, document, cause, what });
    }
}
