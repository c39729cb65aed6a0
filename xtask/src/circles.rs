//! Finds files of a crate that use each other in a circle.
//!
//! A file uses another file if it names one of its items. The check follows a name through
//! re-exports to the file with the item. So a module that only declares and re-exports is in no
//! circle. A file also uses the file of a method that it calls, if the crate defines one method of
//! that name. Uses of the modules below a file do not count: they are parts of that file. Tests
//! are left out.
//!
//! The check also finds parts of a type in other folders ([`scattered`]).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::lexer::{Piece, is_word, pieces};

/// A module, or an item of a module, from the crate's root.
type Name = Vec<String>;

/// One file.
#[derive(Default)]
struct Module {
    /// The path of the file.
    file: PathBuf,
    /// The names that the file uses.
    uses: Vec<Name>,
    /// The original names of re-exports, by their exported names.
    exports: BTreeMap<String, Name>,
    /// The names of methods that the file calls.
    calls: BTreeSet<String>,
    /// The types that the file defines.
    types: BTreeSet<String>,
    /// The methods of inherent `impl` blocks, by type.
    methods: Vec<(String, String)>,
    /// The functions of traits and of their implementations.
    of_traits: BTreeSet<String>,
}

/// Names of methods that the standard library has, too. A call does not tell which one is meant.
const COMMON: [&str; 97] = [
    "abort", "acquire", "all", "any", "apply", "as_str", "ask", "chain", "check", "clear", "close",
    "collect", "commit", "contains", "count", "decode", "delta", "drain", "drop", "encode",
    "ended", "entry", "extend", "fetch", "filter", "find", "finish", "first", "flush", "fold",
    "get", "id", "index", "info", "insert", "is_empty", "iter", "join", "keys", "kind", "last",
    "len", "listen", "lock", "map", "max", "min", "name", "next", "notify", "nth", "open", "parse",
    "path", "peek", "poll", "pop", "position", "product", "push", "put", "read", "recv", "release",
    "remove", "replace", "reset", "resize", "retain", "reverse", "run", "seek", "send", "set",
    "shutdown", "skip", "sleep", "snapshot", "sort", "spawn", "split", "start", "step", "store",
    "sum", "take", "then", "unlock", "update", "values", "version", "wait", "wake", "watch",
    "with", "write", "zip",
];

/// Returns the circles between the files of the crate in `root`.
///
/// `foreign`: the methods of the other crates, as [`methods`] returns them. A call of such a name
/// counts for no file.
pub(crate) fn circles(
    root: &Path,
    texts: &[(PathBuf, String)],
    foreign: &BTreeSet<String>,
) -> Vec<String> {
    let modules = modules(root, texts);
    let homes = homes_of_methods(&modules, foreign);
    let mut uses: BTreeMap<&Name, BTreeMap<&Name, &str>> = BTreeMap::new();
    for (from, module) in &modules {
        for (method, to) in module.calls.iter().filter_map(|call| homes.get_key_value(&**call)) {
            if !to.starts_with(from) {
                uses.entry(from).or_default().insert(to, method);
            }
        }
        for name in &module.uses {
            if let Some((to, item)) = home(&modules, name, 0)
                && !to.starts_with(from)
            {
                uses.entry(from).or_default().insert(to, item);
            }
        }
    }
    let mut told = BTreeSet::new();
    let mut gaps = Vec::new();
    for from in modules.keys() {
        let circle: BTreeSet<&Name> = reached(&uses, from)
            .into_iter()
            .filter(|to| reached(&uses, to).contains(from))
            .collect();
        if circle.is_empty() || !told.insert(circle.clone()) {
            continue;
        }
        let mut ties = Vec::new();
        for from in &circle {
            for (to, item) in uses[*from].iter().filter(|(to, _)| circle.contains(*to)) {
                let [from, to] = [*from, *to].map(|module| modules[module].file.display());
                ties.push(format!("{from} uses {item} of {to}"));
            }
        }
        gaps.push(format!("files go in a circle: {}", ties.join(", ")));
    }
    gaps
}

