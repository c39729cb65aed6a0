//! Reads documents that other versions of this library may have written.

use txn_protocol::format::Format;
use txn_protocol::record::Record;

use crate::error::{Error, ErrorKind};
use txn_store::Key;

/// Reads the record at a key, or returns why that fails.
pub(crate) fn read_record(key: &Key, source: &str) -> Result<Record, Error> {
    Record::parse(source).map_err(|fault| unreadable(key, source, &fault.to_string()))
}

/// The error of an unreadable document: a newer format, or else `fault`.
pub(crate) fn unreadable(key: &Key, source: &str, fault: &str) -> Error {
    match Format::of(source) {
        Some(format) if !format.is_known() => {
            let message = format!(
                "it is of the format {format}, and this library understands none newer than {}: upgrade this process",
                Format::NEWEST
            );
            Error::new(ErrorKind::Misconfigured, message).at(key)
        }
        _ => Error::damaged(fault).at(key),
    }
}
