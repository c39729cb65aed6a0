//! The transaction record: one document that decides one attempt.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::document::{Image, JsonError, flatten};
use crate::format::Format;
use crate::ids::{AttemptId, CommitVersion};
use txn_store::{Key, Source, Version};

/// The state of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// A heartbeat of a running attempt.
    Pending,
    /// Committed; perhaps not yet applied to all participants.
    Committed,
    /// Committed, and every participant is applied.
    Finished,
    /// Aborted: the attempt never commits.
    Aborted,
}

impl State {
    /// The states of records that need recovery or an apply.
    pub const OPEN: [&'static str; 2] = ["pending", "committed"];
    /// The state of records whose transactions are applied.
    pub const FINISHED: &'static str = "finished";

    /// Whether the transaction is committed.
    #[must_use]
    pub fn is_committed(self) -> bool {
        matches!(self, Self::Committed | Self::Finished)
    }
}

/// The operation of a transaction on a participant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Op {
    /// Replaces the content of a document that exists.
    Write,
    /// Deletes a document that exists.
    Delete,
    /// Writes a document that does not exist, by way of a placeholder.
    Insert,
    /// Only reads, under a lock.
    Read,
}

/// A document that a transaction locks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Participant {
    /// The collection of the document.
    pub collection: Arc<str>,
    /// The id of the document.
    pub id: Arc<str>,
    /// The routing of the document, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routing: Option<Arc<str>>,
    /// The operation on the document.
    pub op: Op,
    /// The version that the lock was conditioned on; none for a placeholder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<Version>,
    /// The acknowledged version of the placeholder; none if a document was locked.
    ///
    /// A `create` carries no condition. So only this version distinguishes the lock from a
    /// duplicate of the request that landed late.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placeholder: Option<Version>,
    /// The commit version of the content under the lock, if any.
    ///
    /// No other transaction writes the document while the participant is not applied. So another
    /// commit version in the document is a later write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<CommitVersion>,
}

impl Participant {
    /// The key of the document.
    #[must_use]
    pub fn key(&self) -> Key {
        let (collection, id) = (self.collection.clone(), self.id.clone());
        Key { collection, id, routing: self.routing.clone() }
    }

    /// The incarnation of the locked collection; zero if the store has none.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.placeholder.or(self.expected).map_or(0, |version| version.incarnation)
    }

    /// Whether a collection of this incarnation is not the participant's collection.
    ///
    /// `false` if one of the two incarnations is zero: the store does not distinguish collections.
    #[must_use]
    pub fn is_elsewhere(&self, incarnation: u64) -> bool {
        let own = self.incarnation();
        own != 0 && incarnation != 0 && own != incarnation
    }
}

/// The author and the reason of an abort.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Aborted {
    /// The attempt or the process that aborted the transaction.
    pub by: String,
    /// The reason.
    pub why: String,
}

/// The part of a record that is stored but never searched.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Body {
    /// The redo log: the absolute new content of each written participant.
    #[serde(default)]
    images: Vec<Option<Box<RawValue>>>,
    /// The caller's metadata, a JSON value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    metadata: Option<Box<RawValue>>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Wire {
    #[serde(default)]
    format: Format,
    state: State,
    tid: AttemptId,
    attempt: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    aborted: Option<Aborted>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    commit_version: Option<CommitVersion>,
    #[serde(default, rename = "members")]
    participants: Vec<Participant>,
    /// The participants that the transaction deletes, for searches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    deletes: Vec<String>,
    #[serde(default)]
    body: Body,
    coordinator: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    application: Option<String>,
    /// The label of the transaction, added within the first format. A reader that does not know the
    /// label ignores the field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    label: Option<Arc<str>>,
    created_at: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    heartbeat_at: Option<u64>,
    modified_at: u64,
}

/// A transaction record.
///
/// Times are milliseconds since the Unix epoch by the writer's clock, for people only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The state of the attempt.
    pub state: State,
    /// The attempt that the record decides.
    pub tid: AttemptId,
    /// The author and the reason of the abort; `None` without an abort.
    pub aborted: Option<Aborted>,
    /// The version of all content that the transaction wrote, if committed.
    pub commit_version: Option<CommitVersion>,
    /// The documents that the transaction locked.
    pub participants: Vec<Participant>,
    /// The new content of each participant, in the order of `participants`.
    ///
    /// Deletes and reads have none.
    pub images: Vec<Option<Image>>,
    /// The caller's metadata, the text of a JSON value.
    pub metadata: Option<String>,
    /// The name of the process that runs the attempt.
    pub coordinator: String,
    /// The name of the application of that process.
    pub application: Option<String>,
    /// The label of the transaction, for people only.
    pub label: Option<Arc<str>>,
    /// The time of the first write.
    pub created_at: u64,
    /// The time of the owner's last heartbeat.
    pub heartbeat_at: Option<u64>,
    /// The time of the last write.
    pub modified_at: u64,
}

