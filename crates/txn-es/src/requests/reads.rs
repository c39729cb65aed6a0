//! Reads of documents, from any copy and from the primary.

use std::sync::Arc;

use futures::future::join;
use txn_store::{Key, Limits, Read, StoreErrorKind};

use crate::identity::target::Target;
use crate::index::indices::{Indices, Miss, NOT_KNOWN, Resolved};
use crate::requests::bulk::{Item, Op, Settled};
use crate::requests::bulk_requests::BulkRequests;
use crate::requests::mget::{self, Ask};
use crate::requests::multi_gets::MultiGets;

/// Reads documents of one cluster.
#[derive(Debug)]
pub(crate) struct Reads {
    indices: Arc<Indices>,
    bulks: Arc<BulkRequests>,
    multi_gets: Arc<MultiGets>,
    limits: Limits,
}

impl Reads {
    pub(crate) fn new(
        indices: Arc<Indices>,
        bulks: Arc<BulkRequests>,
        multi_gets: Arc<MultiGets>,
        limits: Limits,
    ) -> Self {
        Self { indices, bulks, multi_gets, limits }
    }

    pub(crate) async fn get_many(&self, keys: &[Key]) -> Vec<Read> {
        let targets = self.indices.resolve(keys.iter().map(|key| &*key.collection).collect()).await;
        let mut reads: Vec<Option<Read>> = vec![None; keys.len()];
        let mut asks = Vec::with_capacity(keys.len());
        for (at, key) in keys.iter().enumerate() {
            match plan_read(self.limits, key, &targets) {
                Ok(target) => asks.push(Ask { at, key, target }),
                Err(read) => reads[at] = Some(read),
            }
        }
        let found = self.multi_gets.documents(&asks).await;
        for (ask, read) in asks.iter().zip(found) {
            reads[ask.at] = Some(read);
        }
        self.retry_lagging(keys, &targets, &mut reads).await;
        let none = || mget::unavailable("not answered");
        reads.into_iter().map(|read| read.unwrap_or_else(none)).collect()
    }

    pub(crate) async fn read_primary(&self, keys: &[Key]) -> Vec<Read> {
        let targets = self.indices.resolve(keys.iter().map(|key| &*key.collection).collect()).await;
        let mut reads: Vec<Option<Read>> = vec![None; keys.len()];
        let mut items = Vec::with_capacity(keys.len());
        let mut asks = Vec::with_capacity(keys.len());
        for (at, key) in keys.iter().enumerate() {
            match plan_read(self.limits, key, &targets) {
                Ok(target) => match target.identity_alias.clone() {
                    Some(route) => {
                        if target.data {
                            asks.push(Ask { at, key, target: target.clone() });
                        }
                        items.push(Item::new(at, key, route, target, Op::Read));
                    }
                    None => reads[at] = Some(Read::Unavailable(target.missing_alias())),
                },
                Err(read) => reads[at] = Some(read),
            }
        }
        // The answer of the primary lacks the routing, so a concurrent read from a copy shows it.
        let (settled, mut presence) =
            join(self.bulks.send(items), self.multi_gets.presence(&asks)).await;
        for (at, settled) in settled {
            if let Settled::Read(read) = settled {
                reads[at] = Some(read);
            }
        }
        self.retry_lagging(keys, &targets, &mut reads).await;
        let is_blocked = |ask: &&Ask<'_>| matches!(&reads[ask.at], Some(Read::Unavailable(e)) if e.kind == StoreErrorKind::Blocked);
        let blocked: Vec<_> = asks.iter().filter(is_blocked).cloned().collect();
        for (ask, read) in blocked.iter().zip(self.multi_gets.blocked_documents(&blocked).await) {
            reads[ask.at] = Some(read);
        }
        let is_found = |ask: &Ask<'_>| matches!(reads[ask.at], Some(Read::Found { .. }));
        let unseen = |seen: &Result<bool, Read>| *seen == Ok(false);
        let late: Vec<usize> =
            (0..asks.len()).filter(|n| is_found(&asks[*n]) && unseen(&presence[*n])).collect();
        if !late.is_empty() {
            let again: Vec<_> = late.iter().map(|n| asks[*n].clone()).collect();
            for (n, seen) in late.into_iter().zip(self.multi_gets.presence(&again).await) {
                presence[n] = seen;
            }
        }
        for (ask, seen) in asks.iter().zip(presence) {
            if !matches!(reads[ask.at], Some(Read::Found { .. })) {
                continue;
            }
            match seen {
                Ok(true) => {}
                Ok(false) => {
                    reads[ask.at] =
                        Some(mget::unavailable("its copies do not agree yet; try again"));
                }
                Err(instead) => reads[ask.at] = Some(instead),
            }
        }
        let none = || mget::unavailable("not answered");
        reads.into_iter().map(|read| read.unwrap_or_else(none)).collect()
    }

    /// Lets the caller retry the reads that a node without the index has answered.
    async fn retry_lagging(
        &self,
        keys: &[Key],
        targets: &Resolved<'_>,
        reads: &mut [Option<Read>],
    ) {
        let is_missing = |read: &Option<Read>| *read == Some(Read::MissingCollection);
        let missing = keys.iter().zip(&*reads).filter(|(_, read)| is_missing(read));
        let names = missing.map(|(key, _)| &*key.collection).collect();
        let lagging = self.indices.lagging(names, targets).await;
        for (key, read) in keys.iter().zip(reads) {
            if is_missing(read) && lagging.contains(&*key.collection) {
                *read = Some(mget::unavailable(NOT_KNOWN));
            }
        }
    }
}

fn plan_read(limits: Limits, key: &Key, targets: &Resolved<'_>) -> Result<Arc<Target>, Read> {
    match targets.get(&*key.collection) {
        // A document with such a key cannot exist.
        Some(Ok(_)) if limits.check(key, 0).is_err() => Err(Read::Absent),
        Some(Ok(target)) => Ok(target.clone()),
        Some(Err(Miss::Missing)) | None => Err(Read::MissingCollection),
        Some(Err(Miss::Failed(error))) => Err(Read::Unavailable(error.clone())),
    }
}
