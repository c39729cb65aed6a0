//! The open requests that this process may execute.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use txn_core::scan::{candidates, candidates_from};
use txn_core::store::Cursor;
use txn_lock::instance::{Dead, wall_ms};

use crate::contents::selection::Selection;
use crate::error::Result;
use crate::model::{Entry, State};
use crate::processing::inner::{Inner, Rest, due_states, readable};

/// The maximum number of requests per poll, except locked ones.
///
/// Any number of requests may become due at the same moment. The next poll continues.
const LOOK: usize = 1_000;

/// The result of one poll.
pub(crate) struct Work {
    /// The requests, oldest first. Each comes with evidence if its processor is dead.
    pub(crate) requests: Vec<(Entry, Option<Dead>)>,
    /// Whether the poll was bounded, and more requests may be due.
    pub(crate) leaves_some: bool,
}

impl Inner {
    /// The due requests that this process may execute.
    pub(crate) async fn find_work(&self, application: Option<&str>) -> Result<Work> {
        self.find_work_of(application, LOOK).await
    }

    /// As [`Inner::find_work`], from about `most` requests.
    async fn find_work_of(&self, application: Option<&str>, most: usize) -> Result<Work> {
        let selection = Selection::default()
            .with_states([State::Created, State::Pending])
            .with_application_name(application);
        let now = wall_ms(&self.domain);
        let (ids, next) = self.due_ids(application, now, most).await?;
        let mut found = readable(self.select_of(ids, &selection).await?).into_iter();
        let mut requests = Vec::new();
        while requests.len() < self.config.batch {
            let Some(entry) = found.next() else { break };
            // Requests that only other processes can execute must not fill the batch.
            let is_early = entry.earliest_ms() > now;
            let cannot = is_early || self.is_deferred(&entry.id) || !self.can_emit(&entry.request);
            if cannot || self.working.lock().contains(&entry.id) {
                continue;
            }
            if let Some(dead) = self.may_take(&entry).await? {
                requests.push((entry, dead));
            }
        }
        let leaves_some = next.is_some() || requests.len() >= self.config.batch;
        // A poll that is not bounded keeps no rest: the next one begins again.
        if let Some(next) = next {
            let ids = found.map(|entry| entry.id.into()).collect();
            self.rests.lock().insert(application.map(str::to_owned), Rest { ids, next });
        }
        Ok(Work { requests, leaves_some })
    }

    /// Finds requests that may be due, and the cursor after them.
    ///
    /// The result has the ids of the requests.
    ///
    /// Continues at the rest of the last poll.
    async fn due_ids(
        &self,
        application: Option<&str>,
        now_ms: u64,
        most: usize,
    ) -> Result<(BTreeSet<Arc<str>>, Option<Cursor>)> {
        let filter = || due_states([State::Created, State::Pending], now_ms);
        let rest = self.rests.lock().remove(&application.map(str::to_owned));
        let from = match rest {
            Some(Rest { ids, next }) if !ids.is_empty() => return Ok((ids, Some(next))),
            rest => rest.map(|rest| rest.next),
        };
        let (goes_on, of) = (from.is_some(), self.entries.name());
        match candidates_from(&self.domain, of, filter(), most, from).await {
            // The cursor has expired, or the store has lost it. The scan is unbounded, because
            // bounded polls from the start might never advance.
            Err(_) if goes_on => {
                Ok((candidates(&self.domain, of, filter(), usize::MAX).await?, None))
            }
            found => Ok(found?),
        }
    }

    /// Whether a request is free. The inner value is evidence of a dead processor.
    pub(crate) async fn may_take(&self, entry: &Entry) -> Result<Option<Option<Dead>>> {
        let claim = match &entry.claim {
            Some(claim) if entry.state == State::Pending => claim,
            _ => return Ok(Some(None)),
        };
        if claim.instance == self.instances.id() {
            return Ok(Some(None));
        }
        let lease = Duration::from_millis(claim.lease_ms);
        Ok(self.instances.look(&claim.instance, lease).await?.map(Some))
    }

    pub(crate) fn is_deferred(&self, id: &str) -> bool {
        self.deferred.lock().get(id).is_some_and(|deferral| deferral.until > self.now())
    }
}

#[cfg(test)]
mod tests {
    use txn_core::store::MemoryStore;
    use txn_core::{Config, Domain};

    use super::*;
    use crate::config::RequestsConfig;
    use crate::contents::request::{Document, Operation, Request, Target};
    use crate::error::RequestError;
    use crate::requests::Requests;

    fn put() -> Request {
        let document = Document::new(&serde_json::json!({ "n": 1 })).unwrap();
        Request::new(vec![Operation::put(Target::new("items", "x"), document)])
    }

    async fn open(config: RequestsConfig) -> (Domain, Requests) {
        let store = Arc::new(MemoryStore::new());
        let of_domain = Config::default().with_janitor_interval(None);
        let domain = Domain::open_or_create(store, "test", of_domain).await.unwrap();
        domain.create_collection::<txn_core::Raw>("items", None).await.unwrap();
        let requests = Requests::open(&domain, config).await.unwrap();
        (domain, requests)
    }

