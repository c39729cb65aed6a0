//! The choices of a seed: sizes, faults and clocks.

use std::time::Duration;

use txn_sim::FaultPlan;
use txn_sim::machine::draw_faults;

use crate::history::{Fate, Operation};

use txn_sim::server::{Manners, SHARDS};

/// The attempt timeout, which is also the longest lease.
pub(crate) const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);
/// The interval of the janitors.
pub(crate) const JANITOR_INTERVAL: Duration = Duration::from_secs(2);

/// The interval and the duration of rushes in a calm run. In a rush, actors arrive together.
const RUSHES: [Duration; 2] = [Duration::from_millis(700), Duration::from_millis(60)];

/// The time until an actor arrives with the next rush.
pub(crate) fn until_a_rush(now: Duration, place: f64) -> Duration {
    let [apart, lasts] = RUSHES;
    let since = Duration::from_secs_f64(now.as_secs_f64() % apart.as_secs_f64());
    apart.saturating_sub(since) + lasts.mul_f64(place)
}

/// The number of accounts. Few accounts make conflicts frequent.
pub(crate) const ACCOUNTS: u8 = 4;
/// The number of tokens, of which one exists.
pub(crate) const TOKENS: u8 = 3;
/// The number of slots.
pub(crate) const SLOTS: u8 = 2;
/// The number of documents in the annex.
pub(crate) const ANNEXED: u8 = 2;
/// The number of sheets. Sheets are written from accounts that are only read.
pub(crate) const SHEETS: u8 = 6;
/// The initial balance of each account.
pub(crate) const OPENING: i64 = 1_000;

/// The behaviour of the clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clocks {
    /// The clocks agree within seconds, and their speeds within 1 %.
    Tame,
    /// The clocks jump by hours, both ways.
    Wild,
    /// The clocks advance by days, so that partitions are dropped. The processes advance one by
    /// one.
    Days,
}

/// Faults and modes that can be switched, all on by default.
///
/// The switched faults have random numbers of their own. Without them a seed gives the run that it
/// would give if they did not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Troubles {
    /// Writes are applied, at once or later, and answered with a refusal.
    pub refusals: bool,
    /// Writes are applied, but answered with a missing collection. The apply takes place at once or
    /// later.
    pub missing: bool,
    /// After a wrong answer, everything is unreachable for a while. The answer is that to an
    /// applied write.
    pub outages: bool,
    /// Callers hold their transaction open past every limit, while their process lives.
    pub hangs: bool,
    /// The index of some documents is closed, unknown, or lost for good.
    pub annex: bool,
    /// An administrator drops the index of some documents and makes it again.
    pub made_again: bool,
    /// An application copies locked documents to other ids.
    pub copies: bool,
    /// Closures, codecs and observers panic.
    pub panics: bool,
    /// The store panics.
    pub store_panics: bool,
    /// The transactions of a process share their requests.
    pub request_batching: bool,
    /// A part of the store is slow or hangs. The rest is quick.
    pub slow_parts: bool,
    /// Scans have several pages and lose some of them. Callers wait for barriers.
    pub lost_pages: bool,
    /// The transactions of a process are merged into groups.
    pub groups: bool,
    /// Overwritten content is kept, and callers read history.
    pub past: bool,
    /// The store tells its time, and clocks of processes differ a lot.
    pub server_time: bool,
}

/// Switches a fault or a mode on.
pub type Switch = fn(&mut Troubles);

impl Troubles {
    /// No fault.
    pub const NONE: Self = Self {
        refusals: false,
        missing: false,
        outages: false,
        hangs: false,
        annex: false,
        made_again: false,
        copies: false,
        panics: false,
        store_panics: false,
        request_batching: false,
        slow_parts: false,
        lost_pages: false,
        groups: false,
        past: false,
        server_time: false,
    };

