//! Splits Rust source into code, literals and comments.

/// A piece of source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece<'t> {
    /// A word or a sign.
    Code(&'t str),
    /// The content of a string literal, with its escapes.
    Text(&'t str),
    /// A line comment, with its slashes.
    Comment(&'t str),
}

/// Returns the pieces of a text, with their positions.
pub(crate) fn pieces(text: &str) -> Vec<(usize, Piece<'_>)> {
    let mut pieces = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        let (length, piece) = if rest.starts_with("//") {
            let length = rest.find('\n').unwrap_or(rest.len());
            (length, Some(Piece::Comment(&rest[..length])))
        } else if let Some((length, content)) = raw_string(rest) {
            (length, Some(Piece::Text(content)))
        } else if rest.starts_with("::") {
            (2, Some(Piece::Code("::")))
        } else if is_word(rest) {
            let is_end = |c: char| !c.is_alphanumeric() && c != '_';
            let length = rest.find(is_end).unwrap_or(rest.len());
            (length, Some(Piece::Code(&rest[..length])))
        } else if first == '"' {
            let length = string(rest);
            (length, Some(Piece::Text(rest[1..length].trim_end_matches('"'))))
        } else if let Some(quoted) = rest.strip_prefix('\'') {
            // A character, or the name of a lifetime.
            let escaped = usize::from(quoted.starts_with('\\'));
            let mut chars = quoted.char_indices().skip(escaped + 1);
            let length = chars.next().filter(|(_, c)| *c == '\'').map_or(1, |(at, _)| at + 2);
            (length, Some(Piece::Code(&rest[..length])))
        } else {
            let length = first.len_utf8();
            (length, (!first.is_whitespace()).then_some(Piece::Code(&rest[..length])))
        };
        pieces.extend(piece.map(|piece| (at, piece)));
        at += length;
    }
    pieces
}

/// Whether a text begins with a word.
pub(crate) fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Returns the length and the content of a raw string literal.
///
/// The literal is at the start of a text.
fn raw_string(text: &str) -> Option<(usize, &str)> {
    let prefix = ["r", "br"].into_iter().find(|prefix| {
        let rest = text.strip_prefix(prefix).unwrap_or_default();
        rest.trim_start_matches('#').starts_with('"')
    })?;
    let quoted = &text[prefix.len()..];
    let hashes = quoted.len() - quoted.trim_start_matches('#').len();
    let start = prefix.len() + hashes + 1;
    let end = format!("\"{}", "#".repeat(hashes));
    let length = text[start..].find(&end).unwrap_or(text.len() - start);
    Some(((start + length + end.len()).min(text.len()), &text[start..start + length]))
}

/// Returns the length of a string literal.
fn string(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            '"' if !escaped => return at + 1,
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_is_split_into_pieces() {
        let text = "a::b(\"x \\\" // y\", r#\"z \" w\"#, 'c', b\"\"); // end\n// next";
        let found: Vec<Piece<'_>> = pieces(text).into_iter().map(|(_, piece)| piece).collect();
        let code = |text| Piece::Code(text);
        let expected = [
            code("a"),
            code("::"),
            code("b"),
            code("("),
            Piece::Text("x \\\" // y"),
            code(","),
            Piece::Text("z \" w"),
            code(","),
            code("'c'"),
            code(","),
            code("b"),
            Piece::Text(""),
            code(")"),
            code(";"),
            Piece::Comment("// end"),
            Piece::Comment("// next"),
        ];
        assert_eq!(found, expected);
        let at: Vec<usize> = pieces("a 'x b").into_iter().map(|(at, _)| at).collect();
        assert_eq!(at, [0, 2, 3, 5], "a lifetime");
    }
}
