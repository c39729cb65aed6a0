//! Random faults, with the same faults for the same seed.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use fastrand::Rng;

use super::fault::{Fault, FaultKind, Outage, Refusal};
use super::matching::Route;

/// The probability of each fault for one request. At most one fault happens.
#[derive(Clone, Debug, PartialEq)]
pub struct Odds {
    each: BTreeMap<FaultKind, f64>,
    delays: Range<Duration>,
    late: Range<Duration>,
    outages: (f64, Range<Duration>),
}

impl Odds {
    /// No faults.
    #[must_use]
    pub fn none() -> Self {
        let ms = Duration::from_millis;
        let outages = (0.0, ms(300)..ms(10_000));
        Self { each: BTreeMap::new(), delays: ms(1)..ms(50), late: ms(500)..ms(5_000), outages }
    }

    /// Two percent for each kind of fault, except a missing index.
    ///
    /// About every fourth request has a fault.
    #[must_use]
    pub fn rough() -> Self {
        let usual = FaultKind::ALL.into_iter().filter(|kind| *kind != FaultKind::RefuseMissing);
        usual.fold(Self::none(), |odds, kind| odds.with(kind, 0.02))
    }

    /// Sets the probability of each refusal of writes that were carried out.
    #[must_use]
    pub fn with_refusals(self, probability: f64) -> Self {
        let refusals = FaultKind::ALL.into_iter().filter(|kind| kind.is_refusal());
        refusals.fold(self, |odds, kind| odds.with(kind, probability))
    }

    /// Sets probability and duration of an outage after such a refusal.
    #[must_use]
    pub fn with_outages(mut self, probability: f64, lasts: Range<Duration>) -> Self {
        self.outages = (probability, lasts);
        self
    }

    /// Sets the probability of a kind, from 0 to 1. The sum should stay below 1.
    #[must_use]
    pub fn with(mut self, kind: FaultKind, probability: f64) -> Self {
        self.each.insert(kind, probability);
        self
    }

    /// Sets the range of delays. Default: 1 to 50 ms.
    #[must_use]
    pub fn with_delays(mut self, delays: Range<Duration>) -> Self {
        self.delays = delays;
        self
    }

    /// Sets the range of late repetitions. Default: half a second to five seconds.
    #[must_use]
    pub fn with_late(mut self, late: Range<Duration>) -> Self {
        self.late = late;
        self
    }

    fn draw(&self, random: &mut Rng) -> Option<Chosen> {
        let fault = self.fault(random)?;
        let (odds, lasts) = &self.outages;
        let outage = (fault.kind().is_refusal() && random.f64() < *odds).then(|| {
            let kind = if random.bool() { Outage::Refuses } else { Outage::Silent };
            (kind, lasts.start + lasts.end.saturating_sub(lasts.start).mul_f64(random.f64()))
        });
        Some(Chosen { fault, outage })
    }

    fn fault(&self, random: &mut Rng) -> Option<Fault> {
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
            FaultKind::RefuseOverloaded => Fault::Refuse(Refusal::Overloaded),
            FaultKind::RefuseBlocked => Fault::Refuse(Refusal::Blocked),
            FaultKind::RefuseClosed => Fault::Refuse(Refusal::Closed),
            FaultKind::RefuseMissing => Fault::Refuse(Refusal::Missing),
        })
    }
}

/// A fault, and the outage that follows with its duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chosen {
    pub(crate) fault: Fault,
    pub(crate) outage: Option<(Outage, Duration)>,
}

/// Decides about requests by their number and their route.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    seed: u64,
    usual: Odds,
    routes: BTreeMap<Route, Odds>,
}

impl Schedule {
    /// Creates a schedule with the same odds for every route.
    #[must_use]
    pub fn new(seed: u64, odds: Odds) -> Self {
        Self { seed, usual: odds, routes: BTreeMap::new() }
    }

    /// Sets other odds for one route.
    #[must_use]
    pub fn with_route(mut self, route: Route, odds: Odds) -> Self {
        self.routes.insert(route, odds);
        self
    }

    /// Returns the fault of a request.
    ///
    /// The number of the request counts from 0 for each proxy.
    #[must_use]
    pub fn decide(&self, number: u64, route: Route) -> Option<Fault> {
        self.choose(number, route).map(|chosen| chosen.fault)
    }

    /// The same, with the outage that follows.
    pub(crate) fn choose(&self, number: u64, route: Route) -> Option<Chosen> {
        // The multiplication makes seeds of neighbours independent.
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
            let odds = Odds::rough().with_refusals(0.02);
            let schedule = Schedule::new(seed, odds);
            (0..1_000).map(|n| schedule.decide(n, Route::Bulk)).collect::<Vec<_>>()
        };
        assert_eq!(decisions(1), decisions(1));
        assert_ne!(decisions(1), decisions(2));
    }

    #[test]
    fn the_odds_are_kept() {
        let odds = Odds::rough().with_refusals(0.02);
        let schedule = Schedule::new(3, odds).with_route(Route::Search, Odds::none());
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
        // A thousand of each are expected. The margin is more than six standard deviations.
        assert!(seen.values().all(|count| (800..1_200).contains(count)), "{seen:?}");
    }

    #[test]
    fn outages_follow_refusals_only() {
        let (short, long) = (Duration::from_secs(1), Duration::from_secs(5));
        let odds = Odds::rough().with_refusals(0.05).with_outages(0.5, short..long);
        let schedule = Schedule::new(3, odds);
        let chosen = (0..20_000).filter_map(|number| schedule.choose(number, Route::Bulk));
        let (refused, others): (Vec<_>, Vec<_>) =
            chosen.partition(|chosen| chosen.fault.kind().is_refusal());
        assert!(others.iter().all(|chosen| chosen.outage.is_none()));
        let outages = refused.iter().filter_map(|chosen| chosen.outage);
        let (refusing, silent): (Vec<_>, Vec<_>) =
            outages.partition(|(outage, _)| *outage == Outage::Refuses);
        // A thousand of each are expected.
        assert!((800..1_200).contains(&refusing.len()), "{}", refusing.len());
        assert!((800..1_200).contains(&silent.len()), "{}", silent.len());
        assert!(refusing.iter().chain(&silent).all(|(_, lasts)| (short..long).contains(lasts)));
    }

    #[test]
    fn a_certain_fault_always_happens() {
        let odds = Odds::none().with(FaultKind::CutAnswer, 1.0);
        let schedule = Schedule::new(1, odds);
        assert!((0..100).all(|n| schedule.decide(n, Route::Other) == Some(Fault::CutAnswer)));
    }
}
