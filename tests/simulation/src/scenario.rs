//! What a seed chooses: how many there are, and how bad the world is.

use std::time::Duration;

use txn_core::store::FaultPlan;

use crate::server::Manners;

/// Accounts of the world. Few, so that everybody meets everybody.
pub(crate) const ACCOUNTS: u8 = 4;
/// Tokens of the world, of which one exists.
pub(crate) const TOKENS: u8 = 3;
/// Slots of the world.
pub(crate) const SLOTS: u8 = 2;
/// What each account has at the beginning.
pub(crate) const OPENING: i64 = 1_000;

/// How the clocks behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clocks {
    /// They agree within seconds, and run alike but for one in a hundred.
    Tame,
    /// They jump by hours, both ways.
    Wild,
    /// They go on by days, one process after the other, so that partitions are dropped.
    Days,
}

/// One simulated world.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed that it came from.
    pub seed: u64,
    /// Processes at a time.
    pub processes: usize,
    /// Actors in each of them.
    pub actors: usize,
    /// Operations of each actor.
    pub operations: usize,
    /// Faults of the way to the server.
    pub faults: FaultPlan,
    /// Faults of the server.
    pub manners: Manners,
    /// Primaries crash, and unacknowledged writes vanish. Only transactions that lock what they
    /// read are strictly serialisable then.
    pub crashes: bool,
    /// Processes are killed, and others started in their place.
    pub kills: bool,
    /// Processes are paused.
    pub pauses: bool,
    /// The clocks.
    pub clocks: Clocks,
    /// Seeds of the rest.
    pub dice: fastrand::Rng,
}

impl Scenario {
    /// The world of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let mut dice = fastrand::Rng::with_seed(seed);
        // Each kind of trouble is absent in some worlds, so that the others are seen alone.
        let mut often = |odds: f64, most: f64| {
            if dice.f64() < odds { most * dice.f64() } else { 0.0 }
        };
        let max_late = Duration::from_millis(200 + (often(0.7, 15_000.0) as u64));
        let mut faults = FaultPlan::none(seed)
            .with_applied_conflict(often(0.6, 0.06))
            .with_applied_unknown(often(0.6, 0.06))
            .with_lost_unknown(often(0.6, 0.06))
            .with_late_unknown(often(0.6, 0.06))
            .with_create_twice(often(0.6, 0.3))
            .with_rejected(often(0.5, 0.06))
            .with_stale_read(often(0.6, 0.2))
            .with_read_unavailable(often(0.5, 0.08))
            .with_scan_unavailable(often(0.5, 0.1))
            .with_max_late(max_late);
        let delay = often(0.8, 1.0);
        let longest = 2 + often(0.5, 300.0) as u64;
        faults = faults.with_delay(delay, Duration::from_millis(longest));
        let manners = Manners {
            slow_replication: often(0.7, 0.5),
            lagging_copy: often(0.7, 0.8),
            scan_hides: often(0.5, 0.4),
            short_answer: often(0.5, 0.05),
            reordered: often(0.6, 0.5),
            late_news: often(0.5, 0.5),
        };
        let clocks = match dice.u8(..10) {
            0..5 => Clocks::Tame,
            5..7 => Clocks::Wild,
            _ => Clocks::Days,
        };
        Self {
            seed,
            processes: dice.usize(1..=3),
            actors: dice.usize(1..=3),
            operations: dice.usize(3..=8),
            faults,
            manners,
            crashes: dice.u8(..10) < 3,
            kills: dice.u8(..10) < 5,
            pauses: dice.u8(..10) < 5,
            clocks,
            dice,
        }
    }

    /// How far the clocks may be apart before commits are refused.
    #[must_use]
    pub fn max_drift(&self) -> Duration {
        match self.clocks {
            Clocks::Tame => Duration::from_secs(60),
            Clocks::Wild => Duration::from_secs(24 * 3600),
            Clocks::Days => Duration::from_secs(10 * 24 * 3600),
        }
    }
}
