//! Fairness between processes: a bound on consecutive grants to one process.
//!
//! A process hands a lock to its next caller at once. Another process polls the lock with pauses
//! between polls. Without a bound the other process would almost never find the lock free.
//! Therefore the lock document lists the waiting processes in their order.

use std::time::Duration;

use crate::records::model::Waiter;

/// The maximum number of consecutive grants while another process waits.
const MOST_IN_A_ROW: u32 = 8;

/// The maximum number of processes in the list. Further processes join when the list is shorter.
const MOST_WAITING: usize = 64;

/// The consecutive grants of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tenure {
    /// The token of the last grant.
    token: u64,
    grants: u32,
    began: Duration,
}

impl Tenure {
    /// Counts a grant.
    pub(crate) fn granted(&mut self, token: u64, now: Duration) {
        let goes_on = self.grants > 0 && self.token + 1 == token;
        let (grants, began) = if goes_on { (self.grants + 1, self.began) } else { (1, now) };
        *self = Self { token, grants, began };
    }

    /// The token at which this process precedes the waiting processes.
    ///
    /// A free lock with this token had no other holder since. `None` after too many grants, or
    /// after too long a time.
    pub(crate) fn goes_on_at(&self, now: Duration, longest: Duration) -> Option<u64> {
        let lasts = self.grants < MOST_IN_A_ROW && now.saturating_sub(self.began) < longest;
        (self.grants > 0 && lasts).then_some(self.token)
    }
}

/// The next waiting instance, without the instances that were passed over.
pub(crate) fn next<'w>(waiting: &'w [Waiter], passed_over: &[String]) -> Option<&'w Waiter> {
    waiting.iter().find(|waiter| !passed_over.contains(&waiter.instance))
}

/// A process that requests a lock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Applicant<'a> {
    pub(crate) instance: &'a str,
    /// The token of [`Tenure::goes_on_at`].
    pub(crate) goes_on_at: Option<u64>,
    /// Instances that did not take the free lock within their patience.
    pub(crate) passed_over: &'a [String],
    /// The entry for the list of waiting processes. `None` if the applicant does not wait.
    pub(crate) waits_as: Option<&'a Waiter>,
    /// Whether more callers of this process wait.
    pub(crate) has_more: bool,
}

impl Applicant<'_> {
    /// The waiting instance that precedes this applicant at this token.
    pub(crate) fn turn_of_another<'w>(
        &self,
        token: u64,
        waiting: &'w [Waiter],
    ) -> Option<&'w Waiter> {
        let first = next(waiting, self.passed_over)?;
        let is_mine = first.instance == self.instance || self.goes_on_at == Some(token);
        (!is_mine).then_some(first)
    }

    /// Updates the list of waiting processes for a grant to this applicant.
    pub(crate) fn after_grant(&self, waiting: &mut Vec<Waiter>) {
        let is_over = |waiter: &Waiter| {
            waiter.instance == self.instance || self.passed_over.contains(&waiter.instance)
        };
        waiting.retain(|waiter| !is_over(waiter));
        if self.has_more {
            self.wait(waiting);
        }
    }

    /// Adds this applicant to the list. Returns whether the list changed.
    pub(crate) fn wait(&self, waiting: &mut Vec<Waiter>) -> bool {
        let Some(own) = self.waits_as else { return false };
        let is_noted = waiting.iter().any(|waiter| waiter.instance == own.instance);
        if is_noted || waiting.len() >= MOST_WAITING {
            return false;
        }
        waiting.push(own.clone());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(1);

    fn waiter(instance: &str) -> Waiter {
        Waiter::new(instance.to_owned(), Duration::from_millis(250))
    }

    #[test]
    fn tenure_ends_after_grants_time_or_another_process() {
        let mut tenure = Tenure::default();
        assert_eq!(tenure.goes_on_at(LONG, LONG), None, "it never had the lock");
        for token in 5..5 + u64::from(MOST_IN_A_ROW) - 1 {
            tenure.granted(token, LONG);
            assert_eq!(tenure.goes_on_at(LONG, LONG), Some(token));
        }
        assert_eq!(tenure.goes_on_at(LONG * 2, LONG), None, "too long");
        tenure.granted(4 + u64::from(MOST_IN_A_ROW), LONG);
        assert_eq!(tenure.goes_on_at(LONG, LONG), None, "too often");
        tenure.granted(100, LONG * 3);
        assert_eq!(
            tenure.goes_on_at(LONG * 3, LONG),
            Some(100),
            "another process had it meanwhile"
        );
    }

    #[test]
    fn free_lock_goes_to_the_first_waiter() {
        let waiting = [waiter("b"), waiter("c")];
        let turn = |applicant: Applicant<'_>| {
            applicant.turn_of_another(7, &waiting).map(|waiter| waiter.instance.clone())
        };
        let of = |instance| Applicant { instance, ..Applicant::default() };
        assert_eq!(turn(of("a")).as_deref(), Some("b"));
        assert_eq!(turn(of("b")), None);
        assert_eq!(turn(of("c")).as_deref(), Some("b"));
        let [b, both] = [vec!["b".to_owned()], vec!["b".to_owned(), "c".to_owned()]];
        assert_eq!(turn(Applicant { passed_over: &b, ..of("c") }), None);
        assert_eq!(turn(Applicant { passed_over: &b, ..of("a") }).as_deref(), Some("c"));
        assert_eq!(turn(Applicant { passed_over: &both, ..of("a") }), None);
        assert_eq!(turn(Applicant { goes_on_at: Some(7), ..of("a") }), None);
        assert_eq!(turn(Applicant { goes_on_at: Some(6), ..of("a") }).as_deref(), Some("b"));
        assert_eq!(of("a").turn_of_another(7, &[]), None);
    }

    #[test]
    fn grant_removes_and_waiting_adds_one_entry() {
        let own = waiter("a");
        let mut waiting = vec![waiter("b"), waiter("a"), waiter("c")];
        let applicant = Applicant {
            instance: "a",
            waits_as: Some(&own),
            passed_over: &["b".to_owned()],
            ..Applicant::default()
        };
        let names = |waiting: &[Waiter]| {
            waiting.iter().map(|waiter| waiter.instance.clone()).collect::<Vec<_>>()
        };
        assert!(!applicant.wait(&mut waiting), "it is noted");
        applicant.after_grant(&mut waiting);
        assert_eq!(names(&waiting), ["c"]);
        let more = Applicant { has_more: true, ..applicant.clone() };
        more.after_grant(&mut waiting);
        assert_eq!(names(&waiting), ["c", "a"], "behind those that wait");
        let mut full: Vec<Waiter> = (0..MOST_WAITING).map(|at| waiter(&at.to_string())).collect();
        assert!(!applicant.wait(&mut full) && full.len() == MOST_WAITING);
        assert!(!Applicant::default().wait(&mut waiting), "it does not wait");
    }
}
