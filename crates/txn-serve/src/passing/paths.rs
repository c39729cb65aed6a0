//! The parts of a path, as a server reads them.

use percent_encoding::percent_decode_str;

use crate::http::problem::{Code, Problem};

/// The decoded parts of a path.
///
/// A part that a server could read as another path is refused.
pub(crate) fn segments(path: &str) -> Result<Vec<String>, Problem> {
    let path = path.strip_prefix('/').unwrap_or(path);
    let mut segments = Vec::new();
    for segment in path.split('/') {
        let decoded = percent_decode_str(segment).decode_utf8();
        let decoded = decoded.map_err(|_| Problem::new(Code::Invalid, "the path is not UTF-8"))?;
        if matches!(&*decoded, "." | "..") || decoded.contains('\\') {
            return Err(Problem::new(Code::Invalid, "the path has a part that is no name"));
        }
        segments.push(decoded.into_owned());
    }
    // A slash at the end.
    if segments.len() > 1 && segments.last().is_some_and(String::is_empty) {
        segments.pop();
    }
    let has_empty = segments.len() > 1 && segments.iter().any(String::is_empty);
    match has_empty {
        true => Err(Problem::new(Code::Invalid, "the path has an empty part")),
        false => Ok(segments),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_are_other_paths_are_refused() {
        assert_eq!(segments("/a%2Fb/_doc/1").expect("a path"), ["a/b", "_doc", "1"]);
        assert_eq!(segments("/").expect("a path"), [""]);
        assert_eq!(segments("/_cat/").expect("a path"), ["_cat"]);
        for path in ["/a/../_security", "/a/%2e%2e/_x", "/a/./b", "//a", "/a//b", "/a%5Cb", "/%ff"]
        {
            let problem = segments(path).expect_err(path);
            assert_eq!(problem.code(), Code::Invalid, "{path}");
        }
    }
}
