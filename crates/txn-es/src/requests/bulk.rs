//! Bulk requests: operations to text, and answers to outcomes. No I/O.

use std::borrow::Cow;
use std::fmt::Write;
use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use txn_store::{Key, Outcome, Read, Refusal, RefusalKind, StoreError, StoreErrorKind};

use crate::answers::classify::{self, Cause, Fate};
use crate::answers::text::{Text, not_utf8};
use crate::identity::target::{Condition, IMPOSSIBLE, Target};

/// One operation of a bulk request.
#[derive(Clone, Debug)]
pub(crate) struct Item<'a> {
    /// The index of the result in the caller's list.
    pub(crate) at: usize,
    /// The alias or index that receives the operation.
    pub(crate) route: Arc<str>,
    pub(crate) require_alias: bool,
    /// The index that has to answer.
    pub(crate) target: Arc<Target>,
    pub(crate) id: &'a str,
    pub(crate) routing: Option<&'a str>,
    pub(crate) op: Op<'a>,
}

/// The action. Sources are checked: JSON objects without raw line breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op<'a> {
    Create(&'a str),
    Replace(&'a str, Condition),
    Delete(Condition),
    Check(&'a str),
    Verify(Option<Condition>),
    /// A read from the primary.
    Read,
}

/// The result of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    Write(Outcome),
    Read(Read),
}

const UPDATE_NOTHING: &str = "{\"doc\":{}}";

/// The maximum overhead per item in bytes, without names and source.
pub(crate) const OVERHEAD: usize = 160;

/// Returns the body of a bulk request.
pub(crate) fn encode(items: &[Item<'_>]) -> Bytes {
    let mut body = String::with_capacity(items.iter().map(Item::len).sum());
    for item in items {
        let (action, condition, source) = match item.op {
            Op::Create(source) => ("create", None, Some(source)),
            Op::Replace(source, condition) => ("index", Some(condition), Some(source)),
            Op::Check(source) => ("index", Some(IMPOSSIBLE), Some(source)),
            Op::Delete(condition) => ("delete", Some(condition), None),
            Op::Verify(condition) => ("update", condition, Some(UPDATE_NOTHING)),
            Op::Read => ("update", None, Some(UPDATE_NOTHING)),
        };
        body.push_str("{\"");
        body.push_str(action);
        body.push_str("\":{\"_index\":");
        push_text(&mut body, &item.route);
        body.push_str(",\"_id\":");
        push_text(&mut body, item.id);
        if let Some(routing) = item.routing {
            body.push_str(",\"routing\":");
            push_text(&mut body, routing);
        }
        if let Some(Condition { seq_no, primary_term }) = condition {
            // Writing to a `String` does not fail.
            let _ = write!(body, ",\"if_seq_no\":{seq_no},\"if_primary_term\":{primary_term}");
        }
        if item.require_alias {
            body.push_str(",\"require_alias\":true");
        }
        if item.op == Op::Read {
            body.push_str(",\"_source\":true");
        }
        body.push_str("}}\n");
        if let Some(source) = source {
            body.push_str(source);
            body.push('\n');
        }
    }
    body.into()
}

impl<'a> Item<'a> {
    /// Returns an operation on the index behind an alias.
    pub(crate) fn new(
        at: usize,
        key: &'a Key,
        route: Arc<str>,
        target: Arc<Target>,
        op: Op<'a>,
    ) -> Self {
        let routing = key.routing.as_deref();
        Self { at, route, require_alias: true, target, id: &key.id, routing, op }
    }
}

impl Item<'_> {
    /// Whether the operation can change a document.
    pub(crate) fn changes(&self) -> bool {
        matches!(self.op, Op::Create(_) | Op::Replace(..) | Op::Delete(_))
    }

    /// Returns the approximate size in bytes.
    pub(crate) fn len(&self) -> usize {
        let source = match self.op {
            Op::Create(source) | Op::Replace(source, _) | Op::Check(source) => source.len(),
            Op::Delete(_) | Op::Verify(_) | Op::Read => 0,
        };
        let names = self.route.len() + self.id.len() + self.routing.map_or(0, str::len);
        names + source + OVERHEAD
    }

    /// Returns the result for an error.
    pub(crate) fn settle(&self, fate: Fate) -> Settled {
        if fate == Fate::MissingCollection {
            self.target.expire();
        }
        if matches!(fate, Fate::SharedAlias(_)) {
            self.target.note_shared(&self.route);
        }
        if self.op == Op::Read {
            return Settled::Read(match fate {
                Fate::MissingDocument => Read::Absent,
                Fate::MissingCollection => Read::MissingCollection,
                // Only a janitor blocks a partition, and for a short time.
                Fate::Blocked(text) if !self.target.data => {
                    Read::Unavailable(StoreError::new(StoreErrorKind::Unavailable, text))
                }
                other => Read::Unavailable(classify::read_error(other)),
            });
        }
        Settled::Write(match (fate, self.op) {
            (Fate::Conflict, Op::Check(_)) => Outcome::Holds,
            (Fate::Conflict, _) => Outcome::Conflict,
            (Fate::MissingCollection, _) => Outcome::MissingCollection,
            (Fate::MissingDocument, Op::Verify(None)) => Outcome::Holds,
            (Fate::MissingDocument, Op::Verify(Some(_))) => Outcome::Conflict,
            // Only an update reports a missing document.
            (Fate::MissingDocument, _) => Outcome::MissingCollection,
            (Fate::Blocked(reason), Op::Check(_) | Op::Verify(_)) => {
                Outcome::Invalid(Refusal { kind: RefusalKind::Blocked, reason })
            }
            (Fate::Blocked(text) | Fate::SharedAlias(text), _) => Outcome::RejectedInDoubt(text),
            (Fate::Rejected(text), _) => Outcome::Rejected(text),
            (Fate::RejectedInDoubt(text), _) => Outcome::RejectedInDoubt(text),
            (Fate::Invalid(refusal), _) => Outcome::Invalid(refusal),
            (Fate::Unknown(text), _) => Outcome::Unknown(text),
        })
    }

    /// Weakens the result, because an earlier try may have been carried out.
    ///
    /// A missing privilege stays a refusal, and is no proof in either case.
    pub(crate) fn in_doubt(&self, settled: Settled) -> Settled {
        let changes = self.changes();
        match settled {
            Settled::Write(Outcome::Invalid(refusal)) if refusal.kind == RefusalKind::Denied => {
                Settled::Write(Outcome::Invalid(refusal))
            }
            Settled::Write(outcome) if changes => Settled::Write(outcome.in_doubt()),
            settled => settled,
        }
    }

    /// Returns the result from the answer to this item.
    fn judge(&self, entry: Option<Entry<'_>>, text: &Text<'_>) -> Settled {
        let unknown = |text: &str| self.settle(Fate::Unknown(text.to_owned()));
        let Some(entry) = entry else {
            return unknown("the answer to this operation cannot be read");
        };
        let action = entry.action();
        let (Entry::Create(reply)
        | Entry::Index(reply)
        | Entry::Update(reply)
        | Entry::Delete(reply)) = entry;
        let asked = match self.op {
            Op::Create(_) => "create",
            Op::Replace(..) | Op::Check(_) => "index",
            Op::Delete(_) => "delete",
            Op::Verify(_) | Op::Read => "update",
        };
        if action != asked || reply.id.as_deref() != Some(self.id) {
            return unknown("the answer is about another operation");
        }
        if let Some(error) = reply.error {
            return self.settle(classify::fate_of_item(&Cause::of(error), reply.status));
        }
        if reply.index != *self.target.name {
            self.target.expire();
            return unknown("the answer is from another index than that of the name");
        }
        let version = reply
            .seq_no
            .zip(reply.primary_term)
            .and_then(|(seq_no, term)| self.target.version(seq_no, term));
        let result = reply.result.as_deref().unwrap_or_default();
        let outcome = match (self.op, result, version) {
            (Op::Create(_), "created", Some(version))
            | (Op::Replace(..), "updated", Some(version))
            | (Op::Delete(_), "deleted", Some(version)) => Outcome::Applied(version),
            (Op::Delete(_), "not_found", _) => Outcome::Conflict,
            (Op::Verify(None), "noop", _) => Outcome::Conflict,
            (Op::Verify(Some(condition)), "noop", Some(version))
                if self.target.condition(version) == Some(condition) =>
            {
                Outcome::Holds
            }
            (Op::Read, "noop", Some(version)) => {
                return match reply.get.and_then(|get| get.source) {
                    Some(source) if !text.is_as_sent(source.get()) => {
                        Settled::Read(Read::Unavailable(not_utf8()))
                    }
                    Some(source) => {
                        Settled::Read(Read::Found { version, source: source.get().into() })
                    }
                    None => self.settle(Fate::Invalid(no_source())),
                };
            }
            _ => return unknown("an unexpected answer"),
        };
        Settled::Write(outcome)
    }
}

/// The refusal of an index that does not keep its sources.
pub(crate) fn no_source() -> Refusal {
    let reason = "the index does not store the _source of its documents".to_owned();
    Refusal { kind: RefusalKind::Document, reason }
}

/// Appends text as a JSON string.
pub(crate) fn push_text(body: &mut String, text: &str) {
    body.push('"');
    if !text.bytes().any(|byte| byte < b' ' || byte == b'"' || byte == b'\\') {
        body.push_str(text);
        body.push('"');
        return;
    }
    for c in text.chars() {
        match c {
            '"' => body.push_str("\\\""),
            '\\' => body.push_str("\\\\"),
            c if c < ' ' => body.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => body.push(c),
        }
    }
    body.push('"');
}

#[derive(Deserialize)]
struct BulkAnswer<'a, I> {
    #[serde(borrow)]
    took: Option<&'a RawValue>,
    items: Vec<I>,
}

