//! The outbox, with killed and paused processors.
//!
//! Each event of a committed transaction is handled once, in the order of its key, and no event of
//! an aborted one is.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use txn_core::ErrorKind;
use txn_fixtures::fixture::Fixture;
use txn_outbox::{
    Delivery, Failure, Handler, Outbox, OutboxConfig, OutboxError, Processor, ProcessorConfig,
    Topics,
};

use super::Plan;
use super::crew::Crew;
use super::world::{Documents, PATIENCE, World, append, number, rate, said, spread};
use crate::report::Report;

/// The number of keys.
const KEYS: usize = 24;

/// The number of concurrent emitters.
const CLIENTS: usize = 6;

/// A handled event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handled {
    /// The id of the event.
    pub event: String,
    /// The number of the event, as its transaction counted.
    pub number: i64,
    /// Whether its transaction was to commit.
    pub commits: bool,
    /// The time from the emission to the handling, in milliseconds.
    pub lag_ms: u64,
}

/// The history of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The number of committed transactions, as they counted themselves.
    pub committed: i64,
    /// The number of acknowledged transactions.
    pub acknowledged: i64,
    /// The number of transactions with an unknown outcome.
    pub unknown: i64,
    /// The handled events, in order; `None` for a missing one.
    pub handled: Vec<Option<Handled>>,
    /// The sum of all numbers, as the handlers added them up.
    pub sum: i64,
}

/// Returns the violations of a key.
#[must_use]
pub fn check(key: &str, history: &History) -> Vec<String> {
    let mut wrong = Vec::new();
    let History { committed, acknowledged, unknown, handled, sum } = history;
    if !(*acknowledged..=acknowledged + unknown).contains(committed) {
        wrong.push(format!(
            "{key}: {committed} committed, of {acknowledged} acknowledged and {unknown} unknown"
        ));
    }
    let mut next = 1;
    for one in handled {
        match one {
            None => wrong.push(format!("{key}: what was handled is missing")),
            Some(one) if !one.commits => {
                wrong.push(format!("{key}: {} is of an aborted transaction", one.event));
            }
            Some(one) if one.number != next => {
                wrong.push(format!(
                    "{key}: {} has the number {}, not {next}",
                    one.event, one.number
                ));
                next = one.number + 1;
            }
            Some(_) => next += 1,
        }
    }
    if next != committed + 1 {
        wrong.push(format!("{key}: {} were handled of {committed}", next - 1));
    }
    let ids: std::collections::BTreeSet<&str> =
        handled.iter().flatten().map(|one| one.event.as_str()).collect();
    if ids.len() < handled.len() {
        wrong.push(format!("{key}: an event was handled twice"));
    }
    let wanted = committed * (committed + 1) / 2;
    if *sum != wanted {
        wrong.push(format!("{key}: the sum is {sum}, not {wanted}"));
    }
    wrong
}

