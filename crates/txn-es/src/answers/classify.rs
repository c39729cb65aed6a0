//! Classifies answers: the fate of a write, and the errors of reads.
//!
//! Pure functions. The type of an error decides, because many errors share one status.

use serde::Deserialize;
use serde_json::value::RawValue;
use txn_store::{Refusal, RefusalKind, StoreError, StoreErrorKind};

use crate::answers::text::{Text, string};
use crate::answers::{blocks, reason};
use crate::transport::{Answer, Failure};

/// An error as the servers describe it.
#[derive(Debug, Default)]
pub(crate) struct Cause {
    pub(crate) kind: String,
    pub(crate) reason: Option<String>,
    /// Types and reasons of the causes, nearest first.
    caused_by: Vec<(String, Option<String>)>,
}

/// The maximum number of causes that are read.
const MOST_CAUSES: usize = 8;

#[derive(Default, Deserialize)]
struct Level<'a> {
    #[serde(rename = "type", borrow)]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    reason: Option<&'a RawValue>,
    #[serde(borrow)]
    caused_by: Option<&'a RawValue>,
}

impl Cause {
    /// Parses the readable part of an error. Some errors are a plain text.
    pub(crate) fn of(error: &RawValue) -> Self {
        let (kind, reason, mut next) = level(error);
        let mut caused_by = Vec::new();
        while let Some(cause) = next.filter(|_| caused_by.len() < MOST_CAUSES) {
            let (kind, reason, deeper) = level(cause);
            caused_by.push((kind, reason));
            next = deeper;
        }
        Self { kind, reason, caused_by }
    }
}

fn level(error: &RawValue) -> (String, Option<String>, Option<&RawValue>) {
    if let Some(text) = string(error) {
        return (String::new(), Some(text), None);
    }
    let level: Level<'_> = serde_json::from_str(error.get()).unwrap_or_default();
    let kind = level.kind.and_then(string).unwrap_or_default();
    (type_name(&kind).to_owned(), level.reason.and_then(string), level.caused_by)
}

/// The meaning of an error for one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The condition did not hold.
    Conflict,
    /// No such index, or no such alias.
    MissingCollection,
    /// An update of a document that does not exist.
    MissingDocument,
    /// Not sent, or refused before the start. A retry may succeed.
    Rejected(String),
    /// Blocked until an operator, or a disk with space, lifts the block.
    ///
    /// An earlier try may have been carried out.
    Blocked(String),
    /// The alias also names a copy of the index that it identifies.
    ///
    /// An earlier try may have been carried out.
    SharedAlias(String),
    /// The last try was refused for the moment.
    ///
    /// A server sends an operation again internally after the connection to its primary broke. So
    /// an earlier try may have been carried out.
    RejectedInDoubt(String),
    /// Refused for good. Not carried out, except if a privilege is missing, which is in doubt.
    Invalid(Refusal),
    /// Nothing is known.
    Unknown(String),
}

/// Returns the fate of one operation from its error.
///
/// Only a conflict and an invalid operation are known to have had no effect.
pub(crate) fn fate(cause: &Cause) -> Fate {
    let refuse = |kind| Fate::Invalid(Refusal { kind, reason: describe(cause) });
    if let Some(remedy) = blocks::remedy(&cause.kind, cause.reason.as_deref()) {
        return Fate::Blocked(format!("{}; {remedy}", describe(cause)));
    }
    if says(cause, "explicit index in") {
        return refuse(RefusalKind::Misconfigured);
    }
    if sees_in_part(cause) {
        let reason = format!("{}; {SEEN_IN_PART}", describe(cause));
        return Fate::Invalid(Refusal { kind: RefusalKind::Misconfigured, reason });
    }
    if is_shared_alias(cause) {
        return Fate::SharedAlias(format!("{}; {COPIED}", describe(cause)));
    }
    match cause.kind.as_str() {
        "version_conflict_engine_exception" => Fate::Conflict,
        "index_not_found_exception" => Fate::MissingCollection,
        "document_missing_exception" => Fate::MissingDocument,
        "cluster_block_exception"
        | "es_rejected_execution_exception"
        | "rejected_execution_exception"
        | "open_search_rejected_execution_exception"
        | "opensearch_rejected_execution_exception"
        | "circuit_breaking_exception"
        | "too_many_requests"
        | "index_closed_exception" => Fate::RejectedInDoubt(describe(cause)),
        "document_parsing_exception"
        | "mapper_parsing_exception"
        | "mapper_exception"
        | "strict_dynamic_mapping_exception"
        | "illegal_argument_exception"
        | "parsing_exception"
        | "parse_exception"
        | "x_content_parse_exception"
        | "json_parse_exception"
        | "not_x_content_exception"
        | "routing_missing_exception"
        | "action_request_validation_exception" => refuse(RefusalKind::Document),
        "security_exception" => refuse(RefusalKind::Denied),
        // `unavailable_shards_exception` is unknown, too: the coordinating node also answers it
        // after it had sent the operation to a primary that then vanished.
        _ => Fate::Unknown(describe(cause)),
    }
}

