//! The faults, their probabilities, and the random numbers that choose them.

use std::fmt;
use std::time::Duration;

use txn_store::WriteOp;

/// The probability of each fault, between 0 and 1.
///
/// The faults of one item (a write, a read) exclude each other, so their sum should stay below 1.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct FaultPlan {
    /// The seed: equal seeds and calls give equal faults.
    pub seed: u64,
    /// A write is applied and answered [`Conflict`](txn_store::Outcome::Conflict).
    pub applied_conflict: f64,
    /// An item is carried out and answered [`Unknown`](txn_store::Outcome::Unknown).
    ///
    /// Writes, checks and verifies.
    pub applied_unknown: f64,
    /// A write, check or verify is never carried out and answered `Unknown`.
    pub lost_unknown: f64,
    /// A write is answered `Unknown` and carried out later.
    ///
    /// Its condition must still hold then.
    pub late_unknown: f64,
    /// A create is carried out, answered correctly, and delivered again later.
    pub create_twice: f64,
    /// An item is never carried out and answered [`Rejected`](txn_store::Outcome::Rejected).
    ///
    /// Writes, checks and verifies.
    pub rejected: f64,
    /// A write is applied and answered [`RejectedInDoubt`](txn_store::Outcome::RejectedInDoubt).
    pub applied_rejected: f64,
    /// A write, check or verify is never carried out and answered `RejectedInDoubt`.
    pub lost_rejected: f64,
    /// A write is answered `RejectedInDoubt` and carried out later.
    ///
    /// Its condition must still hold then.
    pub late_rejected: f64,
    /// A write is applied and answered
    /// [`MissingCollection`](txn_store::Outcome::MissingCollection).
    pub applied_missing: f64,
    /// An outage begins after a write that was applied and answered otherwise.
    ///
    /// In an outage nothing is carried out in all collections, or in the written one. Late writes
    /// still arrive.
    pub outage: f64,
    /// The shortest outage.
    pub min_outage: Duration,
    /// The longest outage. The logarithm of the duration is uniformly distributed.
    pub max_outage: Duration,
    /// A read by `get_many` shows an earlier state of the document.
    pub stale_read: f64,
    /// A read of either kind is answered [`Unavailable`](txn_store::Read::Unavailable).
    pub read_unavailable: f64,
    /// A page of a scan is answered [`Unavailable`](txn_store::StoreErrorKind::Unavailable).
    pub scan_unavailable: f64,
    /// A page of a scan lacks a document.
    ///
    /// Only in a collection that was written to since its last refresh.
    pub scan_hides: f64,
    /// A call is delayed, before its execution or before its answer.
    pub delay: f64,
    /// The longest delay of a call.
    pub max_delay: Duration,
    /// The longest delay of a late write or a second create.
    pub max_late: Duration,
}

/// Setters of probabilities.
macro_rules! probabilities {
    ($($setter:ident $field:ident,)*) => {
        impl FaultPlan {$(
            #[doc = concat!("Sets [`", stringify!($field), "`](Self::", stringify!($field), ").")]
            #[must_use]
            pub fn $setter(mut self, probability: f64) -> Self {
                self.$field = probability;
                self
            }
        )*}
    };
}

probabilities! {
    with_applied_conflict applied_conflict,
    with_applied_unknown applied_unknown,
    with_lost_unknown lost_unknown,
    with_late_unknown late_unknown,
    with_create_twice create_twice,
    with_rejected rejected,
    with_applied_rejected applied_rejected,
    with_lost_rejected lost_rejected,
    with_late_rejected late_rejected,
    with_applied_missing applied_missing,
    with_stale_read stale_read,
    with_read_unavailable read_unavailable,
    with_scan_unavailable scan_unavailable,
    with_scan_hides scan_hides,
}