/// Returns the files of methods with unique names in the crate.
fn homes_of_methods<'a>(
    modules: &'a BTreeMap<Name, Module>,
    foreign: &BTreeSet<String>,
) -> BTreeMap<&'a str, &'a Name> {
    let mut homes: BTreeMap<&str, BTreeSet<(&Name, &str)>> = BTreeMap::new();
    for (name, module) in modules {
        for (of, method) in &module.methods {
            homes.entry(method).or_default().insert((name, of));
        }
    }
    let is_ambiguous = |method: &str| {
        COMMON.contains(&method)
            || foreign.contains(method)
            || modules.values().any(|it| it.of_traits.contains(method))
    };
    homes.retain(|method, homes| homes.len() == 1 && !is_ambiguous(method));
    homes.into_iter().filter_map(|(method, homes)| Some((method, homes.first()?.0))).collect()
}

/// Returns the names of all methods of a crate.
///
/// The methods of traits count, too.
pub(crate) fn methods(root: &Path, texts: &[(PathBuf, String)]) -> BTreeSet<String> {
    let modules = modules(root, texts).into_values();
    let names = |module: Module| {
        let methods = module.methods.into_iter().map(|(_, method)| method);
        methods.chain(module.of_traits).collect::<Vec<_>>()
    };
    modules.flat_map(names).collect()
}

/// Returns the inherent `impl` blocks outside of the folder of their type.
///
/// The methods of a type stand in its file, in other files of the same folder, or in the folder of
/// its module. Types with a name that several files define belong to each of these files.
pub(crate) fn scattered(root: &Path, texts: &[(PathBuf, String)]) -> Vec<String> {
    let modules = modules(root, texts);
    let mut gaps = Vec::new();
    for module in modules.values() {
        let types: BTreeSet<&String> = module.methods.iter().map(|(of, _)| of).collect();
        for of in types {
            let mut homes = modules.values().filter(|home| home.types.contains(of)).peekable();
            let folder = |home: &Module| home.file.parent().map(Path::to_owned);
            let is_near = |home: &Module| {
                folder(module) == folder(home)
                    || module.file.parent() == Some(&home.file.with_extension(""))
            };
            if homes.peek().is_some() && !homes.any(is_near) {
                let file = module.file.display();
                gaps.push(format!("{file} has methods of {of}, which stands in another folder"));
            }
        }
    }
    gaps
}

/// Returns all modules that `from` uses, directly or transitively.
fn reached<'a>(
    uses: &BTreeMap<&'a Name, BTreeMap<&'a Name, &str>>,
    from: &Name,
) -> BTreeSet<&'a Name> {
    let mut found = BTreeSet::new();
    let mut open = vec![from];
    while let Some(at) = open.pop() {
        for to in uses.get(at).into_iter().flat_map(BTreeMap::keys) {
            if found.insert(*to) {
                open.push(to);
            }
        }
    }
    found
}

/// Returns the module that defines a name, and the item's name there.
///
/// `None` for the name of a whole module.
fn home<'a>(
    modules: &'a BTreeMap<Name, Module>,
    name: &'a [String],
    follows: usize,
) -> Option<(&'a Name, &'a str)> {
    let depth = (0..=name.len()).rev().find(|depth| modules.contains_key(&name[..*depth]))?;
    let (module, rest) = name.split_at(depth);
    let (at, module) = modules.get_key_value(module)?;
    let item = rest.first()?;
    match module.exports.get(item) {
        Some(elsewhere) if follows < 8 => home(modules, elsewhere, follows + 1),
        _ => Some((at, item)),
    }
}

