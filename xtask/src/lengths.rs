//! The maximum lengths of files and functions.

use std::path::{Path, PathBuf};

/// The maximum number of lines of a library's file.
const MOST_LINES: usize = 600;

/// The maximum number of lines of a function, with its signature. The limit is for functions
/// outside of tests.
const MOST_LINES_OF_FUNCTION: usize = 60;

/// Returns the files that are too long.
pub(crate) fn long_files(texts: &[(PathBuf, String)]) -> Vec<String> {
    let lines = texts.iter().map(|(path, text)| (path, text.lines().count()));
    lines
        .filter(|(_, lines)| *lines > MOST_LINES)
        .map(|(path, lines)| format!("{} has {lines} lines, at most {MOST_LINES}", path.display()))
        .collect()
}

/// Returns the functions that are too long, except in tests.
///
/// The text is formatted by rustfmt, so a function ends at the next brace at its own depth.
pub(crate) fn long_functions(path: &Path, text: &str) -> Vec<String> {
    if path.to_string_lossy().ends_with("tests.rs") {
        return Vec::new();
    }
    // The tests of a file are at its end.
    let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or(text);
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(name) = function(line) else { continue };
        let depth = line.len() - line.trim_start().len();
        let signature = lines[at..].iter().take_while(|line| !line.ends_with(['{', ';', '}']));
        let opens = at + signature.count();
        if !lines.get(opens).is_some_and(|line| line.ends_with('{')) {
            continue;
        }
        let close = format!("{}}}", &line[..depth]);
        let body = lines[opens..].iter().take_while(|line| **line != close).count();
        let length = opens - at + body + 1;
        if length > MOST_LINES_OF_FUNCTION {
            found.push(format!(
                "{}:{}: {name} has {length} lines, at most {MOST_LINES_OF_FUNCTION}",
                path.display(),
                at + 1
            ));
        }
    }
    found
}

/// Returns the name of the function that a line of code begins.
fn function(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace();
    let is_before = |word: &&str| word.starts_with("pub") || ["async", "const"].contains(word);
    let rest = words.by_ref().find(|word| !is_before(word) && !word.ends_with(')'))?;
    // The name of a function in a macro is a variable, and rustfmt leaves the macro as it is.
    let name = words.next().filter(|name| rest == "fn" && !name.starts_with('$'))?;
    name.split(['(', '<']).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_file_is_reported() {
        let file = |lines: usize| ("a.rs".into(), "\n".repeat(lines));
        assert_eq!(long_files(&[file(MOST_LINES)]), Vec::<String>::new());
        assert_eq!(long_files(&[file(MOST_LINES + 1)]), ["a.rs has 601 lines, at most 600"]);
    }

    #[test]
    fn long_function_is_reported() {
        let check = |path: &str, text: &str| long_functions(Path::new(path), text);
        let function = |body: usize| {
            let body = "        if a {\n        }\n".repeat(body / 2);
            format!(
                "impl A {{\n    pub(in crate::a) async fn a<T>(\n        a: T,\n    ) {{\n{body}    }}\n}}\n"
            )
        };
        assert_eq!(check("a.rs", &function(56)), Vec::<String>::new());
        let gap = ["a.rs:2: a has 62 lines, at most 60"];
        assert_eq!(check("a.rs", &function(58)), gap);
        assert_eq!(check("a_tests.rs", &function(58)), Vec::<String>::new());
        let tests = format!("fn a() {{}}\n#[cfg(test)]\nmod tests {{\n{}}}\n", function(58));
        assert_eq!(check("a.rs", &tests), Vec::<String>::new());
        let declared = format!("trait A {{\n    fn a(&self);\n}}\n{}", "\n".repeat(60));
        assert_eq!(check("a.rs", &declared), Vec::<String>::new());
    }
}
