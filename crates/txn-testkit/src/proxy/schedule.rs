//! Faults by chance, the same ones for the same seed.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use fastrand::Rng;

use super::fault::{Fault, FaultKind};
use super::matching::Route;

/// How likely each fault is for one request. At most one happens.
#[derive(Clone, Debug, PartialEq)]
pub struct Odds {
    each: BTreeMap<FaultKind, f64>,
    delays: Range<Duration>,
    late: Range<Duration>,
}

impl Odds {
    /// Nothing goes wrong.
    #[must_use]
    pub fn none() -> Self {
        let ms = Duration::from_millis;
        Self { each: BTreeMap::new(), delays: ms(1)..ms(50), late: ms(500)..ms(5_000) }
    }

    /// Each kind of fault with a probability of two percent: about every sixth request meets one.
    #[must_use]
    pub fn rough() -> Self {
        FaultKind::ALL.into_iter().fold(Self::none(), |odds, kind| odds.with(kind, 0.02))
    }

    /// Sets the probability of a kind, from 0 to 1. All of them together should stay below 1.
    #[must_use]
    pub fn with(mut self, kind: FaultKind, probability: f64) -> Self {
        self.each.insert(kind, probability);
        self
    }

    /// How long delays are. Default: 1 to 50 ms.
    #[must_use]
    pub fn with_delays(mut self, delays: Range<Duration>) -> Self {
        self.delays = delays;
        self
    }

    /// How late late repetitions are. Default: half a second to five seconds.
    #[must_use]
    pub fn with_late(mut self, late: Range<Duration>) -> Self {
        self.late = late;
        self
    }

    fn draw(&self, random: &mut Rng) -> Option<Fault> {
        let mut left = random.f64();
        let kind = FaultKind::ALL.into_iter().find(|kind| {
            left -= self.each.get(kind).copied().unwrap_or_default();
            left < 0.0
        })?;
        let mut between = |range: &Range<Duration>| {
            range.start + range.end.saturating_sub(range.start).mul_f64(random.f64())
        };
        Some(match kind {
            FaultKind::LoseAnswer => Fault::LoseAnswer,
            FaultKind::CutBefore => Fault::CutBefore,
            FaultKind::DelayBefore => Fault::DelayBefore(between(&self.delays)),
            FaultKind::DelayAfter => Fault::DelayAfter(between(&self.delays)),
            FaultKind::Duplicate => Fault::Duplicate,
            FaultKind::DuplicateLate => Fault::DuplicateLate(between(&self.late)),
            FaultKind::TooManyRequests => Fault::TooManyRequests,
            FaultKind::ServiceUnavailable => Fault::ServiceUnavailable,
            FaultKind::CutAnswer => Fault::CutAnswer,
        })
    }
}

/// Decides about requests by their number and their route.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    seed: u64,
    usual: Odds,
    routes: BTreeMap<Route, Odds>,
}

impl Schedule {
    /// The same odds for every route.
    #[must_use]
    pub fn new(seed: u64, odds: Odds) -> Self {
        Self { seed, usual: odds, routes: BTreeMap::new() }
    }

    /// Other odds for one route.
    #[must_use]
    pub fn with_route(mut self, route: Route, odds: Odds) -> Self {
        self.routes.insert(route, odds);
        self
    }

    /// What happens to the request of this number, counted from 0 for each proxy.
    #[must_use]
    pub fn decide(&self, number: u64, route: Route) -> Option<Fault> {
        // Spread, so that neighbours have nothing in common.
        let mut random = Rng::with_seed(self.seed ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        self.routes.get(&route).unwrap_or(&self.usual).draw(&mut random)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_decides() {
        let decisions = |seed| {
            let schedule = Schedule::new(seed, Odds::rough());
            (0..1_000).map(|n| schedule.decide(n, Route::Bulk)).collect::<Vec<_>>()
        };
        assert_eq!(decisions(1), decisions(1));
        assert_ne!(decisions(1), decisions(2));
    }

    #[test]
    fn the_odds_are_kept() {
        let schedule = Schedule::new(3, Odds::rough()).with_route(Route::Search, Odds::none());
        let mut seen = BTreeMap::<_, u32>::new();
        for number in 0..50_000 {
            assert_eq!(schedule.decide(number, Route::Search), None);
            if let Some(fault) = schedule.decide(number, Route::Bulk) {
                *seen.entry(fault.kind()).or_default() += 1;
                if let Fault::DuplicateLate(late) = fault {
                    assert!((500..=5_000).contains(&late.as_millis()), "{late:?}");
                }
            }
        }
        assert_eq!(seen.len(), FaultKind::ALL.len());
        // A thousand of each are expected; this is more than six standard deviations.
        assert!(seen.values().all(|count| (800..1_200).contains(count)), "{seen:?}");
    }

    #[test]
    fn a_certain_fault_always_happens() {
        let odds = Odds::none().with(FaultKind::CutAnswer, 1.0);
        let schedule = Schedule::new(1, odds);
        assert!((0..100).all(|n| schedule.decide(n, Route::Other) == Some(Fault::CutAnswer)));
    }
}
