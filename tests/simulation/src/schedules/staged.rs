//! Parallel commit where chance seldom leads: locks and versions that vanish, placeholders in the way, contents that do not fit.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::Notify;
use txn_core::store::{Key, Layer, Outcome, Read, Refusal, RefusalKind, Store, Write, WriteOp};
use txn_core::{Domain, Error, fields};
use txn_protocol::rule::Rules;
use txn_sim::server::{Manners, Server};

use super::directed::{Directed, Fate};
use super::left_behind::{ground, number, passes, thing, told};
use super::{coordinator, coordinator_on, hangs, is_committed, settings};
use crate::process::{Process, StoreOf};

/// What becomes of the lock of a staged transaction on `b`. The rest of its bulk is carried out and answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lock {
    /// It stands on its primary alone, and is not answered.
    OnThePrimary,
    /// It is on the way until it is released.
    Late,
    /// It never arrives, and is not answered.
    Lost,
}

/// The way of an owner to the server.
struct Owning {
    server: Arc<Server>,
    lock: Lock,
    sent: Notify,
    released: Notify,
    is_first: Mutex<bool>,
}

impl fmt::Debug for Owning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("owning")
    }
}

fn is_lock_of_b(write: &Write) -> bool {
    let locks = |source: &str| source.contains(&format!("\"{}\":\"", fields::TRANSACTION_TID));
    &*write.key.id == "b" && matches!(&write.op, WriteOp::Replace(source, _) if locks(source))
}

#[async_trait]
impl Layer for Owning {
    fn inner(&self) -> &dyn Store {
        &*self.server
    }

    async fn write_many(&self, writes: &[Write]) -> Vec<Outcome> {
        let at = writes.iter().position(is_lock_of_b);
        let Some(at) = at.filter(|_| std::mem::take(&mut *self.is_first.lock())) else {
            return self.server.write_many(writes).await;
        };
        let mut others = writes.to_vec();
        let lock = others.remove(at);
        let mut outcomes = self.server.write_many(&others).await;
        match self.lock {
            Lock::OnThePrimary => {
                self.server.set_manners(hangs());
                let server = self.server.clone();
                tokio::spawn(async move { server.write_many(&[lock]).await });
                tokio::task::yield_now().await;
                self.server.set_manners(Manners::default());
                self.sent.notify_one();
                std::future::pending().await
            }
            Lock::Lost => {
                self.sent.notify_one();
                std::future::pending().await
            }
            Lock::Late => {
                self.sent.notify_one();
                self.released.notified().await;
                outcomes.insert(at, self.server.write_many(&[lock]).await.swap_remove(0));
                outcomes
            }
        }
    }
}

/// An owner that sets `a` and `b` to 2, with its lock on `b` not answered yet.
struct Owner {
    way: Arc<Owning>,
    process: Arc<Process>,
    task: tokio::task::JoinHandle<Result<(), Error>>,
}

impl Owner {
    async fn stage(rules: &Rules, server: &Arc<Server>, lock: Lock) -> Result<Self, Error> {
        let way = Arc::new(Owning {
            server: server.clone(),
            lock,
            sent: Notify::new(),
            released: Notify::new(),
            is_first: Mutex::new(true),
        });
        let (process, domain) = in_parallel(rules, way.clone(), "owner").await?;
        let task = tokio::spawn(async move { set_both(&domain, 2).await });
        way.sent.notified().await;
        Ok(Self { way, process, task })
    }

    fn dies(&self) {
        self.process.kill_after(1);
        self.task.abort();
    }
}

/// How long the owner waits for its bulk, which is longer than others wait for the owner.
const PATIENT: Duration = Duration::from_secs(25);

/// A process that commits in parallel.
async fn in_parallel(
    rules: &Rules,
    store: Arc<dyn Store>,
    name: &str,
) -> Result<(Arc<Process>, Domain), Error> {
    let (process, config) = settings(rules, store, name, 0);
    let config = config.with_parallel_commit(true);
    let config = config.with_lease(PATIENT).with_transaction_limit(PATIENT);
    let domain = Domain::create(Arc::new(StoreOf(process.clone())), "shop", config).await?;
    Ok((process, domain))
}

async fn set_both(domain: &Domain, n: u64) -> Result<(), Error> {
    let things = domain.raw_collection("things").await?;
    let set = domain.transact::<_, Error, _>(async |tx| {
        tx.get_many(&things, ["a", "b"]).await?;
        ["a", "b"].iter().try_for_each(|id| tx.put(&things, *id, &thing(n)))
    });
    set.await
}

fn ids() -> Vec<String> {
    ["a", "b"].map(str::to_owned).into()
}