fn modules(root: &Path, texts: &[(PathBuf, String)]) -> BTreeMap<Name, Module> {
    let is_test = |path: &Path| path.to_string_lossy().ends_with("tests.rs");
    let files: Vec<(Name, &PathBuf, &String)> = texts
        .iter()
        .filter(|(path, _)| !is_test(path))
        .map(|(path, text)| (name(path.strip_prefix(root).unwrap_or(path)), path, text))
        .collect();
    let known: BTreeSet<&Name> = files.iter().map(|(name, ..)| name).collect();
    let mut modules: BTreeMap<Name, Module> = BTreeMap::new();
    for (name, path, text) in &files {
        let module = modules.entry(name.clone()).or_default();
        module.file.clone_from(path);
        let tokens = tokens(text);
        read(module, name, &tokens, &known);
        read_methods(module, &tokens);
    }
    modules
}

/// Returns the module of a file.
fn name(file: &Path) -> Name {
    let file = file.with_extension("");
    let mut name: Name =
        file.components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect();
    match name.last().map(String::as_str) {
        Some("mod") => drop(name.pop()),
        Some("lib" | "main") if name.len() == 1 => name.clear(),
        _ => {}
    }
    name
}

/// Adds the names that a text uses.
fn read(module: &mut Module, name: &Name, tokens: &[&str], known: &BTreeSet<&Name>) {
    let mut imported: BTreeMap<&str, Name> = BTreeMap::new();
    let mut at = 0;
    while at < tokens.len() {
        let before = at.checked_sub(1).map_or("", |before| tokens[before]);
        let uses = tokens[at] == "use";
        let (paths, next) = match uses || is_word(tokens[at]) && !matches!(before, "." | "::") {
            true => paths(tokens, at + usize::from(uses)),
            false => (Vec::new(), at + 1),
        };
        let is_public = uses && matches!(before, "pub" | ")");
        for (path, alias) in paths.into_iter().filter(|(path, _)| uses || path.len() > 1) {
            let whole = match imported.get(path[0]) {
                Some(start) => {
                    start.iter().cloned().chain(path[1..].iter().map(ToString::to_string)).collect()
                }
                None => match absolute(&path, name, known) {
                    Some(whole) => whole,
                    None => continue,
                },
            };
            if is_public {
                module.exports.insert(alias.to_owned(), whole);
                continue;
            }
            if uses && known.contains(&whole) {
                imported.insert(alias, whole.clone());
            }
            module.uses.push(whole);
        }
        at = next.max(at + 1);
    }
}

/// Adds the types, methods and calls of methods of a text.
fn read_methods(module: &mut Module, tokens: &[&str]) {
    let mut depth = 0_usize;
    // The open block of an `impl` or a trait: its depth, and the type of an inherent `impl`.
    let mut block: Option<(usize, Option<String>)> = None;
    for (at, token) in tokens.iter().enumerate() {
        let next = tokens.get(at + 1).copied().unwrap_or_default();
        let before = at.checked_sub(1).map_or("", |before| tokens[before]);
        match *token {
            "{" => depth += 1,
            "}" => {
                depth = depth.saturating_sub(1);
                block = block.filter(|(of, _)| depth > *of);
            }
            "struct" | "enum" | "union" if is_word(next) => {
                module.types.insert(next.to_owned());
            }
            // An `impl` in a type follows a sign, and a block follows the end of an item.
            "impl" | "trait"
                if block.is_none()
                    && !matches!(before, "(" | "," | ":" | ">" | "&" | "<" | "=") =>
            {
                let of = (*token == "impl").then(|| implementer(&tokens[at + 1..])).flatten();
                block = Some((depth, of));
            }
            "fn" if block.as_ref().is_some_and(|(of, _)| depth == of + 1) => {
                match block.as_ref().and_then(|(_, of)| of.clone()) {
                    Some(of) => module.methods.push((of, next.to_owned())),
                    None => drop(module.of_traits.insert(next.to_owned())),
                }
            }
            word if is_word(word) && before == "." && matches!(next, "(" | "::") => {
                module.calls.insert(word.to_owned());
            }
            _ => {}
        }
    }
}

