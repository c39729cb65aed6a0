//! Hand-offs: a transaction locks documents of the previous commit in its process.
//!
//! The previous commit is not applied yet. A single write carries that commit's content, its tid,
//! and the new lock.

use txn_protocol::rule::Rule;
use txn_protocol::rules::lock::{HandoffStep, Locking, handoff_step, locking, read_of_commit};

use crate::scenario::{Death, Kind, Scenario, Script, Use};
use crate::state::{Budget, Doc, Phase, Told, Who, World, ended, seen, who};
use crate::suite::{Case, Flaw, Shows, Suite};
use crate::translate::{self, tid, view};
use crate::turn::Turn;

impl Turn<'_> {
    /// The previous transaction and the kind of a possible hand-off.
    ///
    /// `None` if no hand-off is possible.
    pub(crate) fn handoff(&self, script: &Script, d: usize) -> Option<(usize, HandoffStep)> {
        let predecessor = script.over?;
        let before = self.world.txns[predecessor];
        let holder = who(predecessor, before.attempt);
        let rec = self.world.rec(holder);
        let participant = translate::participant(rec, d)?;
        let acknowledged = before.told == Told::Committed;
        // Without an acknowledgement only a commit that was sent could count as one.
        if !acknowledged && !matches!(before.phase, Phase::Committing) {
            return None;
        }
        let now = view(&self.world.docs[d].now);
        let rules = &self.scenario.rules;
        let step = handoff_step(rules, tid(holder), acknowledged, &participant, &now)?;
        Some((predecessor, step))
    }

    /// Writes the previous commit's content and the lock in one write.
    pub(crate) fn lock_by_handoff(
        &mut self,
        t: usize,
        me: Who,
        d: usize,
        (predecessor, step): (usize, HandoffStep),
        script: &Script,
    ) {
        let doc = self.world.docs[d].now;
        let attempt = self.world.txns[predecessor].attempt;
        let stamp = self.world.rec(who(predecessor, attempt)).stamp;
        let writer = u8::try_from(predecessor + 1).unwrap_or_default();
        let committed = Doc { writer, version: doc.version, ..Doc::default() };
        let left = match step {
            HandoffStep::Content(_) => Doc { stamp, ..committed },
            HandoffStep::Placeholder(_) => Doc { absent: true, ..committed },
            HandoffStep::Keep(_) => Doc { lock: 0, ..doc },
        };
        let rules = &self.scenario.rules;
        let was_read = self.world.txns[t].seen[d];
        let read = was_read.read.then(|| read_of_commit(rules, translate::observed(&was_read)));
        if locking(rules, tid(me), read.as_ref(), &view(&left)) == Locking::Changed {
            return self.give_up(t, d, script);
        }
        let next = Doc { lock: me, ..left }.at_some();
        let after = ended(self.world);
        self.put_doc("locks by hand-off", d, next, move |w: &mut World, answer| {
            let Some(version) = answer else {
                w.txns[t].unsure |= 1 << d;
                return;
            };
            // The previous transaction is responsible until the next lock is acknowledged.
            w.txns[predecessor].done |= 1 << d;
            let txn = &mut w.txns[t];
            if txn.seen.iter().all(|seen| !seen.read) {
                txn.after = after;
            }
            txn.held[d] = version;
            txn.unsure &= !(1 << d);
            if !txn.seen[d].read {
                txn.seen[d] = seen(&next);
                txn.seen[d].holder = 0;
            }
        });
    }
}

fn script(uses: [Use; 3]) -> Script {
    Script { uses, pessimistic: true, lock_reads: true, ..Script::default() }
}

/// The first transaction writes and deletes. The second one locks over it, and writes and inserts.
///
/// Another process recovers at any time.
fn updates() -> Scenario {
    Scenario {
        exists: [true, true, false],
        scripts: vec![
            script([Use::Put, Use::Delete, Use::No]),
            Script { over: Some(0), ..script([Use::Put, Use::Insert, Use::No]) },
        ],
        attempts: 2,
        janitors: 1,
        death: Death::Anytime,
        budget: Budget { late: 1, ..Budget::default() },
        tidy: true,
        ..Scenario::default()
    }
}

