//! The layout of names, collections and documents in the file.
//!
//! All entries are plain bytes and are checked when they are read: an entry with another layout is
//! a [`Fault::Damaged`], never a panic. Numbers are big-endian.
//!
//! | entry | key | value |
//! |---|---|---|
//! | collection | name | uid, flags, owner |
//! | document | uid, id, mark, routing | term, seq_no, source |
//!
//! In the key of a document, 255 follows each zero byte of the id. The mark is two bytes, 0 0
//! without a routing and 0 1 before one. So keys sort by collection, id and routing, documents
//! without a routing come first, and no two documents share a key.

use std::sync::Arc;

use txn_store::embedded::Place;
use txn_store::{Source, Version};

use crate::error::Fault;

/// The record of a collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// The identity of the collection. The keys of the collection's documents begin with this
    /// number.
    pub(crate) uid: u64,
    /// Whether writes are blocked.
    pub(crate) blocked: bool,
    /// The owning domain.
    pub(crate) owner: Option<String>,
}

const BLOCKED: u8 = 1;
const OWNED: u8 = 2;

impl Record {
    /// Returns the identity as [`txn_store::CollectionInfo`] shows it.
    pub(crate) fn shown_uid(&self) -> Arc<str> {
        format!("redb-{}", self.uid).into()
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut flags = 0;
        if self.blocked {
            flags |= BLOCKED;
        }
        if self.owner.is_some() {
            flags |= OWNED;
        }
        let owner = self.owner.as_deref().unwrap_or_default();
        [&self.uid.to_be_bytes()[..], &[flags], owner.as_bytes()].concat()
    }

    pub(crate) fn decode(name: &str, bytes: &[u8]) -> Result<Self, Fault> {
        let damaged = || Fault::damaged(format!("the record of the collection {name:?}"));
        let (uid, rest) = bytes.split_first_chunk().ok_or_else(damaged)?;
        let (flags, owner) = rest.split_first().ok_or_else(damaged)?;
        if flags & !(BLOCKED | OWNED) != 0 {
            return Err(damaged());
        }
        let owned = flags & OWNED != 0;
        let owner = owned.then(|| str::from_utf8(owner).map(str::to_owned)).transpose();
        let owner = owner.map_err(|_| damaged())?;
        Ok(Self { uid: u64::from_be_bytes(*uid), blocked: flags & BLOCKED != 0, owner })
    }
}

/// Decodes the counter of versions and identities.
pub(crate) fn decode_number(what: &str, bytes: &[u8]) -> Result<u64, Fault> {
    let bytes = bytes.try_into().map_err(|_| Fault::damaged(what))?;
    Ok(u64::from_be_bytes(bytes))
}

/// Returns the key of a document.
pub(crate) fn document_key(uid: u64, id: &str, routing: Option<&str>) -> Vec<u8> {
    let length = 8 + id.len() + 2 + routing.map_or(0, str::len);
    let mut key = Vec::with_capacity(length);
    key.extend_from_slice(&uid.to_be_bytes());
    for byte in id.bytes() {
        key.push(byte);
        if byte == 0 {
            key.push(255);
        }
    }
    key.extend_from_slice(&[0, u8::from(routing.is_some())]);
    key.extend_from_slice(routing.unwrap_or_default().as_bytes());
    key
}

/// Returns the bounds below and above all document keys of a collection.
pub(crate) fn document_bounds(uid: u64) -> (Vec<u8>, Vec<u8>) {
    let mut above = uid.to_be_bytes().to_vec();
    // Longer than eight bytes and above every id: no id begins with the byte 255, because ids are
    // UTF-8.
    above.push(255);
    (uid.to_be_bytes().to_vec(), above)
}

/// Returns id and routing of the document with this key.
pub(crate) fn decode_place(key: &[u8]) -> Result<Place, Fault> {
    let damaged = || Fault::damaged("the key of a document");
    let mut rest = key.get(8..).ok_or_else(damaged)?;
    let mut id = Vec::with_capacity(rest.len());
    let routed = loop {
        let zero = rest.iter().position(|byte| *byte == 0).ok_or_else(damaged)?;
        id.extend_from_slice(&rest[..zero]);
        let mark = *rest.get(zero + 1).ok_or_else(damaged)?;
        rest = &rest[zero + 2..];
        match mark {
            255 => id.push(0),
            0 => break false,
            1 => break true,
            _ => return Err(damaged()),
        }
    };
    if !routed && !rest.is_empty() {
        return Err(damaged());
    }
    let text = |bytes| str::from_utf8(bytes).map(Arc::from).map_err(|_| damaged());
    Ok((text(&id)?, routed.then(|| text(rest)).transpose()?))
}

