//! Terms that are too long for the index. Pure functions.
//!
//! The dry run of some servers does not find this fault, and the real write refuses the document.
//! The functions return the values that may become such a term, with their fields.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// The longest term of an index, in bytes of UTF-8.
pub(crate) const LONGEST: usize = 32_766;

/// A value that is longer than the longest term, and its field.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LongValue {
    pub(crate) field: String,
    pub(crate) text: String,
    pub(crate) measure: Measure,
}

/// The terms that the index makes of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Measure {
    /// One term, which is too long.
    OneTerm,
    /// The terms of the field's analyzer or normalizer. Only the server knows these terms.
    Analyzed,
}

/// The fields of an index.
pub(crate) struct Fields<'a> {
    properties: &'a Map<String, Value>,
    /// Whether the default analyzer is not the servers' default. Texts without an explicit analyzer
    /// get the default one.
    has_own_default: bool,
    ignore_above: Option<u64>,
    has_whole_wildcards: bool,
}

impl<'a> Fields<'a> {
    /// Reads the mapping and the flat settings.
    ///
    /// OpenSearch keeps the text of a wildcard field as one term.
    pub(crate) fn of(
        properties: &'a Map<String, Value>,
        settings: &Map<String, Value>,
        is_opensearch: bool,
    ) -> Self {
        let is_default = |name: &String| name.starts_with("index.analysis.analyzer.default.");
        let ignore_above = settings.get("index.mapping.ignore_above").and_then(Value::as_str);
        Self {
            properties,
            has_own_default: settings.keys().any(is_default),
            ignore_above: ignore_above.and_then(|text| text.parse().ok()),
            has_whole_wildcards: is_opensearch,
        }
    }

    /// Returns a document's long values, with each field that indexes them.
    ///
    /// A value reaches the field with its name, the multi-fields, and the targets of `copy_to`.
    /// Fields without a mapping are not indexed.
    pub(crate) fn long_values(&self, source: &Map<String, Value>) -> BTreeSet<LongValue> {
        let mut found = BTreeSet::new();
        self.of_object(self.properties, "", source, &mut found);
        found
    }

    fn of_object(
        &self,
        properties: &Map<String, Value>,
        path: &str,
        object: &Map<String, Value>,
        found: &mut BTreeSet<LongValue>,
    ) {
        for (name, value) in object {
            let Some((mapping, mapped, rest)) = find(properties, name) else { continue };
            self.of_value(mapping, &join(path, mapped), &nested(rest, value), found);
        }
    }

    fn of_value(
        &self,
        mapping: &Value,
        path: &str,
        value: &Value,
        found: &mut BTreeSet<LongValue>,
    ) {
        match value {
            Value::Array(values) => {
                values.iter().for_each(|value| self.of_value(mapping, path, value, found));
            }
            Value::String(text) if text.len() > LONGEST => {
                self.of_text(mapping, path, text, found);
                let targets = match &mapping["copy_to"] {
                    Value::Array(targets) => targets.as_slice(),
                    target => std::slice::from_ref(target),
                };
                for target in targets.iter().filter_map(Value::as_str) {
                    if let Some(mapping) = by_path(self.properties, target) {
                        self.of_text(mapping, target, text, found);
                    }
                }
            }
            Value::Object(object) if mapping["enabled"] != false => {
                if is_flattened(mapping) {
                    let inner = object.values();
                    inner.for_each(|value| self.of_value(mapping, path, value, found));
                } else if let Some(properties) = mapping["properties"].as_object() {
                    self.of_object(properties, path, object, found);
                }
            }
            _ => {}
        }
    }

    /// Adds a long text in a field and in its multi-fields.
    fn of_text(&self, mapping: &Value, path: &str, text: &str, found: &mut BTreeSet<LongValue>) {
        if let Some(measure) = self.measure(mapping, text) {
            found.insert(LongValue { field: path.to_owned(), text: text.to_owned(), measure });
        }
        for (name, mapping) in mapping["fields"].as_object().into_iter().flatten() {
            self.of_text(mapping, &join(path, name), text, found);
        }
    }

    /// Returns `None` if a text of any length is harmless.
    fn measure(&self, mapping: &Value, text: &str) -> Option<Measure> {
        let is_off = |name: &str| mapping[name] == false || mapping[name] == "false";
        // Counted in characters. A longer text is not indexed.
        let ignore_above = mapping["ignore_above"].as_u64().or(self.ignore_above);
        let is_ignored = || ignore_above.is_some_and(|most| text.chars().count() as u64 > most);
        match mapping["type"].as_str() {
            Some("keyword") if is_off("index") && is_off("doc_values") => None,
            Some("keyword") if is_ignored() => None,
            Some("keyword") if mapping.get("normalizer").is_some() => Some(Measure::Analyzed),
            Some("keyword") => Some(Measure::OneTerm),
            Some("wildcard") => {
                (self.has_whole_wildcards && !is_ignored()).then_some(Measure::OneTerm)
            }
            Some("flattened" | "flat_object") => (!is_ignored()).then_some(Measure::OneTerm),
            Some("text" | "match_only_text" | "search_as_you_type") => {
                // The servers' default analyzer makes terms of at most 255 characters.
                let is_usual = mapping.get("analyzer").is_none() && !self.has_own_default;
                (!is_usual && !is_off("index")).then_some(Measure::Analyzed)
            }
            // An object with properties: the server refuses the text.
            None => None,
            Some(_) => Some(Measure::Analyzed),
        }
    }
}

