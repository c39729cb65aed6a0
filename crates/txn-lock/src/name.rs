//! The rules for names.

use base16ct::HexDisplay;
use sha2::{Digest, Sha256};

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
