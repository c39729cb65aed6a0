//! Names of indices and aliases.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// The longest accepted name of an index or alias, in bytes. The servers accept no longer name.
pub(crate) const MAX_BYTES: usize = 255;

/// Returns why a text cannot name one index or alias.
///
/// In addition to the servers' rules, this check refuses texts that would change the meaning of a
/// request: wildcards, lists, date arithmetic, remote clusters.
pub(crate) fn fault(name: &str) -> Option<&'static str> {
    const FORBIDDEN: &[char] = &['\\', '/', '*', '?', '"', '<', '>', '|', ',', '#', ':'];
    if name.is_empty() {
        Some("the name is empty")
    } else if name.len() > MAX_BYTES {
        Some("the name is longer than 255 bytes")
    } else if name == "." || name == ".." || name.starts_with(['-', '_', '+']) {
        Some("a name is not . or .. and does not begin with -, _ or +")
    } else if name.contains(['*', '?']) {
        Some("wildcards are not allowed; name one index")
    } else if name.contains(FORBIDDEN)
        || name.contains(|c: char| c.is_whitespace() || c.is_control())
    {
        Some("a name has no white space and none of \\ / * ? \" < > | , # :")
    } else {
        None
    }
}

/// Returns why an index with this name cannot be created.
pub(crate) fn fault_of_new(name: &str) -> Option<&'static str> {
    let upper = name.chars().any(char::is_uppercase);
    fault(name).or_else(|| upper.then_some("the name of an index has no upper case letters"))
}

/// Characters that need no escape in a path segment.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

/// Returns the name as one segment of a path.
pub(crate) fn segment(name: &str) -> String {
    utf8_percent_encode(name, SEGMENT).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_mean_more_than_one_index_are_refused() {
        for name in
            ["", "a*", "a,b", "_all", "-a", "+a", ".", "..", "<a-{now}>", "remote:a", "a b", "a/b"]
        {
            assert!(fault(name).is_some(), "{name}");
        }
        assert!(fault(&"a".repeat(256)).is_some());
        for name in ["a", "Alias", "a-1.b_c", ".hidden", "größe", "a+b%c&d"] {
            assert!(fault(name).is_none(), "{name}");
        }
        assert!(fault_of_new("Alias").is_some() && fault_of_new("alias").is_none());
    }

    #[test]
    fn segments_are_escaped() {
        assert_eq!(segment("a-b.c_1"), "a-b.c_1");
        assert_eq!(segment("a+b%ü"), "a%2Bb%25%C3%BC");
    }
}
