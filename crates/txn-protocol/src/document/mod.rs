//! Documents as raw JSON: application content and reserved fields.
//!
//! The content keeps its bytes. The reserved fields belong to the engine.

mod json;
mod merge;

use std::fmt;
use std::sync::Arc;

use crate::ids::{AttemptId, CommitVersion};
use txn_store::fields::{
    TRANSACTION_ABSENT, TRANSACTION_RECENT, TRANSACTION_TID, TRANSACTION_VERSION,
};
use txn_store::{Source, Version};

pub use json::JsonError;
pub use json::flatten;

/// The application's content of one document, without reserved fields.
///
/// The content is the text of a JSON object. Keys and values keep their bytes. White space between
/// the fields of the top level is normalised away, so that equal text means equal content.
#[derive(Clone, PartialEq, Eq)]
pub struct Image(Arc<str>);

impl Image {
    /// Takes the text of a JSON object.
    ///
    /// # Errors
    /// [`JsonError`] if the text is not a JSON object, has a duplicate key at any depth, or uses a
    /// reserved field.
    pub fn parse(text: &str) -> Result<Self, JsonError> {
        let flat = flatten(text);
        let fields = json::fields(&flat)?;
        if let Some(field) =
            fields.iter().find(|field| txn_store::fields::RESERVED.contains(&&*field.name))
        {
            return Err(JsonError::new(format!(
                "the field {:?} is reserved for transactions",
                field.name
            )));
        }
        Ok(Self::of_fields(&fields))
    }

    fn of_fields(fields: &[json::Field<'_>]) -> Self {
        let bytes = fields.iter().map(|field| field.key.len() + field.value.len() + 2);
        let mut text = String::with_capacity(bytes.sum::<usize>() + 2);
        text.push('{');
        push_fields(&mut text, fields);
        text.push('}');
        Self(text.into())
    }

    /// The text of the JSON object.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn inner(&self) -> &str {
        self.0.strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap_or_default()
    }
}

impl Default for Image {
    fn default() -> Self {
        Self("{}".into())
    }
}

/// Shows only the length, which keeps bodies of documents out of logs.
impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Image({} bytes)", self.0.len())
    }
}

fn push_fields(text: &mut String, fields: &[json::Field<'_>]) {
    for (index, field) in fields.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        text.push_str(field.key);
        text.push(':');
        text.push_str(field.value);
    }
}

/// A document in the store: reserved fields and content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// The holder of the lock, `transaction_tid`.
    pub lock: Option<AttemptId>,
    /// The commit version of the content, `transaction_version`.
    pub commit_version: Option<CommitVersion>,
    /// The recent commits of the content, `transaction_recent`, oldest first.
    pub recent: Arc<[CommitVersion]>,
    /// Whether the document is a placeholder, `transaction_absent`. Readers take a placeholder for
    /// a missing document.
    pub absent: bool,
    /// The application's content.
    pub image: Image,
}

/// The bytes of the reserved fields except [`Stored::recent`]. [`RECENT_BYTES`] are the bytes of
/// one tid in that field.
const RESERVED_BYTES: usize = 192;
const RECENT_BYTES: usize = 35;

impl Stored {
    /// A lock on a document that does not exist.
    pub fn placeholder(lock: AttemptId) -> Self {
        Self { lock: Some(lock), absent: true, ..Self::default() }
    }

    /// Whether this is a placeholder without content of a plain client.
    pub fn is_bare_placeholder(&self) -> bool {
        self.absent && self.image == Image::default()
    }

    /// Reads a stored source.
    pub fn parse(source: &str) -> Result<Self, JsonError> {
        let flat = flatten(source);
        let mut stored = Self::default();
        let mut own = Vec::new();
        for field in json::fields(&flat)? {
            match &*field.name {
                TRANSACTION_TID => stored.lock = field.parse()?,
                TRANSACTION_VERSION => stored.commit_version = field.parse()?,
                TRANSACTION_RECENT => {
                    stored.recent =
                        field.parse::<Option<Vec<CommitVersion>>>()?.unwrap_or_default().into();
                }
                TRANSACTION_ABSENT => {
                    stored.absent = field.parse::<Option<bool>>()?.unwrap_or_default();
                }
                _ => own.push(field),
            }
        }
        stored.image = Image::of_fields(&own);
        Ok(stored)
    }

    /// The source to store.
    pub fn encode(&self) -> Source {
        use std::fmt::Write;
        let recent = self.recent.len() * RECENT_BYTES;
        let mut text = String::with_capacity(RESERVED_BYTES + recent + self.image.0.len());
        text.push('{');
        // Writing to a `String` does not fail.
        if let Some(lock) = self.lock {
            let _ = write!(text, "\"{TRANSACTION_TID}\":\"{lock}\",");
        }
        if let Some(tid) = self.commit_version {
            let _ = write!(text, "\"{TRANSACTION_VERSION}\":\"{tid}\",");
        }
        if !self.recent.is_empty() {
            let _ = write!(text, "\"{TRANSACTION_RECENT}\":[");
            for (index, tid) in self.recent.iter().enumerate() {
                let comma = if index > 0 { "," } else { "" };
                let _ = write!(text, "{comma}\"{}\"", tid.compact());
            }
            text.push_str("],");
        }
        if self.absent {
            let _ = write!(text, "\"{TRANSACTION_ABSENT}\":true,");
        }
        text.push_str(self.image.inner());
        if text.ends_with(',') {
            text.pop();
        }
        text.push('}');
        text.into()
    }