/// Returns the type of an inherent `impl`, from the tokens after `impl`.
///
/// `None` for the implementation of a trait.
fn implementer(tokens: &[&str]) -> Option<String> {
    let mut angles = 0_usize;
    let mut of = None;
    for (at, token) in tokens.iter().enumerate() {
        match *token {
            "<" => angles += 1,
            // The arrow of a function type ends no brackets.
            ">" if at > 0 && tokens[at - 1] == "-" => {}
            ">" => angles = angles.saturating_sub(1),
            "for" if angles == 0 => return None,
            "{" | "where" => break,
            word if angles == 0 && is_word(word) && word != "dyn" => of = Some(word.to_owned()),
            _ => {}
        }
    }
    of
}

/// Returns a path from the root, if it belongs to this crate.
fn absolute(path: &[&str], module: &Name, known: &BTreeSet<&Name>) -> Option<Name> {
    let own = |path: &[&str]| path.iter().map(ToString::to_string).collect::<Name>();
    let above = path.iter().take_while(|part| **part == "super").count();
    let (base, rest) = match path[0] {
        "crate" => (&module[..0], &path[1..]),
        "self" => (&module[..], &path[1..]),
        "super" => (&module[..module.len().checked_sub(above)?], &path[above..]),
        first => {
            let child: Name = module.iter().cloned().chain([first.to_owned()]).collect();
            known.contains(&child).then_some((&module[..], path))?
        }
    };
    Some(base.iter().cloned().chain(own(rest)).collect())
}

/// Returns the paths that begin here, with their aliases, and their end.
///
/// Braces give several paths.
fn paths<'a>(tokens: &[&'a str], mut at: usize) -> (Vec<(Vec<&'a str>, &'a str)>, usize) {
    let mut path = Vec::new();
    loop {
        match tokens.get(at) {
            Some(&"{") if !path.is_empty() => {
                let mut found = Vec::new();
                at += 1;
                while !matches!(tokens.get(at), None | Some(&"}")) {
                    let (branches, next) = paths(tokens, at);
                    let branch = |(rest, alias): (Vec<&'a str>, &'a str)| {
                        let rest = rest.into_iter().filter(|part| *part != "self");
                        (path.iter().copied().chain(rest).collect::<Vec<_>>(), alias)
                    };
                    found.extend(branches.into_iter().map(branch));
                    at = next.max(at + 1);
                }
                for (whole, alias) in &mut found {
                    if *alias == "self" {
                        *alias = whole.last().copied().unwrap_or_default();
                    }
                }
                return (found, at + 1);
            }
            Some(word) if is_word(word) || *word == "*" => path.push(*word),
            _ => return (Vec::new(), at),
        }
        at += 1;
        if tokens.get(at) != Some(&"::") {
            break;
        }
        at += 1;
        // Of a path with generic arguments only the start counts.
        if tokens.get(at) == Some(&"<") {
            break;
        }
    }
    let mut alias = path[path.len() - 1];
    if tokens.get(at) == Some(&"as") {
        alias = tokens.get(at + 1).copied().unwrap_or(alias);
        at += 2;
    }
    (vec![(path, alias)], at)
}

