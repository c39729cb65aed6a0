//! A client of the documents that does not use the library.

use std::fmt::Display;
use std::sync::Arc;

use txn_core::AttemptId;
use txn_core::record::State;
use txn_core::store::fields::TRANSACTION_TID;
use txn_core::store::{Key, MemoryStore, Outcome, Read, Source, Store, Version, Write, WriteOp};

/// Reads and writes documents past every layer.
pub(crate) trait Plain {
    async fn stored(&self, key: &Key) -> Option<(Version, Source)>;

    /// Carries a write out. The store must apply the write.
    async fn apply(&self, write: Write);

    /// Returns the names of the partitions of the domain `shop`, in order.
    async fn partitions(&self) -> Vec<Arc<str>>;

    async fn text(&self, key: &Key) -> String {
        let Some((_, source)) = self.stored(key).await else { panic!("no document {key}") };
        source.to_string()
    }

    async fn version(&self, key: &Key) -> Version {
        let Some((version, _)) = self.stored(key).await else { panic!("no document {key}") };
        version
    }

    async fn create(&self, key: Key, source: &str) {
        self.apply(Write::new(key, WriteOp::Create(source.into()))).await;
    }

    /// Creates or replaces a document.
    async fn overwrite(&self, key: &Key, source: &str) {
        let op = match self.stored(key).await {
            Some((version, _)) => WriteOp::Replace(source.into(), version),
            None => WriteOp::Create(source.into()),
        };
        self.apply(Write::new(key.clone(), op)).await;
    }

    async fn delete(&self, key: &Key) {
        let delete = WriteOp::Delete(self.version(key).await);
        self.apply(Write::new(key.clone(), delete)).await;
    }

    /// Adds a lock of this holder to a document.
    async fn lock(&self, key: &Key, holder: impl Display) {
        let text = self.text(key).await;
        let locked = format!("{{\"{TRANSACTION_TID}\":\"{holder}\",{}", &text[1..]);
        self.overwrite(key, &locked).await;
    }

    /// Creates the record of a transaction, with a state and further fields.
    async fn create_record(&self, tid: AttemptId, state: State, fields: &str) {
        let state = serde_json::to_string(&state).expect("a state");
        let text = format!(
            "{{\"state\":{state},\"tid\":\"{tid}\",\"attempt\":0,{fields}\"coordinator\":\"x\",\
             \"created_at\":0,\"modified_at\":0}}"
        );
        let key = record_key(tid);
        self.apply(Write { key, require_alias: true, op: WriteOp::Create(text.into()) }).await;
    }

    /// Whether the record of a transaction has this state.
    async fn is_in_state(&self, tid: AttemptId, state: State) -> bool {
        let record = self.text(&record_key(tid)).await;
        record.contains(&format!("\"state\":{}", serde_json::to_string(&state).expect("a state")))
    }
}

impl Plain for MemoryStore {
    async fn stored(&self, key: &Key) -> Option<(Version, Source)> {
        match self.get_many(std::slice::from_ref(key)).await.pop() {
            Some(Read::Found { version, source }) => Some((version, source)),
            _ => None,
        }
    }

    async fn apply(&self, write: Write) {
        let outcomes = self.write_many(&[write]).await;
        assert!(matches!(outcomes[..], [Outcome::Applied(_)]), "{outcomes:?}");
    }

    async fn partitions(&self) -> Vec<Arc<str>> {
        let mut names = self.list_collections("txn-shop-").await.expect("lists");
        names.sort();
        names
    }
}

/// Returns the key of a record of the domain `shop`.
pub(crate) fn record_key(tid: AttemptId) -> Key {
    Key::new(format!("txn-shop-{}", tid.day()), tid.to_string())
}