/// Splits the text into overlapping pieces.
///
/// Each term that is too long is also too long in at least one piece.
pub(crate) fn windows(text: &str) -> Vec<&str> {
    let boundary =
        |at: usize| (at..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    let starts = (0..text.len()).step_by(LONGEST).map(boundary);
    starts
        .map(|start| &text[start..boundary(start.saturating_add(2 * LONGEST + 8).min(text.len()))])
        .collect()
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Returns the mapping of a field with dots in its name.
///
/// Also returns the name of the field, and the remaining path.
fn find<'a, 'n>(
    properties: &'a Map<String, Value>,
    name: &'n str,
) -> Option<(&'a Value, &'n str, &'n str)> {
    if let Some(mapping) = properties.get(name) {
        return Some((mapping, name, ""));
    }
    let (first, rest) = name.split_once('.')?;
    Some((properties.get(first)?, first, rest))
}

/// Returns the mapping of a field by its path from the root.
fn by_path<'a>(properties: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    let (mapping, _, rest) = find(properties, path)?;
    if rest.is_empty() { Some(mapping) } else { by_path(mapping["properties"].as_object()?, rest) }
}

/// Returns a value under the remaining path of a name with dots.
fn nested<'a>(rest: &str, value: &'a Value) -> std::borrow::Cow<'a, Value> {
    if rest.is_empty() {
        return std::borrow::Cow::Borrowed(value);
    }
    let object = Map::from_iter([(rest.to_owned(), value.clone())]);
    std::borrow::Cow::Owned(Value::Object(object))
}

fn is_flattened(mapping: &Value) -> bool {
    matches!(mapping["type"].as_str(), Some("flattened" | "flat_object"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: &Value) -> &Map<String, Value> {
        value.as_object().expect("an object")
    }

    fn fields_of(mapping: &Value, settings: &Value, source: &Value) -> Vec<(String, Measure)> {
        let found =
            Fields::of(object(mapping), object(settings), false).long_values(object(source));
        found.into_iter().map(|value| (value.field, value.measure)).collect()
    }

    #[test]
    fn long_values_are_found_in_each_of_their_fields() {
        use Measure::{Analyzed, OneTerm};
        let mapping = json!({
            "k": {"type": "keyword"},
            "limited": {"type": "keyword", "ignore_above": 256},
            "stored": {"type": "keyword", "index": false, "doc_values": false},
            "normal": {"type": "keyword", "normalizer": "lower"},
            "t": {"type": "text"},
            "whole": {"type": "text", "analyzer": "mine"},
            "unsearched": {"type": "text", "analyzer": "mine", "index": false},
            "multi": {"type": "text", "fields": {"raw": {"type": "keyword"}}},
            "usual": {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 256}}},
            "o": {"properties": {"k": {"type": "keyword"}}},
            "copied": {"type": "text", "copy_to": ["all", "o.k"]},
            "all": {"type": "text", "analyzer": "mine", "fields": {"raw": {"type": "keyword"}}},
            "off": {"type": "object", "enabled": false},
            "f": {"type": "flattened"},
            "odd": {"type": "icu_collation_keyword"},
        });
        let long = "é".repeat(LONGEST / 2 + 1);
        for (source, expected) in [
            (json!({"k": long}), vec![("k", OneTerm)]),
            (json!({"k": "é".repeat(LONGEST / 2)}), vec![]),
            (json!({"k": ["short", long]}), vec![("k", OneTerm)]),
            (
                json!({"limited": long, "stored": long, "t": long, "usual": long, "new": long}),
                vec![],
            ),
            (json!({"normal": long}), vec![("normal", Analyzed)]),
            (json!({"whole": long, "unsearched": long}), vec![("whole", Analyzed)]),
            (json!({"multi": long}), vec![("multi.raw", OneTerm)]),
            (json!({"o": {"k": long}}), vec![("o.k", OneTerm)]),
            (json!({"o": [{"x": 1}, {"k": long}]}), vec![("o.k", OneTerm)]),
            (json!({"o.k": long}), vec![("o.k", OneTerm)]),
            (
                json!({"copied": long}),
                vec![("all", Analyzed), ("all.raw", OneTerm), ("o.k", OneTerm)],
            ),
            (json!({"off": {"k": long}}), vec![]),
            (json!({"f": {"a": {"b": long}}}), vec![("f", OneTerm)]),
            (json!({"odd": long}), vec![("odd", Analyzed)]),
        ] {
            let expected: Vec<_> = expected.into_iter().map(|(f, m)| (f.to_owned(), m)).collect();
            let keys: Vec<_> = object(&source).keys().collect();
            assert_eq!(fields_of(&mapping, &json!({}), &source), expected, "{keys:?}");
        }
        let own = json!({"index.analysis.analyzer.default.tokenizer": "keyword"});
        let expected = vec![("t".to_owned(), Analyzed)];
        assert_eq!(fields_of(&mapping, &own, &json!({"t": long})), expected);
        let limit = json!({"index.mapping.ignore_above": "8191"});
        assert_eq!(fields_of(&mapping, &limit, &json!({"k": long})), vec![]);
    }

    #[test]
    fn windows_hold_each_piece_of_a_terms_length() {
        let text = "aé€".repeat(LONGEST);
        let pieces = windows(&text);
        assert!(pieces.iter().all(|piece| piece.len() <= 2 * LONGEST + 16));
        let mut start = 0;
        for piece in &pieces {
            let at = piece.as_ptr() as usize - text.as_ptr() as usize;
            assert!(at <= start + LONGEST + 4, "no gap");
            // A term that begins before the next window is complete in this one.
            assert!(at + piece.len() == text.len() || piece.len() > 2 * LONGEST);
            start = at;
        }
        assert_eq!(windows("short"), ["short"]);
    }
}