const COPIED: &str = "a copy of the index carries an alias of the original (a clone, a shrink, a restore): the alias is taken off \
                      the copy, if the account may manage the copy; otherwise send POST /_aliases \
                      {\"actions\":[{\"remove\":{\"index\":\"<the copy>\",\"alias\":\"<the alias>\"}}]}";

/// The explanation for an account that reads only parts of documents.
pub(crate) const SEEN_IN_PART: &str = "the account sees fields or documents in part, and a transaction would write \
                                       documents back without the rest: grant it all fields and documents of the index";

/// Whether the account is under field-level or document-level security.
fn sees_in_part(cause: &Cause) -> bool {
    let reason = cause.reason.as_deref().unwrap_or_default();
    let words = ["field or document level security", "FLS or DLS", "DLS or FLS"];
    matches!(cause.kind.as_str(), "security_exception" | "open_search_security_exception")
        && words.iter().any(|words| reason.contains(words))
}

/// Whether an error says that an alias names several indices.
///
/// The library writes only to its own aliases.
fn is_shared_alias(cause: &Cause) -> bool {
    says(cause, "has more than one index associated with it")
        || says(cause, "no write index is defined for alias")
}

/// Whether an argument is refused with these words.
fn says(cause: &Cause, words: &str) -> bool {
    let reason = cause.reason.as_deref().unwrap_or_default();
    cause.kind == "illegal_argument_exception" && reason.contains(words)
}

/// Returns the fate of the operations of a request without an answer.
///
/// An operation that can never work is refused for good, because a retry would only wait for the
/// deadline.
pub(crate) fn fate_of_failure(failure: Failure) -> Fate {
    let refuse = |kind, error: StoreError| Fate::Invalid(Refusal { kind, reason: error.message });
    match failure {
        Failure::NotSent(error) if error.kind == StoreErrorKind::Misconfigured => {
            refuse(RefusalKind::Misconfigured, error)
        }
        Failure::NotSent(error) => Fate::Rejected(error.message),
        // A redirect. Its sender may have forwarded the request before.
        Failure::Lost(error) if error.kind == StoreErrorKind::Misconfigured => {
            refuse(RefusalKind::Denied, error)
        }
        Failure::Lost(error) | Failure::TooLarge(error) => Fate::Unknown(error.message),
    }
}

/// Returns the fate of one bulk item, from its error and status.
pub(crate) fn fate_of_item(cause: &Cause, status: Option<u16>) -> Fate {
    match (fate(cause), status) {
        (Fate::Invalid(Refusal { kind: RefusalKind::Document, reason }), status)
            if status != Some(400) =>
        {
            Fate::Unknown(reason)
        }
        // A server can miss nothing else.
        (Fate::Unknown(_), Some(404)) => Fate::MissingCollection,
        // The type of the error is unreadable.
        (Fate::Unknown(text), Some(status)) if cause.kind.is_empty() => match status {
            409 => Fate::Conflict,
            400 | 403 | 429 => Fate::RejectedInDoubt(told(text, status)),
            _ => Fate::Unknown(told(text, status)),
        },
        (fate, _) => fate,
    }
}

fn told(text: String, status: u16) -> String {
    if text.is_empty() { format!("status {status}") } else { text }
}

/// The meaning of one answer for all operations of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Whole {
    /// Larger than the server or a proxy accepts. Nothing was carried out.
    TooLarge,
    /// An operation in the request is invalid. Nothing was carried out.
    Malformed(Fate),
    /// A proxy refused the request, perhaps because of one document.
    ///
    /// A part of the request may have been carried out.
    Barred(Fate),
    /// The same for every operation.
    Same(Fate),
}

#[derive(Deserialize)]
struct ErrorBody<'a> {
    #[serde(borrow)]
    error: &'a RawValue,
}

