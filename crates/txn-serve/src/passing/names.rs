//! The indices that a read for the servers names.
//!
//! The names are in the path, the parameters and the body.
//!
//! The servers carry a read out with the login of the gateway. So a caller with rights on some
//! indices gets no read in which the gateway could overlook a name. Paths, wildcards and fields
//! without a known meaning need the right on all indices.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use url::form_urlencoded;

use crate::access::caller::Caller;
use crate::access::rights::Verb;
use crate::http::problem::Problem;

/// Calls that reach the indices of their path and body.
const BOUND: [&str; 27] = [
    "_alias",
    "_analyze",
    "_async_search",
    "_count",
    "_doc",
    "_eql",
    "_explain",
    "_field_caps",
    "_knn_search",
    "_mapping",
    "_mget",
    "_msearch",
    "_mtermvectors",
    "_mvt",
    "_pit",
    "_rank_eval",
    "_recovery",
    "_refresh",
    "_search",
    "_search_shards",
    "_segments",
    "_settings",
    "_source",
    "_stats",
    "_terms_enum",
    "_termvectors",
    "_validate",
];

/// Calls that other words turn into another call. A stored template is an example.
const ALONE: [&str; 3] = ["_async_search", "_msearch", "_search"];

/// Parameters that name indices, or that stand for a body.
const NAMING_PARAMETERS: [&str; 9] = [
    "_index",
    "data_stream",
    "index",
    "indices",
    "name",
    "scroll_id",
    "source",
    "target",
    "target_index",
];

/// Fields of a body that name indices.
const NAMING: [&str; 4] = ["_index", "index", "indices", "target_index"];

/// Fields of a body whose indices are not visible. These fields are open searches, encoded queries,
/// templates, and shapes with a default index.
const UNBOUND: [&str; 8] = [
    "collate",
    "indexed_shape",
    "pit",
    "scroll_id",
    "template",
    "template_id",
    "templates",
    "wrapper",
];

/// Refuses a read without rights on all indices within reach.
pub(crate) fn check_read(
    caller: &Caller,
    path: &[String],
    query: Option<&str>,
    body: &[u8],
) -> Result<(), Problem> {
    let is_info = path.len() == 1 && path.iter().all(String::is_empty);
    if is_info || caller.may_all(Verb::PassReads, "") {
        return Ok(());
    }
    let parts: Vec<&str> = path.iter().map(String::as_str).collect();
    let is_bound = match parts.as_slice() {
        [_] => true,
        [_, call] => BOUND.contains(call),
        [_, call, _] => BOUND.contains(call) && !ALONE.contains(call),
        _ => false,
    };
    let mut parameters = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    let is_naming = parameters.any(|(name, _)| NAMING_PARAMETERS.contains(&&*name));
    match parts.first() {
        Some(names) if is_bound && !is_naming => check_names(caller, names)?,
        _ => caller.need_all(Verb::PassReads)?,
    }
    check_body(caller, body)
}

/// Refuses a body that names an index without read right.
pub(crate) fn check_body(caller: &Caller, body: &[u8]) -> Result<(), Problem> {
    if body.is_empty() || caller.may_all(Verb::PassReads, "") {
        return Ok(());
    }
    let mut found = Found::default();
    match read_names(body, &mut found) {
        Ok(()) if !found.is_unbound => {}
        // The servers may read more in a body than this parser.
        _ => caller.need_all(Verb::PassReads)?,
    }
    found.names.iter().try_for_each(|names| check_names(caller, names))
}

/// Refuses a list of names without the right to all.
///
/// The caller must have the right to read all indices of each name and pattern.
pub(crate) fn check_names(caller: &Caller, names: &str) -> Result<(), Problem> {
    let mut has_pattern = false;
    for name in names.split(',') {
        // An exclusion after a pattern takes indices away, and adds none.
        let excluded = name.strip_prefix('-').filter(|_| has_pattern);
        let is_plain = |part: &str| part.chars().all(|c| c.is_alphanumeric() || "._-".contains(c));
        let is_known = !excluded.unwrap_or(name).starts_with(['_', '-'])
            && !name.is_empty()
            && name.split('*').all(is_plain);
        match name.split_once('*') {
            _ if !is_known => caller.need_all(Verb::PassReads)?,
            _ if excluded.is_some() => {}
            None => caller.need(Verb::PassReads, name)?,
            Some((beginning, _)) if caller.may_all(Verb::PassReads, beginning) => {
                has_pattern = true;
            }
            Some(_) => return Err(caller.forbidden(Some(Verb::PassReads), Some(name))),
        }
    }
    Ok(())
}

/// The names in a body.
#[derive(Debug, Default)]
struct Found {
    names: Vec<String>,
    is_unbound: bool,
}

/// Reads one or more values of JSON.
fn read_names(body: &[u8], found: &mut Found) -> serde_json::Result<()> {
    let mut values = serde_json::Deserializer::from_slice(body);
    while values.end().is_err() {
        Walk { found, is_name: false }.deserialize(&mut values)?;
    }
    Ok(())
}

/// A walk over a value of JSON, equal fields included.
struct Walk<'a> {
    found: &'a mut Found,
    /// Whether the value belongs to a field that names indices.
    is_name: bool,
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            self.found.is_unbound |= UNBOUND.contains(&&*key);
            let is_name = NAMING.contains(&&*key);
            map.next_value_seed(Walk { found: &mut *self.found, is_name })?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let Self { found, is_name } = self;
        while items.next_element_seed(Walk { found: &mut *found, is_name })?.is_some() {}
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        if self.is_name {
            self.found.names.push(text.to_owned());
        }
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}