impl<'a> BulkAnswer<'a, Option<Entry<'a>>> {
    fn read(text: &'a str) -> Result<Self, serde_json::Error> {
        if let Ok(answer) = serde_json::from_str(text) {
            return Ok(answer);
        }
        // An unreadable item says nothing about the other items.
        let BulkAnswer { took, items } = serde_json::from_str::<BulkAnswer<'a, &RawValue>>(text)?;
        let items = items.into_iter().map(|item| serde_json::from_str(item.get()).ok()).collect();
        Ok(Self { took, items })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Entry<'a> {
    #[serde(borrow)]
    Create(Reply<'a>),
    #[serde(borrow)]
    Index(Reply<'a>),
    #[serde(borrow)]
    Update(Reply<'a>),
    #[serde(borrow)]
    Delete(Reply<'a>),
}

impl Entry<'_> {
    fn action(&self) -> &'static str {
        match self {
            Self::Create(_) => "create",
            Self::Index(_) => "index",
            Self::Update(_) => "update",
            Self::Delete(_) => "delete",
        }
    }
}

#[derive(Deserialize)]
struct Reply<'a> {
    #[serde(rename = "_index", borrow)]
    index: Cow<'a, str>,
    #[serde(rename = "_id", borrow)]
    id: Option<Cow<'a, str>>,
    #[serde(rename = "_seq_no")]
    seq_no: Option<u64>,
    #[serde(rename = "_primary_term")]
    primary_term: Option<u64>,
    #[serde(borrow)]
    result: Option<Cow<'a, str>>,
    status: Option<u16>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    #[serde(borrow)]
    get: Option<Get<'a>>,
}

#[derive(Deserialize)]
struct Get<'a> {
    #[serde(rename = "_source", borrow)]
    source: Option<&'a RawValue>,
}

/// Returns the results of the items, in order, from a 200 answer.
pub(crate) fn decode(items: &[Item<'_>], body: &[u8]) -> Vec<Settled> {
    let all = |text: String| items.iter().map(|i| i.settle(Fate::Unknown(text.clone()))).collect();
    let text = Text::of(body);
    let answer = match BulkAnswer::read(text.as_str()) {
        Ok(answer) => answer,
        // Only the position, because the message may repeat a piece of a document.
        Err(e) => return all(format!("the answer cannot be read, at byte {}", e.column())),
    };
    tracing::trace!(took_ms = answer.took.map(RawValue::get), "bulk");
    if answer.items.len() > items.len() {
        return all("the answer has more items than the request".to_owned());
    }
    let mut entries = answer.items.into_iter();
    let settle = |item: &Item<'_>| match entries.next() {
        Some(entry) => item.judge(entry, &text),
        None => item.settle(Fate::Unknown("the answer is short of this operation".to_owned())),
    };
    items.iter().map(settle).collect()
}

#[cfg(test)]
#[path = "bulk_tests.rs"]
mod tests;
