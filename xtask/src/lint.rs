//! `cargo xtask lint`: rules that no compiler checks.
//!
//! Each rule is a function from plain text to the violations.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use txn_protocol::rule::Rule;

use crate::Failure;
use crate::cargo::{cargo, root};
use crate::circles::{circles, methods, scattered};
use crate::lengths::{long_files, long_functions};
use crate::{commits, decisions, links, prose};

/// The maximum number of files in a folder of a library.
const MOST_FILES: usize = 12;

/// The page with the table of crates.
const CRATES: &str = "ARCHITECTURE.md";

/// The head of the table of crates.
const CRATES_HEAD: &str = "| crate | may depend on | content |";

/// The page with the counts of the rules.
const EVIDENCE: &str = "docs/testing.md";

/// The begin of the row with these counts.
const COUNTS: &str = "| rules of the protocol | ";

/// The report that `cargo xtask bench` writes.
const GENERATED: &str = "docs/benchmarks/report.md";

/// The extensions of files in other languages.
const SCRIPTS: [&str; 6] = ["css", "java", "js", "py", "ts", "yml"];

/// Folders of installed or built files.
const INSTALLED: [&str; 5] = ["build", "dist", "node_modules", "target", ".venv"];

/// The crates that each crate may depend on, except in tests.
type Permitted = BTreeMap<String, BTreeSet<String>>;

/// The layers of `txn-core`, with the layers above them. A layer must not name a layer above.
const LAYERS: [(&str, &[&str]); 3] =
    [("engine", &["attempt", "group", "api"]), ("attempt", &["group", "api"]), ("group", &["api"])];

/// The texts that have to name the rules.
struct Mentions {
    /// The text of `docs/protocol.md`.
    reasons: String,
    /// The flaws of the models: the texts of `tests/models/src`.
    models: Vec<String>,
    /// The table of the mutation run.
    mutations: String,
}

/// Checks all rules, and reports each violation.
pub(crate) fn lint() -> Result<(), Failure> {
    let root = root();
    let mentions = Mentions {
        reasons: read(&root.join("docs/protocol.md"))?,
        models: texts(&root.join("tests/models/src"))?.into_iter().map(|(_, text)| text).collect(),
        mutations: read(&root.join("tests/simulation/tests/mutations.rs"))?,
    };
    let mut gaps = unnamed(Rule::ALL, &mentions);
    gaps.extend(mend_counts(&root.join(EVIDENCE))?);
    for package in folders(&root.join("crates"))? {
        let texts = texts(&package.join("src"))?;
        gaps.extend(long_files(&texts));
        gaps.extend(texts.iter().flat_map(|(path, text)| long_functions(path, text)));
        gaps.extend(crowded(texts.iter().map(|(path, _)| path.as_path())));
    }
    gaps.extend(commits::wrong_subjects(&root)?);
    for (layer, above) in LAYERS {
        gaps.extend(upwards(&texts(&root.join("crates/txn-core/src").join(layer))?, above));
    }
    let pages = pages(&root)?;
    let permitted = permitted(pages.get(Path::new(CRATES)).map_or("", String::as_str));
    gaps.extend(entangled(&root, &permitted)?);
    for folder in ["crates", "tests", "benches", "examples", "xtask"] {
        let texts = texts(&root.join(folder))?;
        gaps.extend(texts.iter().flat_map(|(path, text)| prose::in_rust(path, text)));
    }
    for folder in ["clients", "crates", "docs/monitoring", "tests", ".github"] {
        let scripts = files(&root.join(folder), &SCRIPTS)?;
        gaps.extend(scripts.iter().flat_map(|(path, text)| prose::in_script(path, text)));
    }
    gaps.extend(links::broken(&pages, |path| root.join(path).exists()));
    gaps.extend(links::lost(&pages));
    gaps.extend(decisions::without_status(&pages));
    gaps.extend(pages.iter().flat_map(|(path, text)| prose::in_markdown(path, text)));
    let output = cargo("metadata --no-deps --format-version 1").output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    gaps.extend(wrong_way(&serde_json::from_slice(&output.stdout)?, &permitted));
    if gaps.is_empty() {
        Ok(())
    } else {
        Err(format!("violations:\n  {}", gaps.join("\n  ")).into())
    }
}

