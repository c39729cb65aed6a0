//! Filters of scans.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

/// The documents that a scan returns. Fields are top-level keyword fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filter {
    /// All documents.
    All,
    /// Documents with the field, if its value is not null.
    Exists(&'static str),
    /// Documents with one of the values, alone or in a list.
    AnyOf(&'static str, Vec<Arc<str>>),
    /// As [`Filter::AnyOf`], without the documents whose number is greater than a bound.
    ///
    /// A document without the number matches. The number is a top-level field: an integer, or a
    /// date in milliseconds since the Unix epoch. A store with an index of the field returns
    /// documents without the number first, and small numbers before greater ones.
    AnyOfUpTo {
        /// The field with the values.
        field: &'static str,
        /// The values, of which the field must have one.
        values: Vec<Arc<str>>,
        /// The field with the number.
        number: &'static str,
        /// The greatest number that matches.
        bound: u64,
    },
    /// Documents with a number between two bounds, alone or in a list.
    ///
    /// The number is a top-level field: an integer, or a date in milliseconds since the Unix epoch,
    /// with bounds from 1970 on. A store with an index of the field returns small numbers first.
    /// Servers find only numbers that the mapping of the collection indexes as integers, or as
    /// dates with the format `epoch_millis`.
    Range {
        /// The field with the number.
        field: &'static str,
        /// The smallest number that matches.
        from: i64,
        /// The greatest number that matches.
        to: i64,
    },
}

impl Filter {
    /// Creates [`Filter::AnyOf`] from any values.
    #[must_use]
    pub fn any_of<V: Into<Arc<str>>>(
        field: &'static str,
        values: impl IntoIterator<Item = V>,
    ) -> Self {
        Self::AnyOf(field, values.into_iter().map(Into::into).collect())
    }

    /// Creates [`Filter::AnyOfUpTo`] from any values.
    #[must_use]
    pub fn any_of_up_to<V: Into<Arc<str>>>(
        field: &'static str,
        values: impl IntoIterator<Item = V>,
        number: &'static str,
        bound: u64,
    ) -> Self {
        let values = values.into_iter().map(Into::into).collect();
        Self::AnyOfUpTo { field, values, number, bound }
    }

    /// Creates [`Filter::Range`] from a range of integers.
    ///
    /// An empty range matches nothing.
    ///
    /// ```
    /// # use txn_store::Filter;
    /// let now = 1_900_000_000_000;
    /// let expired = Filter::range("expires_ms", ..=now);
    /// assert_eq!(expired, Filter::Range { field: "expires_ms", from: i64::MIN, to: now });
    /// ```
    #[must_use]
    pub fn range(field: &'static str, range: impl RangeBounds<i64>) -> Self {
        // The bounds that no number meets.
        const EMPTY: (i64, i64) = (i64::MAX, i64::MIN);
        let from = match range.start_bound() {
            Bound::Included(from) => Some(*from),
            Bound::Excluded(before) => before.checked_add(1),
            Bound::Unbounded => Some(i64::MIN),
        };
        let to = match range.end_bound() {
            Bound::Included(to) => Some(*to),
            Bound::Excluded(after) => after.checked_sub(1),
            Bound::Unbounded => Some(i64::MAX),
        };
        let (from, to) = from.zip(to).unwrap_or(EMPTY);
        Self::Range { field, from, to }
    }
}
