//! The gateway with more connections and arrivals than it can serve.
//!
//! It refuses what it cannot serve, and its memory stays bounded. Afterwards it is as fast as
//! before.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::StatusCode;
use tokio::task::JoinSet;
use txn_fixtures::fixture::Fixture;

use super::Plan;
use super::crew::{Course, Worker};
use super::gateway::{Desk, Served, check, free_address, invent};
use super::world::{PATIENCE, World, said, spread};
use crate::memory::Memory;
use crate::report::Report;

/// The connections of the overload.
const CONNECTIONS: usize = 500;

/// The connections before and after it.
const FEW: usize = 64;

/// The time of the load before and after the overload.
const CALM: Duration = Duration::from_secs(10);

/// The full rate after the overload, as a share. The share is that of the rate before the overload.
const FULL: f64 = 0.8;

/// The largest growth of the memory during the overload, in MiB.
const MOST_MEMORY: u64 = 256;

/// The pace of the clients of a load.
#[derive(Clone, Copy, Debug)]
enum Pace {
    /// Each client sends the next request after an answer.
    AfterAnswers,
    /// So many requests arrive per second.
    PerSecond(f64),
}

/// An answered request.
#[derive(Clone, Copy, Debug)]
struct Sent {
    /// The time of the answer, since the beginning of the load.
    at: Duration,
    took: Duration,
    status: StatusCode,
}

/// The answers of a load.
#[derive(Debug, Default)]
struct Loaded {
    sent: Vec<Sent>,
    served: Vec<Served>,
    span: Duration,
}

impl Loaded {
    fn accepted(&self) -> impl Iterator<Item = &Sent> {
        self.sent.iter().filter(|sent| sent.status.is_success())
    }

    /// Accepted requests per second.
    fn rate(&self) -> f64 {
        self.accepted().count() as f64 / self.span.as_secs_f64()
    }

    /// Accepted requests of the first second.
    fn first_second(&self) -> usize {
        self.accepted().filter(|sent| sent.at < Duration::from_secs(1)).count()
    }

    fn lines(&self, name: &str) -> Vec<(String, u64)> {
        let took = |sent: &Sent| u64::try_from(sent.took.as_millis()).unwrap_or(u64::MAX);
        let mut lines = vec![
            (format!("{name}: requests"), self.sent.len() as u64),
            (format!("{name}: accepted per second"), self.rate() as u64),
            (format!("{name}: accepted in the first second"), self.first_second() as u64),
        ];
        let mut counts: BTreeMap<u16, u64> = BTreeMap::new();
        for sent in self.sent.iter().filter(|sent| !sent.status.is_success()) {
            *counts.entry(sent.status.as_u16()).or_default() += 1;
        }
        let of_status = |(status, count)| (format!("{name}: answers with {status}"), count);
        lines.extend(counts.into_iter().map(of_status));
        lines.extend(spread(&format!("{name}: accepted"), self.accepted().map(took).collect()));
        lines
    }

    /// Returns answers that are no acceptance and no refusal for now.
    fn violations(&self, name: &str) -> Vec<String> {
        let fits =
            |sent: &Sent| sent.status.is_success() || matches!(sent.status.as_u16(), 429 | 503);
        let odd = self.sent.iter().filter(|sent| !fits(sent));
        odd.map(|sent| format!("{name}: an answer with {}", sent.status)).collect()
    }
}

