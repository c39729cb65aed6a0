//! What a process knows of the time, from its own two clocks and from the server's. Pure: it is told what the clocks say.
//!
//! Two bounds make reads at a timestamp repeatable. Where the server tells its time, a commit version is not earlier than that time,
//! and a reader is at a moment that is `max_drift` earlier than both that time and its own wall clock. So a moment that
//! anybody may read at lies before every commit that is still to come, as long as the clocks of the *servers* agree within
//! `max_drift`. Where no server tells the time, the clocks of the processes
//! have to agree within `max_drift` instead.

use std::collections::VecDeque;
use std::time::Duration;

/// One look at both clocks of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clocks {
    /// Time since the Unix epoch. May jump.
    pub wall: Duration,
    /// Time since some moment of this process. Stands still while the machine is suspended.
    pub monotonic: Duration,
}

/// What the server said, and when it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// The server's time, at some moment between the question and the answer.
    pub time: Duration,
    /// The clocks before the question.
    pub asked: Clocks,
    /// The clocks behind the answer.
    pub answered: Clocks,
}

/// So many answers are kept: each may come from another node of the server.
const ANSWERS: usize = 4;

/// What a process knows of the time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timekeeper {
    /// The last answers, the oldest first.
    answers: VecDeque<Told>,
    /// The one that counts: it agrees best with the wall clock, for a node whose own clock is wrong must not stop everybody.
    told: Option<Told>,
    /// The last look at the clocks.
    seen: Option<Clocks>,
}

/// Whether the clocks of this process may be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// They may.
    Sound,
    /// They moved against each other since the server told its time: it has to be asked again.
    Doubtful,
    /// The wall clock is ahead of the server's by more than the drift, at least by so much.
    Ahead(Duration),
    /// The wall clock is behind the server's by more than the drift, at most by so much. Which of the two is wrong only a person can
    /// say; versions that follow a server's wrong clock would lie in everybody's future once it is set right.
    Behind(Duration),
}

impl Timekeeper {
    /// Takes what the server said. Earlier answers count as long as the clocks did not move against each other since.
    pub fn tell(&mut self, told: Told, drift: Duration) {
        self.answers.retain(|answer| !is_apart(answer.answered, told.answered, drift));
        if self.answers.len() == ANSWERS {
            self.answers.pop_front();
        }
        self.answers.push_back(told);
        self.told =
            self.answers.iter().copied().min_by_key(|told| told.time.abs_diff(told.asked.wall));
    }

    /// Notes a look at the clocks. Returns whether the wall clock jumped against the monotonic one since the last look: the machine was
    /// suspended, restored or cloned, or its clock was set.
    pub fn look(&mut self, now: Clocks, drift: Duration) -> bool {
        let before = self.seen.replace(now);
        before.is_some_and(|before| is_apart(before, now, drift))
    }

    /// Whether the wall clock may be relied on, by what the server said last. Sound where it said nothing.
    #[must_use]
    pub fn verdict(&self, now: Clocks, drift: Duration) -> Verdict {
        let Some(told) = self.told else { return Verdict::Sound };
        if is_apart(told.answered, now, drift) {
            return Verdict::Doubtful;
        }
        let [earliest, latest] = [earliest(told, now), latest(told, now)];
        if now.wall > latest + drift {
            Verdict::Ahead(now.wall - latest)
        } else if now.wall + drift < earliest {
            Verdict::Behind(earliest - now.wall)
        } else {
            Verdict::Sound
        }
    }

    /// The time by which transactions begin and commit, since the Unix epoch: the server's, where it tells one, or else this process's own.
    /// Not earlier than the server's while [`Timekeeper::verdict`] is sound.
    #[must_use]
    pub fn now(&self, now: Clocks) -> Duration {
        self.told.map_or(now.wall, |told| latest(told, now))
    }

    /// The server's time at the latest, if it is known.
    #[must_use]
    pub fn server_time(&self, now: Clocks) -> Option<Duration> {
        self.told.map(|told| latest(told, now))
    }

    /// A moment before which no commit will have its version any more: the earlier of the wall clock and of what the server's shows at
    /// least, minus the drift.
    #[must_use]
    pub fn settled_until(&self, now: Clocks, drift: Duration) -> Duration {
        let earliest = self.told.map_or(now.wall, |told| earliest(told, now));
        earliest.min(now.wall).saturating_sub(drift)
    }
}

/// The server's time at the latest: the time that passed on the way to it counts as passed.
fn latest(told: Told, now: Clocks) -> Duration {
    told.time + now.monotonic.saturating_sub(told.asked.monotonic)
}

/// The server's time at the earliest: the time that passed on the way back counts as not passed.
fn earliest(told: Told, now: Clocks) -> Duration {
    told.time + now.monotonic.saturating_sub(told.answered.monotonic)
}

