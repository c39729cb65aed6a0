//! Opening and creation of a domain.

use crate::engine::admin::DomainAdmin;
use crate::engine::attempt_error::AttemptError;
use crate::engine::deadline::Deadline;
use crate::engine::table::REGISTRY;
use crate::engine::table::domain_document::{RegistryDocument, encode};
use crate::error::{Error, ErrorKind};
use txn_protocol::machines::domain::{DomainDocument, MakeOnce};
use txn_store::{CollectionSpec, Role};

impl DomainAdmin {
    /// Opens a complete domain, or creates it if no part exists.
    pub(crate) async fn find_domain(
        &self,
        create: bool,
        deadline: &Deadline,
    ) -> Result<(), AttemptError> {
        let document = match self.table.read_domain(deadline).await? {
            Some((document, ..)) => document,
            None => {
                if self.has_traces(deadline).await? {
                    // Another process may have created the domain meanwhile.
                    return match self.table.read_domain(deadline).await? {
                        Some(_) => Ok(()),
                        None => Err(self.table.lost_document().into()),
                    };
                }
                return match create {
                    true => self.make_domain(deadline).await,
                    false => Err(self.no_domain().into()),
                };
            }
        };
        let existing = self.existing_partitions(deadline).await?;
        for (day, name) in &document.partitions {
            if !existing.get(day).is_some_and(|names| names.iter().any(|n| **n == **name)) {
                // The list may be outdated: the partition itself gives the answer.
                self.table.ensure_partition(*day, deadline).await?;
            }
        }
        let forgotten = self.forgotten_partitions(&document, &existing, deadline).await?;
        if !forgotten.is_empty() {
            // The list may be newer than the document.
            let (document, ..) = self.table.domain_document(deadline).await?;
            let forgotten = self.forgotten_partitions(&document, &existing, deadline).await?;
            if let Some(error) = forgotten.into_iter().next() {
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Whether parts of a domain exist without a domain document.
    async fn has_traces(&self, deadline: &Deadline) -> Result<bool, AttemptError> {
        if !self.existing_partitions(deadline).await?.is_empty() {
            return Ok(true);
        }
        match self.collections.claims(deadline).await {
            Ok(claims) => Ok(!claims.is_empty()),
            Err(AttemptError::Fail(error)) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn make_domain(&self, deadline: &Deadline) -> Result<(), AttemptError> {
        self.open_registry(deadline).await?;
        let key = self.table.domain_key();
        let content = |_: &_| encode(&DomainDocument::default());
        let place = RegistryDocument { table: &self.table, key: &key };
        let settled = self.store.settle(&place, &MakeOnce, (None, None), content, deadline).await;
        settled.map(|_| ()).map_err(|e| e.while_doing("make the domain document"))
    }

    /// Creates the registry, if it is missing.
    pub(crate) async fn open_registry(&self, deadline: &Deadline) -> Result<(), AttemptError> {
        let registry = CollectionSpec {
            name: REGISTRY.into(),
            role: Role::Registry,
            create: true,
            mappings: None,
        };
        self.store
            .retry_unavailable(deadline, || self.store.documents().open_collection(&registry))
            .await
            .map(|_| ())
    }

    pub(crate) fn no_domain(&self) -> Error {
        let name = self.table.domain();
        let message = format!(
            "there is no domain {name:?} in this store: check the name, or make it with `txn init` or Domain::open_or_create"
        );
        Error::new(ErrorKind::Misconfigured, message)
    }
}
