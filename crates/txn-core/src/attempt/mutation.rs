//! What a transaction wants to do with one document, and what a further call makes of that.

use txn_protocol::document::Image;
use txn_protocol::machines::attempt::Change;

/// What one call of the closure asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Edit {
    /// Write it, whether or not it exists.
    Put(Image),
    /// Write it; it must not exist.
    Insert(Image),
    /// Delete it, if it exists.
    Delete,
}

impl Edit {
    pub(super) fn image(&self) -> Option<&Image> {
        match self {
            Self::Put(image) | Self::Insert(image) => Some(image),
            Self::Delete => None,
        }
    }
}

/// What all calls so far come to. Whether the document must not have existed survives all that follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// Write it, whether or not it existed.
    Put(Image),
    /// Write it; it must not have existed.
    Insert(Image),
    /// Delete it, if it existed.
    Delete,
    /// Inserted and deleted again: nothing is written; it must not have existed.
    Withdrawn,
}

impl Mutation {
    /// What is wanted after one more call; `None` if that inserts what the transaction itself wrote.
    pub(super) fn after(before: Option<&Self>, mutation: Edit) -> Option<Self> {
        let must_be_new = matches!(before, Some(Self::Insert(_) | Self::Withdrawn));
        Some(match (before, mutation) {
            (Some(Self::Put(_) | Self::Insert(_)), Edit::Insert(_)) => return None,
            // Deleted by this transaction: it may have existed.
            (Some(Self::Delete), Edit::Insert(image)) => Self::Put(image),
            (_, Edit::Insert(image)) => Self::Insert(image),
            (_, Edit::Put(image)) if must_be_new => Self::Insert(image),
            (_, Edit::Put(image)) => Self::Put(image),
            (_, Edit::Delete) if must_be_new => Self::Withdrawn,
            (_, Edit::Delete) => Self::Delete,
        })
    }

    /// What all calls of two transactions come to, one after the other; `None` if the later inserts what the earlier wrote.
    pub(super) fn followed_by(before: Option<&Self>, later: &Self) -> Option<Self> {
        match later.clone() {
            Self::Put(image) => Self::after(before, Edit::Put(image)),
            Self::Insert(image) => Self::after(before, Edit::Insert(image)),
            Self::Delete => Self::after(before, Edit::Delete),
            Self::Withdrawn if before.is_none() => Some(Self::Withdrawn),
            // What is inserted there is deleted again, whatever it is.
            Self::Withdrawn => {
                let inserted = Self::after(before, Edit::Insert(Image::default()))?;
                Self::after(Some(&inserted), Edit::Delete)
            }
        }
    }

    pub(crate) fn image(&self) -> Option<&Image> {
        match self {
            Self::Put(image) | Self::Insert(image) => Some(image),
            Self::Delete | Self::Withdrawn => None,
        }
    }

    pub(super) fn change(&self) -> Change {
        match self {
            Self::Put(_) => Change::Put,
            Self::Insert(_) => Change::Insert,
            Self::Delete => Change::Delete,
            Self::Withdrawn => Change::Withdrawn,
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
        let (put, insert) = (|| Mutation::Put(new()), || Mutation::Insert(new()));
        let rows = [
            (None, [Some(put()), Some(insert()), Some(Mutation::Delete)]),
            (Some(Mutation::Put(old())), [Some(put()), None, Some(Mutation::Delete)]),
            (Some(Mutation::Insert(old())), [Some(insert()), None, Some(Mutation::Withdrawn)]),
            (Some(Mutation::Delete), [Some(put()), Some(put()), Some(Mutation::Delete)]),
            (
                Some(Mutation::Withdrawn),
                [Some(insert()), Some(insert()), Some(Mutation::Withdrawn)],
            ),
        ];
        for (before, after) in rows {
            let calls = [Edit::Put(new()), Edit::Insert(new()), Edit::Delete];
            let came_to = calls.map(|call| Mutation::after(before.as_ref(), call));
            assert_eq!(came_to, after, "{before:?}");
        }
    }
}
