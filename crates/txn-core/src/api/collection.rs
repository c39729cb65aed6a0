//! Handles of collections, and the names of documents within them.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Result};
use crate::store::Key;
use txn_protocol::document::Image;

/// The id of a document, with its routing if it has one. Made from any string, owned or borrowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentId {
    id: Arc<str>,
    routing: Option<Arc<str>>,
}

impl DocumentId {
    /// Names a document that is written with a routing value.
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

/// The raw JSON text of a document, for those who want no types: the `T` of a [`Collection`] whose values are
/// passed through with the bytes that they have.
#[derive(Clone, PartialEq, Eq)]
pub struct Raw(String);

impl Raw {
    /// Takes the text of a JSON object. It is checked when it is written.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Bodies of documents stay out of logs: only the length is shown.
impl fmt::Debug for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Raw({} bytes)", self.0.len())
    }
}

/// How a value becomes the content of a document and back. Implemented for [`Raw`], and for every
/// serde type by [`Typed`].
pub trait Codec: Send + Sync + 'static {
    /// What the application works with.
    type Value: Send;

    /// The text of a JSON object.
    ///
    /// # Errors
    /// The value cannot be written as one.
    fn encode(value: &Self::Value) -> Result<String, serde_json::Error>;

    /// The value of a stored text.
    ///
    /// # Errors
    /// The text is no such value.
    fn decode(text: &str) -> Result<Self::Value, serde_json::Error>;
}

/// The [`Codec`] of serde types.
///
/// Fields of a document that the type does not know are not in the value: [`Transaction::put`](crate::Transaction::put)
/// drops them, [`Transaction::update`](crate::Transaction::update) keeps them.
#[derive(Debug)]
pub struct Typed<T>(PhantomData<fn() -> T>);

impl<T: Serialize + DeserializeOwned + Send + 'static> Codec for Typed<T> {
    type Value = T;

    fn encode(value: &T) -> Result<String, serde_json::Error> {
        serde_json::to_string(value)
    }

    fn decode(text: &str) -> Result<T, serde_json::Error> {
        serde_json::from_str(text)
    }
}

impl Codec for Raw {
    type Value = Self;

    fn encode(value: &Self) -> Result<String, serde_json::Error> {
        Ok(value.0.clone())
    }

    fn decode(text: &str) -> Result<Self, serde_json::Error> {
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

    /// The physical name, aliases resolved.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The key of a document.
    pub fn key(&self, id: impl Into<DocumentId>) -> Key {
        let DocumentId { id, routing } = id.into();
        Key { collection: self.name.clone(), id, routing }
    }

    pub(crate) fn encode(key: &Key, value: &C::Value) -> Result<Image> {
        let invalid = |why: String| Error::invalid(format!("cannot write it: {why}")).at(key);
        let text = C::encode(value).map_err(|e| invalid(e.to_string()))?;
        Image::parse(&text).map_err(|e| invalid(e.to_string()))
    }

    /// The content of `image` after its value changed from what was encoded as `before` to what was encoded as `after`.
    pub(crate) fn merge(key: &Key, image: &Image, before: &Image, after: &Image) -> Result<Image> {
        let invalid = |why: &str| Error::invalid(format!("cannot change it: {why}")).at(key);
        let merged = image.merged(before, after).map_err(|e| invalid(&e.to_string()))?;
        // A type that reads fields under other names than it writes would not find there what was changed.
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
        let read_back = C::decode(merged.as_str()).and_then(|read| C::encode(&read)).ok();
        if read_back.and_then(|text| value(&text)) != value(after.as_str()) {
            let why = "the type reads fields under other names than it writes; use put";
            return Err(invalid(why));
        }
        Ok(merged)
    }

    pub(crate) fn decode(key: &Key, image: Option<&Image>) -> Result<Option<C::Value>> {
        let decode = |image: &Image| C::decode(image.as_str());
        image.map(decode).transpose().map_err(|e| {
            // serde's words may quote values: only the place is told.
            let (line, column) = (e.line(), e.column());
            let why = format!(
                "the stored document is not of the expected type (line {line}, column {column})"
            );
            Error::invalid(why).at(key)
        })
    }
}
