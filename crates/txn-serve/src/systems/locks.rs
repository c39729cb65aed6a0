//! Locks of clients: leases that each gateway of the domain can renew.

use std::sync::Arc;
use std::time::Duration;

use base16ct::HexDisplay;
use hyper::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use txn_core::Transaction;
use txn_lock::{Known, LeaseRequest, Leases, Lock, LockError, LockName};

use super::opened::System;
use crate::access::rights::Verb;
use crate::asked::Asked;
use crate::backend::Backend;
use crate::http::problem::{Code, Problem};
use crate::http::reply::Reply;
use crate::operator::answers::take_limit;
use crate::operator::locks_json;

/// The lease of a client that names none, in milliseconds.
const USUAL_LEASE_MS: u64 = 10_000;

/// The body of a request for a lock.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Acquire {
    owner: String,
    #[serde(default = "usual_lease_ms")]
    lease_ms: u64,
    #[serde(default)]
    wait_ms: u64,
}

fn usual_lease_ms() -> u64 {
    USUAL_LEASE_MS
}

/// The body of a renewal or a release.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Granted {
    token: u64,
}

/// A lock that a commit depends on.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HeldLock {
    pub(crate) category: String,
    pub(crate) id: String,
    pub(crate) token: u64,
}

/// The lock of the path, if the caller may use it.
fn name(asked: &mut Asked) -> Result<LockName, Problem> {
    asked.finish_parameters()?;
    let (category, id) = (asked.route.value(0), asked.route.value(1));
    asked.caller.need(Verb::Lock, category)?;
    Ok(LockName::new(category, id)?)
}

/// Takes a lock. A repetition under the same `Idempotency-Key` receives the same grant.
pub(crate) async fn acquire(backend: &Backend, asked: &mut Asked) -> Result<Reply, Problem> {
    let name = name(asked)?;
    let Acquire { owner, lease_ms, wait_ms } = asked.json()?;
    let wait = Duration::from_millis(wait_ms);
    if wait > backend.config.timeout {
        let detail = format!("wait_ms is above {}", backend.config.timeout.as_millis());
        return Err(Problem::new(Code::Invalid, detail));
    }
    let grant = asked.key_text.as_ref().map(|key| grant((&name, &owner, lease_ms), key));
    let request = LeaseRequest::new(name.clone(), &owner, Duration::from_millis(lease_ms))?;
    let request = request.with_grant(grant);
    let _permit = match wait.is_zero() {
        true => None,
        false => Some(backend.systems.admit_wait()?),
    };
    let lease = backend.systems.leases().await?.acquire(&request, wait).await;
    let lease = lease.map_err(|error| match asked.key {
        Some(_) => Problem::from(error).repeatable(),
        None => error.into(),
    })?;
    let body = json!({
        "category": name.category(), "id": name.id(), "token": lease.token, "lease_ms": lease_ms,
        "was_abandoned": lease.was_abandoned,
    });
    Ok(Reply::json(StatusCode::OK, &body))
}

/// Names the grant under a key.
///
/// The key belongs to one request for one lock.
///
/// Other callers see the name, so the name is a hash.
fn grant((name, owner, lease_ms): (&LockName, &str, u64), key: &str) -> String {
    // No part has a line break.
    let text = format!("{name}\n{owner}\n{lease_ms}\n{key}");
    format!("{:x}", HexDisplay(&Sha256::digest(text)[..16]))
}

/// Renews a lease.
pub(crate) async fn renew(backend: &Backend, asked: &mut Asked) -> Result<Reply, Problem> {
    let name = name(asked)?;
    let Granted { token } = asked.json()?;
    if !backend.systems.exists(System::Locks).await? {
        return Err(never_held(&name, token));
    }
    backend.systems.leases().await?.renew(&name, token).await?;
    Ok(Reply::json(StatusCode::OK, &json!({ "renewed": true })))
}

/// Releases a lease.
pub(crate) async fn release(backend: &Backend, asked: &mut Asked) -> Result<Reply, Problem> {
    let name = name(asked)?;
    let Granted { token } = asked.json()?;
    let released = backend.systems.exists(System::Locks).await?
        && backend.systems.leases().await?.release(&name, token).await?;
    Ok(Reply::json(StatusCode::OK, &json!({ "released": released })))
}

/// Shows a lock.
pub(crate) async fn look(backend: &Backend, asked: &mut Asked) -> Result<Reply, Problem> {
    let name = name(asked)?;
    let found = match backend.systems.exists(System::Locks).await? {
        true => backend.systems.leases().await?.repository().find(&name).await?,
        false => None,
    };
    Ok(Reply::json(StatusCode::OK, &lock_json(&name, found.as_ref())))
}

fn lock_json(name: &LockName, lock: Option<&Lock>) -> Value {
    let holder = lock.and_then(|lock| lock.holder.as_ref());
    let holder = holder.map(|holder| {
        json!({ "name": holder.name, "since_ms": holder.since_ms, "lease_ms": holder.lease_ms })
    });
    json!({
        "category": name.category(), "id": name.id(), "holder": holder,
        "token": lock.map_or(0, |lock| lock.token),
        "waiting": lock.map_or(0, |lock| lock.waiting.len()),
    })
}

/// Lists the held locks, as `txn lock ls` prints them.
pub(crate) async fn list(backend: &Backend, asked: &mut Asked) -> Result<Reply, Problem> {
    asked.caller.need_any(&[Verb::Operate])?;
    let limit = take_limit(asked)?;
    asked.finish_parameters()?;
    let mut known = match backend.systems.exists(System::Locks).await? {
        true => backend.systems.leases().await?.repository().list_known().await?,
        false => Known::default(),
    };
    known.locks.retain(|lock| lock.holder.is_some());
    Ok(Reply::json(StatusCode::OK, &locks_json(&known, limit)))
}

/// The locks that a commit depends on.
#[derive(Debug)]
pub(crate) struct Conditions {
    /// `None` without locks.
    leases: Option<Arc<Leases>>,
    locks: Vec<(LockName, u64)>,
}

impl Conditions {
    /// Checks the rights and the names of locks.
    pub(crate) async fn prepare(
        backend: &Backend,
        asked: &Asked,
        locks: &[HeldLock],
    ) -> Result<Self, Problem> {
        let condition = |lock: &HeldLock| {
            asked.caller.need(Verb::Lock, &lock.category)?;
            Ok((LockName::new(&lock.category, &lock.id)?, lock.token))
        };
        let locks = locks.iter().map(condition).collect::<Result<Vec<_>, Problem>>()?;
        let Some((name, token)) = locks.first() else { return Ok(Self { leases: None, locks }) };
        if !backend.systems.exists(System::Locks).await? {
            return Err(never_held(name, *token));
        }
        Ok(Self { leases: Some(backend.systems.leases().await?), locks })
    }

    /// Checks in a transaction that the locks are held.
    pub(crate) async fn check(&self, tx: &Transaction) -> Result<(), LockError> {
        let Some(leases) = &self.leases else { return Ok(()) };
        for (name, token) in &self.locks {
            leases.check(tx, name, *token).await?;
        }
        Ok(())
    }
}

fn never_held(name: &LockName, token: u64) -> Problem {
    let detail = format!("the lock {name} with the token {token} is lost: it has no holder");
    Problem::new(Code::Lost, detail)
}