    /// The same document under another lock, or under none.
    pub fn locked_by(&self, lock: Option<AttemptId>) -> Self {
        Self { lock, ..self.clone() }
    }
}

/// The result of a read of one document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum View {
    /// No document.
    Absent,
    /// A document or a placeholder.
    Present {
        /// The version of the document in the store.
        version: Version,
        /// The source as it was read, which a touch writes again.
        source: Source,
        /// The parsed source.
        stored: Stored,
    },
}

impl View {
    /// The holder of the lock that the view shows.
    pub fn holder(&self) -> Option<AttemptId> {
        match self {
            Self::Absent => None,
            Self::Present { stored, .. } => stored.lock,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TID_1: &str = "5e1f0000-c6a1-11f0-8000-0123456789ab";

    #[test]
    fn content_keeps_the_bytes_of_keys_and_values() {
        let text = "{ \"a\" : 1.0,\n\"b\\u0062\":{\"x\": [1e3,\t\"\\u00e9\"]} , \"n\":123456789012345678901234567890}";
        let image = Image::parse(text).expect("valid");
        assert_eq!(
            image.as_str(),
            "{\"a\":1.0,\"b\\u0062\":{\"x\": [1e3,\t\"\\u00e9\"]},\"n\":123456789012345678901234567890}"
        );
        let stored = Stored { lock: TID_1.parse().ok(), image: image.clone(), ..Stored::default() };
        assert_eq!(Stored::parse(&stored.encode()).expect("own encoding").image, image);
    }

    #[test]
    fn every_reserved_field_survives_a_round_trip() {
        let (lock, commit) = (TID_1.parse().ok(), TID_1.parse().expect("a version"));
        for image in ["{}", "{\"x\":1}"] {
            let image = Image::parse(image).expect("valid");
            for stored in [
                Stored { image: image.clone(), ..Stored::default() },
                Stored { commit_version: Some(commit), image: image.clone(), ..Stored::default() },
                Stored {
                    lock,
                    commit_version: Some(commit),
                    recent: [commit, commit].into(),
                    absent: true,
                    image,
                },
            ] {
                let source = stored.encode();
                assert_eq!(Stored::parse(&source).as_ref(), Ok(&stored), "{source}");
            }
        }
    }

    #[test]
    fn escaped_reserved_fields_are_found_and_refused() {
        let escaped = format!("{{\"transaction\\u005ftid\":\"{TID_1}\",\"x\":1}}");
        assert!(
            Image::parse(&escaped).expect_err("reserved").to_string().contains("transaction_tid")
        );
        let stored = Stored::parse(&escaped).expect("valid");
        assert_eq!(stored.lock, TID_1.parse().ok());
        assert_eq!(stored.image.as_str(), "{\"x\":1}");
    }

    #[test]
    fn reserved_fields_accept_null_and_refuse_garbage() {
        let nulls = "{\"transaction_tid\":null,\"transaction_version\":null,\"transaction_recent\":null,\"transaction_absent\":null}";
        assert_eq!(Stored::parse(nulls), Ok(Stored::default()));
        for garbage in [
            "{\"transaction_version\":\"x\"}",
            "{\"transaction_tid\":7}",
            "{\"transaction_absent\":\"no\"}",
        ] {
            assert!(Stored::parse(garbage).is_err(), "{garbage}");
        }
    }

    #[test]
    fn non_objects_and_duplicate_keys_are_refused() {
        for text in [
            "",
            "[]",
            "1",
            "{",
            "{\"a\":1}{",
            "{\"a\":1,\"a\":2}",
            "{\"a\":1,\"\\u0061\":2}",
            "{\"o\":{\"a\":1,\"a\":2}}",
            "{\"o\":[{\"a\":{\"b\":1,\"b\":2}}]}",
            "{\"a\":\"\n",
            "{\"a\":1,\"b\":1,\"c\":1,\"d\":1,\"e\":1,\"f\":1,\"g\":1,\"h\":1,\"a\":2}",
            "{\"a\":1,\"b\":1,\"c\":1,\"d\":1,\"e\":1,\"f\":1,\"g\":1,\"h\":1,\"i\":1,\"i\":2}",
        ] {
            assert!(Image::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn placeholder_with_content_is_not_bare() {
        let lock = TID_1.parse().expect("a tid");
        assert!(Stored::placeholder(lock).is_bare_placeholder());
        let written = Stored {
            image: Image::parse("{\"a\":1}").expect("valid"),
            ..Stored::placeholder(lock)
        };
        assert!(!written.is_bare_placeholder());
    }

    #[test]
    fn debug_shows_no_content() {
        let image = Image::parse("{\"secret\":42}").expect("valid");
        assert!(!format!("{image:?}").contains("secret"));
    }
}