/// Returns the rules that a text lacks, or names against their declaration.
fn unnamed(rules: &[Rule], mentions: &Mentions) -> Vec<String> {
    let mut gaps = Vec::new();
    for rule in rules {
        let id = rule.id();
        // Once with its reason, and once in the table of all rules.
        if mentions.reasons.matches(&format!("`{id}`")).count() < 2 {
            gaps.push(format!("{id} has no reason or no row in docs/protocol.md"));
        }
        let variant = format!("Rule::{rule:?}");
        let in_model = mentions.models.iter().any(|text| has_word(flaws(text), &variant));
        let in_table = has_word(table(&mentions.mutations), &variant);
        for (what, is_shown, has) in [
            ("flaw of a model (tests/models/src)", in_model, rule.shown_by().has_model()),
            (
                "mutation (tests/simulation/tests/mutations.rs)",
                in_table,
                rule.shown_by().has_mutation(),
            ),
        ] {
            match (is_shown, has) {
                (false, true) => gaps.push(format!("{id} has no {what}")),
                (true, false) => {
                    gaps.push(format!("{id} has a {what}, and Rule::shown_by denies it"));
                }
                _ => {}
            }
        }
    }
    gaps
}

/// Writes the right counts of the rules into the page, and reports the change.
fn mend_counts(page: &Path) -> Result<Option<String>, Failure> {
    let text = read(page)?;
    let Some(mended) = recounted(Rule::ALL, &text) else {
        return Ok(Some(format!("{EVIDENCE} lacks the row {COUNTS:?}")));
    };
    if mended == text {
        return Ok(None);
    }
    fs::write(page, mended)?;
    Ok(Some(format!("{EVIDENCE} had other counts of the rules, and has the right ones now")))
}

/// Returns a page with the right counts of the rules.
///
/// `None` if the page has no row for these counts.
fn recounted(rules: &[Rule], page: &str) -> Option<String> {
    let count = |is_shown: fn(&Rule) -> bool| rules.iter().filter(|rule| is_shown(rule)).count();
    let models = count(|rule| rule.shown_by().has_model());
    let simulation = count(|rule| rule.shown_by().has_mutation());
    let all = rules.len();
    let (before, row) = page.split_once(COUNTS)?;
    // The counts end at the second semicolon.
    let (_, after) = row.split_once("; ")?;
    let (_, after) = after.split_once("; ")?;
    let counts = format!("{all}; models omit {models}, the simulation omits {simulation}; ");
    Some(format!("{before}{COUNTS}{counts}{after}"))
}

/// Returns the list of flaws of a model.
fn flaws(text: &str) -> &str {
    text.split_once("flaws: vec![").map_or("", |(_, flaws)| flaws)
}

/// Returns the table of the mutation run.
fn table(text: &str) -> &str {
    let rest = text.split_once("NOTICED_BY: &[(Rule, By)] = &[").map_or("", |(_, rest)| rest);
    rest.split_once("];").map_or(rest, |(table, _)| table)
}

/// Whether a text contains a whole word.
fn has_word(text: &str, word: &str) -> bool {
    text.split(word)
        .skip(1)
        .any(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
}

/// Returns the folders with too many files.
fn crowded<'a>(files: impl Iterator<Item = &'a Path>) -> Vec<String> {
    let mut counts: BTreeMap<&Path, usize> = BTreeMap::new();
    for folder in files.filter_map(Path::parent) {
        *counts.entry(folder).or_default() += 1;
    }
    let told = |(folder, count): (&Path, usize)| {
        format!("{}: {count} files, at most {MOST_FILES}: make folders", folder.display())
    };
    counts.into_iter().filter(|(_, count)| *count > MOST_FILES).map(told).collect()
}