impl FaultPlan {
    /// Creates a plan without faults.
    #[must_use]
    pub const fn none(seed: u64) -> Self {
        Self {
            seed,
            applied_conflict: 0.0,
            applied_unknown: 0.0,
            lost_unknown: 0.0,
            late_unknown: 0.0,
            create_twice: 0.0,
            rejected: 0.0,
            applied_rejected: 0.0,
            lost_rejected: 0.0,
            late_rejected: 0.0,
            applied_missing: 0.0,
            outage: 0.0,
            min_outage: Duration::from_millis(300),
            max_outage: Duration::from_secs(45),
            stale_read: 0.0,
            read_unavailable: 0.0,
            scan_unavailable: 0.0,
            scan_hides: 0.0,
            delay: 0.0,
            max_delay: Duration::from_millis(5),
            max_late: Duration::from_millis(200),
        }
    }

    /// Creates a plan with frequent faults of single items.
    ///
    /// About one write in four and one read in seven fails. The plan has all faults of single items
    /// except missing collections.
    #[must_use]
    pub const fn rough(seed: u64) -> Self {
        Self {
            applied_conflict: 0.03,
            applied_unknown: 0.03,
            lost_unknown: 0.03,
            late_unknown: 0.03,
            create_twice: 0.05,
            rejected: 0.03,
            applied_rejected: 0.03,
            lost_rejected: 0.02,
            late_rejected: 0.02,
            stale_read: 0.1,
            read_unavailable: 0.04,
            scan_unavailable: 0.05,
            scan_hides: 0.1,
            delay: 0.2,
            ..Self::none(seed)
        }
    }

    /// Sets the probability and the maximum of delays.
    #[must_use]
    pub const fn with_delay(mut self, probability: f64, max: Duration) -> Self {
        (self.delay, self.max_delay) = (probability, max);
        self
    }

    /// Sets the probability of an outage, and its shortest and longest duration.
    ///
    /// An outage begins after a write that was applied and answered otherwise.
    #[must_use]
    pub const fn with_outage(mut self, probability: f64, min: Duration, max: Duration) -> Self {
        (self.outage, self.min_outage, self.max_outage) = (probability, min, max);
        self
    }

    /// Sets the longest delay of a late write or a second create.
    #[must_use]
    pub const fn with_max_late(mut self, max: Duration) -> Self {
        self.max_late = max;
        self
    }
}

/// The number of injected faults, by kind. Only effective faults count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Injected {
    /// See [`FaultPlan::applied_conflict`].
    pub applied_conflict: u64,
    /// See [`FaultPlan::applied_unknown`].
    pub applied_unknown: u64,
    /// See [`FaultPlan::lost_unknown`].
    pub lost_unknown: u64,
    /// See [`FaultPlan::late_unknown`].
    pub late_unknown: u64,
    /// See [`FaultPlan::create_twice`].
    pub create_twice: u64,
    /// See [`FaultPlan::rejected`].
    pub rejected: u64,
    /// See [`FaultPlan::applied_rejected`].
    pub applied_rejected: u64,
    /// See [`FaultPlan::lost_rejected`].
    pub lost_rejected: u64,
    /// See [`FaultPlan::late_rejected`].
    pub late_rejected: u64,
    /// See [`FaultPlan::applied_missing`].
    pub applied_missing: u64,
    /// See [`FaultPlan::outage`].
    pub outage: u64,
    /// See [`FaultPlan::stale_read`].
    pub stale_read: u64,
    /// See [`FaultPlan::read_unavailable`].
    pub read_unavailable: u64,
    /// See [`FaultPlan::scan_unavailable`].
    pub scan_unavailable: u64,
    /// See [`FaultPlan::scan_hides`]. The number of documents.
    pub scan_hides: u64,
    /// See [`FaultPlan::delay`].
    pub delay: u64,
}

impl Injected {
    /// Returns each kind with its name.
    #[must_use]
    pub fn named(&self) -> [(&'static str, u64); 16] {
        [
            ("applied and in conflict", self.applied_conflict),
            ("applied and unknown", self.applied_unknown),
            ("lost and unknown", self.lost_unknown),
            ("late", self.late_unknown),
            ("created twice", self.create_twice),
            ("rejected", self.rejected),
            ("applied and rejected", self.applied_rejected),
            ("rejected in doubt", self.lost_rejected),
            ("late and rejected", self.late_rejected),
            ("applied and missing", self.applied_missing),
            ("outages", self.outage),
            ("stale", self.stale_read),
            ("unread", self.read_unavailable),
            ("unscanned", self.scan_unavailable),
            ("hidden", self.scan_hides),
            ("delayed", self.delay),
        ]
    }

    /// Returns the number of faults of all kinds, including delays.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.named().iter().map(|(_, count)| count).sum()
    }
}

