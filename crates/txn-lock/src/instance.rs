//! Who is alive. An instance writes a document of its own again and again; others take it for dead once that document
//! stood unchanged for its lease, on their own monotonic clock. Clocks of machines are never compared.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use txn_core::clock::Clock;
use txn_core::store::{Filter, StoreError};
use txn_core::{Collection, Domain, Error, Options, Result, Transaction};

use crate::boottime::boottime;
use crate::model::{Instance, InstanceDocuments, InstanceKind};

pub use crate::model::MAPPINGS;
use crate::scan::{PAGE, candidates};
use crate::stored::{Format, Stored};

/// What the ids of instances begin with.
const PREFIX: &str = "instance:";

/// Most instances that are remembered. Beyond that all are watched anew, which takes one lease longer.
const MOST_SIGHTINGS: usize = 10_000;

/// The instances that keep their documents in one collection: one's own beats, those of others are watched.
#[derive(Debug)]
pub struct Instances {
    domain: Domain,
    documents: Collection<InstanceDocuments>,
    name: String,
    lease: Duration,
    own: Mutex<Own>,
    /// One beat at a time.
    beating: tokio::sync::Mutex<()>,
    sightings: Mutex<BTreeMap<String, Sighting>>,
    boottime: fn() -> Option<Duration>,
}

/// One's own instance.
#[derive(Debug)]
struct Own {
    id: String,
    started_ms: u64,
    /// Whether its document was ever written.
    joined: bool,
    /// Until when nobody can take it for dead.
    valid_until: Option<Moment>,
    /// How often it may have been taken for dead.
    lapses: u64,
}

/// A moment on the monotonic clock, which stands still while the machine is suspended, and on the clock that does not.
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

    /// How long it is until another moment, by the clock that went further.
    fn until(self, other: Self) -> Duration {
        let monotonic = other.monotonic.saturating_sub(self.monotonic);
        let boottime = other.boottime.zip(self.boottime);
        boottime.map_or(monotonic, |(other, at)| monotonic.min(other.saturating_sub(at)))
    }
}

/// When an instance was first seen as it is.
#[derive(Debug)]
struct Sighting {
    beats: u64,
    since: Duration,
}

/// What was seen of an instance that is dead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dead {
    instance: String,
    /// Its last sign of life; `None` if it has no document any more.
    beats: Option<u64>,
}

/// What became of a beat that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beat {
    /// Nobody can have taken the instance for dead since the last one.
    Kept,
    /// The instance lives, and may have been taken for dead before.
    Lapsed,
}

