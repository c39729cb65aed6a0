//! Why a request is refused: which of its operations, and what stood in its way.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::request::Target;

/// An operation that cannot be carried out as things stand. Nothing of the request is.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Refusal {
    /// Which operation, from 0.
    pub operation: usize,
    /// The document.
    pub target: Target,
    /// The field, as a JSON pointer, if it is about one.
    pub path: Option<String>,
    /// Why.
    pub why: Why,
    /// What stood there when it was refused: the number, the field, or the version; `None` if nothing did. Neither
    /// `Debug` nor `Display` shows it.
    pub current: Option<Value>,
}

impl Refusal {
    /// Operation number `operation`, on `target`, is refused.
    #[must_use]
    pub fn new(operation: usize, target: Target, why: Why) -> Self {
        Self { operation, target, path: None, why, current: None }
    }

    /// Sets [`Refusal::path`] and [`Refusal::current`].
    #[must_use]
    pub fn at(mut self, path: &str, current: Option<Value>) -> Self {
        (self.path, self.current) = (Some(path.to_owned()), current);
        self
    }
}

/// Why an operation is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Why {
    /// The document does not exist.
    Missing,
    /// The document exists.
    Exists,
    /// There is no number in that place.
    NotANumber,
    /// The sum would fall below the minimum.
    BelowMinimum,
    /// The sum would rise above the maximum.
    AboveMaximum,
    /// The sum does not fit into 64 bits.
    Overflow,
    /// The field has another value.
    FieldDiffers,
    /// Another transaction wrote the document last.
    VersionDiffers,
    /// The patch does not fit the document.
    PatchFails,
    /// The `copy` steps of the request add more bytes than [`RequestsConfig::max_bytes`](crate::RequestsConfig::max_bytes), or
    /// those of a dependent write more than 1 MiB.
    CopiesTooMuch,
    /// A step of the patch nests containers deeper than 127.
    TooDeep,
    /// A field that changes holds a number that would be rounded.
    WouldRound,
    /// The outcome is no document that can be stored.
    NoDocument,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "there is no such document",
            Self::Exists => "the document exists",
            Self::NotANumber => "there is no number",
            Self::BelowMinimum => "the sum would be below the minimum",
            Self::AboveMaximum => "the sum would be above the maximum",
            Self::Overflow => "the sum does not fit into 64 bits",
            Self::FieldDiffers => "the field has another value",
            Self::VersionDiffers => "another transaction wrote it last",
            Self::PatchFails => "the patch does not fit the document",
            Self::CopiesTooMuch => {
                "the `copy` steps add too many bytes (`RequestsConfig::max_bytes`)"
            }
            Self::TooDeep => "the patch nests containers deeper than 127",
            Self::WouldRound => {
                "the field holds a number with more digits than 64 bits or a double keep: use `put`"
            }
            Self::NoDocument => "the outcome cannot be stored as a document",
        })
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, target, path, why, .. } = self;
        write!(f, "operation {operation} on {}/{}", target.collection, target.id)?;
        if let Some(path) = path {
            write!(f, " at {path}")?;
        }
        write!(f, " is refused: {why}")
    }
}

impl fmt::Debug for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Refusal {}
