//! Many clients: on many accounts, hot ones, a counter, several processes.

use std::sync::Arc;

use super::findings::Findings;
use super::scale::Scale;
use super::table::{Aim, Row, number};
use crate::Failure;
use crate::load::{Load, Skew};
use crate::measure::{Cell, Measured, measure};
use crate::world::{Way, World};

/// Documents of a transfer between spread accounts, and between hot ones.
const SPREAD: usize = 2;
const WANTED: usize = 3;

/// The number of hot accounts.
const HOT: usize = 10;

/// Numbers of processes, and the clients of each.
const PROCESSES: [(usize, usize); 6] = [(2, 8), (4, 8), (8, 8), (4, 32), (4, 4), (4, 2)];

/// The curve of latency and throughput on spread accounts.
///
/// The number of clients grows.
pub(super) async fn spread(
    world: &Arc<World>,
    scale: &Scale,
    findings: &mut Findings,
) -> Result<(), Failure> {
    let ways: &[Way] = match scale.quick {
        true => &[Way::Plain, Way::Batched, Way::Groups],
        false => &[Way::Plain, Way::Batched, Way::Locking, Way::Own, Way::Shared, Way::Groups],
    };
    for &clients in &scale.clients {
        let load = Load::new(clients, SPREAD, scale.accounts);
        let cells: Vec<Cell> = ways.iter().map(|&way| Cell { way, load }).collect();
        let measured = measure(world, &cells, scale.pace).await?;
        let to = |way, least| {
            ratio(
                &measured,
                format!(
                    "{clients} clients, 2 of 10,000 documents: throughput / {}",
                    Way::name(way)
                ),
                Aim::AtLeast(least),
                |one| one.cell.way == Way::Groups,
                |one| one.cell.way == way,
            )
        };
        match clients {
            64 => {
                findings.rows.push(to(Way::Plain, 1.3));
                findings.rows.extend(processor(&measured));
                findings.rows.extend(
                    measured.iter().filter(|one| one.cell.way == Way::Groups).map(|one| {
                        let most = 2.0 * SPREAD as f64 + 2.0 / one.round.composed;
                        writes(one, "64 clients spread", most, "2N + 2/K")
                    }),
                );
            }
            256 => findings.rows.extend([to(Way::Plain, 2.5), to(Way::Batched, 0.6)]),
            _ => {}
        }
        findings.keep("spread", &measured);
    }
    Ok(())
}

/// The ratio of processor time between client and server.
///
/// Both times are those of the same transactions.
fn processor(measured: &[Measured]) -> Option<Row> {
    let what = "64 clients, 2 documents: processor time of client / of server";
    let aim = Aim::AtMost(0.2);
    let round = &measured.iter().find(|one| one.cell.way == Way::Groups)?.round;
    let (Some(client), Some(server)) = (round.client_cpu, round.server_cpu) else {
        return Some(Row::missing(what, aim, "the server is on another machine"));
    };
    let detail = format!("{client:.0} µs, with the 64 clients themselves, to {server:.0} µs");
    Some(Row::found(what, aim, client / server, detail))
}

/// Document writes of one transaction, compared with the bound of its groups.
fn writes(one: &Measured, what: &str, most: f64, formula: &str) -> Row {
    let round = &one.round;
    let (k, documents) = (number(round.composed), number(round.written));
    Row::found(
        format!("document writes per transaction, {what}"),
        Aim::Bound(most, formula.to_owned()),
        round.writes,
        format!("counted; groups of K = {k}, which write {documents} documents"),
    )
}

