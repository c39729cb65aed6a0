//! Liveness of processes: each instance updates a document of its own.
//!
//! An observer considers an instance dead if this document has not changed for the instance's
//! lease. The observer measures the lease by its own monotonic clock. Clocks of different machines
//! are never compared.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use txn_core::store::{Filter, StoreError};
use txn_core::{Collection, Domain, Error, LockMode, Options, Result, Transaction};

use crate::holding::boottime::boottime;
use crate::records::model::{Instance, InstanceDocuments, InstanceKind};

pub use crate::records::model::MAPPINGS;
use crate::stored::{Format, Stored};
use txn_core::scan::{PAGE, candidates};

/// The prefix of instance ids.
const PREFIX: &str = "instance:";

/// The maximum number of watched instances. Beyond it the watch ends that is idle for the longest
/// time.
const MOST_SIGHTINGS: usize = 10_000;

/// The instances of one collection. The own instance is that of this process. The process observes
/// the other instances.
#[derive(Debug)]
pub struct Instances {
    domain: Domain,
    documents: Collection<InstanceDocuments>,
    name: String,
    lease: Duration,
    own: Mutex<Own>,
    /// Allows only one heartbeat at a time.
    beating: tokio::sync::Mutex<()>,
    sightings: Mutex<BTreeMap<String, Sighting>>,
    most_sightings: usize,
    boottime: fn() -> Option<Duration>,
}

/// The instance of this process.
#[derive(Debug)]
struct Own {
    id: String,
    started_ms: u64,
    /// Whether the document of the instance was ever written.
    joined: bool,
    /// The time until which no other process can consider this instance dead.
    valid_until: Option<Moment>,
    /// How often other processes may have considered this instance dead.
    lapses: u64,
}

/// A time on two clocks. Only the boot clock advances during a suspension.
#[derive(Clone, Copy, Debug)]
struct Moment {
    monotonic: Duration,
    boottime: Option<Duration>,
}

impl Moment {
    fn after(self, duration: Duration) -> Self {
        let boottime = self.boottime.map(|at| at + duration);
        Self { monotonic: self.monotonic + duration, boottime }
    }

    /// The time until another moment, by the clock that advanced further.
    fn until(self, other: Self) -> Duration {
        let monotonic = other.monotonic.saturating_sub(self.monotonic);
        let boottime = other.boottime.zip(self.boottime);
        boottime.map_or(monotonic, |(other, at)| monotonic.min(other.saturating_sub(at)))
    }
}

/// The first observation of an instance's current heartbeat.
#[derive(Debug)]
struct Sighting {
    beats: u64,
    since: Duration,
    /// The time of the last look.
    looked: Duration,
}

/// Evidence that an instance is dead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dead {
    instance: String,
    /// The last heartbeat. `None` if the instance has no document any more.
    beats: Option<u64>,
}

/// The result of a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beat {
    /// No other process can have considered the instance dead since then.
    Kept,
    /// The instance lives, but another process may have considered it dead before.
    Lapsed,
}

impl Instances {
    /// Opens the instances of this collection. The first heartbeat is the first write.
    ///
    /// # Errors
    /// As [`Domain::create_system_collection`].
    pub async fn open(
        domain: &Domain,
        collection: &str,
        mappings: &str,
        lease: Duration,
    ) -> Result<Self> {
        let documents = domain.create_system_collection(collection, mappings).await?;
        let config = domain.config();
        let name = match config.application_name() {
            Some(application) => format!("{application} ({})", config.process_name()),
            None => config.process_name().to_owned(),
        };
        let own = Own {
            id: new_id(domain),
            started_ms: wall_ms(domain),
            joined: false,
            valid_until: None,
            lapses: 0,
        };
        Ok(Self {
            domain: domain.clone(),
            documents,
            name,
            lease,
            own: Mutex::new(own),
            beating: tokio::sync::Mutex::default(),
            sightings: Mutex::default(),
            most_sightings: MOST_SIGHTINGS,
            boottime,
        })
    }

    /// The id of this process's instance. Changes after another process removed the document.
    #[must_use]
    pub fn id(&self) -> String {
        self.own.lock().id.clone()
    }

    /// The name of this process's instance, for operators.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How long an instance may miss heartbeats until it counts as dead.
    #[must_use]
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// How long no other process can consider this instance dead.
    ///
    /// `None` if this time is over, or before the first heartbeat.
    #[must_use]
    pub fn valid_for(&self) -> Option<Duration> {
        let until = self.own.lock().valid_until?;
        let left = self.moment().until(until);
        (!left.is_zero()).then_some(left)
    }

    /// How often other processes may have considered this instance dead.
    ///
    /// Work that began under another number is in doubt.
    #[must_use]
    pub fn lapses(&self) -> u64 {
        self.own.lock().lapses
    }

    fn now(&self) -> Duration {
        self.domain.config().clock().monotonic()
    }

