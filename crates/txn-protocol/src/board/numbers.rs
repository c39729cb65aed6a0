//! Durations and factors of the board policy.

use std::time::Duration;

/// Durations and factors of the policy.
///
/// Each number has the measurement that chose it, or a reason. The measurements are those of the
/// simulation in `tests/hot-documents`: ten documents, round trips of 1 ms, seeds 1 to 3. A ratio
/// compares P processes with one process that has as many clients as each of them. A *guest* is one
/// client next to busy processes with 32 clients in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Numbers {
    /// The time from a lost document to a wish: 5 ms.
    ///
    /// [`Self::passed_over_round_trips`] are added. A batch takes three round trips, so a shorter
    /// time writes wishes for conflicts that end by themselves.
    pub passed_over: Duration,
    /// Round trips that are added to [`Self::passed_over`]: 3, one batch.
    pub passed_over_round_trips: u32,
    /// A full turn in round trips of the fastest process: 20.
    ///
    /// Measured for two processes in the shop, as ratios to one process, and for a busy process
    /// with a guest:
    ///
    /// | round trips | throughput | p99 | commits of the busy process |
    /// |---|---|---|---|
    /// | 10 | 0.81 | 23 ms | 0.63 |
    /// | 20 | 0.88 | 33 ms | 0.75 |
    /// | 40 | 0.93 | 54 ms | |
    pub turn_round_trips: u32,
    /// The shortest full turn: 10 ms.
    ///
    /// A turn has to be longer than the delays of a poll and a write.
    pub shortest_turn: Duration,
    /// The longest full turn of many processes: 100 ms. Sixteen processes with round trips of 5 ms
    /// wait for 1.9 s.
    pub longest_turn: Duration,
    /// The cycle in which turns may exceed [`Self::longest_turn`]: 1 s.
    ///
    /// A full turn may last this time divided by the number of processes, if that is longer. On a
    /// loaded server a round trip takes 20 ms, and a turn of 100 ms is one batch.
    pub longest_cycle: Duration,
    /// The patience with the wish in its turn, in full turns: 5.
    ///
    /// The other processes skip a wish if its ticket stays for these turns and for
    /// [`Self::patience_round_trips`]. A live process takes its turn, its apply and its write in
    /// less than two turns. The part of a turn beyond [`Self::longest_turn`] counts once.
    pub patience_turns: u32,
    /// The patience in round trips of the process in its turn: 8. A turn takes up to six.
    pub patience_round_trips: u32,
    /// The longest patience, for any round trip: 10 s. An entry names the round trip. The limit
    /// bounds the effect of a damaged entry.
    pub longest_patience: Duration,
    /// The time after which an unread board counts as empty: 200 ms.
    ///
    /// [`Self::blind_round_trips`] have to pass, too. A board that is unreachable for 3 s of 10 s
    /// costs 0.27 of the throughput.
    pub blind_after: Duration,
    /// Own round trips after which an unread board counts as empty: 8. A fixed time of 200 ms
    /// starves a process with round trips of 300 ms.
    pub blind_round_trips: u32,
    /// The ratio of round trips that makes a process slow: 5.
    ///
    /// The ratio compares a process with the fastest process.
    pub slow_factor: u32,
    /// The stride of a slow process in its own round trips: 15.
    ///
    /// The stride is divided by the number of faster processes and multiplied by the number of slow
    /// ones. Measured for a fast process next to a slow guest:
    ///
    /// | round trips | fast process, share of its commits | the guest commits within |
    /// |---|---|---|
    /// | 10 | 0.66 | 5.1 s |
    /// | 13 | 0.71 | 6.0 s |
    /// | 15 | 0.74 | 6.6 s |
    ///
    /// The engine itself reaches 0.72 with 15 round trips.
    pub slow_stride_round_trips: u32,
    /// The pause between polls of a process without waits: 10 ms.
    ///
    /// The process waits for no other process.
    ///
    /// The pause grows to a quarter of the time for which the board showed no other process, at
    /// most 50 ms.
    pub look_pause: Duration,
    /// The shortest time from one poll to the next: 1 ms. A store in the memory of the process
    /// answers without a delay.
    pub shortest_look_pause: Duration,
    /// An idle process's wish stays this percentage of a round trip: 40. The clients of the process
    /// may return.
    pub idle_percent: u32,
    /// The time until an unchanged entry's slot is free: 10 s. The turns of all other processes
    /// take less.
    pub dead_after: Duration,
    /// The pause between two polls of a dormant process: 250 ms.
    ///
    /// A dormant process polls only while it hands its documents off. Without these polls a guest
    /// next to one busy process never commits.
    pub dormant_look: Duration,
    /// The time without hand-offs until documents are sometimes free: 50 ms.
    ///
    /// [`Self::handoff_round_trips`] have to pass, too.
    pub handoff_pause: Duration,
    /// Round trips without a hand-off: 4, two batches.
    pub handoff_round_trips: u32,
    /// The time without another process after which polls stop: 10 s.
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
            longest_cycle: Duration::from_secs(1),
            patience_turns: 5,
            patience_round_trips: 8,
            longest_patience: Duration::from_secs(10),
            blind_after: Duration::from_millis(200),
            blind_round_trips: 8,
            slow_factor: 5,
            slow_stride_round_trips: 15,
            look_pause: Duration::from_millis(10),
            shortest_look_pause: Duration::from_millis(1),
            idle_percent: 40,
            dead_after: Duration::from_secs(10),
            dormant_look: Duration::from_millis(250),
            handoff_pause: Duration::from_millis(50),
            handoff_round_trips: 4,
            dormant_after: Duration::from_secs(10),
        }
    }
}
