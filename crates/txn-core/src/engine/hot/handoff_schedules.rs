//! The hand-off table in chosen schedules of its threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use shuttle::future::{block_on, yield_now};
use shuttle::thread;
use tokio::sync::oneshot;

use super::*;
use crate::config::Config;
use crate::sync::schedules::check;
use txn_store::{MemoryStore, Store};

/// A commit that publishes documents, and applies what no transaction locks.
struct Commit {
    published: Arc<PublishedDocuments>,
    /// The documents that are locked by a taker or applied, each with the number of times.
    ends: Arc<Ends>,
}

/// How often each document of a commit was locked by a taker or applied.
#[derive(Default)]
struct Ends(Mutex<BTreeMap<Key, usize>>);

impl Ends {
    fn add(&self, key: &Key) {
        *self.0.lock().unwrap().entry(key.clone()).or_default() += 1;
    }

    fn are(&self, ids: &str) {
        let ends = self.0.lock().unwrap();
        assert!(ends.keys().eq(keys(ids).iter()), "{ends:?}");
        assert!(ends.values().all(|times| *times == 1), "{ends:?}");
    }
}

fn key(id: char) -> Key {
    Key::new("c", id.to_string())
}

fn keys(ids: &str) -> BTreeSet<Key> {
    ids.chars().map(key).collect()
}

fn views(ids: &str) -> BTreeMap<Key, View> {
    keys(ids).into_iter().map(|key| (key, View::Absent)).collect()
}

impl Commit {
    fn publish(table: &HandoffTable, ids: &str) -> Self {
        Self { published: table.publish(views(ids), 1), ends: Arc::default() }
    }

    /// Applies returned documents until all are settled, as the commit does.
    ///
    /// The commit waits for no timer, so a lost wake-up is a deadlock.
    async fn apply_returned(&self) {
        loop {
            let returned = self.published.take_returned();
            returned.iter().for_each(|key| self.ends.add(key));
            if returned.is_empty() && self.published.is_settled() {
                return;
            }
            if returned.is_empty() {
                self.published.changed().await;
            }
        }
    }

    /// Gives back what no transaction has taken, and applies the rest.
    async fn apply_untaken(&self, table: &HandoffTable) {
        tokio::select! {
            biased;
            () = self.published.returned() => {}
            () = yield_now() => {}
        }
        table.decline(&self.published.untaken());
        self.apply_returned().await;
    }

    /// Counts the end of a hand-off of this commit.
    fn locked(&self, handoff: Handoff) {
        self.ends.add(&handoff.key);
        handoff.locked();
    }
}

/// Two takers race for two documents: one locks them, and the other fails.
#[test]
fn each_entry_has_one_owner() {
    check(|| {
        let table = Arc::new(HandoffTable::default());
        let commit = Arc::new(Commit::publish(&table, "ab"));
        let taken = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        let takers = [("ab", true), ("ba", false)].map(|(ids, locks)| {
            let (table, commit, taken) = (table.clone(), commit.clone(), taken.clone());
            thread::spawn(move || {
                for id in ids.chars() {
                    let Some(handoff) = table.take(&key(id)) else { continue };
                    let taken = &taken[usize::from(id == 'b')];
                    assert_eq!(taken.fetch_add(1, Ordering::SeqCst), 0, "{id} has two owners");
                    match locks {
                        true => commit.locked(handoff),
                        false => drop(handoff),
                    }
                }
            })
        });
        block_on(commit.apply_returned());
        for taker in takers {
            taker.join().unwrap();
        }
        commit.ends.are("ab");
        assert!(table.entries.lock().is_empty());
    });
}

