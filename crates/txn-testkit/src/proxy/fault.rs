//! What can go wrong with one request.

use std::time::Duration;

/// A fault, with what it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The server carries the request out and answers; the connection is cut instead of passing that on.
    LoseAnswer,
    /// The connection is cut, and the server never learns of the request.
    CutBefore,
    /// The server gets the request only after a while. The client may have given up by then.
    DelayBefore(Duration),
    /// The answer comes only after a while.
    DelayAfter(Duration),
    /// The server gets the request twice at the same time; one of the answers is passed on.
    Duplicate,
    /// The request is carried out and answered, and the server gets it once more after a while.
    DuplicateLate(Duration),
    /// The proxy refuses with 429 and the error type of an overloaded server.
    TooManyRequests,
    /// The proxy refuses with 503 and words that no server uses.
    ServiceUnavailable,
    /// The request is carried out; the first half of the answer arrives, then the connection is cut.
    CutAnswer,
    /// The request is carried out, and every write of a `_bulk` that succeeded is answered with this refusal: as where
    /// the server sent an item on again, and answers for its last try.
    Refuse(Refusal),
}

/// What a write is answered that was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Refusal {
    /// 429: a queue is full.
    Overloaded,
    /// 403: a block forbids writes.
    Blocked,
    /// 400: the index is closed.
    Closed,
    /// 404: there is no such index.
    Missing,
}

impl Refusal {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Overloaded, Self::Blocked, Self::Closed, Self::Missing];

    /// The status of the item, and the type of its error, in the words of the servers.
    #[must_use]
    pub fn words(self) -> (u16, &'static str) {
        match self {
            Self::Overloaded => (429, "es_rejected_execution_exception"),
            Self::Blocked => (403, "cluster_block_exception"),
            Self::Closed => (400, "index_closed_exception"),
            Self::Missing => (404, "index_not_found_exception"),
        }
    }
}

/// How a server is out of reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outage {
    /// Every request is refused whole with 429: nothing of it is carried out, and the client knows.
    Refuses,
    /// Connections are cut before the server learns of the request.
    Silent,
    /// Connections and requests are taken, and nothing is answered. Requests are lost when the outage ends.
    Hangs,
}

/// What kind of fault it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum FaultKind {
    /// [`Fault::LoseAnswer`]
    LoseAnswer,
    /// [`Fault::CutBefore`]
    CutBefore,
    /// [`Fault::DelayBefore`]
    DelayBefore,
    /// [`Fault::DelayAfter`]
    DelayAfter,
    /// [`Fault::Duplicate`]
    Duplicate,
    /// [`Fault::DuplicateLate`]
    DuplicateLate,
    /// [`Fault::TooManyRequests`]
    TooManyRequests,
    /// [`Fault::ServiceUnavailable`]
    ServiceUnavailable,
    /// [`Fault::CutAnswer`]
    CutAnswer,
    /// [`Fault::Refuse`] with [`Refusal::Overloaded`]
    RefuseOverloaded,
    /// [`Fault::Refuse`] with [`Refusal::Blocked`]
    RefuseBlocked,
    /// [`Fault::Refuse`] with [`Refusal::Closed`]
    RefuseClosed,
    /// [`Fault::Refuse`] with [`Refusal::Missing`]
    RefuseMissing,
}

impl FaultKind {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::LoseAnswer,
        Self::CutBefore,
        Self::DelayBefore,
        Self::DelayAfter,
        Self::Duplicate,
        Self::DuplicateLate,
        Self::TooManyRequests,
        Self::ServiceUnavailable,
        Self::CutAnswer,
        Self::RefuseOverloaded,
        Self::RefuseBlocked,
        Self::RefuseClosed,
        Self::RefuseMissing,
    ];

    /// Whether it answers what was carried out with a refusal. Only writes in a `_bulk` meet these.
    #[must_use]
    pub fn is_refusal(self) -> bool {
        matches!(
            self,
            Self::RefuseOverloaded | Self::RefuseBlocked | Self::RefuseClosed | Self::RefuseMissing
        )
    }
}

impl Fault {
    /// Its kind.
    #[must_use]
    pub fn kind(self) -> FaultKind {
        match self {
            Self::LoseAnswer => FaultKind::LoseAnswer,
            Self::CutBefore => FaultKind::CutBefore,
            Self::DelayBefore(_) => FaultKind::DelayBefore,
            Self::DelayAfter(_) => FaultKind::DelayAfter,
            Self::Duplicate => FaultKind::Duplicate,
            Self::DuplicateLate(_) => FaultKind::DuplicateLate,
            Self::TooManyRequests => FaultKind::TooManyRequests,
            Self::ServiceUnavailable => FaultKind::ServiceUnavailable,
            Self::CutAnswer => FaultKind::CutAnswer,
            Self::Refuse(Refusal::Overloaded) => FaultKind::RefuseOverloaded,
            Self::Refuse(Refusal::Blocked) => FaultKind::RefuseBlocked,
            Self::Refuse(Refusal::Closed) => FaultKind::RefuseClosed,
            Self::Refuse(Refusal::Missing) => FaultKind::RefuseMissing,
        }
    }
}
