//! The status lines of the pages in `docs/decisions`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The folder with one page for each decision.
const FOLDER: &str = "docs/decisions";

/// The beginning of a status line.
const STATUS: &str = "Status: ";

/// Returns the decisions without a status: accepted, or superseded by a later decision.
pub(crate) fn without_status(pages: &BTreeMap<PathBuf, String>) -> Vec<String> {
    let decisions = pages.iter().filter(|(path, _)| path.parent() == Some(Path::new(FOLDER)));
    let faults = decisions.filter_map(|(path, text)| {
        let number = number(path)?;
        // The status stands between the title and the first paragraph.
        let status = text.lines().nth(2).and_then(|line| line.strip_prefix(STATUS));
        let is_known = status.is_some_and(|status| match status.strip_prefix("superseded by ") {
            Some(link) => successor(link).is_some_and(|successor| successor > number),
            None => status == "accepted",
        });
        let wants = "the third line is \"Status: accepted\" or \
                     \"Status: superseded by [NNNN](NNNN-name.md)\", a later decision";
        (!is_known).then(|| format!("{}: {wants}", path.display()))
    });
    faults.collect()
}

/// Returns the number of a decision, none for the list of decisions.
fn number(page: &Path) -> Option<u32> {
    page.file_name()?.to_str()?.split('-').next()?.parse().ok()
}

/// Returns the decision that a link names.
fn successor(link: &str) -> Option<u32> {
    let (text, target) = link.strip_prefix('[')?.split_once("](")?;
    let linked = number(Path::new(target.strip_suffix(')')?))?;
    (text.parse() == Ok(linked)).then_some(linked)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(name: &str, text: &str) -> usize {
        without_status(&[(name.into(), text.to_owned())].into()).len()
    }

    #[test]
    fn decision_has_a_status() {
        let page = "docs/decisions/0007-a.md";
        for sound in ["Status: accepted", "Status: superseded by [0009](0009-b.md)"] {
            assert_eq!(faults(page, &format!("# 7. A\n\n{sound}\n\nText.\n")), 0, "{sound}");
        }
        for wrong in [
            "Text.",
            "Status: superseded by 0009",
            "Status: superseded by [0009](0008-b.md)",
            "Status: superseded by [0007](0007-a.md)",
            "Status: accepted, perhaps",
        ] {
            assert_eq!(faults(page, &format!("# 7. A\n\n{wrong}\n\nText.\n")), 1, "{wrong}");
        }
        assert_eq!(faults("docs/decisions/README.md", "# Decisions\n"), 0);
        assert_eq!(faults("docs/0007-a.md", "# A\n"), 0);
    }
}
