//! A temporary overload, with arrivals that do not wait for each other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use txn_core::{AttemptId, Options};

use super::findings::{Findings, Phase};
use super::scale::Scale;
use super::table::{Aim, Row, number};
use crate::Failure;
use crate::load::{Load, Picker};
use crate::statistics::Times;
use crate::usage::Process;
use crate::world::{Refused, Way, World};

/// The time after which a client gives up, as an application would.
const PATIENCE: Duration = Duration::from_secs(2);

/// The interval of arrivals, which come in batches.
const TICK: Duration = Duration::from_millis(10);

/// The length of the stretches after an overload. Arrivals are counted in each stretch.
const STRETCH: Duration = Duration::from_millis(500);

/// The share of arrivals that a recovered stretch carries.
const AS_BEFORE: f64 = 0.95;

/// The offered share of the capacity before and after the overload. The second share is that during
/// the overload.
const CALM: f64 = 0.5;
const TOO_MUCH: f64 = 2.0;

/// Offers twice the load that most clients carried, then the normal load.
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
        ("after", CALM, scale.around_overload),
    ] {
        phases.push(phase(world, load, name, carried * share, span).await?);
    }
    // An arrival of one phase may end in the next, so all phases end before the comparison.
    let mut told = Vec::new();
    for running in phases {
        told.push(running.end(world, load).await?);
    }
    world.audit(Way::Groups).await?.none_after("the overload")?;
    rows(&told, carried, scale.around_overload, &mut findings.rows);
    findings.phases = told;
    Ok(())
}

/// The arrivals of a phase, some of them without an answer yet.
struct Running {
    phase: Phase,
    span: Duration,
    /// The number of arrivals.
    arrivals: usize,
    /// The time of each arrival since the start, and its duration.
    ///
    /// Completed tasks leave nothing else, because there may be a million of them.
    told: mpsc::UnboundedReceiver<(Duration, Result<Duration, Refused>)>,
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
    let options = Options::default().with_timeout(Some(PATIENCE));
    let began = Instant::now();
    let (tell, told) = mpsc::unbounded_channel();
    let mut arrivals = 0;
    while began.elapsed() < span {
        let due = (began.elapsed().as_secs_f64() * offered) as usize;
        while arrivals < due {
            let ids: Vec<String> = picker
                .pick(&mut random)
                .into_iter()
                .map(|account| World::id(Way::Groups, account))
                .collect();
            let (world, options, tell) = (world.clone(), options.clone(), tell.clone());
            let (at, arrived) = (began.elapsed(), Instant::now());
            tokio::spawn(async move {
                let result = world.transfer(Way::Groups, 0, &ids, &options).await;
                // The send fails if the report was given up.
                let _ = tell.send((at, result.map(|_| arrived.elapsed())));
            });
            arrivals += 1;
        }
        tokio::time::sleep(TICK).await;
    }
    let offered = arrivals as f64 / span.as_secs_f64();
    let memory = Process::this().memory();
    let phase = Phase { name, offered, memory, ..Phase::default() };
    Ok(Running { phase, span, arrivals, told })
}

impl Running {
    async fn end(mut self, world: &World, load: Load) -> Result<Phase, Failure> {
        let mut times = Vec::new();
        let (mut refused, mut odd) = (BTreeMap::new(), 0);
        let mut unknown: Vec<AttemptId> = Vec::new();
        let mut carried = Vec::new();
        while let Some((at, result)) = self.told.recv().await {
            carried.push((at, result.is_ok()));
            match result {
                Ok(time) => times.push(time),
                Err(why) => {
                    unknown.extend(why.unknown);
                    odd += usize::from(!why.passes);
                    *refused.entry(why.kind).or_default() += 1;
                }
            }
        }
        if carried.len() < self.arrivals {
            return Err("a transfer panicked".into());
        }
        world.acknowledged(Way::Groups, load.documents, times.len());
        world.find_out(Way::Groups, load.documents, &unknown).await?;
        let Times { p50, p99, longest, .. } = Times::of(&times);
        let done = times.len() as f64 / self.span.as_secs_f64();
        let calm_after = calm_after(&carried, self.span).map(|calm| calm.as_secs_f64());
        Ok(Phase { done, p50, p99, longest, refused, odd, calm_after, ..self.phase })
    }
}

/// Returns the time after which every stretch carried its arrivals.
///
/// `None` if the last stretch did not.
fn calm_after(arrivals: &[(Duration, bool)], span: Duration) -> Option<Duration> {
    let stretches = (span.as_millis() / STRETCH.as_millis()).max(1) as usize;
    let mut counts = vec![(0_usize, 0_usize); stretches];
    for (at, carried) in arrivals {
        let stretch = (at.as_millis() / STRETCH.as_millis()) as usize;
        let count = &mut counts[stretch.min(stretches - 1)];
        *count = (count.0 + usize::from(*carried), count.1 + 1);
    }
    let bad = counts.iter().rposition(|(carried, all)| (*carried as f64) < *all as f64 * AS_BEFORE);
    let calm = bad.map_or(0, |bad| bad + 1);
    (calm < stretches).then(|| STRETCH * calm as u32)
}

fn rows(phases: &[Phase], carried: f64, looked: Duration, rows: &mut Vec<Row>) {
    let [before, during, after] = phases else { return };
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
    let what = "seconds after an overload until all that arrives is carried again";
    let aim = Aim::AtMost(1.0);
    rows.push(match after.calm_after {
        Some(seconds) => Row::found(
            what,
            aim,
            seconds,
            format!(
                "{}/s offered, {}/s before it",
                number(after.offered.round()),
                number(before.done.round())
            ),
        ),
        // A lower bound, which exceeds the aim.
        None => Row::found(what, aim, looked.as_secs_f64(), "not even when the look ended"),
    });
    let all: usize = during.refused.values().sum();
    rows.push(Row::found(
        "overload: refusals that are not of a kind that says what to do",
        Aim::AtMost(0.0),
        during.odd as f64,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overload_ends_when_every_stretch_is_carried() {
        let span = Duration::from_secs(2);
        let arrivals = |bad: &[u64]| -> Vec<(Duration, bool)> {
            (0..200).map(|at| (Duration::from_millis(at * 10), !bad.contains(&(at / 50)))).collect()
        };
        assert_eq!(calm_after(&arrivals(&[]), span), Some(Duration::ZERO));
        assert_eq!(calm_after(&arrivals(&[0]), span), Some(Duration::from_millis(500)));
        assert_eq!(calm_after(&arrivals(&[0, 2]), span), Some(Duration::from_millis(1_500)));
        assert_eq!(calm_after(&arrivals(&[3]), span), None);
    }
}
