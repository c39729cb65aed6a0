//! Plain English in comments, documents, messages and the names of tests.
//!
//! The rules are those that a program can check. Each is a function from text to violations.

use std::path::Path;

use crate::lexer::{Piece, pieces};

/// Words that leave the actor of a sentence unnamed.
const BANNED: [&str; 5] = ["whoever", "nobody", "somebody", "anybody", "anew"];

/// Openings that leave the subject of a sentence unnamed.
const OPENINGS: [&str; 5] = ["Who", "Whoever", "What", "Whatever", "Those"];

/// The maximum number of words of a sentence.
const MOST_WORDS: usize = 30;

/// The maximum number of columns of a line with a comment.
const MOST_COLUMNS: usize = 100;

/// The maximum length of a test's name.
const MOST_NAME: usize = 50;

/// The file with the examples of violations.
const EXAMPLES: &str = "xtask/src/prose.rs";

/// Words that say nothing about an item.
const EMPTY: [&str; 7] = ["a", "an", "its", "of", "s", "the", "this"];

/// Consecutive comment lines of one kind.
struct Comment<'t> {
    /// The number of its first line.
    line: usize,
    /// `//`, `///` or `//!`.
    kind: &'t str,
    lines: Vec<&'t str>,
    /// The code line after the comment, without attributes.
    item: &'t str,
}

/// Returns the violations in a Rust file.
pub(crate) fn in_rust(path: &Path, text: &str) -> Vec<String> {
    let at = |line: usize, what: String| format!("{}:{line}: {what}", path.display());
    let mut found = Vec::new();
    for comment in comments(text) {
        let line = comment.line;
        found.extend(in_passage(&comment.lines).into_iter().map(|what| at(line, what)));
        if repeats_its_item(&comment, is_library(path)) {
            found.push(at(line, "the comment only repeats the name".to_owned()));
        }
    }
    for (start, piece) in pieces(text) {
        let before = &text[..start];
        let what = match piece {
            Piece::Code(_) => continue,
            Piece::Text(content) if !path.ends_with(EXAMPLES) => in_message(content),
            Piece::Comment(comment) if !is_alone(before) => {
                in_passage(&[comment.trim_start_matches('/')])
            }
            Piece::Text(_) | Piece::Comment(_) => continue,
        };
        let line = || before.matches('\n').count() + 1;
        found.extend(what.into_iter().map(|what| at(line(), what)));
    }
    for (number, line) in text.lines().enumerate() {
        let is_wide = line.chars().count() > MOST_COLUMNS;
        let is_link = line.contains("](") || line.contains("://");
        let is_code = line.trim_start().starts_with("/// #") || line.contains("//! #");
        if is_wide && is_comment(line) && !is_link && !is_code {
            found.push(at(number + 1, format!("a comment has at most {MOST_COLUMNS} columns")));
        }
    }
    for (line, name) in test_names(text) {
        if name.len() > MOST_NAME {
            found.push(at(line, format!("the test {name} has more than {MOST_NAME} letters")));
        }
    }
    found
}

/// Returns the violations in a Markdown page.
pub(crate) fn in_markdown(path: &Path, text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = in_passage(&lines);
    let mut is_code = false;
    for line in lines {
        is_code ^= line.starts_with("```");
        let is_heading = line.starts_with('#');
        if is_code || !(is_heading || line.trim_start().starts_with('|')) {
            continue;
        }
        let plain = without_code(line.trim_start_matches('#'));
        let words: Vec<&str> = plain.split_whitespace().collect();
        found.extend(banned(&words));
        found.extend(opening(&plain, &words).filter(|_| is_heading));
    }
    found.into_iter().map(|what| format!("{}: {what}", path.display())).collect()
}

/// Returns the violations in a file of another language. Only the words count.
pub(crate) fn in_script(path: &Path, text: &str) -> Vec<String> {
    let found = text.lines().enumerate().filter_map(|(number, line)| {
        let words: Vec<&str> = line.split_whitespace().collect();
        Some(format!("{}:{}: {}", path.display(), number + 1, banned(&words)?))
    });
    found.collect()
}

/// Whether only white space precedes a piece on its line.
fn is_alone(before: &str) -> bool {
    before.rsplit('\n').next().is_none_or(|line| line.trim().is_empty())
}

