//! The time of a process, from its own clocks and the server's.
//!
//! The module is pure: the caller passes the readings of the clocks in.
//!
//! Two bounds make reads at a timestamp repeatable. If the server tells its time, a commit version
//! is not earlier than that time. A reader at a timestamp is `max_drift` earlier than both that
//! time and its own wall clock. So each readable timestamp lies before every future commit, while
//! the clocks of the *servers* agree within `max_drift`. If no server tells the time, the clocks of
//! the processes have to agree within `max_drift` instead.

use std::collections::VecDeque;
use std::time::Duration;

/// A reading of both clocks of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clocks {
    /// Time since the Unix epoch. May jump.
    pub wall: Duration,
    /// Time since a fixed moment of this process. Stops while the machine is suspended.
    pub monotonic: Duration,
}

/// The server's answer, with the clocks before and after the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerTime {
    /// The server's time, at some moment between the request and the answer.
    pub time: Duration,
    /// The clocks before the request.
    pub asked: Clocks,
    /// The clocks after the answer.
    pub answered: Clocks,
}

/// The number of answers to keep. Each may come from another node of the server.
const ANSWERS: usize = 4;

/// The time as a process knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timekeeper {
    /// The last answers, the oldest first.
    answers: VecDeque<ServerTime>,
    /// The answer that agrees best with the wall clock.
    ///
    /// A server node with a wrong clock must not stop all processes.
    told: Option<ServerTime>,
    /// The last reading of the clocks.
    seen: Option<Clocks>,
}

/// Whether the clocks of this process are reliable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockState {
    /// The clocks are reliable.
    Sound,
    /// The two clocks have drifted apart since the server's answer. The process asks the server
    /// again.
    Doubtful,
    /// The wall clock is ahead of the server's by more than the drift. The value is a lower bound
    /// of the difference.
    Ahead(Duration),
    /// The wall clock is behind the server's by more than the drift. The value is a lower bound of
    /// the difference.
    ///
    /// Only a person can say which of the two is wrong. Versions that follow a wrong server clock
    /// would be in the future of all processes once that clock is set right.
    Behind(Duration),
}

impl Timekeeper {
    /// Takes the server's answer.
    ///
    /// Earlier answers count while the two clocks have not moved against each other since.
    pub fn tell(&mut self, told: ServerTime, drift: Duration) {
        self.answers.retain(|answer| !is_apart(answer.answered, told.answered, drift));
        if self.answers.len() == ANSWERS {
            self.answers.pop_front();
        }
        self.answers.push_back(told);
        self.told =
            self.answers.iter().copied().min_by_key(|told| told.time.abs_diff(told.asked.wall));
    }

    /// Notes a reading of the clocks, and returns whether the clock jumped.
    ///
    /// A jump is a move of the wall clock against the monotonic clock since the last reading.
    /// Either the machine was suspended, restored or cloned, or its clock was set.
    pub fn look(&mut self, now: Clocks, drift: Duration) -> bool {
        let before = self.seen.replace(now);
        before.is_some_and(|before| is_apart(before, now, drift))
    }

    /// Whether the wall clock is reliable, by the server's last answer.
    ///
    /// The clock counts as sound if the server tells no time.
    #[must_use]
    pub fn clock_state(&self, now: Clocks, drift: Duration) -> ClockState {
        let Some(told) = self.told else { return ClockState::Sound };
        if is_apart(told.answered, now, drift) {
            return ClockState::Doubtful;
        }
        let [earliest, latest] = [earliest(told, now), latest(told, now)];
        if now.wall > latest + drift {
            ClockState::Ahead(now.wall - latest)
        } else if now.wall + drift < earliest {
            ClockState::Behind(earliest - now.wall)
        } else {
            ClockState::Sound
        }
    }

    /// The time at which transactions begin and commit, since the Unix epoch.
    ///
    /// The result is the server's time if the server tells its time, or else the wall clock. While
    /// [`Timekeeper::clock_state`] is sound, the result is not earlier than the server's time.
    #[must_use]
    pub fn now(&self, now: Clocks) -> Duration {
        self.told.map_or(now.wall, |told| latest(told, now))
    }

    /// The latest possible time of the server, if it is known.
    #[must_use]
    pub fn server_time(&self, now: Clocks) -> Option<Duration> {
        self.told.map(|told| latest(told, now))
    }