/// Returns the files in circles, and the types in several folders.
fn entangled(root: &Path, permitted: &Permitted) -> Result<Vec<String>, Failure> {
    let packages = sources(root)?.into_iter().map(|package| {
        let texts = texts(&package)?;
        let methods = methods(&package, &texts);
        Ok::<_, Failure>((package, texts, methods))
    });
    let packages = packages.collect::<Result<Vec<_>, Failure>>()?;
    let mut gaps = Vec::new();
    for (package, texts, _) in &packages {
        let below = below(&crate_of(package), permitted);
        let others = packages.iter().filter(|(other, ..)| below.contains(&crate_of(other)));
        let foreign: BTreeSet<String> = others.flat_map(|(.., methods)| methods).cloned().collect();
        gaps.extend(circles(package, texts, &foreign));
        gaps.extend(scattered(package, texts));
    }
    Ok(gaps)
}

/// Returns the name of the crate with these sources.
fn crate_of(sources: &Path) -> String {
    let folder = sources.parent().and_then(Path::file_name);
    folder.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Returns the table of crates.
fn permitted(page: &str) -> Permitted {
    let names = |cell: &str| -> BTreeSet<String> {
        cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    };
    let (_, rows) = page.split_once(CRATES_HEAD).unwrap_or_default();
    let mut permitted = Permitted::new();
    for row in rows.lines().skip(2).take_while(|line| line.starts_with('|')) {
        let mut cells = row.split('|').skip(1);
        let (crates, on) = (cells.next().unwrap_or_default(), cells.next().unwrap_or_default());
        permitted.extend(names(crates).into_iter().map(|name| (name, names(on))));
    }
    permitted
}

/// Returns the crates that a crate may depend on, directly or transitively.
fn below(name: &str, permitted: &Permitted) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open: Vec<&String> = match permitted.get(name) {
        Some(on) => on.iter().collect(),
        None => permitted.keys().collect(),
    };
    while let Some(name) = open.pop() {
        if found.insert(name.clone()) {
            open.extend(permitted.get(name).into_iter().flatten());
        }
    }
    found
}

/// Returns the files that name a layer above theirs.
fn upwards(texts: &[(PathBuf, String)], above: &[&str]) -> Vec<String> {
    let mut gaps = Vec::new();
    for (path, text) in texts {
        for layer in above.iter().filter(|layer| has_word(text, &format!("crate::{layer}"))) {
            gaps.push(format!("{} names the layer {layer}, which is above it", path.display()));
        }
    }
    gaps
}

/// Returns the dependencies against the order of the crates.
///
/// Crates without a row are faults, too.
fn wrong_way(metadata: &Value, permitted: &Permitted) -> Vec<String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let packages = list(&metadata["packages"]);
    let is_library = |package: &&Value| {
        let manifest = Path::new(package["manifest_path"].as_str().unwrap_or_default());
        manifest.iter().rev().nth(2).is_some_and(|folder| folder == "crates")
    };
    let libraries: BTreeMap<&str, &Value> = packages
        .iter()
        .filter(is_library)
        .map(|package| (package["name"].as_str().unwrap_or_default(), package))
        .collect();
    let mut gaps = Vec::new();
    for name in permitted.keys().filter(|name| !libraries.contains_key(name.as_str())) {
        gaps.push(format!("there is no crate {name}, which is in the table of {CRATES}"));
    }
    for (name, package) in libraries {
        let Some(allowed) = permitted.get(name) else {
            gaps.push(format!("{name} is not in the table of {CRATES}"));
            continue;
        };
        for dependency in list(&package["dependencies"]) {
            let on = dependency["name"].as_str().unwrap_or_default();
            let is_member = packages.iter().any(|package| package["name"] == on);
            // Tests may use any crate.
            if is_member && dependency["kind"] != "dev" && !allowed.contains(on) {
                gaps.push(format!("{name} depends on {on}"));
            }
        }
    }
    gaps
}

fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()).into())
}

fn folders(of: &Path) -> Result<Vec<PathBuf>, Failure> {
    let entries = fs::read_dir(of).map_err(|error| format!("{}: {error}", of.display()))?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>, Failure>>()?;
    Ok(paths.into_iter().filter(|path| path.join("Cargo.toml").is_file()).collect())
}

/// Returns the sources of every crate of the workspace.
fn sources(root: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut packages = vec![root.join("xtask"), root.join("benches")];
    for group in ["crates", "tests"] {
        packages.extend(folders(&root.join(group))?);
    }
    let sources = packages.into_iter().map(|package| package.join("src"));
    Ok(sources.filter(|sources| sources.is_dir()).collect())
}

