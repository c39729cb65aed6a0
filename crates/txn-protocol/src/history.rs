//! Past versions of a document, in collections that keep a history.
//!
//! Past versions never change and form a chain. A search by time needs logarithmically many reads.
//!
//! A document has a *head*, and each transaction that writes the document also writes the head. So
//! the commit version of the head is that of the last change, a deletion included. The overwritten
//! content becomes a *past version* before the commit is sent. A past version says that a content
//! existed under a commit version, which is true for each outcome of the transaction. So a past
//! version needs neither a lock nor an entry in the record.
//!
//! Versions are numbered. A version links to the version before it. Further links lead to the
//! numbers that arise when the lowest bits of its number are cleared, one after the other. Each
//! step of a search halves the remaining versions.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::document::{Image, View};
use crate::format::Format;
use crate::ids::CommitVersion;
use crate::machines::settle::{Condition, Machine, Settle};

/// The number of a version, and the commit that wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ancestor {
    /// The number of the version, from 0.
    pub number: u64,
    /// The commit that wrote the version, if a transaction wrote it.
    #[serde(rename = "tid", default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<CommitVersion>,
    /// The location of the content.
    #[serde(default, skip_serializing_if = "Kept::is_apart")]
    pub kept: Kept,
}

/// The location of the content of a past version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kept {
    /// A document of its own.
    #[default]
    Apart,
    /// No location: there was no document yet.
    Absent,
    /// No location: a process without history overwrote the version. The content is unknown, and so
    /// is the time for which it lasted.
    Lost,
}

impl Kept {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_apart(&self) -> bool {
        *self == Self::Apart
    }
}

impl Ancestor {
    /// Whether the version was current at `time`, or before. A first version without a transaction
    /// always counts.
    fn stood_at(&self, time: Duration) -> bool {
        self.commit.map_or(self.number == 0, |commit| commit.unix_time() <= time)
    }
}

/// The links from one version to earlier versions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Links {
    number: u64,
    /// The nearest version first, the first version last.
    before: Vec<Ancestor>,
}

/// The next step of a search by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The version that was current at that time.
    Found(Ancestor),
    /// A version that is later. The search continues with the links of this version.
    Look(Ancestor),
}

impl Links {
    /// The links of the version that follows the version with these links.
    ///
    /// `commit` wrote the version with these links, and `kept` locates its content.
    #[must_use]
    pub fn after(&self, commit: Option<CommitVersion>, kept: Kept) -> Self {
        let number = self.number + 1;
        let own = Ancestor { number: self.number, commit, kept };
        let mut jumps = Vec::new();
        let mut rest = number;
        while rest > 0 {
            rest &= rest - 1;
            jumps.push(rest);
        }
        let known = std::iter::once(&own).chain(&self.before);
        let is_linked =
            |version: &&Ancestor| version.number == self.number || jumps.contains(&version.number);
        Self { number, before: known.filter(is_linked).copied().collect() }
    }

    /// The next step towards the version at `time`.
    ///
    /// `time` is before this version. Returns none if `time` is before the first version.
    #[must_use]
    pub fn step(&self, time: Duration) -> Option<Step> {
        let index = self.before.iter().position(|version| version.stood_at(time))?;
        Some(match index.checked_sub(1) {
            None => Step::Found(self.before[0]),
            Some(later) => Step::Look(self.before[later]),
        })
    }

    fn is_sound(&self) -> bool {
        let falls = self.before.is_sorted_by(|a, b| a.number > b.number);
        let nearest = self.before.first().map(|version| version.number + 1);
        let first = self.before.last().is_none_or(|version| version.number == 0);
        falls && first && nearest.unwrap_or(0) == self.number
    }
}

/// The head of a document, for searches and for the next write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    #[serde(default)]
    format: Format,
    /// Whether the document exists, and was not deleted.
    pub exists: bool,
    /// The links to earlier versions.
    pub links: Links,
}

/// The known content of a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// The document had this content.
    Was(Image),
    /// There was no document.
    Absent,
    /// The content is not known.
    Lost,
}

/// A version that was overwritten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastVersion {
    /// The links to earlier versions.
    pub links: Links,
    /// The content of the version.
    pub content: Content,
}

/// The new history documents of one change of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The commit that wrote the overwritten version.
    pub overwritten: Option<CommitVersion>,
    /// The overwritten version; none if there was no version yet.
    pub past: Option<PastVersion>,
    /// The new content of the head.
    pub head: Head,
    /// Whether document and head name the same commit.
    ///
    /// If they do, the content of that commit is known, even if one of the two locks was lost
    /// before the other was taken. Otherwise the pair counts only if both locks were held at one
    /// moment.
    pub agrees: bool,
}

/// A document, as its transaction found it under the lock.
#[derive(Clone, Copy, Debug)]
pub struct Before<'a> {
    /// The commit that wrote the document.
    pub commit_version: Option<CommitVersion>,
    /// The content, if the document exists.
    pub image: Option<&'a Image>,
}

