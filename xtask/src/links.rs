//! Checks links, table of contents, and distances of the documents.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

/// The first page.
const FIRST: &str = "README.md";

/// The table of contents of the book.
const CONTENTS: &str = "docs/SUMMARY.md";

/// The target of a link: file and heading. The path begins at the root.
type Target = (PathBuf, Option<String>);

/// Returns the faults of the links of pages.
///
/// The keys of the pages are their paths from the root.
pub(crate) fn broken(
    pages: &BTreeMap<PathBuf, String>,
    exists: impl Fn(&Path) -> bool,
) -> Vec<String> {
    let mut gaps = Vec::new();
    for (page, text) in pages {
        for (path, heading) in links(page, text) {
            let (from, to) = (page.display(), path.display());
            if !pages.contains_key(&path) && !exists(&path) {
                gaps.push(format!("{from} links to {to}, which is not there"));
            } else if let (Some(heading), Some(text)) = (heading, pages.get(&path))
                && !headings(text).contains(&heading)
            {
                gaps.push(format!("{from} links to {to}#{heading}, and there is no such heading"));
            }
        }
    }
    gaps
}

/// Returns pages that a reader does not find.
///
/// A page is outside of the table of contents, or more than two clicks away.
pub(crate) fn lost(pages: &BTreeMap<PathBuf, String>) -> Vec<String> {
    let linked = |from: &Path| -> BTreeSet<PathBuf> {
        let text = pages.get(from).map_or("", String::as_str);
        links(from, text).into_iter().map(|(path, _)| path).collect()
    };
    let contents = linked(Path::new(CONTENTS));
    let once = linked(Path::new(FIRST));
    let twice: BTreeSet<PathBuf> = once.iter().flat_map(|page| linked(page)).collect();
    let mut gaps = Vec::new();
    for page in pages.keys().filter(|page| page.starts_with("docs") && *page != Path::new(CONTENTS))
    {
        if !contents.contains(page) {
            gaps.push(format!("{} is not in {CONTENTS}", page.display()));
        }
        if !once.contains(page) && !twice.contains(page) {
            gaps.push(format!("{} is more than two clicks from {FIRST}", page.display()));
        }
    }
    gaps
}

/// Returns the lines of a page outside of code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut code = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    })
}

/// Returns the links within the repository.
fn links(page: &Path, text: &str) -> Vec<Target> {
    let mut found = Vec::new();
    for line in prose(text) {
        for rest in line.split("](").skip(1) {
            let Some((target, _)) = rest.split_once(')') else { continue };
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (path, heading) = match target.split_once('#') {
                Some((path, heading)) => (path, Some(heading.to_owned())),
                None => (target, None),
            };
            let path = match path {
                "" => page.to_owned(),
                path => plain(&page.parent().unwrap_or(Path::new("")).join(path)),
            };
            found.push((path, heading));
        }
    }
    found
}

/// Returns a path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

/// Returns the anchors of a page's headings.
fn headings(text: &str) -> BTreeSet<String> {
    let headings = prose(text).filter(|line| line.starts_with('#'));
    headings.map(|line| anchor(line.trim_start_matches('#').trim())).collect()
}

fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(texts: &[(&str, &str)]) -> BTreeMap<PathBuf, String> {
        texts.iter().map(|(path, text)| (PathBuf::from(path), (*text).to_owned())).collect()
    }

    #[test]
    fn broken_links_are_gaps() {
        let pages = pages(&[
            (
                "README.md",
                "[a](docs/a.md#what-put-replaces), [b](docs/b.md)\n```\n[no](link)\n```\n[c](xtask)",
            ),
            (
                "docs/a.md",
                "# A\n## What `put` replaces\n[up](../README.md), [here](#no), [far](https://a.example)",
            ),
        ]);
        let gaps = broken(&pages, |path| path == Path::new("xtask"));
        assert_eq!(
            gaps,
            [
                "README.md links to docs/b.md, which is not there",
                "docs/a.md links to docs/a.md#no, and there is no such heading",
            ]
        );
    }

    #[test]
    fn unreachable_pages_are_gaps() {
        let pages = pages(&[
            ("README.md", "[a](docs/a.md)"),
            ("docs/SUMMARY.md", "- [a](a.md)\n- [c](c.md)"),
            ("docs/a.md", "[b](b.md)"),
            ("docs/b.md", "[c](c.md)"),
            ("docs/c.md", ""),
        ]);
        assert_eq!(
            lost(&pages),
            [
                "docs/b.md is not in docs/SUMMARY.md",
                "docs/c.md is more than two clicks from README.md",
            ]
        );
    }
}
