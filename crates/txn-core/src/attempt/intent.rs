//! What a transaction wants to do with one document, and what a further call makes of that.

use txn_protocol::document::Image;

/// What one call of the closure asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// Write it, whether or not it exists.
    Put(Image),
    /// Write it; it must not exist.
    Insert(Image),
    /// Delete it, if it exists.
    Delete,
}

impl Mutation {
    pub(super) fn image(&self) -> Option<&Image> {
        match self {
            Self::Put(image) | Self::Insert(image) => Some(image),
            Self::Delete => None,
        }
    }
}

/// What all calls so far come to. Whether the document must not have existed survives all that follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    /// Write it, whether or not it existed.
    Put(Image),
    /// Write it; it must not have existed.
    Insert(Image),
    /// Delete it, if it existed.
    Delete,
    /// Inserted and deleted again: nothing is written; it must not have existed.
    Withdrawn,
}

impl Intent {
    /// What is wanted after one more call; `None` if that inserts what the transaction itself wrote.
    pub(super) fn after(before: Option<&Self>, mutation: Mutation) -> Option<Self> {
        let must_be_new = matches!(before, Some(Self::Insert(_) | Self::Withdrawn));
        Some(match (before, mutation) {
            (Some(Self::Put(_) | Self::Insert(_)), Mutation::Insert(_)) => return None,
            // Deleted by this transaction: it may have existed.
            (Some(Self::Delete), Mutation::Insert(image)) => Self::Put(image),
            (_, Mutation::Insert(image)) => Self::Insert(image),
            (_, Mutation::Put(image)) if must_be_new => Self::Insert(image),
            (_, Mutation::Put(image)) => Self::Put(image),
            (_, Mutation::Delete) if must_be_new => Self::Withdrawn,
            (_, Mutation::Delete) => Self::Delete,
        })
    }

    pub(crate) fn image(&self) -> Option<&Image> {
        match self {
            Self::Put(image) | Self::Insert(image) => Some(image),
            Self::Delete | Self::Withdrawn => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_on_every_intent() {
        let old = || Image::parse("{\"old\":1}").expect("valid");
        let new = || Image::parse("{\"new\":1}").expect("valid");
        let (put, insert) = (|| Intent::Put(new()), || Intent::Insert(new()));
        let rows = [
            (None, [Some(put()), Some(insert()), Some(Intent::Delete)]),
            (Some(Intent::Put(old())), [Some(put()), None, Some(Intent::Delete)]),
            (Some(Intent::Insert(old())), [Some(insert()), None, Some(Intent::Withdrawn)]),
            (Some(Intent::Delete), [Some(put()), Some(put()), Some(Intent::Delete)]),
            (Some(Intent::Withdrawn), [Some(insert()), Some(insert()), Some(Intent::Withdrawn)]),
        ];
        for (before, after) in rows {
            let calls = [Mutation::Put(new()), Mutation::Insert(new()), Mutation::Delete];
            let came_to = calls.map(|call| Intent::after(before.as_ref(), call));
            assert_eq!(came_to, after, "{before:?}");
        }
    }
}
