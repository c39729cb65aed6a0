//! The gateway is killed every few seconds.
//!
//! Clients repeat requests under their keys.
//!
//! Each acknowledged request has one effect, however often its client had to send the request.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use txn_core::Error;
use txn_fixtures::fixture::Fixture;
use txn_serve::{ServeConfig, Server};

use super::crew::{Course, Worker};
use super::world::{Documents, PATIENCE, World, number, rate, said, spread};
use super::{Job, Plan};
use crate::report::Report;

/// The time between two kills.
const LIFE: Duration = Duration::from_secs(5);

/// The number of concurrent clients.
const CLIENTS: usize = 24;

const ACCOUNTS: usize = 40;

/// The pause of a client before it sends a request again.
const PAUSE: Duration = Duration::from_millis(50);

/// Runs a gateway until the process is killed.
pub(crate) async fn work(world: &World, job: &Job) -> Result<(), String> {
    let listener = TcpListener::bind(job.listen.as_str()).await.map_err(said)?;
    let server = Server::new(&world.domain, ServeConfig::default()).map_err(said)?;
    server.serve(listener, std::future::pending()).await;
    Ok(())
}

/// The requests of one client, and their effects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// Acknowledged requests.
    pub acknowledged: i64,
    /// Requests whose refusal was acknowledged.
    pub refused: i64,
    /// The effects, as a document counts them.
    pub effects: i64,
    /// The changes of each account by the acknowledged requests.
    pub moved: BTreeMap<usize, i64>,
}

/// Returns the violations of acknowledged requests and of the accounts.
#[must_use]
pub fn check(served: &[Served], balances: &BTreeMap<usize, i64>) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut wanted: BTreeMap<usize, i64> = BTreeMap::new();
    for (client, Served { acknowledged, effects, moved, .. }) in served.iter().enumerate() {
        if acknowledged != effects {
            wrong.push(format!("client {client}: {acknowledged} acknowledged, {effects} effects"));
        }
        for (at, amount) in moved {
            *wanted.entry(*at).or_default() += amount;
        }
    }
    for at in 0..ACCOUNTS {
        let of = |balances: &BTreeMap<usize, i64>| balances.get(&at).copied().unwrap_or_default();
        let (wanted, found) = (of(&wanted), of(balances));
        if wanted != found {
            wrong.push(format!("the account {at} holds {found}, not {wanted}"));
        }
    }
    wrong
}

pub(crate) async fn run(plan: &Plan) -> Result<Report, String> {
    let fixture = Fixture::at(&plan.url).await;
    let world = World::open(&plan.url, fixture.domain_name(), plan.lease).await?;
    let desk = Desk::open(&world, &free_address().await?, CLIENTS).await?;
    let job = plan.job(fixture.domain_name(), desk.listen.clone());
    let course = Arc::new(Course::default());
    let mut gateway = Worker::start(&plan.binary, &job, &course)?;
    desk.until_ready().await?;
    let began = Instant::now();
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..CLIENTS {
        let (desk, until) = (desk.clone(), began + plan.span);
        clients.spawn(async move { (client, desk.send_until(client, until).await) });
    }
    while began.elapsed() < plan.span {
        tokio::time::sleep(LIFE.min(plan.span)).await;
        gateway.kill().await?;
        course.note_kill();
        gateway = Worker::start(&plan.binary, &job, &course)?;
    }
    let mut served = vec![Served::default(); CLIENTS];
    let mut violations = Vec::new();
    while let Some(ended) = clients.join_next().await {
        match ended.map_err(said)? {
            (client, Ok(of_client)) => served[client] = of_client,
            (client, Err(why)) => violations.push(format!("client {client}: {why}")),
        }
    }
    let sending = began.elapsed();
    gateway.kill().await?;
    desk.count_effects(&mut served).await?;
    violations.extend(check(&served, &desk.balances().await?));
    let sum = |of: fn(&Served) -> i64| served.iter().map(of).sum::<i64>().unsigned_abs();
    let acknowledged = sum(|served| served.acknowledged);
    if acknowledged == 0 {
        violations.push("nothing was acknowledged".to_owned());
    }
    let mut lines = vec![
        ("seconds".to_owned(), plan.span.as_secs()),
        ("requests acknowledged".to_owned(), acknowledged),
        rate("  per second", usize::try_from(acknowledged).unwrap_or_default(), sending),
        ("refusals acknowledged".to_owned(), sum(|served| served.refused)),
        ("effects".to_owned(), sum(|served| served.effects)),
    ];
    lines.extend(desk.counts.lines());
    lines.extend(spread("request to acknowledgement", desk.counts.times.lock().clone()));
    lines.extend(course.counted().into_iter().take(1));
    world.domain.shutdown(PATIENCE).await;
    Ok(Report::of(lines, violations, fixture).await)
}

