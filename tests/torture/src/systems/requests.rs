//! Requests, with killed and paused processors.
//!
//! Each accepted submission reaches one final state, with one effect or none.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use txn_core::{Error, ErrorKind};
use txn_fixtures::fixture::Fixture;
use txn_requests::{
    Condition, Expect, Operation, Request, RequestError, Requests, RequestsConfig, State, Target,
};

use super::Plan;
use super::crew::Crew;
use super::world::{Documents, PATIENCE, World, number, rate, said, spread};
use crate::report::Report;

const ACCOUNTS: usize = 12;

/// The opening balance of each account.
const OPENING: i64 = 1_000_000;

/// The number of concurrent clients.
const CLIENTS: usize = 6;

/// The number of requests that a client submits before it waits.
const BURST: usize = 4;

/// The expected fate of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The request is valid, and no client cancels it.
    Commits,
    /// An operation of the request is refused.
    IsRefused,
    /// A client cancels a valid request. Either may come first.
    Either,
}

/// An accepted request, and its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submission {
    /// The id of the request.
    pub id: String,
    /// The expected fate.
    pub fate: Fate,
    /// The source and the target of the amount.
    pub accounts: (usize, usize),
    /// The amount.
    pub amount: i64,
    /// The final state that its client saw, if any.
    pub told: Option<State>,
    /// The stored state at the end; `None` if the request is missing.
    pub stands: Option<State>,
    /// The number of effects, as a document counts them.
    pub effects: i64,
}

/// Returns the violations of accepted requests and of the accounts.
#[must_use]
pub fn check(submissions: &[Submission], balances: &BTreeMap<usize, i64>) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut wanted: BTreeMap<usize, i64> = (0..ACCOUNTS).map(|at| (at, OPENING)).collect();
    for one in submissions {
        let Submission { id, fate, accounts: (from, to), amount, told, stands, effects } = one;
        let Some(stands) = stands else {
            wrong.push(format!("{id}: it was accepted, and is not there"));
            continue;
        };
        let committed = stands.is_committed();
        if !committed && *stands != State::RolledBack {
            wrong.push(format!("{id}: its state is {stands}"));
        }
        if told.is_some_and(|told| told.is_committed() != committed) {
            wrong.push(format!("{id}: its client was told {told:?}, and its state is {stands}"));
        }
        match (fate, committed) {
            (Fate::Commits, false) => wrong.push(format!("{id}: it is valid, and {stands}")),
            (Fate::IsRefused, true) => wrong.push(format!("{id}: it had to be refused")),
            _ => {}
        }
        if *effects != i64::from(committed) {
            wrong.push(format!("{id}: its state is {stands}, with {effects} effects"));
        }
        if committed {
            *wanted.entry(*from).or_default() -= amount;
            *wanted.entry(*to).or_default() += amount;
        }
    }
    for (at, balance) in wanted {
        let found = balances.get(&at).copied().unwrap_or_default();
        if found != balance {
            wrong.push(format!("the account {at} holds {found}, not {balance}"));
        }
    }
    wrong
}

