//! Fingerprints of contents, as the versions that clients see.
//!
//! A condition on a fingerprint compares contents. Locks of other transactions therefore do not
//! matter, and a transaction with a condition may join a group.

use std::fmt::Write;

use sha2::{Digest, Sha256};

/// The text of a token for a missing document.
const ABSENT: &str = "absent";

/// The bound of a fingerprint's numbers. JavaScript represents the numbers below exactly.
const BOUND: u64 = 1 << 53;

/// A version of a document, equal for equal contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint {
    pub(crate) seq_no: u64,
    pub(crate) primary_term: u64,
}

impl Fingerprint {
    /// The fingerprint of a content.
    pub(crate) fn of(content: &str) -> Self {
        let digest = digest(content);
        let number = |at: usize| {
            let bytes = digest.iter().skip(at).take(8);
            bytes.fold(0, |number: u64, byte| (number << 8) | u64::from(*byte)) % BOUND
        };
        // The servers' terms begin with 1.
        Self { seq_no: number(0), primary_term: number(8).max(1) }
    }
}

/// The token of a content, for a later commit.
pub(crate) fn token(content: Option<&str>) -> String {
    let Some(content) = content else { return ABSENT.to_owned() };
    let mut token = String::with_capacity(32);
    for byte in digest(content).iter().take(16) {
        // A string takes every write.
        let _ = write!(token, "{byte:02x}");
    }
    token
}

/// The digest of a content, except white space between tokens.
///
/// A store may change such white space.
fn digest(content: &str) -> [u8; 32] {
    let mut hash = Sha256::new();
    let (mut start, mut in_string, mut escaped) = (0, false, false);
    for (at, byte) in content.bytes().enumerate() {
        let ends_escape = escaped;
        escaped = false;
        match byte {
            b'\\' if in_string && !ends_escape => escaped = true,
            b'"' if !ends_escape => in_string = !in_string,
            b' ' | b'\t' | b'\n' | b'\r' if !in_string => {
                hash.update(&content.as_bytes()[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    hash.update(&content.as_bytes()[start..]);
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_between_tokens_does_not_matter() {
        let text = r#"{"a":[1,2],"b":"x \" y"}"#;
        let spaced = "{\"a\": [1,\n 2],\t\"b\" : \"x \\\" y\"}";
        assert_eq!(token(Some(text)), token(Some(spaced)));
        assert_eq!(Fingerprint::of(text), Fingerprint::of(spaced));
    }

    #[test]
    fn other_contents_have_other_fingerprints() {
        let texts = ["{}", r#"{"a":1}"#, r#"{"a":"x y"}"#, r#"{"a":"xy"}"#, r#"{"a":"x\\ "}"#];
        for (at, one) in texts.iter().enumerate() {
            assert_ne!(token(Some(one)), token(None));
            let Fingerprint { seq_no, primary_term } = Fingerprint::of(one);
            assert!(seq_no < BOUND && (1..BOUND).contains(&primary_term));
            for other in &texts[at + 1..] {
                assert_ne!(token(Some(one)), token(Some(other)));
                assert_ne!(Fingerprint::of(one), Fingerprint::of(other));
            }
        }
    }
}
