//! The documents of locks: found, created, given back, deleted, each by one transaction. Nothing here waits or renews.

use std::collections::BTreeMap;

use txn_core::store::Filter;
use txn_core::{Collection, Domain, Transaction};

use crate::error::{LockError, Result};
use crate::fairness::Applicant;
use crate::instance::{Dead, Instances, wall_ms};
use crate::model::{Floor, Floors, Holder, Lock, LockName, Locks, MAPPINGS, Waiter};
use crate::scan::{PAGE, candidates};
use crate::stored::Stored;

/// The documents of locks in one collection. [`LockService`](crate::LockService) is what applications want; this is
/// what it stands on.
#[derive(Clone, Debug)]
pub struct LockRepository {
    domain: Domain,
    locks: Collection<Locks>,
    floors: Collection<Floors>,
}

/// What became of a request for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Created {
    /// It is granted.
    Granted {
        /// The fencing token.
        token: u64,
        /// Whether the holder before did not give the lock back.
        abandoned: bool,
    },
    /// Somebody else holds it.
    Held(Holder),
    /// It is free, and the turn of an instance that waits.
    Reserved(Waiter),
}

/// How a holder leaves its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// Its guard gave the lock back.
    Done,
    /// No guard ever had the grant.
    Unused,
    /// The lock was lost while its guard was used.
    Lost,
}

/// Locks, as far as this program can read them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Known {
    /// Those that it can read.
    pub locks: Vec<Lock>,
    /// The others, with the number of their format: whether somebody holds them is not known.
    pub newer: BTreeMap<LockName, u32>,
}

impl LockRepository {
    /// Opens the documents of locks in a collection, and makes it if it is missing.
    ///
    /// # Errors
    /// As [`Domain::create_system_collection`].
    pub async fn open(domain: &Domain, collection: &str) -> Result<Self> {
        let locks = domain.create_system_collection(collection, MAPPINGS).await?;
        let floors = domain.create_system_collection(collection, MAPPINGS).await?;
        Ok(Self { domain: domain.clone(), locks, floors })
    }

    pub(crate) fn domain(&self) -> &Domain {
        &self.domain
    }

    /// A lock by its name; `None` if it has no document.
    ///
    /// # Errors
    /// [`LockError::NewerFormat`], or the engine's.
    pub async fn find(&self, name: &LockName) -> Result<Option<Lock>> {
        let id = name.document();
        let found = self.domain.reader().get(&self.locks, &id).await?;
        found.map(|found| known(&id, found)).transpose()
    }

    /// The locks of these names as the primaries have them, in order.
    pub(crate) async fn find_all(&self, names: &[LockName]) -> Result<Vec<Option<Lock>>> {
        let mut found = Vec::with_capacity(names.len());
        for names in names.chunks(PAGE) {
            let ids: Vec<String> = names.iter().map(LockName::document).collect();
            let read = self.domain.reader().verified().get_many(&self.locks, &ids).await?;
            for (id, lock) in ids.iter().zip(read) {
                found.push(lock.map(|lock| known(id, lock)).transpose()?);
            }
        }
        Ok(found)
    }

    /// Grants a lock that is free to this holder, with a larger token than any before. The same grant again finds
    /// itself granted.
    ///
    /// # Errors
    /// [`LockError::NewerFormat`], or the engine's; after one of the kind `Unknown` ask again with the same grant.
    ///
    /// # Cancel safety
    /// Dropped, it may be granted or not: [`LockRepository::release`] settles it.
    pub async fn create(&self, name: &LockName, holder: &Holder) -> Result<Created> {
        let applicant = Applicant { instance: &holder.instance, ..Applicant::default() };
        self.grant(name, holder, None, &applicant).await
    }