impl Before<'_> {
    /// Whether the head describes exactly this state.
    ///
    /// Otherwise a process without history has written the document since.
    #[must_use]
    pub fn is_of(&self, head: &Head, head_commit: Option<CommitVersion>) -> bool {
        match self.image {
            Some(_) => head.exists && self.commit_version == head_commit,
            None => !head.exists,
        }
    }
}

impl Change {
    /// The change of a document with this head.
    ///
    /// `head`: the head and the commit that wrote the head. `exists`: whether the document exists
    /// after the change.
    #[must_use]
    pub fn of(
        head: Option<(&Head, Option<CommitVersion>)>,
        before: Before<'_>,
        exists: bool,
    ) -> Self {
        let format = Format::default();
        let (links, overwritten, agrees, kept) = match (head, before.image) {
            (None, None) => (Links::default(), None, true, Kept::Absent),
            (None, Some(_)) => (Links::default(), before.commit_version, false, Kept::Apart),
            (Some((head, commit)), _) => {
                let agrees = before.is_of(head, commit);
                let kept = if agrees { Kept::Apart } else { Kept::Lost };
                (head.links.clone(), commit, agrees, kept)
            }
        };
        let content = match (kept, before.image) {
            (Kept::Lost, _) => Content::Lost,
            (Kept::Apart | Kept::Absent, Some(image)) => Content::Was(image.clone()),
            (Kept::Apart | Kept::Absent, None) => Content::Absent,
        };
        let head = Head { format, exists, links: links.after(overwritten, kept) };
        let past = (kept != Kept::Absent).then_some(PastVersion { links, content });
        Self { overwritten, past, head, agrees }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Was,
    Absent,
    Lost,
}

#[derive(Serialize, Deserialize)]
struct PastDocument<'a> {
    #[serde(default)]
    format: Format,
    links: Links,
    content: Kind,
    #[serde(default, borrow, skip_serializing_if = "Option::is_none")]
    image: Option<&'a RawValue>,
}

impl Head {
    /// The document of the head.
    ///
    /// # Errors
    /// A message; no case is known.
    pub fn encode(&self) -> Result<Image, String> {
        let text = serde_json::to_string(self).map_err(|e| e.to_string())?;
        Image::parse(&text).map_err(|e| e.to_string())
    }

    /// Reads the document of a head.
    ///
    /// # Errors
    /// A message, if the document cannot be read, or if a newer library wrote it.
    pub fn parse(image: &Image) -> Result<Self, String> {
        let head: Self = serde_json::from_str(image.as_str())
            .map_err(|e| format!("the head of the history cannot be read: {e}"))?;
        check(head.format, &head.links)?;
        Ok(head)
    }
}

impl PastVersion {
    /// The document of a past version.
    ///
    /// # Errors
    /// A message; no case is known.
    pub fn encode(&self) -> Result<Image, String> {
        let content = match self.content {
            Content::Was(_) => Kind::Was,
            Content::Absent => Kind::Absent,
            Content::Lost => Kind::Lost,
        };
        let image = match &self.content {
            Content::Was(image) => {
                let raw: Result<&RawValue, _> = serde_json::from_str(image.as_str());
                Some(raw.map_err(|e| e.to_string())?)
            }
            Content::Absent | Content::Lost => None,
        };
        let links = self.links.clone();
        let document = PastDocument { format: Format::default(), links, content, image };
        let text = serde_json::to_string(&document).map_err(|e| e.to_string())?;
        Image::parse(&text).map_err(|e| e.to_string())
    }

    /// Reads the document of a past version.
    ///
    /// # Errors
    /// A message, if the document cannot be read, or if a newer library wrote it.
    pub fn parse(image: &Image) -> Result<Self, String> {
        let document: PastDocument<'_> = serde_json::from_str(image.as_str())
            .map_err(|e| format!("the past version cannot be read: {e}"))?;
        check(document.format, &document.links)?;
        let content = match (document.content, document.image) {
            (Kind::Was, Some(image)) => {
                Content::Was(Image::parse(image.get()).map_err(|e| e.to_string())?)
            }
            (Kind::Was, None) => return Err("the past version has no content".to_owned()),
            (Kind::Absent, _) => Content::Absent,
            (Kind::Lost, _) => Content::Lost,
        };
        Ok(Self { links: document.links, content })
    }
}

fn check(format: Format, links: &Links) -> Result<(), String> {
    match (format.is_known(), links.is_sound()) {
        (true, true) => Ok(()),
        (false, _) => Err("a newer library wrote it".to_owned()),
        (true, false) => Err("the links to earlier versions are damaged".to_owned()),
    }
}

/// Keeps a past version.
///
/// The first process writes the document. Every process would write the same content for the same
/// commit. An existing document is touched, because a document that was only read may vanish.
#[derive(Clone, Copy, Debug, Default)]
pub struct Keep;

impl Machine for Keep {
    type Seen = View;
    type Proven = ();

