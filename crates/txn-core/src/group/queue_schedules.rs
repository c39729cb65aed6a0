//! The queue of groups in chosen schedules of its callers.
//!
//! The engine runs unchanged on the memory store.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde::{Deserialize, Serialize};
use shuttle::future::{block_on, yield_now};
use shuttle::thread::{self, JoinHandle};

use super::*;
use crate::config::{Config, Options};
use crate::event::{Event, Observer};
use crate::sync::schedules::{Counter, StoppedClock, check};
use crate::{Collection, Domain, Error, Typed};
use txn_store::MemoryStore;

/// Counts the transactions of all commits.
///
/// A commit writes the shared document, and one document of each member.
#[derive(Debug, Default)]
struct Commits(AtomicUsize);

impl Observer for Commits {
    fn on_event(&self, event: &Event) {
        if let Event::Committed { written, .. } = event {
            self.0.fetch_add(written - 1, Ordering::SeqCst);
        }
    }
}

/// The letters of committed transactions, in their order.
#[derive(Default, Serialize, Deserialize)]
struct Letters {
    letters: String,
}

/// A process with groups.
struct Process {
    domain: Domain,
    items: Collection<Typed<Letters>>,
    others: Collection<Typed<Letters>>,
    commits: Arc<Commits>,
}

impl Process {
    fn open() -> Arc<Self> {
        let commits = Arc::new(Commits::default());
        let config = Config::default()
            .with_janitor_interval(None)
            .with_group_commit(Some(true))
            .with_clock(Arc::new(StoppedClock))
            .with_entropy(Arc::new(Counter::default()))
            .with_observer(Some(commits.clone()));
        block_on(async {
            let store = Arc::new(MemoryStore::new());
            let domain = Domain::open_or_create(store, "shop", config).await.unwrap();
            let items = domain.create_collection("items", None).await.unwrap();
            let others = domain.create_collection("others", None).await.unwrap();
            Arc::new(Self { domain, items, others, commits })
        })
    }

    /// Adds a letter to the shared document, and writes the document of the letter.
    async fn add(&self, letter: char) -> Result<(), Error> {
        self.domain
            .transact(async |tx| {
                let mut shared = tx.get(&self.items, "shared").await?.unwrap_or_default();
                shared.letters.push(letter);
                tx.put(&self.items, "shared", &shared)?;
                tx.put(&self.items, letter.to_string(), &Letters { letters: letter.into() })
            })
            .await
    }

    /// Adds a letter to one document only, so that the commit needs no record.
    async fn add_alone(
        &self,
        items: &Collection<Typed<Letters>>,
        letter: char,
    ) -> Result<(), Error> {
        self.domain
            .transact(async |tx| {
                let mut shared = tx.get(items, "shared").await?.unwrap_or_default();
                shared.letters.push(letter);
                tx.put(items, "shared", &shared)
            })
            .await
    }

    /// Reads the shared document and that of `b` in a read-only transaction.
    async fn read(&self) -> Result<(String, String), Error> {
        let options = Options::default().with_read_only(true);
        let read = self.domain.run::<_, Error, _>(&options, async |tx| {
            let shared = tx.get(&self.items, "shared").await?.unwrap_or_default();
            let of_b = tx.get(&self.items, "b").await?.unwrap_or_default();
            Ok((shared.letters, of_b.letters))
        });
        Ok(read.await?.value)
    }

    fn caller(self: &Arc<Self>, letter: char) -> JoinHandle<()> {
        let this = self.clone();
        thread::spawn(move || block_on(this.add(letter)).unwrap())
    }

    /// A caller of one document of `items`.
    fn single(self: &Arc<Self>, letter: char) -> JoinHandle<()> {
        let this = self.clone();
        thread::spawn(move || block_on(this.add_alone(&this.items, letter)).unwrap())
    }

