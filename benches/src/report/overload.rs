//! More than can be carried, for a while: arrivals that do not wait for each other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use txn_core::{Options, Tid};

use super::findings::{Findings, Phase};
use super::scale::Scale;
use super::table::{Aim, Row, number};
use crate::Failure;
use crate::load::{Load, Picker};
use crate::statistics::Times;
use crate::usage::Process;
use crate::world::{Refused, Way, World};

/// Whoever is not served within this time gives up, as an application would.
const PATIENCE: Duration = Duration::from_secs(2);

/// Arrivals come together so often.
const TICK: Duration = Duration::from_millis(10);

/// The share of what can be carried that is offered before the overload and behind it, and in it.
const CALM: f64 = 0.5;
const TOO_MUCH: f64 = 2.0;

/// Twice the load that was carried by most clients, for a while, then back.
pub(super) async fn overload(
    world: &Arc<World>,
    scale: &Scale,
    findings: &mut Findings,
) -> Result<(), Failure> {
    let groups = findings
        .loads
        .iter()
        .filter(|(section, one)| *section == "spread" && one.cell.way == Way::Groups);
    let carried = groups.map(|(_, one)| one.round.per_second).fold(0.0, f64::max);
    if carried == 0.0 {
        return Err("what can be carried was not measured".into());
    }
    world.prepare(Way::Groups, scale.accounts).await?;
    let load = Load::new(1, 2, scale.accounts);
    let mut phases = Vec::new();
    for (name, share, span) in [
        ("before", CALM, scale.around_overload),
        ("overload", TOO_MUCH, scale.overload),
        ("at once after", CALM, scale.around_overload / 3),
        ("after", CALM, scale.around_overload),
    ] {
        phases.push(phase(world, load, name, carried * share, span).await?);
    }
    // What arrived in a phase may end in the next: all have to be over before anything is compared.
    let mut told = Vec::new();
    for running in phases {
        told.push(running.end(world, load).await?);
    }
    let drift = world.audit(Way::Groups).await?;
    if drift.lost != 0 || drift.money != 0 {
        return Err(format!("the books do not balance after the overload: {drift:?}").into());
    }
    rows(&told, carried, &mut findings.rows);
    findings.phases = told;
    Ok(())
}

/// Arrivals of a phase, some of which may not have been answered yet.
struct Running {
    phase: Phase,
    span: Duration,
    arrivals: Vec<tokio::task::JoinHandle<Result<Duration, Refused>>>,
}

async fn phase(
    world: &Arc<World>,
    load: Load,
    name: &'static str,
    offered: f64,
    span: Duration,
) -> Result<Running, Failure> {
    let picker = Picker::new(load);
    let mut random = fastrand::Rng::new();
    let options = Options::default().with_deadline(Some(PATIENCE));
    let began = Instant::now();
    let mut arrivals = Vec::new();
    while began.elapsed() < span {
        let due = (began.elapsed().as_secs_f64() * offered) as usize;
        while arrivals.len() < due {
            let ids: Vec<String> = picker
                .pick(&mut random)
                .into_iter()
                .map(|account| World::id(Way::Groups, account))
                .collect();
            let (world, options, arrived) = (world.clone(), options.clone(), Instant::now());
            arrivals.push(tokio::spawn(async move {
                world.transfer(Way::Groups, 0, &ids, &options).await?;
                Ok(arrived.elapsed())
            }));
        }
        tokio::time::sleep(TICK).await;
    }
    let offered = arrivals.len() as f64 / span.as_secs_f64();
    let memory = Process::this().memory();
    let phase = Phase { name, offered, memory, ..Phase::default() };
    Ok(Running { phase, span, arrivals })
}

impl Running {
    async fn end(self, world: &World, load: Load) -> Result<Phase, Failure> {
        let mut times = Vec::new();
        let mut refused = BTreeMap::new();
        let mut unknown: Vec<Tid> = Vec::new();
        for arrival in self.arrivals {
            match arrival.await? {
                Ok(time) => times.push(time),
                Err(why) => {
                    unknown.extend(why.unknown);
                    *refused.entry(why.kind).or_default() += 1;
                }
            }
        }
        world.acknowledged(Way::Groups, load.documents, times.len());
        world.find_out(Way::Groups, load.documents, &unknown).await?;
        let Times { p50, p99, .. } = Times::of(&times);
        let done = times.len() as f64 / self.span.as_secs_f64();
        Ok(Phase { done, p50, p99, refused, ..self.phase })
    }
}

fn rows(phases: &[Phase], carried: f64, rows: &mut Vec<Row>) {
    let find = |name: &str| phases.iter().find(|phase| phase.name == name);
    let (Some(before), Some(during)) = (find("before"), find("overload")) else { return };
    let (Some(at_once), Some(after)) = (find("at once after"), find("after")) else { return };
    let share = |phase: &Phase| phase.done / phase.offered;
    rows.push(Row::found(
        "overload, twice what can be carried: carried meanwhile / at capacity",
        Aim::Words("no collapse".to_owned()),
        during.done / carried,
        format!(
            "{}/s of {}/s offered",
            number(during.done.round()),
            number(during.offered.round())
        ),
    ));
    for (name, phase) in [("at once", at_once), ("then", after)] {
        rows.push(Row::found(
            format!("after the overload, {name}: share carried / before it"),
            Aim::AtLeast(0.95),
            share(phase) / share(before),
            format!("99th percentile {:.0} ms, before {:.0} ms", phase.p99, before.p99),
        ));
    }
    let all: usize = during.refused.values().sum();
    let typed = ["Conflict", "Unavailable", "Unknown"];
    let others = during.refused.iter().filter(|(kind, _)| !typed.contains(&kind.as_str()));
    rows.push(Row::found(
        "overload: refusals that are not of a kind that says what to do",
        Aim::AtMost(0.0),
        others.map(|(_, count)| *count as f64).sum(),
        format!("of {all}: {:?}", during.refused),
    ));
    let what = "overload: memory afterwards / before";
    let aim = Aim::Words("bounded".to_owned());
    rows.push(match (before.memory, during.memory, after.memory) {
        (Some(before), Some(during), Some(after)) => Row::found(
            what,
            aim,
            after / before,
            format!("MiB: {before:.0} before, {during:.0} at its end, {after:.0} after"),
        ),
        _ => Row::missing(what, aim, "this system does not tell the memory"),
    });
}
