//! Placeholders of committed inserts that are moved or removed before the apply.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use txn_core::store::{Key, Read, Store, Write, WriteOp};
use txn_core::{Collection, Domain, Error, Raw};
use txn_protocol::rule::Rules;
use txn_sim::server::Server;

use super::directed::{Directed, Fate};
use super::left_behind::{ground, thing};
use super::{coordinator, coordinator_on, violations_of};
use txn_sim::machine::Process;

/// Longer than any wait of an owner or a recovering process.
const LONG: Duration = Duration::from_secs(40);

/// An owner with a committed insert of `new`.
///
/// The apply of the insert is under way.
struct Inserting {
    server: Arc<Server>,
    way: Arc<Directed>,
    process: Arc<Process>,
    task: JoinHandle<()>,
}

impl Inserting {
    async fn start(rules: &Rules) -> Result<Self, Error> {
        let server = ground(rules, &["a".to_owned()]).await?;
        let way = Directed::new(server.clone());
        let (process, domain) = coordinator_on(rules, way.clone(), "owner", 0).await?;
        let things = domain.collection::<Raw>("things").await?;
        way.cue(Fate::HeldBefore, |write| {
            write.key == new() && matches!(write.op, WriteOp::Replace(..))
        });
        let task = tokio::spawn(async move {
            let inserted = domain.transact::<_, Error, _>(async |tx| {
                tx.put(&things, "a", &thing(2))?;
                tx.insert(&things, "new", &thing(2))
            });
            let _ = inserted.await;
            // The owner does all later work in this time.
            tokio::time::sleep(3 * LONG).await;
            drop(domain);
        });
        way.reached().await;
        Ok(Self { server, way, process, task })
    }

    async fn other(&self, rules: &Rules) -> Result<(Domain, Collection<Raw>), Error> {
        let (_, domain) = coordinator(rules, &self.server, "other", 0).await?;
        let things = domain.collection::<Raw>("things").await?;
        Ok((domain, things))
    }
}

fn new() -> Key {
    Key::new("things", "new")
}

/// A plain client rewrites the placeholder unchanged, and the owner dies.
///
/// No process can tell whether the insert was applied.
#[must_use]
pub(super) fn a_placeholder_that_is_rewritten(rules: &Rules) -> Vec<String> {
    violations_of(async {
        let owner = Inserting::start(rules).await?;
        let mut wrong = Vec::new();
        match &owner.server.read_primary(&[new()]).await[..] {
            [Read::Found { source, version, .. }] if source.contains("transaction_absent") => {
                let again = WriteOp::Replace(source.clone(), *version);
                owner.server.write_many(&[Write::new(new(), again)]).await;
            }
            other => wrong.push(format!("{other:?} stands there: the schedule shows nothing")),
        }
        owner.process.kill_after(1);
        owner.task.abort();
        tokio::time::sleep(LONG).await;
        let (recoverer, things) = owner.other(rules).await?;
        let report = recoverer.admin().janitor_pass().await?;
        let is_shown = recoverer.reader().get(&things, "new").await?.is_some();
        let is_told = report.damaged.iter().any(|(key, _)| *key == new());
        let is_applied = match &owner.server.read_primary(&[new()]).await[..] {
            [Read::Found { source, .. }] => source.contains("\"n\":2"),
            _ => false,
        };
        if !is_shown || !(is_told || is_applied) {
            wrong.push(format!(
                "an acknowledged insert: shown {is_shown}, reported {is_told}, applied {is_applied}"
            ));
        }
        Ok(wrong)
    })
}

/// Another process applies the insert and deletes the document.
///
/// The owner then finds neither its lock nor its content.
#[must_use]
pub(super) fn an_insert_that_is_deleted_behind_its_owner(rules: &Rules) -> Vec<String> {
    violations_of(async {
        let owner = Inserting::start(rules).await?;
        let (other, things) = owner.other(rules).await?;
        let deleted = other.transact::<_, Error, _>(async |tx| {
            let found = tx.get(&things, "new").await?.is_some();
            tx.delete(&things, "new")?;
            Ok(found)
        });
        let mut wrong = Vec::new();
        if !deleted.await? {
            wrong.push("nothing was deleted: the schedule shows nothing".to_owned());
        }
        owner.way.release();
        tokio::time::sleep(LONG).await;
        if other.reader().verified().get(&things, "new").await?.is_some() {
            wrong.push("an acknowledged deletion was undone".to_owned());
        }
        owner.task.abort();
        Ok(wrong)
    })
}
