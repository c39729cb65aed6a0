//! Holders with a commit under way.
//!
//! A reader reads during such a commit, and another process sees a commit before its
//! acknowledgement.

use std::time::Duration;

use txn_core::store::{Write, WriteOp};
use txn_core::{Error, Options, Raw, WaitFor};
use txn_protocol::rule::Rules;
use txn_sim::server::{HUNG, Manners};

use super::directed::{Directed, Fate};
use super::left_behind::{ground, number, passes, thing};
use super::{coordinator, coordinator_on, hangs, is_committed, violations_of};

/// Shorter than the time after which an owner counts as dead.
const WHILE: Duration = Duration::from_secs(1);

/// Whether a write applies the content 2.
fn is_apply(write: &Write) -> bool {
    let applies = |source: &str| source.contains("\"n\":2") && !source.contains("\"state\"");
    matches!(&write.op, WriteOp::Replace(source, _) if applies(source))
}

/// A commit exists on its primary alone, and its owner dies.
///
/// Another process sees the commit, applies one of two participants and dies, too. Then the primary
/// crashes.
#[must_use]
pub(super) fn a_commit_that_vanishes(rules: &Rules) -> Vec<String> {
    violations_of(async {
        let server = ground(rules, &["a".to_owned()]).await?;
        let way = Directed::new(server.clone());
        let (owner, domain) = coordinator_on(rules, way.clone(), "owner", 0).await?;
        let things = domain.collection::<Raw>("things").await?;
        let annex = domain.collection::<Raw>("annex").await?;
        way.cue(Fate::HeldBefore, is_committed);
        let (of_things, of_annex) = (things.clone(), annex.clone());
        let owning = tokio::spawn(async move {
            let both = domain.transact::<_, Error, _>(async |tx| {
                tx.put(&of_things, "a", &thing(2))?;
                tx.put(&of_annex, "a", &thing(2))
            });
            both.await
        });
        way.reached().await;
        server.set_manners(hangs());
        owner.kill_after(1);
        way.release();
        tokio::time::sleep(WHILE).await;
        server.set_manners(Manners::default());
        let mut wrong = Vec::new();
        let way = Directed::new(server.clone());
        let (helper, helping) = coordinator_on(rules, way.clone(), "helper", 0).await?;
        way.cue(Fate::HeldBetween, is_apply);
        let recovering = tokio::spawn(async move { passes(&helping).await });
        if tokio::time::timeout(Duration::from_secs(60), way.reached()).await.is_err() {
            wrong.push("no process applies the commit: the schedule shows nothing".to_owned());
        }
        helper.kill_after(1);
        server.crash();
        tokio::time::sleep(2 * HUNG).await;
        let (_, witness) = coordinator(rules, &server, "witness", 0).await?;
        passes(&witness).await?;
        let mut stands = Vec::new();
        for name in ["things", "annex"] {
            let collection = witness.collection::<Raw>(name).await?;
            stands.push(number(witness.reader().verified().get(&collection, "a").await?));
        }
        if stands[0] != stands[1] {
            wrong.push(format!("a part of it is committed: {stands:?}"));
        }
        owning.abort();
        recovering.abort();
        Ok(wrong)
    })
}

/// Two later transactions run beside a late commit.
///
/// The late transaction reads `b` and writes `a`.
///
/// A second transaction writes `b`, and a third one reads both.
#[must_use]
pub(super) fn a_reader_beside_a_late_commit(rules: &Rules) -> Vec<String> {
    violations_of(async {
        let server = ground(rules, &["a".to_owned(), "b".to_owned()]).await?;
        let way = Directed::new(server.clone());
        let (_, owner) = coordinator_on(rules, way.clone(), "owner", 0).await?;
        let (_, other) = coordinator(rules, &server, "other", 0).await?;
        let (_, reader) = coordinator(rules, &server, "reader", 0).await?;
        let things = owner.collection::<Raw>("things").await?;
        let annex = owner.collection::<Raw>("annex").await?;
        way.cue(Fate::HeldBefore, is_committed);
        let owning = tokio::spawn(async move {
            let reads_b = owner.transact::<_, Error, _>(async |tx| {
                let b = number(tx.get(&things, "b").await?);
                tx.put(&things, "a", &thing(2))?;
                tx.put(&annex, "a", &thing(2))?;
                Ok(b)
            });
            reads_b.await
        });
        way.reached().await;
        let of_other = other.collection::<Raw>("things").await?;
        let applied = Options::default().with_wait_for(WaitFor::Apply);
        let overtaking =
            other.run::<_, Error, _>(&applied, async |tx| tx.put(&of_other, "b", &thing(2)));
        overtaking.await?;
        let of_reader = reader.collection::<Raw>("things").await?;
        let mut reading = tokio::spawn(async move {
            let read = reader
                .transact::<_, Error, _>(async |tx| tx.get_many(&of_reader, ["a", "b"]).await);
            read.await
        });
        let early = tokio::time::timeout(WHILE, &mut reading).await;
        way.release();
        let owned = owning.await;
        let read = match early {
            Ok(read) => read,
            Err(_) => reading.await,
        };
        let (Ok(Ok(read)), Ok(owned)) = (read, owned) else {
            return Ok(vec!["no read succeeds: the schedule shows nothing".to_owned()]);
        };
        let read: Vec<u64> = read.into_iter().map(number).collect();
        // The owner precedes the other one, because it did not read that write.
        Ok(match owned {
            Ok(1) if read == [1, 2] => vec![format!("{read:?} was read, which never was")],
            Ok(1) => Vec::new(),
            owned => vec![format!("the schedule shows nothing: {owned:?}")],
        })
    })
}
