//! Scenarios for every store, each an `async fn(&World)`.
#![allow(dead_code, unused_imports, unused_macros, reason = "each suite uses a part of it")]

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use txn_core::store::Store;
use txn_core::{Collection, Config, Domain, Error, Raw, Typed};
use txn_fixtures::process::Process;
use txn_lock::{Guard, Heartbeat, LockConfig, LockError, LockName, LockService, Loss};

/// Passes all scenarios to a macro that declares them as tests.
macro_rules! all {
    ($($on:ident)::+) => {
        $($on)::+! {
            one_at_a_time;
            tokens_grow_over_unlock_break_and_delete;
            timeout_reports_the_holder;
            heartbeat_keeps_a_lock_beyond_its_lease;
            locks_of_a_killed_process_are_taken_over;
            paused_holder_detects_its_loss_and_is_fenced;
            a_newer_format_is_refused_by_name;
            shutdown_releases_all_locks;
            dropped_shutdown_still_ends_all_guards;
        }
    };
}
pub(crate) use all;

/// The bound of a wait that must succeed. Long, because test machines are slow.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A store, and the name of a domain in the store.
pub(crate) struct World {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) name: String,
    /// Short enough to wait for. Long enough to renew on a busy machine.
    pub(crate) lease: Duration,
}

impl World {
    pub(crate) async fn domain(&self) -> Domain {
        let config = Config::default().with_janitor_interval(None).with_timeout(PATIENCE);
        Domain::open_or_create(self.store.clone(), &self.name, config).await.expect("opens")
    }

    pub(crate) async fn service(&self) -> LockService {
        LockService::open(&self.domain().await, self.config()).await.expect("opens")
    }

    pub(crate) fn config(&self) -> LockConfig {
        let config = LockConfig::default().with_lease(self.lease).with_reap_interval(None);
        // Tests pause their processes, and a paused process must miss its heartbeats.
        config.with_heartbeat(Heartbeat::CallersRuntime)
    }

    async fn counters(&self, domain: &Domain) -> Collection<Typed<u64Doc>> {
        let name = format!("{}-counters", self.name);
        domain.create_collection(&name, None).await.expect("opens")
    }
}

#[allow(non_camel_case_types)]
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
struct u64Doc {
    n: u64,
}

async fn lock(service: &LockService, id: &str) -> Guard {
    service.lock("test", id, PATIENCE).await.expect("granted")
}

pub(crate) async fn one_at_a_time(world: &World) {
    let mut tasks = tokio::task::JoinSet::new();
    let (processes, callers, rounds) = (2, 3, 4);
    for _ in 0..processes {
        let (service, domain) = (world.service().await, world.domain().await);
        let counters = world.counters(&domain).await;
        for _ in 0..callers {
            let (service, domain, counters) = (service.clone(), domain.clone(), counters.clone());
            tasks.spawn(async move {
                let mut tokens = Vec::new();
                for _ in 0..rounds {
                    let done = service.do_in_lock("test", "counter", PATIENCE, async |lock| {
                        // Reads and writes in separate steps: without the lock increments would be
                        // lost.
                        let reader = domain.reader().verified();
                        let found = reader.get(&counters, "one").await?.unwrap_or_default();
                        let next = u64Doc { n: found.n + 1 };
                        domain
                            .transact::<_, Error, _>(async |tx| tx.put(&counters, "one", &next))
                            .await?;
                        Ok::<_, LockError>((lock.token(), next.n))
                    });
                    tokens.push(done.await.expect("granted"));
                }
                tokens
            });
        }
    }
    let mut grants: Vec<(u64, u64)> = tasks.join_all().await.into_iter().flatten().collect();
    grants.sort_unstable();
    let counted: Vec<u64> = grants.iter().map(|(_, n)| *n).collect();
    assert_eq!(counted, (1..=processes * callers * rounds).collect::<Vec<u64>>(), "{grants:?}");
    grants.dedup_by_key(|(token, _)| *token);
    assert_eq!(grants.len() as u64, processes * callers * rounds, "a token was given twice");
}

