//! Commits and absences that are gone a moment after a read.
//!
//! The commits are in a document's own list.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::{JoinError, JoinHandle};
use txn_core::store::{Key, Read, Store, Write, WriteOp};
use txn_core::{
    Collection, CompareAndSet, Domain, Error, ErrorKind, Options, Raw, Versioned, WaitFor,
};
use txn_protocol::rule::Rules;
use txn_sim::server::{Manners, Server};

use super::directed::{Directed, Fate};
use super::left_behind::{ground, number, thing};
use super::{coordinator, coordinator_on, hangs, violations_of};

/// A time for all work that waits for no hung replica.
const WHILE: Duration = Duration::from_secs(1);

/// A process that writes `a`, with directed requests.
struct Writer {
    server: Arc<Server>,
    way: Arc<Directed>,
    domain: Domain,
    things: Collection<Raw>,
}

impl Writer {
    async fn of(rules: &Rules) -> Result<Self, Error> {
        let server = ground(rules, &["a".to_owned()]).await?;
        let way = Directed::new(server.clone());
        let (_, domain) = coordinator_on(rules, way.clone(), "writer", 0).await?;
        let things = domain.collection::<Raw>("things").await?;
        Ok(Self { server, way, domain, things })
    }

    async fn read(&self) -> Result<Versioned<Raw>, Error> {
        self.domain.reader().read(&self.things, "a").await
    }

    /// Writes a 2 over the content that was read. The write has this fate.
    fn write(&self, read: Versioned<Raw>, fate: Fate) -> JoinHandle<Result<CompareAndSet, Error>> {
        self.way.cue(fate, |write| &*write.key.collection == "things");
        let (domain, things) = (self.domain.clone(), self.things.clone());
        tokio::spawn(async move { domain.compare_and_set(&things, &read, &thing(2)).await })
    }
}

