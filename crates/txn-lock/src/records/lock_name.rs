//! The rules for the names of locks.

use crate::error::{LockError, Result};
use crate::name::fits;
use crate::records::model::LockName;

/// The maximum number of bytes of a category.
const MOST_CATEGORY: usize = 100;

/// The maximum number of bytes of an id.
const MOST_ID: usize = 300;

impl LockName {
    /// Creates the name of a lock.
    ///
    /// # Errors
    /// [`LockError::InvalidName`] unless the category has 1 to 100 bytes without a slash, the id
    /// has 1 to 300 bytes, and neither has control characters.
    pub fn new(category: &str, id: &str) -> Result<Self> {
        check("the category", category, MOST_CATEGORY, " and slashes", |c| c == '/')?;
        check("the id", id, MOST_ID, "", |_| false)?;
        Ok(Self { category: category.to_owned(), id: id.to_owned() })
    }
}

fn check(
    what: &'static str,
    text: &str,
    most: usize,
    more: &'static str,
    odd: fn(char) -> bool,
) -> Result<()> {
    if fits(text, most) && !text.contains(odd) {
        return Ok(());
    }
    let text = text.chars().take(40).collect();
    Err(LockError::InvalidName { what, text, most, more })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_lock_names_are_refused() {
        let long = "x".repeat(301);
        for (category, id) in [
            ("", "a"),
            ("a", ""),
            ("a/b", "c"),
            ("a\n", "b"),
            ("a", "b\0"),
            ("a\u{202e}", "b"),
            ("a", "\u{2066}b"),
            ("a", &long),
        ] {
            let error = LockName::new(category, id).expect_err("refused");
            assert!(matches!(error, LockError::InvalidName { .. }), "{error:?}");
            assert!(!error.to_string().contains('\n') && error.to_string().len() < 200, "{error}");
        }
        // An id may contain slashes, because a category may not: the first slash separates both
        // parts.
        let name = LockName::new("a", "b/c").unwrap();
        assert_eq!(name.document(), "lock:a/b/c");
        assert_eq!(LockName::of_document("lock:a/b/c"), Some(name));
        assert_eq!(LockName::of_document("floor"), None);
    }
}
