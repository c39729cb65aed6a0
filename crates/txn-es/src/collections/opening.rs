//! Opens collections: finds or creates the index, and checks it.
//!
//! Then adds the fields and aliases.

use std::sync::Arc;

use reqwest::Method;
use txn_store::{CollectionInfo, CollectionSpec, Role, StoreError, StoreErrorKind};

use crate::collections::creator::Creator;
use crate::collections::read_check::ReadCheck;
use crate::collections::template_requests::TemplateRequests;
use crate::index::admin::{AdminRequests, Changed};
use crate::index::indices::{Indices, no_index};
use crate::index::mapping::{self, Index};
use crate::index::names;

/// Opens the collections of one cluster.
#[derive(Debug)]
pub(crate) struct Opening {
    admin: AdminRequests,
    indices: Arc<Indices>,
    templates: TemplateRequests,
    creator: Arc<Creator>,
    read_check: ReadCheck,
}

impl Opening {
    pub(crate) fn new(
        admin: AdminRequests,
        indices: Arc<Indices>,
        creator: Arc<Creator>,
        read_check: ReadCheck,
    ) -> Self {
        let templates = TemplateRequests::new(admin.clone());
        Self { admin, indices, templates, creator, read_check }
    }

    pub(crate) async fn open_collection(
        &self,
        spec: &CollectionSpec,
    ) -> Result<CollectionInfo, StoreError> {
        let name = &spec.name;
        if let Some(fault) = names::fault(name) {
            let text = format!("{name:?} is not the name of an index: {fault}");
            return Err(StoreError::new(StoreErrorKind::Misconfigured, text));
        }
        let (index, made) = match self.indices.look(name).await? {
            Some(index) => (index, false),
            None if spec.create => {
                let made = self.creator.create(spec).await?;
                let index = self.indices.look(name).await?.ok_or_else(|| {
                    let text = format!("the index {name} was created and no longer exists");
                    StoreError::new(StoreErrorKind::Unavailable, text)
                })?;
                (index, made)
            }
            None => return Err(no_index(name)),
        };
        let prepared = match index.check(&spec.role) {
            Ok(()) => self.prepare(spec, &index, made).await,
            Err(error) if made => Err(self.templates.blame(&index.name, error).await),
            Err(error) => Err(error),
        };
        match prepared {
            Err(error) if made && error.kind != StoreErrorKind::Unavailable => {
                Err(self.creator.drop_new(&index.name, error).await)
            }
            prepared => prepared,
        }
    }

    /// Adds the library's fields and aliases to a suitable index.
    async fn prepare(
        &self,
        spec: &CollectionSpec,
        index: &Index,
        made: bool,
    ) -> Result<CollectionInfo, StoreError> {
        if let Some(change) = index.change_for(spec)? {
            let what = format!("preparing the mapping of {}", index.name);
            let path = format!("/{}/_mapping", names::segment(&index.name));
            let changed =
                self.admin.change(&what, &index.name, Method::PUT, &path, Some(&change)).await;
            changed.map_err(Changed::into_error)?;
        }
        let aliased = self.indices.give_identity(index).await?;
        match (&aliased, &spec.role) {
            // The caller only reads, and reads need no identity alias.
            (Err(_), role) if is_of_documents(role) && role.owner().is_none() => {}
            (Ok(()), _) => {}
            (Err(error), _) => return Err(error.clone()),
        }
        let data = is_of_documents(&spec.role);
        if data {
            self.alias_for_searches(index).await;
        }
        let owner = spec.role.owner().map(str::to_owned).or_else(|| index.owner());
        let target = self.indices.remember(&spec.name, index, aliased, data)?;
        if data && spec.role.owner().is_some() && !made {
            self.read_check.check(index).await?;
        }
        Ok(CollectionInfo { name: target.name.clone(), uid: target.uuid.text().clone(), owner })
    }

    /// Adds the alias that hides placeholders from plain searches.
    ///
    /// The alias is optional: the collection works without it if the name is taken or the account
    /// lacks the privilege.
    async fn alias_for_searches(&self, index: &Index) {
        let alias = mapping::committed_alias(&index.name);
        if index.aliases.contains_key(&alias) || names::fault(&alias).is_some() {
            return;
        }
        let skipped = match self.indices.look(&alias).await {
            Ok(None) => {
                let what = format!("adding the alias {alias}");
                let actions = mapping::committed_actions(&index.name);
                let added = self
                    .admin
                    .change(&what, &index.name, Method::POST, "/_aliases", Some(&actions))
                    .await;
                added.err().map(|changed| changed.into_error().message)
            }
            Ok(Some(_)) => Some("the name is taken".to_owned()),
            Err(error) => Some(error.message),
        };
        if let Some(reason) = skipped.map(|reason| self.admin.hide_secrets(reason)) {
            tracing::warn!(alias, reason, "no alias for searches without placeholders");
        }
    }
}

/// Whether a collection holds documents of transactions, with the reserved fields.
fn is_of_documents(role: &Role) -> bool {
    matches!(role, Role::Data { .. } | Role::System { .. })
}
