//! Refusals: the operation, the document, and the reason.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::contents::request::Target;

/// A refused operation. The whole request then has no effect.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Refusal {
    /// The number of the operation, from 0.
    pub operation: usize,
    /// The document.
    pub target: Target,
    /// The JSON pointer of the field, if the refusal concerns one.
    pub path: Option<String>,
    /// The reason.
    pub why: Why,
    /// The content at the time: the number, the field, or the version.
    ///
    /// `None` if the document or the field was missing. Neither `Debug` nor `Display` shows this
    /// value.
    pub current: Option<Value>,
}

impl Refusal {
    /// Creates a refusal of operation number `operation` on `target`.
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

/// The reason of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Why {
    /// The document does not exist.
    Missing,
    /// The document exists.
    Exists,
    /// The field is not a number.
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
    /// The `copy` steps add too many bytes.
    ///
    /// The limit is [`RequestsConfig::max_bytes`](crate::RequestsConfig::max_bytes) for a request,
    /// and 1 MiB for a dependent write.
    CopiesTooMuch,
    /// A step of the patch nests containers deeper than 127.
    TooDeep,
    /// A changed field has a number that would be rounded.
    WouldRound,
    /// The result is not a storable document.
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