/// Waits until the primary shows this number. Returns `false` after a long wait.
async fn until_seen(server: &Server, n: u64) -> bool {
    let key = [Key::new("things", "a")];
    for _ in 0..1_000 {
        let shown = format!("\"n\":{n}");
        match &server.read_primary(&key).await[..] {
            [Read::Found { source, .. }] if source.contains(&shown) => return true,
            _ => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    }
    false
}

/// The error in the writer's answer, if any.
///
/// The writer wrote a 2.
async fn untrue(
    told: &Result<Result<CompareAndSet, Error>, JoinError>,
    writer: &Writer,
) -> Result<Option<String>, Error> {
    let Writer { domain, things, .. } = writer;
    let stands = number(domain.reader().verified().get(things, "a").await?);
    let is_true = match told {
        Ok(Ok(CompareAndSet::Written(_))) => stands == 2,
        Ok(Ok(CompareAndSet::Mismatch)) => stands != 2,
        Ok(Err(error)) => error.kind() == ErrorKind::Unknown,
        Err(_) => false,
    };
    Ok((!is_true).then(|| format!("it was told {told:?}, and {stands} stands there")))
}

/// A write without a record has no answer. The document shows the write, until its primary crashes.
#[must_use]
pub(super) fn an_own_commit_that_vanishes(rules: &Rules) -> Vec<String> {
    violations_of(async {
        let writer = Writer::of(rules).await?;
        let server = &writer.server;
        let read = writer.read().await?;
        server.set_manners(hangs());
        let writing = writer.write(read, Fate::Unanswered);
        let mut wrong = Vec::new();
        if !until_seen(server, 2).await {
            wrong.push("nothing was written: the schedule shows nothing".to_owned());
        }
        tokio::time::sleep(WHILE).await;
        server.set_manners(Manners::default());
        server.crash();
        let told = writing.await;
        wrong.extend(untrue(&told, &writer).await?);
        Ok(wrong)
    })
}

/// A commit that overtakes a late write vanishes.
///
/// The late write has no record.
///
/// The document shows the later commit, until its primary crashes. Then the write lands.
#[must_use]
pub(super) fn a_later_commit_that_vanishes(rules: &Rules) -> Vec<String> {
    violations_of(async {
        let writer = Writer::of(rules).await?;
        let Writer { server, way, .. } = &writer;
        let (process, other) = coordinator(rules, server, "other", 0).await?;
        let of_other = other.collection::<Raw>("things").await?;
        let read = writer.read().await?;
        let read_by_other = other.reader().read(&of_other, "a").await?;
        server.set_manners(hangs());
        let overtaking = tokio::spawn(async move {
            other.compare_and_set(&of_other, &read_by_other, &thing(11)).await
        });
        let mut wrong = Vec::new();
        if !until_seen(server, 11).await {
            wrong.push("no write overtakes it: the schedule shows nothing".to_owned());
        }
        let writing = writer.write(read, Fate::Kept);
        way.reached().await;
        tokio::time::sleep(WHILE).await;
        process.kill_after(1);
        server.set_manners(Manners::default());
        server.crash();
        way.deliver().await;
        let told = writing.await;
        overtaking.abort();
        wrong.extend(untrue(&told, &writer).await?);
        Ok(wrong)
    })
}

/// A process overwrites its own write in doubt.
///
/// The first write has no record. The write is carried out, and its answer is lost.
///
/// Before the writer reads the document, the same process writes the document twice. The first of
/// these writes replaces the content in doubt, and each write shortens the list.
#[must_use]
pub(super) fn an_own_commit_that_is_written_over(rules: &Rules) -> Vec<String> {
    violations_of(async {
        let writer = Writer::of(rules).await?;
        let Writer { way, domain, things, .. } = &writer;
        let writing = writer.write(writer.read().await?, Fate::HeldAndLost);
        way.reached().await;
        let mut wrong = Vec::new();
        for n in [3, 4] {
            let read = domain.reader().verified().read(things, "a").await?;
            match domain.compare_and_set(things, &read, &thing(n)).await? {
                CompareAndSet::Written(_) => {}
                other => wrong.push(format!("the document is not written over: {other:?}")),
            }
        }
        way.release();
        match writing.await {
            Ok(Ok(CompareAndSet::Written(_))) => {}
            told => wrong.push(format!("it was written, and it was told {told:?}")),
        }
        Ok(wrong)
    })
}

/// Writes `a` and inserts or deletes `x`, and waits for the apply.
async fn turn(domain: &Domain, a: u64, x: bool) -> Result<(), Error> {
    let things = domain.collection::<Raw>("things").await?;
    let options = Options::default().with_wait_for(WaitFor::Apply);
    let turn = domain.run::<_, Error, _>(&options, async |tx| {
        tx.put(&things, "a", &thing(a))?;
        match x {
            true => tx.insert(&things, "x", &thing(0)),
            false => tx.delete(&things, "x"),
        }
    });
    turn.await.map(drop)
}

/// An absence ends after it was read, and begins again.
///
/// Meanwhile the transaction verifies its other read.
#[must_use]
pub(super) fn an_absence_that_ends_and_begins(rules: &Rules) -> Vec<String> {
    violations_of(async {
        let server = ground(rules, &["a".to_owned()]).await?;
        let way = Directed::new(server.clone());
        let (_, reader) = coordinator_on(rules, way.clone(), "reader", 0).await?;
        let (_, other) = coordinator(rules, &server, "other", 0).await?;
        let things = reader.collection::<Raw>("things").await?;
        let verifies_a =
            |write: &Write| &*write.key.id == "a" && matches!(write.op, WriteOp::Verify(Some(_)));
        way.cue(Fate::Held, verifies_a);
        let (inserting, is_first) = (other.clone(), Arc::new(AtomicBool::new(true)));
        let mut reading = tokio::spawn(async move {
            reader
                .transact::<_, Error, _>(async |tx| {
                    let x = tx.get(&things, "x").await?.is_some();
                    if is_first.swap(false, Ordering::Relaxed) {
                        let other = inserting.clone();
                        // A separate transaction, not a part of this closure.
                        let inserted = tokio::spawn(async move { turn(&other, 2, true).await });
                        assert!(matches!(inserted.await, Ok(Ok(()))), "it is inserted");
                    }
                    Ok((number(tx.get(&things, "a").await?), x))
                })
                .await
        });
        let read = tokio::select! {
            biased;
            read = &mut reading => read,
            () = way.reached() => {
                turn(&other, 3, false).await?;
                way.release();
                reading.await
            }
        };
        let mut wrong = Vec::new();
        match read {
            Ok(Ok(read)) if [(1, false), (2, true), (3, false)].contains(&read) => {}
            Ok(Ok(read)) => wrong.push(format!("{read:?} was read, which never was")),
            other => wrong.push(format!("it is not read: {other:?}")),
        }
        Ok(wrong)
    })
}

/// Deletes one document and inserts the other, so that exactly one exists.
async fn change_places(domain: &Domain, from: &str, to: &str) -> Result<(), Error> {
    let things = domain.collection::<Raw>("things").await?;
    let options = Options::default().with_wait_for(WaitFor::Apply);
    let changed = domain.run::<_, Error, _>(&options, async |tx| {
        tx.delete(&things, from)?;
        tx.insert(&things, to, &thing(1))
    });
    changed.await.map(drop)
}

/// Exactly one of `x` and `y` exists at any time.
///
/// Each is absent when it is read and when it is verified.
#[must_use]
pub(super) fn absences_that_change_places(rules: &Rules) -> Vec<String> {
    violations_of(async {
        let server = ground(rules, &["y".to_owned()]).await?;
        let way = Directed::new(server.clone());
        let (_, reader) = coordinator_on(rules, way.clone(), "reader", 0).await?;
        let (_, other) = coordinator(rules, &server, "other", 0).await?;
        let things = reader.collection::<Raw>("things").await?;
        let (changing, is_first) = (other.clone(), Arc::new(AtomicBool::new(true)));
        let verifies_x =
            |write: &Write| &*write.key.id == "x" && matches!(write.op, WriteOp::Verify(None));
        way.cue(Fate::HeldBetween, verifies_x);
        let mut reading = tokio::spawn(async move {
            reader
                .transact::<_, Error, _>(async |tx| {
                    let is_first = is_first.swap(false, Ordering::Relaxed);
                    let change = async |from, to| {
                        let other = changing.clone();
                        // A separate transaction, not a part of this closure.
                        let changed =
                            tokio::spawn(async move { change_places(&other, from, to).await });
                        assert!(matches!(changed.await, Ok(Ok(()))), "they change places");
                    };
                    let x = tx.get(&things, "x").await?.is_some();
                    if is_first {
                        change("y", "x").await;
                    }
                    let y = tx.get(&things, "y").await?.is_some();
                    if is_first {
                        change("x", "y").await;
                    }
                    Ok((x, y))
                })
                .await
        });
        let read = tokio::select! {
            biased;
            read = &mut reading => read,
            () = way.reached() => {
                change_places(&other, "y", "x").await?;
                way.release();
                reading.await
            }
        };
        Ok(match read {
            Ok(Ok((x, y))) if x != y => Vec::new(),
            Ok(Ok(read)) => vec![format!("{read:?} was read, which never was")],
            read => vec![format!("it is not read: {read:?}")],
        })
    })
}
