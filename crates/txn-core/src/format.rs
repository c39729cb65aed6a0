//! The version of the format in which records and domain documents are written.

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind};
use crate::store::Key;

/// The format of one document. A document that names none is of the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Format(u32);

/// What this library writes, and the newest that it understands.
const NEWEST: Format = Format(1);

impl Default for Format {
    fn default() -> Self {
        Self(1)
    }
}

impl Format {
    pub(crate) fn is_known(self) -> bool {
        self <= NEWEST
    }
}

/// Why a document can not be read: a newer library wrote it, or else as `fault` says.
pub(crate) fn unreadable(key: &Key, source: &str, fault: &str) -> Error {
    #[derive(Deserialize)]
    struct Only {
        #[serde(default)]
        format: Format,
    }
    match serde_json::from_str::<Only>(source) {
        Ok(Only { format }) if !format.is_known() => {
            let message = format!(
                "it is of the format {}, and this library understands none newer than {}: upgrade this process",
                format.0, NEWEST.0
            );
            Error::new(ErrorKind::Misconfigured, message).at(key)
        }
        _ => Error::damaged(fault).at(key),
    }
}