/// Two commits publish one document while takers come and go, and each document ends once.
#[test]
fn replaced_entry_returns_to_its_commit() {
    check(|| {
        let table = Arc::new(HandoffTable::default());
        let commits = ["ab", "bc"].map(|ids| {
            let table = table.clone();
            thread::spawn(move || {
                let commit = Arc::new(Commit::publish(&table, ids));
                block_on(commit.apply_untaken(&table));
                (ids, commit)
            })
        });
        // A taker that loses its attempt.
        let taker = {
            let table = table.clone();
            thread::spawn(move || "bac".chars().for_each(|id| drop(table.take(&key(id)))))
        };
        taker.join().unwrap();
        for commit in commits {
            let (ids, commit) = commit.join().unwrap();
            commit.ends.are(ids);
        }
        assert!(table.entries.lock().is_empty());
    });
}

/// A commit that waits for its entry wakes if a later commit replaces the entry.
#[test]
fn replaced_entry_wakes_its_commit() {
    check(|| {
        let table = Arc::new(HandoffTable::default());
        let earlier = Commit::publish(&table, "ab");
        let replacing = {
            let table = table.clone();
            thread::spawn(move || {
                let later = Commit::publish(&table, "ab");
                "ab".chars().for_each(|id| drop(table.take(&key(id))));
                block_on(later.apply_returned());
                later
            })
        };
        // A group uses the documents, so the commit does not decline its entries.
        block_on(earlier.apply_returned());
        earlier.ends.are("ab");
        replacing.join().unwrap().ends.are("ab");
    });
}

/// A taker that hangs with its entry does not delay the commit after the entry is overdue.
#[test]
fn overdue_entry_is_applied_or_locked() {
    check(|| {
        let table = Arc::new(HandoffTable::default());
        let commit = Arc::new(Commit::publish(&table, "ab"));
        // The documents in the store: the first write decides.
        let written = Arc::new([AtomicBool::new(false), AtomicBool::new(false)]);
        let (end, ended) = oneshot::channel::<()>();
        let hanging = {
            let (table, written) = (table.clone(), written.clone());
            thread::spawn(move || {
                let Some(handoff) = table.take(&key('a')) else { return };
                let _ = block_on(ended);
                assert!(written[0].swap(true, Ordering::SeqCst), "the commit applied the document");
                drop(handoff);
            })
        };
        let locking = {
            let (table, written, commit) = (table.clone(), written.clone(), commit.clone());
            thread::spawn(move || {
                let Some(handoff) = table.take(&key('b')) else { return };
                if !written[1].swap(true, Ordering::SeqCst) {
                    commit.ends.add(&handoff.key);
                    handoff.locked();
                }
            })
        };
        block_on(async {
            while !commit.published.is_settled() {
                table.overdue(&commit.published);
                for key in commit.published.take_returned() {
                    if !written[usize::from(&*key.id == "b")].swap(true, Ordering::SeqCst) {
                        commit.ends.add(&key);
                    }
                }
                yield_now().await;
            }
        });
        drop(end);
        for taker in [hanging, locking] {
            taker.join().unwrap();
        }
        commit.ends.are("ab");
        assert!(table.entries.lock().is_empty());
    });
}

/// A commit that ends early takes its entries out, and no entry of another commit.
#[test]
fn ended_commit_withdraws_only_its_entries() {
    check(|| {
        let limits = MemoryStore::new().limits();
        let hot = Arc::new(Hot::new(&Config::default(), &limits));
        let ended = Published::new(&hot, views("ab"), 1);
        let later = {
            let hot = hot.clone();
            thread::spawn(move || Commit::publish(&hot.handoffs, "bc"))
        };
        let taker = {
            let hot = hot.clone();
            thread::spawn(move || hot.handoffs.take(&key('a')).map(Handoff::locked))
        };
        drop(ended);
        taker.join().unwrap();
        let later = later.join().unwrap();
        assert!(!hot.handoffs.contains(&key('a')));
        assert!("bc".chars().all(|id| hot.handoffs.contains(&key(id))));
        block_on(later.apply_untaken(&hot.handoffs));
        later.ends.are("bc");
    });
}