    fn moment(&self) -> Moment {
        Moment { monotonic: self.now(), boottime: (self.boottime)() }
    }

    /// Writes a heartbeat. An instance without its document continues under a new id.
    ///
    /// # Errors
    /// As [`Domain::run`], within one lease.
    ///
    /// # Cancel safety
    /// If the returned future is dropped, the heartbeat may be written or not. The instance draws
    /// no conclusion from it.
    pub async fn beat(&self) -> Result<Beat> {
        let _one = self.beating.lock().await;
        let mut removed = false;
        loop {
            let began = self.moment();
            let written = self.write_beat().await?;
            let mut own = self.own.lock();
            if !written {
                (own.id, own.joined, own.valid_until) = (new_id(&self.domain), false, None);
                own.lapses += 1;
                removed = true;
                continue;
            }
            let lapsed = own.valid_until.is_some_and(|until| self.moment().until(until).is_zero());
            own.lapses += u64::from(lapsed);
            // Observers saw this heartbeat after the process sent it, so their leases end later
            // than this one.
            (own.joined, own.valid_until) = (true, Some(began.after(self.lease)));
            return Ok(if lapsed || removed { Beat::Lapsed } else { Beat::Kept });
        }
    }

    /// Writes the next heartbeat. Returns `false` if the document of the instance is gone.
    async fn write_beat(&self) -> Result<bool> {
        let (id, joined, started_ms) = {
            let own = self.own.lock();
            (own.id.clone(), own.joined, own.started_ms)
        };
        // No group: another transaction must not delay the heartbeat.
        let options = Options::default()
            .with_timeout(Some(self.lease))
            .with_lock_mode(LockMode::AtCommitUngrouped);
        let written = self.domain.run::<_, Error, _>(&options, async |tx| {
            let beats = match tx.get(&self.documents, &id).await? {
                Some(Stored::Known(found)) => found.beats + 1,
                // No process writes another format under a random id.
                Some(Stored::Newer(_)) => return Ok(false),
                None if joined => return Ok(false),
                None => 1,
            };
            let own = Instance {
                kind: InstanceKind::Instance,
                format: Format,
                instance: id.clone(),
                name: self.name.clone(),
                beats,
                lease_ms: u64::try_from(self.lease.as_millis()).unwrap_or(u64::MAX),
                started_ms,
            };
            tx.put(&self.documents, &id, &Stored::Known(own))?;
            Ok(true)
        });
        Ok(written.await?.value)
    }

    /// Returns evidence if an instance is dead. The first call begins the watch.
    ///
    /// An instance is dead if it has no document, or if its document did not change for its lease
    /// while this process watched.
    ///
    /// # Errors
    /// As [`txn_core::Reader::get`].
    pub async fn look(&self, instance: &str, lease: Duration) -> Result<Option<Dead>> {
        let asked = self.now();
        let found = self.domain.reader().get(&self.documents, instance).await?;
        let beats = match found {
            Some(Stored::Known(found)) => found.beats,
            // A newer version of this program may have other rules of liveness.
            Some(Stored::Newer(_)) => return Ok(None),
            None => {
                self.sightings.lock().remove(instance);
                return Ok(Some(Dead { instance: instance.to_owned(), beats: None }));
            }
        };
        let now = self.now();
        let mut sightings = self.sightings.lock();
        if sightings.len() >= self.most_sightings && !sightings.contains_key(instance) {
            let idle = sightings.iter().min_by_key(|(_, sighting)| sighting.looked);
            if let Some(idle) = idle.map(|(instance, _)| instance.clone()) {
                sightings.remove(&idle);
            }
        }
        let first = Sighting { beats, since: now, looked: now };
        let seen = sightings.entry(instance.to_owned()).or_insert(first);
        if seen.beats != beats {
            (seen.beats, seen.since) = (beats, now);
        }
        seen.looked = now;
        // From the answer of the first read to the request of this one, because a late answer shows
        // an earlier state.
        let dead = asked.saturating_sub(seen.since) >= lease;
        Ok(dead.then(|| Dead { instance: instance.to_owned(), beats: Some(beats) }))
    }

