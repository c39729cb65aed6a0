//! Problems: errors of the gateway, in two shapes.
//!
//! The shapes are those of RFC 9457 and of the servers.

use hyper::{Method, StatusCode};
use serde_json::{Map, Value, json};
use txn_core::{Error, ErrorKind};

use super::shape::Shape;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $status:ident, $kind:literal, $title:literal;)*) => {
        /// The reason of a failed request. The text of a code never changes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Code {
            $($(#[$doc])* $name,)*
        }

        impl Code {
            /// All codes.
            pub(crate) const ALL: &[Self] = &[$(Self::$name),*];

            /// The text of the code.
            pub(crate) fn text(self) -> &'static str {
                match self { $(Self::$name => $code),* }
            }

            /// The usual status.
            fn status(self) -> StatusCode {
                match self { $(Self::$name => StatusCode::$status),* }
            }

            /// The usual type of the error in the servers' words.
            fn kind(self) -> &'static str {
                match self { $(Self::$name => $kind),* }
            }

            fn title(self) -> &'static str {
                match self { $(Self::$name => $title),* }
            }
        }
    };
}

// The status of each code follows the retries of the official clients, which docs/gateway.md lists.
// Most repeat 502, 503 and 504 at once, and some 429, so these statuses mean that nothing happened.
codes! {
    Invalid = "invalid", BAD_REQUEST, "illegal_argument_exception",
        "the request cannot be carried out";
    Unsupported = "unsupported", BAD_REQUEST, "illegal_argument_exception",
        "the gateway does not support a part of the request";
    Reserved = "reserved", BAD_REQUEST, "illegal_argument_exception",
        "the collection belongs to the domain itself";
    NeedsServer = "needs_server", NOT_IMPLEMENTED, "unsupported_operation_exception",
        "the request needs a server behind the gateway";
    NotPassed = "not_passed", BAD_REQUEST, "illegal_argument_exception",
        "the gateway does not pass the request through to the servers";
    Mixed = "mixed", BAD_REQUEST, "illegal_argument_exception",
        "the bulk writes to collections and to other indices, and nothing was changed";
    NoCollection = "no_collection", NOT_FOUND, "index_not_found_exception",
        "the domain has no such collection";
    NotFound = "not_found", NOT_FOUND, "resource_not_found_exception",
        "there is no such path";
    Method = "method", METHOD_NOT_ALLOWED, "illegal_argument_exception",
        "the path does not have this method";
    ContentType = "content_type", UNSUPPORTED_MEDIA_TYPE, "media_type_header_exception",
        "the body is not of a known type";
    TooLarge = "too_large", PAYLOAD_TOO_LARGE, "content_too_long_exception",
        "the request exceeds a limit of the gateway";
    LargeAnswer = "large_answer", PAYLOAD_TOO_LARGE, "content_too_long_exception",
        "the answer exceeds a limit of the gateway";
    SlowBody = "slow_body", REQUEST_TIMEOUT, "timeout_exception",
        "the body did not arrive in time";
    Login = "login", UNAUTHORIZED, "security_exception",
        "the request has no token of this gateway";
    Forbidden = "forbidden", FORBIDDEN, "security_exception",
        "the token has no right to this request, and nothing was changed";
    Host = "host", FORBIDDEN, "security_exception",
        "the request names another host than this machine, or comes from another site";
    Refused = "refused", CONFLICT, "version_conflict_engine_exception",
        "an operation was refused, and nothing was changed";
    Changed = "changed", CONFLICT, "version_conflict_engine_exception",
        "documents have changed since they were read, and nothing was changed";
    Exists = "exists", CONFLICT, "version_conflict_engine_exception",
        "a document to insert exists, and nothing was changed";
    Held = "held", CONFLICT, "version_conflict_engine_exception",
        "another holder has the lock";
    Lost = "lost", CONFLICT, "version_conflict_engine_exception",
        "the lock is not held under this token, and nothing was changed";
    Conflict = "conflict", CONFLICT, "version_conflict_engine_exception",
        "other transactions were in conflict until the deadline, and nothing was changed";
    KeyReused = "key_reused", UNPROCESSABLE_ENTITY, "illegal_argument_exception",
        "another request was answered under the Idempotency-Key";
    Overloaded = "overloaded", TOO_MANY_REQUESTS, "es_rejected_execution_exception",
        "too many requests run at once, and nothing was changed";
    Unavailable = "unavailable", SERVICE_UNAVAILABLE, "unavailable_shards_exception",
        "the store does not answer, and nothing was changed";
    Closing = "closing", SERVICE_UNAVAILABLE, "node_closed_exception",
        "the gateway ends, and nothing was changed";
    Unknown = "unknown", INTERNAL_SERVER_ERROR, "txn_unknown_exception",
        "the transaction is committed or not, as a whole; a passed request may have been carried out";
    Misconfigured = "misconfigured", INTERNAL_SERVER_ERROR, "txn_misconfigured_exception",
        "a collection, a privilege or a setting is unfit, and nothing was changed";
    Damaged = "damaged", INTERNAL_SERVER_ERROR, "txn_damaged_exception",
        "data that the engine relies on is damaged";
}

/// A failed request.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    code: Code,
    kind: &'static str,
    /// The kind of the engine's error; `None` for a refusal by the gateway itself.
    cause: Option<ErrorKind>,
    detail: String,
    members: Map<String, Value>,
    /// Fields of a bulk's answer.
    beside: Map<String, Value>,
    /// The methods of the path, if the request has another one.
    methods: Vec<Method>,
}

impl Problem {
    pub(crate) fn new(code: Code, detail: impl Into<String>) -> Self {
        let (status, kind, detail) = (code.status(), code.kind(), detail.into());
        let (members, beside, methods) = (Map::new(), Map::new(), Vec::new());
        Self { status, code, kind, cause: None, detail, members, beside, methods }
    }