/// Counts of all clients.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    lost: AtomicU64,
    unavailable: AtomicU64,
    repeated: AtomicU64,
    times: parking_lot::Mutex<Vec<u64>>,
}

impl Counts {
    fn lines(&self) -> Vec<(String, u64)> {
        let of = |what: &str, count: &AtomicU64| (what.to_owned(), count.load(Ordering::Relaxed));
        vec![
            of("answers lost", &self.lost),
            of("answers with 429 or 503", &self.unavailable),
            of("acknowledged requests sent again", &self.repeated),
        ]
    }
}

/// The HTTP clients, and the documents that they change.
#[derive(Clone, Debug)]
pub(crate) struct Desk {
    world: World,
    accounts: Documents,
    counters: Documents,
    client: reqwest::Client,
    pub(crate) listen: String,
    counts: Arc<Counts>,
}

impl Desk {
    /// Creates the documents: accounts, and a counter for each client.
    pub(crate) async fn open(world: &World, listen: &str, clients: usize) -> Result<Self, String> {
        let desk = Self {
            world: world.clone(),
            accounts: world.documents("accounts").await?,
            counters: world.documents("counters").await?,
            client: reqwest::Client::builder().no_proxy().build().map_err(said)?,
            listen: listen.to_owned(),
            counts: Arc::default(),
        };
        let zero = json!({"n": 0});
        let opened = world.domain.transact::<_, Error, _>(async |tx| {
            (0..ACCOUNTS).try_for_each(|at| tx.insert(&desk.accounts, format!("a{at}"), &zero))?;
            (0..clients).try_for_each(|at| tx.insert(&desk.counters, format!("c{at}"), &zero))
        });
        opened.await.map_err(said)?;
        Ok(desk)
    }

