//! Locks that a plain client moves or removes after the commit.
//!
//! `_update_by_query` and `_delete_by_query` do this to placeholders.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use txn_core::store::{
    Cursor, Filter, Key, Layer, MemoryStore, Outcome, Page, Store, StoreError, Write, WriteOp,
};
use txn_core::{AttemptId, Config, Domain, Error, ErrorKind, Options, WaitFor, record::State};

use crate::support::{Dies, Item, Items, Log, SharedStore};

/// The change of a document by the plain client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meddling {
    /// Writes the same content again.
    Rewrite,
    /// Adds a field.
    AddField,
    /// Deletes the document.
    Remove,
}

/// The moment at which the owner dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Never,
    /// The commit is the last write of the owner.
    AtCommit,
    /// The owner applies every participant, and does not finish the record.
    BeforeFinish,
}

/// A store on which a plain client changes documents after a commit.
#[derive(Debug)]
struct Beside {
    memory: Arc<MemoryStore>,
    meddling: Mutex<Vec<(Key, Meddling)>>,
    /// Whether another process touches the record of the commit, too.
    touches_record: bool,
    end: End,
    is_dead: AtomicBool,
}

impl Beside {
    fn says(write: &Write, state: &str) -> bool {
        let (WriteOp::Create(source) | WriteOp::Replace(source, _)) = &write.op else {
            return false;
        };
        write.require_alias && source.contains(&format!("\"state\":\"{state}\""))
    }

    async fn meddle(&self, record: &Key) {
        let meddling = std::mem::take(&mut *self.meddling.lock());
        let shop = SharedStore { memory: self.memory.clone(), closed: Arc::default() };
        if self.touches_record && !meddling.is_empty() {
            let (_, source) = shop.stored(record).await.expect("a record");
            shop.plainly(record, &source).await;
        }
        for (key, what) in meddling {
            let (version, source) = shop.stored(&key).await.expect("locked");
            assert!(source.contains("transaction_tid"), "{source}");
            match what {
                Meddling::Rewrite => shop.plainly(&key, &source).await,
                Meddling::AddField => {
                    let more = source.replace("}", ",\"seen\":true}");
                    shop.plainly(&key, &more).await;
                }
                Meddling::Remove => shop.write(Write::new(key, WriteOp::Delete(version))).await,
            }
        }
    }
}

#[async_trait]
impl Layer for Beside {
    fn inner(&self) -> &dyn Store {
        &*self.memory
    }

    async fn write_many(&self, writes: &[Write]) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        for write in writes {
            if self.end == End::BeforeFinish && Self::says(write, "finished") {
                self.is_dead.store(true, Ordering::SeqCst);
            }
            if self.is_dead.load(Ordering::SeqCst) && write.op.changes() {
                outcomes.push(Outcome::Rejected("the process is dead".to_owned()));
                continue;
            }
            outcomes.extend(self.memory.write_many(std::slice::from_ref(write)).await);
            if Self::says(write, "committed") {
                self.meddle(&write.key).await;
                self.is_dead.fetch_or(self.end == End::AtCommit, Ordering::SeqCst);
            }
        }
        outcomes
    }
}

struct Owner {
    domain: Domain,
    items: Items,
    log: Arc<Log>,
    tid: AttemptId,
}

/// Commits an insert of `new` and a change of `d0000`.
///
/// A plain client changes documents right after the commit.
async fn owner(
    w: &SharedStore,
    meddling: &[(&str, Meddling)],
    end: End,
    touches_record: bool,
) -> Owner {
    let keys = meddling.iter().map(|(id, what)| (Key::new("items", *id), *what));
    let store = Arc::new(Beside {
        memory: w.memory.clone(),
        meddling: Mutex::new(keys.collect()),
        touches_record,
        end,
        is_dead: AtomicBool::new(false),
    });
    let log = Arc::new(Log::default());
    let config = Config::default().with_janitor_interval(None).with_observer(Some(log.clone()));
    let domain = Domain::open_or_create(store, "shop", config).await.expect("opens");
    let items: Items = domain.create_collection("items", None).await.expect("opens");
    let tx = domain.begin(&Options::default()).expect("begins");
    let tid = tx.tid();
    tx.get(&items, "d0000").await.expect("reads");
    tx.put(&items, "d0000", &Item { n: 7 }).expect("buffers");
    tx.insert(&items, "new", &Item { n: 7 }).expect("buffers");
    tx.commit().await.expect("commits");
    // The owner ends the work after the commit within this time.
    tokio::time::sleep(Duration::from_secs(40)).await;
    Owner { domain, items, log, tid }
}

