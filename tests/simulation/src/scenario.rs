//! What a seed chooses: how many there are, and how bad the world is.

use std::time::Duration;

use txn_sim::FaultPlan;

use crate::history::{Fate, Operation};

use txn_sim::server::{Manners, SHARDS};

/// How long an attempt may take, and the longest lease.
pub(crate) const TRANSACTION_LIMIT: Duration = Duration::from_secs(10);
/// How often a process looks for what is left behind.
pub(crate) const JANITOR_INTERVAL: Duration = Duration::from_secs(2);

/// In a calm world actors come in rushes: so far apart, and everybody within so much.
const RUSHES: [Duration; 2] = [Duration::from_millis(700), Duration::from_millis(60)];

/// How long until an actor comes with the next rush.
pub(crate) fn until_a_rush(now: Duration, place: f64) -> Duration {
    let [apart, lasts] = RUSHES;
    let since = Duration::from_secs_f64(now.as_secs_f64() % apart.as_secs_f64());
    apart.saturating_sub(since) + lasts.mul_f64(place)
}

/// Accounts of the world. Few, so that everybody meets everybody.
pub(crate) const ACCOUNTS: u8 = 4;
/// Tokens of the world, of which one exists.
pub(crate) const TOKENS: u8 = 3;
/// Slots of the world.
pub(crate) const SLOTS: u8 = 2;
/// Documents of the annex.
pub(crate) const ANNEXED: u8 = 2;
/// Documents that are written from what stands in accounts, which are only read.
pub(crate) const SHEETS: u8 = 6;
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

/// Kinds of trouble that can be switched, all on by default. What they are is decided by dice of their own: without them a seed
/// is the world that it would be if they did not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Troubles {
    /// Writes are applied, at once or later, and answered with a refusal.
    pub refusals: bool,
    /// Writes are applied, at once or later, and answered as if their collection did not exist.
    pub missing: bool,
    /// Behind what was applied and answered otherwise everything is out of reach for a while.
    pub outages: bool,
    /// Callers hold their transaction open past every limit, while their process lives.
    pub hangs: bool,
    /// The index of some documents is closed, or not known, for a while, or lost for good.
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
    pub shared_requests: bool,
    /// One part of the store is slow, or hangs, while the rest is quick.
    pub slow_parts: bool,
    /// Scans have several pages, and lose some of them; somebody waits for barriers.
    pub lost_pages: bool,
    /// The transactions of a process are composed into groups.
    pub groups: bool,
    /// What is overwritten is kept, and moments of the past are read.
    pub past: bool,
    /// The store tells its time, and the clocks of the processes are far from it.
    pub server_time: bool,
}

/// Switches a trouble on.
pub type Switch = fn(&mut Troubles);

impl Troubles {
    /// None of them.
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
        shared_requests: false,
        slow_parts: false,
        lost_pages: false,
        groups: false,
        past: false,
        server_time: false,
    };

    /// The name of each, and how it is switched.
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
        ("shared-requests", |troubles| troubles.shared_requests = true),
        ("slow-parts", |troubles| troubles.slow_parts = true),
        ("lost-pages", |troubles| troubles.lost_pages = true),
        ("groups", |troubles| troubles.groups = true),
        ("past", |troubles| troubles.past = true),
        ("server-time", |troubles| troubles.server_time = true),
    ];

    /// All of them.
    #[must_use]
    pub fn all() -> Self {
        let mut troubles = Self::NONE;
        Self::SWITCHES.iter().for_each(|(_, switch)| switch(&mut troubles));
        troubles
    }

    /// Those that are named, separated by commas; `all` and `none` are names.
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

/// What becomes of the annex: the index of documents that others are written together with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Annex {
    /// There is none.
    None,
    /// It goes out of reach and comes back.
    ComesAndGoes,
    /// It is lost for good.
    Lost,
    /// It is dropped and made again.
    MadeAgain,
}

