//! What may go wrong, how often, and the dice that decide it.

use std::fmt;
use std::time::Duration;

use txn_store::WriteOp;

/// How often each fault strikes. Probabilities are between 0 and 1; those of one item (a write, a
/// read) exclude each other, so their sum should stay below 1.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct FaultPlan {
    /// Where the dice begin: the same seed and the same calls give the same faults.
    pub seed: u64,
    /// A write is applied and answered [`Conflict`](txn_store::Outcome::Conflict).
    pub applied_conflict: f64,
    /// A write, check or verify is carried out and answered
    /// [`Unknown`](txn_store::Outcome::Unknown).
    pub applied_unknown: f64,
    /// A write, check or verify is never carried out and answered `Unknown`.
    pub lost_unknown: f64,
    /// A write is answered `Unknown` and carried out later, if its condition still holds then.
    pub late_unknown: f64,
    /// A create is carried out, answered as it is, and delivered once more later.
    pub create_twice: f64,
    /// A write, check or verify is never carried out and answered
    /// [`Rejected`](txn_store::Outcome::Rejected).
    pub rejected: f64,
    /// A write is applied and answered [`RejectedInDoubt`](txn_store::Outcome::RejectedInDoubt).
    pub applied_rejected: f64,
    /// A write, check or verify is never carried out and answered `RejectedInDoubt`.
    pub lost_rejected: f64,
    /// A write is answered `RejectedInDoubt` and carried out later, if its condition still holds then.
    pub late_rejected: f64,
    /// A write is applied and answered [`MissingCollection`](txn_store::Outcome::MissingCollection).
    pub applied_missing: f64,
    /// After a write that was applied and answered otherwise an outage begins: for a while nothing is carried out,
    /// of all collections or of the one written to. Late writes still arrive.
    pub outage: f64,
    /// The shortest outage.
    pub min_outage: Duration,
    /// The longest outage. Short ones are as frequent as long ones, by their order of magnitude.
    pub max_outage: Duration,
    /// A read by `get_many` shows what the document was before.
    pub stale_read: f64,
    /// A read of either kind is answered [`Unavailable`](txn_store::Read::Unavailable).
    pub read_unavailable: f64,
    /// A page of a scan is answered
    /// [`Unavailable`](txn_store::StoreErrorKind::Unavailable).
    pub scan_unavailable: f64,
    /// A document is missing from the page of a scan of a collection that was written to since the
    /// last refresh.
    pub scan_hides: f64,
    /// A call takes a while longer: before it reaches the store, or before its answer arrives.
    pub delay: f64,
    /// The longest delay of a call.
    pub max_delay: Duration,
    /// The longest time after which a late write or a second create arrives.
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
    /// No faults at all.
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

    /// Every fault of single items, often, but for collections that seem to be missing: about one write in four and one
    /// read in seven goes wrong.
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

    /// Sets the probability of a delay, and how long it may be.
    #[must_use]
    pub const fn with_delay(mut self, probability: f64, max: Duration) -> Self {
        (self.delay, self.max_delay) = (probability, max);
        self
    }

    /// Sets the probability of an outage after a write that was applied and answered otherwise, and how short and
    /// how long it may be.
    #[must_use]
    pub const fn with_outage(mut self, probability: f64, min: Duration, max: Duration) -> Self {
        (self.outage, self.min_outage, self.max_outage) = (probability, min, max);
        self
    }

    /// Sets how much later a late write or a second create may arrive.
    #[must_use]
    pub const fn with_max_late(mut self, max: Duration) -> Self {
        self.max_late = max;
        self
    }
}

/// How many faults were injected, by kind. Only those that made a difference count.
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
    /// See [`FaultPlan::scan_hides`]: documents.
    pub scan_hides: u64,
    /// See [`FaultPlan::delay`].
    pub delay: u64,
}

impl Injected {
    /// Each kind with its name.
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

    /// Faults of all kinds, delays included.
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

/// What happens to one write.
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

/// What is out of reach, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outage {
    pub(super) lasts: Duration,
    /// All collections, not only the one that was written to.
    pub(super) everywhere: bool,
}

/// What happens to one read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadFault {
    None,
    /// Shows an earlier content: which one, the number says modulo how many are known.
    Stale(u64),
    Unavailable,
}

/// Seeded randomness (splitmix64), and the faults that it chooses.
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

    /// A number from 0 up to, and without, 1.
    fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// At least a microsecond, at most `max`.
    fn span(&mut self, max: Duration) -> Duration {
        max.mul_f64(self.fraction()).max(Duration::from_micros(1))
    }

    /// Chooses for one write. Draws the same numbers for every write.
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
            // What only asks is never answered wrongly, and nobody waits for it later.
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

    /// Whether an outage begins. Draws nothing where the plan has none.
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

    /// Chooses for one read. Draws the same numbers for every read.
    pub(super) fn read(&mut self, primary: bool) -> ReadFault {
        let plan = self.plan;
        let (at, pick) = (self.fraction(), self.next());
        let faults = [
            (plan.read_unavailable, ReadFault::Unavailable),
            (if primary { 0.0 } else { plan.stale_read }, ReadFault::Stale(pick)),
        ];
        choose(at, &faults).unwrap_or(ReadFault::None)
    }

    /// Whether a page of a scan is not answered.
    pub(super) fn scan(&mut self) -> bool {
        self.fraction() < self.plan.scan_unavailable
    }

    /// Whether a scan hides one document.
    pub(super) fn hides(&mut self) -> bool {
        self.fraction() < self.plan.scan_hides
    }

    /// How long a call waits before it reaches the store, and after.
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

/// The fault in whose share of the numbers from 0 to 1 this one lies.
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
    fn each_fault_strikes_about_as_often_as_planned() {
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
    fn what_only_asks_is_never_answered_wrongly() {
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
        // Three seconds are half way.
        let short = outages.iter().filter(|outage| outage.lasts < Duration::from_secs(3)).count();
        assert!((2_200..2_800).contains(&short), "{short}");
        assert!(outages.iter().all(|outage| outage.lasts >= min && outage.lasts <= max));
        assert!(outages.iter().any(|o| o.everywhere) && outages.iter().any(|o| !o.everywhere));
        assert_eq!(FaultRng::new(FaultPlan::rough(5)).outage(), None);
    }

    #[test]
    fn injected_names_only_what_happened() {
        assert_eq!(Injected::default().to_string(), "0 faults");
        let some = Injected { rejected: 2, stale_read: 1, ..Injected::default() };
        assert_eq!(some.to_string(), "3 faults: 2 rejected, 1 stale");
    }
}