    /// The name of each switch, and its function.
    pub const SWITCHES: [(&'static str, Switch); 15] = [
        ("refusals", |troubles| troubles.refusals = true),
        ("missing", |troubles| troubles.missing = true),
        ("outages", |troubles| troubles.outages = true),
        ("hangs", |troubles| troubles.hangs = true),
        ("annex", |troubles| troubles.annex = true),
        ("made-again", |troubles| troubles.made_again = true),
        ("copies", |troubles| troubles.copies = true),
        ("panics", |troubles| troubles.panics = true),
        ("store-panics", |troubles| troubles.store_panics = true),
        ("shared-requests", |troubles| troubles.request_batching = true),
        ("slow-parts", |troubles| troubles.slow_parts = true),
        ("lost-pages", |troubles| troubles.lost_pages = true),
        ("groups", |troubles| troubles.groups = true),
        ("past", |troubles| troubles.past = true),
        ("server-time", |troubles| troubles.server_time = true),
    ];

    /// All faults and modes.
    #[must_use]
    pub fn all() -> Self {
        let mut troubles = Self::NONE;
        Self::SWITCHES.iter().for_each(|(_, switch)| switch(&mut troubles));
        troubles
    }

    /// Returns the faults and modes with these names.
    ///
    /// Commas separate the names; `all` and `none` are names.
    #[must_use]
    pub fn named(names: &str) -> Option<Self> {
        let mut troubles = Self::NONE;
        for name in names.split(',').filter(|name| *name != "none") {
            match Self::SWITCHES.iter().find(|(known, _)| *known == name) {
                Some((_, switch)) => switch(&mut troubles),
                None if name == "all" => troubles = Self::all(),
                None => return None,
            }
        }
        Some(troubles)
    }
}

impl Default for Troubles {
    fn default() -> Self {
        Self::all()
    }
}

/// The fate of the annex, the index of some documents.
///
/// Transactions write a document of the annex together with an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Annex {
    /// The run has no annex.
    None,
    /// The annex goes out of reach and comes back.
    ComesAndGoes,
    /// The annex is lost for good.
    Lost,
    /// The annex is dropped and made again.
    MadeAgain,
}

/// The part of the store that is slow now and then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slow {
    /// No part.
    Nothing,
    /// Reads of records, for longer than a lease. Their owners write them in time.
    ReadsOfRecords,
    /// A shard of the documents.
    Shard(u8),
    /// Another part each time, including records and writes to them.
    Anything,
}

/// The choices for one simulated run.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed of the run.
    pub seed: u64,
    /// Processes at a time.
    pub processes: usize,
    /// Actors of each process.
    pub actors: usize,
    /// Operations of each actor.
    pub operations: usize,
    /// Faults of requests to the server.
    pub faults: FaultPlan,
    /// Faults of the server.
    pub manners: Manners,
    /// Whether primaries crash, so that unacknowledged writes vanish.
    ///
    /// Only transactions that lock their reads are then strictly serialisable.
    pub crashes: bool,
    /// Whether processes are killed and replaced.
    pub kills: bool,
    /// Whether processes are paused.
    pub pauses: bool,
    /// The behaviour of the clocks.
    pub clocks: Clocks,
    /// Whether some callers hang.
    pub hangs: bool,
    /// The fate of the annex.
    pub annex: Annex,
    /// Whether locked documents are copied.
    pub copies: bool,
    /// Whether closures, codecs and observers panic.
    pub panics: bool,
    /// The probability that a process's access to the store panics.
    pub store_panics: f64,
    /// Whether the transactions of a process share their requests.
    pub request_batching: bool,
    /// Whether the transactions of a process are merged into groups.
    pub groups: bool,
    /// Whether overwritten content is kept.
    pub past: bool,
    /// Whether the store tells its time.
    pub server_time: bool,
    /// The slow part.
    pub slow: Slow,
    /// Whether slow parts and lost pages are the only faults.
    ///
    /// No other delay then has an excuse.
    pub calm: bool,
    /// Whether callers wait for barriers.
    pub barriers: bool,
    /// Random numbers for all other choices.
    pub dice: fastrand::Rng,
    /// Random numbers for the switched faults.
    pub trouble: fastrand::Rng,
}