impl Record {
    /// Reads a stored source.
    ///
    /// # Errors
    /// [`JsonError`] if the source is not a record, or if a newer library wrote it.
    pub fn parse(source: &str) -> Result<Self, JsonError> {
        let fault = |e: serde_json::Error| JsonError::new(format!("not a transaction record: {e}"));
        let wire: Wire = serde_json::from_str(&flatten(source)).map_err(fault)?;
        if !wire.format.is_known() {
            return Err(JsonError::new("a newer library wrote it".to_owned()));
        }
        let images: Result<Vec<_>, _> = wire
            .body
            .images
            .iter()
            .map(|raw| raw.as_ref().map(|raw| Image::parse(raw.get())).transpose())
            .collect();
        let mut images = images?;
        images.resize(wire.participants.len(), None);
        let has_content = |(participant, image): (&Participant, &Option<Image>)| {
            image.is_some() || matches!(participant.op, Op::Read | Op::Delete)
        };
        if wire.state == State::Committed && !wire.participants.iter().zip(&images).all(has_content)
        {
            return Err(JsonError::new("a committed record without its contents".to_owned()));
        }
        Ok(Self {
            state: wire.state,
            tid: wire.tid,
            aborted: wire.aborted,
            commit_version: wire.commit_version,
            participants: wire.participants,
            images,
            metadata: wire.body.metadata.map(|raw| raw.get().to_owned()),
            coordinator: wire.coordinator,
            application: wire.application,
            label: wire.label,
            created_at: wire.created_at,
            heartbeat_at: wire.heartbeat_at,
            modified_at: wire.modified_at,
        })
    }

    /// The source to store.
    ///
    /// # Errors
    /// [`JsonError`] if an image or the metadata is not JSON.
    pub fn encode(&self) -> Result<Source, JsonError> {
        let fault = |e: serde_json::Error| JsonError::new(format!("cannot encode the record: {e}"));
        let raw = |text: &str| RawValue::from_string(text.to_owned());
        let images: Result<Vec<_>, _> = self
            .images
            .iter()
            .map(|image| image.as_ref().map(|i| raw(i.as_str())).transpose())
            .collect();
        let wire = Wire {
            format: Format::default(),
            state: self.state,
            tid: self.tid,
            attempt: self.tid.attempt(),
            aborted: self.aborted.clone(),
            commit_version: self.commit_version,
            participants: self.participants.clone(),
            deletes: self.deleted().map(|participant| participant.key().to_string()).collect(),
            body: Body {
                images: images.map_err(fault)?,
                metadata: self.metadata.as_deref().map(raw).transpose().map_err(fault)?,
            },
            coordinator: self.coordinator.clone(),
            application: self.application.clone(),
            label: self.label.clone(),
            created_at: self.created_at,
            heartbeat_at: self.heartbeat_at,
            modified_at: self.modified_at,
        };
        serde_json::to_string(&wire).map(Into::into).map_err(fault)
    }

    /// An upper bound of the encoded length, computed without an encoding.
    ///
    /// Returns none for a record with metadata or an abort, because their encoded length is
    /// unknown.
    pub fn most_bytes(&self) -> Option<usize> {
        /// Bytes of numbers, tids and names of fields. A byte of a name may become an escape of
        /// six.
        const FIELDS: usize = 512;
        let name = |text: &str| 6 * text.len();
        let participant = |participant: &Participant| {
            let Participant { collection, id, routing, .. } = participant;
            FIELDS + name(collection) + name(id) + routing.as_deref().map_or(0, name)
        };
        let participants: usize =
            self.participants.iter().chain(self.deleted()).map(participant).sum();
        let image = |image: &Option<Image>| 5 + image.as_ref().map_or(0, |i| i.as_str().len());
        let images: usize = self.images.iter().map(image).sum();
        let optional = |text: Option<&str>| text.map_or(0, name);
        let words = name(&self.coordinator)
            + optional(self.application.as_deref())
            + optional(self.label.as_deref());
        let told = self.metadata.is_none() && self.aborted.is_none();
        told.then_some(FIELDS + participants + images + words)
    }

    /// The participants that the transaction deletes.
    pub fn deleted(&self) -> impl Iterator<Item = &Participant> {
        self.participants.iter().filter(|participant| participant.op == Op::Delete)
    }

    /// The index of each document in `participants`.
    pub fn by_key(&self) -> BTreeMap<Key, usize> {
        self.participants
            .iter()
            .enumerate()
            .map(|(index, participant)| (participant.key(), index))
            .collect()
    }