/// Ten hot accounts compared with ten thousand, and one counter.
pub(super) async fn hot(
    world: &Arc<World>,
    scale: &Scale,
    findings: &mut Findings,
) -> Result<(), Failure> {
    let hot = Load::new(64, WANTED, HOT);
    let wide = Load::new(64, WANTED, scale.accounts);
    let mut cells = vec![
        Cell { way: Way::Retried, load: hot },
        Cell { way: Way::Groups, load: hot },
        Cell { way: Way::Groups, load: wide },
    ];
    if !scale.quick {
        cells.push(Cell { way: Way::Plain, load: hot });
        cells.push(Cell { way: Way::Shared, load: hot });
    }
    let measured = measure(world, &cells, scale.pace).await?;
    let ours = |one: &Measured| one.cell == Cell { way: Way::Groups, load: hot };
    let rows = &mut findings.rows;
    rows.push(ratio(
        &measured,
        "10 hot accounts, 3 documents, 64 clients: throughput / the same spread over 10,000",
        Aim::AtLeast(2.0),
        ours,
        |one| one.cell == Cell { way: Way::Groups, load: wide },
    ));
    rows.push(ratio(
        &measured,
        "10 hot accounts, 3 documents, 64 clients: throughput / plain, retried",
        Aim::AtLeast(60.0),
        ours,
        |one| one.cell.way == Way::Retried,
    ));
    if let Some(one) = measured.iter().find(|one| ours(one)) {
        let times = one.round.times;
        rows.push(Row::found(
            "10 hot accounts: 99th percentile / median of one transfer",
            Aim::AtMost(10.0),
            times.p99 / times.p50,
            format!("{:.1} ms to {:.1} ms", times.p99, times.p50),
        ));
        rows.push(Row::found(
            "10 hot accounts: most attempts of a transfer",
            Aim::AtMost(10.0),
            f64::from(one.round.tries),
            "counted",
        ));
    }
    rows.extend(measured.iter().filter(|one| ours(one)).map(|one| {
        let most = (one.round.written + 2.0) / one.round.composed;
        writes(one, "10 hot accounts", most, "(N + 2)/K")
    }));
    findings.keep("hot", &measured);

    let counter = Load::new(64, 1, 1);
    let cells = [Way::Retried, Way::Groups].map(|way| Cell { way, load: counter });
    let measured = measure(world, &cells, scale.pace).await?;
    findings.rows.push(ratio(
        &measured,
        "one hot counter, 64 clients: throughput / plain, retried",
        Aim::AtLeast(20.0),
        |one| one.cell.way == Way::Groups,
        |one| one.cell.way == Way::Retried,
    ));
    findings.rows.extend(
        measured
            .iter()
            .filter(|one| one.cell.way == Way::Groups)
            .map(|one| writes(one, "one hot counter", 1.0 / one.round.composed, "1/K")),
    );
    findings.keep("counter", &measured);
    Ok(())
}

/// Fewer accounts, and so more conflicts.
pub(super) async fn contention(
    world: &Arc<World>,
    scale: &Scale,
    findings: &mut Findings,
) -> Result<(), Failure> {
    for &accounts in &scale.contention {
        let load = Load::new(64, WANTED, accounts);
        let cells = [Way::Retried, Way::Groups].map(|way| Cell { way, load });
        findings.keep("contention", &measure(world, &cells, scale.sketch).await?);
    }
    Ok(())
}

/// Several processes on the same hot accounts.
///
/// At most one process holds the accounts at a time. So the standard is one process with as many
/// clients as each of them.
pub(super) async fn processes(
    world: &Arc<World>,
    scale: &Scale,
    findings: &mut Findings,
) -> Result<(), Failure> {
    for (processes, clients) in PROCESSES {
        let one = Load::new(clients, WANTED, HOT);
        let all = Load::new(processes * clients, WANTED, HOT);
        let cells = [
            Cell { way: Way::Retried, load: all },
            Cell { way: Way::Groups, load: one },
            Cell { way: Way::Several, load: Load { processes, ..all } },
        ];
        let measured = measure(world, &cells, scale.pace).await?;
        let what = format!("{processes} processes x {clients} clients on 10 accounts, 3 documents");
        let of = |way| move |one: &Measured| one.cell.way == way;
        let rows = &mut findings.rows;
        rows.push(ratio(
            &measured,
            format!("{what}: throughput / plain, retried"),
            Aim::AtLeast(3.0),
            of(Way::Several),
            of(Way::Retried),
        ));
        rows.push(ratio(
            &measured,
            format!("{what}: throughput / one process with {clients} clients"),
            Aim::AtLeast(if clients < 4 { 0.55 } else { 0.7 }),
            of(Way::Several),
            of(Way::Groups),
        ));
        if let Some(several) = measured.last() {
            rows.push(Row::found(
                format!("{what}: share of the slowest process / of the fastest"),
                Aim::AtLeast(0.5),
                several.round.share,
                "transfers",
            ));
        }
        findings.keep("processes", &measured);
    }
    Ok(())
}