    /// A moment that precedes every future commit version.
    ///
    /// The moment is the wall clock or the earliest possible time of the server, whichever is
    /// earlier, minus the drift.
    #[must_use]
    pub fn settled_until(&self, now: Clocks, drift: Duration) -> Duration {
        let earliest = self.told.map_or(now.wall, |told| earliest(told, now));
        earliest.min(now.wall).saturating_sub(drift)
    }
}

/// The latest possible time of the server.
///
/// The whole way of the request counts as passed.
fn latest(told: ServerTime, now: Clocks) -> Duration {
    told.time + now.monotonic.saturating_sub(told.asked.monotonic)
}

/// The earliest possible time of the server.
///
/// The way of the answer counts as not passed.
fn earliest(told: ServerTime, now: Clocks) -> Duration {
    told.time + now.monotonic.saturating_sub(told.answered.monotonic)
}

/// Whether the two clocks moved apart. The bound is a quarter of the drift.
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

    /// The server was asked at noon. The process had this wall clock. The answer took 2 s.
    fn told(wall_at_noon: Duration) -> Timekeeper {
        let mut keeper = Timekeeper::default();
        keeper.tell(
            ServerTime {
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
        assert_eq!(keeper.clock_state(now, DRIFT), ClockState::Sound);
        assert_eq!(keeper.now(now), NOON + HOUR);
        assert_eq!(keeper.settled_until(now, DRIFT), NOON + HOUR - DRIFT);
    }

    #[test]
    fn future_commits_follow_readable_timestamps() {
        // The clock of each process is wrong by the allowed drift, and by more.
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
                assert_eq!(writer.clock_state(at_writer, DRIFT), ClockState::Sound);
            }
        }
    }

    #[test]
    fn wrong_clock_and_suspended_machine_differ() {
        let ahead = told(NOON + HOUR);
        let now = clocks(NOON + HOUR + 2 * SECOND, 3 * SECOND);
        assert_eq!(ahead.clock_state(now, DRIFT), ClockState::Ahead(HOUR));
        let behind = told(NOON - HOUR);
        let now = clocks(NOON - HOUR + 2 * SECOND, 3 * SECOND);
        assert_eq!(behind.clock_state(now, DRIFT), ClockState::Behind(HOUR - 2 * SECOND));
        let suspended = told(NOON);
        let now = clocks(NOON + HOUR, 4 * SECOND);
        assert_eq!(suspended.clock_state(now, DRIFT), ClockState::Doubtful);
        assert!(suspended.settled_until(now, DRIFT) < NOON);
        let slewed = clocks(NOON + DRIFT / 8 + 2 * SECOND, 3 * SECOND);
        assert_eq!(suspended.clock_state(slewed, DRIFT), ClockState::Sound);
    }

    #[test]
    fn node_with_a_wrong_clock_is_ignored() {
        let mut keeper = told(NOON);
        let at = |n| clocks(NOON + n * SECOND, (n + 1) * SECOND);
        let answer = |time, n| ServerTime { time, asked: at(n), answered: at(n) };
        keeper.tell(answer(NOON + HOUR, 10), DRIFT);
        keeper.tell(answer(NOON - HOUR, 20), DRIFT);
        assert_eq!(keeper.now(at(30)), NOON + 30 * SECOND);
        assert_eq!(keeper.clock_state(at(30), DRIFT), ClockState::Sound);
        for n in [30, 40, 50, 60] {
            keeper.tell(answer(NOON + HOUR, n), DRIFT);
        }
        assert!(keeper.now(at(60)) >= NOON + HOUR, "all of them say so");
    }

    #[test]
    fn clock_jump_is_reported_once() {
        let mut keeper = Timekeeper::default();
        assert!(!keeper.look(clocks(NOON, SECOND), DRIFT), "the first look");
        assert!(!keeper.look(clocks(NOON + HOUR, SECOND + HOUR), DRIFT));
        assert!(keeper.look(clocks(NOON + 3 * HOUR, SECOND + HOUR), DRIFT), "suspended");
        assert!(!keeper.look(clocks(NOON + 3 * HOUR, SECOND + HOUR), DRIFT));
        assert!(keeper.look(clocks(NOON, SECOND + HOUR), DRIFT), "set back");
    }
}