    fn tomorrow_ms(domain: &Domain) -> u64 {
        wall_ms(domain) + 86_400_000
    }

    /// Each poll is bounded. All polls together find every due request, and no other one.
    #[tokio::test]
    async fn polls_are_bounded_and_continue() {
        const DUE: usize = 1_200;
        let (domain, requests) = open(RequestsConfig::default().with_batch(400)).await;
        let inner = &requests.inner;
        let request = put();
        let late = request.clone().with_not_before_ms(tomorrow_ms(&domain));
        for at in 0..DUE {
            requests.submit(&request, &format!("due-{at:05}")).await.unwrap();
            requests.submit(&late, &format!("late-{at:05}")).await.unwrap();
        }
        let report = domain.barrier(Duration::from_secs(60)).await.unwrap();
        report.into_result().unwrap();
        let (mut found, mut polls) = (Vec::new(), 0);
        loop {
            let Work { requests, leaves_some } = inner.find_work_of(None, 500).await.unwrap();
            found.extend(requests.into_iter().map(|(entry, _)| entry.id));
            polls += 1;
            assert!(polls <= 10, "they go on for ever");
            if !leaves_some {
                break;
            }
        }
        assert!(polls >= 5, "{polls}");
        found.sort();
        assert_eq!(found, (0..DUE).map(|at| format!("due-{at:05}")).collect::<Vec<_>>());
        // A poll with a lost cursor finds all requests at once.
        let rest = Rest { ids: BTreeSet::new(), next: Cursor("lost".to_owned()) };
        inner.rests.lock().insert(None, rest);
        let (ids, next) = inner.due_ids(None, wall_ms(&domain), 500).await.unwrap();
        assert_eq!((ids.len(), next), (DUE, None));
    }

    #[tokio::test]
    async fn requests_before_their_moment_are_not_open() {
        let (domain, requests) = open(RequestsConfig::default().with_max_open(2)).await;
        let request = put();
        let late = request.clone().with_not_before_ms(tomorrow_ms(&domain));
        for at in 0..5 {
            requests.submit(&late, &format!("late-{at}")).await.unwrap();
        }
        let report = domain.barrier(Duration::from_secs(60)).await.unwrap();
        report.into_result().unwrap();
        requests.submit(&request, "1").await.unwrap();
        requests.submit(&request, "2").await.unwrap();
        requests.submit(&request, "3").await.expect_err("two requests are open");
        requests.submit(&late, "late").await.unwrap();
        assert_eq!(requests.process_open(None).await.unwrap().committed, 2);
        requests.submit(&request, "3").await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn requests_before_their_moment_have_a_limit() {
        let config = RequestsConfig::default().with_max_scheduled(3);
        let (domain, requests) = open(config).await;
        let request = put();
        let late = request.clone().with_not_before_ms(tomorrow_ms(&domain));
        requests.submit(&request, "due").await.unwrap();
        for at in 0..3 {
            requests.submit(&late, &format!("late-{at}")).await.unwrap();
        }
        let refused = requests.submit(&late, "late-3").await.expect_err("three requests wait");
        assert!(
            matches!(refused, RequestError::TooManyScheduled { waiting: 3, most: 3 }),
            "{refused}"
        );
        // The same submission again is accepted, and due requests have their own limit.
        requests.submit(&late, "late-0").await.unwrap();
        requests.submit(&request, "due-2").await.unwrap();
        requests.cancel("late-0", "no longer wanted").await.unwrap();
        let report = domain.barrier(Duration::from_secs(60)).await.unwrap();
        report.into_result().unwrap();
        domain.config().clock().sleep(Duration::from_secs(2)).await;
        requests.submit(&late, "late-3").await.unwrap();
        requests.submit(&late, "late-4").await.expect_err("three requests wait");
    }

    #[tokio::test]
    async fn moment_beyond_the_longest_delay_is_refused() {
        let (domain, requests) = open(RequestsConfig::default()).await;
        // Microseconds in place of milliseconds.
        for not_before_ms in [u64::MAX, wall_ms(&domain) * 1_000] {
            let late = put().with_not_before_ms(not_before_ms);
            let refused = requests.submit(&late, "late").await.expect_err("too far");
            let is_named = refused.to_string().contains("milliseconds since 1970");
            assert!(matches!(refused, RequestError::Invalid(_)) && is_named, "{refused}");
        }
        let (domain, requests) =
            open(RequestsConfig::default().with_max_delay(Duration::from_secs(60))).await;
        let now_ms = wall_ms(&domain);
        let late = |ms: u64| put().with_not_before_ms(now_ms + ms);
        requests.submit(&late(59_000), "near").await.unwrap();
        requests.submit(&late(86_400_000), "far").await.expect_err("too far");
    }
}