/// Returns the violations in the content of a string literal.
///
/// Only the words count. A message has a form of its own, and a literal may be no message.
fn in_message(content: &str) -> Vec<String> {
    let plain = content.replace("\\n", " ").replace('\\', " ");
    let words: Vec<&str> = plain.split_whitespace().collect();
    banned(&words).into_iter().collect()
}

/// Returns a violation if a sentence does not name the actor.
///
/// Some word leaves the actor unnamed.
fn banned(words: &[&str]) -> Option<String> {
    let word = words.iter().find(|word| BANNED.contains(&&*bare(word).to_lowercase()))?;
    Some(format!("name the actor instead of {word:?}: {} …", start_of(words)))
}

/// Returns a violation if a sentence begins without its subject.
fn opening(sentence: &str, words: &[&str]) -> Option<String> {
    let first = words.first().map(|word| bare(word))?;
    let is_wrong = OPENINGS.contains(&first) && !sentence.ends_with('?');
    is_wrong.then(|| format!("begin with a noun instead of {first:?}: {} …", start_of(words)))
}

/// Returns the first words of a sentence.
fn start_of(words: &[&str]) -> String {
    words.iter().take(6).copied().collect::<Vec<_>>().join(" ")
}

/// Returns a word without punctuation.
fn bare(word: &str) -> &str {
    let word = word.trim_matches(|c: char| !c.is_alphanumeric());
    word.strip_suffix("'s").unwrap_or(word)
}

fn in_passage(lines: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for sentence in sentences(lines) {
        let words: Vec<&str> = sentence.split_whitespace().collect();
        let start = start_of(&words);
        found.extend(banned(&words));
        found.extend(opening(&sentence, &words));
        if words.len() > MOST_WORDS {
            found.push(format!("{} words, at most {MOST_WORDS}: {start} …", words.len()));
        }
    }
    found
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

/// Returns the comments of a Rust file.
fn comments(text: &str) -> Vec<Comment<'_>> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found: Vec<Comment<'_>> = Vec::new();
    let mut last = None;
    for (number, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let Some(kind) = ["//!", "///", "//"].into_iter().find(|kind| code.starts_with(kind))
        else {
            continue;
        };
        let rest = &code[kind.len()..];
        let follows = last.is_some_and(|last| last + 1 == number);
        last = Some(number);
        match found.last_mut().filter(|comment| follows && comment.kind == kind) {
            Some(comment) => comment.lines.push(rest),
            None => {
                found.push(Comment { line: number + 1, kind, lines: vec![rest], item: "" });
            }
        }
    }
    for comment in &mut found {
        let after = lines.iter().skip(comment.line - 1 + comment.lines.len());
        let mut code = after.map(|line| line.trim());
        comment.item = code.find(|line| !line.starts_with("#[")).unwrap_or_default();
    }
    found
}

/// Returns the sentences of prose.
///
/// Code blocks, tables, headings and inline code are left out.
fn sentences(lines: &[&str]) -> Vec<String> {
    let mut paragraphs: Vec<String> = vec![String::new()];
    let mut is_code = false;
    for line in lines.iter().map(|line| line.trim()) {
        if line.starts_with("```") {
            is_code = !is_code;
        }
        let item = line.trim_start_matches(|c: char| c.is_ascii_digit() || "-*.".contains(c));
        let begins_item = item.len() < line.len() && item.starts_with(' ');
        let is_fence = line.starts_with("```");
        let is_prose = !(is_code || is_fence || line.is_empty() || line.starts_with(['|', '#']));
        if !is_prose || begins_item {
            paragraphs.push(String::new());
        }
        if let Some(paragraph) = paragraphs.last_mut().filter(|_| is_prose) {
            paragraph.push_str(if begins_item { item.trim() } else { line });
            paragraph.push(' ');
        }
    }
    paragraphs.iter().flat_map(|paragraph| split(&without_code(paragraph))).collect()
}

/// Replaces inline code and the targets of links by one word each.
fn without_code(text: &str) -> String {
    let mut plain = String::new();
    for (number, part) in text.split('`').enumerate() {
        plain.push_str(if number % 2 == 0 { part } else { "X" });
    }
    let mut rest = plain.as_str();
    let mut linked = String::new();
    while let Some((before, after)) = rest.split_once("](") {
        linked.push_str(before);
        rest = after.split_once(')').map_or("", |(_, after)| after);
    }
    linked + rest
}

