//! The protocol as a subject of exploration, and its end.

use crate::scenario::{Kind, Scenario};
use crate::state::{Mark, Phase, RECORDS, World};

/// The protocol under one scenario.
#[derive(Clone, Debug)]
pub struct Protocol(pub Scenario);

/// Whether all work is done.
///
/// No process is at work. If the scenario has a recovery, no lock and no open record is left.
#[must_use]
pub fn is_over(scenario: &Scenario, world: &World) -> bool {
    let over = |t: usize| {
        // An instant transaction needs no step to end.
        let at_once = scenario.scripts.get(t).is_some_and(|script| script.kind == Kind::Instant);
        at_once || matches!(world.txns[t].phase, Phase::Done | Phase::Dead)
    };
    let owners = (0..world.txns.len()).all(over);
    let quiet = world.net.iter().all(Option::is_none);
    let janitors = world.janitors.iter().all(|janitor| janitor.foreign.who == 0);
    let clean = || {
        let unlocked = world.docs.iter().all(|slot| slot.now.lock == 0);
        let decided = (0..RECORDS).all(|r| {
            let mark = world.recs[r].now.mark;
            !matches!(mark, Mark::Pending | Mark::Committed)
        });
        unlocked && decided
    };
    owners && quiet && janitors && (scenario.janitors == 0 && !scenario.tidy || clean())
}
