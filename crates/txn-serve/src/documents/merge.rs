//! Partial documents: objects are merged, all other values are replaced.

use std::collections::HashMap;

use serde_json::value::RawValue;

use super::pairs::Pairs;

/// The maximum depth of nested objects that are merged.
const MOST_DEPTH: usize = 100;

/// Merges a partial document into a document. Values that stay keep their bytes.
///
/// Arrays are replaced as a whole, and `null` is a value, as on the servers.
///
/// # Errors
/// The reason why the result is no document.
pub(crate) fn merged(document: &str, part: &str) -> Result<String, String> {
    merged_within(document, part, MOST_DEPTH)
}

fn merged_within(document: &str, part: &str, depth: usize) -> Result<String, String> {
    if depth == 0 {
        return Err(format!("the document nests objects deeper than {MOST_DEPTH}"));
    }
    let parse = |text| serde_json::from_str::<Pairs<&RawValue>>(text).map_err(|e| e.to_string());
    let (Pairs(mut fields), Pairs(changes)) = (parse(document)?, parse(part)?);
    let mut replaced: Vec<Option<String>> = vec![None; fields.len()];
    let mut positions: HashMap<_, usize> =
        fields.iter().enumerate().map(|(at, (name, _))| (name.clone(), at)).collect();
    for (name, value) in changes {
        let Some(at) = positions.get(&name).copied() else {
            positions.insert(name.clone(), fields.len());
            fields.push((name, value));
            replaced.push(None);
            continue;
        };
        let before = replaced[at].as_deref().unwrap_or_else(|| fields[at].1.get());
        let both = before.starts_with('{') && value.get().starts_with('{');
        replaced[at] = Some(match both {
            true => merged_within(before, value.get(), depth - 1)?,
            false => value.get().to_owned(),
        });
    }
    let mut text = String::with_capacity(document.len() + part.len());
    text.push('{');
    for (at, ((name, value), replaced)) in fields.iter().zip(&replaced).enumerate() {
        if at > 0 {
            text.push(',');
        }
        text.push_str(&serde_json::to_string(name).map_err(|error| error.to_string())?);
        text.push(':');
        text.push_str(replaced.as_deref().unwrap_or_else(|| value.get()));
    }
    text.push('}');
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_merged_and_other_values_replaced() {
        let cases = [
            (
                r#"{"a":1,"b":{"c":1,"d":[1]}}"#,
                r#"{"b":{"d":[2],"e":null}}"#,
                r#"{"a":1,"b":{"c":1,"d":[2],"e":null}}"#,
            ),
            (r#"{"a":{"b":1}}"#, r#"{"a":2}"#, r#"{"a":2}"#),
            (r#"{"a":2}"#, r#"{"a":{"b":1}}"#, r#"{"a":{"b":1}}"#),
            (r#"{"ä\"":1}"#, r#"{"x":{}}"#, r#"{"ä\"":1,"x":{}}"#),
            ("{}", "{}", "{}"),
        ];
        for (document, part, expected) in cases {
            assert_eq!(merged(document, part).as_deref(), Ok(expected));
        }
    }

    #[test]
    fn values_that_stay_keep_their_digits() {
        let document = r#"{"n":12345678901234567890.123456789,"a":1.0}"#;
        let found = merged(document, r#"{"a":1e400}"#);
        assert_eq!(found.as_deref(), Ok(r#"{"n":12345678901234567890.123456789,"a":1e400}"#));
    }

    #[test]
    fn depth_of_merged_objects_is_bounded() {
        let deep = |depth: usize| format!("{}1{}", r#"{"a":"#.repeat(depth), "}".repeat(depth));
        assert!(merged(&deep(MOST_DEPTH), &deep(MOST_DEPTH)).is_ok());
        assert!(merged(&deep(MOST_DEPTH + 1), &deep(MOST_DEPTH + 1)).is_err());
        assert!(merged(&deep(10 * MOST_DEPTH), &deep(10 * MOST_DEPTH)).is_err());
    }
}