/// Returns the value of a document.
pub(crate) fn document_value(version: Version, source: &str) -> Vec<u8> {
    let (term, seq_no) = (version.term.to_be_bytes(), version.seq_no.to_be_bytes());
    [&term[..], &seq_no[..], source.as_bytes()].concat()
}

/// Returns the number of the collection, which is in the document's key.
pub(crate) fn collection_of(key: &[u8]) -> Result<u64, Fault> {
    let collection = key.first_chunk().ok_or_else(|| Fault::damaged("the key of a document"))?;
    Ok(u64::from_be_bytes(*collection))
}

/// Splits the value of a document into its version and its source.
fn split_value<'v>(key: &[u8], value: &'v [u8]) -> Result<(Version, &'v [u8]), Fault> {
    let damaged = || Fault::damaged("the version of a document");
    let (term, rest) = value.split_first_chunk().ok_or_else(damaged)?;
    let (seq_no, source) = rest.split_first_chunk().ok_or_else(damaged)?;
    let (term, seq_no) = (u64::from_be_bytes(*term), u64::from_be_bytes(*seq_no));
    Ok((Version { incarnation: collection_of(key)?, term, seq_no }, source))
}

/// Returns the version in the value of a document.
pub(crate) fn decode_version(key: &[u8], value: &[u8]) -> Result<Version, Fault> {
    split_value(key, value).map(|(version, _)| version)
}

/// Returns version and source in the value of a document.
pub(crate) fn decode_document<'v>(
    key: &[u8],
    value: &'v [u8],
) -> Result<(Version, &'v str), Fault> {
    let (version, source) = split_value(key, value)?;
    let source = str::from_utf8(source).map_err(|_| Fault::damaged("the source of a document"))?;
    Ok((version, source))
}

/// Returns version and source with an owned source.
pub(crate) fn read_document(key: &[u8], value: &[u8]) -> Result<(Version, Source), Fault> {
    decode_document(key, value).map(|(version, source)| (version, source.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn document_keys_round_trip_in_order() {
        let ids =
            ["\0", "\0\0", "\0a", "\u{1}", "a", "a\0", "a\0\0", "a\0b", "aa", "b", "\u{10ffff}"];
        let routings = [None, Some("\0"), Some("r"), Some("r\0"), Some("s")];
        let mut places: Vec<Place> = Vec::new();
        for id in ids {
            places.extend(routings.iter().map(|r| (id.into(), r.map(Into::into))));
        }
        places.sort();
        let key = |(id, routing): &Place| document_key(7, id, routing.as_deref());
        let keys: Vec<_> = places.iter().map(key).collect();
        assert!(keys.is_sorted_by(|a, b| a < b));
        let (below, above) = document_bounds(7);
        for (key, place) in keys.iter().zip(&places) {
            assert_eq!(&decode_place(key).unwrap(), place);
            assert!(below < *key && *key < above);
            assert!(*key < document_bounds(8).0);
        }
    }

    #[test]
    fn records_and_documents_round_trip() {
        for owner in [None, Some(String::new()), Some("bank".to_owned())] {
            for blocked in [false, true] {
                let record = Record { uid: 7, blocked, owner: owner.clone() };
                assert_eq!(Record::decode("c", &record.encode()).unwrap(), record);
            }
        }
        let version = Version { incarnation: 7, term: 3, seq_no: u64::MAX };
        let (key, value) = (document_key(7, "a", None), document_value(version, "{}"));
        assert_eq!(decode_document(&key, &value).unwrap(), (version, "{}"));
        assert_eq!(decode_version(&key, &value).unwrap(), version);
    }

    #[test]
    fn damaged_entries_are_faults() {
        assert!(Record::decode("c", &[0; 8]).is_err());
        assert!(Record::decode("c", &[0, 0, 0, 0, 0, 0, 0, 1, 128]).is_err());
        assert!(Record::decode("c", &[0, 0, 0, 0, 0, 0, 0, 1, OWNED, 255]).is_err());
        let key = document_key(7, "a", None);
        assert!(decode_version(&key, &[0; 15]).is_err());
        assert!(decode_document(&key, &[255; 17]).is_err());
        assert!(decode_version(&[0; 7], &[0; 16]).is_err());
        assert!(decode_number("the counter", &[1, 2]).is_err());
        for key in
            [&b"short"[..], b"12345678ab", b"12345678a\0", b"12345678a\0\x05", b"12345678a\0\0x"]
        {
            assert!(decode_place(key).is_err(), "{key:?}");
        }
        assert!(decode_place(&[b"12345678".as_slice(), &[255, 0, 0]].concat()).is_err());
    }
}
