//! Base of every engine part: settings, clock, events and tasks.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use crate::clock::Backoff;
use crate::config::Config;
use crate::engine::attempt_error::AttemptError;
use crate::engine::deadline::Deadline;
use crate::engine::lifecycle::Lifecycle;
use crate::engine::wait_reason::WaitReason;
use crate::error::Error;
use crate::event::Event;
use txn_protocol::ids::IdSource;
use txn_protocol::rule::Rules;

/// Extra time after the deadline for the work to report its error.
///
/// The work knows the cause, and a timeout does not.
const OVERDUE: Duration = Duration::from_millis(100);

/// The settings and services that every part uses.
///
/// The context knows no part, and holds no state of the protocol besides the last issued ids.
pub(crate) struct Context {
    pub(crate) config: Config,
    /// The rules of the protocol. A test may leave one out.
    pub(crate) rules: Rules,
    pub(crate) ids: IdSource,
    pub(crate) lifecycle: Lifecycle,
}

impl Context {
    pub(crate) fn new(config: Config, lifecycle: Lifecycle) -> Self {
        let (rules, ids) = (config.rules.clone(), IdSource::new(&*config.entropy));
        Self { config, rules, ids, lifecycle }
    }

    pub(crate) fn now(&self) -> Duration {
        self.config.clock.monotonic()
    }

    pub(crate) fn emit(&self, event: &Event) {
        tracing::debug!(?event);
        if let Some(observer) = &self.config.observer {
            // A panic of the observer must not stop a transaction half way.
            let told = std::panic::catch_unwind(AssertUnwindSafe(|| observer.on_event(event)));
            if told.is_err() {
                tracing::error!(?event, "the observer panicked");
            }
        }
    }

    /// Runs work that several callers wait for, in a task.
    ///
    /// A caller that does not poll its future delays no other caller. The task continues if its
    /// caller is dropped.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) if the runtime of the task has
    /// ended.
    pub(in crate::engine) async fn shared<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Error> {
        let ended = || Error::unavailable("the runtime of the domain has ended");
        let task = self.lifecycle.spawn(work);
        task.await.map_err(|error| match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => ended(),
        })
    }

    /// The deadline of work for the domain, not for one transaction.
    pub(crate) fn deadline(&self, wait: Duration) -> Deadline {
        Deadline::until(self.now() + wait)
    }

    /// Runs `work` for at most `wait` and 100 ms.
    ///
    /// After this time the work is dropped, even if the store hangs. A tracked task continues.
    pub(crate) async fn within<T>(
        &self,
        wait: Duration,
        work: impl Future<Output = Result<T, AttemptError>>,
    ) -> Result<T, AttemptError> {
        tokio::select! {
            biased;
            result = work => result,
            () = self.config.clock.sleep(wait.saturating_add(OVERDUE)) => {
                Err(Error::unavailable("the store did not answer before the deadline").into())
            }
        }
    }

    /// The backoff between retries of a request, or polls of a lock.
    pub(crate) fn backoff(&self) -> Backoff {
        Backoff::new(Duration::from_millis(2), Duration::from_millis(200))
    }

    pub(crate) async fn pause(
        &self,
        deadline: &Deadline,
        backoff: &mut Backoff,
        reason: WaitReason,
    ) -> Result<(), AttemptError> {
        let wait = backoff.next(&*self.config.entropy);
        deadline.pause(&*self.config.clock, wait, reason).await
    }
}
