//! Rules for the subjects of commits.

use std::path::Path;
use std::process::Command;

use crate::Failure;

/// The names of the default branch: as fetched, and as a local branch.
const DEFAULT_BRANCHES: [&str; 2] = ["origin/main", "main"];

/// The commits to check on the default branch itself, and in a clone without this branch.
const LATEST: &str = "-3";

/// The maximum length of a subject.
const MOST_CHARACTERS: usize = 72;

/// Beginnings of the subjects that git and GitHub give to merges.
///
/// The oldest commit of a shallow clone has no parents, so `--no-merges` keeps a merge there.
const MERGES: [&str; 6] = [
    "Merge branch '",
    "Merge branches '",
    "Merge commit '",
    "Merge tag '",
    "Merge pull request #",
    "Merge remote-tracking branch '",
];

/// Returns the subjects that are not `area: verb object`, of commits not yet on the default branch.
///
/// Outside of a git repository there is nothing to check.
pub(crate) fn wrong_subjects(root: &Path) -> Result<Vec<String>, Failure> {
    let bases = DEFAULT_BRANCHES.iter().map(|branch| git(root, &["merge-base", "HEAD", branch]));
    let bases = bases.collect::<Result<Vec<_>, Failure>>()?;
    let head = git(root, &["rev-parse", "HEAD"])?;
    let base = bases.iter().map(|base| base.trim()).find(|base| !base.is_empty());
    let range = match base.filter(|base| *base != head.trim()) {
        Some(base) => format!("{base}..HEAD"),
        None => LATEST.to_owned(),
    };
    let subjects = git(root, &["log", "--no-merges", "--format=%s", &range])?;
    Ok(subjects.lines().filter_map(fault).collect())
}

/// Returns the output of git, empty if git fails.
fn git(root: &Path, arguments: &[&str]) -> Result<String, Failure> {
    let output = Command::new("git").current_dir(root).args(arguments).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(if output.status.success() { text } else { String::new() })
}

/// Whether a subject is that of a merge.
fn is_merge(subject: &str) -> bool {
    let is_hash = |word: Option<&str>| {
        word.is_some_and(|word| word.len() >= 7 && word.chars().all(|c| c.is_ascii_hexdigit()))
    };
    let mut words = subject.split(' ');
    // GitHub checks out `Merge <hash> into <hash>` for a pull request.
    let of_request = words.next() == Some("Merge")
        && is_hash(words.next())
        && words.next() == Some("into")
        && is_hash(words.next());
    of_request || MERGES.iter().any(|beginning| subject.starts_with(beginning))
}

/// Returns the violation of one subject.
fn fault(subject: &str) -> Option<String> {
    if is_merge(subject) {
        return None;
    }
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

    #[test]
    fn subject_of_a_merge_is_ignored() {
        for merge in ["Merge branch 'board'", "Merge pull request #7 from a/b"] {
            assert_eq!(fault(merge), None);
        }
        assert_eq!(fault("Merge 834eb5d7d9 into 8149eaa889"), None);
        for wrong in ["Merge two files", "Merge one into another", "Merge"] {
            assert!(fault(wrong).is_some(), "{wrong:?}");
        }
    }

    struct Repository(tempfile::TempDir);

    impl Repository {
        fn new() -> Self {
            let repository = Self(tempfile::tempdir().expect("a folder"));
            repository.run(&["init", "-q", "-b", "main"]);
            repository
        }

        fn run(&self, arguments: &[&str]) {
            let mut git = Command::new("git");
            git.current_dir(self.0.path()).args(arguments);
            for role in ["AUTHOR", "COMMITTER"] {
                git.env(format!("GIT_{role}_NAME"), "a").env(format!("GIT_{role}_EMAIL"), "a@b");
            }
            assert!(git.status().expect("git runs").success(), "git {arguments:?}");
        }

        fn commit(&self, subject: &str) {
            self.run(&["commit", "-q", "--allow-empty", "--no-verify", "-m", subject]);
        }
    }

    #[test]
    fn all_commits_of_a_branch_are_checked() {
        let repository = Repository::new();
        repository.commit("Old and wrong");
        repository.run(&["checkout", "-q", "-b", "work"]);
        repository.commit("Planted");
        for number in 0..5 {
            repository.commit(&format!("core: change {number}"));
        }
        let found = wrong_subjects(repository.0.path()).expect("git answers");
        assert!(found.len() == 1 && found[0].contains("Planted"), "{found:?}");
    }

    #[test]
    fn latest_commits_of_main_are_checked() {
        let repository = Repository::new();
        for subject in ["Older", "Planted", "core: change 1", "core: change 2"] {
            repository.commit(subject);
        }
        let found = wrong_subjects(repository.0.path()).expect("git answers");
        assert!(found.len() == 1 && found[0].contains("Planted"), "{found:?}");
    }
}
