//! The rounds of faults, by seed.

use std::fmt;
use std::time::Duration;

use fastrand::Rng;
use txn_testkit::servers::{Link, Port, Rate};

use crate::fault::Fault;

/// The duration of a fault in milliseconds.
///
/// Mostly longer than an election, which takes 2 to 6 s.
const HOLD: std::ops::Range<u64> = 8_000..24_000;

/// The time from a cut to a second fault, in milliseconds. Both faults are of the same round.
const SECOND: std::ops::Range<u64> = 0..6_000;

/// The speeds of slow links, in kilobits per second.
///
/// With the slowest one, checks between nodes fail.
const RATES: [u32; 3] = [128, 512, 2_048];

/// The offsets of wall clocks in seconds.
///
/// The clocks of two coordinators differ by less than `Config::max_drift`, which is 60 s.
const OFFSETS: std::ops::RangeInclusive<i64> = -28..=28;

/// The shares of lost packets in percent.
///
/// At 40 %, requests between nodes take seconds, because packets are repeated with growing pauses.
const LOSSES: [u8; 3] = [5, 20, 40];

/// The number of nodes.
pub(super) const NODES: usize = 3;

/// The number of clients. Each client is one half of the coordinators.
pub(super) const CLIENTS: usize = 2;

/// The node that a fault concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// This node.
    Node(usize),
    /// The elected master at the begin of the round.
    Master,
    /// The node with the primary at the begin of the round.
    Primary,
}

impl Target {
    /// Returns the number of the node.
    pub(super) fn resolve(self, master: usize, primary: usize) -> usize {
        match self {
            Self::Node(node) => node,
            Self::Master => master,
            Self::Primary => primary,
        }
    }
}

/// The clients that a cut leaves on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clients {
    /// Both clients reach all nodes.
    ReachAll,
    /// Both clients reach the other nodes, and not the target.
    ReachOthers,
    /// The first client reaches only the target. The second client reaches only the other nodes.
    Split,
}

/// The directions of a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Both,
    /// The target sends into the void, and receives.
    FromTarget,
    /// The target receives nothing, and sends.
    ToTarget,
}

/// The fault of the network in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NetworkFault {
    Cut {
        target: Target,
        direction: Direction,
        clients: Clients,
    },
    Slow {
        target: Target,
        rate: Rate,
    },
    /// All links of the target lose this many of a hundred packets, in both directions.
    Lossy {
        target: Target,
        percent: u8,
    },
}

/// A fault of a process.
///
/// The fault comes after that of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProcessFault {
    pub(super) kind: ProcessFaultKind,
    pub(super) after: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProcessFaultKind {
    /// The node with the primary is killed.
    KillPrimary,
    /// The node with the primary is paused.
    PausePrimary,
    /// The wall clocks of each client get another offset, in seconds.
    JumpClocks([i64; CLIENTS]),
}

impl ProcessFaultKind {
    pub(super) fn name(self) -> Fault {
        match self {
            Self::KillPrimary => Fault::KillPrimary,
            Self::PausePrimary => Fault::StopAndContinue,
            Self::JumpClocks(_) => Fault::JumpClocks,
        }
    }
}

/// One round: faults that overlap, and then end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Round {
    /// The name of the first fault.
    pub(super) name: Fault,
    pub(super) network: Option<NetworkFault>,
    pub(super) process: Option<ProcessFault>,
    /// The time from the last fault until the repair.
    pub(super) hold: Duration,
}

/// Endless rounds. Equal seeds and faults give equal rounds.
#[derive(Debug)]
pub(super) struct Schedule {
    random: Rng,
    network: Vec<Fault>,
    process: Vec<Fault>,
    /// The remaining faults of the current turn.
    turn: Vec<Fault>,
    /// The remaining faults of processes. `None` for a cut without a second fault.
    second: Vec<Option<Fault>>,
}

impl Schedule {
    /// Creates the schedule of these faults.
    ///
    /// Without faults, the schedule has all faults.
    ///
    /// # Errors
    /// If a fault cannot happen here.
    pub(super) fn new(seed: u64, faults: &[Fault]) -> Result<Self, String> {
        let processes = [Fault::KillPrimary, Fault::StopAndContinue, Fault::JumpClocks];
        let all: Vec<Fault> = Fault::BETWEEN_NODES.into_iter().chain(processes).collect();
        let faults = if faults.is_empty() { &all } else { faults };
        if let Some(fault) = faults.iter().find(|fault| !all.contains(fault)) {
            return Err(format!("{fault} is no fault of partitions"));
        }
        let (network, process) = faults.iter().partition(|fault| fault.is_between_nodes());
        Ok(Self {
            random: Rng::with_seed(seed),
            network,
            process,
            turn: Vec::new(),
            second: Vec::new(),
        })
    }

