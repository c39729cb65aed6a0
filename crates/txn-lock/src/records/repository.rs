//! Lock documents: each call is one transaction, without waits and renewals.

use std::collections::BTreeMap;

use txn_core::store::Filter;
use txn_core::{Collection, Domain, Transaction};

use crate::error::{LockError, Result};
use crate::granting::fairness::Applicant;
use crate::instance::{Dead, Instances, wall_ms};
use crate::records::model::{Floor, Floors, Holder, Lock, LockName, Locks, MAPPINGS, Waiter};
use crate::stored::Stored;
use txn_core::scan::{PAGE, candidates};

/// The lock documents of one collection.
///
/// Applications use [`LockService`](crate::LockService), which is built on this type.
#[derive(Clone, Debug)]
pub struct LockRepository {
    domain: Domain,
    locks: Collection<Locks>,
    floors: Collection<Floors>,
}

/// The result of a request for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Created {
    /// The lock is granted.
    Granted {
        /// The fencing token.
        token: u64,
        /// Whether the previous holder did not release the lock.
        abandoned: bool,
    },
    /// Another holder has the lock.
    Held(Holder),
    /// The lock is free, and reserved for a waiting instance.
    Reserved(Waiter),
}

/// How a holder leaves its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// The guard released the lock.
    Done,
    /// No guard ever had the grant.
    Unused,
    /// The lock was lost while its guard was in use.
    Lost,
}

/// The locks of a scan, readable or of a newer format.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Known {
    /// The locks that this program can read.
    pub locks: Vec<Lock>,
    /// The locks of a newer format, with the format number. Their holders are unknown.
    pub newer: BTreeMap<LockName, u32>,
}

impl LockRepository {
    /// Opens the lock documents of a collection, and creates a missing collection.
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

    /// Finds a lock by its name. `None` if the lock has no document.
    ///
    /// # Errors
    /// [`LockError::NewerFormat`], or an error of the engine.
    pub async fn find(&self, name: &LockName) -> Result<Option<Lock>> {
        let id = name.document();
        let found = self.domain.reader().get(&self.locks, &id).await?;
        found.map(|found| known(&id, found)).transpose()
    }

    /// The locks of these names, in order, as the primaries have them.
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

    /// Grants a free lock to this holder, with a new largest token.
    ///
    /// A repeated call with the same grant returns the same result.
    ///
    /// # Errors
    /// [`LockError::NewerFormat`], or an error of the engine. After an error of the kind `Unknown`,
    /// repeat the call with the same grant.
    ///
    /// # Cancel safety
    /// If the returned future is dropped, the lock may be granted or not.
    /// [`LockRepository::release`] settles the grant.
    pub async fn create(&self, name: &LockName, holder: &Holder) -> Result<Created> {
        let applicant = Applicant { instance: &holder.instance, ..Applicant::default() };
        self.grant(name, holder, None, &applicant).await
    }

    /// As [`LockRepository::create`]; also takes the lock over from a dead holder.
    pub(crate) async fn grant(
        &self,
        name: &LockName,
        holder: &Holder,
        dead: Option<(&Instances, &Dead, &str)>,
        applicant: &Applicant<'_>,
    ) -> Result<Created> {
        let granted =
            self.domain.transact(async |tx| self.grant_in(tx, name, holder, dead, applicant).await);
        granted.await
    }