/// Returns the hand-written documents of the repository, by path.
fn pages(root: &Path) -> Result<BTreeMap<PathBuf, String>, Failure> {
    let mut folders = vec![root.to_owned()];
    for folder in ["docs", "docs/benchmarks", "docs/decisions", ".github", ".github/ISSUE_TEMPLATE"]
    {
        folders.push(root.join(folder));
    }
    for group in ["crates", "tests"] {
        folders.extend(self::folders(&root.join(group))?);
    }
    for client in fs::read_dir(root.join("clients"))? {
        folders.push(client?.path());
    }
    let mut pages = BTreeMap::new();
    for folder in folders.iter().filter(|folder| folder.is_dir()) {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path.strip_prefix(root)?.to_owned();
            let is_page = path.extension().is_some_and(|extension| extension == "md");
            if is_page && name != Path::new(GENERATED) {
                pages.insert(name, read(&path)?);
            }
        }
    }
    Ok(pages)
}

/// Returns the Rust files below a folder, with their texts.
fn texts(below: &Path) -> Result<Vec<(PathBuf, String)>, Failure> {
    files(below, &["rs"])
}

/// Returns the files with these extensions below a folder, with their texts.
fn files(below: &Path, extensions: &[&str]) -> Result<Vec<(PathBuf, String)>, Failure> {
    let has_extension = |path: &Path| {
        let extension = path.extension().and_then(|extension| extension.to_str());
        extension.is_some_and(|extension| extensions.contains(&extension))
    };
    let is_installed = |path: &Path| {
        path.file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| INSTALLED.contains(&name))
    };
    let mut found = Vec::new();
    let mut open = vec![below.to_owned()];
    while let Some(folder) = open.pop() {
        let entries = fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() && !is_installed(&path) {
                open.push(path);
            } else if path.is_file() && has_extension(&path) {
                found.push((path.clone(), read(&path)?));
            }
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const RULES: [Rule; 2] = [Rule::TouchAborted, Rule::TouchKeepsLock];

    fn mentions(reasons: &str, model: &str, mutations: &str) -> Mentions {
        Mentions {
            reasons: reasons.to_owned(),
            models: vec!["no flaws here: Rule::TouchAborted".to_owned(), model.to_owned()],
            mutations: mutations.to_owned(),
        }
    }

    const REASONS: &str =
        "`TOUCH_ABORTED`, `TOUCH_KEEPS_LOCK`, `TOUCH_ABORTED`, `TOUCH_KEEPS_LOCK`";
    const MODEL: &str = "flaws: vec![(Rule::TouchAborted), (Rule::TouchKeepsLock)]";
    const MUTATIONS: &str =
        "NOTICED_BY: &[(Rule, By)] = &[(Rule::TouchAborted, Seed(1))]; Rule::TouchKeepsLock";

    #[test]
    fn crowded_folder_is_reported() {
        let files: Vec<PathBuf> = (0..13).map(|n| format!("src/{n}.rs").into()).collect();
        let faults = |files: &[PathBuf]| crowded(files.iter().map(PathBuf::as_path)).len();
        assert_eq!((faults(&files[1..]), faults(&files)), (0, 1));
    }

    #[test]
    fn rule_with_all_names_passes() {
        assert_eq!(unnamed(&RULES, &mentions(REASONS, MODEL, MUTATIONS)), Vec::<String>::new());
    }

    #[test]
    fn a_rule_without_a_reason_is_a_gap() {
        let reasons = REASONS.replacen("`TOUCH_ABORTED`", "TOUCH_ABORTED", 1);
        let gaps = unnamed(&RULES, &mentions(&reasons, MODEL, MUTATIONS));
        assert_eq!(gaps, ["TOUCH_ABORTED has no reason or no row in docs/protocol.md"]);
    }

    #[test]
    fn wrong_counts_of_rules_are_mended() {
        let models = RULES.iter().filter(|rule| rule.shown_by().has_model()).count();
        let simulation = RULES.iter().filter(|rule| rule.shown_by().has_mutation()).count();
        let page = |all: usize, models: usize| {
            format!(
                "# Tests\n\n{COUNTS}{all}; models omit {models}, the simulation omits {simulation}; each; all |\n| b |\n"
            )
        };
        assert_eq!(recounted(&RULES, &page(2, models)), Some(page(2, models)));
        assert_eq!(recounted(&RULES, &page(3, 17)), Some(page(2, models)));
        assert_eq!(recounted(&RULES, "| rules |\n"), None);
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("testing.md");
        fs::write(&path, page(3, 17)).expect("written");
        assert!(mend_counts(&path).expect("mended").is_some(), "the change is reported");
        assert_eq!(mend_counts(&path).expect("read"), None);
    }

    #[test]
    fn a_rule_without_a_flaw_is_a_gap() {
        let model = MODEL.replace("Rule::TouchAborted", "Rule::TouchAbortedToo");
        let gaps = unnamed(&RULES, &mentions(REASONS, &model, MUTATIONS));
        assert_eq!(gaps, ["TOUCH_ABORTED has no flaw of a model (tests/models/src)"]);
    }

    #[test]
    fn a_rule_without_a_mutation_is_a_gap() {
        let mutations = MUTATIONS.replace("TouchAborted", "TouchNothing");
        let gaps = unnamed(&RULES, &mentions(REASONS, MODEL, &mutations));
        let gap = "TOUCH_ABORTED has no mutation (tests/simulation/tests/mutations.rs)";
        assert_eq!(gaps, [gap]);
    }

    #[test]
    fn an_excuse_that_is_stale_is_a_gap() {
        let mutations = MUTATIONS.replace("&[(Rule::", "&[(Rule::TouchKeepsLock), (Rule::");
        let gaps = unnamed(&RULES, &mentions(REASONS, MODEL, &mutations));
        assert_eq!(gaps.len(), 1, "{gaps:?}");
        assert!(gaps[0].starts_with("TOUCH_KEEPS_LOCK has a mutation"), "{gaps:?}");
    }

    #[test]
    fn layer_that_uses_a_higher_layer_is_a_gap() {
        let file = |text: &str| ("apply.rs".into(), text.to_owned());
        assert_eq!(upwards(&[file("crate::attempt_error::E")], &["attempt"]), Vec::<String>::new());
        let gap = ["apply.rs names the layer attempt, which is above it"];
        assert_eq!(upwards(&[file("use crate::attempt::E;")], &["attempt"]), gap);
    }

    const TABLE: &str = "# Crates\n\n| crate | may depend on | content |\n|---|---|---|\n\
                         | `txn-store` | | `Store` |\n| `txn-es`, `txn-redb` | `txn-store` | stores |\n\n\
                         | `tests/live` | suites |\n";

    #[test]
    fn table_of_crates_has_all_dependencies() {
        let permitted = permitted(TABLE);
        let names: Vec<&str> = permitted.keys().map(String::as_str).collect();
        assert_eq!(names, ["txn-es", "txn-redb", "txn-store"]);
        assert_eq!(below("txn-es", &permitted), BTreeSet::from(["txn-store".to_owned()]));
        assert_eq!(below("txn-live", &permitted).len(), 3);
    }

    #[test]
    fn a_dependency_upwards_is_a_gap() {
        let permitted = permitted(TABLE);
        let package = |name: &str, on: &str, kind: Value| {
            json!({
                "name": name, "manifest_path": format!("/r/crates/{name}/Cargo.toml"),
                "dependencies": [{"name": on, "kind": kind}, {"name": "tokio", "kind": null}],
            })
        };
        let packages = |kind: Value| {
            let (store, es) =
                (package("txn-store", "txn-es", kind), package("txn-es", "txn-store", Value::Null));
            json!({"packages": [store, es, package("txn-redb", "txn-store", Value::Null)]})
        };
        assert_eq!(wrong_way(&packages(json!("dev")), &permitted), Vec::<String>::new());
        assert_eq!(wrong_way(&packages(Value::Null), &permitted), ["txn-store depends on txn-es"]);
        assert_eq!(wrong_way(&json!({}), &permitted).len(), 3);
        let without_row = wrong_way(&packages(json!("dev")), &Permitted::new());
        assert_eq!(without_row[0], "txn-es is not in the table of ARCHITECTURE.md");
    }
}