    /// Returns the names of all faults that the schedule has.
    pub(super) fn planned(&self) -> Vec<String> {
        self.network.iter().chain(&self.process).map(ToString::to_string).collect()
    }

    /// Returns the next fault of a process, for a third of the cuts.
    ///
    /// Each fault comes once before any fault repeats.
    fn next_second(&mut self) -> Option<Fault> {
        if self.second.is_empty() {
            let alone = if self.network.is_empty() { 0 } else { 2 * self.process.len() };
            self.second.extend(self.process.iter().copied().map(Some));
            self.second.extend(std::iter::repeat_n(None, alone));
            self.random.shuffle(&mut self.second);
        }
        self.second.pop().flatten()
    }

    /// Returns the next fault of the network.
    ///
    /// Each fault comes once before any fault repeats.
    fn next_fault(&mut self) -> Option<Fault> {
        if self.turn.is_empty() {
            self.turn.clone_from(&self.network);
            self.random.shuffle(&mut self.turn);
        }
        self.turn.pop()
    }

    fn draw_target(&mut self) -> Target {
        match self.random.u32(..3) {
            0 => Target::Master,
            1 => Target::Primary,
            _ => Target::Node(self.random.usize(..NODES)),
        }
    }

    fn draw_network(&mut self, fault: Fault) -> NetworkFault {
        let target = match fault {
            Fault::CutMaster => Target::Master,
            Fault::CutPrimary | Fault::CutWithClient => Target::Primary,
            Fault::CutNode => Target::Node(self.random.usize(..NODES)),
            _ => self.draw_target(),
        };
        let coin = self.random.bool();
        match fault {
            Fault::SlowLink => {
                let rate = self.random.choice(RATES).unwrap_or(RATES[0]);
                NetworkFault::Slow { target, rate: Rate(rate) }
            }
            Fault::LossyLink => {
                let percent = self.random.choice(LOSSES).unwrap_or(LOSSES[0]);
                NetworkFault::Lossy { target, percent }
            }
            Fault::OneWay => {
                let direction = if coin { Direction::FromTarget } else { Direction::ToTarget };
                NetworkFault::Cut { target, direction, clients: Clients::ReachAll }
            }
            _ => {
                let clients = match fault {
                    Fault::CutWithClient => Clients::Split,
                    _ if coin => Clients::ReachAll,
                    _ => Clients::ReachOthers,
                };
                NetworkFault::Cut { target, direction: Direction::Both, clients }
            }
        }
    }
}

impl Iterator for Schedule {
    type Item = Round;

    fn next(&mut self) -> Option<Round> {
        let fault = self.next_fault();
        let network = fault.map(|fault| self.draw_network(fault));
        let process = self.next_second();
        let after = Duration::from_millis(self.random.u64(SECOND));
        let offsets = std::array::from_fn(|_| self.random.i64(OFFSETS));
        let process = process.map(|fault| {
            let kind = match fault {
                Fault::KillPrimary => ProcessFaultKind::KillPrimary,
                Fault::JumpClocks => ProcessFaultKind::JumpClocks(offsets),
                _ => ProcessFaultKind::PausePrimary,
            };
            ProcessFault { kind, after }
        });
        let name = fault.or(process.map(|process| process.kind.name()))?;
        let hold = Duration::from_millis(self.random.u64(HOLD));
        Some(Round { name, network, process, hold })
    }
}

