//! The time of a domain: by it transactions begin and commit. It is the server's, where the store tells one, so that processes whose own
//! clocks differ still agree on who is older; and a process whose clock is far from the server's is refused.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::engine::Engine;
use crate::error::{Error, ErrorKind};
use crate::store::StoreError;
use txn_protocol::ids::{AttemptId, CommitVersion, Day};
use txn_protocol::rule::Rule;
use txn_protocol::timekeeper::{Clocks, Timekeeper, Told, Verdict};

/// How often the server is asked. In between the monotonic clock tells how time goes on.
const INTERVAL: Duration = Duration::from_secs(10);

/// A refusal that the server confirmed holds so long, so that a process that goes on trying does not ask for each transaction.
const REFUSAL: Duration = Duration::from_secs(1);

/// Questions before a clock is refused: one node's own clock may be wrong.
const QUESTIONS: usize = 2;

/// What this process knows of the time.
#[derive(Debug, Default)]
pub(crate) struct Time {
    keeper: Mutex<Timekeeper>,
    /// One question at a time. When the server last confirmed that the clock is wrong, by the monotonic clock.
    refused: tokio::sync::Mutex<Option<Duration>>,
}

impl Engine {
    fn clocks(&self) -> Clocks {
        Clocks { wall: self.config.clock.wall(), monotonic: self.now() }
    }

    /// The time by which transactions begin and commit, since the Unix epoch.
    pub(crate) fn utc(&self) -> Duration {
        self.time.keeper.lock().now(self.clocks())
    }

    /// The UTC day by that time.
    pub(crate) fn today(&self) -> Day {
        Day::of_unix_time(self.utc())
    }

    /// The server's time, as far as it is known. It is at most so late.
    pub(crate) fn server_time(&self) -> Option<Duration> {
        self.time.keeper.lock().server_time(self.clocks())
    }

    /// The latest moment before which no commit will have its version any more.
    pub(crate) fn settled_until(&self) -> Duration {
        self.time.keeper.lock().settled_until(self.clocks(), self.config.max_drift)
    }

    /// The id of the first attempt of a transaction that begins now.
    pub(crate) fn start_id(&self) -> AttemptId {
        self.note_jump();
        self.ids.start(self.utc(), self.config.max_drift, &*self.config.entropy)
    }

    /// The version of a commit: now, not before its own transaction began, and later than everything that was read or is overwritten. Readers at
    /// a timestamp leave the lock of a transaction alone that began later.
    pub(crate) async fn commit_version(
        &self,
        began: Option<AttemptId>,
        after: Option<CommitVersion>,
    ) -> Result<CommitVersion, Error> {
        self.confirm_clock().await?;
        self.note_jump();
        let now = match self.rules.decides(Rule::VersionByServer) {
            true => self.utc(),
            false => self.config.clock.wall(),
        };
        let drift = self.config.max_drift;
        self.ids.commit(now, began, after, drift, &*self.config.entropy).map_err(|ahead| {
            let by = ahead.by.as_secs();
            let whose = match self.server_time() {
                None => "one of the two clocks is wrong: set the clocks right",
                Some(_) => "this process goes by the server's clock, so the clock of the process that wrote it was \
                            ahead: set that clock right",
            };
            let message = format!(
                "a document was written {by} s in the future of this process's clock; {whose}"
            );
            Error::new(ErrorKind::Misconfigured, message)
        })
    }

    /// A machine that was restored or cloned may share its node with another process.
    fn note_jump(&self) {
        if self.time.keeper.lock().look(self.clocks(), self.config.max_drift) {
            self.ids.renew_node(&*self.config.entropy);
        }
    }

    /// Refuses what only a process with a right clock may do: nothing is opened and no day dropped while the wall clock is ahead of
    /// the server's.
    ///
    /// # Errors
    /// As [`Self::confirm_clock`].
    pub(crate) async fn confirm_not_ahead(&self) -> Result<(), Error> {
        match self.clock_verdict() {
            Verdict::Sound | Verdict::Behind(_) => Ok(()),
            Verdict::Doubtful | Verdict::Ahead(_) => match self.confirm_clock().await {
                Err(_) if matches!(self.clock_verdict(), Verdict::Behind(_)) => Ok(()),
                confirmed => confirmed,
            },
        }
    }

    /// Refuses to write while the wall clock of this process is further from the server's than `max_drift`, as the server itself has just
    /// confirmed. Asks nothing as long as the clocks look sound.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`] if they differ so; [`ErrorKind::Unavailable`] if the clocks of this process moved against each
    /// other, as after a suspended machine, and the server does not say what time it is.
    pub(crate) async fn confirm_clock(&self) -> Result<(), Error> {
        if self.clock_verdict() == Verdict::Sound {
            return Ok(());
        }
        self.shared(async |engine| engine.ask_whether_clock_is_right().await).await?
    }

    async fn ask_whether_clock_is_right(&self) -> Result<(), Error> {
        let mut refused = self.time.refused.lock().await;
        let is_doubtful = self.clock_verdict() == Verdict::Doubtful;
        if is_doubtful || refused.is_none_or(|at| self.now() > at + REFUSAL) {
            for _ in 0..QUESTIONS {
                if self.clock_verdict() == Verdict::Sound {
                    break;
                }
                self.ask_time().await.map_err(|error| {
                    let message = format!(
                        "the clock of this process seems to be wrong, and the server does not tell its time: {error}"
                    );
                    Error::unavailable(message)
                })?;
            }
            let is_wrong = matches!(self.clock_verdict(), Verdict::Ahead(_) | Verdict::Behind(_));
            *refused = is_wrong.then(|| self.now());
        }
        let wrong = |by: Duration, way: &str| {
            let message = format!(
                "the clock of this process is {} s {way} the server's: set the wrong one right",
                by.as_secs()
            );
            Err(Error::new(ErrorKind::Misconfigured, message))
        };
        match self.clock_verdict() {
            Verdict::Sound => Ok(()),
            Verdict::Doubtful => Err(Error::unavailable(
                "the clocks of this process moved against each other while the server was asked for its time: try again",
            )),
            Verdict::Ahead(by) => wrong(by, "ahead of"),
            Verdict::Behind(by) => wrong(by, "behind"),
        }
    }

    fn clock_verdict(&self) -> Verdict {
        self.time.keeper.lock().verdict(self.clocks(), self.config.max_drift)
    }

    /// Asks the server for its time. Returns whether it tells one.
    async fn ask_time(&self) -> Result<bool, StoreError> {
        let asked = self.clocks();
        let Some(time) = self.store.server_time().await? else { return Ok(false) };
        let told = Told { time, asked, answered: self.clocks() };
        self.time.keeper.lock().tell(told, self.config.max_drift);
        Ok(true)
    }

    /// Asks the server for its time, if it tells one. Returns whether to ask again later.
    pub(crate) async fn look_at_the_clock(&self) -> bool {
        self.ask_time().await.unwrap_or_else(|error| {
            tracing::warn!(%error, "the server does not tell its time");
            true
        })
    }

    /// Starts the task that asks again and again.
    pub(crate) fn watch_the_clock(self: &Arc<Self>) {
        let engine_of_task = Arc::downgrade(self);
        let closing = self.lifecycle.closing().clone();
        let clock = self.config.clock.clone();
        self.lifecycle.spawn(async move {
            loop {
                tokio::select! {
                    biased;
                    () = closing.cancelled() => return,
                    () = clock.sleep(INTERVAL) => {}
                }
                let Some(engine) = engine_of_task.upgrade() else { return };
                if !engine.look_at_the_clock().await {
                    return;
                }
            }
        });
    }
}
