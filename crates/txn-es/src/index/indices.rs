//! The indices behind names: found, identified, remembered, listed and dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::future::join_all;
use reqwest::Method;
use txn_store::{StoreError, StoreErrorKind};

use crate::answers::classify::{self, Fate};
use crate::identity::target::{Target, Targets};
use crate::identity::uuid::IndexUuid;
use crate::index::admin::{AdminRequests, Changed, refused};
use crate::index::mapping::{self, Index};
use crate::index::names;

/// The reason why a name has no target.
#[derive(Clone, Debug)]
pub(crate) enum Miss {
    /// There is no such collection.
    Missing,
    /// The search failed, or the name is not that of a collection.
    Failed(StoreError),
}

/// The reason of a refusal by a node that lacks an existing index.
pub(crate) const NOT_KNOWN: &str = "a node does not know the index yet";

pub(crate) type Resolved<'a> = BTreeMap<&'a str, Result<Arc<Target>, Miss>>;

/// Finds the indices of one cluster, and remembers them.
#[derive(Debug)]
pub(crate) struct Indices {
    admin: AdminRequests,
    targets: Targets,
}

impl Indices {
    pub(crate) fn new(admin: AdminRequests) -> Self {
        Self { admin, targets: Targets::default() }
    }

    /// Returns the index behind a name, if there is one.
    pub(crate) async fn look(&self, name: &str) -> Result<Option<Index>, StoreError> {
        let path = format!("/{}", names::segment(name));
        let answer =
            self.admin.send(Method::GET, &path, &[("flat_settings", "true")], None).await?;
        let cause = classify::cause_of(&answer);
        if answer.status == 404
            && cause.is_some_and(|c| classify::fate(&c) == Fate::MissingCollection)
        {
            return Ok(None);
        }
        if answer.status != 200 {
            return Err(refused(&format!("reading the index {name}"), name, &answer));
        }
        mapping::sole(name, &answer.body).map(Some)
    }

    /// Returns the target of a name, from cache or server.
    pub(crate) async fn target(&self, name: &str) -> Result<Arc<Target>, Miss> {
        if let Some(target) = self.targets.get(name) {
            return Ok(target);
        }
        if names::fault(name).is_some() {
            return Err(Miss::Missing);
        }
        let index = self.look(name).await.map_err(Miss::Failed)?.ok_or(Miss::Missing)?;
        let aliased = self.give_identity(&index).await.map_err(Miss::Failed)?;
        self.remember(name, &index, aliased, index.is_data()).map_err(Miss::Failed)
    }

    /// Returns the target of a name that has to exist.
    pub(crate) async fn existing(&self, name: &str) -> Result<Arc<Target>, StoreError> {
        self.target(name).await.map_err(|miss| match miss {
            Miss::Missing => no_index(name),
            Miss::Failed(error) => error,
        })
    }

