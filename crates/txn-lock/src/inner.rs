//! The state that all handles and guards of one service share.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use txn_core::Domain;
use txn_core::clock::Clock;

use crate::config::LockConfig;
use crate::error::{Loss, Result};
use crate::granting::grant::Grant;
use crate::granting::queue::{Queues, Turn};
use crate::instance::{Beat, Dead, Instances, wall_ms};
use crate::records::model::{Holder, Lock, LockName, MAPPINGS};
use crate::records::repository::{Leaving, LockRepository};

pub(crate) struct Inner {
    pub(crate) repository: LockRepository,
    pub(crate) instances: Instances,
    pub(crate) config: LockConfig,
    pub(crate) queues: Queues,
    /// The grants that this process holds, by the id of the grant.
    pub(crate) held: Mutex<BTreeMap<String, Arc<Grant>>>,
    /// Grants that the store may contain and no guard holds.
    ///
    /// A background task releases these grants.
    pub(crate) unreleased: Mutex<BTreeMap<(LockName, String), Leaving>>,
    /// Grants that their own callers are releasing.
    given_back: Mutex<BTreeSet<String>>,
    pub(crate) tasks: TaskTracker,
    pub(crate) closing: CancellationToken,
    /// Wakes the renewal task to release a grant.
    pub(crate) stirred: Arc<Notify>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockService")
            .field("instance", &self.instances.id())
            .finish_non_exhaustive()
    }
}

impl Inner {
    /// Opens the locks of a domain. The caller starts the renewal.
    pub(crate) async fn open(domain: &Domain, config: LockConfig) -> Result<Arc<Self>> {
        config.check()?;
        let collection = domain.collection_name("locks");
        let repository = LockRepository::open(domain, &collection).await?;
        let instances = Instances::open(domain, &collection, MAPPINGS, config.lease).await?;
        Ok(Arc::new(Self {
            repository,
            instances,
            config,
            queues: Queues::default(),
            held: Mutex::default(),
            unreleased: Mutex::default(),
            given_back: Mutex::default(),
            tasks: TaskTracker::new(),
            closing: CancellationToken::new(),
            stirred: Arc::default(),
        }))
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        self.repository.domain().config().clock()
    }

    /// How long the held locks are still safe. `None` if this process holds no lock.
    pub(crate) fn safe_for(&self) -> Option<Duration> {
        let holds = !self.held.lock().is_empty();
        holds.then(|| self.instances.valid_for().unwrap_or_default())
    }

    /// Marks all held locks as lost if the lease has expired.
    pub(crate) fn lose_if_expired(&self) {
        if self.instances.valid_for().is_none() {
            self.lose_all(Loss::Expired);
        }
    }

    /// Marks all held locks as lost. A background task releases their grants in the store.
    pub(crate) fn lose_all(&self, why: Loss) {
        let held = std::mem::take(&mut *self.held.lock());
        for grant in held.into_values() {
            grant.lose(why);
            self.schedule_release(&grant, Leaving::Lost);
        }
    }

    /// Schedules the release of a grant. A grant that was lost stays marked as lost.
    fn schedule_release(&self, grant: &Grant, leaving: Leaving) -> Leaving {
        *self.unreleased.lock().entry((grant.name.clone(), grant.id.clone())).or_insert(leaving)
    }

    /// Whether this process needs no heartbeat.
    pub(crate) fn is_idle(&self) -> bool {
        self.held.lock().is_empty() && self.unreleased.lock().is_empty()
    }

    /// Writes a heartbeat. Marks locks as lost if the lease expired before.
    pub(crate) async fn beat(&self) -> txn_core::Result<()> {
        self.lose_if_expired();
        if self.instances.beat().await? == Beat::Lapsed {
            self.lose_all(Loss::Expired);
        }
        Ok(())
    }

    /// Detects locks that other processes took from this process.
    pub(crate) async fn check_held(&self) -> Result<()> {
        let held: Vec<Arc<Grant>> = self.held.lock().values().cloned().collect();
        let names: Vec<LockName> = held.iter().map(|grant| grant.name.clone()).collect();
        let found = self.repository.find_all(&names).await?;
        for (grant, lock) in held.into_iter().zip(found) {
            if !lock.is_some_and(|lock| lock.is_held_by(&grant.id)) {
                self.held.lock().remove(&grant.id);
                grant.lose(Loss::Taken);
            }
        }
        Ok(())
    }

