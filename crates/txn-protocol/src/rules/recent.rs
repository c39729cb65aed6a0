//! The last commits that a document keeps: by them a write without a record is settled ([`super::single`]), and one is missed
//! that a plain client undid ([`super::apply`]).
//!
//! Each process keeps one entry or two, not one for each of its commits: every byte of the list is written with every lock
//! and every commit of its document, so that a list of 64 costs the server as much as all the rest of a small document.
//!
//! What can be said of a list depends on who may shorten it, and where:
//! - **The writer of an entry** takes it out, once it knows what became of it, in a write that appends a later one of its own. So behind
//!   an entry that still stands there is one of each process that committed since.
//! - **Anybody** takes out the oldest, once a later one is too old for anybody to be in doubt about it, or if there are too many. So as
//!   long as an entry stands, what came later was taken out by its own writer or by nobody.
//! - A deletion ends the list. What is inserted later begins another one.
//!
//! Two entries stay although their writers know of them. The oldest, which is older than whatever may be in doubt unless the list
//! is younger itself: whoever is in doubt has read it, and still finds it there, so that nothing of its own was lost. And the one
//! whose content is replaced: whoever held the document over that content sees who followed.

use std::time::Duration;

use crate::ids::CommitVersion;

/// So many entries stay, however old they are.
const FEWEST: usize = 6;

/// Most entries: whoever is in doubt while so many others commit is told that the outcome is unknown.
const MOST: usize = 64;

/// The list behind one more content write.
///
/// `is_known`: whether the process that writes is the one that committed this, and knows what became of it. `horizon`: nobody is in
/// doubt about what was committed before, since the Unix epoch.
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
    // One that is not: whoever may be in doubt has read it.
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
    fn a_process_keeps_its_last_commit_and_the_oldest_of_all() {
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
    fn what_is_in_doubt_stays_and_so_does_what_others_committed() {
        let (own, others) = (commit_of(0, 1), commit_of(1, 2));
        let list = [commit_of(0, 0), own, others];
        let next = commit_of(0, 3);
        assert_eq!(recent_with(&list, next, |_| false, LONG_AGO), [list[0], own, others, next]);
        assert_eq!(recent_with(&list, next, |_| true, LONG_AGO), [list[0], others, next]);
        // Applied by a helper: what its owner knows is not for others to say.
        let helped = commit_of(1, 3);
        let is_known = |tid: CommitVersion| tid.node() == own.node();
        assert_eq!(recent_with(&list, helped, is_known, LONG_AGO), [list[0], own, others, helped]);
    }

    #[test]
    fn the_oldest_go_first_if_they_are_old_or_too_many() {
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
    fn whoever_is_in_doubt_finds_something_of_the_list_that_it_read() {
        // Ten processes write in turn, each second one; nobody is in doubt for longer than 20 seconds.
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
    fn what_is_written_again_stands_once() {
        let commit = commit_of(0, 1);
        assert_eq!(recent_with(&[commit], commit, |_| true, LONG_AGO), [commit]);
    }
}