impl Instances {
    /// The instances that keep their documents in this collection. Nothing is written before the first beat.
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
        let name = match &config.application {
            Some(application) => format!("{application} ({})", config.coordinator),
            None => config.coordinator.clone(),
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
            boottime,
        })
    }

    /// The id of one's own instance. Another one after its document was removed by others.
    #[must_use]
    pub fn id(&self) -> String {
        self.own.lock().id.clone()
    }

    /// The name of one's own instance, for people.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How long an instance may show no sign of life.
    #[must_use]
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// How much longer nobody can take one's own instance for dead; `None` if that is over, or it has never beaten.
    #[must_use]
    pub fn valid_for(&self) -> Option<Duration> {
        let until = self.own.lock().valid_until?;
        let left = self.moment().until(until);
        (!left.is_zero()).then_some(left)
    }

    /// How often one's own instance may have been taken for dead: what was begun under another number is in doubt.
    #[must_use]
    pub fn lapses(&self) -> u64 {
        self.own.lock().lapses
    }

    fn now(&self) -> Duration {
        self.domain.config().clock.monotonic()
    }

    fn moment(&self) -> Moment {
        Moment { monotonic: self.now(), boottime: (self.boottime)() }
    }

    /// Writes a sign of life. An instance whose document was removed goes on under another id.
    ///
    /// # Errors
    /// As [`Domain::run`], within one lease.
    ///
    /// # Cancel safety
    /// Dropped, it may be written or not; nothing is concluded from it.
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
            // Observers saw this beat after it was sent, so their leases end later than this one.
            (own.joined, own.valid_until) = (true, Some(began.after(self.lease)));
            return Ok(if lapsed || removed { Beat::Lapsed } else { Beat::Kept });
        }
    }

    /// Writes the next beat. Returns whether the document of the instance still stood.
    async fn write_beat(&self) -> Result<bool> {
        let (id, joined, started_ms) = {
            let own = self.own.lock();
            (own.id.clone(), own.joined, own.started_ms)
        };
        // Alone: no other transaction may keep the heartbeat waiting.
        let options = Options::default().with_deadline(Some(self.lease)).with_by_itself(true);
        let written = self.domain.run::<_, Error, _>(&options, async |tx| {
            let beats = match tx.get(&self.documents, &id).await? {
                Some(Stored::Known(found)) => found.beats + 1,
                // Nobody writes another format under a random id.
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

    /// Whether an instance is dead: it has no document, or that stood unchanged for its lease while it was watched.
    /// The first look begins the watch.
    ///
    /// # Errors
    /// As [`txn_core::Reader::get`].
    pub async fn look(&self, instance: &str, lease: Duration) -> Result<Option<Dead>> {
        let asked = self.now();
        let found = self.domain.reader().get(&self.documents, instance).await?;
        let beats = match found {
            Some(Stored::Known(found)) => found.beats,
            // A newer version of this program lives by rules of its own.
            Some(Stored::Newer(_)) => return Ok(None),
            None => {
                self.sightings.lock().remove(instance);
                return Ok(Some(Dead { instance: instance.to_owned(), beats: None }));
            }
        };
        let now = self.now();
        let mut sightings = self.sightings.lock();
        if sightings.len() >= MOST_SIGHTINGS && !sightings.contains_key(instance) {
            sightings.clear();
        }
        let seen = sightings.entry(instance.to_owned()).or_insert(Sighting { beats, since: now });
        if seen.beats != beats {
            *seen = Sighting { beats, since: now };
        }
        // From the answer to the first look to the question of this one: an answer that is late shows what was there before.
        let dead = asked.saturating_sub(seen.since) >= lease;
        Ok(dead.then(|| Dead { instance: instance.to_owned(), beats: Some(beats) }))
    }

    /// Whether an instance is still as dead as it was seen, in a transaction: what that commits rests on it.
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

    /// Removes the document of a dead instance: should it wake up, it goes on under another id.
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

    /// Removes the documents of all instances that are dead. Those that are met for the first time are watched from
    /// then on.
    ///
    /// # Errors
    /// As the store says, and as [`Domain::run`].
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

    /// Removes the document of one's own instance. Call it when the instance holds nothing any more.
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

/// Why the instances could not be looked through.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InstanceError {
    /// The engine's own error.
    #[error(transparent)]
    Engine(#[from] Error),
    /// The store's own error.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn new_id(domain: &Domain) -> String {
    format!("{PREFIX}{}", random(domain))
}

/// A text that nobody else has.
#[must_use]
pub fn random(domain: &Domain) -> String {
    let entropy = &domain.config().entropy;
    format!("{:016x}{:016x}", entropy.next_u64(), entropy.next_u64())
}

/// Milliseconds since the Unix epoch, by the wall clock of the domain.
#[must_use]
pub fn wall_ms(domain: &Domain) -> u64 {
    let clock: &dyn Clock = &*domain.config().clock;
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
    async fn lease_runs_out_while_the_machine_is_suspended() {
        let store = Arc::new(MemoryStore::new());
        let domain = Domain::create(store, "test", Config::default()).await.unwrap();
        let lease = Duration::from_secs(600);
        let mut own = Instances::open(&domain, "instances", MAPPINGS, lease).await.unwrap();
        own.boottime = suspended;
        assert_eq!(own.beat().await.unwrap(), Beat::Kept);
        SUSPENDED.store(300, Ordering::SeqCst);
        assert!(own.valid_for().is_some_and(|left| left <= lease / 2));
        // The monotonic clock has hardly moved.
        SUSPENDED.store(601, Ordering::SeqCst);
        assert_eq!(own.valid_for(), None);
        assert_eq!((own.beat().await.unwrap(), own.lapses()), (Beat::Lapsed, 1));
        assert!(own.valid_for().is_some());
        own.boottime = || None;
        assert_eq!(own.beat().await.unwrap(), Beat::Kept);
        assert!(own.valid_for().is_some_and(|left| left > lease / 2));
    }
}
