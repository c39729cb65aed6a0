//! Remains of dead, hung and panicking owners, and copies by applications.
//!
//! All other processes must continue.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use txn_core::event::{Event, Observer};
use txn_core::store::{Key, Read, Source, Store, Write, WriteOp};
use txn_core::{Collection, Config, Domain, Error, LockMode, Options, Raw, store::fields};
use txn_protocol::rule::Rules;
use txn_sim::CountingStore;

use super::{coordinator, coordinator_on, settings, violations_of};
use txn_sim::machine::{Process, panic_as_planned};
use txn_sim::server::{Manners, REPLICATION, Server};

/// The number of documents of a large transaction.
const MANY: usize = 60;
/// The bound of a recovery's writes for each document. The second bound is that for all other work.
const EACH: u64 = 4;
const REST: u64 = 16;

pub(super) fn thing(n: u64) -> Raw {
    Raw::new(format!("{{\"n\":{n}}}"))
}

/// A server with the same documents in `things` and `annex`.
///
/// Both have a document of each id.
pub(super) async fn ground(rules: &Rules, ids: &[String]) -> Result<Arc<Server>, Error> {
    let server = Server::new(1, Manners::default());
    let (_, founder) = coordinator(rules, &server, "founder", 0).await?;
    for name in ["things", "annex"] {
        let collection = founder.create_collection::<Raw>(name, None).await?;
        let insert = founder.transact::<_, Error, _>(async |tx| {
            ids.iter().try_for_each(|id| tx.insert(&collection, id.as_str(), &thing(1)))
        });
        insert.await?;
    }
    founder.shutdown(Duration::from_secs(10)).await;
    Ok(server)
}

/// The documents that are locked.
fn locked(server: &Server) -> Vec<Source> {
    let lock = format!("\"{}\":\"", fields::TRANSACTION_TID);
    let documents = server.documents().into_values().flat_map(BTreeMap::into_values);
    documents.filter(|source| source.contains(&lock)).collect()
}

/// An owner dies between its commit and its apply.
///
/// The commit writes these documents.
pub(super) async fn dies_committed(
    rules: &Rules,
    server: &Arc<Server>,
    participants: Vec<(&str, String)>,
) -> Result<(), Error> {
    let (owner, domain) = coordinator(rules, server, "owner", 0).await?;
    let things = domain.collection::<Raw>("things").await?;
    let annex = domain.collection::<Raw>("annex").await?;
    let participants: Vec<(Collection<Raw>, String)> = participants
        .into_iter()
        .map(|(name, id)| (if name == "annex" { annex.clone() } else { things.clone() }, id))
        .collect();
    server.set_manners(Manners { slow_replication: 1.0, ..Manners::default() });
    let task = tokio::spawn(async move {
        let write = domain.transact::<_, Error, _>(async |tx| {
            participants
                .iter()
                .try_for_each(|(collection, id)| tx.put(collection, id.as_str(), &thing(2)))
        });
        write.await.map(drop)
    });
    let is_committed = || {
        let documents = server.documents();
        documents.values().flat_map(|c| c.values()).any(|s| s.contains("\"state\":\"committed\""))
    };
    while !is_committed() && !task.is_finished() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // Requests that it had sent are not carried out, because their primaries crash.
    owner.kill_after(1);
    for _ in 0..4 {
        server.crash();
    }
    server.set_manners(Manners::default());
    tokio::time::sleep(2 * REPLICATION).await;
    task.abort();
    Ok(())
}

/// A large transaction is applied with few writes per document.
///
/// The owner is dead.
#[must_use]
pub(super) fn a_large_recovery(rules: &Rules) -> Vec<String> {
    violations_of(async {
        let ids: Vec<String> = (0..MANY).map(|n| format!("a{n}")).collect();
        let server = ground(rules, &ids).await?;
        dies_committed(rules, &server, ids.iter().map(|id| ("things", id.clone())).collect())
            .await?;
        let mut wrong = Vec::new();
        let found = locked(&server).len() as u64;
        if found < MANY as u64 / 2 {
            wrong.push(format!("{found} documents are left locked: the schedule shows nothing"));
        }
        let counting = Arc::new(CountingStore::new(server.clone()));
        let (_, witness) = coordinator_on(rules, counting.clone(), "witness", 0).await?;
        let opened = counting.counts();
        passes(&witness).await?;
        let written = counting.counts().since(opened).documents_written;
        if written > EACH * found + REST {
            wrong.push(format!("{written} writes for {found} locked documents"));
        }
        if !locked(&server).is_empty() {
            wrong.push(format!("{} are still locked", locked(&server).len()));
        }
        Ok(wrong)
    })
}

