//! The ruling on a history, and anomalies.

use std::fmt;

/// The maximum number of reported anomalies.
const MOST_ANOMALIES: usize = 100;

/// The ruling on a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ruling {
    /// The judge found no contradiction to strict serialisability.
    Valid,
    /// The history is not strictly serialisable.
    Invalid,
    /// The history has no acknowledged transaction, or is not well formed.
    Undecided,
}

/// The kind of an anomaly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AnomalyKind {
    /// A cycle of `ww`: dirty writes.
    G0,
    /// A read of an aborted write.
    G1a,
    /// A read of a write that was not the transaction's last. The transaction overwrote the value,
    /// or followed the write with another append.
    G1b,
    /// A cycle of `ww` and `wr`: circular information flow.
    G1c,
    /// A cycle with one `rw`: read skew.
    GSingle,
    /// A cycle with several `rw`, none next to another one: long fork.
    GNonadjacent,
    /// A cycle with `rw` next to each other: write skew.
    G2Item,
    /// As [`AnomalyKind::G0`], with real-time order in the cycle.
    G0Realtime,
    /// As [`AnomalyKind::G1c`], with real-time order in the cycle.
    G1cRealtime,
    /// As [`AnomalyKind::GSingle`], with real-time order in the cycle: a stale read.
    GSingleRealtime,
    /// As [`AnomalyKind::GNonadjacent`], with real-time order in the cycle.
    GNonadjacentRealtime,
    /// As [`AnomalyKind::G2Item`], with real-time order in the cycle.
    G2ItemRealtime,
    /// Two transactions read the same version of a key. Both wrote the key.
    LostUpdate,
    /// A read of a value too early, or without a write. Too early is before any transaction asked
    /// to write the value.
    ThinAir,
    /// A read that contradicts an earlier operation of its own transaction.
    Internal,
    /// A list with the same value twice.
    DuplicateElements,
    /// Two reads of a list, neither a prefix of the other.
    IncompatibleOrder,
    /// A list with a transaction's appends in part or reordered.
    TornWrite,
}

impl AnomalyKind {
    /// Returns the usual name of the anomaly.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::G0 => "G0",
            Self::G1a => "G1a",
            Self::G1b => "G1b",
            Self::G1c => "G1c",
            Self::GSingle => "G-single",
            Self::GNonadjacent => "G-nonadjacent",
            Self::G2Item => "G2-item",
            Self::G0Realtime => "G0-realtime",
            Self::G1cRealtime => "G1c-realtime",
            Self::GSingleRealtime => "G-single-realtime",
            Self::GNonadjacentRealtime => "G-nonadjacent-realtime",
            Self::G2ItemRealtime => "G2-item-realtime",
            Self::LostUpdate => "lost-update",
            Self::ThinAir => "thin-air",
            Self::Internal => "internal",
            Self::DuplicateElements => "duplicate-elements",
            Self::IncompatibleOrder => "incompatible-order",
            Self::TornWrite => "torn-write",
        }
    }
}

/// An anomaly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anomaly {
    /// The kind.
    pub kind: AnomalyKind,
    /// The ids of the transactions. With a cycle they are in its order. The final read has none.
    pub transactions: Vec<u64>,
    /// The reason.
    pub explanation: String,
}

/// The judgement of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// The ruling.
    pub ruling: Ruling,
    /// The anomalies, at most one hundred.
    pub anomalies: Vec<Anomaly>,
    /// The reason, if the ruling is [`Ruling::Undecided`].
    pub undecided: Option<String>,
}

impl Judgement {
    pub(crate) fn of(mut anomalies: Vec<Anomaly>) -> Self {
        let ruling = if anomalies.is_empty() { Ruling::Valid } else { Ruling::Invalid };
        anomalies.truncate(MOST_ANOMALIES);
        Self { ruling, anomalies, undecided: None }
    }

    pub(crate) fn undecided(why: String) -> Self {
        Self { ruling: Ruling::Undecided, anomalies: Vec::new(), undecided: Some(why) }
    }

    /// Whether the history has an anomaly of this kind.
    #[must_use]
    pub fn has(&self, kind: AnomalyKind) -> bool {
        self.anomalies.iter().any(|anomaly| anomaly.kind == kind)
    }
}

impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.ruling, &self.undecided) {
            (Ruling::Valid, _) => write!(f, "valid")?,
            (Ruling::Invalid, _) => write!(f, "INVALID")?,
            (Ruling::Undecided, why) => write!(f, "undecided: {}", why.as_deref().unwrap_or(""))?,
        }
        for Anomaly { kind, explanation, .. } in &self.anomalies {
            write!(f, "\n{}: {explanation}", kind.name())?;
        }
        Ok(())
    }
}
