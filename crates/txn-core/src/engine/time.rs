//! The time by which transactions begin and commit.
//!
//! If the store tells the server's time, that time counts: processes whose own clocks differ still
//! agree on the age of a transaction. The engine refuses the writes of a process whose clock is far
//! from the server's.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::engine::context::Context;
use crate::engine::store::store_access::StoreAccess;
use crate::error::{Error, ErrorKind};
use txn_protocol::ids::{AttemptId, CommitVersion, Day};
use txn_protocol::rule::Rule;
use txn_protocol::timekeeper::{ClockState, Clocks, ServerTime, Timekeeper};
use txn_store::StoreError;

/// The interval between requests for the server's time.
///
/// Between requests the monotonic clock counts.
const INTERVAL: Duration = Duration::from_secs(10);

/// How long a confirmed refusal holds.
///
/// A process that keeps trying does not ask the server for each transaction.
const REFUSAL: Duration = Duration::from_secs(1);

/// Requests before a refusal, because one node's clock may be wrong.
const QUESTIONS: usize = 2;

/// The clock of commits: ids, commit versions, and the server's time.
pub(crate) struct Time {
    context: Arc<Context>,
    store: Arc<StoreAccess>,
    keeper: Mutex<Timekeeper>,
    /// When the server last confirmed a wrong clock, on the monotonic clock.
    ///
    /// The lock allows one request at a time.
    refused: tokio::sync::Mutex<Option<Duration>>,
}

impl Time {
    pub(crate) fn new(context: Arc<Context>, store: Arc<StoreAccess>) -> Self {
        let (keeper, refused) = Default::default();
        Self { context, store, keeper, refused }
    }

    fn clocks(&self) -> Clocks {
        Clocks { wall: self.context.config.clock.wall(), monotonic: self.context.now() }
    }

    /// The time by which transactions begin and commit, since the Unix epoch.
    pub(crate) fn utc(&self) -> Duration {
        self.keeper.lock().now(self.clocks())
    }

    /// Milliseconds since the Unix epoch, for records.
    pub(crate) fn unix_millis(&self) -> u64 {
        u64::try_from(self.utc().as_millis()).unwrap_or(u64::MAX)
    }

    /// The UTC day of [`Self::utc`].
    pub(crate) fn today(&self) -> Day {
        Day::of_unix_time(self.utc())
    }

    /// The latest possible time of the server, if it is known.
    pub(crate) fn server_time(&self) -> Option<Duration> {
        self.keeper.lock().server_time(self.clocks())
    }

    /// The lead of the wall clock over the server's clock, in milliseconds.
    ///
    /// `None` if the store does not tell its time.
    pub(crate) fn clock_ahead_ms(&self) -> Option<i64> {
        let millis = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        let wall = millis(self.context.config.clock.wall());
        self.server_time().map(|server| wall.saturating_sub(millis(server)))
    }

    /// No future commit has a version before this time.
    pub(crate) fn settled_until(&self) -> Duration {
        self.keeper.lock().settled_until(self.clocks(), self.context.config.max_drift)
    }

    /// The id of the first attempt of a transaction that begins now.
    pub(crate) fn start_id(&self) -> AttemptId {
        self.note_jump();
        self.context.ids.start(
            self.utc(),
            self.context.config.max_drift,
            &*self.context.config.entropy,
        )
    }

