//! Changes of collections that exist: aliases, write blocks and the release.

use std::sync::Arc;

use reqwest::Method;
use txn_store::{StoreError, StoreErrorKind};

use crate::index::admin::{AdminRequests, Changed};
use crate::index::indices::Indices;
use crate::index::names;

/// Changes collections that exist.
#[derive(Debug)]
pub(crate) struct CollectionChanges {
    admin: AdminRequests,
    indices: Arc<Indices>,
}

impl CollectionChanges {
    pub(crate) fn new(admin: AdminRequests, indices: Arc<Indices>) -> Self {
        Self { admin, indices }
    }

    pub(crate) async fn add_alias(&self, alias: &str, collection: &str) -> Result<(), StoreError> {
        for name in [alias, collection] {
            if let Some(fault) = names::fault(name) {
                let text = format!("{name:?} is not the name of an index or alias: {fault}");
                return Err(StoreError::new(StoreErrorKind::Misconfigured, text));
            }
        }
        let add = serde_json::json!({"actions": [{"add": {"index": collection, "alias": alias}}]});
        let what = format!("adding the alias {alias} to {collection}");
        let changed =
            self.admin.change(&what, collection, Method::POST, "/_aliases", Some(&add)).await;
        self.indices.forget(alias);
        changed.map(|_| ()).map_err(Changed::into_error)
    }

    pub(crate) async fn block_writes(
        &self,
        collection: &str,
        blocked: bool,
    ) -> Result<(), StoreError> {
        let target = self.indices.existing(collection).await?;
        let name = names::segment(&target.name);
        if blocked {
            let what = format!("blocking writes to {}", target.name);
            let path = format!("/{name}/_block/write");
            let answer = self.admin.change(&what, &target.name, Method::PUT, &path, None).await;
            let answer = answer.map_err(Changed::into_error)?;
            // The servers answer without any index if the block exists already. They add the block
            // only after every shard finished its running writes. If shards have not confirmed the
            // block yet, the store asks for confirmation again.
            let before = answer["indices"].as_array().is_some_and(Vec::is_empty);
            if answer["shards_acknowledged"] != true
                && !(before
                    && self.indices.look(&target.name).await?.is_some_and(|i| i.is_blocked()))
            {
                let text = format!("{what}: not acknowledged by every shard in time");
                return Err(StoreError::new(StoreErrorKind::Unavailable, text));
            }
        } else {
            let what = format!("lifting the write block of {}", target.name);
            let path = format!("/{name}/_settings");
            let body = serde_json::json!({"index.blocks.write": null});
            let changed =
                self.admin.change(&what, &target.name, Method::PUT, &path, Some(&body)).await;
            changed.map_err(Changed::into_error)?;
        }
        Ok(())
    }

    /// Removes the owner and the aliases of this library from an index.
    pub(crate) async fn release_collection(&self, name: &str) -> Result<(), StoreError> {
        if let Some(fault) = names::fault(name) {
            let text = format!("{name:?} is not the name of an index: {fault}");
            return Err(StoreError::new(StoreErrorKind::Misconfigured, text));
        }
        let index = self.indices.look(name).await?.ok_or_else(|| {
            StoreError::new(StoreErrorKind::NotFound, format!("there is no index {name}"))
        })?;
        if let Some(change) = index.without_owner() {
            let what = format!("taking the owner off the mapping of {}", index.name);
            let path = format!("/{}/_mapping", names::segment(&index.name));
            let changed =
                self.admin.change(&what, &index.name, Method::PUT, &path, Some(&change)).await;
            changed.map_err(Changed::into_error)?;
        }
        if let Some(actions) = index.release_actions() {
            let what = format!("taking the aliases of this library off {}", index.name);
            let changed = self
                .admin
                .change(&what, &index.name, Method::POST, "/_aliases", Some(&actions))
                .await;
            changed.map_err(Changed::into_error)?;
        }
        for known in [name, &index.name] {
            self.indices.forget(known);
        }
        Ok(())
    }
}
