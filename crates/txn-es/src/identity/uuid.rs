//! The UUID that a server assigns to each new index.

use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use txn_store::StoreError;

use crate::index::definition::misconfigured;

/// The UUID of one index: 16 bytes. The servers show the UUID in base64.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IndexUuid {
    text: Arc<str>,
    bits: u128,
}

impl IndexUuid {
    /// Parses the UUID of `index`.
    pub(crate) fn parse(index: &str, text: &str) -> Result<Self, StoreError> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).ok();
        let bytes = bytes.and_then(|bytes| <[u8; 16]>::try_from(bytes).ok()).ok_or_else(|| {
            misconfigured(format!(
                "{index}: its UUID {text:?} is not 16 bytes in base64, as Elasticsearch and OpenSearch have it; \
                 connect to one of these servers"
            ))
        })?;
        Ok(Self { text: text.into(), bits: u128::from_be_bytes(bytes) })
    }

    /// Returns the servers' text.
    pub(crate) fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// Returns the incarnation in this index's versions: 63 bits of the UUID.
    ///
    /// 63 bits are a positive number for every JSON parser. Both halves enter, because some bits of
    /// each half are the same in every UUID.
    pub(crate) fn incarnation(&self) -> u64 {
        let [high, low] = [self.bits >> 64, self.bits & u128::from(u64::MAX)];
        ((high ^ low) as u64) >> 1
    }

    /// Lower case, as some tools expect of every name.
    pub(crate) fn hex(&self) -> String {
        format!("{:032x}", self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uuid(text: &str) -> IndexUuid {
        IndexUuid::parse("a", text).unwrap()
    }

    #[test]
    fn incarnations_of_similar_uuids_differ() {
        let first = uuid("uMz0YBdmS5i9vKTh9RA3_g");
        assert_eq!(first.hex(), "b8ccf46017664b98bdbca4e1f51037fe");
        // Each differs in only one half.
        let others = ["Zq3yC0nXTdqXFh2C6hHEXw", "uMz0YBdmS5i9vKTh9RA3_A", "vMz0YBdmS5i9vKTh9RA3_g"];
        for other in others.map(uuid) {
            assert_ne!(first.incarnation(), other.incarnation(), "{}", other.text());
        }
        assert!(i64::try_from(first.incarnation()).is_ok());
    }

    #[test]
    fn other_identities_are_refused_by_name() {
        for text in ["", "_na_", "u", "uMz0YBdmS5i9vKTh9RA3_g==", "uMz0YBdmS5i9vKTh9RA3"] {
            let error = IndexUuid::parse("stock", text).unwrap_err();
            assert!(error.message.contains("stock") && error.message.contains("UUID"), "{error}");
        }
    }
}

#[cfg(test)]
pub(crate) mod samples {
    use super::IndexUuid;

    /// Returns a UUID that begins with two letters.
    pub(crate) fn uuid(letters: &str) -> IndexUuid {
        IndexUuid::parse("a", &format!("{letters}z0YBdmS5i9vKTh9RA3_g")).expect("a UUID")
    }
}