/// Returns the links that a cut of this node drops.
pub(super) fn links(target: usize, direction: Direction, clients: Clients) -> Vec<Link> {
    let one = [Port::Node(target)];
    let others: Vec<Port> = (0..NODES).filter(|node| *node != target).map(Port::Node).collect();
    let mut links = match direction {
        Direction::Both => Link::between(&one, &others),
        Direction::FromTarget => Link::towards(&one, &others),
        Direction::ToTarget => Link::towards(&others, &one),
    };
    let (first, second) = (Port::Client(0), Port::Client(1));
    links.extend(match clients {
        Clients::ReachAll => Vec::new(),
        Clients::ReachOthers => Link::between(&one, &[first, second]),
        Clients::Split => {
            let mut links = Link::between(&one, &[second]);
            links.extend(Link::between(&others, &[first]));
            links
        }
    });
    links
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)?;
        match self.network {
            Some(NetworkFault::Cut { target, direction, clients }) => {
                write!(f, " ({target:?}, {direction:?}, {clients:?})")?;
            }
            Some(NetworkFault::Slow { target, rate: Rate(rate) }) => {
                write!(f, " ({target:?}, {rate} kbit/s)")?;
            }
            Some(NetworkFault::Lossy { target, percent }) => {
                write!(f, " ({target:?}, {percent} % of packets)")?;
            }
            None => {}
        }
        if let (Some(process), Some(_)) = (self.process, self.network) {
            write!(f, ", {} after {:.1} s", process.kind.name(), process.after.as_secs_f64())?;
        }
        if let Some(ProcessFaultKind::JumpClocks(offsets)) = self.process.map(|fault| fault.kind) {
            write!(f, ", clocks off by {offsets:?} s")?;
        }
        write!(f, ", for {:.1} s", self.hold.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(seed: u64, faults: &[Fault], count: usize) -> Vec<Round> {
        Schedule::new(seed, faults).expect("known faults").take(count).collect()
    }

    #[test]
    fn equal_seeds_give_equal_rounds() {
        assert_eq!(rounds(7, &[], 50), rounds(7, &[], 50));
        assert_ne!(rounds(7, &[], 50), rounds(8, &[], 50));
    }

    #[test]
    fn each_fault_comes_before_any_repeats() {
        let mut names: Vec<String> =
            rounds(1, &[], 7).iter().map(|round| round.name.to_string()).collect();
        names.sort_unstable();
        let expected = [
            "cut-master",
            "cut-node",
            "cut-primary",
            "cut-with-client",
            "lossy-link",
            "one-way",
            "slow-link",
        ];
        assert_eq!(names, expected);
        let all = rounds(1, &[], 63);
        let both = all.iter().filter(|round| round.network.is_some() && round.process.is_some());
        assert_eq!(both.count(), 21);
    }

    #[test]
    fn few_rounds_have_each_planned_fault() {
        for seed in 0..20 {
            let schedule = Schedule::new(seed, &[]).expect("known faults");
            let mut missing = schedule.planned();
            for round in schedule.take(9) {
                let process = round.process.map(|process| process.kind.name().to_string());
                missing.retain(|name| {
                    *name != round.name.to_string() && Some(name) != process.as_ref()
                });
            }
            assert!(missing.is_empty(), "seed {seed}: {missing:?}");
        }
    }

    #[test]
    fn only_wanted_faults_happen() {
        for round in rounds(3, &[Fault::CutMaster], 20) {
            assert!(round.process.is_none());
            let cuts_master = matches!(
                round.network,
                Some(NetworkFault::Cut {
                    target: Target::Master,
                    direction: Direction::Both,
                    clients: Clients::ReachAll | Clients::ReachOthers,
                })
            );
            assert!(cuts_master, "{round}");
        }
        let kills = rounds(3, &[Fault::KillPrimary], 5);
        assert!(kills.iter().all(|round| round.network.is_none() && round.process.is_some()));
        let jumps = rounds(3, &[Fault::JumpClocks], 5);
        let offsets = jumps.iter().map(|round| round.process.expect("a jump").kind);
        let offsets: Vec<_> = offsets.collect();
        assert!(offsets.windows(2).all(|pair| pair[0] != pair[1]), "{offsets:?}");
        assert!(Schedule::new(3, &[Fault::Network]).is_err());
    }

    #[test]
    fn split_leaves_each_client_one_side() {
        let links = links(1, Direction::Both, Clients::Split);
        let is_cut = |from, to| links.contains(&Link { from, to });
        let (first, second) = (Port::Client(0), Port::Client(1));
        assert!(!is_cut(first, Port::Node(1)) && is_cut(second, Port::Node(1)));
        for other in [Port::Node(0), Port::Node(2)] {
            assert!(is_cut(first, other) && is_cut(other, first) && !is_cut(second, other));
            assert!(is_cut(Port::Node(1), other) && is_cut(other, Port::Node(1)));
        }
    }

    #[test]
    fn one_way_cuts_one_direction() {
        let links = links(0, Direction::FromTarget, Clients::ReachAll);
        assert!(links.iter().all(|link| link.from == Port::Node(0)) && links.len() == 2);
    }
}
