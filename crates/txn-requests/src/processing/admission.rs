//! The limits of open requests and of scheduled requests.
//!
//! A scheduled request waits for its moment.

use std::time::Duration;

use parking_lot::Mutex;
use txn_core::scan::candidates;
use txn_core::store::Filter;
use txn_lock::instance::wall_ms;

use crate::contents::request::Request;
use crate::error::{RequestError, Result};
use crate::model::State;
use crate::processing::counts::backlog::Backlog;
use crate::processing::inner::{Inner, due_states, millis, states};

/// The shortest time between two counts of scheduled requests. Such a request waits for its moment.
const COUNT_EVERY: Duration = Duration::from_secs(1);

/// One day in milliseconds.
const DAY_MS: u64 = 86_400_000;

impl Inner {
    /// Refuses submissions while too many requests are open. Requests that are not due do not
    /// count.
    pub(crate) async fn admit(&self) -> Result<()> {
        let most = self.config.max_open;
        let known = self.backlog.lock().known(most);
        let open = match known {
            Some(open) if open < most => open,
            _ => {
                let filter = due_states([State::Created, State::Pending], wall_ms(&self.domain));
                let open = self.count(filter, most).await?;
                self.note_count(&self.backlog, open);
                open
            }
        };
        match open < most {
            true => Ok(()),
            false => Err(RequestError::Busy { open, most }),
        }
    }

    /// Refuses a request that is scheduled beyond the limits.
    ///
    /// A request that is not due is refused if too many wait for their moment, or if its own moment
    /// is too far away.
    pub(crate) async fn admit_scheduled(&self, request: &Request) -> Result<()> {
        let now_ms = wall_ms(&self.domain);
        let delay_ms = request.not_before_ms.unwrap_or(0).saturating_sub(now_ms);
        let (most_ms, most) = (millis(self.config.max_delay), self.config.max_scheduled);
        if delay_ms > most_ms {
            let why = format!(
                "its moment is {} days away, at most {} are allowed: `not_before_ms` counts milliseconds since 1970",
                delay_ms / DAY_MS,
                most_ms / DAY_MS
            );
            return Err(RequestError::Invalid(why));
        }
        let known = {
            let scheduled = self.scheduled.lock();
            // A count reads up to `max_scheduled` ids, so a full backlog is not counted each time.
            let recent = scheduled.recent(self.now(), COUNT_EVERY);
            recent.or_else(|| scheduled.known(most).filter(|waiting| *waiting < most))
        };
        let waiting = match known {
            Some(waiting) => waiting,
            None => {
                // No filter finds the requests that are not due, so the due ones are subtracted.
                let due = self.count(due_states([State::Created], now_ms), most).await?;
                let all = self.count(states([State::Created]), most.saturating_add(due)).await?;
                let waiting = all.saturating_sub(due);
                self.note_count(&self.scheduled, waiting);
                waiting
            }
        };
        match waiting < most {
            true => Ok(()),
            false => Err(RequestError::TooManyScheduled { waiting, most }),
        }
    }

    /// Counts the requests of a filter, up to about `most`.
    async fn count(&self, filter: Filter, most: usize) -> Result<usize> {
        Ok(candidates(&self.domain, self.entries.name(), filter, most).await?.len())
    }

    fn note_count(&self, backlog: &Mutex<Backlog>, counted: usize) {
        *backlog.lock() = Backlog::counted(counted, self.now());
    }
}