/// Whether the wall clock moved against the monotonic one by more than a quarter of the drift.
fn is_apart(before: Clocks, now: Clocks, drift: Duration) -> bool {
    let expected = before.wall + now.monotonic.saturating_sub(before.monotonic);
    expected.abs_diff(now.wall) > drift / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const DRIFT: Duration = Duration::from_secs(60);
    const HOUR: Duration = Duration::from_secs(3_600);
    const NOON: Duration = Duration::from_secs(1_772_280_000);

    fn clocks(wall: Duration, monotonic: Duration) -> Clocks {
        Clocks { wall, monotonic }
    }

    /// The server was asked at noon, by a clock that is wrong by so much; the answer took two seconds.
    fn told(wall_at_noon: Duration) -> Timekeeper {
        let mut keeper = Timekeeper::default();
        keeper.tell(
            Told {
                time: NOON,
                asked: clocks(wall_at_noon, SECOND),
                answered: clocks(wall_at_noon + 2 * SECOND, 3 * SECOND),
            },
            DRIFT,
        );
        keeper
    }

    #[test]
    fn without_a_server_the_wall_clock_is_the_time() {
        let keeper = Timekeeper::default();
        let now = clocks(NOON + HOUR, SECOND);
        assert_eq!(keeper.verdict(now, DRIFT), Verdict::Sound);
        assert_eq!(keeper.now(now), NOON + HOUR);
        assert_eq!(keeper.settled_until(now, DRIFT), NOON + HOUR - DRIFT);
    }

    #[test]
    fn every_commit_to_come_is_later_than_every_moment_that_may_be_read_at() {
        // Each process is wrong by what it is allowed to be, and more.
        for reader in [-300_i64, -50, 0, 50, 300] {
            for writer in [-50_i64, 0, 50] {
                let wall = |offset: i64| {
                    let by = Duration::from_secs(offset.unsigned_abs());
                    if offset < 0 { NOON - by } else { NOON + by }
                };
                let later = clocks(Duration::ZERO, 13 * SECOND);
                let keeper = |offset| {
                    let noon = wall(offset);
                    (told(noon), Clocks { wall: noon + 12 * SECOND, ..later })
                };
                let ((reader, at_reader), (writer, at_writer)) = (keeper(reader), keeper(writer));
                let moment = reader.settled_until(at_reader, DRIFT);
                assert!(moment + DRIFT <= writer.now(at_writer));
                assert_eq!(writer.verdict(at_writer, DRIFT), Verdict::Sound);
            }
        }
    }

    #[test]
    fn a_wrong_clock_is_told_apart_from_a_suspended_machine() {
        let ahead = told(NOON + HOUR);
        let now = clocks(NOON + HOUR + 2 * SECOND, 3 * SECOND);
        assert_eq!(ahead.verdict(now, DRIFT), Verdict::Ahead(HOUR));
        let behind = told(NOON - HOUR);
        let now = clocks(NOON - HOUR + 2 * SECOND, 3 * SECOND);
        assert_eq!(behind.verdict(now, DRIFT), Verdict::Behind(HOUR - 2 * SECOND));
        let suspended = told(NOON);
        let now = clocks(NOON + HOUR, 4 * SECOND);
        assert_eq!(suspended.verdict(now, DRIFT), Verdict::Doubtful);
        assert!(suspended.settled_until(now, DRIFT) < NOON);
        let slewed = clocks(NOON + DRIFT / 8 + 2 * SECOND, 3 * SECOND);
        assert_eq!(suspended.verdict(slewed, DRIFT), Verdict::Sound);
    }

    #[test]
    fn one_node_with_a_wrong_clock_does_not_count() {
        let mut keeper = told(NOON);
        let at = |n| clocks(NOON + n * SECOND, (n + 1) * SECOND);
        let answer = |time, n| Told { time, asked: at(n), answered: at(n) };
        keeper.tell(answer(NOON + HOUR, 10), DRIFT);
        keeper.tell(answer(NOON - HOUR, 20), DRIFT);
        assert_eq!(keeper.now(at(30)), NOON + 30 * SECOND);
        assert_eq!(keeper.verdict(at(30), DRIFT), Verdict::Sound);
        for n in [30, 40, 50, 60] {
            keeper.tell(answer(NOON + HOUR, n), DRIFT);
        }
        assert!(keeper.now(at(60)) >= NOON + HOUR, "all of them say so");
    }

    #[test]
    fn a_jump_is_seen_once() {
        let mut keeper = Timekeeper::default();
        assert!(!keeper.look(clocks(NOON, SECOND), DRIFT), "the first look");
        assert!(!keeper.look(clocks(NOON + HOUR, SECOND + HOUR), DRIFT));
        assert!(keeper.look(clocks(NOON + 3 * HOUR, SECOND + HOUR), DRIFT), "suspended");
        assert!(!keeper.look(clocks(NOON + 3 * HOUR, SECOND + HOUR), DRIFT));
        assert!(keeper.look(clocks(NOON, SECOND + HOUR), DRIFT), "set back");
    }
}
