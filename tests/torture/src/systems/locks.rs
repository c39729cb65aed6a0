//! Locks with killed and paused holders.
//!
//! Tokens never go back, and effects of two holders never interleave.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use txn_core::Error;
use txn_fixtures::fixture::Fixture;
use txn_lock::{Guard, LockConfig, LockError, LockService};

use super::Plan;
use super::crew::Crew;
use super::world::{Documents, World, append, number, rate, said};
use crate::report::Report;

const LOCKS: [&str; 3] = ["a", "b", "c"];

/// The number of callers of each worker.
const CALLERS: usize = 4;

/// The output of a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Word {
    /// A lock was granted, with this token.
    Granted(String, u64),
    /// An effect under a lost lock was refused.
    Refused,
    /// A lock was not granted in time.
    Timeout,
    /// An operation of the engine failed.
    Failed,
}

/// An effect under a lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effect {
    /// The token of the grant.
    pub token: u64,
    /// Whether this is the last effect of the grant. Otherwise the effect is the first one.
    pub is_last: bool,
}

/// The history of one lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The granted tokens, as the holders reported, in any order.
    pub granted: Vec<u64>,
    /// The effects in their order; `None` for a missing one.
    pub effects: Vec<Option<Effect>>,
    /// The number of grants with a last effect, as the effects counted.
    pub counted: i64,
}

/// Returns the violations of a lock.
#[must_use]
pub fn check(lock: &str, history: &History) -> Vec<String> {
    let mut wrong = Vec::new();
    let granted: BTreeSet<u64> = history.granted.iter().copied().collect();
    if granted.len() < history.granted.len() {
        wrong.push(format!("{lock}: a token was granted twice"));
    }
    let (mut last, mut ended) = (None::<&Effect>, 0);
    for effect in &history.effects {
        let Some(effect) = effect else {
            wrong.push(format!("{lock}: an effect is missing"));
            continue;
        };
        let Effect { token, is_last } = effect;
        let before = last.replace(effect);
        ended += i64::from(*is_last);
        if !granted.contains(token) {
            wrong.push(format!(
                "{lock}: an effect under the token {token}, which was never granted"
            ));
        }
        match before {
            Some(before) if before.token > *token => wrong.push(format!(
                "{lock}: an effect under the token {token} after one under {}",
                before.token
            )),
            Some(before) if before.token == *token && (before.is_last || !is_last) => {
                wrong.push(format!("{lock}: the grant {token} had an effect twice"));
            }
            Some(before) if before.token < *token && *is_last => {
                wrong.push(format!("{lock}: another effect within those of the grant {token}"));
            }
            None if *is_last => {
                wrong.push(format!("{lock}: the grant {token} lost its first effect"));
            }
            _ => {}
        }
    }
    if ended != history.counted {
        wrong.push(format!("{lock}: {ended} grants ended, and {} were counted", history.counted));
    }
    wrong
}

pub(crate) async fn run(plan: &Plan) -> Result<Report, String> {
    let fixture = Fixture::at(&plan.url).await;
    let world = World::open(&plan.url, fixture.domain_name(), plan.lease).await?;
    let logs = Logs::open(&world).await?;
    let crew = Crew::start(plan, fixture.domain_name());
    tokio::time::sleep(plan.span).await;
    let course = crew.end().await?;
    let words: Vec<Word> =
        course.said().iter().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let mut violations = course.violations();
    // The workers that were killed last left locks. The check takes the locks over, with larger
    // tokens.
    let service = open(&world, plan.lease).await?;
    let mut granted: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for word in &words {
        if let Word::Granted(lock, token) = word {
            granted.entry(lock.clone()).or_default().push(*token);
        }
    }
    let mut effects_in_all = 0;
    for lock in LOCKS {
        let guard = service.lock("torture", lock, super::world::PATIENCE).await.map_err(said)?;
        let mut granted = granted.remove(lock).unwrap_or_default();
        if granted.iter().any(|token| *token >= guard.token()) {
            violations.push(format!("{lock}: the last token is not the largest"));
        }
        granted.push(guard.token());
        guard.unlock().await.map_err(said)?;
        let entries = world.log(&logs.heads, &logs.entries, lock).await?;
        let effect =
            |entry: Option<Value>| entry.and_then(|entry| serde_json::from_value(entry).ok());
        let effects: Vec<Option<Effect>> = entries.into_iter().map(effect).collect();
        effects_in_all += effects.len();
        let head = world.read(&logs.heads, &[lock.to_owned()]).await?.pop().flatten();
        let history = History { granted, effects, counted: number(head.as_ref(), "sum") };
        violations.extend(check(lock, &history));
    }
    let count = |of: fn(&Word) -> bool| words.iter().filter(|word| of(word)).count();
    let grants = count(|word| matches!(word, Word::Granted(..)));
    let mut lines = vec![
        ("seconds".to_owned(), plan.span.as_secs()),
        ("grants".to_owned(), grants as u64),
        rate("grants per second", grants, plan.span),
        ("effects under locks".to_owned(), effects_in_all as u64),
        (
            "effects refused, for the lock was lost".to_owned(),
            count(|w| *w == Word::Refused) as u64,
        ),
        ("waits that timed out".to_owned(), count(|w| *w == Word::Timeout) as u64),
        ("calls that the engine could not do".to_owned(), count(|w| *w == Word::Failed) as u64),
    ];
    if grants == 0 || effects_in_all == 0 {
        violations.push("nothing was done under any lock".to_owned());
    }
    lines.extend(course.counted());
    service.shutdown(super::world::PATIENCE).await;
    world.domain.shutdown(super::world::PATIENCE).await;
    Ok(Report::of(lines, violations, fixture).await)
}