impl Scenario {
    /// The scenario of a seed, with these switches.
    #[must_use]
    pub fn of(seed: u64, troubles: Troubles) -> Self {
        Self::usual(seed).with(troubles)
    }

    /// Adds the switched faults. Each is absent in some runs, which shows the other faults alone.
    fn with(mut self, troubles: Troubles) -> Self {
        let mut dice = self.trouble.fork();
        let mut often = |switch: bool, odds: f64, most: f64| {
            let (drawn, share) = (dice.f64() < odds, dice.f64());
            if switch && drawn { most * share } else { 0.0 }
        };
        let refusals = troubles.refusals;
        self.faults = self
            .faults
            .with_applied_rejected(often(refusals, 0.5, 0.06))
            .with_lost_rejected(often(refusals, 0.4, 0.06))
            .with_late_rejected(often(refusals, 0.4, 0.06))
            .with_applied_missing(often(troubles.missing, 0.4, 0.04));
        self.manners.sent_again = often(refusals, 0.4, 0.06);
        self.manners.sent_and_missed = often(troubles.missing, 0.4, 0.04);
        let (shortest, longest) = (Duration::from_millis(300), Duration::from_secs(45));
        self.faults = self.faults.with_outage(often(troubles.outages, 0.4, 0.3), shortest, longest);
        self.hangs = often(troubles.hangs, 0.4, 1.0) > 0.0;
        self.copies = often(troubles.copies, 0.4, 1.0) > 0.0;
        self.panics = often(troubles.panics, 0.4, 1.0) > 0.0;
        self.store_panics = often(troubles.store_panics, 0.3, 0.02);
        self.annex = match often(troubles.annex, 0.5, 1.0) {
            share if share <= 0.0 => Annex::None,
            share if share < 0.5 => Annex::ComesAndGoes,
            _ => Annex::Lost,
        };
        self.request_batching = often(troubles.request_batching, 0.5, 1.0) > 0.0;
        let seed = self.seed;
        let loses_pages = often(troubles.lost_pages, 0.5, 1.0) > 0.0;
        let slow = often(troubles.slow_parts, 0.4, 1.0);
        if loses_pages {
            self.manners.page = Some(dice.usize(1..=4));
            self.manners.lost_page = 0.4 * dice.f64();
            self.manners.lost_scroll = 0.1 * dice.f64();
            // A write to a lost index is never applied, so a barrier would never pass.
            self.barriers = self.annex == Annex::None;
        }
        self.slow = match slow {
            share if share <= 0.0 => Slow::Nothing,
            share if share < 0.3 => Slow::ReadsOfRecords,
            share if share < 0.6 => Slow::Shard(dice.u8(..SHARDS)),
            _ => Slow::Anything,
        };
        let world = match self.slow {
            Slow::Nothing | Slow::Anything => self,
            Slow::ReadsOfRecords => self.calmed(&mut dice),
            Slow::Shard(_) => {
                self.request_batching = troubles.request_batching;
                self.calmed(&mut dice)
            }
        };
        let mut world = world.grouped(troubles.groups);
        let mut dice = fastrand::Rng::with_seed(seed ^ 0x7061_7374);
        world.past = troubles.past && dice.u8(..3) == 0;
        let mut dice = fastrand::Rng::with_seed(seed ^ 0x636c_6f63_6b73);
        let is_tame = world.clocks == Clocks::Tame;
        world.server_time = troubles.server_time && is_tame && dice.bool();
        let mut dice = fastrand::Rng::with_seed(seed ^ 0x6d61_6465_2061_676e);
        let makes_again = troubles.made_again && dice.u8(..4) == 0;
        if makes_again && world.annex == Annex::None && !world.calm {
            (world.annex, world.barriers) = (Annex::MadeAgain, false);
        }
        world
    }