async fn content(w: &SharedStore, id: &str) -> Option<String> {
    let stored = w.stored(&Key::new("items", id)).await?.1;
    let value: serde_json::Value = serde_json::from_str(&stored).expect("JSON");
    assert_eq!(value.get("transaction_tid"), None, "{stored}");
    Some(value["n"].to_string())
}

#[tokio::test(start_paused = true)]
async fn owner_overwrites_locks_moved_by_a_plain_client() {
    cov_mark::check!(unapplied_participant_relocked);
    use Meddling::{AddField, Remove, Rewrite};
    for (meddling, told) in [
        (vec![("new", Rewrite)], vec![]),
        (vec![("new", Remove)], vec!["new"]),
        (vec![("new", AddField)], vec!["new"]),
        (vec![("d0000", Rewrite)], vec![]),
        (vec![("d0000", AddField)], vec!["d0000"]),
        (vec![("d0000", Remove)], vec!["d0000"]),
        (vec![("d0000", Remove), ("new", Remove)], vec!["d0000", "new"]),
        (vec![("d0000", Rewrite), ("new", Rewrite)], vec![]),
    ] {
        let w = SharedStore::of(1).await;
        let owner = owner(&w, &meddling, End::Never, false).await;
        for id in ["d0000", "new"] {
            assert_eq!(content(&w, id).await.as_deref(), Some("7"), "{id} after {meddling:?}");
        }
        let damaged = owner.log.damaged();
        let names: Vec<&str> = damaged.iter().map(|key| &*key.id).collect();
        assert_eq!(names, told, "{meddling:?}");
        assert!(w.is_in_state(owner.tid, State::Finished).await, "{meddling:?}");
        let report = owner.domain.admin().janitor_pass().await.expect("passes");
        assert!(report.is_clean(), "{report:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn recoverer_reports_a_participant_it_cannot_settle() {
    cov_mark::check!(unclear_participant_reported);
    for meddling in [Meddling::Rewrite, Meddling::AddField, Meddling::Remove] {
        let w = SharedStore::of(1).await;
        let dead = owner(&w, &[("new", meddling)], End::AtCommit, false).await;
        let p = w.process(Dies::Never).await;
        for _ in 0..2 {
            let report = p.domain.admin().janitor_pass().await.expect("passes");
            let new = p.items.key("new");
            assert!(report.damaged.iter().any(|(key, _)| *key == new), "{meddling:?}: {report:?}");
            assert!(p.log.damaged().contains(&new));
            assert!(w.is_in_state(dead.tid, State::Committed).await, "{meddling:?}");
            assert_eq!(content(&w, "d0000").await.as_deref(), Some("7"), "d0000 is applied");
        }
        if meddling != Meddling::Remove {
            // The placeholder blocks every insert, so an operator deletes the placeholder.
            let (version, _) = w.stored(&p.items.key("new")).await.expect("exists");
            w.write(Write::new(p.items.key("new"), WriteOp::Delete(version))).await;
        }
        let insert = p.domain.transact::<_, Error, _>(async |tx| {
            tx.insert(&p.items, "new", &Item { n: 7 })?;
            tx.get(&p.items, "d0000").await.map(drop)
        });
        insert.await.expect("an operator writes the document again");
        let report = p.domain.admin().janitor_pass().await.expect("passes");
        assert!(report.is_clean(), "{meddling:?}: {report:?}");
        assert!(w.is_in_state(dead.tid, State::Finished).await, "{meddling:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn recoverer_finds_a_deletion_by_its_record() {
    cov_mark::check!(deletion_on_record);
    for (id, next_day) in [("new", false), ("d0000", false), ("new", true)] {
        let w = SharedStore::of(1).await;
        let dead = owner(&w, &[], End::BeforeFinish, false).await;
        assert!(w.is_in_state(dead.tid, State::Committed).await);
        let p = w.process(Dies::Never).await;
        let delete = p.domain.transact::<_, Error, _>(async |tx| {
            tx.get(&p.items, id).await?;
            tx.delete(&p.items, id)
        });
        delete.await.expect("deletes");
        if next_day {
            tokio::time::sleep(Duration::from_secs(24 * 3_600)).await;
        }
        let report = p.domain.admin().janitor_pass().await.expect("passes");
        assert!(report.is_clean(), "{id}: {report:?}");
        assert!(p.log.damaged().is_empty(), "{id}: {:?}", p.log.damaged());
        assert!(w.is_in_state(dead.tid, State::Finished).await, "{id}");
        assert_eq!(content(&w, id).await, None, "the document stays deleted");
    }
}

/// A store whose first search for deletions takes longer than a lease.
#[derive(Debug)]
struct SlowSearch {
    memory: Arc<MemoryStore>,
    was_slow: AtomicBool,
}

#[async_trait]
impl Layer for SlowSearch {
    fn inner(&self) -> &dyn Store {
        &*self.memory
    }

    async fn scan(
        &self,
        collection: &str,
        filter: &Filter,
        size: usize,
        from: Option<Cursor>,
    ) -> Result<Page, StoreError> {
        if matches!(filter, Filter::AnyOf("deletes", _))
            && !self.was_slow.swap(true, Ordering::SeqCst)
        {
            tokio::time::sleep(2 * Config::default().lease()).await;
        }
        self.memory.scan(collection, filter, size, from).await
    }
}

#[tokio::test(start_paused = true)]
async fn janitor_retries_a_participant_that_no_scan_shows() {
    let w = SharedStore::of(1).await;
    let dead = owner(&w, &[], End::BeforeFinish, false).await;
    let slow = SlowSearch { memory: w.memory.clone(), was_slow: AtomicBool::new(false) };
    let config = Config::default().with_janitor_interval(None);
    let domain = Domain::open_or_create(Arc::new(slow), "shop", config).await.expect("opens");
    let items: Items = domain.create_collection("items", None).await.expect("opens");
    let delete = domain.transact::<_, Error, _>(async |tx| {
        tx.get(&items, "new").await?;
        tx.delete(&items, "new")
    });
    delete.await.expect("deletes");
    let report = domain.admin().janitor_pass().await.expect("passes");
    assert!(report.is_clean(), "{report:?}");
    assert!(w.is_in_state(dead.tid, State::Finished).await);
}

#[tokio::test(start_paused = true)]
async fn owner_with_a_touched_record_overwrites_nothing() {
    for meddling in [Meddling::Rewrite, Meddling::Remove] {
        let w = SharedStore::of(1).await;
        let owner = owner(&w, &[("new", meddling)], End::Never, true).await;
        let new = owner.items.key("new");
        assert_eq!(owner.log.damaged(), std::slice::from_ref(&new), "{meddling:?}");
        assert!(w.is_in_state(owner.tid, State::Committed).await, "{meddling:?}");
        let stands = w.stored(&new).await.map(|(_, source)| source);
        assert!(stands.is_none_or(|source| source.contains("transaction_absent")));
    }
}

#[tokio::test(start_paused = true)]
async fn readers_see_an_insert_under_a_moved_placeholder() {
    let w = SharedStore::of(1).await;
    owner(&w, &[("new", Meddling::Rewrite)], End::AtCommit, false).await;
    let p = w.process(Dies::Never).await;
    let read = p.domain.reader().get(&p.items, "new").await.expect("reads");
    assert_eq!(read, Some(Item { n: 7 }), "the commit was acknowledged");
    let error = p.domain.transact::<_, Error, _>(async |tx| {
        tx.insert(&p.items, "new", &Item { n: 8 })?;
        tx.get(&p.items, "d0000").await.map(drop)
    });
    let error = error.await.expect_err("the apply is unclear");
    assert!(matches!(error.kind(), ErrorKind::Damaged | ErrorKind::Exists), "{error}");
    let options = Options::default().with_wait_for(WaitFor::Apply);
    let change = p.domain.run::<_, Error, _>(&options, async |tx| {
        tx.get(&p.items, "d0000").await?;
        tx.put(&p.items, "d0000", &Item { n: 9 })
    });
    change.await.expect("the other document can be written");
}
