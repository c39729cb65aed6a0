//! Leases: locks of clients that are no processes of the domain.
//!
//! A lease has an instance of its own, whose heartbeats are the renewals of the client. Any process
//! of the domain can write them, so the client depends on no certain process. To all processes a
//! lease is a lock like any other: it has a fencing token, and ends one lease after the last
//! heartbeat.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use txn_core::{Collection, Domain, Transaction};

use crate::backoff::Backoff;
use crate::config::{LONGEST_LEASE, SHORTEST_LEASE};
use crate::error::{LockError, Loss, Result, Timeout};
use crate::granting::fairness::Applicant;
use crate::instance::{Dead, Instances, random, wall_ms};
use crate::name::fits;
use crate::records::model::{
    Holder, Instance, InstanceDocuments, InstanceKind, Lock, LockName, MAPPINGS, Waiter,
};
use crate::records::repository::{Created, LockRepository};
use crate::stored::{Format, Stored};

/// The prefix of the instance ids of leases.
const PREFIX: &str = "instance:lease-";

/// The first pause between two polls of a held lock.
const FIRST_PAUSE: Duration = Duration::from_millis(5);

/// The longest pause between two polls of a held lock.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// The maximum number of remembered reservations. Beyond it all patience begins again.
const MOST_RESERVATIONS: usize = 10_000;

/// The maximum number of bytes of the name of a client.
const MOST_OWNER: usize = 200;

/// A request for a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRequest {
    name: LockName,
    owner: String,
    lease: Duration,
    grant: Option<String>,
}

impl LeaseRequest {
    /// Creates a request of a client.
    ///
    /// `owner`: the name of the client, for operators. `lease`: the time for which the client may
    /// miss renewals.
    ///
    /// # Errors
    /// [`LockError::InvalidName`] unless the owner has 1 to 200 bytes without control characters;
    /// [`LockError::InvalidConfig`] unless the lease is between 100 ms and an hour.
    pub fn new(name: LockName, owner: &str, lease: Duration) -> Result<Self> {
        if !fits(owner, MOST_OWNER) {
            let (what, text) = ("the owner", owner.chars().take(40).collect());
            return Err(LockError::InvalidName { what, text, most: MOST_OWNER, more: "" });
        }
        if !(SHORTEST_LEASE..=LONGEST_LEASE).contains(&lease) {
            let why = "the lease is not between 100 ms and an hour";
            return Err(LockError::InvalidConfig(why.to_owned()));
        }
        Ok(Self { name, owner: owner.to_owned(), lease, grant: None })
    }

    /// Names the grant. A repeated request with the name receives the same grant while it holds.
    #[must_use]
    pub fn with_grant(mut self, grant: Option<String>) -> Self {
        self.grant = grant;
        self
    }