    /// Waits until the gateway is ready.
    pub(crate) async fn until_ready(&self) -> Result<(), String> {
        let url = format!("http://{}/readyz", self.listen);
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            let ready = self.client.get(&url).send().await;
            if ready.is_ok_and(|ready| ready.status().is_success()) {
                return Ok(());
            }
            tokio::time::sleep(PAUSE).await;
        }
        Err("the gateway does not become ready".to_owned())
    }

    /// Sends one request after the other, each until it is acknowledged.
    async fn send_until(&self, client: usize, until: Instant) -> Result<Served, String> {
        let mut served = Served::default();
        for request in 0.. {
            if Instant::now() > until {
                break;
            }
            let (from, to, amount) = invent();
            let is_refused = fastrand::u8(..10) == 0;
            let body = self.transfer(client, (from, to, amount), is_refused);
            let key = format!("{client}-{request}");
            let (status, answer) = self.acknowledged(&key, &body).await?;
            if fastrand::u8(..5) == 0 {
                self.counts.repeated.fetch_add(1, Ordering::Relaxed);
                let again = self.acknowledged(&key, &body).await?;
                let same = |mut answer: Value| {
                    // The first answer names its transaction, a stored one does not.
                    answer.as_object_mut().map(|answer| answer.remove("tid"));
                    answer
                };
                if (again.0, same(again.1.clone())) != (status, same(answer.clone())) {
                    return Err(format!("{key} has two answers: {answer}, {}", again.1));
                }
            }
            match (status, is_refused) {
                (StatusCode::OK, false) => {
                    served.acknowledged += 1;
                    *served.moved.entry(from).or_default() -= amount;
                    *served.moved.entry(to).or_default() += amount;
                }
                (StatusCode::CONFLICT, true) => served.refused += 1,
                _ => return Err(format!("{key} was answered with {status}: {answer}")),
            }
        }
        Ok(served)
    }

    /// Sends a request until it is acknowledged.
    async fn acknowledged(&self, key: &str, body: &Value) -> Result<(StatusCode, Value), String> {
        let (began, until) = (Instant::now(), Instant::now() + PATIENCE);
        while Instant::now() < until {
            match self.send(Some(key), body).await {
                Err(_) => self.counts.lost.fetch_add(1, Ordering::Relaxed),
                Ok((StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE, _)) => {
                    self.counts.unavailable.fetch_add(1, Ordering::Relaxed)
                }
                // Each attempt conflicted with another transaction, and nothing was written.
                Ok((StatusCode::CONFLICT, answer)) if answer["code"] == "conflict" => 0,
                Ok(answered) => {
                    let took = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
                    self.counts.times.lock().push(took);
                    return Ok(answered);
                }
            };
            tokio::time::sleep(PAUSE).await;
        }
        Err(format!("{key} was never acknowledged"))
    }

    /// Sends a request once. An error means that no whole answer arrived.
    pub(crate) async fn send(
        &self,
        key: Option<&str>,
        body: &Value,
    ) -> Result<(StatusCode, Value), String> {
        let request = self.client.post(format!("http://{}/_txn", self.listen)).json(body);
        let request = match key {
            Some(key) => request.header("idempotency-key", key),
            None => request,
        };
        let answer = request.send().await.map_err(said)?;
        let status = answer.status();
        Ok((status, answer.json().await.map_err(said)?))
    }

    /// A transfer that also counts itself.
    pub(crate) fn transfer(
        &self,
        client: usize,
        (from, to, amount): (usize, usize, i64),
        is_refused: bool,
    ) -> Value {
        let target =
            |of: &str, id: String| json!({"collection": self.world.collection(of), "id": id});
        let add = |of: &str, id: String, amount: i64| json!({"add": {"target": target(of, id), "path": "/n", "amount": amount}});
        let mut operations = vec![
            add("accounts", format!("a{from}"), -amount),
            add("accounts", format!("a{to}"), amount),
            add("counters", format!("c{client}"), 1),
        ];
        if is_refused {
            let missing = target("accounts", "missing".to_owned());
            operations.push(json!({"expect": {"target": missing, "that": {"exists": true}}}));
        }
        json!({ "operations": operations })
    }

    /// Reads the counters of all clients.
    pub(crate) async fn count_effects(&self, served: &mut [Served]) -> Result<(), String> {
        let ids: Vec<String> = (0..served.len()).map(|at| format!("c{at}")).collect();
        let found = self.world.read(&self.counters, &ids).await?;
        for (served, counter) in served.iter_mut().zip(found) {
            served.effects = number(counter.as_ref(), "n");
        }
        Ok(())
    }

    pub(crate) async fn balances(&self) -> Result<BTreeMap<usize, i64>, String> {
        let ids: Vec<String> = (0..ACCOUNTS).map(|at| format!("a{at}")).collect();
        let found = self.world.read(&self.accounts, &ids).await?;
        Ok(found.iter().map(|found| number(found.as_ref(), "n")).enumerate().collect())
    }
}

/// Invents a transfer: two accounts, and an amount.
pub(crate) fn invent() -> (usize, usize, i64) {
    let from = fastrand::usize(..ACCOUNTS);
    (from, (from + fastrand::usize(1..ACCOUNTS)) % ACCOUNTS, fastrand::i64(1..100))
}

/// A loopback address with a port that is free now.
pub(crate) async fn free_address() -> Result<String, String> {
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(said)?;
    Ok(listener.local_addr().map_err(said)?.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_break_is_found() {
        let served = |effects, acknowledged| Served {
            acknowledged,
            effects,
            moved: BTreeMap::from([(0, -5), (1, 5)]),
            ..Served::default()
        };
        let balances = BTreeMap::from([(0, -5), (1, 5)]);
        assert_eq!(check(&[served(1, 1)], &balances), [""; 0]);
        for (broken, moved) in
            [(served(2, 1), 5), (served(0, 1), 5), (served(1, 1), 0), (served(1, 1), 10)]
        {
            let balances = BTreeMap::from([(0, -moved), (1, moved)]);
            assert_ne!(check(&[broken], &balances), [""; 0]);
        }
    }
}
