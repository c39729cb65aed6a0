//! Which writes the gateway passes through to the servers, by their form.
//!
//! A plain write to a collection would bypass the locks of transactions, and the servers have many
//! names for one index: patterns, lists, date mathematics, escapes, aliases. So the list is closed:
//! a write has a known path and known parameters, and names its index literally. The module
//! [`owners`](super::owners) then asks the servers which indices the name stands for.

use std::collections::BTreeSet;

use hyper::Method;
use serde_json::Value;
use serde_json::value::RawValue;
use url::form_urlencoded;

use crate::documents::action::{short, verb};
use crate::documents::pairs::Pairs;
use crate::http::problem::{Code, Problem};

/// Parameters that choose neither the index nor a pipeline of a write.
const PARAMETERS: [&str; 31] = [
    "_source",
    "_source_excludes",
    "_source_includes",
    "allow_no_indices",
    "cluster_manager_timeout",
    "error_trace",
    "filter_path",
    "flat_settings",
    "human",
    "if_primary_term",
    "if_seq_no",
    "ignore_unavailable",
    "include_source_on_error",
    "lang",
    "list_executed_pipelines",
    "master_timeout",
    "op_type",
    "preserve_existing",
    "pretty",
    "realtime",
    "refresh",
    "reopen",
    "require_alias",
    "require_data_stream",
    "retry_on_conflict",
    "routing",
    "timeout",
    "version",
    "version_type",
    "wait_for_active_shards",
    "write_index_only",
];

/// The longest name of an index, in bytes.
const MOST_NAME: usize = 255;

/// The kind of a write, by its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Documents, alone or in a bulk.
    Documents,
    /// The creation of an index.
    Creation,
    /// The deletion of an index, or a change of it. The change concerns the mapping or the
    /// settings.
    Index,
}

/// Whether a text is a literal name for the gateway's writes.
///
/// The name is that of an index or an alias.
///
/// Names of the system's own indices begin with a dot.
pub(crate) fn is_literal(name: &str) -> bool {
    name.len() <= MOST_NAME
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
}

/// Whether the engine reserves a name.
///
/// A reserved name need not belong to an index.
pub(crate) fn is_reserved(name: &str) -> bool {
    name.starts_with("txn-") || name.contains("-txn-") || name.ends_with("-committed")
}

/// Judges a write by its method and its path.
///
/// `path` is the path as it arrived, and `segments` has the decoded parts.
///
/// Returns the kind of the write, and the index of the path.
///
/// # Errors
/// [`Code::NotPassed`] if the write has no known form.
pub(crate) fn judge<'a>(
    method: &Method,
    path: &str,
    segments: &'a [String],
) -> Result<(Kind, Option<&'a str>), Problem> {
    let parts: Vec<&str> = segments.iter().map(String::as_str).collect();
    let (kind, index, id) = match (method.as_str(), parts.as_slice()) {
        ("POST" | "PUT", ["_bulk"]) => (Kind::Documents, None, None),
        ("POST" | "PUT", [index, "_bulk"]) | ("POST", [index, "_doc"]) => {
            (Kind::Documents, Some(*index), None)
        }
        ("PUT" | "POST" | "DELETE", [index, "_doc", id])
        | ("PUT" | "POST", [index, "_create", id])
        | ("POST", [index, "_update", id]) => (Kind::Documents, Some(*index), Some(*id)),
        ("PUT", [index]) => (Kind::Creation, Some(*index), None),
        ("DELETE", [index])
        | ("PUT" | "POST", [index, "_mapping" | "_mappings"])
        | ("PUT", [index, "_settings"]) => (Kind::Index, Some(*index), None),
        _ => return Err(refused("the gateway passes no writes of this form through")),
    };
    let raw: Vec<&str> = path.strip_prefix('/').unwrap_or(path).split('/').collect();
    let named = parts.len() - usize::from(id.is_some());
    if raw.len() != parts.len() || raw[..named] != parts[..named] {
        return Err(refused("the path of a write that is passed through has no escapes"));
    }
    if index.is_some_and(|index| !is_literal(index)) {
        let detail = "a write that is passed through names one index: ASCII letters, digits, dots, hyphens and \
                      underscores, beginning with a letter or a digit";
        return Err(refused(detail));
    }
    if id.is_some_and(is_path) {
        return Err(refused("the id of a write that is passed through looks like a path"));
    }
    Ok((kind, index))
}

/// Whether the body of a write has documents.
///
/// Otherwise the body describes an index.
pub(crate) fn writes_documents(segments: &[String]) -> bool {
    let calls = ["_bulk", "_doc", "_create", "_update"];
    segments.iter().take(2).any(|segment| calls.contains(&&**segment))
}