/// Which part of the store is slow now and then, for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slow {
    /// None.
    Nothing,
    /// Reads of records, for longer than a lease. Their owners write them in time.
    ReadsOfRecords,
    /// A shard of the documents.
    Shard(u8),
    /// Another one each time, records and what is written to them included.
    Anything,
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
    /// Some callers hang.
    pub hangs: bool,
    /// What becomes of the annex.
    pub annex: Annex,
    /// Locked documents are copied.
    pub copies: bool,
    /// Closures, codecs and observers panic.
    pub panics: bool,
    /// How often a process's way to the store panics.
    pub store_panics: f64,
    /// The transactions of a process share their requests.
    pub shared_requests: bool,
    /// The transactions of a process are composed into groups.
    pub groups: bool,
    /// What is overwritten is kept.
    pub past: bool,
    /// The store tells its time.
    pub server_time: bool,
    /// What is slow.
    pub slow: Slow,
    /// Nothing goes wrong but that a part is slow, and that pages are lost: whatever else takes long has no excuse.
    pub calm: bool,
    /// Somebody waits for barriers.
    pub barriers: bool,
    /// Seeds of the rest.
    pub dice: fastrand::Rng,
    /// Seeds of the troubles that are not in every campaign.
    pub trouble: fastrand::Rng,
}

impl Scenario {
    /// The world of a seed, with some of these troubles.
    #[must_use]
    pub fn of(seed: u64, troubles: Troubles) -> Self {
        Self::usual(seed).with(troubles)
    }

    /// Each kind of trouble is absent in some worlds, so that the others are seen alone.
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
        self.shared_requests = often(troubles.shared_requests, 0.5, 1.0) > 0.0;
        let seed = self.seed;
        let loses_pages = often(troubles.lost_pages, 0.5, 1.0) > 0.0;
        let slow = often(troubles.slow_parts, 0.4, 1.0);
        if loses_pages {
            self.manners.page = Some(dice.usize(1..=4));
            self.manners.lost_page = 0.4 * dice.f64();
            self.manners.lost_scroll = 0.1 * dice.f64();
            // What is lost with an index is applied never.
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
                self.shared_requests = troubles.shared_requests;
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

    /// In half of the worlds transactions are composed. Where few are, there is nobody to be composed with.
    fn grouped(mut self, switch: bool) -> Self {
        let mut dice = fastrand::Rng::with_seed(self.seed ^ 0x6772_6f75_7073);
        self.groups = switch && dice.bool();
        if self.groups {
            self.actors += dice.usize(2..=5);
        }
        self
    }

    /// The same world with many actors, where nothing goes wrong but what this takes over.
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
            ..Manners::default()
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
            hangs: false,
            annex: Annex::None,
            copies: false,
            panics: false,
            store_panics: 0.0,
            shared_requests: false,
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

    /// Whether a caller may be told that a collection is missing.
    #[must_use]
    pub fn may_miss_collections(&self) -> bool {
        let refuses = self.faults.applied_missing > 0.0 || self.manners.sent_and_missed > 0.0;
        refuses || self.annex != Annex::None
    }

    /// Whether its caller may be told so why nothing was changed.
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

    /// How long a document may stay locked by one transaction once everybody has a server to talk to: the
    /// transaction limit by the slowest clock, the longest lease, and a few passes of a janitor.
    #[must_use]
    pub fn longest_lock(&self) -> Duration {
        let limits = TRANSACTION_LIMIT * self.slowest() + TRANSACTION_LIMIT;
        limits + 5 * JANITOR_INTERVAL
    }

    /// By how much the slowest clock may be slower.
    fn slowest(&self) -> u32 {
        if self.clocks == Clocks::Wild { 2 } else { 1 }
    }

    /// How far a clock may be off when its process starts, in milliseconds. By the server's time
    /// most of what may be apart is allowed.
    #[must_use]
    pub fn offset(&self) -> i64 {
        match self.server_time {
            true => i64::try_from(self.max_drift().as_millis() * 4 / 5).unwrap_or(i64::MAX),
            false => 5_000,
        }
    }

    /// How far the clocks may be apart before commits are refused.
    #[must_use]
    pub fn max_drift(&self) -> Duration {
        match self.clocks {
            // Short enough that moments of the past can be read while the world goes on.
            Clocks::Tame if self.past => Duration::from_secs(20),
            Clocks::Tame => Duration::from_secs(60),
            Clocks::Wild => Duration::from_secs(24 * 3600),
            Clocks::Days => Duration::from_secs(10 * 24 * 3600),
        }
    }
}
