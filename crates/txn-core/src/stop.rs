//! Why an attempt stops short, and how long anything may wait.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::clock::Clock;
use crate::error::{Error, ErrorKind};
use crate::store::Key;
use crate::wait::Local;
use txn_protocol::tid::Tid;

/// An attempt stops short.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The transaction may try again.
    Retry(Cause),
    /// It may not.
    Fail(Error),
}

/// Why an attempt has to start again.
#[derive(Clone, Debug)]
pub(crate) enum Cause {
    /// An older transaction aborted it.
    Wounded,
    /// A document that it read was changed.
    Changed(Key),
    /// It took longer than the transaction limit, and waited for this in the end, if the engine knows.
    Expired(Option<Hindrance>),
    /// A read-only transaction met a lock and had to wait.
    Waited(Key),
    /// A write without a record was overtaken.
    Overtaken(Key),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wounded => f.write_str("an older transaction aborted this attempt"),
            Self::Changed(key) => write!(f, "{key} was changed by another transaction"),
            Self::Expired(None) => {
                f.write_str("the attempt took longer than the transaction limit")
            }
            Self::Expired(Some(why)) => {
                write!(
                    f,
                    "the attempt took longer than the transaction limit: {}",
                    why.clone().into_error()
                )
            }
            Self::Waited(key) => write!(f, "{key} was locked by another transaction"),
            Self::Overtaken(key) => write!(f, "another write to {key} came first"),
        }
    }
}

impl Cause {
    /// The error for a caller when no further attempt follows.
    pub(crate) fn into_error(self, prefix: &str) -> Error {
        let (kind, document) = match &self {
            Self::Expired(Some(Hindrance::Store(_))) => (ErrorKind::Unavailable, None),
            Self::Expired(Some(Hindrance::Others { key, .. } | Hindrance::Changing(key)))
            | Self::Changed(key)
            | Self::Waited(key)
            | Self::Overtaken(key) => (ErrorKind::Conflict, Some(key)),
            Self::Wounded | Self::Expired(None) => (ErrorKind::Conflict, None),
        };
        let error = Error::new(kind, format!("{prefix}{self}"));
        match document {
            Some(key) => error.at(key),
            None => error,
        }
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Fail(error)
    }
}

impl Stop {
    /// Names the document, if the error names none.
    pub(crate) fn at(self, document: &Key) -> Self {
        match self {
            Self::Fail(error) => Self::Fail(error.at(document)),
            Self::Retry(cause) => Self::Retry(cause),
        }
    }

    /// The error for a caller when no further attempt follows.
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Fail(error) => error,
            Self::Retry(cause) => cause.into_error(""),
        }
    }
}

/// What a wait is for.
#[derive(Clone, Debug)]
pub(crate) enum Hindrance {
    /// The store does not answer, or refuses for the moment.
    Store(String),
    /// Another transaction is entitled to go first.
    Others {
        /// The document.
        key: Key,
        /// Who holds it.
        holder: Tid,
    },
    /// Others write the document again and again.
    Changing(Key),
}

impl Hindrance {
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Store(why) => Error::unavailable(format!(
                "the store did not carry it out before the deadline: {why}"
            )),
            Self::Others { key, holder } => {
                let message = format!(
                    "other transactions held it until the deadline, last the transaction {holder}"
                );
                Error::new(ErrorKind::Conflict, message).at(&key)
            }
            Self::Changing(key) => {
                let message = "others wrote it again and again until the deadline";
                Error::new(ErrorKind::Conflict, message).at(&key)
            }
        }
    }
}

/// How long something may go on.
#[derive(Clone, Debug)]
pub(crate) struct Patience {
    /// Give up with an error at this monotonic time.
    until: Duration,
    /// Start again at this monotonic time.
    attempt_until: Option<Duration>,
    /// Whose patience it is: stops when wounded or cancelled.
    local: Option<Arc<Local>>,
    /// How often somebody had to be helped in order to help somebody.
    depth: u8,
}

/// Who helps, and finds that he has to help another first, and so on, leaves the rest to others.
const DEEPEST: u8 = 8;

impl Patience {
    pub(crate) fn until(until: Duration) -> Self {
        Self { until, attempt_until: None, local: None, depth: 0 }
    }

    /// The same patience, but not beyond this monotonic time.
    pub(crate) fn at_most(&self, until: Duration) -> Self {
        Self { until: self.until.min(until), ..self.clone() }
    }

    pub(crate) fn of_attempt(until: Duration, attempt_until: Duration, local: Arc<Local>) -> Self {
        Self { until, attempt_until: Some(attempt_until), local: Some(local), depth: 0 }
    }

    /// The patience to help another in order to go on; none if that goes on for too long.
    pub(crate) fn deeper(&self) -> Option<Self> {
        (self.depth < DEEPEST).then(|| Self { depth: self.depth + 1, ..self.clone() })
    }

    /// Fails if there is no patience left; otherwise the longest wait that is still allowed.
    pub(crate) fn left(&self, clock: &dyn Clock, hindrance: &Hindrance) -> Result<Duration, Stop> {
        if let Some(local) = &self.local {
            if local.expired.load(Ordering::Acquire) {
                return Err(Stop::Retry(Cause::Expired(Some(hindrance.clone()))));
            }
            if local.cancelled.load(Ordering::Acquire) {
                return Err(Stop::Fail(Error::unavailable("the transaction was cancelled")));
            }
            if local.wounded.load(Ordering::Acquire) {
                return Err(Stop::Retry(Cause::Wounded));
            }
        }
        let now = clock.monotonic();
        if now >= self.until {
            return Err(Stop::Fail(hindrance.clone().into_error()));
        }
        match self.attempt_until {
            Some(until) if now >= until => {
                Err(Stop::Retry(Cause::Expired(Some(hindrance.clone()))))
            }
            Some(until) => Ok(until.min(self.until) - now),
            None => Ok(self.until - now),
        }
    }

    /// Waits, or fails if there is no patience left.
    pub(crate) async fn pause(
        &self,
        clock: &dyn Clock,
        wait: Duration,
        hindrance: Hindrance,
    ) -> Result<(), Stop> {
        let left = self.left(clock, &hindrance)?;
        let sleep = clock.sleep(wait.min(left));
        match &self.local {
            Some(local) => tokio::select! {
                biased;
                () = sleep => {}
                () = local.stirred.notified() => {}
            },
            None => sleep.await,
        }
        Ok(())
    }
}
