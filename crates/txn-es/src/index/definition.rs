//! The caller's mappings and settings of a new index. Pure functions.

use serde_json::{Map, Value};
use txn_store::{CollectionSpec, StoreError, StoreErrorKind};

const FORM: &str = "give {\"mappings\": {\"properties\": {\"name\": {\"type\": \"keyword\"}}}, \
                    \"settings\": {\"number_of_shards\": 3}}, where either may be left out, or the inner \
                    mappings alone";

type Object = Map<String, Value>;

/// Returns the mappings, and the settings in the servers' flat form.
pub(crate) fn of(spec: &CollectionSpec) -> Result<(Object, Object), StoreError> {
    let refuse = |fault: String| misconfigured(format!("{}: {fault}; {FORM}", spec.name));
    let Some(text) = &spec.mappings else { return Ok((Object::new(), Object::new())) };
    let Ok(Value::Object(given)) = serde_json::from_str(text) else {
        return Err(refuse("the mappings are not a JSON object".to_owned()));
    };
    let (mappings, settings) = parts(given).map_err(refuse)?;
    if let Some(field) = mappings.iter().find(|(name, value)| is_field(name, value)) {
        return Err(refuse(format!("the field {:?} is not inside \"properties\"", field.0)));
    }
    let mut flat = Object::new();
    flatten("index", settings, &mut flat);
    Ok((mappings, flat))
}

pub(crate) fn misconfigured(text: String) -> StoreError {
    StoreError::new(StoreErrorKind::Misconfigured, text)
}

fn parts(mut given: Object) -> Result<(Object, Object), String> {
    let is_part = |name: &str| matches!(name, "mappings" | "settings");
    let whole = given.contains_key("mappings") || given.keys().any(|name| name == "settings");
    // A field may have the name of a part.
    let field = given.iter().any(|(name, value)| is_part(name) && is_text(value.get("type")));
    if !whole || field {
        return Ok((given, Object::new()));
    }
    if let Some(other) = given.keys().find(|name| !is_part(name)) {
        return Err(format!("{other:?} is not allowed next to \"mappings\" and \"settings\""));
    }
    let mut take = |name: &str| match given.remove(name) {
        None => Ok(Object::new()),
        Some(Value::Object(part)) => Ok(part),
        Some(_) => Err(format!("{name:?} is no object")),
    };
    Ok((take("mappings")?, take("settings")?))
}

/// Whether an entry of the mappings is a misplaced field.
fn is_field(name: &str, value: &Value) -> bool {
    let known = matches!(name, "properties" | "runtime" | "dynamic_templates" | "_meta")
        || name.starts_with('_');
    !known && (is_text(value.get("type")) || value.get("properties").is_some_and(Value::is_object))
}

fn is_text(value: Option<&Value>) -> bool {
    value.is_some_and(Value::is_string)
}

/// Flattens settings.
///
/// The settings may be nested or dotted, with or without a leading `index`.
fn flatten(path: &str, settings: Object, flat: &mut Object) {
    for (name, value) in settings {
        let path = match name.strip_prefix("index") {
            Some("") if path == "index" => path.to_owned(),
            Some(rest) if path == "index" && rest.starts_with('.') => name,
            _ => format!("{path}.{name}"),
        };
        match value {
            Value::Object(below) => flatten(&path, below, flat),
            Value::Bool(_) | Value::Number(_) => {
                flat.insert(path, Value::String(value.to_string()));
            }
            value => {
                flat.insert(path, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use txn_store::Role;

    use super::*;

    fn of_text(text: &str) -> Result<(Value, Value), String> {
        let spec = CollectionSpec {
            name: "a".to_owned(),
            role: Role::Data { owner: None },
            create: true,
            mappings: Some(text.into()),
        };
        let parts = of(&spec).map_err(|error| error.message)?;
        Ok((parts.0.into(), parts.1.into()))
    }

    #[test]
    fn mappings_and_settings_or_the_mappings_alone() {
        let mappings = json!({"dynamic": "strict", "properties": {"settings": {"type": "object"}}});
        let shards = json!({"index.number_of_shards": "3"});
        for (given, expected) in [
            (json!({}), (json!({}), json!({}))),
            (mappings.clone(), (mappings.clone(), json!({}))),
            (json!({"mappings": mappings}), (mappings.clone(), json!({}))),
            (json!({"settings": {"number_of_shards": 3}}), (json!({}), shards.clone())),
            (
                json!({"settings": {"index": {"number_of_shards": "3"}}}),
                (json!({}), shards.clone()),
            ),
            (
                json!({"settings": {"index.number_of_shards": 3}, "mappings": mappings}),
                (mappings.clone(), shards),
            ),
            (
                json!({"settings": {"analysis": {"analyzer": {"x": {"tokenizer": "standard", "filter": ["lowercase"]}}}}}),
                (
                    json!({}),
                    json!({
                        "index.analysis.analyzer.x.tokenizer": "standard",
                        "index.analysis.analyzer.x.filter": ["lowercase"],
                    }),
                ),
            ),
        ] {
            assert_eq!(of_text(&given.to_string()), Ok(expected), "{given}");
        }
    }

    #[test]
    fn fields_alone_are_refused_with_the_form() {
        for (given, fault) in [
            (r#"{"name":{"type":"keyword"}}"#, "the field \"name\" is not inside"),
            (r#"{"mappings":{"name":{"type":"keyword"}}}"#, "the field \"name\" is not inside"),
            (r#"{"address":{"properties":{"city":{"type":"text"}}}}"#, "the field \"address\""),
            (r#"{"settings":{"type":"keyword"}}"#, "the field \"settings\""),
            (r#"{"mappings":{},"aliases":{"b":{}}}"#, "\"aliases\" is not allowed next to"),
            (r#"{"mappings":[]}"#, "\"mappings\" is no object"),
            ("[]", "not a JSON object"),
            ("{", "not a JSON object"),
        ] {
            let error = of_text(given).unwrap_err();
            assert!(error.contains(fault), "{given}: {error}");
            assert!(error.contains(r#""mappings": {"properties""#), "{error}");
        }
    }
}