/// Returns the error in an answer, if it has the servers' format.
pub(crate) fn cause_of(answer: &Answer) -> Option<Cause> {
    let text = Text::of(&answer.body);
    let body = serde_json::from_str::<ErrorBody<'_>>(text.as_str());
    body.ok().map(|body| Cause::of(body.error))
}

/// Returns the fate of a whole request that failed.
///
/// Only an error in the servers' format proves that the server refused before it began. A bare
/// status may come from a proxy that had already forwarded the request.
pub(crate) fn whole(answer: &Answer) -> Whole {
    let cause = cause_of(answer);
    let text = cause.as_ref().map(describe).filter(|text| !text.is_empty());
    let text = match text {
        Some(text) => format!("status {}: {text}", answer.status),
        None => format!("status {}", answer.status),
    };
    let of_server = cause.as_ref().is_some_and(|cause| !cause.kind.is_empty());
    let fate = cause.as_ref().map(fate);
    let denied = || Fate::Invalid(Refusal { kind: RefusalKind::Denied, reason: text.clone() });
    match (answer.status, fate) {
        (413, _) => Whole::TooLarge,
        (400, Some(Fate::Invalid(refusal))) if refusal.kind == RefusalKind::Misconfigured => {
            Whole::Same(Fate::Invalid(refusal))
        }
        (400, Some(Fate::Invalid(refusal))) => Whole::Malformed(Fate::Invalid(refusal)),
        (401, _) => Whole::Same(denied()),
        // The type shows overload or a block before the execution began.
        (_, Some(Fate::RejectedInDoubt(_))) => Whole::Same(Fate::Rejected(text)),
        (_, Some(Fate::Blocked(text))) => Whole::Same(Fate::Blocked(text)),
        (403, _) if of_server => Whole::Same(denied()),
        (403, _) => Whole::Barred(denied()),
        _ => Whole::Same(Fate::Unknown(text)),
    }
}

/// Whether a node, or its proxy, cannot serve any request now.
///
/// Servers also use 503 for one unavailable index. Any other node would give the same answer.
pub(crate) fn is_unable(answer: &Answer) -> bool {
    if !matches!(answer.status, 502..=504) {
        return false;
    }
    match cause_of(answer).map(|cause| cause.kind).as_deref() {
        None | Some("") => true,
        Some(kind) => {
            matches!(kind, "cluster_block_exception" | "master_not_discovered_exception")
        }
    }
}

/// Whether a single document may be the reason of the refusal.
pub(crate) fn is_perhaps_about_one(answer: &Answer) -> bool {
    match whole(answer) {
        Whole::TooLarge | Whole::Malformed(_) | Whole::Barred(_) => true,
        Whole::Same(_) => false,
    }
}

/// The number of refused parts that refuse the whole request.
///
/// The limit applies only while no part was accepted.
pub(crate) const MOST_REFUSED: usize = 16;

/// Counts the results of the parts of a request.
///
/// The counter keeps the store from sending each document alone to a server that refuses
/// everything.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    refused: usize,
    taken: bool,
}

impl Parts {
    pub(crate) fn take(&mut self) {
        self.taken = true;
    }

    /// Counts a refusal, and returns whether smaller parts may succeed.
    pub(crate) fn refuse(&mut self) -> bool {
        self.refused += 1;
        self.taken || self.refused <= MOST_REFUSED
    }
}

/// Returns the error of a request that writes no documents.
///
/// `what` names the action and its object.
pub(crate) fn error(what: &str, answer: &Answer) -> StoreError {
    let cause = cause_of(answer).unwrap_or_default();
    let fate = fate(&cause);
    let text = match (&fate, describe(&cause)) {
        (Fate::Blocked(text), _) => text.clone(),
        (_, text) if text.is_empty() => format!("status {}", answer.status),
        (_, text) => text,
    };
    let kind = match (answer.status, fate) {
        (_, Fate::MissingCollection) => StoreErrorKind::NotFound,
        (401, _) | (_, Fate::Invalid(Refusal { kind: RefusalKind::Denied, .. })) => {
            StoreErrorKind::Denied
        }
        (_, Fate::Blocked(_)) => StoreErrorKind::Blocked,
        (_, Fate::RejectedInDoubt(_) | Fate::SharedAlias(_)) | (429 | 500..=599, _) => {
            StoreErrorKind::Unavailable
        }
        (403, _) => StoreErrorKind::Denied,
        (404, _) => StoreErrorKind::NotFound,
        _ => StoreErrorKind::Misconfigured,
    };
    StoreError::new(kind, format!("{what}: {text}"))
}

