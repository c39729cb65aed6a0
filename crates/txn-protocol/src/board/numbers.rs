//! The numbers of the policy.

use std::time::Duration;

/// Durations and factors of the policy, with the measurement that chose a number or the reason for
/// it.
///
/// The measurements are those of the simulation in `tests/hot-documents`: ten documents, round
/// trips of 1 ms, seeds 1 to 3. A ratio compares P processes with one process that has as many
/// clients as each of them. A *guest* is one client beside busy processes with 32 clients in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Numbers {
    /// A process writes a wish once a transaction lost a document this long and
    /// [`Self::passed_over_round_trips`] ago: 5 ms. A batch takes three round trips, so a shorter
    /// time writes wishes for conflicts that end by themselves.
    pub passed_over: Duration,
    /// Round trips that are added to [`Self::passed_over`]: 3, one batch.
    pub passed_over_round_trips: u32,
    /// A full turn in round trips of the fastest process: 20. In the shop of two processes 10 give
    /// 0.81 of one process and a p99 of 23 ms, 20 give 0.88 and 33 ms, and 40 give 0.93 and 54 ms.
    /// With 10 a busy process keeps 0.63 of its commits beside a guest, with 20 it keeps 0.75.
    pub turn_round_trips: u32,
    /// The shortest full turn: 10 ms, so that a turn is longer than the delays of a look and a
    /// write.
    pub shortest_turn: Duration,
    /// The longest full turn of many processes: 100 ms. Sixteen processes with round trips of 5 ms
    /// wait for 1.9 s.
    pub longest_turn: Duration,
    /// The time in which each process has a full turn, if that is longer than
    /// [`Self::longest_turn`] for each of them: 1 s. On a loaded server a round trip takes 20 ms,
    /// and a turn of 100 ms is one batch.
    pub longest_cycle: Duration,
    /// A wish that has its turn is skipped if its ticket stays for so many full turns and for
    /// [`Self::patience_round_trips`]: 5. A live process takes its turn, its apply and its write in
    /// less than two. The part of a turn beyond [`Self::longest_turn`] counts once.
    pub patience_turns: u32,
    /// Round trips of the process whose turn it is: 8. Its turn takes up to six.
    pub patience_round_trips: u32,
    /// The longest patience, whatever round trip an entry names: 10 s. It bounds the effect of a
    /// damaged entry.
    pub longest_patience: Duration,
    /// A board that was not read for this time and for [`Self::blind_round_trips`] counts as empty:
    /// 200 ms. A board that is unreachable for 3 s of 10 s costs 0.27 of the throughput.
    pub blind_after: Duration,
    /// Own round trips after which an unread board counts as empty: 8. A fixed time of 200 ms
    /// starves a process with round trips of 300 ms.
    pub blind_round_trips: u32,
    /// A process is slow if its round trip is more than so many times that of the fastest process:
    /// 5.
    pub slow_factor: u32,
    /// The stride of a slow process in its own round trips, divided by the faster processes and
    /// multiplied by the slow ones: 13. Ten leave a fast process 0.66 of its commits beside a slow
    /// guest, and 13 leave 0.71; the guest commits within 5.1 and 6.0 s.
    pub slow_stride_round_trips: u32,
    /// The pause between two looks of a process that waits for no other process: 10 ms. It grows
    /// to a quarter of the time for which the board showed no other process, 50 ms at most.
    pub look_pause: Duration,
    /// The shortest time from one look to the next: 1 ms. A store in the memory of the process
    /// answers in no time.
    pub shortest_look_pause: Duration,
    /// A process without work keeps its wish for this share of a round trip, in percent, because
    /// its clients may return: 40.
    pub idle_percent: u32,
    /// The slot of an entry that did not change for this time is free: 10 s, longer than the turns
    /// of all others.
    pub dead_after: Duration,
    /// The pause between two looks of a dormant process that hands its documents over: 250 ms.
    /// Without these looks a guest beside one busy process never commits.
    pub dormant_look: Duration,
    /// A process that handed no document over for this time and for [`Self::handoff_round_trips`]
    /// leaves its documents free now and then: 50 ms.
    pub handoff_pause: Duration,
    /// Round trips without a hand-over: 4, two batches.
    pub handoff_round_trips: u32,
    /// A process that met no other process for this time stops looking at the board: 10 s.
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
            slow_stride_round_trips: 13,
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
