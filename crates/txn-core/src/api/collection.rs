//! Collections, codecs of values, and document ids.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, ErrorKind, Result};
use txn_protocol::document::Image;
use txn_store::Key;

/// The id of a document, with its optional routing value.
///
/// Any string, owned or borrowed, converts into an id without routing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentId {
    id: Arc<str>,
    routing: Option<Arc<str>>,
}

impl DocumentId {
    /// Returns the id of a document with a routing value.
    ///
    /// ```
    /// use txn_core::DocumentId;
    ///
    /// // The document of a customer, on the shard of this customer.
    /// let id = DocumentId::routed("order-1", "customer-7");
    /// # let _ = id;
    /// ```
    pub fn routed(id: impl AsRef<str>, routing: impl AsRef<str>) -> Self {
        Self { id: id.as_ref().into(), routing: Some(routing.as_ref().into()) }
    }
}

macro_rules! ids_from {
    ($($string:ty: $id:ident => $arc:expr;)*) => {
        $(impl From<$string> for DocumentId {
            fn from($id: $string) -> Self {
                Self { id: $arc, routing: None }
            }
        })*
    };
}

ids_from! {
    &str: id => id.into();
    &&str: id => (*id).into();
    String: id => id.into();
    &String: id => id.as_str().into();
    Box<str>: id => id.into();
    Cow<'_, str>: id => id.into();
    Arc<str>: id => id;
    &Arc<str>: id => id.clone();
}

impl From<&Self> for DocumentId {
    fn from(id: &Self) -> Self {
        id.clone()
    }
}

/// The raw JSON of a document, for collections without a Rust type.
///
/// As the codec of a [`Collection`], `Raw` passes values through byte for byte.
#[derive(Clone, PartialEq, Eq)]
pub struct Raw(String);

impl Raw {
    /// Takes the text of a JSON object. The write checks the text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the JSON text of the document.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Shows the length only: bodies of documents stay out of logs.
impl fmt::Debug for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Raw({} bytes)", self.0.len())
    }
}

/// Converts a value to the content of a document, and back.
///
/// [`Raw`] implements this trait. [`Typed`] implements this trait for every serde type.
///
/// ```
/// use txn_core::{Codec, DecodeError};
///
/// /// A counter as `{"n": 7}`.
/// struct Counter;
///
/// impl Codec for Counter {
///     type Value = u64;
///
///     fn encode(value: &u64) -> Result<String, serde_json::Error> {
///         Ok(serde_json::json!({ "n": value }).to_string())
///     }
///
///     fn decode(text: &str) -> Result<u64, DecodeError> {
///         #[derive(serde::Deserialize)]
///         struct Stored {
///             n: u64,
///         }
///         Ok(serde_json::from_str::<Stored>(text)?.n)
///     }
/// }
/// assert_eq!(Counter::decode(r#"{"n": 7}"#), Ok(7));
/// ```
pub trait Codec: Send + Sync + 'static {
    /// The type that the application uses.
    type Value: Send;

    /// Encodes a value as the text of a JSON object.
    ///
    /// # Errors
    /// If the value cannot be encoded as a JSON object.
    fn encode(value: &Self::Value) -> Result<String, serde_json::Error>;

    /// Decodes a stored text.
    ///
    /// # Errors
    /// If the text is not such a value.
    fn decode(text: &str) -> Result<Self::Value, DecodeError>;
}

/// Why a stored document is not a value of the expected type.
///
/// Names the position, never the content. Messages of serde may quote values of the document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError {
    path: Option<String>,
    line: usize,
    column: usize,
}

