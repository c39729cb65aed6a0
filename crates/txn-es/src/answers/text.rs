//! Bodies of answers that are not valid UTF-8 or hold broken escapes. No I/O.
//!
//! The servers return documents as they were stored, and repeat values in their errors. So an
//! answer may hold bytes that are not UTF-8, and escapes of half a surrogate pair.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Visitor};
use serde_json::value::RawValue;
use txn_store::{StoreError, StoreErrorKind};

/// Replaces each byte that is not UTF-8.
///
/// The length stays the same, and the byte ends no string.
const STAND_IN: u8 = 0x7f;

/// The text of an answer. The byte offsets are those of the body.
pub(crate) struct Text<'a> {
    body: &'a [u8],
    text: Cow<'a, str>,
}

impl<'a> Text<'a> {
    pub(crate) fn of(body: &'a [u8]) -> Self {
        let text = std::str::from_utf8(body).map_or_else(|_| masked(body).into(), Cow::Borrowed);
        Self { body, text }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the server sent this piece of the text unchanged.
    pub(crate) fn is_as_sent(&self, piece: &str) -> bool {
        let Cow::Owned(text) = &self.text else { return true };
        let from = piece.as_ptr().addr().wrapping_sub(text.as_ptr().addr());
        let sent = self.body.get(from..).and_then(|rest| rest.get(..piece.len()));
        sent == Some(piece.as_bytes())
    }
}

fn masked(body: &[u8]) -> String {
    let mut text = String::with_capacity(body.len());
    for chunk in body.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::from(STAND_IN)));
    }
    text
}

/// Returns the string in an answer, and replaces broken surrogates.
///
/// `raw` is the piece of the answer.
pub(crate) fn string(raw: &RawValue) -> Option<String> {
    // Errors are objects most of the time, and a failed parse would format an error text.
    if !raw.get().starts_with('"') {
        return None;
    }
    serde_json::from_str(raw.get()).ok().map(|Loose(text)| text)
}

struct Loose(String);

impl<'de> Deserialize<'de> for Loose {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = Loose;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Loose, E> {
                Ok(Loose(String::from_utf8_lossy(bytes).into_owned()))
            }
        }
        // Only the bytes variant accepts half a surrogate pair.
        deserializer.deserialize_bytes(Bytes)
    }
}

/// The error for a stored document that is not UTF-8. A retry does not help.
pub(crate) fn not_utf8() -> StoreError {
    let text = "the stored document holds bytes that are not UTF-8, which some client wrote: put it right \
                with that client, or delete it";
    StoreError::new(StoreErrorKind::Damaged, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_keeps_the_offsets_of_its_body() {
        let body = b"{\"a\":\"x\xED\xA0\x80y\",\"b\":\"\xC3\xBC\"}";
        let text = Text::of(body);
        assert_eq!(text.as_str(), "{\"a\":\"x\u{7f}\u{7f}\u{7f}y\",\"b\":\"ü\"}");
        let whole = text.as_str();
        assert!(!text.is_as_sent(whole));
        assert!(text.is_as_sent(&whole[whole.len() - 5..]));
        assert!(!text.is_as_sent(&whole[6..9]) && text.is_as_sent(&whole[..7]));
        assert!(!text.is_as_sent("elsewhere"));
        assert!(Text::of(b"{}").is_as_sent("{}"));
    }

    #[test]
    fn lone_surrogate_is_replaced() {
        for (json, expected) in [
            (r#""a\ud800b""#, Some("a\u{fffd}\u{fffd}\u{fffd}b")),
            (r#""\ud83d\ude00""#, Some("😀")),
            (r#""ü""#, Some("ü")),
            ("1", None),
            ("[1]", None),
        ] {
            let raw: &RawValue = serde_json::from_str(json).unwrap();
            assert_eq!(string(raw).as_deref(), expected, "{json}");
        }
    }
}