async fn open(world: &World, lease: Duration) -> Result<LockService, String> {
    let config = LockConfig::default().with_lease(lease);
    LockService::open(&world.domain, config).await.map_err(said)
}

#[derive(Clone, Debug)]
struct Logs {
    heads: Documents,
    entries: Documents,
}

impl Logs {
    async fn open(world: &World) -> Result<Self, String> {
        let (heads, entries) = (world.documents("heads").await?, world.documents("effects").await?);
        Ok(Self { heads, entries })
    }
}

/// Takes locks, and has effects under them, until the process is killed.
pub(crate) async fn work(world: &World, lease: Duration) -> Result<(), String> {
    let service = open(world, lease).await?;
    let logs = Logs::open(world).await?;
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..CALLERS {
        let (service, logs) = (service.clone(), logs.clone());
        callers.spawn(async move {
            loop {
                let lock = LOCKS[fastrand::usize(..LOCKS.len())];
                let word = match service.lock("torture", lock, Duration::from_secs(10)).await {
                    Ok(guard) => hold(&logs, lock, guard).await,
                    Err(error) => Err(error),
                };
                match word {
                    Ok(()) => {}
                    Err(LockError::Lost { .. }) => say(&Word::Refused),
                    Err(LockError::Timeout(_)) => say(&Word::Timeout),
                    Err(LockError::Engine(_) | LockError::Store(_)) => say(&Word::Failed),
                    Err(error) => return error.to_string(),
                }
            }
        });
    }
    let ended = callers.join_next().await;
    Err(format!("a caller ended: {ended:?}"))
}

async fn hold(logs: &Logs, lock: &str, guard: Guard) -> Result<(), LockError> {
    say(&Word::Granted(lock.to_owned(), guard.token()));
    let fenced = guard.fenced();
    for is_last in [false, true] {
        let entry = json!(Effect { token: guard.token(), is_last });
        let done = fenced.transact::<_, LockError, _>(async |tx| {
            let amount = i64::from(is_last);
            append(tx, (&logs.heads, &logs.entries), lock, &entry, amount).await.map_err(once)
        });
        done.await?;
        tokio::time::sleep(Duration::from_millis(fastrand::u64(0..4))).await;
    }
    guard.unlock().await
}

fn once(error: Error) -> LockError {
    error.into()
}

fn say(word: &Word) {
    if let Ok(line) = serde_json::to_string(word) {
        println!("{line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(granted: &[u64], effects: &[(u64, bool)], counted: i64) -> History {
        let effects =
            effects.iter().map(|(token, is_last)| Effect { token: *token, is_last: *is_last });
        History { granted: granted.to_vec(), effects: effects.map(Some).collect(), counted }
    }

    #[test]
    fn sound_histories_pass() {
        // One holder was killed between its effects, one before the first.
        let effects = [(1, false), (1, true), (2, false), (4, false), (4, true)];
        assert_eq!(check("a", &history(&[4, 1, 3, 2], &effects, 2)), [""; 0]);
        assert_eq!(check("a", &History::default()), [""; 0]);
    }

    #[test]
    fn each_break_is_found() {
        let found = |broken: &History, what: &str| {
            let wrong = check("a", broken);
            assert!(wrong.iter().any(|line| line.contains(what)), "{what}: {wrong:?}");
        };
        found(&history(&[1, 1], &[], 0), "granted twice");
        found(&history(&[], &[(1, false)], 0), "which was never granted");
        let back = [(2, false), (1, true)];
        found(&history(&[1, 2], &back, 1), "after one under 2");
        let between = [(1, false), (2, false), (2, true), (1, true)];
        found(&history(&[1, 2], &between, 2), "after one under 2");
        found(&history(&[1, 2], &[(1, false), (2, true)], 1), "within those");
        found(&history(&[1], &[(1, false), (1, false)], 0), "twice");
        found(&history(&[1], &[(1, false), (1, true), (1, true)], 2), "twice");
        found(&history(&[1], &[(1, true)], 1), "lost its first");
        found(&history(&[1], &[(1, false), (1, true)], 2), "were counted");
        let missing = History { effects: vec![None], ..History::default() };
        found(&missing, "is missing");
    }
}