/// The share of reads, and the popularity of documents.
pub(super) async fn mixes(
    world: &Arc<World>,
    scale: &Scale,
    findings: &mut Findings,
) -> Result<(), Failure> {
    for (reads, accounts, skew) in [
        (0.95, scale.accounts, Skew::Uniform),
        (0.95, scale.accounts, Skew::Zipf(0.99)),
        (0.95, HOT, Skew::Uniform),
        (0.5, scale.accounts, Skew::Uniform),
        (0.5, scale.accounts, Skew::Zipf(0.99)),
        (0.5, HOT, Skew::Uniform),
        (0.0, scale.accounts, Skew::Zipf(0.99)),
    ] {
        let load = Load { reads, skew, ..Load::new(64, SPREAD, accounts) };
        let cells = [Way::Plain, Way::Retried, Way::Groups].map(|way| Cell { way, load });
        findings.keep("mixes", &measure(world, &cells, scale.sketch).await?);
    }
    Ok(())
}

/// Processor time by the number of documents.
pub(super) async fn sizes(
    world: &Arc<World>,
    scale: &Scale,
    findings: &mut Findings,
) -> Result<(), Failure> {
    let mut taken = Vec::new();
    for &documents in &scale.sizes {
        let load = Load::new(16, documents, scale.accounts);
        let cells = [Way::Plain, Way::Groups].map(|way| Cell { way, load });
        let measured = measure(world, &cells, scale.sketch).await?;
        taken.push((documents, measured[1].round.client_cpu));
        findings.keep("sizes", &measured);
    }
    let of = |wanted| taken.iter().find(|(n, _)| *n == wanted).and_then(|(_, cpu)| *cpu);
    let what = "processor time of the client, 100 documents / 10 documents";
    // N log N: 10 times as many documents, twice the logarithm.
    let aim = Aim::AtMost(20.0);
    findings.rows.push(match (of(100), of(10)) {
        (Some(many), Some(few)) => {
            Row::found(what, aim, many / few, format!("{many:.0} µs to {few:.0} µs; N log N is 20"))
        }
        _ => Row::missing(what, aim, "this system does not tell the processor time"),
    });
    Ok(())
}

/// A row with the ratio of throughput of two loads.
///
/// Both loads were measured in turn.
fn ratio(
    measured: &[Measured],
    what: impl Into<String>,
    aim: Aim,
    ours: impl Fn(&Measured) -> bool,
    other: impl Fn(&Measured) -> bool,
) -> Row {
    let of = |which: &dyn Fn(&Measured) -> bool| measured.iter().find(|one| which(one));
    let (Some(ours), Some(other)) = (of(&ours), of(&other)) else {
        return Row::missing(what, aim, "the load was not run");
    };
    let (ours, other) = (&ours.round, &other.round);
    let [a, b] = [ours.per_second, other.per_second].map(|rate| number(rate.round()));
    let mut detail = format!("{a}/s to {b}/s");
    if !ours.refused.is_empty() {
        detail.push_str(&format!("; refused: {:?}", ours.refused));
    }
    Row::found(what, aim, ours.per_second / other.per_second, detail)
}
