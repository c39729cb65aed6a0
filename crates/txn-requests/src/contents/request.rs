//! Requests: transactions as data.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Number, Value};
use txn_outbox::http::HttpRequest;

use crate::contents::event::Emit;

/// A transaction as data: all operations happen in order, or none happens.
///
/// A number that would be rounded is refused when a request is read from JSON. Refused are integers
/// beyond 64 bits, and other numbers with more than 17 digits. The [`Document`]s of `put` and
/// `insert` keep every digit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Request {
    /// The application that the request belongs to. A processor may serve one application only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application: Option<String>,
    /// The operations. Each operation sees the effects of the earlier ones.
    #[schemars(length(min = 1))]
    pub operations: Vec<Operation>,
    /// Events that are emitted in the transaction of the operations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Emit>,
    /// HTTP requests that are sent after the commit, at least once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after_commit: Vec<HttpRequest>,
    /// The earliest time of the execution, by the processor's clock. In milliseconds since the Unix
    /// epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before_ms: Option<u64>,
    /// Any value of the client, stored with the request.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "txn_lock::exact::deserialize"
    )]
    pub metadata: Option<Value>,
}

/// An operation on one document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Operation {
    /// Writes a document, whether or not it exists.
    Put(Put),
    /// Writes a document that must not exist.
    Insert(Put),
    /// Changes an existing document by a JSON merge patch (RFC 7396).
    Merge(Merge),
    /// Changes an existing document by a JSON patch (RFC 6902).
    Patch(Patch),
    /// Deletes a document, if it exists.
    Delete(Target),
    /// Adds to a number in an existing document.
    Add(Add),
    /// Changes nothing, and refuses the request unless a condition holds.
    Expect(Expect),
}

/// The address of a document.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// The collection that holds the document.
    pub collection: String,
    /// The id within the collection.
    pub id: String,
    /// The routing value, if the document has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routing: Option<String>,
}

impl Target {
    /// Creates an address without routing.
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
    /// The content.
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
    /// The operations of a JSON Patch (RFC 6902).
    #[serde(deserialize_with = "txn_lock::exact::deserialize")]
    pub patch: json_patch::Patch,
}

/// An addition to a number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Add {
    /// The document.
    pub target: Target,
    /// The JSON pointer of the number, such as `/balance`.
    pub path: String,
    /// The amount. Integers are added exactly, other numbers as doubles.
    #[serde(deserialize_with = "txn_lock::exact::deserialize")]
    pub amount: Number,
    /// The minimum of the sum.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "txn_lock::exact::deserialize"
    )]
    pub min: Option<Number>,
    /// The maximum of the sum.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "txn_lock::exact::deserialize"
    )]
    pub max: Option<Number>,
}

/// A condition on a document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// The document.
    pub target: Target,
    /// The condition.
    pub that: Condition,
}

/// The kinds of conditions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Condition {
    /// The document exists, or does not.
    Exists(bool),
    /// A field has a value.
    Field(Field),
    /// The transaction with this commit version wrote the document last.
    Version(String),
}

/// A field and its value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Field {
    /// The JSON pointer of the field, such as `/state`.
    pub path: String,
    /// The expected value. A missing field is `null`.
    #[serde(deserialize_with = "txn_lock::exact::deserialize")]
    pub equals: Value,
}

impl Request {
    /// Creates a request with these operations.
    #[must_use]
    pub fn new(operations: Vec<Operation>) -> Self {
        Self { operations, ..Self::default() }
    }

    /// Sets [`Request::application`].
    #[must_use]
    pub fn with_application_name(mut self, application: impl Into<String>) -> Self {
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

    /// Sets [`Request::not_before_ms`].
    #[must_use]
    pub fn with_not_before_ms(mut self, not_before_ms: u64) -> Self {
        self.not_before_ms = Some(not_before_ms);
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

    /// Adds an integer to a number in a document.
    #[must_use]
    pub fn add(target: Target, path: &str, amount: i64) -> Self {
        let (path, amount) = (path.to_owned(), amount.into());
        Self::Add(Add { target, path, amount, min: None, max: None })
    }

    /// As [`Operation::add`], with a minimum of the sum.
    #[must_use]
    pub fn add_down_to(target: Target, path: &str, amount: i64, min: i64) -> Self {
        let (path, amount) = (path.to_owned(), amount.into());
        Self::Add(Add { target, path, amount, min: Some(min.into()), max: None })
    }

    /// The document of the operation.
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

/// The text of a JSON object. Reads return the same bytes.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Document(Box<RawValue>);

impl Document {
    /// Creates a document from a value that serialises to a JSON object.
    ///
    /// The validation of the request checks that the value is an object.
    ///
    /// # Errors
    /// The value cannot be written as JSON.
    pub fn new(value: &impl Serialize) -> Result<Self, serde_json::Error> {
        serde_json::value::to_raw_value(value).map(Self)
    }

    /// Parses the text of a document.
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

/// Compares as JSON, without white space and the order of fields.
///
/// Numbers are equal if all their digits are equal.
impl PartialEq for Document {
    fn eq(&self, other: &Self) -> bool {
        txn_lock::exact::same(self.as_str(), other.as_str())
    }
}

/// Leaves the body out of logs, and shows its length only.
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