pub(crate) async fn tokens_grow_over_unlock_break_and_delete(world: &World) {
    let service = world.service().await;
    let first = lock(&service, "a").await;
    let mut last = first.token();
    let mut larger = |token: u64| assert!(std::mem::replace(&mut last, token) < token, "{token}");
    first.unlock().await.expect("unlocks");
    let second = lock(&service, "a").await;
    larger(second.token());
    let held_by = second.held();
    let broken = service.break_lock("test", "a").await.expect("breaks").expect("was held");
    assert_eq!(broken.instance, service.instance());
    assert!(held_by.is_lost());
    let error = second.unlock().await.expect_err("lost");
    assert!(matches!(error, LockError::Lost { why: Loss::Taken, .. }), "{error}");
    let third = lock(&service, "a").await;
    larger(third.token());
    third.unlock().await.expect("unlocks");
    let name = LockName::new("test", "a").expect("a name");
    assert!(service.repository().delete(&name).await.expect("deletes"));
    assert!(service.repository().find(&name).await.expect("looks").is_none());
    assert!(!service.repository().delete(&name).await.expect("looks"));
    let fourth = lock(&service, "a").await;
    larger(fourth.token());
    assert!(!service.repository().delete(&name).await.expect("looks"), "it is held");
    drop(fourth);
    lock(&service, "a").await.unlock().await.expect("unlocks");
    assert_eq!(service.purge(Duration::ZERO).await.expect("purges"), 1);
    assert!(service.shutdown(PATIENCE).await);
}

pub(crate) async fn timeout_reports_the_holder(world: &World) {
    let (one, two) = (world.service().await, world.service().await);
    let guard = lock(&one, "a").await;
    assert!(one.try_lock("test", "a").await.expect("looks").is_none());
    assert!(two.try_lock("test", "a").await.expect("looks").is_none());
    // A caller in the same process, and a caller in another process.
    for service in [&one, &two] {
        let patience = world.lease / 2;
        let error = service.lock("test", "a", patience).await.expect_err("held");
        let LockError::Timeout(timeout) = error else { panic!("{error}") };
        let holder = timeout.holder.as_ref().expect("is known");
        assert_eq!((&holder.instance, holder.lease()), (&one.instance(), world.lease));
        assert!(holder.since_ms > 0 && timeout.waited >= patience);
        assert!(timeout.to_string().contains("holds it"), "{timeout}");
    }
    let listed = two.list().await.expect("lists");
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].holder.as_ref().map(|h| &h.instance), Some(&one.instance()));
    assert_eq!((listed[0].token, listed[0].name()), (guard.token(), guard.name().clone()));
    guard.unlock().await.expect("unlocks");
    assert!(two.list().await.expect("lists").is_empty());
    let taken = two.try_lock("test", "a").await.expect("looks").expect("is free");
    // A dropped guard releases its lock, too.
    drop(taken);
    lock(&one, "a").await.unlock().await.expect("unlocks");
    assert!(one.shutdown(PATIENCE).await && two.shutdown(PATIENCE).await);
}

pub(crate) async fn heartbeat_keeps_a_lock_beyond_its_lease(world: &World) {
    let (one, two) = (world.service().await, world.service().await);
    let guard = lock(&one, "a").await;
    let error = two.lock("test", "a", world.lease * 2).await.expect_err("it is renewed");
    assert!(matches!(error, LockError::Timeout(_)), "{error}");
    assert!(!guard.is_lost());
    guard.unlock().await.expect("unlocks");
}

pub(crate) async fn locks_of_a_killed_process_are_taken_over(world: &World) {
    let process = Process::new();
    let guard = process.run(async { lock(&world.service().await, "a").await }).await;
    let token = guard.token();
    let forgotten = process.run(async { lock(&world.service().await, "b").await }).await;
    std::mem::forget((guard, forgotten));
    drop(process);
    let service = world.service().await;
    let taken = lock(&service, "a").await;
    assert!(taken.token() > token);
    taken.unlock().await.expect("unlocks");
    // No caller waits for the second lock.
    let reaped = service.reap().await.expect("reaps");
    assert_eq!(reaped.len(), 1, "{reaped:?}");
    assert_eq!(reaped[0].id, "b");
    assert!(service.list().await.expect("lists").is_empty());
}