/// Whether a program could read an id as another path.
///
/// The program is a server or a proxy.
///
/// Version 7 of the servers takes `/{index}/_doc/_bulk` for a bulk.
fn is_path(id: &str) -> bool {
    let is_call = |part: &str| {
        let name = part.strip_prefix('_');
        name.is_some_and(|name| name.chars().all(|c| c.is_ascii_lowercase() || c == '_'))
    };
    id.split('/').any(|part| matches!(part, "" | "." | "..") || is_call(part))
}

/// Refuses a parameter that could give a write another target.
///
/// # Errors
/// [`Code::NotPassed`], with the name of the parameter.
pub(crate) fn check_parameters(query: Option<&str>) -> Result<(), Problem> {
    for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
        let is_known = PARAMETERS.contains(&&*name) || (name == "pipeline" && value == "_none");
        if !is_known {
            let name = short(&name);
            let detail = format!("the gateway passes no write with the parameter {name:?} through");
            return Err(refused(detail));
        }
    }
    Ok(())
}

/// Refuses the creation of an index that would bring aliases.
///
/// An alias of a collection could so get a second index, which would take its writes.
///
/// # Errors
/// [`Code::NotPassed`], or [`Code::Invalid`] if the body is not JSON.
pub(crate) fn check_creation(body: &str) -> Result<(), Problem> {
    if body.is_empty() {
        return Ok(());
    }
    let fields = serde_json::from_str::<Pairs<&RawValue>>(body)
        .map_err(|error| Problem::new(Code::Invalid, format!("the body is no object: {error}")))?;
    let mut seen = BTreeSet::new();
    for (name, value) in fields.0 {
        let is_empty = value.get().trim_matches(['{', '}', ' ', '\n', '\r', '\t']).is_empty();
        let is_known = matches!(&*name, "settings" | "mappings") || (name == "aliases" && is_empty);
        if !is_known || !seen.insert(name.clone()) {
            let name = short(&name);
            let detail =
                format!("the gateway creates no index with the field {name:?}, or with it twice");
            return Err(refused(detail));
        }
    }
    Ok(())
}

/// The refusal of a write.
pub(crate) fn refused(detail: impl Into<String>) -> Problem {
    Problem::new(Code::NotPassed, detail)
}

/// An action of a bulk, by its first line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) verb: &'static str,
    pub(crate) index: String,
    pub(crate) id: Option<String>,
}

/// The actions of a bulk, as the servers would read them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Bulk {
    pub(crate) entries: Vec<Entry>,
    /// A field of an action that could give it another target.
    pub(crate) unfit: Option<String>,
}

/// Reads the actions of a bulk, without their contents. `index` is that of the path.
///
/// Returns `None` for a bulk that the servers could read in another way, or not at all.
pub(crate) fn read_bulk(body: &str, index: Option<&str>) -> Option<Bulk> {
    let mut lines = body.strip_suffix('\n')?.split('\n');
    let mut bulk = Bulk { entries: Vec::new(), unfit: None };
    while let Some(line) = lines.next() {
        if is_blank(line) {
            continue;
        }
        let Pairs(header) = serde_json::from_str::<Pairs<Pairs<Value>>>(line).ok()?;
        let [(name, Pairs(fields))] = <[_; 1]>::try_from(header).ok()?;
        let verb = verb(&name)?;
        bulk.entries.push(entry(verb, fields, index, &mut bulk.unfit)?);
        // The content. A blank one is no action either.
        if verb != "delete" {
            lines.next().filter(|line| !is_blank(line))?;
        }
    }
    (!bulk.entries.is_empty()).then_some(bulk)
}

/// Whether a line has only what JSON calls white space.
fn is_blank(line: &str) -> bool {
    line.chars().all(|c| matches!(c, ' ' | '\t' | '\r'))
}

fn entry(
    verb: &'static str,
    fields: Vec<(String, Value)>,
    index: Option<&str>,
    unfit: &mut Option<String>,
) -> Option<Entry> {
    let mut entry = Entry { verb, index: String::new(), id: None };
    let mut seen = Vec::new();
    for (name, value) in fields {
        match (&*name, value) {
            _ if seen.contains(&name) => return None,
            ("_index", Value::String(index)) if !index.is_empty() => entry.index = index,
            ("_index", _) => return None,
            ("_id", Value::String(id)) => entry.id = Some(id),
            ("_id", Value::Number(id)) => entry.id = Some(id.to_string()),
            ("pipeline", Value::String(pipeline)) if pipeline == "_none" => {}
            (
                "_id"
                | "routing"
                | "_routing"
                | "version"
                | "version_type"
                | "if_seq_no"
                | "if_primary_term"
                | "op_type"
                | "retry_on_conflict"
                | "require_alias"
                | "require_data_stream"
                | "dynamic_templates"
                | "list_executed_pipelines"
                | "_source",
                _,
            ) => {}
            (name, _) => *unfit = Some(short(name)),
        }
        seen.push(name);
    }
    if entry.index.is_empty() {
        index?.clone_into(&mut entry.index);
    }
    Some(entry)
}

#[cfg(test)]
#[path = "writes_tests.rs"]
mod tests;
