//! Terms that are too long for the index: the one fault of a document that the dry run of some servers
//! does not find, and the real write refuses.

use serde_json::{Map, Value};

/// The longest term of an index, in bytes of UTF-8.
pub(crate) const LONGEST: usize = 32_766;

/// The path of the first field whose value would become one term that is too long, by the mapping of the
/// index. Fields that are not mapped yet are mapped with a limit of their own.
pub(crate) fn immense(
    properties: &Map<String, Value>,
    source: &Map<String, Value>,
) -> Option<String> {
    source.iter().find_map(|(name, value)| {
        let (mapping, rest) = find(properties, name)?;
        let below = immense_in(mapping, &nested(rest, value))?;
        let name = name.strip_suffix(rest).unwrap_or(name).trim_end_matches('.');
        Some(if below.is_empty() { name.to_owned() } else { format!("{name}.{below}") })
    })
}

/// The mapping of a field whose name may have dots, and what of the name is left below it.
fn find<'a>(properties: &'a Map<String, Value>, name: &'a str) -> Option<(&'a Value, &'a str)> {
    if let Some(mapping) = properties.get(name) {
        return Some((mapping, ""));
    }
    let (first, rest) = name.split_once('.')?;
    Some((properties.get(first)?, rest))
}

/// A value under what is left of a name with dots.
fn nested<'a>(rest: &str, value: &'a Value) -> std::borrow::Cow<'a, Value> {
    if rest.is_empty() {
        return std::borrow::Cow::Borrowed(value);
    }
    let object = Map::from_iter([(rest.to_owned(), value.clone())]);
    std::borrow::Cow::Owned(Value::Object(object))
}

fn immense_in(mapping: &Value, value: &Value) -> Option<String> {
    match value {
        Value::Array(values) => values.iter().find_map(|value| immense_in(mapping, value)),
        Value::String(text) if makes_one_term(mapping, text) => Some(String::new()),
        Value::Object(object) => {
            if mapping.get("enabled") == Some(&Value::Bool(false)) {
                return None;
            }
            if is_flattened(mapping) {
                return object.values().find_map(|value| immense_in(mapping, value));
            }
            immense(mapping.get("properties")?.as_object()?, object)
        }
        _ => None,
    }
}

fn is_flattened(mapping: &Value) -> bool {
    matches!(mapping["type"].as_str(), Some("flattened" | "flat_object"))
}

/// Whether a text is taken whole by the field or by one of its multi-fields, and is too long for that.
fn makes_one_term(mapping: &Value, text: &str) -> bool {
    if text.len() <= LONGEST {
        return false;
    }
    let whole = match mapping["type"].as_str() {
        Some("keyword") => mapping["index"] != false || mapping["doc_values"] != false,
        Some("text") => mapping["analyzer"] == "keyword" && mapping["index"] != false,
        _ => is_flattened(mapping),
    };
    // Counted in characters; what is longer is not indexed at all.
    let ignored =
        mapping["ignore_above"].as_u64().is_some_and(|most| text.chars().count() as u64 > most);
    let below = mapping["fields"].as_object();
    (whole && !ignored)
        || below.is_some_and(|fields| fields.values().any(|field| makes_one_term(field, text)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_fields_that_take_a_long_text_whole_are_named() {
        let mapping = json!({
            "k": {"type": "keyword"},
            "limited": {"type": "keyword", "ignore_above": 256},
            "stored": {"type": "keyword", "index": false, "doc_values": false},
            "t": {"type": "text"},
            "whole": {"type": "text", "analyzer": "keyword"},
            "multi": {"type": "text", "fields": {"raw": {"type": "keyword"}}},
            "usual": {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 256}}},
            "o": {"properties": {"k": {"type": "keyword"}}},
            "off": {"type": "object", "enabled": false},
            "f": {"type": "flattened"},
        });
        let properties = mapping.as_object().expect("an object");
        let long = "é".repeat(LONGEST / 2 + 1);
        for (source, path) in [
            (json!({"k": long}), Some("k")),
            (json!({"k": "é".repeat(LONGEST / 2)}), None),
            (json!({"k": ["short", long]}), Some("k")),
            (json!({"limited": long, "stored": long, "t": long, "usual": long, "new": long}), None),
            (json!({"whole": long}), Some("whole")),
            (json!({"multi": long}), Some("multi")),
            (json!({"o": {"k": long}}), Some("o.k")),
            (json!({"o": [{"x": 1}, {"k": long}]}), Some("o.k")),
            (json!({"o.k": long}), Some("o.k")),
            (json!({"off": {"k": long}}), None),
            (json!({"f": {"a": {"b": long}}}), Some("f")),
        ] {
            let source = source.as_object().expect("an object");
            assert_eq!(immense(properties, source).as_deref(), path, "{:?}", source.keys());
        }
    }
}
