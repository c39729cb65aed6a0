//! Rules for the subjects of commits.

use std::process::Command;

use crate::Failure;
use crate::cargo::root;

/// The number of latest commits that are checked. A shallow clone has fewer.
const LATEST: &str = "-3";

/// The maximum length of a subject.
const MOST_CHARACTERS: usize = 72;

/// Returns the latest subjects that are not `area: verb object`.
///
/// Outside of a git repository there is nothing to check.
pub(crate) fn wrong_subjects() -> Result<Vec<String>, Failure> {
    let mut git = Command::new("git");
    git.current_dir(root()).args(["log", "--no-merges", LATEST, "--format=%s"]);
    let output = git.output()?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().filter_map(fault).collect())
}

/// Returns the violation of one subject.
fn fault(subject: &str) -> Option<String> {
    let because = |why: &str| Some(format!("commit {subject:?}: {why}"));
    let Some((area, rest)) = subject.split_once(": ") else {
        return because("begin with an area and a colon");
    };
    let is_area = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_, ".contains(c);
    if area.is_empty() || !area.chars().all(is_area) {
        return because("the area is a word in lower case");
    }
    if subject.chars().count() > MOST_CHARACTERS {
        return because("at most 72 characters");
    }
    if rest.is_empty() || rest.ends_with('.') {
        return because("a verb and an object follow the area, without a full stop");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subject_has_an_area_and_is_short() {
        for sound in ["core: settle writes by the record", "es, redb: open by name"] {
            assert_eq!(fault(sound), None);
        }
        let long = format!("core: {}", "a".repeat(67));
        for wrong in ["Fix it", "Core: fix it", "core: ", "core: fix it.", &*long] {
            assert!(fault(wrong).is_some(), "{wrong:?}");
        }
    }
}
