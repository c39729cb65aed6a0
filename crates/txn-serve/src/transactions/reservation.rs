//! Reservations of documents for clients that read, compute and commit.
//!
//! A reservation delays reads for update alone, and guards nothing: each commit still compares the
//! tokens of its reads. So an early end costs at most a repetition. No task serves the queues; a
//! waiting read ends expired reservations itself.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use txn_core::store::Key;
use txn_core::{Domain, Raw};

use super::update_queue::{Newest, Queues, Ticket};
use crate::config::ServeConfig;
use crate::http::problem::{Code, Problem};

/// The longest wait for an earlier reservation or commit. A read waits for its reservation, and a
/// commit for an earlier one.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// The maximum number of reservations that one commit names.
const MOST_NAMED: usize = 100;

/// The reservations of a gateway. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Reservations {
    queues: Arc<Mutex<Queues>>,
    domain: Domain,
    /// How long a reservation lasts after the answer of its read.
    length: Duration,
    /// The maximum number of waiting reads. The other requests keep the remaining permits.
    most_waiting: usize,
    has_groups: bool,
}

impl Reservations {
    pub(crate) fn new(domain: &Domain, config: &ServeConfig) -> Self {
        let groups = domain.config().group_commit();
        Self {
            queues: Arc::default(),
            domain: domain.clone(),
            length: config.reservation,
            most_waiting: config.max_requests / 2,
            has_groups: groups.unwrap_or_else(|| domain.store().limits().merges_transactions),
        }
    }

    /// Waits for the reservation of documents.
    ///
    /// `None` after the longest wait, and if too many reads wait. The read then goes on without a
    /// reservation.
    ///
    /// # Cancel safety
    /// A dropped future leaves all queues.
    pub(crate) async fn reserve(&self, keys: BTreeSet<Key>) -> Option<Reservation> {
        let entropy = self.domain.config().entropy();
        let ticket = Ticket::from(entropy.next_u64()) << 64 | Ticket::from(entropy.next_u64());
        let wake = Arc::new(Notify::new());
        let until = Instant::now() + LONGEST_WAIT;
        {
            let mut queues = self.queues.lock();
            queues.expire(Instant::now());
            if !queues.enter(ticket, keys.clone(), wake.clone(), self.most_waiting) {
                return None;
            }
        }
        let reservation = Reservation { all: self.clone(), ticket, keys };
        loop {
            let next = {
                let mut queues = self.queues.lock();
                queues.expire(Instant::now());
                if queues.holds(ticket) {
                    return Some(reservation);
                }
                queues.next_end(ticket).map_or(until, |end| end.min(until))
            };
            if Instant::now() >= until {
                return None;
            }
            tokio::select! {
                () = wake.notified() => {}
                () = tokio::time::sleep_until(next) => {}
            }
        }
    }

    /// Takes the reservations of a commit that has arrived. Ended reservations have no effect.
    ///
    /// `joins_groups`: whether the engine can merge the commit into a group.
    ///
    /// # Errors
    /// [`Code::Invalid`] for a text that no read has answered.
    pub(crate) fn take(&self, ids: &[String], joins_groups: bool) -> Result<UpdateCommit, Problem> {
        if ids.len() > MOST_NAMED {
            let detail = format!("the commit names more than {MOST_NAMED} reservations");
            return Err(Problem::new(Code::Invalid, detail));
        }
        let tickets = ids.iter().map(|id| parse(id)).collect::<Option<Vec<_>>>();
        let tickets = tickets.ok_or_else(|| {
            Problem::new(Code::Invalid, "a reservation of the commit is no reservation of a read")
        })?;
        let now = Instant::now();
        let mut queues = self.queues.lock();
        queues.expire(now);
        let (mut keys, mut taken) = (BTreeSet::new(), Vec::new());
        for ticket in tickets {
            if let Some(more) = queues.commit(ticket, now + self.length) {
                keys.extend(more);
                taken.push(ticket);
            }
        }
        let earlier = keys.iter().filter_map(|key| queues.newest(key));
        let undecided = earlier.filter(|newest| !newest.is_committed);
        let earlier = undecided.map(|newest| newest.progress.clone()).collect();
        drop(queues);
        let (progress, _) = watch::channel(false);
        let joins_groups = joins_groups && self.has_groups;
        Ok(UpdateCommit {
            all: self.clone(),
            tickets: taken,
            keys,
            earlier,
            progress,
            joins_groups,
            verified: Mutex::default(),
        })
    }
}

/// A granted reservation. A dropped value ends the reservation.
#[derive(Debug)]
pub(crate) struct Reservation {
    all: Reservations,
    ticket: Ticket,
    keys: BTreeSet<Key>,
}