    /// Whether a process still has to recover or apply the transaction.
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Pending | State::Committed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "5e1f0000-c6a1-11f0-8007-0123456789ab";

    #[test]
    fn record_round_trip_keeps_image_bytes() {
        let tid: AttemptId = ID.parse().expect("an id");
        let commit: CommitVersion = ID.parse().expect("a version");
        let version = Version { incarnation: 7, term: 2, seq_no: 40 };
        let participant = |id: &str, op, expected, placeholder| Participant {
            collection: "accounts".into(),
            id: id.into(),
            routing: None,
            op,
            expected,
            placeholder,
            before: expected.map(|_| commit),
        };
        let record = Record {
            state: State::Committed,
            tid,
            aborted: Some(Aborted { by: "x".into(), why: "y".into() }),
            commit_version: Some(commit),
            participants: vec![
                participant("a", Op::Write, Some(version), None),
                participant("b", Op::Delete, Some(version), None),
                participant("c", Op::Insert, None, Some(version)),
            ],
            images: vec![Image::parse("{\"n\":1.10}").ok(), None, Image::parse("{}").ok()],
            metadata: Some("{\"why\":1e2}".into()),
            coordinator: "host".into(),
            application: None,
            label: Some("checkout".into()),
            created_at: 1,
            heartbeat_at: None,
            modified_at: 2,
        };
        let source = record.encode().expect("encodes");
        assert_eq!(Record::parse(&source).as_ref(), Ok(&record));
        assert!(source.contains("\"state\":\"committed\"") && source.contains("1.10"), "{source}");
        let by_key = record.by_key();
        assert_eq!(by_key.get(&Key::new("accounts", "c")), Some(&2));
        assert_eq!(by_key.get(&Key::new("accounts", "d")), None);
        assert!(Record::parse("{\"state\":\"odd\"}").is_err());
    }

    #[test]
    fn record_without_label_is_read() {
        let source = format!(
            r#"{{"state":"pending","tid":"{ID}","attempt":0,"coordinator":"host","created_at":1,"modified_at":1}}"#
        );
        let record = Record::parse(&source).expect("an older record");
        assert_eq!(record.label, None);
        let encoded = record.encode().expect("encodes");
        assert!(!encoded.contains("label"), "{encoded}");
    }

    #[test]
    fn encoded_record_fits_most_bytes() {
        let tid: AttemptId = ID.parse().expect("an id");
        let commit: CommitVersion = ID.parse().expect("a version");
        let longest = Some(Version::MAX);
        let names: Arc<str> = "\u{1}\u{2}\"\\ü".repeat(20).into();
        let participant = Participant {
            collection: names.clone(),
            id: names.clone(),
            routing: Some(names.clone()),
            op: Op::Insert,
            expected: longest,
            placeholder: longest,
            before: Some(commit),
        };
        for participants in [0, 1, 100] {
            let record = Record {
                state: State::Committed,
                tid,
                aborted: None,
                commit_version: Some(commit),
                participants: vec![participant.clone(); participants],
                images: vec![Image::parse("{\"n\":\"\\u0001\"}").ok(); participants],
                metadata: None,
                coordinator: names.to_string(),
                application: Some(names.to_string()),
                label: Some(names.clone()),
                created_at: u64::MAX,
                heartbeat_at: Some(u64::MAX),
                modified_at: u64::MAX,
            };
            let encoded = record.encode().expect("encodes");
            assert!(record.most_bytes().is_some_and(|most| most >= encoded.len()));
            let told = Record { metadata: Some("1".to_owned()), ..record };
            assert_eq!(told.most_bytes(), None);
        }
    }

    #[test]
    fn committed_record_without_contents_is_refused() {
        let text = |state: &str, op: &str, images: &str| {
            format!(
                "{{\"state\":\"{state}\",\"tid\":\"{ID}\",\"attempt\":7,\"members\":[{{\"collection\":\"c\",\
                 \"id\":\"a\",\"op\":\"{op}\"}}],\"body\":{{\"images\":{images}}},\"coordinator\":\"p\",\
                 \"created_at\":1,\"modified_at\":1}}"
            )
        };
        let is_sound = |text: String| Record::parse(&text).map(drop).map_err(|e| e.to_string());
        assert_eq!(is_sound(text("committed", "write", "[{}]")), Ok(()));
        assert_eq!(is_sound(text("committed", "delete", "[]")), Ok(()));
        assert_eq!(is_sound(text("pending", "write", "[]")), Ok(()));
        let refused = is_sound(text("committed", "insert", "[]")).expect_err("is damaged");
        assert!(refused.contains("without its contents"), "{refused}");
    }
}