pub(crate) async fn paused_holder_detects_its_loss_and_is_fenced(world: &World) {
    let process = Process::new();
    let (theirs, guard) = process
        .run(async {
            let domain = world.domain().await;
            let theirs = LockService::open(&domain, world.config()).await.expect("opens");
            let guard = lock(&theirs, "a").await;
            (theirs, guard)
        })
        .await;
    let domain = world.domain().await;
    let counters = world.counters(&domain).await;
    let ours = world.service().await;
    let taken = lock(&ours, "a").await;
    let one = u64Doc { n: 1 };
    let write = |fenced: txn_lock::Fenced, one: u64Doc| {
        let counters = counters.clone();
        async move {
            fenced.transact::<_, LockError, _>(async |tx| Ok(tx.put(&counters, "x", &one)?)).await
        }
    };
    write(taken.fenced(), one.clone()).await.expect("holds it");
    let held = guard.held();
    let late = process
        .run(async {
            // The clock alone reports the loss, before a task of the process has run.
            assert!(held.is_lost());
            held.lost().await;
            let late = write(held.fenced(), u64Doc { n: 2 }).await;
            (late, guard.unlock().await)
        })
        .await;
    for refused in [late.0, late.1] {
        assert!(matches!(refused, Err(LockError::Lost { .. })), "{refused:?}");
    }
    assert!(!taken.is_lost());
    let found = domain.reader().verified().get(&counters, "x").await.expect("reads");
    assert_eq!(found, Some(one));
    taken.unlock().await.expect("it was never lost");
    drop(theirs);
}

pub(crate) async fn a_newer_format_is_refused_by_name(world: &World) {
    let (service, domain) = (world.service().await, world.domain().await);
    let name = domain.collection_name("locks");
    let raw = domain.collection::<Raw>(&name).await.expect("opens");
    let newer = Raw::new(r#"{"kind":"lock","format":2,"category":"test","id":"a"}"#);
    domain
        .transact::<_, Error, _>(async |tx| tx.put(&raw, "lock:test/a", &newer))
        .await
        .expect("written");
    let errors = [
        service.lock("test", "a", PATIENCE).await.map(drop).expect_err("refused"),
        service.try_lock("test", "a").await.map(drop).expect_err("refused"),
        service.break_lock("test", "a").await.map(drop).expect_err("refused"),
        service.list().await.map(drop).expect_err("refused"),
    ];
    for error in errors {
        let LockError::NewerFormat { document, format: 2 } = &error else { panic!("{error}") };
        assert_eq!(document, "lock:test/a");
    }
    // The unreadable lock blocks no other lock, and hides none.
    let known = service.list_known().await.expect("lists");
    let name = LockName::new("test", "a").expect("a name");
    assert_eq!(known.newer.into_iter().collect::<Vec<_>>(), [(name, 2)]);
    assert!(known.locks.is_empty());
    lock(&service, "b").await.unlock().await.expect("unlocks");
    assert!(service.reap().await.expect("looks").is_empty());
    let kept = domain.reader().verified().get(&raw, "lock:test/a").await.expect("reads");
    assert!(kept == Some(newer), "it was changed");
}

pub(crate) async fn shutdown_releases_all_locks(world: &World) {
    let (one, two) = (world.service().await, world.service().await);
    let (a, b) = (lock(&one, "a").await, lock(&one, "b").await);
    assert!(one.shutdown(PATIENCE).await);
    assert!(a.is_lost() && b.is_lost());
    let refused = one.lock("test", "c", PATIENCE).await.expect_err("closed");
    assert!(matches!(refused, LockError::Closed), "{refused}");
    for id in ["a", "b"] {
        two.try_lock("test", id)
            .await
            .expect("looks")
            .expect("is free")
            .unlock()
            .await
            .expect("unlocks");
    }
    assert!(two.shutdown(PATIENCE).await);
}

/// A shutdown with a dropped future still ends all guards at once.
///
/// Other processes take the locks over after a lease.
pub(crate) async fn dropped_shutdown_still_ends_all_guards(world: &World) {
    let (service, domain) = (world.service().await, world.domain().await);
    let counters = world.counters(&domain).await;
    let guard = lock(&service, "a").await;
    let held = guard.held();
    {
        let mut shutdown = std::pin::pin!(service.shutdown(PATIENCE));
        // The dropped shutdown may have finished already, in the memory store.
        let _begun = std::future::poll_fn(|cx| Poll::Ready(shutdown.as_mut().poll(cx))).await;
    }
    assert!(guard.is_lost());
    held.lost().await;
    let late = held
        .fenced()
        .transact::<_, LockError, _>(async |tx| Ok(tx.put(&counters, "x", &u64Doc { n: 1 })?))
        .await
        .expect_err("refused");
    assert!(matches!(late, LockError::Lost { why: Loss::Closed, .. }), "{late}");
    assert!(domain.reader().verified().get(&counters, "x").await.expect("reads").is_none());
    drop(guard);
}
