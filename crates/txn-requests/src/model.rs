//! What is stored of a request, and what is told of it.

use std::fmt;

use serde::{Deserialize, Serialize};
use txn_core::CommitVersion;
use txn_lock::stored::{Format, Versioned};

use crate::apply::Undo;
use crate::refusal::Refusal;
use crate::request::Request;

/// The newest format of stored requests: since 2 they have events and HTTP requests.
const NEWEST: u32 = 2;

/// Field mappings of stored requests, for stores that have some.
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
    "commit_version":{"type":"keyword"},"reverses":{"type":"keyword"},"reversed_by":{"type":"keyword"}}}"#;

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum State {
    /// It is stored, and nobody has begun with it.
    Created,
    /// A processor is at it. Nothing of it is visible.
    Pending,
    /// It is done, all of it.
    Committed,
    /// It is done, and every plain read sees it.
    Finished,
    /// It is being rolled back.
    Terminating,
    /// Nothing of it was done, and nothing ever will be.
    RolledBack,
    /// It kept failing and was set aside, until somebody releases it or rolls it back.
    Quarantined,
}

impl State {
    /// Every state.
    pub const ALL: [Self; 7] = [
        Self::Created,
        Self::Pending,
        Self::Committed,
        Self::Finished,
        Self::Terminating,
        Self::RolledBack,
        Self::Quarantined,
    ];

    /// The states in which something remains to be done by itself.
    pub const OPEN: [Self; 4] = [Self::Created, Self::Pending, Self::Committed, Self::Terminating];

    /// Its name, as it is stored.
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

    /// Whether its effects happened.
    #[must_use]
    pub fn is_committed(self) -> bool {
        matches!(self, Self::Committed | Self::Finished)
    }

    /// Whether waiting any longer is of no use.
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

/// When a request came to its states, in milliseconds since the Unix epoch, by the wall clocks of those who brought it
/// there. The last time where it came to one more than once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Times {
    /// It was submitted.
    pub created_ms: u64,
    /// Anything of it changed.
    pub modified_ms: u64,
    /// A processor began with it.
    pub pending_ms: Option<u64>,
    /// It was committed.
    pub committed_ms: Option<u64>,
    /// It was finished.
    pub finished_ms: Option<u64>,
    /// Its rolling back began.
    pub terminating_ms: Option<u64>,
    /// It was rolled back.
    pub rolled_back_ms: Option<u64>,
    /// It was set aside.
    pub quarantined_ms: Option<u64>,
}

/// Why a request is where it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reason {
    /// One of its operations was refused.
    Refused(Refusal),
    /// Somebody cancelled it or rolled it back, with these words.
    Cancelled(String),
    /// Trying it failed, with this error.
    Failed(String),
    /// Processors died while they carried it out.
    Died,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => write!(f, "{refusal}"),
            Self::Cancelled(why) => write!(f, "cancelled: {why}"),
            Self::Failed(why) => write!(f, "it failed: {why}"),
            Self::Died => f.write_str("its processors died while they carried it out"),
        }
    }
}

/// Who is at a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Claim {
    pub(crate) instance: String,
    pub(crate) name: String,
    pub(crate) grant: String,
    pub(crate) lease_ms: u64,
}

/// A request as it is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) format: Format<NEWEST>,
    pub(crate) id: String,
    pub(crate) application: Option<String>,
    pub(crate) state: State,
    pub(crate) times: Times,
    pub(crate) request: Request,
    pub(crate) claim: Option<Claim>,
    pub(crate) failures: u32,
    /// How many processors died while they carried the request out.
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
    pub(crate) fn new(id: &str, request: Request, now_ms: u64) -> Self {
        Self {
            format: Format,
            id: id.to_owned(),
            application: request.application.clone(),
            state: State::Created,
            times: Times { created_ms: now_ms, modified_ms: now_ms, ..Times::default() },
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

    /// Brings it to a state.
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
        self.state = state;
    }

    /// Whether this claim stands.
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

/// What is known of a request.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Status {
    /// The client's id.
    pub id: String,
    /// Whose it is.
    pub application: Option<String>,
    /// Where it stands.
    pub state: State,
    /// When it came there.
    pub times: Times,
    /// Who is at it, for people.
    pub processor: Option<String>,
    /// How often trying it failed.
    pub failures: u32,
    /// How many processors died while they carried the request out.
    pub deaths: u32,
    /// Why it is where it is; of one that is still open, why it failed last.
    pub reason: Option<Reason>,
    /// The version of what it wrote, once it is finished.
    pub commit_version: Option<CommitVersion>,
    /// The request that this one reverses.
    pub reverses: Option<String>,
    /// The request that reverses this one.
    pub reversed_by: Option<String>,
    /// What was asked for.
    pub request: Request,
}