    /// Releases the grants that the store may contain and no guard holds.
    pub(crate) async fn settle_unreleased(&self) {
        let unreleased: Vec<((LockName, String), Leaving)> = self
            .unreleased
            .lock()
            .iter()
            .map(|(grant, leaving)| (grant.clone(), *leaving))
            .collect();
        for (grant, leaving) in unreleased {
            // The caller of this grant releases it, and receives the result.
            if self.given_back.lock().contains(&grant.1) {
                continue;
            }
            let instance = self.instances.id();
            let own = (!self.queues.is_waited_for(&grant.0)).then_some(&*instance);
            match self.repository.leave(&grant.0, &grant.1, leaving, own).await {
                Ok(_) => drop(self.unreleased.lock().remove(&grant)),
                Err(error) => {
                    tracing::debug!(lock = %grant.0, %error, "the release of a lock is retried later");
                }
            }
        }
    }

    /// Releases a lock. Returns whether the grant still held the lock in the store.
    pub(crate) async fn give_back(&self, grant: &Arc<Grant>) -> Result<bool> {
        let _at_it = GivingBack::of(self, &grant.id);
        let leaving = self.schedule_release(grant, grant.leaving());
        self.held.lock().remove(&grant.id);
        // No heartbeat protects the lock from here on, even if the store fails.
        grant.lose(Loss::Closed);
        let held = self.repository.leave(&grant.name, &grant.id, leaving, None).await?;
        self.unreleased.lock().remove(&(grant.name.clone(), grant.id.clone()));
        Ok(held)
    }

    /// Releases a lock in a task, and then wakes the next caller.
    pub(crate) fn give_back_later(self: &Arc<Self>, grant: Arc<Grant>, turn: Turn) {
        self.schedule_release(&grant, grant.leaving());
        self.held.lock().remove(&grant.id);
        grant.lose(Loss::Closed);
        // Without a runtime no task can release the lock. Other processes take it over after a
        // lease.
        if tokio::runtime::Handle::try_current().is_ok() {
            let this = self.clone();
            self.tasks.spawn(async move {
                if let Err(error) = this.give_back(&grant).await {
                    tracing::debug!(lock = %grant.name, %error, "the release of a lock is retried later");
                }
                drop(turn);
            });
        }
    }

    /// Returns evidence if the holder of a lock is dead.
    pub(crate) async fn look(&self, holder: &Holder) -> Result<Option<Dead>> {
        Ok(self.instances.look(&holder.instance, holder.lease()).await?)
    }

    /// The holder of a lock, if this process holds it.
    pub(crate) fn holder_here(&self, name: &LockName) -> Option<Holder> {
        let held = self.held.lock();
        let grant = held.values().find(|grant| grant.name == *name)?;
        Some(Holder { since_ms: grant.since_ms, ..self.holder(&grant.id) })
    }

    pub(crate) fn holder(&self, grant: &str) -> Holder {
        Holder {
            instance: self.instances.id(),
            name: self.instances.name().to_owned(),
            grant: grant.to_owned(),
            since_ms: wall_ms(self.repository.domain()),
            lease_ms: u64::try_from(self.config.lease.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// Releases the locks of instances that are known to be dead.
    ///
    /// Returns the longest lease of the watched instances.
    pub(crate) async fn reap_pass(&self, reaped: &mut Vec<Lock>) -> Result<Duration> {
        let mut longest = Duration::ZERO;
        let mut dead: BTreeMap<String, Dead> = BTreeMap::new();
        // Only a newer version of this program can release locks of a newer format.
        for lock in self.repository.list_known().await?.locks {
            let Some(holder) = lock.holder.clone() else { continue };
            if holder.instance == self.instances.id() {
                continue;
            }
            let Some(found) = self.look(&holder).await? else {
                longest = longest.max(holder.lease());
                continue;
            };
            let only = Some((&self.instances, &found, holder.grant.as_str()));
            if self.repository.take_away(&lock.name(), only).await?.is_some() {
                dead.insert(holder.instance, found);
                reaped.push(lock);
            }
        }
        for dead in dead.values() {
            self.instances.remove(dead).await?;
        }
        // Also removes dead instances that hold no lock.
        self.instances.remove_dead().await?;
        Ok(longest)
    }
}

/// A grant that its own caller releases. The background task skips such a grant.
struct GivingBack<'a> {
    inner: &'a Inner,
    grant: &'a str,
}

impl<'a> GivingBack<'a> {
    fn of(inner: &'a Inner, grant: &'a str) -> Self {
        inner.given_back.lock().insert(grant.to_owned());
        Self { inner, grant }
    }
}

impl Drop for GivingBack<'_> {
    fn drop(&mut self) {
        self.inner.given_back.lock().remove(self.grant);
    }
}