pub(crate) async fn run(plan: &Plan) -> Result<Report, String> {
    let fixture = Fixture::at(&plan.url).await;
    let world = World::open(&plan.url, fixture.domain_name(), plan.lease).await?;
    let desk = Desk::open(&world, &free_address().await?, CONNECTIONS).await?;
    let job = plan.job(fixture.domain_name(), desk.listen.clone());
    let course = Arc::new(Course::default());
    let mut gateway = Worker::start(&plan.binary, &job, &course)?;
    desk.until_ready().await?;
    // The first load is a warm-up.
    let warm_up = load(&desk, FEW, CALM, Pace::AfterAnswers).await?;
    let before = load(&desk, FEW, CALM, Pace::AfterAnswers).await?;
    let small = memory(&gateway)?.now;
    let pace = Pace::PerSecond(2.0 * before.rate());
    let during = load(&desk, CONNECTIONS, plan.span, pace).await?;
    let after = load(&desk, FEW, CALM, Pace::AfterAnswers).await?;
    let Memory { now: last, most } = memory(&gateway)?;
    gateway.kill().await?;
    let mut served = vec![Served::default(); CONNECTIONS];
    for loaded in [&warm_up, &before, &during, &after] {
        for (all, one) in served.iter_mut().zip(&loaded.served) {
            all.acknowledged += one.acknowledged;
            for (at, amount) in &one.moved {
                *all.moved.entry(*at).or_default() += amount;
            }
        }
    }
    desk.count_effects(&mut served).await?;
    let mut violations = check(&served, &desk.balances().await?);
    let mut lines = vec![
        ("seconds".to_owned(), plan.span.as_secs()),
        ("connections".to_owned(), CONNECTIONS as u64),
    ];
    for (name, loaded) in [("before", &before), ("overload", &during), ("after", &after)] {
        violations.extend(loaded.violations(name));
        lines.extend(loaded.lines(name));
    }
    for (name, mib) in
        [("MiB before the overload", small), ("MiB at most", most), ("MiB at the end", last)]
    {
        lines.push((name.to_owned(), mib));
    }
    if most > small + MOST_MEMORY {
        violations.push(format!("the gateway grew from {small} MiB to {most} MiB"));
    }
    if (after.first_second() as f64) < FULL * before.rate() {
        violations.push(format!(
            "{} accepted in the first second after the overload, {:.0} per second before it",
            after.first_second(),
            before.rate()
        ));
    }
    world.domain.shutdown(PATIENCE).await;
    Ok(Report::of(lines, violations, fixture).await)
}

/// Runs a load on so many connections.
async fn load(desk: &Desk, clients: usize, span: Duration, pace: Pace) -> Result<Loaded, String> {
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for client in 0..clients {
        let desk = desk.clone();
        tasks.spawn(async move { (client, one(&desk, client, clients, began, span, pace).await) });
    }
    let mut loaded = Loaded { span, served: vec![Served::default(); clients], ..Loaded::default() };
    while let Some(ended) = tasks.join_next().await {
        let (client, result) = ended.map_err(said)?;
        let (sent, served) = result?;
        loaded.sent.extend(sent);
        loaded.served[client] = served;
    }
    Ok(loaded)
}

async fn one(
    desk: &Desk,
    client: usize,
    clients: usize,
    began: Instant,
    span: Duration,
    pace: Pace,
) -> Result<(Vec<Sent>, Served), String> {
    let (mut sent, mut served) = (Vec::new(), Served::default());
    for request in 0_u32.. {
        if let Pace::PerSecond(rate) = pace {
            // The arrivals of all clients are spread evenly. A late client sends at once.
            let at = (f64::from(request) * clients as f64 + client as f64) / rate;
            tokio::time::sleep_until((began + Duration::from_secs_f64(at)).into()).await;
        }
        if began.elapsed() >= span {
            break;
        }
        let (from, to, amount) = invent();
        let body = desk.transfer(client, (from, to, amount), false);
        let sends = Instant::now();
        let (status, _) = desk.send(None, &body).await?;
        sent.push(Sent { at: began.elapsed(), took: sends.elapsed(), status });
        if status.is_success() {
            served.acknowledged += 1;
            *served.moved.entry(from).or_default() -= amount;
            *served.moved.entry(to).or_default() += amount;
        }
    }
    Ok((sent, served))
}

fn memory(gateway: &Worker) -> Result<Memory, String> {
    Memory::of(gateway.pid().ok_or("the gateway has ended")?)
}
