//! The combined effect of all calls of a transaction on one document.

use txn_protocol::document::Image;
use txn_protocol::machines::attempt::Change;

/// A call of the closure on one document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Edit {
    /// Write the document, whether or not the document exists.
    Put(Image),
    /// Write the document, which must not exist.
    Insert(Image),
    /// Delete the document, if the document exists.
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

/// The combined effect of all calls so far.
///
/// Later calls keep the condition that the document must not have existed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// Write the document, whether or not the document existed.
    Put(Image),
    /// Write the document, which must not have existed.
    Insert(Image),
    /// Delete the document, if the document existed.
    Delete,
    /// Write nothing, after insert and delete.
    ///
    /// The document must not have existed.
    Withdrawn,
}

impl Mutation {
    /// Returns the effect after one more call.
    ///
    /// `None` if the call inserts a document that the transaction itself wrote.
    pub(super) fn after(before: Option<&Self>, mutation: Edit) -> Option<Self> {
        let must_be_new = matches!(before, Some(Self::Insert(_) | Self::Withdrawn));
        Some(match (before, mutation) {
            (Some(Self::Put(_) | Self::Insert(_)), Edit::Insert(_)) => return None,
            // The document may have existed before this transaction deleted it.
            (Some(Self::Delete), Edit::Insert(image)) => Self::Put(image),
            (_, Edit::Insert(image)) => Self::Insert(image),
            (_, Edit::Put(image)) if must_be_new => Self::Insert(image),
            (_, Edit::Put(image)) => Self::Put(image),
            (_, Edit::Delete) if must_be_new => Self::Withdrawn,
            (_, Edit::Delete) => Self::Delete,
        })
    }

    /// Returns the effect of two transactions, one after the other.
    ///
    /// `None` if the later transaction inserts a document that the earlier one wrote.
    pub(super) fn followed_by(before: Option<&Self>, later: &Self) -> Option<Self> {
        match later.clone() {
            Self::Put(image) => Self::after(before, Edit::Put(image)),
            Self::Insert(image) => Self::after(before, Edit::Insert(image)),
            Self::Delete => Self::after(before, Edit::Delete),
            Self::Withdrawn if before.is_none() => Some(Self::Withdrawn),
            // The insert is deleted again, so that its content does not matter.
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
    fn edits_combine_into_one_mutation() {
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