    /// A caller of one document of `others`.
    fn other(self: &Arc<Self>, letter: char) -> JoinHandle<()> {
        let this = self.clone();
        thread::spawn(move || block_on(this.add_alone(&this.others, letter)).unwrap())
    }

    /// Checks that all tasks end, and that no transaction waits.
    ///
    /// No group may have a permit, and no document may be in use. Returns the letters.
    fn ended(&self) -> String {
        let engine = &self.domain.engine;
        let reader = self.domain.reader();
        let shared = block_on(async {
            engine.context.lifecycle.close();
            engine.context.lifecycle.ended().await;
            reader.get(&self.items, "shared").await.unwrap()
        });
        let queue = self.domain.groups.as_ref().unwrap().queue.lock();
        assert!(queue.waiting.is_empty() && queue.permits.is_empty(), "{queue:?}");
        assert_eq!(format!("{:?}", queue.in_use), format!("{:?}", InUse::default()));
        assert!(!engine.hot.handoffs.contains(&Key::new("items", "shared")));
        shared.unwrap_or_default().letters
    }

    /// Checks that each letter was committed once.
    fn committed_once(&self, letters: &str) {
        assert_eq!(self.commits.0.load(Ordering::SeqCst), letters.len(), "{letters}");
    }
}

/// The letters that are in the text, in the order of the alphabet. Each letter must be there once.
fn each_once(letters: &str) -> String {
    let sorted: BTreeSet<char> = letters.chars().collect();
    assert_eq!(sorted.len(), letters.len(), "{letters}");
    sorted.into_iter().collect()
}

#[test]
fn each_transaction_commits_in_one_group() {
    check(|| {
        let process = Process::open();
        let callers = ['a', 'b', 'c', 'd'].map(|letter| process.caller(letter));
        for caller in callers {
            caller.join().unwrap();
        }
        let letters = process.ended();
        process.committed_once(&letters);
        assert_eq!(each_once(&letters), "abcd");
    });
}

/// A dropped caller may have committed or not, and delays no other caller.
#[test]
fn dropped_member_loses_nothing_of_others() {
    check(|| {
        let process = Process::open();
        let dropped = {
            let process = process.clone();
            thread::spawn(move || {
                block_on(async {
                    tokio::select! {
                        biased;
                        added = process.add('z') => added.unwrap(),
                        () = async { yield_now().await; yield_now().await } => {}
                    }
                });
            })
        };
        let callers = ['a', 'b', 'c'].map(|letter| process.caller(letter));
        for caller in callers {
            caller.join().unwrap();
        }
        dropped.join().unwrap();
        let letters = process.ended();
        process.committed_once(&letters);
        let letters = each_once(&letters);
        assert!(letters == "abc" || letters == "abcz", "{letters}");
    });
}

/// A transaction of one document waits for an apply, and the others of its process wait for it.
#[test]
fn single_writes_and_readers_all_end() {
    check(|| {
        let process = Process::open();
        // Committed, and perhaps not applied.
        block_on(process.add('b')).unwrap();
        let callers = [process.single('c'), process.caller('d')];
        let reader = {
            let process = process.clone();
            thread::spawn(move || {
                let (letters, of_b) = block_on(process.read()).unwrap();
                assert_eq!((each_once(&letters).contains('b'), &*of_b), (true, "b"), "{letters}");
            })
        };
        for caller in callers.into_iter().chain([reader]) {
            caller.join().unwrap();
        }
        assert_eq!(each_once(&process.ended()), "bcd");
    });
}

/// A group without members, of one collection, keeps no group of another collection waiting.
#[test]
fn collections_wait_for_no_group_of_each_other() {
    check(|| {
        let process = Process::open();
        let items = [process.single('a'), process.single('c'), process.caller('b')];
        let others = ['x', 'y', 'z'].map(|letter| process.other(letter));
        for caller in items.into_iter().chain(others) {
            caller.join().unwrap();
        }
        assert_eq!(each_once(&process.ended()), "abc");
    });
}
