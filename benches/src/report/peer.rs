//! The comparison with the project's original two-phase commit.

use txn_core::Config;

use super::findings::{self, Findings};
use super::scale::Scale;
use super::table::{Aim, Row};
use crate::Failure;
use crate::pair::{Pair, Rate};
use crate::seed::Way;

/// Measures one client and many clients.
pub(super) async fn peer(
    url: &str,
    way: Way,
    scale: &Scale,
    findings: &mut Findings,
) -> Result<(), Failure> {
    let accounts = if scale.quick { 200 } else { 1_000 };
    let pace = scale.pace;
    let pair = Pair::open(url, way, accounts, Config::default()).await?;
    for clients in [1, 64] {
        let [peer, bank] = pair.measure(clients, pace.rounds, pace.span).await?;
        let name = if clients == 1 { "1 client" } else { "64 clients" };
        findings.rows.push(median(name, peer, bank));
        findings.rows.push(Row::found(
            format!("{name}: throughput, all applied / the seed's two-phase commit"),
            Aim::AtLeast(10.0),
            bank.per_second / peer.per_second,
            format!("{:.0}/s to {:.0}/s", bank.per_second, peer.per_second),
        ));
        findings.pairs.push(findings::Pair {
            accounts,
            clients,
            peer: (peer.per_second, peer.times.p50),
            bank: (bank.per_second, bank.times.p50),
        });
    }
    pair.close().await
}

fn median(name: &str, peer: Rate, bank: Rate) -> Row {
    let (of_peer, of_bank) = (peer.times.p50, bank.times.p50);
    Row::found(
        format!("{name}: median of a transfer / the seed's two-phase commit"),
        Aim::AtMost(0.25),
        of_bank / of_peer,
        format!("{of_bank:.2} ms to {of_peer:.2} ms"),
    )
}
