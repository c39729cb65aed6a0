//! Finds the index template that applies to a name. Pure functions.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};

/// The answer to `GET /_index_template`.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Composable {
    #[serde(default)]
    index_templates: Vec<Named>,
}

#[derive(Debug, Deserialize)]
struct Named {
    name: String,
    index_template: Template,
}

/// The answer to `GET /_template`: legacy templates.
pub(crate) type Legacy = BTreeMap<String, Template>;

#[derive(Debug, Deserialize)]
pub(crate) struct Template {
    #[serde(default)]
    index_patterns: Vec<String>,
    #[serde(default, alias = "order")]
    priority: i64,
    #[serde(default)]
    data_stream: Option<IgnoredAny>,
    /// Of a legacy template.
    #[serde(default)]
    settings: Value,
    #[serde(default)]
    mappings: Value,
}

impl Composable {
    fn get(&self, name: &str) -> Option<&Template> {
        let named = self.index_templates.iter().find(|named| named.name == name);
        named.map(|named| &named.index_template)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Returns the priority of a template. A legacy template has less than any other one.
    pub(crate) fn priority(&self, name: &str) -> i64 {
        self.get(name).map_or(-1, |template| template.priority)
    }

    /// Whether a template makes data streams.
    pub(crate) fn makes_data_streams(&self, name: &str) -> bool {
        self.get(name).is_some_and(|template| template.data_stream.is_some())
    }
}

impl Template {
    fn applies_to(&self, index: &str) -> bool {
        self.index_patterns.iter().any(|pattern| matches(pattern, index))
    }
}

/// Returns the template that applies to an index.
///
/// The composable template with the highest priority wins, and legacy templates then do not apply.
/// Without a composable template, the legacy template with the highest order wins.
pub(crate) fn applying(index: &str, composable: &Composable, legacy: &Legacy) -> Option<String> {
    let composable = composable.index_templates.iter();
    let composable = composable.map(|named| (&named.name, &named.index_template));
    let highest = |(_, template): &(&String, &Template)| template.priority;
    let found = composable.filter(|(_, template)| template.applies_to(index)).max_by_key(highest);
    let former =
        || legacy.iter().filter(|(_, template)| template.applies_to(index)).max_by_key(highest);
    found.or_else(former).map(|(name, _)| name.clone())
}

/// Returns the settings and mappings that the legacy templates give an index.
pub(crate) fn merged(index: &str, legacy: &Legacy) -> Value {
    let mut applying: Vec<&Template> =
        legacy.values().filter(|template| template.applies_to(index)).collect();
    applying.sort_by_key(|template| template.priority);
    let mut merged = json!({});
    for Template { settings, mappings, .. } in applying {
        merge(&mut merged, &json!({"settings": flat(settings), "mappings": mappings}));
    }
    merged
}

/// Returns an object with flat names, such as `index.blocks.write`, from nested settings.
pub(crate) fn flat(settings: &Value) -> Map<String, Value> {
    let mut flat = Map::new();
    let mut open: Vec<(String, &Value)> = vec![(String::new(), settings)];
    while let Some((name, value)) = open.pop() {
        match value {
            Value::Object(fields) => open.extend(fields.iter().map(|(field, value)| {
                let dot = if name.is_empty() { "" } else { "." };
                (format!("{name}{dot}{field}"), value)
            })),
            value => drop(flat.insert(name, value.clone())),
        }
    }
    flat
}

/// Merges a mapping into another one, which has less weight.
pub(crate) fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                merge(into.entry(name).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

/// Whether a name matches a pattern, in which `*` means any text.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(first) else { return false };
    let mut pieces: Vec<&str> = rest.split('*').collect();
    let last = pieces.pop().unwrap_or_default();
    for piece in pieces {
        let Some((_, behind)) = name.split_once(piece) else { return false };
        name = behind;
    }
    name.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, name, expected) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("*", "a", true),
            ("a*", "abc", true),
            ("a*", "ba", false),
            ("*c", "abc", true),
            ("a*c*e", "abcde", true),
            ("a*c*e", "abcdef", false),
            ("a*a", "a", false),
            ("*b*", "abc", true),
            ("*x*", "abc", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn legacy_templates_are_merged_by_order() {
        let legacy = r#"{
            "all": {"order": 0, "index_patterns": ["*"], "settings": {"index": {"blocks": {"write": "true"}, "codec": "a"}},
                "mappings": {"_source": {"enabled": false}}},
            "some": {"order": 1, "index_patterns": ["txn-*"], "settings": {"index": {"codec": "b"}}, "mappings": {}},
            "other": {"order": 2, "index_patterns": ["x"], "settings": {"index": {"codec": "c"}}}}"#;
        let legacy: Legacy = serde_json::from_str(legacy).unwrap();
        let expected = json!({
            "settings": {"index.blocks.write": "true", "index.codec": "b"},
            "mappings": {"_source": {"enabled": false}},
        });
        assert_eq!(merged("txn-a", &legacy), expected);
    }

    #[test]
    fn template_with_the_highest_priority_applies() {
        let composable = r#"{"index_templates": [
            {"name": "low", "index_template": {"index_patterns": ["*"]}},
            {"name": "high", "index_template": {"index_patterns": ["x", "txn-*"], "priority": 7}}]}"#;
        let composable: Composable = serde_json::from_str(composable).unwrap();
        let legacy = r#"{"old": {"order": 1, "index_patterns": ["txn-*"]}, "older": {"index_patterns": ["*"]}}"#;
        let legacy: Legacy = serde_json::from_str(legacy).unwrap();
        let applies = |name, composable| applying(name, composable, &legacy);
        assert_eq!(applies("txn-a", &composable).as_deref(), Some("high"));
        assert_eq!(applies("a", &composable).as_deref(), Some("low"));
        let none = Composable::default();
        assert_eq!(applies("txn-a", &none).as_deref(), Some("old"));
        assert_eq!(applies("a", &none).as_deref(), Some("older"));
        assert_eq!(applying("a", &none, &Legacy::new()), None);
    }
}
