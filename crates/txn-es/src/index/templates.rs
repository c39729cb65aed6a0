//! Finds the index template that applies to a name, for error messages. Pure functions.

use serde::Deserialize;
use std::collections::BTreeMap;

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
