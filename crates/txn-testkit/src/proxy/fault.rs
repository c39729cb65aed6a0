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
}

impl FaultKind {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::LoseAnswer,
        Self::CutBefore,
        Self::DelayBefore,
        Self::DelayAfter,
        Self::Duplicate,
        Self::DuplicateLate,
        Self::TooManyRequests,
        Self::ServiceUnavailable,
        Self::CutAnswer,
    ];
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
        }
    }
}