pub(crate) async fn run(plan: &Plan) -> Result<Report, String> {
    let fixture = Fixture::at(&plan.url).await;
    let world = World::open(&plan.url, fixture.domain_name(), plan.lease).await?;
    let desk = Desk::open(&world).await?;
    let crew = Crew::start(plan, fixture.domain_name());
    let began = Instant::now();
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..CLIENTS {
        let (desk, span) = (desk.clone(), plan.span);
        clients.spawn(async move { desk.emit_until(Instant::now() + span).await });
    }
    let mut told = vec![(0_i64, 0_i64); KEYS];
    let mut violations = Vec::new();
    while let Some(of_one) = clients.join_next().await {
        for (all, one) in told.iter_mut().zip(of_one.map_err(said)??) {
            *all = (all.0 + one.0, all.1 + one.1);
        }
    }
    let emitting = began.elapsed();
    let course = crew.end().await?;
    violations.extend(course.violations());
    // The check handles the remaining events, without kills.
    let processor = desk.start(plan.lease).await?;
    let source = desk.outbox.source();
    let until = Instant::now() + PATIENCE;
    while source.backlog().await.map_err(said)?.events > 0 {
        if Instant::now() > until {
            violations.push("events wait without a handler".to_owned());
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let handling = began.elapsed();
    processor.stop(PATIENCE).await;
    let dead = source.dead_letters().await.map_err(said)?.letters;
    violations.extend(dead.iter().map(|dead| format!("{}: {}", dead.event.id, dead.error)));
    let (mut lags, mut acknowledged) = (Vec::new(), 0);
    for (at, (known, unknown)) in told.into_iter().enumerate() {
        let key = key(at);
        let head = world.read(&desk.heads, std::slice::from_ref(&key)).await?.pop().flatten();
        let counter = world.read(&desk.counters, std::slice::from_ref(&key)).await?.pop().flatten();
        let entries = world.log(&desk.heads, &desk.handled, &key).await?;
        let parsed =
            |entry: Option<Value>| entry.and_then(|entry| serde_json::from_value(entry).ok());
        let handled: Vec<Option<Handled>> = entries.into_iter().map(parsed).collect();
        lags.extend(handled.iter().flatten().map(|one| one.lag_ms));
        acknowledged += known;
        let (committed, sum) = (number(counter.as_ref(), "n"), number(head.as_ref(), "sum"));
        let history = History { committed, acknowledged: known, unknown, handled, sum };
        violations.extend(check(&key, &history));
    }
    if lags.is_empty() {
        violations.push("nothing was handled".to_owned());
    }
    let acknowledged = usize::try_from(acknowledged).unwrap_or(0);
    let mut lines = vec![
        ("seconds".to_owned(), plan.span.as_secs()),
        ("events emitted, acknowledged".to_owned(), acknowledged as u64),
        rate("  per second", acknowledged, emitting),
        ("events handled".to_owned(), lags.len() as u64),
        rate("  per second", lags.len(), handling),
    ];
    lines.extend(spread("lag", lags));
    lines.extend(course.counted());
    world.domain.shutdown(PATIENCE).await;
    Ok(Report::of(lines, violations, fixture).await)
}

/// Handles events until the process is killed.
pub(crate) async fn work(world: &World, lease: Duration) -> Result<(), String> {
    let desk = Desk::open(world).await?;
    let _processor = desk.start(lease).await?;
    std::future::pending().await
}

fn key(at: usize) -> String {
    format!("k{at}")
}

#[derive(Clone, Debug)]
struct Desk {
    world: World,
    outbox: Outbox,
    counters: Documents,
    heads: Documents,
    handled: Documents,
}

impl Desk {
    async fn open(world: &World) -> Result<Self, String> {
        let outbox = Outbox::open(&world.domain, OutboxConfig::default()).await.map_err(said)?;
        Ok(Self {
            world: world.clone(),
            outbox,
            counters: world.documents("counters").await?,
            heads: world.documents("heads").await?,
            handled: world.documents("handled").await?,
        })
    }

    async fn start(&self, lease: Duration) -> Result<Processor, String> {
        let config =
            ProcessorConfig::default().with_lease(lease).with_delay(Duration::from_millis(250));
        // No event is to blame for killed processes.
        let config = config.with_max_unfinished(u32::MAX);
        let topics = Topics::new().with("torture", self.clone());
        let source = self.outbox.source();
        Processor::start(&self.world.domain, source, config, topics).await.map_err(said)
    }

    /// Emits events, and returns the acknowledged and unknown transactions of each key.
    async fn emit_until(&self, until: Instant) -> Result<Vec<(i64, i64)>, String> {
        let mut told = vec![(0, 0); KEYS];
        while Instant::now() < until {
            let at = fastrand::usize(..KEYS);
            let commits = fastrand::u8(..10) > 0;
            match self.emit(&key(at), commits).await {
                Ok(()) => told[at].0 += 1,
                // Aborted on purpose.
                Err(OutboxError::NotFound(_)) => {}
                Err(OutboxError::Engine(error)) if error.kind() == ErrorKind::Unknown => {
                    told[at].1 += 1;
                }
                Err(OutboxError::Engine(error))
                    if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Unavailable) => {}
                Err(OutboxError::Full { .. }) => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(told)
    }

    async fn emit(&self, key: &str, commits: bool) -> Result<(), OutboxError> {
        self.world
            .domain
            .transact(async |tx| {
                let n = number(tx.get(&self.counters, key).await?.as_ref(), "n") + 1;
                tx.put(&self.counters, key, &json!({"n": n}))?;
                let payload = json!({"number": n, "commits": commits});
                self.outbox.emit(tx, "torture", key, &payload).await?;
                match commits {
                    true => Ok(()),
                    false => Err(OutboxError::NotFound("aborted on purpose".to_owned())),
                }
            })
            .await
    }
}

#[async_trait::async_trait]
impl Handler for Desk {
    async fn handle(&self, delivery: Delivery) -> Result<(), Failure> {
        let event = delivery.event();
        let payload: Value = event.payload()?;
        let now = txn_lock::instance::wall_ms(&self.world.domain);
        let handled = Handled {
            event: event.id.clone(),
            number: number(Some(&payload), "number"),
            commits: payload["commits"].as_bool().unwrap_or(false),
            lag_ms: now.saturating_sub(event.emitted_ms),
        };
        let (key, entry) = (event.queue.key().to_owned(), json!(handled));
        delivery
            .transact::<_, Failure, _>(async |tx| {
                let log = (&self.heads, &self.handled);
                Ok(append(tx, log, &key, &entry, handled.number).await?)
            })
            .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(numbers: &[i64]) -> History {
        let one = |number: &i64| {
            let event = format!("torture/{number}/k");
            Some(Handled { event, number: *number, commits: true, lag_ms: 1 })
        };
        let (committed, handled) = (numbers.len() as i64, numbers.iter().map(one).collect());
        let sum = numbers.iter().sum();
        History { committed, acknowledged: committed, unknown: 0, handled, sum }
    }

    #[test]
    fn sound_histories_pass() {
        assert_eq!(check("k", &history(&[1, 2, 3])), [""; 0]);
        assert_eq!(
            check("k", &History { acknowledged: 2, unknown: 1, ..history(&[1, 2, 3]) }),
            [""; 0]
        );
        assert_eq!(check("k", &History::default()), [""; 0]);
    }

    #[test]
    fn each_break_is_found() {
        let found = |broken: &History, what: &str| {
            let wrong = check("k", broken);
            assert!(wrong.iter().any(|line| line.contains(what)), "{what}: {wrong:?}");
        };
        found(&History { committed: 3, ..history(&[1, 2]) }, "2 were handled of 3");
        found(
            &History { committed: 3, acknowledged: 3, ..history(&[1, 2]) },
            "2 were handled of 3",
        );
        found(&history(&[1, 3, 2]), "has the number 3, not 2");
        found(&history(&[1, 2, 2]), "handled twice");
        found(
            &History { committed: 2, acknowledged: 2, ..history(&[1, 2, 2]) },
            "has the number 2, not 3",
        );
        found(&History { acknowledged: 2, ..history(&[1]) }, "of 2 acknowledged");
        found(&History { sum: 4, ..history(&[1, 2]) }, "the sum is 4, not 3");
        let mut aborted = history(&[1, 2]);
        aborted.handled[1] = aborted.handled[1].take().map(|one| Handled { commits: false, ..one });
        found(&aborted, "is of an aborted transaction");
        let mut missing = history(&[1, 2]);
        missing.handled[0] = None;
        found(&missing, "is missing");
    }
}
