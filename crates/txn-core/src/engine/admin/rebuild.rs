//! Rebuild of a domain after the loss of a part.
//!
//! Only an operator starts a rebuild.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::engine::admin::DomainAdmin;
use crate::engine::attempt_error::AttemptError;
use crate::engine::deadline::Deadline;
use crate::engine::store::settle::write_under;
use crate::engine::table::domain_document::encode;
use crate::error::{Error, ErrorKind};
use txn_protocol::ids::Day;
use txn_protocol::machines::domain::DomainDocument;
use txn_store::{CollectionSpec, Filter, Key, Outcome, Role, Version, Write};

/// The result of [`Admin::rebuild`](crate::Admin::rebuild).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RebuildReport {
    /// The days with a partition.
    pub partitions: Vec<Day>,
    /// The days whose partition is lost.
    ///
    /// Locks of transactions of these days are void from now on, even if the transaction was
    /// committed. If the domain document was lost, the list has every day without a partition after
    /// the last dropped day, because a partition may have existed.
    pub given_up: Vec<Day>,
    /// The collections of the domain, by their claims.
    ///
    /// A collection without a claim must be opened once to claim it again.
    pub collections: Vec<String>,
}

impl DomainAdmin {
    /// See [`Admin::rebuild`](crate::Admin::rebuild).
    pub(crate) async fn rebuild(&self, deadline: &Deadline) -> Result<RebuildReport, AttemptError> {
        let existing = self.existing_partitions(deadline).await?;
        let found = self.table.read_domain(deadline).await?;
        if found.is_some() || !existing.is_empty() {
            self.open_registry(deadline).await?;
        }
        let claims = match self.collections.claims(deadline).await {
            Err(AttemptError::Fail(error)) if error.is_not_found() => BTreeMap::new(),
            claims => claims?,
        };
        if found.is_none() && existing.is_empty() && claims.is_empty() {
            return Err(self.no_domain().into());
        }
        let today = self.time.today();
        let version = found.as_ref().map(|(_, version, _)| *version);
        let named = found.as_ref().map(|(document, ..)| document.partitions.clone());
        let mut document = match found {
            Some((document, ..)) => document,
            None => self.new_document(&existing, today),
        };
        document.partitions = self.official_partitions(&document, &existing, deadline).await?;
        for (name, uid) in claims {
            if self.stands_for(&name, &uid, deadline).await? {
                document.collections.insert(name, uid);
            }
        }
        self.write_rebuilt(&document, version).await?;
        for (day, name) in &document.partitions {
            let alias = self.table.alias(*day);
            self.store
                .retry_unavailable(deadline, || self.store.documents().add_alias(&alias, name))
                .await?;
        }
        Ok(RebuildReport {
            given_up: given_up(named, &document, today),
            partitions: document.partitions.into_keys().collect(),
            collections: document.collections.into_keys().collect(),
        })
    }

    /// A domain document in place of a lost one.
    ///
    /// Days before the oldest partition count as dropped, as far as their retention is over. The
    /// state of younger days is unknown.
    fn new_document(&self, existing: &BTreeMap<Day, Vec<Arc<str>>>, today: Day) -> DomainDocument {
        let last = today.plus(-1 - i64::from(self.context.config.retention_days));
        let oldest = existing.keys().next().map_or(last, |day| day.plus(-1));
        let dropped_through = Some(last.min(oldest));
        DomainDocument { dropped_through, ..DomainDocument::default() }
    }

    /// Writes the domain document over the version that was read.
    async fn write_rebuilt(
        &self,
        document: &DomainDocument,
        version: Option<Version>,
    ) -> Result<(), AttemptError> {
        let key = self.table.domain_key();
        let op = write_under(version.into(), encode(document)?);
        match self.store.write_one(Write::new(key.clone(), op)).await {
            Outcome::Applied(_) => Ok(()),
            other => {
                let doing =
                    "rebuild the domain document: stop all processes of the domain, and try again";
                Err(Error::from_refused(&other, &key, doing).into())
            }
        }
    }

    /// Chooses the partition of each day.
    ///
    /// A partition with records counts, or else the named partition. Other partitions of the day
    /// are empty, and are dropped.
    async fn official_partitions(
        &self,
        document: &DomainDocument,
        existing: &BTreeMap<Day, Vec<Arc<str>>>,
        deadline: &Deadline,
    ) -> Result<BTreeMap<Day, String>, AttemptError> {
        let mut officials = BTreeMap::new();
        for (day, names) in existing.iter().filter(|(day, _)| !document.is_gone(**day)) {
            let mut full = Vec::new();
            for name in names {
                if self.store.holds_any(name, Filter::All, deadline).await? {
                    full.push(name);
                }
            }
            if let [one, other, ..] = full[..] {
                let message = format!(
                    "{other:?} holds records of the same day: copy those of one into the other, drop it, and try again"
                );
                return Err(Error::damaged(message).at(&Key::new(one.clone(), "*")).into());
            }
            let named = document.partitions.get(day);
            let named = named.and_then(|named| names.iter().find(|name| ***name == **named));
            let Some(official) = full.first().copied().or(named).or(names.first()) else {
                continue;
            };
            for name in names.iter().filter(|name| *name != official) {
                self.store
                    .retry_unavailable(deadline, || self.store.documents().drop_collection(name))
                    .await?;
            }
            officials.insert(*day, official.to_string());
        }
        Ok(officials)
    }

    /// Whether the collection of this name is the claimed one.
    async fn stands_for(
        &self,
        name: &str,
        uid: &str,
        deadline: &Deadline,
    ) -> Result<bool, AttemptError> {
        let role = Role::Data { owner: None };
        let spec = CollectionSpec { name: name.to_owned(), role, create: false, mappings: None };
        match self
            .store
            .retry_unavailable(deadline, || self.store.documents().open_collection(&spec))
            .await
        {
            Ok(info) => Ok(*info.uid == *uid),
            Err(AttemptError::Fail(error)) if error.kind() == ErrorKind::Misconfigured => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// The days that lose their partition.
///
/// `named`: the partitions that the domain document named before. Without them every day without a
/// partition after the last dropped day counts.
fn given_up(
    named: Option<BTreeMap<Day, String>>,
    document: &DomainDocument,
    today: Day,
) -> Vec<Day> {
    let mut days: Vec<Day> = match named {
        Some(named) => named.into_keys().collect(),
        None => {
            let first = document.dropped_through.map(|through| through.plus(1));
            let days = std::iter::successors(first, |day| Some(day.plus(1)));
            days.take_while(|day| *day <= today).collect()
        }
    };
    days.retain(|day| !document.partitions.contains_key(day));
    days
}
