//! Claims in the registry: the owning domain of each collection.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::engine::admin::aliases::Aliases;
use crate::engine::attempt_error::AttemptError;
use crate::engine::base::Base;
use crate::engine::deadline::Deadline;
use crate::engine::history::Histories;
use crate::engine::hot::Hot;
use crate::engine::store::pages::PAGE;
use crate::engine::store::settle::SettleTarget;
use crate::engine::store::store_access::StoreAccess;
use crate::engine::table::domain_document::RegistryDocument;
use crate::engine::table::{REGISTRY, Table};
use crate::engine::time::Time;
use crate::error::{Error, ErrorKind};
use txn_protocol::machines::domain::{Confirm, MakeOnce};
use txn_store::{CollectionInfo, CollectionSpec, Filter, Key, Role, Source};

/// The claim of a collection, in the registry under `collection:<uid>`.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Claim {
    pub(crate) domain: String,
    pub(crate) collection: String,
}

impl Claim {
    pub(crate) fn key(uid: &str) -> Key {
        Key::new(REGISTRY, format!("collection:{uid}"))
    }

    pub(crate) fn read(key: &Key, source: &str) -> Result<Self, Error> {
        serde_json::from_str(source)
            .map_err(|e| Error::damaged(format!("the claim cannot be read: {e}")).at(key))
    }
}

/// The action for a collection that is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IfMissing<'a> {
    Fail,
    /// Create the collection with these mappings.
    Create(Option<&'a str>),
    /// Create the collection for a system on top of the engine.
    ///
    /// Only this system writes to the collection.
    CreateForSystem(&'a str),
}

impl IfMissing<'_> {
    fn spec(self, name: &str, owner: Option<String>) -> CollectionSpec {
        let (role, mappings) = match self {
            Self::Fail => (Role::Data { owner }, None),
            Self::Create(mappings) => (Role::Data { owner }, mappings),
            Self::CreateForSystem(mappings) => (Role::System { owner }, Some(mappings)),
        };
        let mappings = mappings.map(|text| Source::from(txn_protocol::document::flatten(text)));
        CollectionSpec { name: name.to_owned(), role, create: self != Self::Fail, mappings }
    }
}

/// The collections of a domain: opening, and claims.
pub(crate) struct Collections {
    pub(super) store: Arc<StoreAccess>,
    pub(super) time: Arc<Time>,
    pub(super) table: Arc<Table>,
    hot: Arc<Hot>,
    aliases: Arc<Aliases>,
    pub(super) histories: Arc<Histories>,
}

impl Collections {
    pub(in crate::engine) fn new(
        base: &Base,
        hot: Arc<Hot>,
        aliases: Arc<Aliases>,
        histories: Arc<Histories>,
    ) -> Self {
        let Base { store, time, table, .. } = base.clone();
        Self { store, time, table, hot, aliases, histories }
    }

    /// Opens or creates a collection, and claims it for this domain.
    pub(crate) async fn open_collection(
        &self,
        name: &str,
        if_missing: IfMissing<'_>,
        deadline: &Deadline,
    ) -> Result<CollectionInfo, AttemptError> {
        let open = |owner: Option<String>| if_missing.spec(name, owner);
        let look = open(None);
        let info = self
            .store
            .retry_unavailable(deadline, || self.store.documents().open_collection(&look))
            .await?;
        self.claim(&info, deadline).await?;
        let mirror = open(Some(self.table.domain().to_string()));
        let info = self
            .store
            .retry_unavailable(deadline, || self.store.documents().open_collection(&mirror))
            .await?;
        self.hot.cache.forget_collection(&info.name);
        self.aliases.note_alias(name, &info);
        self.histories.learn_history(&info, deadline).await?;
        Ok(info)
    }

    /// Claims a collection for the domain.
    ///
    /// The claim is the acknowledged creation of a registry document under the collection's
    /// identity.
    pub(crate) async fn claim(
        &self,
        info: &CollectionInfo,
        deadline: &Deadline,
    ) -> Result<(), AttemptError> {
        let key = Claim::key(&info.uid);
        let domain = self.table.domain();
        let claim = serde_json::json!({ "domain": &**domain, "collection": &*info.name });
        let claim = Source::from(claim.to_string());
        if let Some(owner) = info.owner.as_ref().filter(|owner| **owner != **domain)
            && self.claimed_by(&key, deadline).await?.is_none()
        {
            let message = format!(
                "the metadata of the collection {:?} names the domain {owner:?}, and the registry has no claim: if the \
                 registry was lost, open the collection there; if it is a copy, take the entry txn off its metadata",
                info.name
            );
            return Err(Error::new(ErrorKind::Misconfigured, message).into());
        }
        let (target, content) =
            (RegistryDocument { table: &self.table, key: &key }, |_: &_| Ok(claim.clone()));
        let settled = self.store.settle(&target, &MakeOnce, (None, None), content, deadline).await;
        let settled = settled.map_err(|e| e.while_doing("claim the collection"))?;
        if let (_, Some(source)) = settled.found {
            let owner = Claim::read(&key, &source)?.domain;
            if owner != **domain {
                let message = format!(
                    "the collection {:?} belongs to the domain {owner:?}: open it there, or use another collection",
                    info.name
                );
                return Err(Error::new(ErrorKind::Misconfigured, message).into());
            }
        }
        let (name, uid) = (info.name.to_string(), info.uid.to_string());
        let (known, ..) = self.table.domain_document(deadline).await?;
        if known.collections.get(&name) != Some(&uid) {
            self.table
                .change_domain(deadline, |document| {
                    document.collections.insert(name.clone(), uid.clone()).as_ref() != Some(&uid)
                })
                .await?;
        }
        Ok(())
    }

    /// Returns the domain that claimed a collection, confirmed by an acknowledged touch.
    pub(crate) async fn claimed_by(
        &self,
        key: &Key,
        deadline: &Deadline,
    ) -> Result<Option<String>, AttemptError> {
        let target = RegistryDocument { table: &self.table, key };
        let found = target.look(deadline).await?;
        let as_it_stands =
            |(_, source): &(_, Option<Source>)| Ok(source.clone().unwrap_or_default());
        let settled = self.store.settle(&target, &Confirm, found, as_it_stands, deadline).await;
        let settled = settled.map_err(|e| e.while_doing("confirm the claim of the collection"))?;
        let (_, source) = settled.found;
        Ok(source.map(|source| Claim::read(key, &source)).transpose()?.map(|claim| claim.domain))
    }

    /// Returns the claims of this domain: collection names with their identities.
    pub(crate) async fn claims(
        &self,
        deadline: &Deadline,
    ) -> Result<BTreeMap<String, String>, AttemptError> {
        self.store.refresh(REGISTRY, deadline).await?;
        let mut claims = BTreeMap::new();
        let mut pages = self.store.pages(REGISTRY, Filter::All, PAGE);
        while let Some(documents) = self.store.next_page(&mut pages, deadline).await? {
            for (key, _, source) in documents {
                let Some(uid) = key.id.strip_prefix("collection:") else { continue };
                let claim = Claim::read(&key, &source)?;
                if claim.domain == **self.table.domain() {
                    claims.insert(claim.collection, uid.to_owned());
                }
            }
        }
        Ok(claims)
    }
}
