//! The faults of a run, drawn by its seed.

use std::time::Duration;

use crate::FaultPlan;
use crate::server::Manners;

/// Draws the faults of the network and of the server.
///
/// Each kind of fault is absent in some runs, which shows the other faults alone.
#[must_use]
pub fn draw_faults(seed: u64, dice: &mut fastrand::Rng) -> (FaultPlan, Manners) {
    let mut often = |odds: f64, most: f64| if dice.f64() < odds { most * dice.f64() } else { 0.0 };
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
        ..Manners::default()
    };
    (faults, manners)
}
