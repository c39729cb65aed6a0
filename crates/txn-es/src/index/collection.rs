//! Indices and aliases: find, create, check and drop.

use std::collections::BTreeMap;
use std::sync::Arc;

use reqwest::Method;
use serde_json::Value;
use txn_store::{CollectionInfo, CollectionSpec, Role, StoreError, StoreErrorKind};

use crate::answers::classify::{self, Fate};
use crate::identity::target::{Target, identity_aliases};
use crate::index::mapping::{self, Index};
use crate::index::names;
use crate::requests::documents::{Inner, Miss, no_index};
use crate::transport::{ADMIN_ROOM, Answer, Failure, Request, RequestClass};

/// Returns the error of an administrative request, with the required privileges.
pub(crate) fn refused(what: &str, index: &str, answer: &Answer) -> StoreError {
    let mut error = classify::error(what, answer);
    if error.kind == StoreErrorKind::Denied {
        error.message = format!("{}; {}", error.message, privileges(index));
    }
    error
}

/// Returns the privileges that the account of a domain needs.
fn privileges(index: &str) -> String {
    format!(
        "grant the account of the domain the index privileges read, write, view_index_metadata and manage on {index}, {} and {}",
        identity_aliases(index),
        mapping::committed_alias(index),
    )
}

impl Inner {
    pub(crate) async fn admin(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Result<Answer, StoreError> {
        let body = body.map(|body| body.to_string().into());
        let class = RequestClass::Admin;
        let room = ADMIN_ROOM;
        let request = Request { method, path, query, body, items: 0, room, class };
        self.transport.send(request).await.map_err(Failure::into_error)
    }

    /// Changes the cluster state. Every node has to acknowledge the change.
    pub(crate) async fn change(
        &self,
        what: &str,
        index: &str,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Changed> {
        let timeout = self.transport.server_timeout(RequestClass::Admin);
        let query = [("timeout", timeout.as_str()), ("master_timeout", timeout.as_str())];
        let answer = self.admin(method, path, &query, body).await.map_err(Changed::Failed)?;
        if answer.status != 200 {
            let error = refused(what, index, &answer);
            let kind = classify::cause_of(&answer).map(|cause| cause.kind).unwrap_or_default();
            return Err(Changed::Refused { kind, error, answer });
        }
        let unavailable =
            |text| Changed::Failed(StoreError::new(StoreErrorKind::Unavailable, text));
        let value: Value = serde_json::from_slice(&answer.body)
            .map_err(|_| unavailable(format!("{what}: the answer cannot be read")))?;
        if value["acknowledged"] != true {
            return Err(unavailable(format!("{what}: not acknowledged by every node in time")));
        }
        Ok(value)
    }

    /// Returns the index behind a name, if there is one.
    pub(crate) async fn look(&self, name: &str) -> Result<Option<Index>, StoreError> {
        let path = format!("/{}", names::segment(name));
        let answer = self.admin(Method::GET, &path, &[("flat_settings", "true")], None).await?;
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

    /// Returns the target of a name, from the cache or from the server.
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

    fn remember(
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

    /// Adds the identity alias to an index. The inner error: the account lacks the privilege.
    async fn give_identity(&self, index: &Index) -> Result<Result<(), StoreError>, StoreError> {
        let alias = index.identity_alias()?;
        if index.has_identity_alias(&alias) {
            return Ok(Ok(()));
        }
        let what = format!("adding the alias that identifies {}", index.name);
        let actions = index.identity_actions(&alias);
        match self.change(&what, &index.name, Method::POST, "/_aliases", Some(&actions)).await {
            Ok(_) => Ok(Ok(())),
            Err(changed) => match changed.into_error() {
                error if error.kind == StoreErrorKind::Denied => Ok(Err(error)),
                error => Err(error),
            },
        }
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
        let (index, made) = match self.look(name).await? {
            Some(index) => (index, false),
            None if spec.create => {
                let made = self.make(spec).await?;
                let index = self.look(name).await?.ok_or_else(|| {
                    let text = format!("the index {name} was created and no longer exists");
                    StoreError::new(StoreErrorKind::Unavailable, text)
                })?;
                (index, made)
            }
            None => return Err(no_index(name)),
        };
        let prepared = match index.check(&spec.role) {
            Ok(()) => self.prepare(spec, &index, made).await,
            Err(error) if made => Err(self.blame_template(&index.name, error).await),
            Err(error) => Err(error),
        };
        match prepared {
            Err(error) if made && error.kind != StoreErrorKind::Unavailable => {
                Err(self.unmake(&index.name, error).await)
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
            let changed = self.change(&what, &index.name, Method::PUT, &path, Some(&change)).await;
            changed.map_err(Changed::into_error)?;
        }
        let aliased = self.give_identity(index).await?;
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
        let target = self.remember(&spec.name, index, aliased, data)?;
        if data && spec.role.owner().is_some() && !made {
            self.check_reads_are_whole(index).await?;
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
        let skipped = match self.look(&alias).await {
            Ok(None) => {
                let what = format!("adding the alias {alias}");
                let actions = mapping::committed_actions(&index.name);
                let added = self
                    .change(&what, &index.name, Method::POST, "/_aliases", Some(&actions))
                    .await;
                added.err().map(|changed| changed.into_error().message)
            }
            Ok(Some(_)) => Some("the name is taken".to_owned()),
            Err(error) => Some(error.message),
        };
        if let Some(reason) = skipped.map(|reason| self.transport.secrets.hide(reason)) {
            tracing::warn!(alias, reason, "no alias for searches without placeholders");
        }
    }

    pub(crate) async fn drop_collection(&self, name: &str) -> Result<(), StoreError> {
        if let Some(fault) = names::fault(name) {
            let text = format!("{name:?} is not the name of an index: {fault}");
            return Err(StoreError::new(StoreErrorKind::Misconfigured, text));
        }
        let path = format!("/{}", names::segment(name));
        let changed =
            self.change(&format!("dropping {name}"), name, Method::DELETE, &path, None).await;
        self.targets.forget(name);
        match changed {
            Ok(_) => Ok(()),
            Err(Changed::Refused { kind, .. }) if kind == "index_not_found_exception" => Ok(()),
            Err(changed) => Err(changed.into_error()),
        }
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
        let changed = self.change(&what, collection, Method::POST, "/_aliases", Some(&add)).await;
        self.targets.forget(alias);
        changed.map(|_| ()).map_err(Changed::into_error)
    }

    pub(crate) async fn block_writes(
        &self,
        collection: &str,
        blocked: bool,
    ) -> Result<(), StoreError> {
        let target = self.existing(collection).await?;
        let name = names::segment(&target.name);
        if blocked {
            let what = format!("blocking writes to {}", target.name);
            let path = format!("/{name}/_block/write");
            let answer = self.change(&what, &target.name, Method::PUT, &path, None).await;
            let answer = answer.map_err(Changed::into_error)?;
            // The servers answer without any index if the block exists already. They add the block
            // only after every shard finished its running writes. If shards have not confirmed the
            // block yet, the store asks for confirmation again.
            let before = answer["indices"].as_array().is_some_and(Vec::is_empty);
            if answer["shards_acknowledged"] != true
                && !(before && self.look(&target.name).await?.is_some_and(|i| i.is_blocked()))
            {
                let text = format!("{what}: not acknowledged by every shard in time");
                return Err(StoreError::new(StoreErrorKind::Unavailable, text));
            }
        } else {
            let what = format!("lifting the write block of {}", target.name);
            let path = format!("/{name}/_settings");
            let body = serde_json::json!({"index.blocks.write": null});
            let changed = self.change(&what, &target.name, Method::PUT, &path, Some(&body)).await;
            changed.map_err(Changed::into_error)?;
        }
        Ok(())
    }

    /// Returns the names of the indices with a prefix, including closed and hidden ones.
    pub(crate) async fn list_collections(&self, prefix: &str) -> Result<Vec<Arc<str>>, StoreError> {
        if let Some(fault) = names::fault(prefix) {
            let text = format!("{prefix:?} does not begin the name of an index: {fault}");
            return Err(StoreError::new(StoreErrorKind::Misconfigured, text));
        }
        // The settings come from the master, so no outdated node answers.
        let path = format!("/{}*/_settings/index.uuid", names::segment(prefix));
        let query = [("expand_wildcards", "all"), ("flat_settings", "true")];
        let answer = self.admin(Method::GET, &path, &query, None).await?;
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

    /// Removes the owner and the aliases of this library from an index.
    pub(crate) async fn release_collection(&self, name: &str) -> Result<(), StoreError> {
        if let Some(fault) = names::fault(name) {
            let text = format!("{name:?} is not the name of an index: {fault}");
            return Err(StoreError::new(StoreErrorKind::Misconfigured, text));
        }
        let index = self.look(name).await?.ok_or_else(|| {
            StoreError::new(StoreErrorKind::NotFound, format!("there is no index {name}"))
        })?;
        if let Some(change) = index.without_owner() {
            let what = format!("taking the owner off the mapping of {}", index.name);
            let path = format!("/{}/_mapping", names::segment(&index.name));
            let changed = self.change(&what, &index.name, Method::PUT, &path, Some(&change)).await;
            changed.map_err(Changed::into_error)?;
        }
        if let Some(actions) = index.release_actions() {
            let what = format!("taking the aliases of this library off {}", index.name);
            let changed =
                self.change(&what, &index.name, Method::POST, "/_aliases", Some(&actions)).await;
            changed.map_err(Changed::into_error)?;
        }
        for known in [name, &index.name] {
            self.targets.forget(known);
        }
        Ok(())
    }

    pub(crate) async fn refresh(&self, collection: &str) -> Result<(), StoreError> {
        let target = self.existing(collection).await?;
        let what = format!("refreshing {}", target.name);
        let path = format!("/{}/_refresh", names::segment(&target.name));
        let request = Request {
            method: Method::POST,
            path: &path,
            query: &[],
            body: None,
            items: 0,
            room: ADMIN_ROOM,
            class: RequestClass::Read,
        };
        let answer = self.transport.send(request).await.map_err(Failure::into_error)?;
        if answer.status != 200 {
            return Err(classify::error(&what, &answer));
        }
        let value: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        if value["_shards"]["failed"] != 0 {
            let text = format!("{what}: not every shard answered; try again");
            return Err(StoreError::new(StoreErrorKind::Unavailable, text));
        }
        Ok(())
    }
}

/// Whether a collection holds documents of transactions, with the reserved fields.
fn is_of_documents(role: &Role) -> bool {
    matches!(role, Role::Data { .. } | Role::System { .. })
}

/// The reason why a change of the cluster failed.
#[derive(Debug)]
pub(crate) enum Changed {
    /// A server refused the change. `kind` is the type of its error.
    Refused { kind: String, error: StoreError, answer: Answer },
    /// No answer, or an answer without a result.
    Failed(StoreError),
}

impl Changed {
    pub(crate) fn into_error(self) -> StoreError {
        let (Self::Refused { error, .. } | Self::Failed(error)) = self;
        error
    }
}