impl Reservation {
    /// The content that a commit has passed on.
    ///
    /// The outer `None` stands for a document whose content no commit has passed on.
    pub(crate) fn newest(&self, key: &Key) -> Option<Option<Raw>> {
        self.all.queues.lock().newest(key).map(|newest| newest.content.clone())
    }

    /// Leaves the reservation to the commit of the client. Returns its id.
    pub(crate) fn keep(mut self) -> String {
        let end = Instant::now() + self.all.length;
        self.all.queues.lock().await_commit(self.ticket, end);
        self.keys.clear();
        format!("{:032x}", self.ticket)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // A kept reservation has no keys.
        if !self.keys.is_empty() {
            self.all.queues.lock().leave(self.ticket);
        }
    }
}

/// A commit with its reservations. A dropped value ends them.
///
/// The published contents of a failed commit are forgotten.
#[derive(Debug)]
pub(crate) struct UpdateCommit {
    all: Reservations,
    tickets: Vec<Ticket>,
    keys: BTreeSet<Key>,
    /// The undecided commits whose published contents the client has read.
    earlier: Vec<watch::Receiver<bool>>,
    progress: watch::Sender<bool>,
    joins_groups: bool,
    /// The documents whose contents the successful commit has compared.
    verified: Mutex<BTreeSet<Key>>,
}

impl UpdateCommit {
    /// Whether the commit has yet to follow earlier commits into a group.
    ///
    /// A later run sees the results of the earlier commits, so its refusal is final.
    pub(crate) fn follows_others(&self) -> bool {
        self.joins_groups && !self.earlier.is_empty() && !*self.progress.borrow()
    }

    /// Whether other reads wait for the documents.
    pub(crate) fn is_wanted(&self) -> bool {
        self.all.queues.lock().is_wanted(&self.keys)
    }

    /// How long the commit may predict its contents.
    pub(crate) fn longest_prediction(&self) -> Duration {
        self.all.length
    }

    pub(crate) fn reserves(&self, key: &Key) -> bool {
        self.keys.contains(key)
    }

    /// The content of a document for a prediction.
    ///
    /// Of a document without a reservation, the content of an ended commit may be stale.
    pub(crate) fn newest(&self, key: &Key) -> Option<Option<Raw>> {
        let queues = self.all.queues.lock();
        let newest = queues.newest(key).filter(|newest| !newest.is_committed || self.reserves(key));
        newest.map(|newest| newest.content.clone())
    }

    /// Publishes the contents of the commit, and ends the reservations.
    ///
    /// The commit will write these contents.
    ///
    /// Without room for all contents the reservations stay, because the next reads would find the
    /// contents before the commit.
    pub(crate) fn pass_on(&self, contents: Vec<(Key, Option<Raw>)>) {
        let Some(own) = self.tickets.first() else { return };
        let mut queues = self.all.queues.lock();
        let mut has_room = true;
        for (key, content) in contents {
            let newest = Newest::new(*own, content, self.progress.subscribe());
            has_room &= queues.publish(&key, newest);
        }
        if has_room {
            self.tickets.iter().for_each(|ticket| queues.leave(*ticket));
        }
    }

    /// Notes that the commit has succeeded on these contents that the client read.
    pub(crate) fn succeed(&self, verified: BTreeSet<Key>) {
        *self.verified.lock() = verified;
    }

    /// Waits until the earlier commits are decided.
    ///
    /// The wait applies if this commit cannot follow the earlier ones in a group.
    pub(crate) async fn wait_for_outcomes(&self) {
        if !self.joins_groups {
            let decided = async {
                for mut earlier in self.earlier.clone() {
                    while earlier.changed().await.is_ok() {}
                }
            };
            // A commit that is still undecided then costs this one a conflict at most.
            let _ = tokio::time::timeout(LONGEST_WAIT, decided).await;
        }
    }

    /// Waits until the earlier commits enter the queue for groups.
    ///
    /// Then this commit follows the earlier ones.
    ///
    /// Call this function at the end of each run of the closure.
    pub(crate) async fn enter_group(&self) {
        if self.joins_groups && !*self.progress.borrow() {
            let entered = async {
                for mut earlier in self.earlier.clone() {
                    // An error stands for a decided commit.
                    let _ = earlier.wait_for(|has_entered| *has_entered).await;
                }
            };
            let _ = tokio::time::timeout(LONGEST_WAIT, entered).await;
            self.progress.send_replace(true);
        }
    }
}

impl Drop for UpdateCommit {
    fn drop(&mut self) {
        let Some(own) = self.tickets.first() else { return };
        let mut queues = self.all.queues.lock();
        self.tickets.iter().for_each(|ticket| queues.leave(*ticket));
        queues.settle(*own, &self.keys, &self.verified.lock());
    }
}

fn parse(id: &str) -> Option<Ticket> {
    let is_hex = id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex.then(|| Ticket::from_str_radix(id, 16).ok()).flatten()
}
