//! Stored documents with a format version.
//!
//! A program reports a newer format by its number, and never reads the document as something else.

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use txn_core::{Codec, DecodeError};

/// A format version, stored as the number `N`. Reading a larger number fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Format<const N: u32>;

impl<const N: u32> Serialize for Format<N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(N)
    }
}

impl<'de, const N: u32> Deserialize<'de> for Format<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u32::deserialize(deserializer)? {
            found if (1..=N).contains(&found) => Ok(Self),
            found => Err(D::Error::custom(format!("format {found} is not known"))),
        }
    }
}

/// A stored document, or the number of its newer format.
#[derive(Clone, Debug, PartialEq)]
pub enum Stored<T> {
    /// A document of a known format.
    Known(T),
    /// The number of a newer format.
    Newer(u32),
}

impl<T> Stored<T> {
    /// The document, if this program knows its format.
    ///
    /// # Errors
    /// The number of the newer format.
    pub fn known(self) -> Result<T, u32> {
        match self {
            Self::Known(value) => Ok(value),
            Self::Newer(format) => Err(format),
        }
    }
}

/// Defines the kinds of documents that share a collection.
///
/// Each kind is a type with one value, written as its name in lower case. Reading a document of
/// another kind fails.
#[macro_export]
macro_rules! document_kinds {
    ($($name:ident: $variant:ident;)*) => {$(
        #[derive(Clone, Copy, Debug, PartialEq, Eq, ::serde::Serialize, ::serde::Deserialize)]
        #[serde(rename_all = "lowercase")]
        pub(crate) enum $name {
            $variant,
        }
    )*};
}

/// The codec of documents with a format version of at most `N`.
///
/// The version is the top-level field `format`. Use the type as the `C` of a
/// [`Collection`](txn_core::Collection).
#[derive(Debug)]
pub struct Versioned<T, const N: u32>(std::marker::PhantomData<fn() -> T>);

#[derive(Deserialize)]
struct Head {
    format: u32,
}

impl<T, const N: u32> Codec for Versioned<T, N>
where
    T: Serialize + DeserializeOwned + Send + 'static,
{
    type Value = Stored<T>;

    fn encode(value: &Stored<T>) -> Result<String, serde_json::Error> {
        match value {
            Stored::Known(value) => serde_json::to_string(value),
            Stored::Newer(format) => {
                let why = format!("a document of the format {format} cannot be written");
                Err(<serde_json::Error as serde::ser::Error>::custom(why))
            }
        }
    }

    fn decode(text: &str) -> Result<Stored<T>, DecodeError> {
        match serde_json::from_str(text)? {
            Head { format } if format > N => Ok(Stored::Newer(format)),
            Head { .. } => Ok(Stored::Known(serde_json::from_str(text)?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Note {
        format: Format<2>,
        text: String,
    }

    type Notes = Versioned<Note, 2>;

    #[test]
    fn newer_format_is_reported_by_its_number() {
        assert_eq!(Notes::decode(r#"{"format":3,"pages":[]}"#).unwrap(), Stored::Newer(3));
        let note = Note { format: Format, text: "a".to_owned() };
        for old in [r#"{"format":1,"text":"a"}"#, r#"{"format":2,"text":"a"}"#] {
            assert_eq!(
                Notes::decode(old).unwrap(),
                Stored::Known(Note { text: "a".into(), ..note })
            );
        }
        for wrong in [r#"{"format":0,"text":"a"}"#, r#"{"text":"a"}"#, r#"{"format":1}"#] {
            assert!(Notes::decode(wrong).is_err(), "{wrong}");
        }
        let text = Notes::encode(&Stored::Known(note)).unwrap();
        assert_eq!(text, r#"{"format":2,"text":"a"}"#);
        assert!(Notes::encode(&Stored::Newer(3)).is_err());
    }
}
