//! The cost of large documents, and of their locks.
//!
//! For a lock the server indexes the whole document again.

use std::time::{Duration, Instant};

use super::findings::{Findings, LockWrites};
use super::scale::Scale;
use crate::Failure;
use crate::content::Content;
use crate::load::Load;
use crate::measure::{Cell, measure};
use crate::setup::Setup;
use crate::statistics::median;
use crate::usage::Process;
use crate::world::{Way, World};

/// The number of accounts of each content.
const ACCOUNTS: usize = 1_000;

/// The number of locks in one request.
const LOCKS: usize = 32;

/// Measures each content in turn.
pub(super) async fn documents(
    url: &str,
    scale: &Scale,
    findings: &mut Findings,
) -> Result<(), Failure> {
    for content in Content::SIZES {
        let world = World::of(&Setup::new(url)?.with_content(content)).await?;
        for clients in [1, 16] {
            let load = Load::new(clients, 2, ACCOUNTS);
            let cells = [Way::Plain, Way::Groups].map(|way| Cell { way, load });
            findings.keep(content.name(), &measure(&world, &cells, scale.pace).await?);
        }
        findings.locks.push(locks(&world, content, scale.samples).await?);
        world.close().await?;
    }
    Ok(())
}

/// Writes locks by whole documents and by partial updates, in turn.
async fn locks(world: &World, content: Content, samples: usize) -> Result<LockWrites, Failure> {
    let ids: Vec<String> = (0..LOCKS).map(|at| World::id(Way::Plain, at)).collect();
    let mut spent: [Vec<(Duration, Option<Duration>)>; 2] = Default::default();
    for sample in 0..samples {
        for (spent, whole) in spent.iter_mut().zip([true, false]) {
            let bulk = world.plain().locks(&ids, whole, 2 * sample + usize::from(whole)).await?;
            let before = world.server().and_then(Process::processor_time);
            let began = Instant::now();
            world.plain().write(bulk).await?;
            let took = began.elapsed();
            let after = world.server().and_then(Process::processor_time);
            spent.push((took, before.zip(after).map(|(before, after)| after - before)));
        }
    }
    let of = |spent: &[(Duration, Option<Duration>)]| {
        let took = median(spent.iter().map(|(took, _)| took.as_secs_f64() * 1e3));
        // The system counts in hundredths of a second, so only the sum is meaningful.
        let server: Option<Duration> = spent.iter().map(|(_, server)| *server).sum();
        let each = |all: Duration| all.as_secs_f64() * 1e6 / (spent.len() * LOCKS) as f64;
        (took, server.map(each))
    };
    let [whole, partial] = spent.each_ref().map(|spent| of(spent));
    Ok(LockWrites { content: content.name(), whole, partial })
}