pub(crate) async fn run(plan: &Plan) -> Result<Report, String> {
    let fixture = Fixture::at(&plan.url).await;
    let world = World::open(&plan.url, fixture.domain_name(), plan.lease).await?;
    let desk = Desk::open(&world, plan.lease).await?;
    desk.fund().await?;
    let crew = Crew::start(plan, fixture.domain_name());
    let began = Instant::now();
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..CLIENTS {
        let (desk, span) = (desk.clone(), plan.span);
        clients.spawn(async move { desk.submit_until(client, Instant::now() + span).await });
    }
    let mut submissions = Vec::new();
    while let Some(of_one) = clients.join_next().await {
        submissions.extend(of_one.map_err(said)??);
    }
    let submitting = began.elapsed();
    let course = crew.end().await?;
    let mut violations = course.violations();
    // The check processes the remaining requests, without kills.
    let processor = desk.requests.start(None);
    let mut spans = Vec::new();
    let until = Instant::now() + PATIENCE;
    for one in &mut submissions {
        loop {
            let status = match desk.requests.status(&one.id).await {
                Ok(status) => status,
                Err(RequestError::NotFound(_)) => break,
                Err(error) => return Err(error.to_string()),
            };
            one.stands = Some(status.state);
            let is_final = matches!(status.state, State::Finished | State::RolledBack);
            if is_final || status.state == State::Quarantined || Instant::now() > until {
                let committed = status.times.committed_ms;
                spans.extend(committed.map(|at| at.saturating_sub(status.times.created_ms)));
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    if submissions.iter().any(|one| one.stands == Some(State::Committed)) {
        violations.push("a committed request is never marked as finished".to_owned());
    }
    let ids: Vec<String> = submissions.iter().map(|one| one.id.clone()).collect();
    for (one, mark) in submissions.iter_mut().zip(world.read(&desk.marks, &ids).await?) {
        one.effects = number(mark.as_ref(), "n");
    }
    let ids: Vec<String> = (0..ACCOUNTS).map(account).collect();
    let found = world.read(&desk.accounts, &ids).await?;
    let balances = found.iter().map(|found| number(found.as_ref(), "n")).enumerate().collect();
    violations.extend(check(&submissions, &balances));
    let committed = spans.len();
    if committed == 0 {
        violations.push("nothing was committed".to_owned());
    }
    let mut lines = vec![
        ("seconds".to_owned(), plan.span.as_secs()),
        ("submissions accepted".to_owned(), submissions.len() as u64),
        rate("  per second", submissions.len(), submitting),
        ("submissions sent twice".to_owned(), desk.repeated.load(Ordering::Relaxed)),
        ("committed".to_owned(), committed as u64),
        ("rolled back".to_owned(), submissions.len().saturating_sub(committed) as u64),
    ];
    lines.extend(spread("submitted to committed", spans));
    lines.extend(course.counted());
    processor.stop(PATIENCE).await;
    desk.requests.shutdown(PATIENCE).await;
    world.domain.shutdown(PATIENCE).await;
    Ok(Report::of(lines, violations, fixture).await)
}

/// Processes requests until the process is killed.
pub(crate) async fn work(world: &World, lease: Duration) -> Result<(), String> {
    let requests = open(world, lease).await?;
    let _processor = requests.start(None);
    std::future::pending().await
}

async fn open(world: &World, lease: Duration) -> Result<Requests, String> {
    let config = RequestsConfig::default()
        .with_lease(lease)
        .with_poll(Duration::from_millis(250))
        .with_recover_every(Duration::from_secs(2))
        .with_recover_after(lease)
        // A request is not to blame for killed processors.
        .with_max_failures(10_000)
        .with_max_deaths(10_000);
    Requests::open(&world.domain, config).await.map_err(said)
}

fn account(at: usize) -> String {
    format!("a{at}")
}

#[derive(Clone, Debug)]
struct Desk {
    world: World,
    requests: Requests,
    accounts: Documents,
    marks: Documents,
    repeated: Arc<AtomicU64>,
}

impl Desk {
    async fn open(world: &World, lease: Duration) -> Result<Self, String> {
        Ok(Self {
            world: world.clone(),
            requests: open(world, lease).await?,
            accounts: world.documents("accounts").await?,
            marks: world.documents("marks").await?,
            repeated: Arc::default(),
        })
    }

    async fn fund(&self) -> Result<(), String> {
        let opened = self.world.domain.transact::<_, Error, _>(async |tx| {
            (0..ACCOUNTS)
                .try_for_each(|at| tx.insert(&self.accounts, account(at), &json!({"n": OPENING})))
        });
        opened.await.map_err(said)
    }

    async fn submit_until(&self, client: usize, until: Instant) -> Result<Vec<Submission>, String> {
        let mut all = Vec::new();
        for burst in 0.. {
            if Instant::now() > until {
                break;
            }
            let mut submissions: Vec<Submission> =
                (0..BURST).map(|at| invent(format!("r{client}-{burst}-{at}"))).collect();
            let marked = self.world.domain.transact::<_, Error, _>(async |tx| {
                let mut each = submissions.iter();
                each.try_for_each(|one| tx.put(&self.marks, &one.id, &json!({"n": 0})))
            });
            if marked.await.is_err() {
                continue;
            }
            let mut accepted = Vec::new();
            for one in submissions.drain(..) {
                if self.submit(&one).await? {
                    accepted.push(one);
                }
            }
            for one in &mut accepted {
                let wait = until.saturating_duration_since(Instant::now()) + Duration::from_secs(5);
                match self.requests.wait(&one.id, wait).await {
                    Ok(status) => one.told = Some(status.state),
                    Err(error) if is_transient_or_unknown(&error) => {}
                    Err(error) => return Err(error.to_string()),
                }
            }
            all.extend(accepted);
        }
        Ok(all)
    }

    /// Submits a request, sometimes twice.
    ///
    /// A client repeats its request after a lost answer in the same way. Returns whether the
    /// request was accepted.
    async fn submit(&self, one: &Submission) -> Result<bool, String> {
        let (request, twice) = (self.request(one), fastrand::u8(..5) == 0);
        let mut accepted = false;
        for _ in 0..=usize::from(twice) {
            match self.requests.submit(&request, &one.id).await {
                Ok(_) => accepted = true,
                Err(RequestError::Engine(error)) if error.kind() == ErrorKind::Unknown => {
                    // The second submission settles the first one.
                    self.requests.submit(&request, &one.id).await.map_err(said)?;
                    accepted = true;
                }
                Err(error) if is_transient_or_unknown(&error) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        self.repeated.fetch_add(u64::from(twice), Ordering::Relaxed);
        if accepted && one.fate == Fate::Either {
            tokio::time::sleep(Duration::from_millis(fastrand::u64(..300))).await;
            match self.requests.cancel(&one.id, "on purpose").await {
                Ok(_) | Err(RequestError::WrongState { .. }) => {}
                Err(error) if is_transient_or_unknown(&error) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(accepted)
    }

    fn request(&self, one: &Submission) -> Request {
        let (from, to) = one.accounts;
        let of = |collection: &str, id: String| Target::new(self.world.collection(collection), id);
        let mut operations = vec![
            Operation::add(of("accounts", account(from)), "/n", -one.amount),
            Operation::add(of("accounts", account(to)), "/n", one.amount),
            Operation::add(of("marks", one.id.clone()), "/n", 1),
        ];
        if one.fate == Fate::IsRefused {
            let (target, that) = (of("marks", "stranger".to_owned()), Condition::Exists(true));
            operations.push(Operation::Expect(Expect { target, that }));
        }
        Request::new(operations)
    }
}

fn is_transient_or_unknown(error: &RequestError) -> bool {
    use ErrorKind::{Conflict, Unavailable, Unknown};
    match error {
        RequestError::Busy { .. }
        | RequestError::TooManyScheduled { .. }
        | RequestError::Timeout { .. }
        | RequestError::Store(_) => true,
        RequestError::Engine(error) => matches!(error.kind(), Conflict | Unavailable | Unknown),
        _ => false,
    }
}

fn invent(id: String) -> Submission {
    let from = fastrand::usize(..ACCOUNTS);
    let to = (from + fastrand::usize(1..ACCOUNTS)) % ACCOUNTS;
    let fate = match fastrand::u8(..10) {
        0 => Fate::IsRefused,
        1 => Fate::Either,
        _ => Fate::Commits,
    };
    let (accounts, amount) = ((from, to), fastrand::i64(1..100));
    Submission { id, fate, accounts, amount, told: None, stands: None, effects: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(fate: Fate, stands: State, effects: i64) -> Submission {
        let (told, stands) = (Some(stands), Some(stands));
        Submission { id: "r".to_owned(), fate, accounts: (0, 1), amount: 5, told, stands, effects }
    }

    fn balances(moved: i64) -> BTreeMap<usize, i64> {
        let of = |at| match at {
            0 => OPENING - moved,
            1 => OPENING + moved,
            _ => OPENING,
        };
        (0..ACCOUNTS).map(|at| (at, of(at))).collect()
    }

    #[test]
    fn sound_histories_pass() {
        let all = [
            one(Fate::Commits, State::Finished, 1),
            one(Fate::IsRefused, State::RolledBack, 0),
            one(Fate::Either, State::RolledBack, 0),
            one(Fate::Either, State::Finished, 1),
        ];
        assert_eq!(check(&all, &balances(10)), [""; 0]);
    }

    #[test]
    fn each_break_is_found() {
        let found = |broken: &Submission, moved, what: &str| {
            let wrong = check(std::slice::from_ref(broken), &balances(moved));
            assert!(wrong.iter().any(|line| line.contains(what)), "{what}: {wrong:?}");
        };
        let sound = one(Fate::Commits, State::Finished, 1);
        found(&Submission { stands: None, ..sound.clone() }, 0, "is not there");
        found(
            &Submission { stands: Some(State::Pending), ..sound.clone() },
            0,
            "its state is pending",
        );
        found(&one(Fate::Commits, State::Quarantined, 0), 0, "its state is quarantined");
        found(&Submission { told: Some(State::RolledBack), ..sound.clone() }, 5, "was told");
        found(&one(Fate::Commits, State::RolledBack, 0), 0, "it is valid");
        found(&one(Fate::IsRefused, State::Finished, 1), 5, "had to be refused");
        found(&one(Fate::Commits, State::Finished, 2), 5, "with 2 effects");
        found(&one(Fate::Commits, State::Finished, 0), 5, "with 0 effects");
        found(&one(Fate::Either, State::RolledBack, 1), 0, "with 1 effects");
        found(&sound, 0, "the account 0 holds");
        found(&sound, 10, "the account 1 holds");
    }
}
