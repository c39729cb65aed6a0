//! Sets of documents by 32-bit hashes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The maximum number of hashes in a set that lists them. A larger set is a bitmap.
///
/// So many hashes are as long as a bitmap. Two bitmaps of 80 documents each seem to share a
/// document in every second case.
pub const MOST_HASHES: usize = 128;

/// The number of bits in a bitmap.
pub const BITMAP_BITS: usize = 8_192;

const WORDS: usize = BITMAP_BITS / 64;

/// The hash of a document's collection and id.
///
/// The hash is part of the board's format, so each version of the library has to compute the same
/// one. Two documents with one hash count as one document of the board, which costs order and no
/// safety.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyHash(u32);

impl KeyHash {
    /// Hashes a document with FNV-1a of 64 bits, folded to 32 bits.
    #[must_use]
    pub fn of(collection: &str, id: &str) -> Self {
        let bytes = collection.bytes().chain([0]).chain(id.bytes());
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        // The high bits of FNV-1a spread badly over short keys: one round of a finalizer mixes
        // them.
        let mixed = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self((mixed >> 32) as u32)
    }

    /// A hash that another function computed, for tests and simulations.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// The position of the hash in a bitmap.
    const fn bit(self) -> usize {
        (self.0 >> 19) as usize
    }
}

/// A set of documents: few hashes, or a bitmap.
///
/// A set has at most [`MOST_HASHES`] hashes. A bitmap has [`BITMAP_BITS`] bits.
///
/// A bitmap answers "yes" for documents that are not in the set. The process then waits for a turn
/// that it did not need to wait for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DocumentSet(Content);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Content {
    /// Sorted, without duplicates.
    Hashes(Vec<KeyHash>),
    Bitmap(Box<[u64; WORDS]>),
}

impl Default for DocumentSet {
    fn default() -> Self {
        Self(Content::Hashes(Vec::new()))
    }
}

impl FromIterator<KeyHash> for DocumentSet {
    fn from_iter<I: IntoIterator<Item = KeyHash>>(hashes: I) -> Self {
        let mut set = Self::default();
        set.extend(hashes);
        set
    }
}

impl Extend<KeyHash> for DocumentSet {
    fn extend<I: IntoIterator<Item = KeyHash>>(&mut self, hashes: I) {
        for hash in hashes {
            self.insert(hash);
        }
    }
}

impl DocumentSet {
    /// A set without documents.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match &self.0 {
            Content::Hashes(hashes) => hashes.is_empty(),
            Content::Bitmap(words) => words.iter().all(|word| *word == 0),
        }
    }

    /// Adds a document.
    pub fn insert(&mut self, hash: KeyHash) {
        match &mut self.0 {
            Content::Hashes(hashes) => {
                let Err(at) = hashes.binary_search(&hash) else { return };
                hashes.insert(at, hash);
                if hashes.len() > MOST_HASHES {
                    self.0 = Content::Bitmap(self.bitmap());
                }
            }
            Content::Bitmap(words) => words[hash.bit() / 64] |= 1 << (hash.bit() % 64),
        }
    }

    /// Adds the documents of `other`.
    pub fn unite(&mut self, other: &Self) {
        match &other.0 {
            Content::Hashes(hashes) => self.extend(hashes.iter().copied()),
            Content::Bitmap(words) => {
                let mut united = self.bitmap();
                for (mine, theirs) in united.iter_mut().zip(words.iter()) {
                    *mine |= theirs;
                }
                self.0 = Content::Bitmap(united);
            }
        }
    }

    /// Whether the document may be in the set: no false "no".
    #[must_use]
    pub fn may_contain(&self, hash: KeyHash) -> bool {
        match &self.0 {
            Content::Hashes(hashes) => hashes.binary_search(&hash).is_ok(),
            Content::Bitmap(words) => (words[hash.bit() / 64] >> (hash.bit() % 64)) & 1 == 1,
        }
    }

    /// Whether the two sets may share a document: no false "no".
    #[must_use]
    pub fn may_intersect(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Content::Hashes(few), _) => few.iter().any(|hash| other.may_contain(*hash)),
            (_, Content::Hashes(few)) => few.iter().any(|hash| self.may_contain(*hash)),
            (Content::Bitmap(a), Content::Bitmap(b)) => {
                a.iter().zip(b.iter()).any(|(a, b)| a & b != 0)
            }
        }
    }

    /// Whether each document of `other` is in this set.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (_, Content::Hashes(few)) => few.iter().all(|hash| self.may_contain(*hash)),
            (Content::Hashes(_), Content::Bitmap(_)) => other.is_empty(),
            (Content::Bitmap(a), Content::Bitmap(b)) => {
                a.iter().zip(b.iter()).all(|(a, b)| b & !a == 0)
            }
        }
    }

    fn bitmap(&self) -> Box<[u64; WORDS]> {
        match &self.0 {
            Content::Bitmap(words) => words.clone(),
            Content::Hashes(hashes) => {
                let mut words = Box::new([0; WORDS]);
                for hash in hashes {
                    words[hash.bit() / 64] |= 1 << (hash.bit() % 64);
                }
                words
            }
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Stored {
    Hashes(Vec<u32>),
    Bitmap(String),
}

impl Serialize for DocumentSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Content::Hashes(hashes) => Stored::Hashes(hashes.iter().map(|hash| hash.0).collect()),
            Content::Bitmap(words) => {
                let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                Stored::Bitmap(STANDARD.encode(bytes))
            }
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for DocumentSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let damaged = || serde::de::Error::custom("a damaged set of documents");
        match Stored::deserialize(deserializer)? {
            Stored::Hashes(hashes) if hashes.len() > MOST_HASHES => Err(damaged()),
            Stored::Hashes(hashes) => Ok(hashes.into_iter().map(KeyHash).collect()),
            Stored::Bitmap(text) => {
                let bytes = STANDARD.decode(text).map_err(|_| damaged())?;
                let (chunks, []) = bytes.as_chunks::<8>() else { return Err(damaged()) };
                let words: Vec<u64> =
                    chunks.iter().map(|chunk| u64::from_le_bytes(*chunk)).collect();
                let words = <Box<[u64; WORDS]>>::try_from(words).map_err(|_| damaged())?;
                Ok(Self(Content::Bitmap(words)))
            }
        }
    }
}
