//! A shop: several processes compared with one.
//!
//! On a server and in a file, with and without its outbox.

use std::sync::Arc;
use std::time::Duration;

use txn_core::Config;
use txn_core::store::Store;
use txn_es::{EsConfig, EsStore};
use txn_redb::RedbStore;

use super::findings::{Beside, Findings};
use super::scale::Scale;
use super::table::{Aim, Row, number};
use crate::pair::Rate;
use crate::systems::shop::{Demand, EVENTS, Shop};
use crate::{Failure, unique};

/// The number of buyers of each process.
const BUYERS: usize = 100;

/// Numbers of processes, and the required share of linear sales.
const PROCESSES: [(usize, f64); 2] = [(2, 0.8), (4, 0.7)];

/// Measures the shop in all variants.
pub(super) async fn shop(url: &str, scale: &Scale, findings: &mut Findings) -> Result<(), Failure> {
    let (rounds, span) = (scale.pace.rounds, scale.pace.span.max(Duration::from_secs(4)));
    on_a_server(url, (rounds, span), findings).await?;
    in_a_file((rounds, span), findings).await
}

async fn on_a_server(
    url: &str,
    (rounds, span): (usize, Duration),
    findings: &mut Findings,
) -> Result<(), Failure> {
    let mut shops = Vec::new();
    for (processes, has_outbox) in [(1, true), (1, false), (2, true), (4, true)] {
        let mut stores: Vec<Arc<dyn Store>> = Vec::new();
        for _ in 0..processes {
            stores.push(Arc::new(EsStore::connect(EsConfig::from_url(url)?).await?));
        }
        let config = Config::default();
        shops.push(Shop::open(stores, &unique("shop"), &config, has_outbox).await?);
    }
    for demand in [Demand::Popular, Demand::Spread] {
        let what = told(demand);
        let found = in_turn(&shops, demand, BUYERS, (rounds, span)).await?;
        let [one, bare, several @ ..] = &found[..] else { return Ok(()) };
        for (found, (processes, least)) in several.iter().zip(PROCESSES) {
            let name = format!("{what}, {processes} processes x {BUYERS} buyers");
            findings.rows.push(ratio(
                format!("{name}: sales / one process with {BUYERS} buyers"),
                Aim::AtLeast(least),
                (*found, *one),
            ));
            findings.rows.push(Row::found(
                format!("{name}: p99 of a sale / of one process"),
                Aim::AtMost(3.0),
                found.sales.times.p99 / one.sales.times.p99,
                format!(
                    "{} ms to {} ms",
                    rounded(found.sales.times.p99),
                    rounded(one.sales.times.p99)
                ),
            ));
            keep(findings, name, found.sales);
        }
        findings.rows.push(ratio(
            format!("{what}, one process x {BUYERS} buyers: sales / without the outbox"),
            Aim::AtLeast(0.7),
            (*one, *bare),
        ));
        keep(findings, format!("{what}, one process"), one.sales);
        keep(findings, format!("{what}, one process, no outbox"), bare.sales);
    }
    close(shops).await
}

/// Compares the default with groups that are enabled and disabled explicitly.
async fn in_a_file(
    (rounds, span): (usize, Duration),
    findings: &mut Findings,
) -> Result<(), Failure> {
    let folder = std::env::temp_dir().join(unique("shop"));
    std::fs::create_dir(&folder)?;
    let mut shops = Vec::new();
    for (at, groups) in [None, Some(true), Some(false)].into_iter().enumerate() {
        let store: Arc<dyn Store> = Arc::new(RedbStore::open(folder.join(format!("{at}.redb")))?);
        let config = Config::default().with_group_commit(groups);
        shops.push(Shop::open(vec![store], &unique("shop"), &config, true).await?);
    }
    for buyers in [1, BUYERS] {
        let found = in_turn(&shops, Demand::Spread, buyers, (rounds, span)).await?;
        let [default, on, off] = found[..] else { return Ok(()) };
        let better = if on.sales.per_second >= off.sales.per_second { on } else { off };
        let who = if buyers == 1 { "buyer" } else { "buyers" };
        let what = format!("shop in a file, {buyers} {who}");
        findings.rows.push(ratio(
            format!("{what}: sales / groups switched to the better value"),
            Aim::AtLeast(0.95),
            (default, better),
        ));
        for (name, found) in [("default", default), ("groups on", on), ("groups off", off)] {
            keep(findings, format!("{what}, {name}"), found.sales);
        }
    }
    close(shops).await?;
    Ok(std::fs::remove_dir_all(folder)?)
}

/// The medians of several rounds.
#[derive(Clone, Copy, Debug)]
struct Found {
    sales: Rate,
    /// The longest time until the last mail was written.
    behind: Duration,
    refused: u64,
}

async fn in_turn(
    shops: &[Arc<Shop>],
    demand: Demand,
    buyers: usize,
    (rounds, span): (usize, Duration),
) -> Result<Vec<Found>, Failure> {
    let mut each = vec![(Vec::new(), Duration::ZERO, 0); shops.len()];
    // The first round is a warm-up.
    for round in 0..=rounds {
        for (shop, (rates, behind, refused)) in shops.iter().zip(&mut each) {
            let before = shop.refused();
            let sold = shop.sell(demand, buyers, if round == 0 { span / 2 } else { span }).await?;
            if round > 0 {
                rates.push(sold.sales);
                *behind = sold.behind.max(*behind);
                *refused += shop.refused() - before;
            }
        }
    }
    for shop in shops {
        shop.audit().await?;
    }
    let found = each.into_iter().map(|(rates, behind, refused)| {
        let sales = Rate::median(&rates);
        Found { sales, behind, refused }
    });
    Ok(found.collect())
}

fn ratio(what: String, aim: Aim, (found, standard): (Found, Found)) -> Row {
    let rates = [found, standard].map(|found| number(found.sales.per_second.round()));
    let [ours, other] = rates;
    let detail = format!(
        "{ours}/s to {other}/s; longest sale {} ms to {} ms; last mail after {} ms; {} refused",
        rounded(found.sales.times.longest),
        rounded(standard.sales.times.longest),
        found.behind.as_millis(),
        found.refused,
    );
    Row::found(what, aim, found.sales.per_second / standard.sales.per_second, detail)
}

fn rounded(ms: f64) -> String {
    number(ms.round())
}

fn keep(findings: &mut Findings, load: String, rate: Rate) {
    findings.systems.push(Beside { load, who: "shop", what: "sales", rate });
}

fn told(demand: Demand) -> String {
    match demand {
        Demand::Popular => "shop, one popular event".to_owned(),
        Demand::Spread => format!("shop, {EVENTS} events"),
    }
}

async fn close(shops: Vec<Arc<Shop>>) -> Result<(), Failure> {
    for shop in shops {
        shop.close().await?;
    }
    Ok(())
}