async fn both(domain: &Domain) -> Result<[u64; 2], Error> {
    let things = domain.raw_collection("things").await?;
    let read = domain.reader().verified().get_many(&things, ["a", "b"]).await?;
    let mut read = read.into_iter().map(number);
    Ok([(); 2].map(|()| read.next().unwrap_or_default()))
}

/// Waits until the write is sent that is to be held up. What is wrong where it never is.
async fn is_reached(way: &Directed, nobody: &str) -> Vec<String> {
    match tokio::time::timeout(Duration::from_secs(60), way.reached()).await {
        Ok(()) => Vec::new(),
        Err(_) => vec![format!("{nobody}: the schedule shows nothing")],
    }
}

/// Who recovers sees every lock; one of them vanishes with its primary, just when the record says that it is committed.
#[must_use]
pub(super) fn a_staged_lock_that_vanishes(rules: &Rules) -> Vec<String> {
    told(async {
        let server = ground(rules, &ids()).await?;
        let owner = Owner::stage(rules, &server, Lock::OnThePrimary).await?;
        owner.dies();
        let way = Directed::new(server.clone());
        let (process, recoverer) = coordinator_on(rules, way.clone(), "recoverer", 0).await?;
        way.cue(Fate::Held, is_committed);
        let recovering = tokio::spawn(async move { passes(&recoverer).await });
        let mut wrong = is_reached(&way, "nobody commits it").await;
        server.crash();
        process.kill_after(1);
        recovering.abort();
        let (_, witness) = coordinator(rules, &server, "witness", 0).await?;
        passes(&witness).await?;
        match both(&witness).await? {
            [a, b] if a == b => {}
            other => wrong.push(format!("a part of it is committed: {other:?}")),
        }
        Ok(wrong)
    })
}

/// Who recovers sees `b` past the version that the staged record expects; that vanishes, and the lock arrives after all.
#[must_use]
pub(super) fn a_version_that_vanishes(rules: &Rules) -> Vec<String> {
    told(async {
        let server = ground(rules, &ids()).await?;
        let owner = Owner::stage(rules, &server, Lock::Late).await?;
        let (process, other) = coordinator(rules, &server, "an application", 0).await?;
        let things = other.raw_collection("things").await?;
        let read = other.reader().read(&things, "b").await?;
        server.set_manners(hangs());
        let writing =
            tokio::spawn(async move { other.compare_and_set(&things, &read, &thing(9)).await });
        tokio::time::sleep(Duration::from_millis(100)).await;
        process.kill_after(1);
        server.set_manners(Manners::default());
        let way = Directed::new(server.clone());
        let (of_recoverer, recoverer) = coordinator_on(rules, way.clone(), "recoverer", 0).await?;
        way.cue(Fate::Held, |write| {
            matches!(&write.op, WriteOp::Replace(source, _) if source.contains("\"state\":\"aborted\""))
        });
        let recovering = tokio::spawn(async move { passes(&recoverer).await });
        let mut wrong = is_reached(&way, "nobody aborts it").await;
        server.crash();
        of_recoverer.kill_after(1);
        for task in [recovering.abort_handle(), writing.abort_handle()] {
            task.abort();
        }
        owner.way.released.notify_one();
        let owned = tokio::time::timeout(Duration::from_secs(60), owner.task).await;
        let (_, witness) = coordinator(rules, &server, "witness", 0).await?;
        passes(&witness).await?;
        let found = both(&witness).await?;
        match owned {
            Ok(Ok(Ok(()))) if found == [2, 2] => {}
            Ok(Ok(Err(_))) if found[0] == 1 => {}
            other => wrong.push(format!("it was told {other:?}, and {found:?} stands there")),
        }
        Ok(wrong)
    })
}

/// A lock of a dead staged transaction is missing where somebody deleted the document, and an insert that is committed has its
/// placeholder there when the dead one is recovered.
#[must_use]
pub(super) fn a_placeholder_in_the_way(rules: &Rules) -> Vec<String> {
    told(async {
        let server = ground(rules, &ids()).await?;
        let owner = Owner::stage(rules, &server, Lock::Lost).await?;
        owner.dies();
        let (_, other) = coordinator(rules, &server, "an application", 0).await?;
        let things = other.raw_collection("things").await?;
        other.transact::<_, Error, _>(async |tx| tx.delete(&things, "b")).await?;
        other.shutdown(Duration::from_secs(10)).await;
        // Whoever recovers it has known it for longer than a lease.
        let (_, witness) = coordinator(rules, &server, "witness", 0).await?;
        let things = witness.raw_collection("things").await?;
        let meet = async || witness.reader().verified().get(&things, "a").await;
        // Half a second is too short to recover the dead transaction: this only notes its lock.
        let _ = tokio::time::timeout(Duration::from_millis(500), meet()).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        let way = Directed::new(server.clone());
        let (process, inserter) = coordinator_on(rules, way.clone(), "inserter", 0).await?;
        let of_inserter = inserter.raw_collection("things").await?;
        way.cue(Fate::Held, is_committed);
        let inserting = tokio::spawn(async move {
            let insert = inserter.transact::<_, Error, _>(async |tx| {
                ["b", "c"].iter().try_for_each(|id| tx.insert(&of_inserter, *id, &thing(3)))
            });
            insert.await
        });
        way.reached().await;
        process.kill_after(1);
        inserting.abort();
        meet().await?;
        passes(&witness).await?;
        let read = witness.reader().verified().get_many(&things, ["a", "b", "c"]).await?;
        let found: Vec<u64> = read.into_iter().map(number).collect();
        let wrong = (found != [1, 3, 3]).then(|| format!("the insert came to {found:?}"));
        Ok(wrong.into_iter().collect())
    })
}

