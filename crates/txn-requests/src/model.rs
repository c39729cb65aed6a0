//! Stored requests, and their public status.

use std::fmt;

use serde::{Deserialize, Serialize};
use txn_core::CommitVersion;
use txn_core::store::LAST_DATE_MS;
use txn_lock::stored::{Format, Versioned};

use crate::contents::refusal::Refusal;
use crate::contents::request::Request;
use crate::processing::apply::Undo;

/// The newest format of stored requests. Format 2 added events and HTTP requests.
const NEWEST: u32 = 2;

/// Field mappings of stored requests, for stores with mappings.
pub(crate) const MAPPINGS: &str = r#"{"dynamic":"strict","properties":{
    "format":{"type":"integer"},"id":{"type":"keyword"},"application":{"type":"keyword"},"state":{"type":"keyword"},
    "request":{"type":"object","enabled":false},"undo":{"type":"object","enabled":false},
    "times":{"dynamic":"strict","properties":{
        "created_ms":{"type":"date","format":"epoch_millis"},"modified_ms":{"type":"date","format":"epoch_millis"},
        "pending_ms":{"type":"date","format":"epoch_millis"},"committed_ms":{"type":"date","format":"epoch_millis"},
        "finished_ms":{"type":"date","format":"epoch_millis"},"terminating_ms":{"type":"date","format":"epoch_millis"},
        "rolled_back_ms":{"type":"date","format":"epoch_millis"},"quarantined_ms":{"type":"date","format":"epoch_millis"}}},
    "claim":{"dynamic":"strict","properties":{"instance":{"type":"keyword"},"name":{"type":"keyword"},
        "grant":{"type":"keyword"},"lease_ms":{"type":"long"}}},
    "failures":{"type":"integer"},"deaths":{"type":"integer"},"reason":{"type":"object","enabled":false},
    "due_ms":{"type":"date","format":"epoch_millis"},
    "commit_version":{"type":"keyword"},"reverses":{"type":"keyword"},"reversed_by":{"type":"keyword"}}}"#;

/// The state of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum State {
    /// The request is stored, and no processor has started it.
    Created,
    /// A processor executes the request. No effect is visible.
    Pending,
    /// All effects of the request are committed.
    Committed,
    /// All effects are applied: plain reads see them.
    Finished,
    /// The request is being rolled back.
    Terminating,
    /// The request had no effect, and never will have one.
    RolledBack,
    /// The request failed too often. An operator must release it or roll it back.
    Quarantined,
}

impl State {
    /// All states.
    pub const ALL: [Self; 7] = [
        Self::Created,
        Self::Pending,
        Self::Committed,
        Self::Finished,
        Self::Terminating,
        Self::RolledBack,
        Self::Quarantined,
    ];

    /// The states in which a processor or the recovery has work left.
    pub const OPEN: [Self; 4] = [Self::Created, Self::Pending, Self::Committed, Self::Terminating];

    /// The stored name of the state.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Pending => "pending",
            Self::Committed => "committed",
            Self::Finished => "finished",
            Self::Terminating => "terminating",
            Self::RolledBack => "rolled-back",
            Self::Quarantined => "quarantined",
        }
    }

    /// Whether the effects are committed.
    #[must_use]
    pub fn is_committed(self) -> bool {
        matches!(self, Self::Committed | Self::Finished)
    }

    /// Whether a waiting caller should stop.
    #[must_use]
    pub fn is_settled(self) -> bool {
        self.is_committed() || matches!(self, Self::RolledBack | Self::Quarantined)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The times of a request's states, in milliseconds since the Unix epoch.
///
/// The wall clock of the changing process supplies each time. A repeated state overwrites its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Times {
    /// The submission.
    pub created_ms: u64,
    /// The last change of the request.
    pub modified_ms: u64,
    /// The start of the execution.
    pub pending_ms: Option<u64>,
    /// The commit.
    pub committed_ms: Option<u64>,
    /// The mark as finished.
    pub finished_ms: Option<u64>,
    /// The start of the rollback.
    pub terminating_ms: Option<u64>,
    /// The end of the rollback.
    pub rolled_back_ms: Option<u64>,
    /// The quarantine.
    pub quarantined_ms: Option<u64>,
}

/// The reason for the state of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reason {
    /// An operation was refused.
    Refused(Refusal),
    /// An operator cancelled the request, with this text.
    Cancelled(String),
    /// An execution failed, with this error.
    Failed(String),
    /// Processors died during the execution.
    Died,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => write!(f, "{refusal}"),
            Self::Cancelled(why) => write!(f, "cancelled: {why}"),
            Self::Failed(why) => write!(f, "it failed: {why}"),
            Self::Died => f.write_str("its processors died during its execution"),
        }
    }
}

