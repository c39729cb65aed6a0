//! The cost of HTTP settings: kept connections, compressed answers, TLS.

use std::sync::Arc;

use txn_testkit::env;

use super::findings::{Findings, Setting};
use super::scale::Scale;
use super::table::{Aim, Row};
use crate::Failure;
use crate::load::Load;
use crate::measure::{Cell, Pace, Round, measure};
use crate::setup::{Http, Setup};
use crate::world::{Way, World};

/// The number of accounts of each setting.
const ACCOUNTS: usize = 1_000;

/// Measures every setting in turn, in each round.
pub(super) async fn http(url: &str, scale: &Scale, findings: &mut Findings) -> Result<(), Failure> {
    let mut setups = vec![
        ("kept connections", Setup::new(url)?),
        ("a connection for each plain request", Setup::with_http(url, Http::NewConnections)?),
        ("compressed answers", Setup::with_http(url, Http::Compressed)?),
    ];
    if std::env::var(env::SECURED_URL).is_ok() {
        let secured = env::secured();
        let new = Setup::secured(&secured, Http::NewConnections)?;
        setups.extend([
            ("TLS and a user, kept connections", Setup::secured(&secured, Http::Kept)?),
            ("TLS and a user, a connection for each plain request", new),
        ]);
    } else {
        let why = format!("{} is not set", env::SECURED_URL);
        findings.rows.push(Row::missing("TLS", Aim::Words(String::new()), why));
    }
    let mut worlds: Vec<(&str, Arc<World>)> = Vec::new();
    for (name, setup) in &setups {
        worlds.push((name, World::of(setup).await?));
    }
    // The many clients come first, because they warm up a fresh server.
    for clients in [64, 1] {
        let load = Load::new(clients, 2, ACCOUNTS);
        let cells = [Way::Plain, Way::Groups].map(|way| Cell { way, load });
        let mut seen: Vec<[Vec<Round>; 2]> = vec![Default::default(); worlds.len()];
        let pace = Pace { rounds: 1, ..scale.pace };
        for number in 0..=scale.pace.rounds {
            for ((name, world), seen) in worlds.iter().zip(&mut seen) {
                let measured = measure(world, &cells, pace).await?;
                for one in measured.iter().filter(|one| !one.cell.way.is_plain()) {
                    one.drift.none_after(name)?;
                }
                // The first round is a warm-up.
                if number > 0 {
                    seen.iter_mut().zip(measured).for_each(|(seen, one)| seen.push(one.round));
                }
            }
        }
        for ((name, _), seen) in worlds.iter().zip(seen) {
            for (cell, rounds) in cells.iter().zip(seen) {
                let round = Round::median(&rounds);
                findings.settings.push(Setting { name, clients, way: cell.way, round });
            }
        }
    }
    for (_, world) in worlds {
        world.close().await?;
    }
    Ok(())
}
