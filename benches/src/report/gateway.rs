//! The gateway: its clients beside the library, and beside plain requests.

use std::sync::Arc;

use super::findings::{Beside, Findings};
use super::scale::Scale;
use super::table::{Aim, Row, number};
use crate::Failure;
use crate::load::Load;
use crate::pair::Rate;
use crate::systems::gateway::Gateway;
use crate::systems::gateway_clients::Requests;
use crate::world::World;

/// The number of clients.
const CLIENTS: usize = 64;

/// The number of client processes on hot accounts.
const PROCESSES: usize = 8;

/// The number of hot accounts, and of those in one transfer.
const HOT: usize = 10;
const HOT_DOCUMENTS: usize = 3;

/// Documents of a transfer between spread accounts, and of a bulk.
const DOCUMENTS: usize = 2;

/// Measures the gateway in all variants.
pub(super) async fn gateway(
    world: &Arc<World>,
    scale: &Scale,
    findings: &mut Findings,
) -> Result<(), Failure> {
    // The library runs in the process of its gateway; other clients have a gateway apart.
    let gateway = Gateway::start(world, scale.accounts, false).await?;
    let spread = Load::new(CLIENTS, DOCUMENTS, scale.accounts);
    let hot = Load { processes: PROCESSES, ..Load::new(CLIENTS, HOT_DOCUMENTS, HOT) };
    let alone = Load::new(1, DOCUMENTS, scale.accounts);
    let found = in_turn(&gateway, [Requests::Operations, Requests::Library], spread, scale).await?;
    let what = format!("gateway, {CLIENTS} HTTP clients, {DOCUMENTS} of 10,000 documents");
    findings.rows.push(ratio(format!("{what}: throughput / library"), 0.7, found));
    keep(findings, &what, found);

    let [ours, library] =
        in_turn(&gateway, [Requests::Operations, Requests::Library], alone, scale).await?;
    findings.rows.push(Row::found(
        "gateway, 1 client, 2 documents: latency beyond the library, in ms",
        Aim::AtMost(1.0),
        ours.times.p50 - library.times.p50,
        format!("median {:.2} ms to {:.2} ms", ours.times.p50, library.times.p50),
    ));
    keep(findings, "gateway, 1 client", [ours, library]);
    gateway.stop().await?;

    let gateway = Gateway::start(world, scale.accounts, true).await?;
    let found =
        in_turn(&gateway, [Requests::AtomicBulk, Requests::PlainBulk], spread, scale).await?;
    let what = format!("gateway, {CLIENTS} HTTP clients, bulks of {DOCUMENTS} documents");
    findings.rows.push(ratio(format!("{what}: throughput / the server's own"), 1.0, found));
    keep(findings, &what, found);

    let kinds = [Requests::Operations, Requests::Closures, Requests::Plain];
    let [declared, computed, plain] = in_turn(&gateway, kinds, hot, scale).await?;
    let each = CLIENTS / PROCESSES;
    let what = format!(
        "gateway, {HOT} hot accounts, {HOT_DOCUMENTS} documents, {PROCESSES} processes x {each}"
    );
    for (name, least, found) in
        [("operations", 40.0, declared), ("reads for update and commits", 10.0, computed)]
    {
        let what = format!("{what}, {name}");
        let row = ratio(format!("{what}: throughput / plain, retried"), least, [found, plain]);
        findings.rows.push(row);
        keep(findings, &what, [found, plain]);
    }
    gateway.stop().await
}

/// Measures several kinds of requests in turn, as medians.
async fn in_turn<const N: usize>(
    gateway: &Arc<Gateway>,
    requests: [Requests; N],
    load: Load,
    scale: &Scale,
) -> Result<[Rate; N], Failure> {
    let mut each: [Vec<Rate>; N] = std::array::from_fn(|_| Vec::new());
    // The first round is a warm-up.
    for round in 0..=scale.pace.rounds {
        for (requests, rates) in requests.iter().zip(&mut each) {
            let rate = gateway.round(*requests, load, scale.pace.span).await?;
            if round > 0 {
                rates.push(rate);
            }
        }
    }
    Ok(each.map(|rates| Rate::median(&rates)))
}

fn ratio(what: String, least: f64, [ours, other]: [Rate; 2]) -> Row {
    let [a, b] = [ours, other].map(|rate| number(rate.per_second.round()));
    let detail =
        format!("{a}/s to {b}/s; p99 {:.0} ms to {:.0} ms", ours.times.p99, other.times.p99);
    Row::found(what, Aim::AtLeast(least), ours.per_second / other.per_second, detail)
}

fn keep(findings: &mut Findings, load: &str, [ours, other]: [Rate; 2]) {
    for (who, rate) in [("gateway", ours), ("beside it", other)] {
        findings.systems.push(Beside { load: load.to_owned(), who, what: "requests", rate });
    }
}