    /// Returns the targets of several names.
    pub(crate) async fn resolve<'a>(&self, names: BTreeSet<&'a str>) -> Resolved<'a> {
        let lookups = names.into_iter().map(|name| async move { (name, self.target(name).await) });
        join_all(lookups).await.into_iter().collect()
    }

    /// Returns the names that a node does not know, although their indices exist.
    ///
    /// `missing` are the names that a node did not find, and `asked` their targets. While a cluster
    /// is changing, a data node may lack an index of the cluster, and then refuses operations on
    /// the index as missing.
    pub(crate) async fn lagging<'a>(
        &self,
        mut missing: BTreeSet<&'a str>,
        asked: &Resolved<'_>,
    ) -> BTreeSet<&'a str> {
        fn uuid(target: &Result<Arc<Target>, Miss>) -> Option<&IndexUuid> {
            target.as_ref().ok().map(|target| &target.uuid)
        }
        let expected = |name: &str| asked.get(name).and_then(uuid);
        missing.retain(|name| expected(name).is_some());
        let found = self.resolve(missing).await.into_iter();
        found.filter(|(name, found)| uuid(found) == expected(name)).map(|(name, _)| name).collect()
    }

    /// Remembers the index as the target of a requested name.
    ///
    /// `aliased`: whether the index has its identity alias.
    pub(crate) fn remember(
        &self,
        asked: &str,
        index: &Index,
        aliased: Result<(), StoreError>,
        data: bool,
    ) -> Result<Arc<Target>, StoreError> {
        let mut target = Target::new(&index.name, &index.uuid()?, aliased.is_ok());
        target.data = data;
        let target = Arc::new(target);
        self.targets.put(asked, target.clone());
        Ok(target)
    }

    /// Removes an index from the cache, given one of its names.
    ///
    /// All names of the index are removed.
    pub(crate) fn forget(&self, name: &str) {
        self.targets.forget(name);
    }

    /// Adds the identity alias to an index. The inner error: the account lacks the privilege.
    pub(crate) async fn give_identity(
        &self,
        index: &Index,
    ) -> Result<Result<(), StoreError>, StoreError> {
        let alias = index.identity_alias()?;
        if index.has_identity_alias(&alias) {
            return Ok(Ok(()));
        }
        let what = format!("adding the alias that identifies {}", index.name);
        let actions = index.identity_actions(&alias);
        match self.admin.change(&what, &index.name, Method::POST, "/_aliases", Some(&actions)).await
        {
            Ok(_) => Ok(Ok(())),
            Err(changed) => match changed.into_error() {
                error if error.kind == StoreErrorKind::Denied => Ok(Err(error)),
                error => Err(error),
            },
        }
    }

    /// Returns the names of the indices with a prefix.
    ///
    /// Closed and hidden indices are included.
    pub(crate) async fn list(&self, prefix: &str) -> Result<Vec<Arc<str>>, StoreError> {
        if let Some(fault) = names::fault(prefix) {
            let text = format!("{prefix:?} does not begin the name of an index: {fault}");
            return Err(StoreError::new(StoreErrorKind::Misconfigured, text));
        }
        // The settings come from the master, so no outdated node answers.
        let path = format!("/{}*/_settings/index.uuid", names::segment(prefix));
        let query = [("expand_wildcards", "all"), ("flat_settings", "true")];
        let answer = self.admin.send(Method::GET, &path, &query, None).await?;
        let what = format!("listing the indices {prefix}*");
        if answer.status != 200 {
            return Err(refused(&what, &format!("{prefix}*"), &answer));
        }
        let found: BTreeMap<Arc<str>, serde::de::IgnoredAny> = serde_json::from_slice(&answer.body)
            .map_err(|_| {
                let text = format!("{what}: the answer cannot be read");
                StoreError::new(StoreErrorKind::Unavailable, text)
            })?;
        Ok(found.into_keys().collect())
    }

    /// Drops an index, if there is one.
    pub(crate) async fn drop_index(&self, name: &str) -> Result<(), StoreError> {
        if let Some(fault) = names::fault(name) {
            let text = format!("{name:?} is not the name of an index: {fault}");
            return Err(StoreError::new(StoreErrorKind::Misconfigured, text));
        }
        let path = format!("/{}", names::segment(name));
        let changed =
            self.admin.change(&format!("dropping {name}"), name, Method::DELETE, &path, None).await;
        self.targets.forget(name);
        match changed {
            Ok(_) => Ok(()),
            Err(Changed::Refused { kind, .. }) if kind == "index_not_found_exception" => Ok(()),
            Err(changed) => Err(changed.into_error()),
        }
    }
}

/// The error for a missing collection.
pub(crate) fn no_index(name: &str) -> StoreError {
    let text = format!(
        "there is no index {name}: correct the name, or create the index (create_collection creates a missing index)"
    );
    StoreError::new(StoreErrorKind::NotFound, text)
}