/// The claim of a processor on a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Claim {
    pub(crate) instance: String,
    pub(crate) name: String,
    pub(crate) grant: String,
    pub(crate) lease_ms: u64,
}

/// A stored request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) format: Format<NEWEST>,
    pub(crate) id: String,
    pub(crate) application: Option<String>,
    pub(crate) state: State,
    pub(crate) times: Times,
    pub(crate) request: Request,
    pub(crate) claim: Option<Claim>,
    /// The earliest execution of a created or pending request; `None`: at once.
    ///
    /// Polls leave out the requests that are not due. Documents of older versions have no such
    /// field, so a poll finds them, and [`Entry::earliest_ms`] decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) due_ms: Option<u64>,
    pub(crate) failures: u32,
    /// The number of processors that died during the execution.
    #[serde(default)]
    pub(crate) deaths: u32,
    pub(crate) reason: Option<Reason>,
    pub(crate) undo: Option<Vec<Undo>>,
    pub(crate) commit_version: Option<CommitVersion>,
    pub(crate) reverses: Option<String>,
    pub(crate) reversed_by: Option<String>,
}

pub(crate) type Entries = Versioned<Entry, NEWEST>;

impl Entry {
    /// The earliest work of the request, in milliseconds since the Unix epoch.
    pub(crate) fn earliest_ms(&self) -> u64 {
        let is_open = matches!(self.state, State::Created | State::Pending);
        self.request.not_before_ms.filter(|_| is_open).unwrap_or(0)
    }

    pub(crate) fn new(id: &str, request: Request, now_ms: u64) -> Self {
        Self {
            format: Format,
            id: id.to_owned(),
            application: request.application.clone(),
            state: State::Created,
            times: Times { created_ms: now_ms, modified_ms: now_ms, ..Times::default() },
            due_ms: due_ms(&request),
            request,
            claim: None,
            failures: 0,
            deaths: 0,
            reason: None,
            undo: None,
            commit_version: None,
            reverses: None,
            reversed_by: None,
        }
    }

    /// Sets the state and its time.
    pub(crate) fn enter(&mut self, state: State, now_ms: u64) {
        let times = &mut self.times;
        times.modified_ms = now_ms;
        let at = match state {
            State::Created => None,
            State::Pending => Some(&mut times.pending_ms),
            State::Committed => Some(&mut times.committed_ms),
            State::Finished => Some(&mut times.finished_ms),
            State::Terminating => Some(&mut times.terminating_ms),
            State::RolledBack => Some(&mut times.rolled_back_ms),
            State::Quarantined => Some(&mut times.quarantined_ms),
        };
        if let Some(at) = at {
            *at = Some(now_ms);
        }
        if state != State::Pending {
            self.claim = None;
        }
        let is_open = matches!(state, State::Created | State::Pending);
        self.due_ms = is_open.then(|| due_ms(&self.request)).flatten();
        self.state = state;
    }

    /// Whether this claim still holds.
    pub(crate) fn is_claimed_as(&self, grant: &str) -> bool {
        let claim = self.claim.as_ref();
        self.state == State::Pending && claim.is_some_and(|claim| claim.grant == grant)
    }

    pub(crate) fn status(self) -> Status {
        Status {
            id: self.id,
            application: self.application,
            state: self.state,
            times: self.times,
            processor: self.claim.map(|claim| claim.name),
            failures: self.failures,
            deaths: self.deaths,
            reason: self.reason,
            commit_version: self.commit_version,
            reverses: self.reverses,
            reversed_by: self.reversed_by,
            request: self.request,
        }
    }
}

/// The stored moment of a request. A date ends with the year 9999.
fn due_ms(request: &Request) -> Option<u64> {
    request.not_before_ms.map(|at| at.min(LAST_DATE_MS))
}

/// The public status of a request.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Status {
    /// The id that the client chose.
    pub id: String,
    /// The application that the request belongs to.
    pub application: Option<String>,
    /// The state at the time of the read.
    pub state: State,
    /// The times of the states.
    pub times: Times,
    /// The name of the processor that executes the request, for operators.
    pub processor: Option<String>,
    /// The number of failures.
    pub failures: u32,
    /// The number of processors that died during the execution.
    pub deaths: u32,
    /// The reason for the state. For open requests, the last failure.
    pub reason: Option<Reason>,
    /// The version of the written documents, once the request is finished.
    pub commit_version: Option<CommitVersion>,
    /// The id of the request that this one reverses.
    pub reverses: Option<String>,
    /// The id of the request that reverses this one.
    pub reversed_by: Option<String>,
    /// The submitted request.
    pub request: Request,
}
