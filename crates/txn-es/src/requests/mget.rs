//! Multi-document reads: request and answer. No I/O.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use txn_store::{Key, Read, StoreError, StoreErrorKind};

use crate::answers::classify::{self, Cause, Fate};
use crate::answers::text::{Text, not_utf8};
use crate::identity::target::Target;
use crate::requests::bulk::{no_source, push_text};

/// One requested document.
#[derive(Clone, Debug)]
pub(crate) struct Ask<'a> {
    /// The index of the result in the caller's list.
    pub(crate) at: usize,
    pub(crate) key: &'a Key,
    pub(crate) target: std::sync::Arc<Target>,
}

impl Ask<'_> {
    fn route(&self) -> &std::sync::Arc<str> {
        self.target.identity_alias.as_ref().unwrap_or(&self.target.name)
    }
}

/// Returns the body of the request.
pub(crate) fn encode(asks: &[Ask<'_>]) -> Bytes {
    let mut body = String::with_capacity(asks.len() * 128 + 16);
    body.push_str("{\"docs\":[");
    for (n, ask) in asks.iter().enumerate() {
        body.push_str(if n == 0 { "{\"_index\":" } else { ",{\"_index\":" });
        push_text(&mut body, ask.route());
        body.push_str(",\"_id\":");
        push_text(&mut body, &ask.key.id);
        if let Some(routing) = &ask.key.routing {
            body.push_str(",\"routing\":");
            push_text(&mut body, routing);
        }
        body.push('}');
    }
    body.push_str("]}");
    body.into()
}

/// The answer. Documents are parsed one by one, so that a fault of one leaves the rest readable.
#[derive(Deserialize)]
struct MultiGet<'a> {
    #[serde(borrow)]
    docs: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct Doc<'a> {
    #[serde(rename = "_index", borrow)]
    index: Cow<'a, str>,
    #[serde(rename = "_id", borrow)]
    id: Cow<'a, str>,
    found: Option<bool>,
    #[serde(rename = "_routing", borrow)]
    routing: Option<Cow<'a, str>>,
    #[serde(rename = "_seq_no")]
    seq_no: Option<u64>,
    #[serde(rename = "_primary_term")]
    primary_term: Option<u64>,
    #[serde(rename = "_source", borrow)]
    source: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// Returns the read of each document, in the order of the request.
pub(crate) fn decode(asks: &[Ask<'_>], body: &[u8]) -> Vec<Read> {
    let reads = judge_all(asks, body, read).into_iter();
    reads.map(|read| read.unwrap_or_else(|instead| instead)).collect()
}

/// Returns whether each document exists under its key, or an error read.
pub(crate) fn decode_presence(asks: &[Ask<'_>], body: &[u8]) -> Vec<Result<bool, Read>> {
    judge_all(asks, body, |ask, doc, _| is_present(ask, &doc))
}

fn judge_all<T>(
    asks: &[Ask<'_>],
    body: &[u8],
    judge: impl Fn(&Ask<'_>, Doc<'_>, &Text<'_>) -> Result<T, Read>,
) -> Vec<Result<T, Read>> {
    let body = Text::of(body);
    let answer = serde_json::from_str::<MultiGet<'_>>(body.as_str());
    let docs = answer.map(|answer| answer.docs).unwrap_or_default();
    if docs.len() != asks.len() {
        let text = "the answer to a read cannot be read, or is incomplete";
        return asks.iter().map(|_| Err(unavailable(text))).collect();
    }
    let unreadable = |_| unavailable("the answer about this document cannot be read");
    let judge = |ask, doc: &RawValue| {
        judge(ask, serde_json::from_str(doc.get()).map_err(unreadable)?, &body)
    };
    asks.iter().zip(docs).map(|(ask, doc)| judge(ask, doc)).collect()
}

fn read(ask: &Ask<'_>, doc: Doc<'_>, body: &Text<'_>) -> Result<Read, Read> {
    if !is_present(ask, &doc)? {
        return Ok(Read::Absent);
    }
    let version = doc.seq_no.zip(doc.primary_term);
    let version = version.and_then(|(seq_no, term)| ask.target.version(seq_no, term));
    match (doc.source, version) {
        (Some(source), _) if !body.is_as_sent(source.get()) => Err(Read::Unavailable(not_utf8())),
        (Some(source), Some(version)) => Ok(Read::Found { version, source: source.get().into() }),
        (Some(_), None) => Err(unavailable("the answer has no version")),
        (None, _) => Err(Read::Unavailable(classify::read_error(Fate::Invalid(no_source())))),
    }
}

fn is_present(ask: &Ask<'_>, doc: &Doc<'_>) -> Result<bool, Read> {
    if *doc.id != *ask.key.id {
        return Err(unavailable("the answer is about another document"));
    }
    if let Some(error) = doc.error {
        return Err(match classify::fate(&Cause::of(error)) {
            Fate::MissingCollection => {
                ask.target.expire();
                Read::MissingCollection
            }
            shared @ Fate::SharedAlias(_) => {
                ask.target.note_shared(ask.route());
                Read::Unavailable(classify::read_error(shared))
            }
            other => Read::Unavailable(classify::read_error(other)),
        });
    }
    if *doc.index != *ask.target.name {
        ask.target.expire();
        return Err(unavailable("the answer is from another index than that of the name"));
    }
    let stored = doc.routing.as_deref();
    match doc.found {
        Some(true) if stored != ask.key.routing.as_deref() => {
            Err(Read::Unavailable(other_key(ask.key, stored)))
        }
        Some(found) => Ok(found),
        None => Err(unavailable("the answer does not say whether the document exists")),
    }
}

/// The error for a document under another routing.
///
/// In one shard an id is one document, regardless of the routing of the request. A write by a key
/// with another routing would replace the routing of the document.
fn other_key(key: &Key, stored: Option<&str>) -> StoreError {
    let asked = match &key.routing {
        Some(routing) => format!("the routing {routing:?}"),
        None => "no routing".to_owned(),
    };
    let text = match stored {
        Some(routing) => format!(
            "the document is stored with the routing {routing:?}, and was named with {asked}: name it by \
             DocumentId::routed(id, {routing:?})"
        ),
        None => format!(
            "the document is stored without a routing, and was named with {asked}: name it by its id alone"
        ),
    };
    StoreError::new(StoreErrorKind::Misconfigured, text)
}

pub(crate) fn unavailable(text: &str) -> Read {
    Read::Unavailable(StoreError::new(StoreErrorKind::Unavailable, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::uuid::samples::uuid;

    #[test]
    fn answers() {
        let target = std::sync::Arc::new(Target::new("a", &uuid("uu"), true));
        let keys = ["1", "2", "3", "4", "5", "6"].map(|id| Key::new("a", id));
        let asks: Vec<_> =
            keys.iter().map(|key| Ask { at: 0, key, target: target.clone() }).collect();
        let source = r#"{"n":1.10,  "big":12345678901234567890123}"#;
        let body = format!(
            r#"{{"docs":[
            {{"_index":"a","_type":"_doc","_id":"1","_version":1,"_seq_no":7,"_primary_term":2,"found":true,"_source":{source}}},
            {{"_index":"a","_id":"2","found":false}},
            {{"_index":"a","_id":"3","error":{{"root_cause":[],"type":"index_not_found_exception","reason":"no such index [a]"}}}},
            {{"_index":"a","_id":"4","error":{{"type":"no_shard_available_action_exception","reason":"r"}}}},
            {{"_index":"a","_id":"5","_seq_no":7,"_primary_term":2,"found":true}},
            {{"_index":"b","_id":"6","_seq_no":7,"_primary_term":2,"found":true,"_source":{{}}}}]}}"#
        );
        let reads = decode(&asks, body.as_bytes());
        let version = target.version(7, 2).unwrap();
        assert_eq!(reads[0], Read::Found { version, source: source.into() });
        assert_eq!(reads[1], Read::Absent);
        assert_eq!(reads[2], Read::MissingCollection);
        for read in &reads[3..] {
            assert!(matches!(read, Read::Unavailable(_)), "{read:?}");
        }
        for body in [&body[..body.len() - 1], r#"{"docs":[]}"#, ""] {
            let reads = decode(&asks, body.as_bytes());
            assert!(reads.len() == 6 && reads.iter().all(|r| matches!(r, Read::Unavailable(_))));
        }
    }

    #[test]
    fn a_document_under_another_routing_is_refused() {
        let target = std::sync::Arc::new(Target::new("a", &uuid("uu"), true));
        for (asked, stored, advice) in [
            (None, Some("r"), Some("DocumentId::routed(id, \"r\")")),
            (Some("q"), Some("r"), Some("DocumentId::routed(id, \"r\")")),
            (Some("r"), None, Some("by its id alone")),
            (Some("r"), Some("r"), None),
            (None, None, None),
        ] {
            let key = Key { routing: asked.map(Into::into), ..Key::new("a", "1") };
            let asks = [Ask { at: 0, key: &key, target: target.clone() }];
            let stored = stored.map(|r| format!(r#""_routing":"{r}","#)).unwrap_or_default();
            let body = format!(
                r#"{{"docs":[{{"_index":"a","_id":"1","_seq_no":7,"_primary_term":2,{stored}"found":true,"_source":{{}}}}]}}"#
            );
            let read = decode(&asks, body.as_bytes()).remove(0);
            let present = decode_presence(&asks, body.as_bytes()).remove(0);
            match (advice, read) {
                (None, Read::Found { .. }) => assert_eq!(present, Ok(true)),
                (Some(advice), Read::Unavailable(error)) => {
                    assert_eq!(error.kind, StoreErrorKind::Misconfigured);
                    assert!(error.message.contains(advice), "{error}");
                    assert_eq!(present, Err(Read::Unavailable(error)));
                }
                (_, read) => panic!("{asked:?} {stored}: {read:?}"),
            }
        }
    }

    #[test]
    fn faulty_document_affects_no_other() {
        let target = std::sync::Arc::new(Target::new("a", &uuid("uu"), true));
        let keys = ["1", "2", "3"].map(|id| Key::new("a", id));
        let asks = keys.each_ref().map(|key| Ask { at: 0, key, target: target.clone() });
        let doc = |id: &str, source: &str| {
            format!(
                r#"{{"_index":"a","_id":"{id}","_seq_no":7,"_primary_term":2,"found":true,"_source":{source}}}"#
            )
        };
        let (first, last) = (doc("1", r#"{"n":"\ud800"}"#), doc("3", r#"{"n":"ü"}"#));
        let second = doc("2", r#"{"n":"x?y"}"#);
        let body = format!(r#"{{"docs":[{first},{second},{last}]}}"#);
        for bytes in [b"\xED\xA0\x80".as_slice(), b"\xC0\x80", b"\xF4\x90\x80\x80"] {
            let parts: Vec<_> = body.as_bytes().split(|byte| *byte == b'?').collect();
            let body = parts.join(bytes);
            let reads = decode(&asks, &body);
            let version = target.version(7, 2).unwrap();
            let found = |source: &str| Read::Found { version, source: source.into() };
            assert_eq!(reads[0], found(r#"{"n":"\ud800"}"#));
            assert_eq!(reads[2], found(r#"{"n":"ü"}"#));
            let Read::Unavailable(error) = &reads[1] else { panic!("{reads:?}") };
            assert_eq!(error.kind, StoreErrorKind::Damaged);
            assert_eq!(decode_presence(&asks, &body), [Ok(true), Ok(true), Ok(true)]);
        }
        for odd in ["7", r#"{"_index":"a"}"#] {
            let reads = decode(&asks, body.replace(&second, odd).as_bytes());
            assert!(matches!(reads[0], Read::Found { .. }) && reads[0] != reads[2]);
            let Read::Unavailable(error) = &reads[1] else { panic!("{reads:?}") };
            assert_eq!(error.kind, StoreErrorKind::Unavailable);
        }
    }

    #[test]
    fn the_request() {
        let keys = [Key::new("a", "1\""), Key::new("a", "2").routed("r")];
        let target = std::sync::Arc::new(Target::new("a", &uuid("uu"), false));
        let asks = keys.each_ref().map(|key| Ask { at: 0, key, target: target.clone() });
        let expected =
            r#"{"docs":[{"_index":"a","_id":"1\""},{"_index":"a","_id":"2","routing":"r"}]}"#;
        assert_eq!(encode(&asks), expected);
    }
}