/// Splits a paragraph at the ends of its sentences.
fn split(paragraph: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    for word in paragraph.split_whitespace() {
        if let Some(sentence) = found.last_mut() {
            sentence.push_str(word);
            sentence.push(' ');
        }
        if word.trim_end_matches(['*', ')', '"']).ends_with(['.', '!', '?', ':', ';']) {
            found.push(String::new());
        }
    }
    let trimmed = found.into_iter().map(|sentence| sentence.trim_end().to_owned());
    trimmed.filter(|sentence| !sentence.is_empty()).collect()
}

/// Whether a file belongs to a library.
fn is_library(path: &Path) -> bool {
    path.iter().any(|folder| folder == "crates")
}

/// Whether a doc comment only repeats the name of its item, field or variant.
///
/// Outside of the libraries, private items alone count. The compiler demands a comment for each
/// public one there, too, but few readers depend on these.
fn repeats_its_item(comment: &Comment<'_>, is_library: bool) -> bool {
    let [line] = comment.lines.as_slice() else { return false };
    let declared = match is_library {
        true => name(comment.item).or_else(|| member(comment.item)),
        false => name(comment.item).filter(|_| !comment.item.starts_with("pub ")),
    };
    let words = |text: &str| -> Vec<String> {
        let mut spaced = String::new();
        for c in text.chars() {
            // `LockTable` is two words, and `MOST_LOCKS` as well.
            if c.is_uppercase() && spaced.ends_with(char::is_lowercase) {
                spaced.push(' ');
            }
            spaced.push(c);
        }
        let spaced = spaced.to_lowercase();
        let words = spaced.split(|c: char| !c.is_alphanumeric());
        words.filter(|w| !w.is_empty() && !EMPTY.contains(w)).map(str::to_owned).collect()
    };
    let said = words(line);
    let is_repeated = declared.is_some_and(|declared| said == words(declared));
    // Inline code says how the name is written elsewhere.
    let is_code = line.trim().starts_with('`') && line.trim().ends_with('`');
    comment.kind == "///" && !said.is_empty() && is_repeated && !is_code
}

/// Returns the name that a line of code declares.
///
/// The name is that of a function, type, constant or module.
fn name(code: &str) -> Option<&str> {
    let declares = ["fn", "struct", "enum", "trait", "type", "mod", "static", "const"];
    let words = code.split_whitespace();
    let mut words = words.skip_while(|word| !declares.contains(word));
    let name =
        words.find(|word| !declares.contains(word) && !["async", "unsafe"].contains(word))?;
    Some(identifier(name))
}

/// Returns the name of the field or variant that a line of code declares.
fn member(code: &str) -> Option<&str> {
    let code = code.strip_prefix("pub").map_or(code, |rest| match rest.strip_prefix('(') {
        Some(rest) => rest.split_once(')').map_or(rest, |(_, rest)| rest),
        None => rest,
    });
    let code = code.trim_start();
    let name = identifier(code);
    let rest = code[name.len()..].trim_start();
    let is_field = rest.starts_with(':') && !rest.starts_with("::");
    let is_variant = name.starts_with(char::is_uppercase)
        && (rest.is_empty() || rest.starts_with([',', '(', '{', '=']));
    (is_field || is_variant).then_some(name)
}