    /// As [`LockRepository::create`], also over a holder that is dead.
    pub(crate) async fn grant(
        &self,
        name: &LockName,
        holder: &Holder,
        dead: Option<(&Instances, &Dead, &str)>,
        applicant: &Applicant<'_>,
    ) -> Result<Created> {
        let id = name.document();
        let granted = self.domain.transact(async |tx| {
            let mut waiting = Vec::new();
            let (before, abandoned) = match tx.get(&self.locks, &id).await? {
                None => (self.floor(tx).await?, false),
                Some(found) => {
                    let mut found = known(&id, found)?;
                    waiting = std::mem::take(&mut found.waiting);
                    match found.holder.clone() {
                        Some(own)
                            if own.grant == holder.grant && own.instance == holder.instance =>
                        {
                            let Lock { token, abandoned, .. } = found;
                            return Ok(Created::Granted { token, abandoned });
                        }
                        // It goes on under another instance: the old one counts as dead.
                        Some(own) if own.grant == holder.grant => (found.token, found.abandoned),
                        Some(other) => match dead {
                            Some((instances, dead, grant))
                                if grant == other.grant
                                    && instances.is_still_dead(tx, dead).await? =>
                            {
                                (found.token, true)
                            }
                            _ => {
                                if applicant.wait(&mut waiting) {
                                    found.waiting = waiting;
                                    tx.put(&self.locks, &id, &Stored::Known(found))?;
                                }
                                return Ok(Created::Held(other));
                            }
                        },
                        None => {
                            if let Some(waiter) = applicant.turn_of_another(found.token, &waiting) {
                                let waiter = waiter.clone();
                                if applicant.wait(&mut waiting) {
                                    found.waiting = waiting;
                                    tx.put(&self.locks, &id, &Stored::Known(found))?;
                                }
                                return Ok(Created::Reserved(waiter));
                            }
                            (found.token, found.abandoned)
                        }
                    }
                }
            };
            applicant.after_grant(&mut waiting);
            let token = before + 1;
            let mut lock = Lock::new(name, token, Some(holder.clone()));
            (lock.abandoned, lock.waiting) = (abandoned, waiting);
            tx.put(&self.locks, &id, &Stored::Known(lock))?;
            Ok::<_, LockError>(Created::Granted { token, abandoned })
        });
        granted.await
    }

    /// Gives a lock back, if this grant holds it. Either way a document is written, so that a write of that grant
    /// which may still be under way comes too late. Returns whether the grant held it.
    ///
    /// # Errors
    /// [`LockError::NewerFormat`], or the engine's.
    ///
    /// # Cancel safety
    /// Dropped, it may be given back or not: ask again.
    pub async fn release(&self, name: &LockName, grant: &str) -> Result<bool> {
        self.leave(name, grant, Leaving::Done, None).await
    }

    /// As [`LockRepository::release`], and notes how the holder left the lock, and which instance does not wait any more.
    pub(crate) async fn leave(
        &self,
        name: &LockName,
        grant: &str,
        leaving: Leaving,
        waits_no_more: Option<&str>,
    ) -> Result<bool> {
        let id = name.document();
        self.domain
            .transact(async |tx| {
                let mut lock = match tx.get(&self.locks, &id).await? {
                    Some(found) => known(&id, found)?,
                    None => Lock::new(name, self.floor(tx).await?, None),
                };
                lock.waiting.retain(|waiter| waits_no_more != Some(&*waiter.instance));
                let held = lock.is_held_by(grant);
                if held {
                    (lock.holder, lock.released_ms) = (None, Some(wall_ms(&self.domain)));
                    lock.abandoned = match leaving {
                        Leaving::Done => false,
                        Leaving::Unused => lock.abandoned,
                        Leaving::Lost => true,
                    };
                }
                tx.put(&self.locks, &id, &Stored::Known(lock))?;
                Ok::<_, LockError>(held)
            })
            .await
    }