    fn holder(&self, domain: &Domain, grant: &str) -> Holder {
        Holder {
            instance: format!("{PREFIX}{grant}"),
            name: self.owner.clone(),
            grant: grant.to_owned(),
            since_ms: wall_ms(domain),
            lease_ms: u64::try_from(self.lease.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

/// A granted lease.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lease {
    /// The fencing token: larger than all earlier tokens of the lock.
    pub token: u64,
    /// Whether the previous holder did not release the lock.
    pub was_abandoned: bool,
}

/// The leases of one domain.
///
/// The value has no tasks, and holds no lock: each call is one or several transactions.
#[derive(Debug)]
pub struct Leases {
    domain: Domain,
    repository: LockRepository,
    instances: Instances,
    heartbeats: Collection<InstanceDocuments>,
    /// The reservations of free locks, over all requests. A dead process never uses its own.
    reservations: Mutex<BTreeMap<LockName, Reservation>>,
}

impl Leases {
    /// Opens the locks of a domain, and creates a missing collection.
    ///
    /// # Errors
    /// As [`Domain::create_system_collection`].
    pub async fn open(domain: &Domain) -> Result<Self> {
        let name = domain.collection_name("locks");
        Ok(Self {
            domain: domain.clone(),
            repository: LockRepository::open(domain, &name).await?,
            // Only observes other instances: its own one writes no heartbeat.
            instances: Instances::open(domain, &name, MAPPINGS, LONGEST_LEASE).await?,
            heartbeats: domain.create_system_collection(&name, MAPPINGS).await?,
            reservations: Mutex::default(),
        })
    }

    /// The lock documents.
    #[must_use]
    pub fn repository(&self) -> &LockRepository {
        &self.repository
    }

    /// Takes a lock, and waits for it for at most `timeout`.
    ///
    /// The call polls a held lock with growing pauses, and takes the lock over from a dead holder.
    /// It precedes no waiting process. A holder counts as dead after one lease in which this
    /// process saw no heartbeat, so the takeover needs a wait or several calls.
    ///
    /// # Errors
    /// [`LockError::Timeout`] with the holder; [`LockError::NewerFormat`], or an error of the
    /// engine. After an error of the kind `Unknown` the lease may be granted: repeat the request
    /// with the same grant, or wait until the lease has passed.
    ///
    /// # Cancel safety
    /// If the returned future is dropped, the lease may be granted. It then ends by itself.
    pub async fn acquire(&self, request: &LeaseRequest, timeout: Duration) -> Result<Lease> {
        let grant = request.grant.clone().unwrap_or_else(|| random(&self.domain));
        let clock = self.domain.config().clock();
        let began = clock.monotonic();
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        loop {
            let passed_over = self.passed_over(&request.name);
            let holder = match self.try_acquire(request, &grant, &passed_over).await? {
                Created::Granted { token, abandoned } => {
                    self.reservations.lock().remove(&request.name);
                    return Ok(Lease { token, was_abandoned: abandoned });
                }
                Created::Held(holder) => {
                    self.reservations.lock().remove(&request.name);
                    Some(holder)
                }
                Created::Reserved(waiter) => {
                    self.note_reservation(&request.name, waiter, clock.monotonic());
                    None
                }
            };
            let waited = clock.monotonic().saturating_sub(began);
            let left = timeout.saturating_sub(waited);
            if left.is_zero() {
                let (lock, failure) = (request.name.clone(), None);
                let timeout = Timeout { lock, waited, holder, failure };
                return Err(LockError::Timeout(Box::new(timeout)));
            }
            let pause = backoff.next(self.domain.config().entropy());
            clock.sleep(pause.min(left)).await;
        }
    }

    /// The waiting instances that left the free lock untaken.
    ///
    /// Such an instance did not take the free lock within its patience.
    fn passed_over(&self, name: &LockName) -> Vec<String> {
        let reservations = self.reservations.lock();
        reservations.get(name).map(|it| it.passed_over.clone()).unwrap_or_default()
    }

    fn note_reservation(&self, name: &LockName, waiter: Waiter, now: Duration) {
        let mut reservations = self.reservations.lock();
        if reservations.len() >= MOST_RESERVATIONS && !reservations.contains_key(name) {
            reservations.clear();
        }
        reservations.entry(name.clone()).or_default().note(waiter, now);
    }

    /// Asks for the lock once. A lock of a living holder is only read.
    async fn try_acquire(
        &self,
        request: &LeaseRequest,
        grant: &str,
        passed_over: &[String],
    ) -> Result<Created> {
        let name = &request.name;
        let found = self.repository.find(name).await?;
        let other = found.and_then(|lock| lock.holder).filter(|holder| holder.grant != grant);
        let dead = match other {
            None => None,
            Some(other) => match self.instances.look(&other.instance, other.lease()).await? {
                Some(dead) => Some((dead, other)),
                None => return Ok(Created::Held(other)),
            },
        };
        let holder = request.holder(&self.domain, grant);
        let applicant =
            Applicant { instance: &holder.instance, passed_over, ..Applicant::default() };
        let taken_from = dead
            .as_ref()
            .map(|(dead, other): &(Dead, Holder)| (&self.instances, dead, other.grant.as_str()));
        self.domain
            .transact(async |tx| {
                let granted =
                    self.repository.grant_in(tx, name, &holder, taken_from, &applicant).await?;
                if matches!(granted, Created::Granted { .. }) {
                    self.begin(tx, &holder).await?;
                    if let Some((_, other)) = &dead
                        && other.instance.starts_with(PREFIX)
                    {
                        tx.delete(&self.heartbeats, &other.instance)?;
                    }
                }
                Ok::<_, LockError>(granted)
            })
            .await
    }

    /// Renews a lease: its time begins again.
    ///
    /// A late renewal succeeds while no other client or process has taken the lock.
    ///
    /// # Errors
    /// [`LockError::Lost`] if no lease with this token holds the lock; [`LockError::NewerFormat`],
    /// or an error of the engine.
    ///
    /// # Cancel safety
    /// If the returned future is dropped, the lease may be renewed or not.
    pub async fn renew(&self, name: &LockName, token: u64) -> Result<()> {
        self.domain
            .transact(async |tx| {
                let held = self.held(tx, name, token).await?;
                let holder = held.and_then(|lock| lock.holder).ok_or_else(|| lost(name, token))?;
                match self.beat(tx, &holder, None).await? {
                    true => Ok(()),
                    false => Err(lost(name, token)),
                }
            })
            .await
    }

    /// Releases a lease. Returns whether the lease with this token held the lock.
    ///
    /// # Errors
    /// [`LockError::NewerFormat`], or an error of the engine.
    ///
    /// # Cancel safety
    /// If the returned future is dropped, the lock may be released or not. Repeat the call.
    pub async fn release(&self, name: &LockName, token: u64) -> Result<bool> {
        self.domain
            .transact(async |tx| {
                let Some(mut lock) = self.held(tx, name, token).await? else { return Ok(false) };
                if let Some(holder) = lock.holder.take() {
                    tx.delete(&self.heartbeats, &holder.instance)?;
                }
                (lock.released_ms, lock.abandoned) = (Some(wall_ms(&self.domain)), false);
                self.repository.put(tx, lock)?;
                Ok::<_, LockError>(true)
            })
            .await
    }

    /// Checks in a transaction that the grant still holds the lock.
    ///
    /// `token` is that of the grant.
    ///
    /// The commit depends on this read, so the effects of the transaction happen only under the
    /// lock. The check is for leases and for locks of processes.
    ///
    /// # Errors
    /// [`LockError::Lost`] if another grant holds the lock, or no grant. Otherwise as
    /// [`Transaction::get`].
    pub async fn check(&self, tx: &Transaction, name: &LockName, token: u64) -> Result<()> {
        match self.repository.find_in(tx, name).await? {
            Some(lock) if lock.token == token && lock.holder.is_some() => Ok(()),
            _ => Err(lost(name, token)),
        }
    }

    /// The lock, if a lease with this token holds it.
    async fn held(&self, tx: &Transaction, name: &LockName, token: u64) -> Result<Option<Lock>> {
        let is_lease = |holder: &Holder| holder.instance.starts_with(PREFIX);
        let found = self.repository.find_in(tx, name).await?;
        Ok(found.filter(|lock| lock.token == token && lock.holder.as_ref().is_some_and(is_lease)))
    }

    /// Writes the first heartbeat of a lease. A repeated grant counts as a renewal.
    async fn begin(&self, tx: &Transaction, holder: &Holder) -> Result<()> {
        self.beat(tx, holder, Some(0)).await.map(drop)
    }

    /// Writes the next heartbeat. `first`: the number before the first one of a new instance.
    ///
    /// Returns `false` if there is no instance.
    async fn beat(&self, tx: &Transaction, holder: &Holder, first: Option<u64>) -> Result<bool> {
        let beats = match tx.get(&self.heartbeats, &holder.instance).await? {
            Some(Stored::Known(found)) => Some(found.beats),
            // No process writes another format under a random id.
            Some(Stored::Newer(_)) => None,
            None => first,
        };
        let Some(beats) = beats else { return Ok(false) };
        let instance = Instance {
            kind: InstanceKind::Instance,
            format: Format,
            instance: holder.instance.clone(),
            name: holder.name.clone(),
            beats: beats + 1,
            lease_ms: holder.lease_ms,
            started_ms: holder.since_ms,
        };
        tx.put(&self.heartbeats, &holder.instance, &Stored::Known(instance))?;
        Ok(true)
    }
}

/// The waiting instances for which a free lock was reserved.
#[derive(Debug, Default)]
struct Reservation {
    current: Option<(Waiter, Duration)>,
    /// The instances that did not take the free lock within their patience.
    passed_over: Vec<String>,
}

impl Reservation {
    fn note(&mut self, waiter: Waiter, now: Duration) {
        match &self.current {
            Some((current, since)) if *current == waiter => {
                if now.saturating_sub(*since) >= waiter.patience() {
                    self.passed_over.push(waiter.instance);
                    self.current = None;
                }
            }
            _ => self.current = Some((waiter, now)),
        }
    }
}

fn lost(name: &LockName, token: u64) -> LockError {
    LockError::Lost { lock: name.clone(), token, why: Loss::Taken }
}
