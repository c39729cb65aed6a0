//! The collections of a bank: names and field mappings.

use txn_core::store::{CollectionSpec, Role, Store, StoreErrorKind};

use crate::error::Result;

/// Field mappings of the accounts, for stores with mappings.
pub(crate) const ACCOUNTS: &str = r#"{"settings":{"auto_expand_replicas":"0-1"},"mappings":{"dynamic":"strict","properties":{"owner":{"type":"keyword"},"balance":{"type":"long"},"currency":{"type":"keyword"},"overdraft":{"type":"boolean"},"opened_at":{"type":"date","format":"epoch_millis"},"closed_at":{"type":"date","format":"epoch_millis"},"statement":{"dynamic":"strict","properties":{"lines":{"type":"long"},"balance":{"type":"long"},"at":{"type":"date","format":"epoch_millis"}}}}}}"#;

/// Field mappings of the transfers. Legs are nested, so that a search finds the transfers of an
/// account.
pub(crate) const TRANSFERS: &str = r#"{"settings":{"auto_expand_replicas":"0-1"},"mappings":{"dynamic":"strict","properties":{"kind":{"type":"keyword"},"key":{"type":"keyword"},"legs":{"type":"nested","properties":{"account":{"type":"keyword"},"amount":{"type":"long"},"currency":{"type":"keyword"}}},"created_at":{"type":"date","format":"epoch_millis"},"extras":{"type":"keyword"}}}}"#;

/// The names of the collections of accounts and of transfers.
pub(crate) fn names(domain: &str) -> (String, String) {
    (format!("{domain}-accounts"), format!("{domain}-transfers"))
}

/// Whether a collection exists. Creates and changes nothing.
pub(crate) async fn exists(store: &dyn Store, name: &str) -> Result<bool> {
    let (name, role) = (name.to_owned(), Role::Data { owner: None });
    let spec = CollectionSpec { name, role, create: false, mappings: None };
    match store.open_collection(&spec).await {
        Ok(_) => Ok(true),
        Err(error) if error.kind == StoreErrorKind::NotFound => Ok(false),
        Err(error) => Err(error.into()),
    }
}
