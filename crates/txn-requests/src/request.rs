//! Requests: what a transaction is to do, as data.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Number, Value};
use txn_outbox::http::HttpRequest;

use crate::event::Emit;

/// What a transaction is to do: all of its operations, in their order, or none of them.
///
/// A number that would be rounded (a whole one beyond 64 bits, another one with more than 17 digits) is refused where a request
/// is read from JSON. The [`Document`]s of `put` and `insert` keep every digit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Request {
    /// Whose request it is: processors may be bound to the requests of one application.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application: Option<String>,
    /// What is to be done. Each operation sees what those before it did.
    #[schemars(length(min = 1))]
    pub operations: Vec<Operation>,
    /// Events that are emitted if all of it is done, with that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Emit>,
    /// HTTP requests that are performed once all of it is done, at least once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after_commit: Vec<HttpRequest>,
    /// Whatever the client wants to keep with the request. Nothing looks into it.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "txn_lock::exact::deserialize"
    )]
    pub metadata: Option<Value>,
}

/// One operation of a request, on one document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Operation {
    /// Writes a document, whether or not it exists.
    Put(Put),
    /// Writes a document that must not exist.
    Insert(Put),
    /// Changes a document that exists by a JSON merge patch (RFC 7396).
    Merge(Merge),
    /// Changes a document that exists by a JSON patch (RFC 6902).
    Patch(Patch),
    /// Deletes a document, if it exists.
    Delete(Target),
    /// Adds to a number in a document that exists.
    Add(Add),
    /// Changes nothing, and refuses the request unless something holds.
    Expect(Expect),
}

/// A document by its names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// The collection.
    pub collection: String,
    /// The id within the collection.
    pub id: String,
    /// The routing value, if the document is written with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routing: Option<String>,
}

impl Target {
    /// A document without routing.
    pub fn new(collection: impl Into<String>, id: impl Into<String>) -> Self {
        Self { collection: collection.into(), id: id.into(), routing: None }
    }
}

/// The whole content of a document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Put {
    /// The document.
    pub target: Target,
    /// Its content.
    pub document: Document,
}

/// A merge patch of a document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Merge {
    /// The document.
    pub target: Target,
    /// The patch: members replace those of the document, `null` removes.
    #[serde(deserialize_with = "txn_lock::exact::deserialize")]
    pub patch: serde_json::Map<String, Value>,
}

/// A patch of a document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Patch {
    /// The document.
    pub target: Target,
    /// The patch.
    #[serde(deserialize_with = "txn_lock::exact::deserialize")]
    pub patch: json_patch::Patch,
}

/// A sum.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Add {
    /// The document.
    pub target: Target,
    /// Where the number is: a JSON pointer, such as `/balance`.
    pub path: String,
    /// What is added. Whole numbers are added exactly, others as doubles.
    #[serde(deserialize_with = "txn_lock::exact::deserialize")]
    pub amount: Number,
    /// The least that the sum may be.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "txn_lock::exact::deserialize"
    )]
    pub min: Option<Number>,
    /// The most that the sum may be.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "txn_lock::exact::deserialize"
    )]
    pub max: Option<Number>,
}

/// What has to hold of a document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// The document.
    pub target: Target,
    /// What has to hold of it.
    pub that: Condition,
}

/// What may be expected of a document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Condition {
    /// The document exists, or does not.
    Exists(bool),
    /// A field has a value.
    Field(Field),
    /// The transaction with this commit tid wrote the document last.
    Version(String),
}

/// A field and its value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Field {
    /// Where it is: a JSON pointer, such as `/state`.
    pub path: String,
    /// What it has to be. A field that is missing is `null`.
    #[serde(deserialize_with = "txn_lock::exact::deserialize")]
    pub equals: Value,
}

impl Request {
    /// A request of these operations.
    #[must_use]
    pub fn new(operations: Vec<Operation>) -> Self {
        Self { operations, ..Self::default() }
    }

    /// Sets [`Request::application`].
    #[must_use]
    pub fn with_application(mut self, application: impl Into<String>) -> Self {
        self.application = Some(application.into());
        self
    }

    /// Adds an event.
    #[must_use]
    pub fn with_event(mut self, event: Emit) -> Self {
        self.events.push(event);
        self
    }

    /// Adds an HTTP request.
    #[must_use]
    pub fn with_after_commit(mut self, request: HttpRequest) -> Self {
        self.after_commit.push(request);
        self
    }

    /// Sets [`Request::metadata`].
    #[must_use]
    pub fn with_metadata(mut self, metadata: Value) -> Self {
        self.metadata = Some(metadata);
        self
    }

    /// The JSON schema of requests.
    #[must_use]
    pub fn schema() -> Schema {
        schemars::schema_for!(Self)
    }
}

impl Operation {
    /// Writes a document, whether or not it exists.
    #[must_use]
    pub fn put(target: Target, document: Document) -> Self {
        Self::Put(Put { target, document })
    }

    /// Writes a document that must not exist.
    #[must_use]
    pub fn insert(target: Target, document: Document) -> Self {
        Self::Insert(Put { target, document })
    }

    /// Adds a whole number to one in a document.
    #[must_use]
    pub fn add(target: Target, path: &str, amount: i64) -> Self {
        let (path, amount) = (path.to_owned(), amount.into());
        Self::Add(Add { target, path, amount, min: None, max: None })
    }

    /// As [`Operation::add`], and the sum must not fall below `min`.
    #[must_use]
    pub fn add_down_to(target: Target, path: &str, amount: i64, min: i64) -> Self {
        let (path, amount) = (path.to_owned(), amount.into());
        Self::Add(Add { target, path, amount, min: Some(min.into()), max: None })
    }

    /// The document that it is about.
    #[must_use]
    pub fn target(&self) -> &Target {
        match self {
            Self::Put(put) | Self::Insert(put) => &put.target,
            Self::Merge(merge) => &merge.target,
            Self::Patch(patch) => &patch.target,
            Self::Delete(target) => target,
            Self::Add(add) => &add.target,
            Self::Expect(expect) => &expect.target,
        }
    }
}

/// The text of a JSON object. It comes back with the bytes that it has.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Document(Box<RawValue>);

impl Document {
    /// A document from any value that serialises to a JSON object. That it is one is checked with the request.
    ///
    /// # Errors
    /// The value cannot be written as JSON.
    pub fn new(value: &impl Serialize) -> Result<Self, serde_json::Error> {
        serde_json::value::to_raw_value(value).map(Self)
    }

    /// A document from its text.
    ///
    /// # Errors
    /// The text is not JSON.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text).map(Self)
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.get()
    }
}

/// As JSON, whatever white space and order of fields. Numbers are compared by all of their digits.
impl PartialEq for Document {
    fn eq(&self, other: &Self) -> bool {
        txn_lock::exact::same(self.as_str(), other.as_str())
    }
}

/// Bodies of documents stay out of logs: only the length is shown.
impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Document({} bytes)", self.as_str().len())
    }
}

impl JsonSchema for Document {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Document".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "object", "description": "The content of a document."})
    }
}