    /// The version of a commit.
    ///
    /// The version is not before the start of the transaction, and later than every version that
    /// was read or overwritten. So readers at a timestamp ignore the lock of a transaction that
    /// began later.
    pub(crate) async fn commit_version(
        self: &Arc<Self>,
        began: Option<AttemptId>,
        after: Option<CommitVersion>,
    ) -> Result<CommitVersion, Error> {
        self.confirm_clock().await?;
        self.note_jump();
        let now = match self.context.rules.decides(Rule::VersionByServer) {
            true => self.utc(),
            false => self.context.config.clock.wall(),
        };
        let drift = self.context.config.max_drift;
        self.context.ids.commit(now, began, after, drift, &*self.context.config.entropy).map_err(|ahead| {
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

    /// Renews the node id after a jump of the clocks.
    ///
    /// A restored or cloned machine may share its node id with another process.
    fn note_jump(&self) {
        if self.keeper.lock().look(self.clocks(), self.context.config.max_drift) {
            self.context.ids.renew_node(&*self.context.config.entropy);
        }
    }

    /// Fails if the wall clock is ahead of the server's.
    ///
    /// With such a clock the process must neither open a domain nor drop a day.
    ///
    /// # Errors
    /// As [`Self::confirm_clock`].
    pub(crate) async fn confirm_not_ahead(self: &Arc<Self>) -> Result<(), Error> {
        match self.clock_state() {
            ClockState::Sound | ClockState::Behind(_) => Ok(()),
            ClockState::Doubtful | ClockState::Ahead(_) => match self.confirm_clock().await {
                Err(_) if matches!(self.clock_state(), ClockState::Behind(_)) => Ok(()),
                confirmed => confirmed,
            },
        }
    }

    /// Fails if the wall clock is too far from the server's.
    ///
    /// The bound is `max_drift`, and the server must have just confirmed the difference. While the
    /// clocks look sound, no request is sent.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`] for such a difference. [`ErrorKind::Unavailable`] if the clocks
    /// of this process moved against each other, as after a suspended machine, and the server does
    /// not tell its time.
    pub(crate) async fn confirm_clock(self: &Arc<Self>) -> Result<(), Error> {
        if self.clock_state() == ClockState::Sound {
            return Ok(());
        }
        let time = self.clone();
        self.context.shared(async move { time.ask_whether_clock_is_right().await }).await?
    }

    async fn ask_whether_clock_is_right(&self) -> Result<(), Error> {
        let mut refused = self.refused.lock().await;
        let is_doubtful = self.clock_state() == ClockState::Doubtful;
        if is_doubtful || refused.is_none_or(|at| self.context.now() > at + REFUSAL) {
            for _ in 0..QUESTIONS {
                if self.clock_state() == ClockState::Sound {
                    break;
                }
                self.ask_time().await.map_err(|error| {
                    let message = format!(
                        "the clock of this process seems to be wrong, and the server does not tell its time: {error}"
                    );
                    Error::unavailable(message)
                })?;
            }
            let is_wrong =
                matches!(self.clock_state(), ClockState::Ahead(_) | ClockState::Behind(_));
            *refused = is_wrong.then(|| self.context.now());
        }
        let wrong = |by: Duration, way: &str| {
            let message = format!(
                "the clock of this process is {} s {way} the server's: set the wrong one right",
                by.as_secs()
            );
            Err(Error::new(ErrorKind::Misconfigured, message))
        };
        match self.clock_state() {
            ClockState::Sound => Ok(()),
            ClockState::Doubtful => Err(Error::unavailable(
                "the clocks of this process moved against each other while the server was asked for its time: try again",
            )),
            ClockState::Ahead(by) => wrong(by, "ahead of"),
            ClockState::Behind(by) => wrong(by, "behind"),
        }
    }

    fn clock_state(&self) -> ClockState {
        self.keeper.lock().clock_state(self.clocks(), self.context.config.max_drift)
    }

    /// Asks the server for its time. Returns whether the server tells one.
    async fn ask_time(&self) -> Result<bool, StoreError> {
        let asked = self.clocks();
        let Some(time) = self.store.documents().server_time().await? else { return Ok(false) };
        let told = ServerTime { time, asked, answered: self.clocks() };
        self.keeper.lock().tell(told, self.context.config.max_drift);
        Ok(true)
    }

    /// Asks the server for its time. Returns whether to ask again later.
    pub(crate) async fn look_at_the_clock(&self) -> bool {
        self.ask_time().await.unwrap_or_else(|error| {
            tracing::warn!(%error, "the server does not tell its time");
            true
        })
    }

    /// Starts the task that asks the server for its time repeatedly.
    pub(crate) fn watch_the_clock(self: &Arc<Self>) {
        let time_of_task = Arc::downgrade(self);
        let closing = self.context.lifecycle.closing().clone();
        let clock = self.context.config.clock.clone();
        self.context.lifecycle.spawn(async move {
            loop {
                tokio::select! {
                    biased;
                    () = closing.cancelled() => return,
                    () = clock.sleep(INTERVAL) => {}
                }
                let Some(time) = time_of_task.upgrade() else { return };
                if !time.look_at_the_clock().await {
                    return;
                }
            }
        });
    }
}