    /// Merges transactions into groups in half of the runs, with more actors.
    ///
    /// With few actors there are no transactions to merge.
    fn grouped(mut self, switch: bool) -> Self {
        let mut dice = fastrand::Rng::with_seed(self.seed ^ 0x6772_6f75_7073);
        self.groups = switch && dice.bool();
        if self.groups {
            self.actors += dice.usize(2..=5);
        }
        self
    }

    /// The same run with many actors, and with few kinds of faults.
    ///
    /// Only slow parts and lost pages remain.
    fn calmed(self, dice: &mut fastrand::Rng) -> Self {
        let Manners { page, lost_page, lost_scroll, .. } = self.manners;
        Self {
            calm: true,
            processes: 2,
            actors: dice.usize(4..=12),
            faults: FaultPlan::none(self.seed).with_delay(1.0, Duration::from_millis(5)),
            manners: Manners { page, lost_page, lost_scroll, ..Manners::default() },
            crashes: false,
            kills: false,
            pauses: false,
            clocks: Clocks::Tame,
            hangs: false,
            annex: Annex::None,
            barriers: page.is_some(),
            copies: false,
            panics: false,
            store_panics: 0.0,
            ..self
        }
    }

    fn usual(seed: u64) -> Self {
        let mut dice = fastrand::Rng::with_seed(seed);
        let (faults, manners) = draw_faults(seed, &mut dice);
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
            hangs: false,
            annex: Annex::None,
            copies: false,
            panics: false,
            store_panics: 0.0,
            request_batching: false,
            groups: false,
            past: false,
            server_time: false,
            slow: Slow::Nothing,
            calm: false,
            barriers: false,
            dice,
            trouble: fastrand::Rng::with_seed(seed ^ 0x7472_6f75_626c_6573),
        }
    }

    /// Whether a caller may receive an error about a missing collection.
    #[must_use]
    pub fn may_miss_collections(&self) -> bool {
        let refuses = self.faults.applied_missing > 0.0 || self.manners.sent_and_missed > 0.0;
        refuses || self.annex != Annex::None
    }

    /// Whether the caller may receive this reason for a failure.
    #[must_use]
    pub fn is_fair(&self, operation: &Operation) -> bool {
        let Fate::Aborted(why) = &operation.fate else { return true };
        let expected = ["mismatch", "Conflict", "Unavailable"];
        // Clocks that are too far apart are a reason to refuse a commit.
        let clocks = self.clocks != Clocks::Tame && why.starts_with("Misconfigured");
        let missing = self.may_miss_collections()
            && (why.starts_with("Misconfigured") || why.contains("does not exist"));
        clocks || missing || expected.iter().any(|kind| why.starts_with(kind))
    }

    /// The longest lock of a transaction after the faults.
    ///
    /// The lock is that of one document.
    ///
    /// The time is the sum of the attempt timeout by the slowest clock, the longest lease, and a
    /// few passes of a janitor.
    #[must_use]
    pub fn longest_lock(&self) -> Duration {
        let limits = ATTEMPT_TIMEOUT * self.slowest() + ATTEMPT_TIMEOUT;
        limits + 5 * JANITOR_INTERVAL
    }

    /// The factor by which the slowest clock may be slower.
    fn slowest(&self) -> u32 {
        if self.clocks == Clocks::Wild { 2 } else { 1 }
    }

    /// The maximum offset of a process's first clock, in milliseconds.
    ///
    /// If the server tells its time, the offset is most of the allowed drift.
    #[must_use]
    pub fn offset(&self) -> i64 {
        match self.server_time {
            true => i64::try_from(self.max_drift().as_millis() * 4 / 5).unwrap_or(i64::MAX),
            false => 5_000,
        }
    }

    /// The difference of clocks beyond which commits are refused.
    #[must_use]
    pub fn max_drift(&self) -> Duration {
        match self.clocks {
            // Short enough to read history during the run.
            Clocks::Tame if self.past => Duration::from_secs(20),
            Clocks::Tame => Duration::from_secs(60),
            Clocks::Wild => Duration::from_secs(24 * 3600),
            Clocks::Days => Duration::from_secs(10 * 24 * 3600),
        }
    }
}