impl From<serde_json::Error> for DecodeError {
    fn from(error: serde_json::Error) -> Self {
        Self { path: None, line: error.line(), column: error.column() }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the stored document is not of the expected type: ")?;
        if let Some(path) = &self.path {
            write!(f, "see {path}, ")?;
        }
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

impl std::error::Error for DecodeError {}

/// Finds the path of the field that does not fit. The function decodes the text a second time.
fn path_of_fault<T: DeserializeOwned>(text: &str) -> Option<String> {
    let mut document = serde_json::Deserializer::from_str(text);
    let error = serde_path_to_error::deserialize::<_, T>(&mut document).err()?;
    let path = error.path().to_string();
    // The path of the whole document.
    (path != ".").then_some(path)
}

/// The [`Codec`] of serde types.
///
/// A value does not contain the fields of a document that the type does not know.
/// [`Transaction::put`](crate::Transaction::put) drops these fields, and
/// [`Transaction::update`](crate::Transaction::update) keeps them.
#[derive(Debug)]
pub struct Typed<T>(PhantomData<fn() -> T>);

impl<T: Serialize + DeserializeOwned + Send + 'static> Codec for Typed<T> {
    type Value = T;

    fn encode(value: &T) -> Result<String, serde_json::Error> {
        serde_json::to_string(value)
    }

    fn decode(text: &str) -> Result<T, DecodeError> {
        serde_json::from_str(text)
            .map_err(|error| DecodeError { path: path_of_fault::<T>(text), ..error.into() })
    }
}

impl Codec for Raw {
    type Value = Self;

    fn encode(value: &Self) -> Result<String, serde_json::Error> {
        Ok(value.0.clone())
    }

    fn decode(text: &str) -> Result<Self, DecodeError> {
        Ok(Self(text.to_owned()))
    }
}

/// A handle of one collection of a domain; cheap to clone. `C` is [`Typed`] or [`Raw`].
pub struct Collection<C> {
    pub(crate) name: Arc<str>,
    codec: PhantomData<fn() -> C>,
}

impl<C> Clone for Collection<C> {
    fn clone(&self) -> Self {
        Self { name: self.name.clone(), codec: PhantomData }
    }
}

impl<C> fmt::Debug for Collection<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Collection").field(&self.name).finish()
    }
}

impl<C: Codec> Collection<C> {
    pub(crate) fn new(name: Arc<str>) -> Self {
        Self { name, codec: PhantomData }
    }

    /// Returns the physical name of the collection, with its alias resolved.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the key of a document in this collection.
    pub fn key(&self, id: impl Into<DocumentId>) -> Key {
        let DocumentId { id, routing } = id.into();
        Key { collection: self.name.clone(), id, routing }
    }

    pub(crate) fn encode(key: &Key, value: &C::Value) -> Result<Image> {
        let invalid = |why: String| Error::invalid(format!("cannot write it: {why}")).at(key);
        let text = C::encode(value).map_err(|e| invalid(e.to_string()))?;
        Image::parse(&text).map_err(|e| invalid(e.to_string()))
    }

    /// Applies the change from `before` to `after` to the content `image`.
    pub(crate) fn merge(key: &Key, image: &Image, before: &Image, after: &Image) -> Result<Image> {
        let invalid = |why: &str| Error::invalid(format!("cannot change it: {why}")).at(key);
        let merged = image.merged(before, after).map_err(|e| invalid(&e.to_string()))?;
        // A type that reads a field under another name than it writes would not read the change.
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
        let read_back = C::decode(merged.as_str()).ok().and_then(|read| C::encode(&read).ok());
        if read_back.and_then(|text| value(&text)) != value(after.as_str()) {
            let why = "the type reads fields under other names than it writes; use put";
            return Err(invalid(why));
        }
        Ok(merged)
    }

    pub(crate) fn decode(key: &Key, image: Option<&Image>) -> Result<Option<C::Value>> {
        let decode = |image: &Image| C::decode(image.as_str());
        image
            .map(decode)
            .transpose()
            .map_err(|error| Error::new(ErrorKind::WrongType, error.to_string()).at(key))
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Order {
        lines: Vec<Line>,
    }

    #[derive(Serialize, Deserialize)]
    struct Line {
        count: u32,
    }

    fn fault(text: &str) -> String {
        let key = Key::new("orders", "1");
        let image = Image::parse(text).expect("an object");
        let decoded = Collection::<Typed<Order>>::decode(&key, Some(&image));
        let error = decoded.map(drop).expect_err("another type");
        assert_eq!(error.kind(), ErrorKind::WrongType);
        error.to_string()
    }

    #[test]
    fn wrong_type_names_the_field_and_no_content() {
        let error = fault(r#"{"lines": [{"count": 1}, {"count": "secret"}]}"#);
        assert!(error.contains("lines[1].count") && !error.contains("secret"), "{error}");
        let error = fault(r#"{"lines": [{"count": 1}, {"secret": 2}]}"#);
        assert!(error.contains("lines[1]") && !error.contains("secret"), "{error}");
    }
}
