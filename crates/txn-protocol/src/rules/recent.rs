//! The list of last commits that a document keeps.
//!
//! The list settles a write without a record ([`super::single`]). The list also reveals a commit
//! that a plain client undid ([`super::apply`]).
//!
//! A process has one or two entries, not one for each of its commits. Every lock and every commit
//! of a document writes the whole list. A list of 64 entries costs the server as much as all the
//! rest of a small document.
//!
//! The conclusions from a list depend on the processes that may shorten it, and on the entries that
//! they remove:
//! - **The writer of an entry** removes the entry once it knows the outcome, in a write that
//!   appends a later entry of its own. So after a present entry the list has an entry of each
//!   process that committed since.
//! - **Any process** removes the oldest entry if the list is too long. Any process also removes the
//!   oldest entry if a later one is too old for any process to be in doubt about it. So while an
//!   entry is present, only its own writer has removed a later entry.
//! - A deletion ends the list. A later insert begins another list.
//!
//! Two entries stay although their writers know the outcome. The oldest entry is older than any
//! commit in doubt, unless the list itself is younger. A process in doubt has read this entry, and
//! finds it again: so no entry of its own was lost. The second one is the entry whose content is
//! replaced: a process that locked the document over this content sees the commits that followed.

use std::time::Duration;

use crate::ids::CommitVersion;

/// The number of entries that stay, however old they are.
const FEWEST: usize = 6;

/// The maximum number of entries.
///
/// A process that is in doubt during so many other commits gets an unknown outcome.
const MOST: usize = 64;

/// The list after one more write of content.
///
/// `is_known`: whether the writing process committed this version itself, and knows the outcome.
/// `horizon`: no process is in doubt about a commit before this time since the Unix epoch.
#[must_use]
pub fn recent_with(
    recent: &[CommitVersion],
    commit: CommitVersion,
    is_known: impl Fn(CommitVersion) -> bool,
    horizon: Duration,
) -> Vec<CommitVersion> {
    let ends = [recent.first(), recent.last()];
    let stays = |tid: &&CommitVersion| {
        ends.contains(&Some(*tid)) || tid.node() != commit.node() || !is_known(**tid)
    };
    let mut list = Vec::with_capacity(recent.len() + 1);
    list.extend(recent.iter().filter(stays).filter(|tid| **tid != commit));
    list.push(commit);
    let fresh = list.iter().filter(|tid| tid.unix_time() >= horizon).count();
    // Keeps one more entry, which is old: a process in doubt has read it.
    list.drain(..list.len().saturating_sub((fresh + 1).clamp(FEWEST, MOST)));
    list
}

#[cfg(test)]
mod tests {
    use super::super::testing::commit_of;
    use super::*;

    const LONG_AGO: Duration = Duration::ZERO;

    fn all(n: u8, node: u8) -> Vec<CommitVersion> {
        (0..n).map(|age| commit_of(node, age)).collect()
    }

    #[test]
    fn list_keeps_last_commits_and_the_oldest() {
        let mut list = Vec::new();
        for age in 0..100 {
            list = recent_with(&list, commit_of(age % 2, age), |_| true, LONG_AGO);
        }
        assert_eq!(list, [commit_of(0, 0), commit_of(0, 98), commit_of(1, 99)]);
        let mut list = Vec::new();
        for age in 0..100 {
            list = recent_with(&list, commit_of(0, age), |_| true, LONG_AGO);
        }
        assert_eq!(list, [0, 98, 99].map(|age| commit_of(0, age)));
    }

    #[test]
    fn entries_in_doubt_and_of_other_processes_stay() {
        let (own, others) = (commit_of(0, 1), commit_of(1, 2));
        let list = [commit_of(0, 0), own, others];
        let next = commit_of(0, 3);
        assert_eq!(recent_with(&list, next, |_| false, LONG_AGO), [list[0], own, others, next]);
        assert_eq!(recent_with(&list, next, |_| true, LONG_AGO), [list[0], others, next]);
        // Applied by another process, which does not know the owner's outcomes.
        let foreign = commit_of(1, 3);
        let is_known = |tid: CommitVersion| tid.node() == own.node();
        assert_eq!(
            recent_with(&list, foreign, is_known, LONG_AGO),
            [list[0], own, others, foreign]
        );
    }

    #[test]
    fn oldest_entries_go_if_old_or_too_many() {
        let list = all(20, 0);
        let next = commit_of(1, 20);
        let since = |age: u8| commit_of(0, age).unix_time();
        let ends = |list: Vec<CommitVersion>| (list.first().copied(), list.len());
        for (horizon, first, len) in [(LONG_AGO, 0, 21), (since(10), 9, 12), (since(20), 15, 6)] {
            let left = recent_with(&list, next, |_| true, horizon);
            assert_eq!(ends(left), (Some(commit_of(0, first)), len));
        }
        let left = recent_with(&all(100, 0), commit_of(1, 100), |_| true, LONG_AGO);
        assert_eq!(ends(left), (Some(commit_of(0, 37)), MOST));
    }

    #[test]
    fn process_in_doubt_finds_an_entry_it_read() {
        // Ten processes write in turn, one each second; no process is in doubt for longer than 20
        // s.
        let tid = |second: u64| -> CommitVersion {
            let (ticks, process) = (second * 10_000_000, second % 10);
            format!("{ticks:08x}-dc00-11f0-8000-0123456789{process:02x}").parse().expect("a tid")
        };
        let mut lists = vec![vec![tid(0)]];
        for second in 1..200 {
            let horizon = tid(second).unix_time().saturating_sub(Duration::from_secs(20));
            let list = recent_with(&lists[lists.len() - 1], tid(second), |_| true, horizon);
            assert!(list.len() <= 22, "{}", list.len());
            let read_since = lists.iter().rev().take(20);
            assert!(read_since.into_iter().all(|read| read.iter().any(|tid| list.contains(tid))));
            lists.push(list);
        }
    }

    #[test]
    fn rewritten_commit_has_one_entry() {
        let commit = commit_of(0, 1);
        assert_eq!(recent_with(&[commit], commit, |_| true, LONG_AGO), [commit]);
    }
}