    /// As [`LockRepository::grant`], in a transaction of the caller.
    pub(crate) async fn grant_in(
        &self,
        tx: &Transaction,
        name: &LockName,
        holder: &Holder,
        dead: Option<(&Instances, &Dead, &str)>,
        applicant: &Applicant<'_>,
    ) -> Result<Created> {
        let id = name.document();
        let mut waiting = Vec::new();
        let (before, abandoned) = match tx.get(&self.locks, &id).await? {
            None => (self.floor(tx).await?, false),
            Some(found) => {
                let mut found = known(&id, found)?;
                waiting = std::mem::take(&mut found.waiting);
                match found.holder.clone() {
                    Some(own) if own.grant == holder.grant && own.instance == holder.instance => {
                        let Lock { token, abandoned, .. } = found;
                        return Ok(Created::Granted { token, abandoned });
                    }
                    // The process continues under a new instance id, so the old instance counts
                    // as dead.
                    Some(own) if own.grant == holder.grant => (found.token, found.abandoned),
                    Some(other) => match dead {
                        Some((instances, dead, grant))
                            if grant == other.grant
                                && instances.is_still_dead(tx, dead).await? =>
                        {
                            (found.token, true)
                        }
                        _ => {
                            self.keep_waiting(tx, &id, found, waiting, applicant)?;
                            return Ok(Created::Held(other));
                        }
                    },
                    None => {
                        if let Some(waiter) = applicant.turn_of_another(found.token, &waiting) {
                            let waiter = waiter.clone();
                            self.keep_waiting(tx, &id, found, waiting, applicant)?;
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
        Ok(Created::Granted { token, abandoned })
    }

    /// Reads a lock in a transaction.
    pub(crate) async fn find_in(&self, tx: &Transaction, name: &LockName) -> Result<Option<Lock>> {
        let id = name.document();
        let found = tx.get(&self.locks, &id).await?;
        found.map(|found| known(&id, found)).transpose()
    }

    /// Writes a lock in a transaction.
    pub(crate) fn put(&self, tx: &Transaction, lock: Lock) -> Result<()> {
        Ok(tx.put(&self.locks, lock.name().document(), &Stored::Known(lock))?)
    }

    /// Enters an applicant in a lock's queue.
    ///
    /// The applicant does not get the lock.
    fn keep_waiting(
        &self,
        tx: &Transaction,
        id: &str,
        mut lock: Lock,
        mut waiting: Vec<Waiter>,
        applicant: &Applicant<'_>,
    ) -> Result<()> {
        if applicant.wait(&mut waiting) {
            lock.waiting = waiting;
            tx.put(&self.locks, id, &Stored::Known(lock))?;
        }
        Ok(())
    }

    /// Releases a lock, if this grant holds it. Returns whether the grant held it.
    ///
    /// The call writes the document in either case, so that a delayed write of this grant fails.
    ///
    /// # Errors
    /// [`LockError::NewerFormat`], or an error of the engine.
    ///
    /// # Cancel safety
    /// If the returned future is dropped, the lock may be released or not. Repeat the call.
    pub async fn release(&self, name: &LockName, grant: &str) -> Result<bool> {
        self.leave(name, grant, Leaving::Done, None).await
    }

    /// As [`LockRepository::release`]; notes the cause, and removes a waiting instance.
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

    /// Takes a lock from its holder. `only` restricts the call to one grant of one dead instance.
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

    /// Deletes the document of a free lock. Returns whether the document was deleted.
    ///
    /// Tokens continue to grow: the store keeps the largest deleted token, and new documents begin
    /// above it.
    ///
    /// # Errors
    /// [`LockError::NewerFormat`], or an error of the engine.
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

    /// Checks in a transaction that a grant still holds its lock.
    pub(crate) async fn holds(
        &self,
        tx: &Transaction,
        name: &LockName,
        grant: &str,
    ) -> Result<bool> {
        Ok(self.find_in(tx, name).await?.is_some_and(|lock| lock.is_held_by(grant)))
    }

    /// Lists all locks with a document, by name, including free locks.
    ///
    /// Separate reads are no snapshot.
    ///
    /// # Errors
    /// [`LockError::NewerFormat`], [`LockError::Store`], or an error of the engine.
    pub async fn list(&self) -> Result<Vec<Lock>> {
        let Known { locks, newer } = self.list_known().await?;
        match newer.into_iter().next() {
            None => Ok(locks),
            Some((name, format)) => {
                Err(LockError::NewerFormat { document: name.document(), format })
            }
        }
    }

    /// As [`LockRepository::list`]; names locks of a newer format instead of failing.
    ///
    /// # Errors
    /// [`LockError::Store`], or an error of the engine.
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

/// The document, or an error if its format is newer.
fn known<T>(document: &str, stored: Stored<T>) -> Result<T> {
    stored
        .known()
        .map_err(|format| LockError::NewerFormat { document: document.to_owned(), format })
}