    /// Whether an instance is still dead, read in a transaction.
    ///
    /// The commit of the transaction then depends on this read.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub async fn is_still_dead(&self, tx: &Transaction, dead: &Dead) -> Result<bool> {
        Ok(match tx.get(&self.documents, &dead.instance).await? {
            Some(Stored::Known(found)) => Some(found.beats) == dead.beats,
            Some(Stored::Newer(_)) => false,
            None => true,
        })
    }

    /// Removes the document of a dead instance. A live process then continues under a new id.
    ///
    /// # Errors
    /// As [`Domain::run`].
    pub async fn remove(&self, dead: &Dead) -> Result<()> {
        self.domain
            .transact(async |tx| {
                if self.is_still_dead(tx, dead).await? {
                    tx.delete(&self.documents, &dead.instance)?;
                }
                Ok::<_, Error>(())
            })
            .await?;
        self.sightings.lock().remove(&dead.instance);
        Ok(())
    }

    /// Removes the documents of all dead instances. Begins the watch of unknown instances.
    ///
    /// # Errors
    /// As the store, and as [`Domain::run`].
    pub async fn remove_dead(&self) -> Result<(), InstanceError> {
        let filter = Filter::any_of("kind", ["instance"]);
        let ids = candidates(&self.domain, self.documents.name(), filter, usize::MAX).await?;
        let ids: Vec<_> = ids.into_iter().filter(|id| id.starts_with(PREFIX)).collect();
        for ids in ids.chunks(PAGE) {
            let found = self.domain.reader().get_many(&self.documents, ids).await?;
            for instance in found.into_iter().flatten() {
                let Stored::Known(instance) = instance else { continue };
                let lease = Duration::from_millis(instance.lease_ms);
                if instance.instance == self.id() {
                    continue;
                }
                if let Some(dead) = self.look(&instance.instance, lease).await? {
                    self.remove(&dead).await?;
                }
            }
        }
        Ok(())
    }

    /// Removes the document of this process's instance. Call it when the instance holds nothing.
    ///
    /// # Errors
    /// As [`Domain::run`].
    pub async fn leave(&self) -> Result<()> {
        let _one = self.beating.lock().await;
        let id = {
            let mut own = self.own.lock();
            own.valid_until = None;
            own.id.clone()
        };
        self.domain.transact(async |tx| tx.delete(&self.documents, &id)).await
    }
}

/// The reason why a scan of the instances failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InstanceError {
    /// An error of the engine.
    #[error(transparent)]
    Engine(#[from] Error),
    /// An error of the store.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn new_id(domain: &Domain) -> String {
    format!("{PREFIX}{}", random(domain))
}

/// A random text of 128 bits, for unique ids.
#[must_use]
pub fn random(domain: &Domain) -> String {
    let entropy = domain.config().entropy();
    format!("{:016x}{:016x}", entropy.next_u64(), entropy.next_u64())
}

/// The wall clock of the domain, in milliseconds since the Unix epoch.
#[must_use]
pub fn wall_ms(domain: &Domain) -> u64 {
    let clock = domain.config().clock();
    u64::try_from(clock.wall().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use txn_core::Config;
    use txn_core::store::MemoryStore;

    use super::*;

    /// How long the machine of the test was suspended, in seconds.
    static SUSPENDED: AtomicU64 = AtomicU64::new(0);

    fn suspended() -> Option<Duration> {
        Some(Duration::from_secs(1_000 + SUSPENDED.load(Ordering::SeqCst)))
    }

    #[tokio::test]
    async fn lease_expires_while_the_machine_is_suspended() {
        let store = Arc::new(MemoryStore::new());
        let domain = Domain::open_or_create(store, "test", Config::default()).await.unwrap();
        let lease = Duration::from_secs(600);
        let mut own = Instances::open(&domain, "instances", MAPPINGS, lease).await.unwrap();
        own.boottime = suspended;
        assert_eq!(own.beat().await.unwrap(), Beat::Kept);
        SUSPENDED.store(300, Ordering::SeqCst);
        assert!(own.valid_for().is_some_and(|left| left <= lease / 2));
        // The monotonic clock has hardly advanced.
        SUSPENDED.store(601, Ordering::SeqCst);
        assert_eq!(own.valid_for(), None);
        assert_eq!((own.beat().await.unwrap(), own.lapses()), (Beat::Lapsed, 1));
        assert!(own.valid_for().is_some());
        own.boottime = || None;
        assert_eq!(own.beat().await.unwrap(), Beat::Kept);
        assert!(own.valid_for().is_some_and(|left| left > lease / 2));
    }

    #[tokio::test]
    async fn watch_continues_while_others_begin() {
        let store = Arc::new(MemoryStore::new());
        let domain = Domain::open_or_create(store, "test", Config::default()).await.unwrap();
        let open = async || {
            let lease = Duration::from_secs(600);
            Instances::open(&domain, "instances", MAPPINGS, lease).await.unwrap()
        };
        let mut observer = open().await;
        observer.most_sightings = 2;
        let dead = open().await;
        dead.beat().await.unwrap();
        let is_dead = async || observer.look(&dead.id(), Duration::ZERO).await.unwrap().is_some();
        // The first look begins the watch, so its lease cannot have passed.
        is_dead().await;
        let since = observer.sightings.lock()[&dead.id()].since;
        for _ in 0..5 {
            let other = open().await;
            other.beat().await.unwrap();
            observer.look(&other.id(), Duration::ZERO).await.unwrap();
            assert!(is_dead().await);
            assert_eq!(observer.sightings.lock()[&dead.id()].since, since);
            assert_eq!(observer.sightings.lock().len(), 2);
        }
    }
}
