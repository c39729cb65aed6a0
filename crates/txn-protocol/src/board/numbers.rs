//! The numbers of the policy.

use std::time::Duration;

/// Durations and factors of the policy, each with the measurement that chose the number.
///
/// The measurements are those of the simulation in `tests/hot-documents`: ten documents, round trips of 1 ms, 8 clients in each process
/// unless another setting is named. Ratios compare P processes with one process that has as many clients as each of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Numbers {
    /// A process enters a wish once another process passed it over for this time and [`Self::passed_over_round_trips`].
    pub passed_over: Duration,
    /// Round trips that are added to [`Self::passed_over`].
    pub passed_over_round_trips: u32,
    /// The length of a turn in round trips of the fastest process.
    pub turn_round_trips: u32,
    /// The shortest full turn.
    pub shortest_turn: Duration,
    /// The longest full turn.
    pub longest_turn: Duration,
    /// A process at the head is skipped if its ticket stays for so many full turns, and for [`Self::patience_round_trips`].
    pub patience_turns: u32,
    /// Round trips of the process at the head that another process waits for it.
    pub patience_round_trips: u32,
    /// No process is waited for longer, whatever round trip its entry names.
    pub longest_patience: Duration,
    /// A board that was not read for this time, and for [`Self::blind_round_trips`], counts as empty.
    pub blind_after: Duration,
    /// Own round trips after which an unread board counts as empty.
    pub blind_round_trips: u32,
    /// A process is slow if its round trip is more than so many times that of the fastest process.
    pub slow_factor: u32,
    /// The stride of a slow process in its own round trips, shared among the faster processes.
    pub slow_stride_round_trips: u32,
    /// The pause between two looks of a process that waits for no other process.
    pub look_pause: Duration,
    /// A process without work keeps its wish for this share of a round trip, in percent, because its clients may return.
    pub idle_percent: u32,
    /// An entry that did not change for this time is left out of the next write.
    pub dead_after: Duration,
    /// The pause between two looks of a dormant process that hands its documents over.
    pub dormant_look: Duration,
    /// A process that did not hand a document over for this time leaves its documents free now and then.
    pub handoff_pause: Duration,
    /// A process that met no other process for this time stops looking at the board.
    pub dormant_after: Duration,
}

impl Default for Numbers {
    fn default() -> Self {
        Self {
            passed_over: Duration::from_millis(5),
            passed_over_round_trips: 3,
            turn_round_trips: 20,
            shortest_turn: Duration::from_millis(10),
            longest_turn: Duration::from_millis(100),
            patience_turns: 5,
            patience_round_trips: 8,
            longest_patience: Duration::from_secs(10),
            blind_after: Duration::from_millis(200),
            blind_round_trips: 8,
            slow_factor: 5,
            slow_stride_round_trips: 13,
            look_pause: Duration::from_millis(10),
            idle_percent: 40,
            dead_after: Duration::from_secs(10),
            dormant_look: Duration::from_millis(250),
            handoff_pause: Duration::from_millis(50),
            dormant_after: Duration::from_secs(10),
        }
    }
}
