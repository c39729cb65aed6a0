//! The clock of this process against the server's. What a process with a clock ahead of the others writes lies in their
//! future, and stops them; so it is this process that is refused, where the server tells the time.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::engine::Engine;
use crate::error::{Error, ErrorKind};
use crate::store::StoreError;
use txn_protocol::tid::Tid;

/// How often the server is asked. In between this process's monotonic clock tells whether its wall clock jumps.
const INTERVAL: Duration = Duration::from_secs(10);

/// What the server's clock said last.
#[derive(Debug, Default)]
pub(crate) struct ServerClock(Mutex<Option<Told>>);

#[derive(Clone, Copy, Debug)]
struct Told {
    time: Duration,
    /// The monotonic time just before it was asked.
    asked: Duration,
}

impl Engine {
    /// Asks the server for its time. Returns whether to ask again: a store without a clock is asked once.
    pub(crate) async fn look_at_the_clock(&self) -> bool {
        let told = match self.told_time().await {
            Ok(Some(told)) => told,
            Ok(None) => return false,
            Err(error) => {
                tracing::warn!(%error, "the server does not tell its time");
                return true;
            }
        };
        *self.server_clock.0.lock() = Some(told);
        if self.check_clock().is_err() {
            // A node whose own clock is wrong must not stop everybody: another is asked, and the milder verdict stands.
            let origin = |told: Told| told.time.saturating_sub(told.asked);
            if let Ok(Some(other)) = self.told_time().await
                && origin(other) > origin(told)
            {
                *self.server_clock.0.lock() = Some(other);
            }
        }
        true
    }

    async fn told_time(&self) -> Result<Option<Told>, StoreError> {
        let asked = self.now();
        let time = self.store.server_time().await?;
        Ok(time.map(|time| Told { time, asked }))
    }

    /// How far this process's wall clock is ahead of the server's, at least, if that is known and so.
    fn ahead(&self) -> Option<Duration> {
        self.config.clock.wall().checked_sub(self.server_time()?)
    }

    /// The server's time, as far as it is known. It is at most so late.
    pub(crate) fn server_time(&self) -> Option<Duration> {
        let told = (*self.server_clock.0.lock())?;
        Some(told.time + self.now().saturating_sub(told.asked))
    }

    /// Refuses to go on while the clock of this process is known to be ahead.
    pub(crate) fn check_clock(&self) -> Result<(), Error> {
        match self.ahead() {
            Some(ahead) if ahead > self.config.max_drift => Err(Error::new(
                ErrorKind::Misconfigured,
                format!(
                    "the clock of this process is {} s ahead of the server's: set it right; what it wrote would stop \
                     the others",
                    ahead.as_secs()
                ),
            )),
            _ => Ok(()),
        }
    }

    /// A commit tid: now, and later than everything that was read or is overwritten.
    pub(crate) fn commit_tid(&self, after: Option<Tid>) -> Result<Tid, Error> {
        self.check_clock()?;
        let drift = self.config.max_drift;
        self.tids.commit(after, drift).map_err(|ahead| {
            let by = ahead.by.as_secs();
            let wall = self.config.clock.wall();
            let whose = match self.server_time() {
                None => "one of the two clocks is wrong: set the clocks right".to_owned(),
                Some(server) if server > wall + drift => format!(
                    "this process's clock is {} s behind the server's: set it right",
                    (server - wall).as_secs()
                ),
                Some(_) => "this process agrees with the server, so the clock of the process that wrote it was ahead: \
                            set that clock right"
                    .to_owned(),
            };
            let message = format!(
                "a document was written {by} s in the future of this process's clock; {whose}"
            );
            Error::new(ErrorKind::Misconfigured, message)
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