/// Runs janitor passes until the owner counts as dead.
pub(super) async fn passes(domain: &Domain) -> Result<(), Error> {
    for _ in 0..3 {
        if domain.admin().janitor_pass().await?.is_clean() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_secs(12)).await;
    }
    Ok(())
}

/// A process aborts a younger transaction and dies, and the abort vanishes.
///
/// Its primary crashes. A process that saw the abort takes the lock over. Then the younger
/// transaction commits.
#[must_use]
pub(super) fn an_abort_that_vanishes(rules: &Rules) -> Vec<String> {
    violations_of(async {
        let server = ground(rules, &["a".to_owned()]).await?;
        let mut wrong = Vec::new();
        let options = Options::default().with_lock_mode(LockMode::AtRead);
        let (older_process, older) = coordinator(rules, &server, "older", 0).await?;
        let (_, taker) = coordinator(rules, &server, "taker", 0).await?;
        let (_, owner) = coordinator(rules, &server, "owner", 0).await?;
        let things = owner.collection::<Raw>("things").await?;
        let of_taker = taker.collection::<Raw>("things").await?;
        let of_older = older.collection::<Raw>("things").await?;
        // This process knows the partition, so that its next write of a record is the abort.
        let of_annex = older.collection::<Raw>("annex").await?;
        let with_record = Options::default().with_metadata(Some("\"with a record\"".to_owned()));
        let put =
            older.run::<_, Error, _>(&with_record, async |tx| tx.put(&of_annex, "a", &thing(2)));
        put.await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        // Both are older than the owner of the lock.
        let (wounder, taking) = (older.begin(&options)?, taker.begin(&options)?);
        tokio::time::sleep(Duration::from_millis(5)).await;
        let go = Arc::new(Notify::new());
        let (gone, wants) = (go.clone(), options.clone());
        let owning = tokio::spawn(async move {
            let add = owner.run::<_, Error, _>(&wants, async |tx| {
                let read = number(tx.get(&things, "a").await?);
                gone.notified().await;
                gone.notify_one();
                tx.put(&things, "a", &thing(read + 1))
            });
            add.await.map(drop)
        });
        until(|| locked(&server).len() == 1).await;
        server.set_manners(Manners {
            slow_replication: 1.0,
            hung_replication: true,
            ..Manners::default()
        });
        let wounding = tokio::spawn(async move { wounder.get(&of_older, "a").await.map(drop) });
        let is_aborted = async || {
            let partitions = server.documents().into_keys();
            let tid = locked(&server).first().and_then(|source| lock_of(source));
            let keys = partitions.filter(|name| name.starts_with("txn-shop-"));
            let keys: Vec<Key> =
                keys.filter_map(|name| Some(Key::new(name, tid.as_deref()?))).collect();
            let found = server.read_primary(&keys).await;
            let aborted = "\"state\":\"aborted\"";
            found
                .iter()
                .any(|read| matches!(read, Read::Found { source, .. } if source.contains(aborted)))
        };
        for _ in 0..200 {
            if is_aborted().await {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        older_process.kill_after(1);
        server.set_manners(Manners::default());
        if !is_aborted().await {
            wrong.push("no attempt was aborted: the schedule shows nothing".to_owned());
        }
        let read = number(taking.get(&of_taker, "a").await?);
        taking.put(&of_taker, "a", &thing(read + 10))?;
        taking.commit().await?;
        server.crash();
        go.notify_one();
        if let Ok(Err(error)) = owning.await {
            wrong.push(format!("the owner of the lock does not get through: {error}"));
        }
        wounding.abort();
        let (_, reader) = coordinator(rules, &server, "reader", 0).await?;
        passes(&reader).await?;
        let stands = number(reader.reader().verified().get(&of_taker, "a").await?);
        if stands != 12 {
            wrong.push(format!("1 + 10 + 1 came to {stands}"));
        }
        Ok(wrong)
    })
}

/// The holder of a document.
fn lock_of(source: &str) -> Option<String> {
    let (_, rest) = source.split_once(&format!("\"{}\":\"", fields::TRANSACTION_TID))?;
    rest.split_once('"').map(|(tid, _)| tid.to_owned())
}

/// The number in a thing.
pub(super) fn number(thing: Option<Raw>) -> u64 {
    let digits = |thing: Raw| {
        thing.as_str().chars().filter(char::is_ascii_digit).collect::<String>().parse().ok()
    };
    thing.and_then(digits).unwrap_or_default()
}

/// Waits until the condition holds, or for a long time.
async fn until(reached: impl Fn() -> bool) {
    for _ in 0..5_000 {
        if reached() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// A reader sees the unapplied commit of a dead owner.
#[must_use]
pub(super) fn commits_of_dead_owner(rules: &Rules) -> Vec<String> {
    violations_of(async {
        let server = ground(rules, &["a".to_owned()]).await?;
        dies_committed(rules, &server, vec![("things", "a".to_owned()), ("annex", "a".to_owned())])
            .await?;
        let mut wrong = Vec::new();
        let (_, reader) = coordinator(rules, &server, "reader", 0).await?;
        for name in ["things", "annex"] {
            let collection = reader.collection::<Raw>(name).await?;
            let seen = reader.reader().get(&collection, "a").await?;
            if !seen.as_ref().is_some_and(|seen| seen.as_str().contains('2')) {
                wrong.push(format!("a reader of {name} saw {seen:?} after the commit"));
            }
        }
        if locked(&server).len() < 2 {
            wrong.push("nothing is left locked: the schedule shows nothing".to_owned());
        }
        Ok(wrong)
    })
}

/// A participant of a dead owner's transaction is lost with its index.
///
/// The other participant is applied, and can be written.
#[must_use]
pub(super) fn an_index_that_is_lost(rules: &Rules) -> Vec<String> {
    violations_of(async {
        let server = ground(rules, &["a".to_owned()]).await?;
        dies_committed(rules, &server, vec![("things", "a".to_owned()), ("annex", "a".to_owned())])
            .await?;
        let mut wrong = Vec::new();
        if locked(&server).len() < 2 {
            wrong.push("nothing is left locked: the schedule shows nothing".to_owned());
        }
        // The simulated server drops each collection on request.
        let _ = server.drop_collection("annex").await;
        let (_, witness) = coordinator(rules, &server, "witness", 0).await?;
        if let Err(error) = passes(&witness).await {
            wrong.push(format!("the janitor gives up: {error}"));
        }
        let things = witness.collection::<Raw>("things").await?;
        if !locked(&server).is_empty() {
            wrong.push("the other member is still locked".to_owned());
        }
        let write = witness.transact::<_, Error, _>(async |tx| {
            let found = tx.get(&things, "a").await?;
            assert!(found.is_some_and(|found| found.as_str().contains('2')), "it was committed");
            tx.put(&things, "a", &thing(3))
        });
        if let Err(error) = write.await {
            wrong.push(format!("the other member cannot be written: {error}"));
        }
        Ok(wrong)
    })
}

/// An application copies a locked document, and the holder finishes.
///
/// The copy has another id.
#[must_use]
pub(super) fn a_lock_that_was_copied(rules: &Rules) -> Vec<String> {
    violations_of(async {
        let server = ground(rules, &["a".to_owned(), "b".to_owned()]).await?;
        let participants = vec![("things", "a".to_owned()), ("things", "b".to_owned())];
        dies_committed(rules, &server, participants).await?;
        let copies = locked(&server);
        let (process, witness) = coordinator(rules, &server, "witness", 0).await?;
        passes(&witness).await?;
        let mut wrong = Vec::new();
        if copies.is_empty() || !locked(&server).is_empty() {
            wrong.push("nothing was locked, or it still is: the schedule shows nothing".to_owned());
        }
        let strays = ["stray-0", "stray-1"];
        for (id, source) in strays.iter().zip(copies.iter().cycle()) {
            let create = WriteOp::Create(source.clone());
            server.write_many(&[Write::new(Key::new("things", *id), create)]).await;
        }
        // A transaction finds one copy, and the janitor finds the other.
        let things = witness.collection::<Raw>("things").await?;
        let write = witness.transact::<_, Error, _>(async |tx| {
            tx.get(&things, "a").await?;
            tx.put(&things, "a", &thing(3))?;
            tx.put(&things, strays[0], &thing(3))
        });
        match tokio::time::timeout(Duration::from_secs(120), write).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => wrong.push(format!("the copy cannot be written: {error}")),
            Err(_) => wrong.push("a write of the copy does not end".to_owned()),
        }
        match tokio::time::timeout(Duration::from_secs(120), passes(&witness)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => wrong.push(format!("the janitor gives up: {error}")),
            Err(_) => wrong.push("the janitor does not end".to_owned()),
        }
        if process.is_circling() {
            wrong.push("the store is asked without an end".to_owned());
        }
        if !locked(&server).is_empty() {
            wrong.push("a copy is still locked".to_owned());
        }
        Ok(wrong)
    })
}

/// A caller holds its transaction open, and its process lives.
#[must_use]
pub(super) fn an_owner_that_hangs(rules: &Rules) -> Vec<String> {
    violations_of(async {
        let server = ground(rules, &["a".to_owned()]).await?;
        let (_, hung) = coordinator(rules, &server, "hung", 0).await?;
        let things = hung.collection::<Raw>("things").await?;
        let tx = hung.begin(&Options::default().with_lock_mode(LockMode::AtRead))?;
        tx.get(&things, "a").await?;
        tx.put(&things, "a", &thing(2))?;
        // Longer than the attempt timeout and a lease.
        tokio::time::sleep(Duration::from_secs(25)).await;
        let (_, other) = coordinator(rules, &server, "other", 0).await?;
        let write = other.transact::<_, Error, _>(async |tx| {
            tx.get(&things, "a").await?;
            tx.put(&things, "a", &thing(3))
        });
        let mut wrong = Vec::new();
        if let Err(error) = write.await {
            wrong.push(format!("no other process gets the document: {error}"));
        }
        if tx.commit().await.is_ok() {
            wrong.push("it commits in the end".to_owned());
        }
        Ok(wrong)
    })
}

/// An observer that panics at each commit.
struct Rash;

impl fmt::Debug for Rash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("rash")
    }
}

impl Observer for Rash {
    fn on_event(&self, event: &Event) {
        if matches!(event, Event::Committed { .. }) {
            panic_as_planned();
        }
    }
}

/// An observer panics at each commit, and the process continues.
#[must_use]
pub(super) fn an_observer_that_panics(rules: &Rules) -> Vec<String> {
    violations_of(async {
        let server = ground(rules, &["a".to_owned(), "b".to_owned()]).await?;
        let (process, config): (Arc<Process>, Config) = settings(rules, server.clone(), "rash", 0);
        let config = config.with_observer(Some(Arc::new(Rash)));
        let store = Arc::new(txn_sim::machine::StoreOf(process));
        let domain = Domain::open_or_create(store, "shop", config).await?;
        let things = domain.collection::<Raw>("things").await?;
        let mut wrong = Vec::new();
        for round in 2..5 {
            let write = domain.transact::<_, Error, _>(async |tx| {
                for id in ["a", "b"] {
                    tx.get(&things, id).await?;
                    tx.put(&things, id, &thing(round))?;
                }
                Ok(())
            });
            if let Err(error) = write.await {
                wrong.push(format!("round {round}: {error}"));
            }
        }
        domain.shutdown(Duration::from_secs(60)).await;
        if !locked(&server).is_empty() {
            wrong.push(format!("{} documents stay locked", locked(&server).len()));
        }
        Ok(wrong)
    })
}