    /// Takes a lock from whoever holds it. `only` names the grant that is meant, and the dead instance that has it.
    pub(crate) async fn take_away(
        &self,
        name: &LockName,
        only: Option<(&Instances, &Dead, &str)>,
    ) -> Result<Option<Holder>> {
        let id = name.document();
        self.domain
            .transact(async |tx| {
                let Some(found) = tx.get(&self.locks, &id).await? else { return Ok(None) };
                let mut lock = known(&id, found)?;
                let Some(holder) = lock.holder.take() else { return Ok(None) };
                if let Some((instances, dead, grant)) = only
                    && (holder.grant != grant || !instances.is_still_dead(tx, dead).await?)
                {
                    return Ok(None);
                }
                (lock.released_ms, lock.abandoned) = (Some(wall_ms(&self.domain)), true);
                tx.put(&self.locks, &id, &Stored::Known(lock))?;
                Ok::<_, LockError>(Some(holder))
            })
            .await
    }

    /// Deletes the document of a lock that is free. Tokens grow on all the same: the largest that was deleted is
    /// kept, and locks without a document begin above it. Returns whether it was deleted.
    ///
    /// # Errors
    /// [`LockError::NewerFormat`], or the engine's.
    pub async fn delete(&self, name: &LockName) -> Result<bool> {
        let id = name.document();
        self.domain
            .transact(async |tx| {
                let Some(found) = tx.get(&self.locks, &id).await? else { return Ok(false) };
                let lock = known(&id, found)?;
                if lock.holder.is_some() {
                    return Ok(false);
                }
                if self.floor(tx).await? < lock.token {
                    tx.put(&self.floors, Floor::ID, &Stored::Known(Floor::new(lock.token)))?;
                }
                tx.delete(&self.locks, &id)?;
                Ok::<_, LockError>(true)
            })
            .await
    }

    async fn floor(&self, tx: &Transaction) -> Result<u64> {
        match tx.get(&self.floors, Floor::ID).await? {
            None => Ok(0),
            Some(found) => Ok(known(Floor::ID, found)?.token),
        }
    }

    /// Checks in a transaction that a grant still holds its lock: what that commits rests on it.
    pub(crate) async fn holds(
        &self,
        tx: &Transaction,
        name: &LockName,
        grant: &str,
    ) -> Result<bool> {
        let id = name.document();
        let found = tx.get(&self.locks, &id).await?;
        let lock = found.map(|found| known(&id, found)).transpose()?;
        Ok(lock.is_some_and(|lock| lock.is_held_by(grant)))
    }

    /// Every lock that has a document, free ones included, by name. Several looks are no snapshot.
    ///
    /// # Errors
    /// [`LockError::NewerFormat`], [`LockError::Store`], or the engine's.
    pub async fn list(&self) -> Result<Vec<Lock>> {
        let Known { locks, newer } = self.list_known().await?;
        match newer.into_iter().next() {
            None => Ok(locks),
            Some((name, format)) => {
                Err(LockError::NewerFormat { document: name.document(), format })
            }
        }
    }

    /// Every lock that can be read, free ones included, and the names of those that cannot because their format is newer.
    ///
    /// # Errors
    /// [`LockError::Store`], or the engine's.
    pub async fn list_known(&self) -> Result<Known> {
        let filter = Filter::any_of("kind", ["lock"]);
        let ids = candidates(&self.domain, self.locks.name(), filter, usize::MAX).await?;
        let ids: Vec<_> = ids.into_iter().filter(|id| id.starts_with("lock:")).collect();
        let mut known = Known { locks: Vec::with_capacity(ids.len()), newer: BTreeMap::new() };
        for ids in ids.chunks(PAGE) {
            let found = self.domain.reader().get_many(&self.locks, ids).await?;
            for (id, lock) in ids.iter().zip(found) {
                match lock.map(Stored::known).transpose() {
                    Ok(lock) => known.locks.extend(lock),
                    Err(format) => {
                        known.newer.extend(LockName::of_document(id).map(|name| (name, format)));
                    }
                }
            }
        }
        Ok(known)
    }
}

/// A document, unless its format is newer than this program.
fn known<T>(document: &str, stored: Stored<T>) -> Result<T> {
    stored
        .known()
        .map_err(|format| LockError::NewerFormat { document: document.to_owned(), format })
}