    fn next(&self, seen: &View) -> Settle<()> {
        match seen {
            View::Absent => Settle::Write(Condition::Absent, ()),
            View::Present { version, .. } => Settle::Touch(*version, ()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit(seconds: u64) -> CommitVersion {
        let ticks = 0x01B2_1DD2_1381_4000 + seconds * 10_000_000;
        let (low, mid, high) = (ticks & 0xFFFF_FFFF, (ticks >> 32) & 0xFFFF, ticks >> 48);
        format!("{low:08x}-{mid:04x}-1{high:03x}-8000-0123456789ab")
            .parse()
            .expect("a commit version")
    }

    /// Commits wrote versions at the seconds 10, 20, …. The search agrees with a list, in few
    /// steps.
    #[test]
    fn every_time_is_found_in_few_steps() {
        for length in (0..40).chain([100, 1_000, 1_023, 1_024]) {
            // The first version was there before any transaction.
            let mut chain = vec![(None, Links::default())];
            for n in 1..=length {
                let (commit_before, links) = &chain[chain.len() - 1];
                chain.push((Some(commit(10 * n)), links.after(*commit_before, Kept::Apart)));
            }
            for time in [
                0,
                1,
                9,
                10,
                11,
                5 * length,
                10 * length.saturating_sub(1),
                10 * length - length.min(1),
            ] {
                let expected = (time / 10).min(length);
                let moment = Duration::from_secs(time);
                let (newest, mut links) = (&chain[chain.len() - 1].0, &chain[chain.len() - 1].1);
                if expected == length && newest.is_none_or(|commit| commit.unix_time() <= moment) {
                    continue;
                }
                let mut looks = 0;
                let found = loop {
                    looks += 1;
                    match links.step(moment).expect("there is an earlier one") {
                        Step::Found(version) => break version,
                        Step::Look(version) => {
                            links = &chain[usize::try_from(version.number).expect("small")].1;
                        }
                    }
                };
                assert_eq!(found.number, expected, "at {time} of {length}");
                assert!(looks <= 2 * (1 + length.ilog2()), "{looks} looks among {length}");
            }
        }
    }

    #[test]
    fn time_before_the_first_version_is_unknown() {
        let links = Links::default().after(Some(commit(12)), Kept::Apart);
        assert_eq!(links.step(Duration::from_secs(11)), None);
        assert!(matches!(links.step(Duration::from_secs(12)), Some(Step::Found(_))));
        let links = links.after(Some(commit(20)), Kept::Apart);
        assert_eq!(links.step(Duration::from_secs(11)), None);
        let links = Links::default().after(None, Kept::Apart);
        assert!(matches!(links.step(Duration::ZERO), Some(Step::Found(_))));
    }

    #[test]
    fn links_grow_with_the_logarithm() {
        let mut links = Links::default();
        for n in 1..5_000_u64 {
            links = links.after(Some(commit(n)), Kept::Apart);
            assert!(links.is_sound());
            assert!(links.before.len() <= 2 + usize::try_from(n.ilog2()).expect("small"), "{n}");
        }
    }

    #[test]
    fn history_documents_survive_a_round_trip() {
        let image = Image::parse(r#"{"n":1.0,"x":{"tid":2}}"#).expect("valid");
        let first = Change::of(None, Before { commit_version: None, image: Some(&image) }, true);
        let content = first.past.as_ref().map(|past| past.content.clone());
        assert_eq!(content, Some(Content::Was(image.clone())));
        assert!(!first.agrees, "no head names the writer yet");
        let head = (&first.head, Some(commit(5)));
        let deleted = Change::of(
            Some(head),
            Before { commit_version: Some(commit(5)), image: Some(&image) },
            false,
        );
        assert_eq!((deleted.overwritten, deleted.head.exists), (Some(commit(5)), false));
        assert!(deleted.agrees);
        for past in [&first.past, &deleted.past].into_iter().flatten() {
            assert_eq!(PastVersion::parse(&past.encode().expect("encodes")).as_ref(), Ok(past));
        }
        assert_eq!(Head::parse(&deleted.head.encode().expect("encodes")), Ok(deleted.head));
    }

    #[test]
    fn version_overwritten_without_history_is_lost() {
        let image = Image::default();
        let head = Change::of(None, Before { commit_version: None, image: None }, true).head;
        for before in [
            Before { commit_version: Some(commit(7)), image: Some(&image) },
            Before { commit_version: None, image: Some(&image) },
            Before { commit_version: None, image: None },
        ] {
            let change = Change::of(Some((&head, Some(commit(5)))), before, true);
            assert!(!change.agrees, "{before:?}");
            assert_eq!(change.past.map(|past| past.content), Some(Content::Lost), "{before:?}");
            let step = change.head.links.step(Duration::from_secs(5));
            let lost = Ancestor { number: 1, commit: Some(commit(5)), kept: Kept::Lost };
            assert_eq!(step, Some(Step::Found(lost)), "{before:?}");
        }
    }

    #[test]
    fn newer_and_damaged_heads_are_refused() {
        for text in [
            r#"{"format":2,"exists":true,"links":{"number":0,"before":[]}}"#,
            r#"{"exists":true,"links":{"number":2,"before":[{"number":0}]}}"#,
            r#"{"exists":true,"links":{"number":1,"before":[]}}"#,
            r#"{"exists":true}"#,
        ] {
            let image = Image::parse(text).expect("an object");
            assert!(Head::parse(&image).is_err(), "{text}");
        }
    }
}