/// Returns the error of one document of a read.
pub(crate) fn read_error(fate: Fate) -> StoreError {
    let (kind, text) = match fate {
        Fate::Invalid(Refusal { kind: RefusalKind::Denied, reason }) => {
            (StoreErrorKind::Denied, reason)
        }
        Fate::Invalid(Refusal { reason, .. }) => (StoreErrorKind::Misconfigured, reason),
        Fate::Blocked(text) => (StoreErrorKind::Blocked, text),
        Fate::Rejected(text)
        | Fate::RejectedInDoubt(text)
        | Fate::SharedAlias(text)
        | Fate::Unknown(text) => (StoreErrorKind::Unavailable, text),
        Fate::MissingCollection => (StoreErrorKind::NotFound, "no such collection".to_owned()),
        other => (StoreErrorKind::Unavailable, format!("an unexpected answer: {other:?}")),
    };
    StoreError::new(kind, text)
}

/// Describes the error by types and reasons, without values of documents.
pub(crate) fn describe(cause: &Cause) -> String {
    let mut parts: Vec<String> = Vec::new();
    let causes = cause.caused_by.iter().map(|(kind, reason)| (kind, reason));
    for (kind, reason) in std::iter::once((&cause.kind, &cause.reason)).chain(causes) {
        let told = reason.as_deref().map(|reason| reason::tell(kind, reason)).unwrap_or_default();
        let part = match (kind.is_empty(), told.is_empty()) {
            (true, _) => told,
            (false, true) => kind.clone(),
            (false, false) => format!("{kind}: {told}"),
        };
        if !part.is_empty() && !parts.contains(&part) && parts.len() < 4 {
            parts.push(part);
        }
    }
    let mut text = parts.join("; caused by ");
    let causes = cause.caused_by.iter().map(|(_, reason)| reason);
    let reasons: Vec<_> = std::iter::once(&cause.reason).chain(causes).flatten().collect();
    for (words, remedy) in REMEDIES {
        if reasons.iter().any(|reason| reason.contains(words)) {
            text = format!("{text}; {remedy}");
        }
    }
    text
}

/// Remedies for errors that do not name the setting. A setting makes the server refuse.
const REMEDIES: &[(&str, &str)] = &[
    (
        "Limit of total fields",
        "raise index.mapping.total_fields.limit of the index, or map fewer fields",
    ),
    (
        "explicit index in",
        "requests name an index for each document: set rest.action.multi.allow_explicit_index to true on every node",
    ),
];