/// Returns the words and signs of a text.
///
/// Comments, literals and tests are left out.
fn tokens(text: &str) -> Vec<&str> {
    // The tests of a file are at its end.
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text);
    let code = |(_, piece)| match piece {
        Piece::Code(code) => Some(code),
        Piece::Text(_) | Piece::Comment(_) => None,
    };
    pieces(text).into_iter().filter_map(code).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let texts =
            files.iter().map(|(file, text)| (Path::new("src").join(file), (*text).to_owned()));
        circles(Path::new("src"), &texts.collect::<Vec<_>>(), &["shared".to_owned()].into())
    }

    const ROOT: (&str, &str) =
        ("lib.rs", "mod a; mod b; mod c; pub use a::A; pub use b::{B, c::C as D};");

    #[test]
    fn a_circle_is_a_gap() {
        let files = [
            ROOT,
            ("a.rs", "use crate::b::{self, B};\nstruct A(B);"),
            ("b/mod.rs", "pub(crate) mod c;\nstruct B;"),
            ("b/c.rs", "fn c<'a>() { let _ = ('\"', \"crate::a\"); super::super::a::f::<u8>() }"),
        ];
        // The parts of a module are not the module.
        assert_eq!(found(&files), Vec::<String>::new());
        let mut planted = files;
        planted[2].1 = "pub(crate) mod c;\nstruct B;\nfn b() { crate::A::new() }";
        let circle = "files go in a circle: src/a.rs uses B of src/b/mod.rs, src/b/mod.rs uses A of src/a.rs";
        assert_eq!(found(&planted), [circle]);
        planted[2].1 = "pub(crate) mod c;\nstruct B(crate::c::C);";
        planted[3].1 = "use crate::{D, a as other};\nfn f() -> other::A { D }";
        let gaps = found(&planted);
        assert_eq!(gaps, Vec::<String>::new());
    }

    #[test]
    fn call_of_a_unique_method_is_a_use() {
        let files = [
            ROOT,
            (
                "a.rs",
                "use crate::B;\nstruct A(B);\nimpl A { fn settle(&self) { self.0.judge::<u8>() } }",
            ),
            ("b.rs", "struct B;\nimpl<T: Fn() -> u8> B { fn judge(&self, a: &T) { a.len() } }"),
        ];
        assert_eq!(found(&files), Vec::<String>::new());
        let mut planted = files;
        planted[2].1 = "struct B;\nimpl B { fn judge(&self, a: &impl Any) { a.settle() } }";
        let circle =
            "files go in a circle: src/a.rs uses B of src/b.rs, src/b.rs uses settle of src/a.rs";
        assert_eq!(found(&planted), [circle]);
        // A method of another crate leaves open which one is called.
        let mut shared = planted;
        shared[1].1 = "use crate::B;\nstruct A(B);\nimpl A { fn shared(&self) {} }";
        shared[2].1 = "struct B;\nimpl B { fn judge(&self, a: &impl Any) { a.shared() } }";
        assert_eq!(found(&shared), Vec::<String>::new());
        // A second method of that name, or one of a trait, leaves open which one is called.
        for other in ["struct C;\nimpl C { fn settle(&self) {} }", "trait C { fn settle(&self); }"]
        {
            let files = [&planted[..], &[("c.rs", other)]].concat();
            assert_eq!(found(&files), Vec::<String>::new());
        }
    }

    #[test]
    fn methods_in_another_folder_are_a_gap() {
        let check = |file: &str, text: &str| {
            let files = [
                (
                    "engine/mod.rs",
                    "mod a;\npub struct Engine<T>(T);\nimpl<T> Engine<T> { fn new() {} }",
                ),
                ("bank.rs", "struct Bank;"),
                (file, text),
            ];
            let texts = files.map(|(file, text)| (Path::new("src").join(file), text.to_owned()));
            scattered(Path::new("src"), &texts)
        };
        let methods = "impl<T: Copy> Engine<T> where T: Send { fn other() {} }";
        assert_eq!(check("engine/a.rs", methods), Vec::<String>::new());
        let gap = "src/engine/store/a.rs has methods of Engine, which stands in another folder";
        assert_eq!(check("engine/store/a.rs", methods), [gap]);
        assert_eq!(
            check("engine/store/a.rs", "impl Clone for Engine<u8> { fn clone() {} }"),
            Vec::<String>::new()
        );
        assert_eq!(check("bank/a.rs", "impl Bank { fn pay() {} }"), Vec::<String>::new());
        assert_eq!(check("api/a.rs", "impl Bank { fn pay() {} }").len(), 1);
    }

    #[test]
    fn declarations_and_tests_are_no_uses() {
        let a = "//! See crate::b::B.\nstruct A;\n#[cfg(test)]\nmod tests {\n use crate::b::B;\n}";
        let files = [
            ROOT,
            ("a.rs", a),
            ("b.rs", "use crate::A;\nconst TEXT: &str = r#\"\"crate::b\"#;\nstruct B(A);"),
            ("a_tests.rs", "use crate::b::B;"),
        ];
        assert_eq!(found(&files), Vec::<String>::new());
    }
}
