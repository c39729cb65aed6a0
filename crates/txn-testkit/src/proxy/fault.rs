//! The faults of one request.

use std::time::Duration;

/// A fault with its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The server carries the request out, but the answer is lost. The connection is cut before the
    /// answer.
    LoseAnswer,
    /// The connection is cut, and the server does not receive the request.
    CutBefore,
    /// The server receives the request after a delay. The client may have given up by then.
    DelayBefore(Duration),
    /// The answer arrives after a delay.
    DelayAfter(Duration),
    /// The server receives the request twice at once. The client gets one answer.
    Duplicate,
    /// The request is carried out and answered, and repeated after a delay.
    DuplicateLate(Duration),
    /// The proxy refuses with 429, as an overloaded server. The error type is that of such a
    /// server.
    TooManyRequests,
    /// The proxy refuses with 503 and a text that no server uses.
    ServiceUnavailable,
    /// The request is carried out, and half of the answer is lost.
    ///
    /// The connection is cut after the first half.
    CutAnswer,
    /// The request is carried out, and its successful `_bulk` writes are refused.
    ///
    /// A server does so if it sent an item again internally and answers for its last try.
    Refuse(Refusal),
}

/// The refusal of a write that was carried out.
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
    /// All refusals.
    pub const ALL: [Self; 4] = [Self::Overloaded, Self::Blocked, Self::Closed, Self::Missing];

    /// Returns the item's status and error type, as servers name it.
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

/// The way in which a server is unreachable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outage {
    /// Every request is refused whole with 429.
    ///
    /// Nothing is carried out, and the client knows.
    Refuses,
    /// Connections are cut before the server receives the request.
    Silent,
    /// Connections and requests are accepted, and never answered.
    ///
    /// The requests are lost when the outage ends.
    Hangs,
}

/// The kind of a fault, without its parameters.
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
    /// All kinds.
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

    /// Whether the fault refuses writes that were carried out.
    ///
    /// Only writes in a `_bulk` have these faults.
    #[must_use]
    pub fn is_refusal(self) -> bool {
        matches!(
            self,
            Self::RefuseOverloaded | Self::RefuseBlocked | Self::RefuseClosed | Self::RefuseMissing
        )
    }
}

impl Fault {
    /// Returns the kind of the fault.
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