/// The way of a reader, on which its first look at both documents waits.
#[derive(Debug)]
struct Reading {
    server: Arc<Server>,
    looks: Notify,
    released: Notify,
    is_first: Mutex<bool>,
}

#[async_trait]
impl Layer for Reading {
    fn inner(&self) -> &dyn Store {
        &*self.server
    }

    async fn get_many(&self, keys: &[Key]) -> Vec<Read> {
        if keys.len() == 2 && std::mem::take(&mut *self.is_first.lock()) {
            self.looks.notify_one();
            self.released.notified().await;
        }
        self.server.get_many(keys).await
    }
}

/// A reader finds the record staged behind the acknowledgement; by the time it looks at the participants they are applied.
#[must_use]
pub(super) fn an_apply_behind_a_reader(rules: &Rules) -> Vec<String> {
    told(async {
        let server = ground(rules, &ids()).await?;
        let way = Directed::new(server.clone());
        let (_, owner) = in_parallel(rules, way.clone(), "owner").await?;
        way.cue(Fate::HeldBefore, is_committed);
        set_both(&owner, 2).await?;
        way.reached().await;
        let (looks, released) = (Notify::new(), Notify::new());
        let is_first = Mutex::new(true);
        let reading = Arc::new(Reading { server: server.clone(), looks, released, is_first });
        let (_, reader) = coordinator_on(rules, reading.clone(), "reader", 0).await?;
        let things = reader.raw_collection("things").await?;
        let read = tokio::spawn(async move { reader.reader().get(&things, "a").await });
        reading.looks.notified().await;
        way.release();
        owner.shutdown(Duration::from_secs(10)).await;
        reading.released.notify_one();
        Ok(match read.await {
            Ok(Ok(read)) if number(read.clone()) == 2 => Vec::new(),
            other => vec![format!("after the acknowledgement a reader saw {other:?}")],
        })
    })
}

/// A server whose mapping has no room for a 13.
#[derive(Debug)]
struct Picky(Arc<Server>);

#[async_trait]
impl Layer for Picky {
    fn inner(&self) -> &dyn Store {
        &*self.0
    }

    async fn write_many(&self, writes: &[Write]) -> Vec<Outcome> {
        let is_odd = |write: &Write| match &write.op {
            WriteOp::Check(source) => source.contains("\"n\":13"),
            WriteOp::Replace(source, _) => {
                source.contains("\"n\":13") && &*write.key.collection == "things"
            }
            _ => false,
        };
        let mut outcomes = Vec::new();
        for write in writes {
            outcomes.push(match is_odd(write) {
                true => Outcome::Invalid(Refusal {
                    kind: RefusalKind::Document,
                    reason: "mapper_parsing_exception".to_owned(),
                }),
                false => self.0.write_many(std::slice::from_ref(write)).await.swap_remove(0),
            });
        }
        outcomes
    }
}

/// A content does not fit, and its dry run says so.
#[must_use]
pub(super) fn a_content_that_does_not_fit(rules: &Rules) -> Vec<String> {
    told(async {
        let server = ground(rules, &ids()).await?;
        let (_, domain) = in_parallel(rules, Arc::new(Picky(server.clone())), "owner").await?;
        let mut wrong = Vec::new();
        if set_both(&domain, 13).await.is_ok() {
            wrong.push("it was told as committed, and does not fit".to_owned());
        }
        set_both(&domain, 2).await?;
        domain.shutdown(Duration::from_secs(10)).await;
        let (_, witness) = coordinator(rules, &server, "witness", 0).await?;
        let found = both(&witness).await?;
        if found != [2, 2] {
            wrong.push(format!("{found:?} stands there"));
        }
        Ok(wrong)
    })
}
