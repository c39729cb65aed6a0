//! The format version of records and domain documents.

use serde::{Deserialize, Serialize};

/// The format of one document. A document without a format has the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Format(u32);

impl Default for Format {
    fn default() -> Self {
        Self(1)
    }
}

impl Format {
    /// The format that this library writes, and the newest that it understands.
    pub const NEWEST: Self = Self(1);

    /// The format of a document, if its source can be read.
    #[must_use]
    pub fn of(source: &str) -> Option<Self> {
        #[derive(Deserialize)]
        struct Only {
            #[serde(default)]
            format: Format,
        }
        serde_json::from_str::<Only>(source).ok().map(|only| only.format)
    }

    /// Whether this library understands the format.
    #[must_use]
    pub fn is_known(self) -> bool {
        self <= Self::NEWEST
    }
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