/// Returns the identifier at the start of a text.
fn identifier(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

/// Returns the test names in a file, with attribute lines.
///
/// `text` is a Rust file.
fn test_names(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut attribute = None;
    for (number, line) in text.lines().map(str::trim).enumerate() {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            attribute = Some(number + 1);
        } else if line.contains("fn ")
            && let Some(at) = attribute.take()
        {
            found.push((at, name(line).unwrap_or_default()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rust(text: &str) -> Vec<String> {
        in_rust(Path::new("a.rs"), text)
    }

    #[test]
    fn plain_comments_pass() {
        let text = "//! Locks of a process.\n\n/// Returns the lock.\n///\n/// ```\n/// // \
                    Nobody reads code.\n/// ```\nfn lock() {}\n// What is a lock?\n";
        assert_eq!(rust(text), [""; 0]);
        let page =
            "# Locks\n\n`Nobody` is a name.\n\n| `whoever` |\n|---|\n\n```sh\n# Nobody\n```\n";
        assert_eq!(in_markdown(Path::new("a.md"), page), [""; 0]);
        assert_eq!(in_script(Path::new("a.js"), "publishers.noBody(); // A lock.\n"), [""; 0]);
    }

    #[test]
    fn planted_violations_are_found() {
        let wide = format!("// {}\n", "wide ".repeat(20));
        let long = format!("/// {}.\nfn a() {{}}\n", "many words".to_owned() + &" more".repeat(30));
        let test = format!("#[test]\nfn {}() {{}}\n", "n".repeat(51));
        for (text, words) in [
            ("// The lock that nobody holds.\n", "name the actor"),
            ("/// Whoever waits.\nfn wait() {}\n", "name the actor"),
            ("/// What a lock is.\nfn lock() {}\n", "begin with a noun"),
            (&wide, "columns"),
            (&long, "32 words"),
            (&test, "letters"),
            ("/// The lock table.\nstruct LockTable;\n", "repeats the name"),
        ] {
            let found = rust(text);
            assert!(found.iter().any(|one| one.contains(words)), "{text}: {found:?}");
        }
        let page = in_markdown(Path::new("a.md"), "Fine.\n\n- Those of a lock.\n");
        assert!(page.len() == 1 && page[0].contains("begin with a noun"), "{page:?}");
        for (text, words) in [
            ("## Who reads\n", "begin with a noun"),
            ("# A lock that nobody holds\n", "name the actor"),
            ("| lock | anybody |\n", "name the actor"),
        ] {
            let page = in_markdown(Path::new("a.md"), text);
            assert!(page.len() == 1 && page[0].contains(words), "{text}: {page:?}");
        }
        for text in ["\n# For nobody.\n", "\n  /** The lock that nobody has. */\n"] {
            let script = in_script(Path::new("a.py"), text);
            assert!(script.len() == 1 && script[0].starts_with("a.py:2: name"), "{script:?}");
        }
    }

    #[test]
    fn repeated_names_in_libraries_are_found() {
        let library = |text: &str| in_rust(Path::new("crates/a/src/b.rs"), text);
        for text in [
            "/// The currency.\n#[serde(flatten)]\npub currency: Currency,\n",
            "/// The document.\n    document: Key,\n",
            "/// Closed.\nClosed,\n",
            "/// A ticket.\nTicket(u64),\n",
            "/// The most locks.\npub const MOST_LOCKS: usize = 3;\n",
            "/// The topic.\npub fn topic(&self) -> &str {\n",
            "/// The wait.\npub(crate) async fn wait(self) {\n",
        ] {
            let found = library(text);
            assert!(found.len() == 1 && found[0].contains("repeats the name"), "{text}: {found:?}");
            let is_private_item =
                name(text.lines().last().unwrap_or_default()).is_some() && !text.contains("pub ");
            assert_eq!(rust(text).len(), usize::from(is_private_item), "{text}");
        }
        for text in [
            "/// The currency of the account.\npub currency: Currency,\n",
            "/// Closed.\nclosed(a, b);\n",
            "/// `GET`\nGet,\n",
            "/// The locks.\n",
        ] {
            assert_eq!(library(text), [""; 0], "{text}");
        }
    }

    #[test]
    fn messages_and_trailing_comments_are_checked() {
        for text in [
            "fn a() { warn(\"the lock that nobody\\nholds\"); }",
            "fn a() { warn(\"first\", r#\"second: \"whoever\" waits\"#); }",
            "let a = 1; // Somebody waits.",
        ] {
            let found = rust(text);
            assert!(found.len() == 1 && found[0].contains("name the actor"), "{text}: {found:?}");
        }
        let opening = rust("let a = 1; // What a lock is.\n");
        assert!(opening.len() == 1 && opening[0].starts_with("a.rs:1: begin"), "{opening:?}");
        let second = rust("\nlet a = \"x\";\nlet b = \"for nobody\";\n");
        assert!(second.len() == 1 && second[0].starts_with("a.rs:3:"), "{second:?}");
        assert_eq!(rust("let a = \"What is a lock?\"; // A lock.\n"), [""; 0]);
    }

    #[test]
    fn sentences_are_split_at_their_ends() {
        let lines = ["One lock. Two", "locks: three.", "", "- Four `a. b` locks", "| a | b |"];
        assert_eq!(sentences(&lines), ["One lock.", "Two locks:", "three.", "Four X locks"]);
    }
}