impl fmt::Display for Injected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} faults", self.total())?;
        for (at, (name, count)) in self.named().iter().filter(|(_, n)| *n > 0).enumerate() {
            write!(f, "{} {count} {name}", if at == 0 { ":" } else { "," })?;
        }
        Ok(())
    }
}

/// The fault of one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteFault {
    None,
    AppliedConflict,
    AppliedUnknown,
    LostUnknown,
    LateUnknown(Duration),
    CreateTwice(Duration),
    Rejected,
    AppliedRejected,
    LostRejected,
    LateRejected(Duration),
    AppliedMissing,
}

/// The extent and the duration of an outage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outage {
    pub(super) lasts: Duration,
    /// All collections, not only the written one.
    pub(super) everywhere: bool,
}

/// The fault of one read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadFault {
    None,
    /// Shows an earlier content: the number modulo the known contents selects one.
    Stale(u64),
    Unavailable,
}

/// Seeded random numbers (splitmix64), and the faults that they choose.
#[derive(Debug)]
pub(super) struct FaultRng {
    plan: FaultPlan,
    state: u64,
}

impl FaultRng {
    pub(super) fn new(plan: FaultPlan) -> Self {
        Self { plan, state: plan.seed }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number from 0 up to, and without, 1.
    fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns at least a microsecond, at most `max`.
    fn span(&mut self, max: Duration) -> Duration {
        max.mul_f64(self.fraction()).max(Duration::from_micros(1))
    }

    /// Chooses the fault of one write. Draws the same numbers for every write.
    pub(super) fn write(&mut self, op: &WriteOp) -> WriteFault {
        let plan = self.plan;
        let (at, late) = (self.fraction(), self.span(plan.max_late));
        let faults = [
            (plan.applied_conflict, WriteFault::AppliedConflict),
            (plan.applied_unknown, WriteFault::AppliedUnknown),
            (plan.lost_unknown, WriteFault::LostUnknown),
            (plan.late_unknown, WriteFault::LateUnknown(late)),
            (plan.create_twice, WriteFault::CreateTwice(late)),
            (plan.rejected, WriteFault::Rejected),
            (plan.applied_rejected, WriteFault::AppliedRejected),
            (plan.lost_rejected, WriteFault::LostRejected),
            (plan.late_rejected, WriteFault::LateRejected(late)),
            (plan.applied_missing, WriteFault::AppliedMissing),
        ];
        match (choose(at, &faults).unwrap_or(WriteFault::None), op) {
            (fault @ WriteFault::CreateTwice(_), WriteOp::Create(_)) => fault,
            (WriteFault::CreateTwice(_), _) => WriteFault::None,
            // A check or a verify is never answered wrongly, and no late delivery makes a
            // difference.
            (WriteFault::AppliedConflict | WriteFault::AppliedMissing, op) if !op.changes() => {
                WriteFault::None
            }
            (WriteFault::LateUnknown(_), op) if !op.changes() => WriteFault::LostUnknown,
            (WriteFault::AppliedRejected | WriteFault::LateRejected(_), op) if !op.changes() => {
                WriteFault::LostRejected
            }
            (fault, _) => fault,
        }
    }

    /// Whether an outage begins. Draws nothing if the plan has none.
    pub(super) fn outage(&mut self) -> Option<Outage> {
        let plan = self.plan;
        if plan.outage <= 0.0 || self.fraction() >= plan.outage {
            return None;
        }
        let (shortest, longest) = (plan.min_outage.as_secs_f64(), plan.max_outage.as_secs_f64());
        let seconds = shortest * (longest / shortest).max(1.0).powf(self.fraction());
        let lasts = Duration::try_from_secs_f64(seconds).unwrap_or(plan.max_outage);
        Some(Outage { lasts, everywhere: self.fraction() < 0.5 })
    }

    /// Chooses the fault of one read. Draws the same numbers for every read.
    pub(super) fn read(&mut self, primary: bool) -> ReadFault {
        let plan = self.plan;
        let (at, pick) = (self.fraction(), self.next());
        let faults = [
            (plan.read_unavailable, ReadFault::Unavailable),
            (if primary { 0.0 } else { plan.stale_read }, ReadFault::Stale(pick)),
        ];
        choose(at, &faults).unwrap_or(ReadFault::None)
    }

    /// Whether a page of a scan gets no answer.
    pub(super) fn scan(&mut self) -> bool {
        self.fraction() < self.plan.scan_unavailable
    }

    /// Whether a scan hides one document.
    pub(super) fn hides(&mut self) -> bool {
        self.fraction() < self.plan.scan_hides
    }

    /// Returns the delays of a call before and after the store.
    pub(super) fn delay(&mut self) -> (Duration, Duration) {
        let (at, span) = (self.fraction(), self.span(self.plan.max_delay));
        if at >= self.plan.delay {
            (Duration::ZERO, Duration::ZERO)
        } else if at < self.plan.delay / 2.0 {
            (span, Duration::ZERO)
        } else {
            (Duration::ZERO, span)
        }
    }
}

/// Returns the fault whose share of the unit interval contains `at`.
fn choose<T: Copy>(mut at: f64, faults: &[(f64, T)]) -> Option<T> {
    faults.iter().find_map(|(share, fault)| {
        let chosen = at < *share;
        at -= share;
        chosen.then_some(*fault)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_have_their_planned_frequency() {
        let plan = FaultPlan::none(7).with_applied_conflict(0.1).with_rejected(0.2);
        let mut dice = FaultRng::new(plan);
        let (mut conflicts, mut rejected) = (0, 0);
        for _ in 0..10_000 {
            match dice.write(&WriteOp::Create("{}".into())) {
                WriteFault::None => {}
                WriteFault::AppliedConflict => conflicts += 1,
                WriteFault::Rejected => rejected += 1,
                other => panic!("not planned: {other:?}"),
            }
        }
        assert!((900..1100).contains(&conflicts), "{conflicts}");
        assert!((1800..2200).contains(&rejected), "{rejected}");
    }

    #[test]
    fn checks_and_verifies_are_never_answered_wrongly() {
        let plan = FaultPlan::rough(3).with_applied_conflict(0.3).with_applied_rejected(0.1);
        let mut dice = FaultRng::new(plan.with_late_rejected(0.1).with_applied_missing(0.1));
        for _ in 0..10_000 {
            let fault = dice.write(&WriteOp::Verify(None));
            let allowed = [
                WriteFault::None,
                WriteFault::AppliedUnknown,
                WriteFault::LostUnknown,
                WriteFault::Rejected,
                WriteFault::LostRejected,
            ];
            assert!(allowed.contains(&fault), "{fault:?}");
            assert!(!matches!(dice.read(true), ReadFault::Stale(_)));
        }
    }

    #[test]
    fn outages_are_short_and_long() {
        let (min, max) = (Duration::from_millis(300), Duration::from_secs(30));
        let mut dice = FaultRng::new(FaultPlan::none(5).with_outage(0.5, min, max));
        let outages: Vec<Outage> = (0..10_000).filter_map(|_| dice.outage()).collect();
        assert!((4_700..5_300).contains(&outages.len()), "{}", outages.len());
        // Three seconds are the geometric mean.
        let short = outages.iter().filter(|outage| outage.lasts < Duration::from_secs(3)).count();
        assert!((2_200..2_800).contains(&short), "{short}");
        assert!(outages.iter().all(|outage| outage.lasts >= min && outage.lasts <= max));
        assert!(outages.iter().any(|o| o.everywhere) && outages.iter().any(|o| !o.everywhere));
        assert_eq!(FaultRng::new(FaultPlan::rough(5)).outage(), None);
    }

    #[test]
    fn injected_names_only_faults_that_happened() {
        assert_eq!(Injected::default().to_string(), "0 faults");
        let some = Injected { rejected: 2, stale_read: 1, ..Injected::default() };
        assert_eq!(some.to_string(), "3 faults: 2 rejected, 1 stale");
    }
}
