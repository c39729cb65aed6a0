//! Property test: random histories of one document and its commit list.
//!
//! Processes write the document without a record, and by records that owners or other processes
//! apply. The list tells the truth about a write, however the list was shortened.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::apply::{Applying, Committed, applying};
use super::recent::recent_with;
use super::single::{Settling, settling};
use super::testing::{image, tid, version, view};
use super::validate::Observed;
use crate::document::{Stored, View};
use crate::ids::CommitVersion;
use crate::record::{Op, Participant};
use crate::rule::Rules;

/// In seconds: older entries are removed, whichever process wrote them.
const HORIZON: u64 = 20;

/// Ticks of a tid in one second.
const SECOND: u64 = 10_000_000;

#[derive(Clone, Debug)]
enum Step {
    /// Nothing happens for this number of seconds.
    Pause(u64),
    /// A process sends a write over the present content.
    Send(u64),
    /// A write that was sent arrives. Its answer arrives as well, or is lost.
    Land(prop::sample::Index, bool),
    /// The sender of a write reads the document.
    Look(prop::sample::Index),
    /// The second process applies a commit of the first, perhaps its own.
    Apply(u64, u64),
    /// The owner of an applied commit learns that it is applied.
    Through(prop::sample::Index),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        2 => (0..4_u64).prop_map(Step::Pause),
        6 => (0..9_u64).prop_map(Step::Send),
        6 => any::<(prop::sample::Index, bool)>().prop_map(|(at, told)| Step::Land(at, told)),
        3 => any::<prop::sample::Index>().prop_map(Step::Look),
        2 => (0..9_u64, 0..9_u64).prop_map(|(owner, by)| Step::Apply(owner, by)),
        1 => any::<prop::sample::Index>().prop_map(Step::Through),
    ];
    prop::collection::vec(step, 1..200)
}

/// A write that was sent. The process does not know the outcome.
struct Sent {
    commit: CommitVersion,
    read: Observed,
    recent: Vec<CommitVersion>,
    content: Stored,
}

/// A commit by a record. The owner or another process knows the commit.
struct Applied {
    commit: CommitVersion,
    participant: Participant,
    locked: Option<View>,
}

struct Document {
    seconds: u64,
    /// How many seconds the clock of each process is ahead.
    ahead: Vec<u64>,
    drawn: u64,
    seq_no: u64,
    stored: Stored,
    /// Every commit that was written.
    written: BTreeSet<CommitVersion>,
    in_doubt: BTreeSet<CommitVersion>,
    sent: Vec<Sent>,
    applied: Vec<Applied>,
}

impl Document {
    fn of(ahead: Vec<u64>) -> Self {
        let mut document = Self {
            seconds: 0,
            ahead,
            drawn: 0,
            seq_no: 0,
            stored: Stored { image: image(1), ..Stored::default() },
            written: BTreeSet::new(),
            in_doubt: BTreeSet::new(),
            sent: Vec::new(),
            applied: Vec::new(),
        };
        let first = document.tid(99);
        document.put(document.content(99, first));
        document
    }

    fn clock(&self, process: u64) -> u64 {
        self.seconds + self.ahead.get(process as usize).copied().unwrap_or_default()
    }

    /// A tid after the present commit, by the clock of its process.
    fn tid(&mut self, process: u64) -> CommitVersion {
        self.drawn += 1;
        let mut ticks = self.clock(process) * SECOND + self.drawn;
        while self.stored.commit_version.is_some_and(|before| tid_at(process, ticks) <= before) {
            ticks += SECOND;
        }
        tid_at(process, ticks)
    }

    /// The content of a commit, with the writing process's list.
    fn content(&self, process: u64, commit: CommitVersion) -> Stored {
        let own = |tid: CommitVersion| tid.node()[5] == process as u8;
        let is_known = |tid: CommitVersion| own(tid) && !self.in_doubt.contains(&tid);
        let horizon = self.clock(process).saturating_sub(HORIZON) * SECOND;
        let horizon = tid_at(process, horizon).unix_time();
        let recent = recent_with(&self.stored.recent, commit, is_known, horizon).into();
        Stored { commit_version: Some(commit), recent, ..self.stored.clone() }
    }