/// The first transaction inserts and reads. The second one locks over it, and deletes and writes.
///
/// Creates land twice.
fn inserts() -> Scenario {
    Scenario {
        exists: [false, true, false],
        scripts: vec![
            script([Use::Insert, Use::Read, Use::No]),
            Script { over: Some(0), ..script([Use::Delete, Use::Put, Use::No]) },
        ],
        budget: Budget { forks: 1, ..Budget::default() },
        ..updates()
    }
}

/// Writes vanish with their primaries, and owners die.
fn vanishing() -> Scenario {
    Scenario {
        budget: Budget { dirty: 1, deaths: 1, ..Budget::default() },
        death: Death::Rightly,
        ..updates()
    }
}

/// Another process deletes the first transaction's insert before the second transaction.
///
/// The placeholder of the first transaction lands again.
fn deleted_between() -> Scenario {
    let uses = |what| [what, Use::No, Use::No];
    Scenario {
        exists: [false; 3],
        scripts: vec![
            script(uses(Use::Insert)),
            Script { over: Some(0), ..script(uses(Use::Put)) },
            Script { kind: Kind::Instant, ..script(uses(Use::Delete)) },
        ],
        ..inserts()
    }
}

/// A third transaction of another process wants the same document.
fn with_another() -> Scenario {
    let mut scenario = updates();
    scenario.scripts[0].uses = [Use::Put, Use::No, Use::No];
    scenario.scripts[1].uses = [Use::Put, Use::No, Use::No];
    scenario.scripts.push(script([Use::Put, Use::No, Use::No]));
    scenario
}

/// The second transaction reads before or after the first acknowledgement.
///
/// The second transaction locks at its end.
fn read_before() -> Scenario {
    let put = [Use::Put, Use::No, Use::No];
    Scenario {
        exists: [true, false, false],
        scripts: vec![
            script(put),
            Script { over: Some(0), pessimistic: false, lock_reads: false, ..script(put) },
        ],
        ..updates()
    }
}

/// The model.
#[must_use]
pub fn suite() -> Suite {
    Suite {
        name: "chains",
        cases: vec![
            Case::new(
                "write and delete, then write and insert",
                "1 late, 1 janitor, suspicion",
                updates(),
                449_030,
            )
            .ends(),
            Case::new(
                "insert and read, then delete and write",
                "1 fork, 1 janitor, suspicion",
                inserts(),
                220_159,
            )
            .ends(),
            Case::new(
                "an insert, deleted by another, then put",
                "1 fork, 1 janitor, suspicion",
                deleted_between(),
                50_888,
            )
            .ends(),
            Case::new(
                "the same as the first",
                "1 write vanishes, 1 death, 1 janitor",
                vanishing(),
                42_585,
            )
            .ends(),
            Case::new(
                "write, then write what was read before",
                "1 late, 1 janitor, suspicion",
                read_before(),
                69_839,
            )
            .ends(),
            Case::new(
                "a chain, and another process",
                "1 late, 1 janitor, suspicion",
                with_another(),
                6_914_912,
            )
            .ends()
            .large(),
        ],
        flaws: vec![
            Flaw::of(
                "a hand-off waits for the acknowledgement of its commit",
                &vanishing(),
                Rule::HandoffAcknowledged,
                Shows::Wrong,
            ),
            Flaw::of(
                "a hand-off requires a read of its commit",
                &read_before(),
                Rule::HandoffByCommit,
                Shows::Wrong,
            ),
            Flaw::of(
                "a hand-off replaces the own lock of its commit",
                &deleted_between(),
                Rule::HandoffOwnLock,
                Shows::Wrong,
            ),
        ],
    }
}