/// Returns the type of an error, if the text looks like one.
fn type_name(kind: &str) -> &str {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '$');
    if kind.len() <= 100 && kind.chars().all(is_name) { kind } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cause(text: &str) -> Cause {
        Cause::of(serde_json::from_str(text).unwrap())
    }

    fn answer(status: u16, body: &'static str) -> Answer {
        Answer { status, headers: Default::default(), body: body.into() }
    }

    #[test]
    fn error_type_decides_the_fate() {
        let cases = [
            ("version_conflict_engine_exception", "Conflict"),
            ("index_not_found_exception", "MissingCollection"),
            ("document_missing_exception", "MissingDocument"),
            ("cluster_block_exception", "RejectedInDoubt"),
            ("es_rejected_execution_exception", "RejectedInDoubt"),
            ("rejected_execution_exception", "RejectedInDoubt"),
            ("circuit_breaking_exception", "RejectedInDoubt"),
            ("too_many_requests", "RejectedInDoubt"),
            ("index_closed_exception", "RejectedInDoubt"),
            ("document_parsing_exception", "Invalid"),
            ("mapper_parsing_exception", "Invalid"),
            ("strict_dynamic_mapping_exception", "Invalid"),
            ("illegal_argument_exception", "Invalid"),
            ("security_exception", "Invalid"),
            ("unavailable_shards_exception", "Unknown"),
            ("process_cluster_event_timeout_exception", "Unknown"),
            ("node_disconnected_exception", "Unknown"),
            ("translog_exception", "Unknown"),
            ("", "Unknown"),
        ];
        for (kind, expected) in cases {
            let fate = fate(&Cause { kind: kind.to_owned(), ..Cause::default() });
            assert!(format!("{fate:?}").starts_with(expected), "{kind}: {fate:?}");
        }
    }

    #[test]
    fn an_item_is_refused_for_good_by_a_400_only() {
        for (kind, status, expected) in [
            ("illegal_argument_exception", Some(400), "Invalid"),
            ("illegal_argument_exception", Some(500), "Unknown"),
            ("illegal_argument_exception", None, "Unknown"),
            ("security_exception", Some(403), "Invalid(Refusal { kind: Denied"),
            ("index_closed_exception", Some(400), "RejectedInDoubt"),
            ("resource_not_found_exception", Some(404), "MissingCollection"),
            ("document_missing_exception", Some(404), "MissingDocument"),
            ("unavailable_shards_exception", Some(503), "Unknown"),
        ] {
            let cause = Cause { kind: kind.to_owned(), ..Cause::default() };
            let fate = format!("{:?}", fate_of_item(&cause, status));
            assert!(fate.starts_with(expected), "{kind} {status:?}: {fate}");
        }
    }

    #[test]
    fn refusals_name_the_field_and_hold_no_values() {
        let cases = [
            (
                r#"{"type":"document_parsing_exception","reason":"[1:6] failed to parse field [balance] of type [long] in document with id 'a'. Preview of field's value: 'secret value'","caused_by":{"type":"illegal_argument_exception","reason":"For input string: \"secret value\""}}"#,
                "document_parsing_exception: [1:6] failed to parse field [balance] of type [long] in document with id 'a'; caused by illegal_argument_exception",
            ),
            (
                r#"{"type":"mapper_parsing_exception","reason":"failed to parse field [at] of type [date] in document with id 'a'. Preview of field's value: 'secret'","caused_by":{"type":"illegal_argument_exception","reason":"failed to parse date field [se]cret] with format [strict_date_optional_time||epoch_millis]","caused_by":{"type":"date_time_parse_exception","reason":"Failed to parse with all enclosed parsers"}}}"#,
                "mapper_parsing_exception: failed to parse field [at] of type [date] in document with id 'a'; caused by illegal_argument_exception: failed to parse date field [...] with format [strict_date_optional_time||epoch_millis]; caused by date_time_parse_exception: Failed to parse with all enclosed parsers",
            ),
            (
                r#"{"type":"document_parsing_exception","reason":"[1:9] failed to parse field [ok] of type [boolean]","caused_by":{"type":"illegal_argument_exception","reason":"Failed to parse value [secret] as only [true] or [false] are allowed."}}"#,
                "document_parsing_exception: [1:9] failed to parse field [ok] of type [boolean]; caused by illegal_argument_exception: Failed to parse value [...] as only [true] or [false] are allowed",
            ),
            (
                r#"{"type":"strict_dynamic_mapping_exception","reason":"[1:2] mapping set to strict, dynamic introduction of [secretless] within [_doc] is not allowed"}"#,
                "strict_dynamic_mapping_exception: [1:2] mapping set to strict, dynamic introduction of [secretless] within [_doc] is not allowed",
            ),
            (
                r#"{"type":"illegal_argument_exception","reason":"Document contains at least one immense term in field=\"k\" (whose UTF8 encoding is longer than the max length 32766), all of which were skipped.  Please correct the analyzer to not produce such terms.  The prefix of the first immense term is: '[115, 101]...', original message: bytes can be at most 32766"}"#,
                "illegal_argument_exception: Document contains at least one immense term in field=\"k\" (whose UTF8 encoding is longer than the max length 32766), all of which were skipped. Please correct the analyzer to not produce such terms",
            ),
            (
                r#"{"type":"x","reason":"Numeric value (123456) out of range of int\n at [Source: (byte[])\"{\"n\":123456}\"; line: 1]"}"#,
                "x: Numeric value (...) out of range of int",
            ),
            (
                r#"{"type":"x","reason":"'secret 'x' y' is not an IP string literal"}"#,
                "x: '...' is not an IP string literal",
            ),
            (
                r#"{"type":"x","reason":"Duplicate field 'a' isn't allowed"}"#,
                "x: Duplicate field 'a' isn't allowed",
            ),
        ];
        for (json, expected) in cases {
            let text = describe(&cause(json));
            assert_eq!(text, expected);
            assert!(!text.contains("secret ") && !text.contains("123456"));
        }
    }

    #[test]
    fn whole_requests() {
        let blocked = r#"{"error":{"root_cause":[],"type":"cluster_block_exception","reason":"blocked by: [SERVICE_UNAVAILABLE/1/state not recovered / initialized];"},"status":503}"#;
        let denied = r#"{"error":{"root_cause":[],"type":"security_exception","reason":"unable to authenticate user [u] for REST request [/_bulk]"},"status":401}"#;
        let malformed = r#"{"error":{"type":"action_request_validation_exception","reason":"Validation Failed: 1: id is too long;"},"status":400}"#;
        let rejected = r#"{"error":{"type":"es_rejected_execution_exception","reason":"rejected execution of coordinating operation"},"status":429}"#;
        let cases = [
            (503, blocked, "Same(Rejected("),
            (403, blocked, "Same(Rejected("),
            (429, rejected, "Same(Rejected("),
            (401, denied, "Same(Invalid(Refusal { kind: Denied"),
            (403, denied, "Same(Invalid(Refusal { kind: Denied"),
            (401, "Unauthorized", "Same(Invalid(Refusal { kind: Denied"),
            (400, malformed, "Malformed(Invalid(Refusal { kind: Document"),
            (403, "<html>", "Barred(Invalid(Refusal { kind: Denied"),
            (403, r#"{"error":"forbidden"}"#, "Barred(Invalid(Refusal { kind: Denied"),
            (400, "<html>", "Same(Unknown"),
            (413, "<html>", "TooLarge"),
            (429, "slow down", "Same(Unknown"),
            (
                500,
                r#"{"error":"no handler","status":500}"#,
                "Same(Unknown(\"status 500: no handler",
            ),
            (502, "<html>", "Same(Unknown"),
            (503, "", "Same(Unknown"),
            (504, "", "Same(Unknown"),
            (302, "", "Same(Unknown"),
        ];
        for (status, body, expected) in cases {
            let whole = format!("{:?}", whole(&answer(status, body)));
            assert!(whole.starts_with(expected), "{status} {body}: {whole}");
        }
    }

    #[test]
    fn unable_node_differs_from_index_with_missing_shards() {
        let blocked = r#"{"error":{"type":"cluster_block_exception","reason":"blocked by: [SERVICE_UNAVAILABLE/2/no master];"}}"#;
        let shards =
            r#"{"error":{"type":"search_phase_execution_exception","reason":"all shards failed"}}"#;
        for (status, body, unable) in [
            (503, blocked, true),
            (403, blocked, false),
            (503, shards, false),
            (503, "<html>", true),
            (502, "", true),
            (504, r#"{"error":"gateway timeout"}"#, true),
            (500, "", false),
            (429, "", false),
            (200, "{}", false),
        ] {
            assert_eq!(is_unable(&answer(status, body)), unable, "{status} {body}");
        }
    }

    #[test]
    fn only_temporary_failures_are_retried() {
        use StoreErrorKind::{Misconfigured, Unavailable};
        for (failure, kind, expected) in [
            (Failure::NotSent as fn(_) -> _, Unavailable, "Rejected"),
            (Failure::NotSent, Misconfigured, "Invalid(Refusal { kind: Misconfigured"),
            (Failure::Lost, Unavailable, "Unknown"),
            (Failure::Lost, Misconfigured, "Invalid(Refusal { kind: Denied"),
            (Failure::TooLarge, Unavailable, "Unknown"),
        ] {
            let fate = format!("{:?}", fate_of_failure(failure(StoreError::new(kind, "why"))));
            assert!(fate.starts_with(expected), "{fate}");
        }
    }

    #[test]
    fn errors_of_administration() {
        let missing = r#"{"error":{"type":"index_not_found_exception","reason":"no such index [a]"},"status":404}"#;
        let blocked = r#"{"error":{"type":"cluster_block_exception","reason":"index [a] blocked by: [FORBIDDEN/8/index write (api)];"},"status":403}"#;
        let cases = [
            (404, missing, StoreErrorKind::NotFound),
            (403, blocked, StoreErrorKind::Blocked),
            (
                403,
                r#"{"error":{"type":"security_exception","reason":"no"}}"#,
                StoreErrorKind::Denied,
            ),
            (401, "", StoreErrorKind::Denied),
            (503, "", StoreErrorKind::Unavailable),
            (429, "", StoreErrorKind::Unavailable),
            (400, "", StoreErrorKind::Misconfigured),
        ];
        for (status, body, kind) in cases {
            assert_eq!(error("x", &answer(status, body)).kind, kind, "{status} {body}");
        }
    }
}
