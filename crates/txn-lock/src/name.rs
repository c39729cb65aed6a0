//! The rules for names, and the names of locks.

use base16ct::HexDisplay;
use sha2::{Digest, Sha256};

use crate::error::{LockError, Result};
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

/// Whether a text is a valid name or a part of one.
///
/// Valid texts have 1 to `most` bytes, and no character of [`is_odd`].
#[must_use]
pub fn fits(text: &str, most: usize) -> bool {
    !text.is_empty() && text.len() <= most && !text.contains(is_odd)
}

/// Whether a character is forbidden in names: control characters and deceptive ones.
#[must_use]
pub fn is_odd(c: char) -> bool {
    c.is_control() || is_deceptive(c)
}

/// Whether a character can disguise a displayed line as another line.
///
/// Deceptive characters change the direction of the following text (the Unicode property
/// `Bidi_Control`), or end a line.
#[must_use]
pub fn is_deceptive(c: char) -> bool {
    matches!(
        c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    )
}

/// Shortens a text to a name of at most `most` bytes.
///
/// The name has the beginning of the text without control characters, and 128 bits of the SHA-256
/// of the whole text. The hash prevents two texts with one name. Stored documents depend on this
/// function, so it must never change. The hash takes 33 bytes of `most`.
#[must_use]
pub fn shortened(text: &str, most: usize) -> String {
    let digest = Sha256::digest(text);
    let hash = format!("#{:x}", HexDisplay(&digest[..16]));
    let mut name: String = text.chars().filter(|c| !is_odd(*c)).collect();
    name.truncate(name.floor_char_boundary(most.saturating_sub(hash.len())));
    name + &hash
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