    /// Names the methods of the path.
    pub(crate) fn allowing(mut self, methods: Vec<Method>) -> Self {
        self.methods = methods;
        self
    }

    pub(crate) fn methods(&self) -> &[Method] {
        &self.methods
    }

    /// The refusal of a request without room for its bytes.
    ///
    /// The bodies and answers of other requests use the room.
    pub(crate) fn overloaded_by_bytes() -> Self {
        let detail =
            "the bodies and answers of the running requests are too large: send it again later";
        Self::new(Code::Overloaded, detail)
    }

    /// Adds a member.
    pub(crate) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.members.insert(name.to_owned(), value.into());
        self
    }

    /// Adds a field beside the error of a bulk's answer.
    ///
    /// The field is beside the error in each shape.
    pub(crate) fn beside(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.beside.insert(name.to_owned(), value.into());
        self
    }

    /// Replaces the status and the error type of the servers.
    pub(crate) fn of_kind(mut self, status: StatusCode, kind: &'static str) -> Self {
        (self.status, self.kind) = (status, kind);
        self
    }

    /// Names the part of the request before the detail.
    pub(crate) fn within(mut self, part: &str) -> Self {
        self.detail = format!("{part}: {}", self.detail);
        self
    }

    pub(crate) fn code(&self) -> Code {
        self.code
    }

    /// The kind of the engine's error.
    pub(crate) fn cause(&self) -> Option<ErrorKind> {
        self.cause
    }

    pub(crate) fn title(&self) -> &'static str {
        self.code.title()
    }

    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    /// Whether the servers behind the gateway may know the path.
    pub(crate) fn is_elsewhere(&self) -> bool {
        matches!(self.code, Code::NeedsServer | Code::Method)
    }

    /// Whether a client may repeat the request after a pause.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE)
    }

    /// Gives an unknown outcome a status that clients repeat.
    ///
    /// An `Idempotency-Key` makes the repetition safe.
    #[must_use]
    pub(crate) fn repeatable(mut self) -> Self {
        if self.code == Code::Unknown {
            self.status = StatusCode::SERVICE_UNAVAILABLE;
        }
        self
    }

    /// The body in the shape of the path.
    ///
    /// The strictest official clients decode an error in the servers' shape only if it has no
    /// member beside `error` and `status`. All other members are therefore in `error`.
    pub(crate) fn body(&self, shape: Shape) -> Value {
        let (status, code) = (self.status.as_u16(), self.code.text());
        let cause = json!({ "type": self.kind, "reason": self.detail });
        let mut error = json!({
            "root_cause": [cause], "type": self.kind, "reason": self.detail, "code": code,
        });
        let mut body = match shape {
            Shape::Server => {
                extend(&mut error, &self.members);
                json!({ "error": error, "status": status })
            }
            Shape::Problem | Shape::Page => {
                let mut body = json!({
                    "type": format!("urn:txn:{code}"),
                    "title": self.code.title(),
                    "status": status,
                    "detail": self.detail,
                    "code": code,
                    "error": error,
                });
                extend(&mut body, &self.members);
                body
            }
        };
        extend(&mut body, &self.beside);
        body
    }
}

/// Adds members to an object.
fn extend(object: &mut Value, members: &Map<String, Value>) {
    if let Some(object) = object.as_object_mut() {
        object.extend(members.clone());
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let code = match error.kind() {
            ErrorKind::Invalid | ErrorKind::WrongType => Code::Invalid,
            ErrorKind::Exists => Code::Exists,
            ErrorKind::Conflict => Code::Conflict,
            ErrorKind::Unavailable => Code::Unavailable,
            ErrorKind::Overloaded => Code::Overloaded,
            ErrorKind::Unknown => Code::Unknown,
            ErrorKind::KeyReused => Code::KeyReused,
            ErrorKind::Misconfigured => Code::Misconfigured,
            // A kind of a later version, too: no client may repeat the request.
            _ => Code::Damaged,
        };
        let mut problem = Self { cause: Some(error.kind()), ..Self::new(code, error.to_string()) };
        if let Some(tid) = error.tid() {
            problem = problem.with("tid", tid.to_string());
        }
        if let Some(key) = error.document() {
            let document = json!({ "collection": &*key.collection, "id": &*key.id });
            problem = problem.with("document", document);
        }
        problem
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_is_documented() {
        let page = include_str!("../../../../docs/gateway.md");
        for code in Code::ALL {
            let row = format!("| `{}` | {} |", code.text(), code.status().as_u16());
            assert!(page.contains(&row), "docs/gateway.md has no row {row}");
        }
    }

    #[test]
    fn errors_of_the_servers_have_two_members() {
        let problem = Problem::new(Code::Unknown, "no answer").with("tid", "t-1");
        let body = problem.body(Shape::Server);
        let names: Vec<&String> = body.as_object().expect("an object").keys().collect();
        assert_eq!(names, ["error", "status"]);
        assert_eq!(
            (&body["error"]["code"], &body["error"]["tid"]),
            (&json!("unknown"), &json!("t-1"))
        );
        let body = problem.body(Shape::Problem);
        assert_eq!((&body["code"], &body["tid"]), (&json!("unknown"), &json!("t-1")));
    }

    #[test]
    fn unknown_outcome_is_repeatable_with_a_key_only() {
        let unknown = || Problem::new(Code::Unknown, "");
        assert_eq!(unknown().status, StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(unknown().repeatable().status, StatusCode::SERVICE_UNAVAILABLE);
        let invalid = Problem::new(Code::Invalid, "").repeatable();
        assert_eq!(invalid.status, StatusCode::BAD_REQUEST);
    }
}