    fn put(&mut self, content: Stored) {
        self.written.extend(content.commit_version);
        self.stored = content;
        self.seq_no += 1;
    }

    fn view(&self) -> View {
        view(self.seq_no, self.stored.clone())
    }

    fn carry_out(&mut self, step: Step) {
        match step {
            Step::Pause(seconds) => self.seconds += seconds,
            Step::Send(process) => {
                let commit = self.tid(process);
                self.in_doubt.insert(commit);
                let (read, recent) = (Observed::of(&self.view()), self.stored.recent.to_vec());
                let content = self.content(process, commit);
                self.sent.push(Sent { commit, read, recent, content });
            }
            Step::Land(at, told) if !self.sent.is_empty() => {
                let at = at.index(self.sent.len());
                if self.sent[at].read.version == Some(version(self.seq_no)) {
                    self.put(self.sent[at].content.clone());
                    if told {
                        let commit = self.sent.remove(at).commit;
                        self.in_doubt.remove(&commit);
                    }
                }
            }
            Step::Look(at) if !self.sent.is_empty() => self.look(at.index(self.sent.len())),
            Step::Apply(owner, by) => {
                let (locked, before) = (self.view(), self.stored.commit_version);
                let commit = self.tid(owner);
                if owner == by {
                    self.in_doubt.insert(commit);
                }
                self.put(self.content(by, commit));
                let participant = Participant {
                    collection: "c".into(),
                    id: "a".into(),
                    routing: None,
                    op: Op::Write,
                    expected: None,
                    placeholder: None,
                    before,
                };
                let locked = (owner == by).then_some(locked);
                self.applied.push(Applied { commit, participant, locked });
            }
            Step::Through(at) if !self.applied.is_empty() => {
                let through = self.applied.swap_remove(at.index(self.applied.len()));
                self.in_doubt.remove(&through.commit);
            }
            Step::Land(..) | Step::Look(..) | Step::Through(..) => {}
        }
    }

    fn look(&mut self, at: usize) {
        let Sent { commit, read, recent, .. } = &self.sent[at];
        let is_written = self.written.contains(commit);
        match settling(read, recent, *commit, &self.view()) {
            Settling::Resend => return,
            Settling::CommittedOnceTouched(_) => assert!(is_written, "{commit} never was"),
            Settling::NotAppliedOnceTouched(_) => assert!(!is_written, "{commit} was written"),
            Settling::Unknown => {}
        }
        // The touch.
        self.seq_no += 1;
        let commit = self.sent.swap_remove(at).commit;
        self.in_doubt.remove(&commit);
    }

    /// Each process that applies finds that the later commits followed this one.
    fn is_followed(&self) {
        for Applied { commit, participant, locked } in &self.applied {
            let (rules, now) = (Rules::all(), self.view());
            let committed =
                Committed { tid: tid(0, 0), commit: *commit, applied: false, elsewhere: false };
            let found = applying(&rules, committed, participant, locked.as_ref(), &now);
            assert!(matches!(found, Applying::Touch(_)), "{found:?} for {commit} in {now:?}");
        }
    }
}

/// A tid of a process, `ticks` after the start.
fn tid_at(process: u64, ticks: u64) -> CommitVersion {
    let (high, low) = (ticks >> 32, ticks & u64::from(u32::MAX));
    format!("{low:08x}-{high:04x}-11f1-8000-0123456789{process:02x}").parse().expect("a tid")
}

proptest! {
    #[test]
    fn a_list_tells_the_truth(steps in steps(), ahead in prop::collection::vec(0..60_u64, 9)) {
        let mut document = Document::of(ahead);
        for step in steps {
            document.carry_out(step);
            document.is_followed();
        }
    }
}
