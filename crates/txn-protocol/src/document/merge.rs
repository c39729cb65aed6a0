//! Merges a changed value into the document that was read.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::Image;
use super::json::{Field, JsonError, fields};

impl Image {
    /// Merges a change of the typed value into this content.
    ///
    /// `before` is the encoding of the value at the read, `after` the encoding of the value now.
    /// Fields that differ between the two replace the fields of this content. Fields that only
    /// `before` has are removed, and new fields are appended. All other fields keep their bytes and
    /// their position, in nested objects too. Arrays are replaced whole.
    pub fn merged(&self, before: &Self, after: &Self) -> Result<Self, JsonError> {
        Ok(Self(merge(&self.0, &before.0, &after.0)?.into()))
    }
}

/// Merges objects. The parser bounds the depth of the recursion.
fn merge(here: &str, before: &str, after: &str) -> Result<String, JsonError> {
    let (here, before, after) = (fields(here)?, fields(before)?, fields(after)?);
    let (stands, was, is) = (by_name(&here), by_name(&before), by_name(&after));
    let mut merged: Vec<(&str, Cow<'_, str>)> = Vec::new();
    for Field { key, name, value } in &here {
        let value = match (was.get(&**name), is.get(&**name)) {
            // Unknown to the type, or not changed.
            (was, is) if was == is => Cow::Borrowed(*value),
            (Some(was), Some(is)) if [*value, *was, *is].iter().all(|v| v.starts_with('{')) => {
                Cow::Owned(merge(value, was, is)?)
            }
            (_, Some(is)) => Cow::Borrowed(*is),
            (_, None) => continue,
        };
        merged.push((key, value));
    }
    for Field { key, name, value } in &after {
        if !stands.contains_key(&**name) && was.get(&**name) != Some(value) {
            merged.push((key, Cow::Borrowed(*value)));
        }
    }
    let merged: Vec<String> =
        merged.into_iter().map(|(key, value)| format!("{key}:{value}")).collect();
    Ok(format!("{{{}}}", merged.join(",")))
}

fn by_name<'a>(fields: &'a [Field<'a>]) -> BTreeMap<&'a str, &'a str> {
    fields.iter().map(|field| (&*field.name, field.value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merge_keeps_the_bytes_of_unchanged_fields() {
        let rows = [
            // here, before, after, merged
            (r#"{"x":1.50}"#, r#"{"x":1.5}"#, r#"{"x":1.5}"#, r#"{"x":1.50}"#),
            (r#"{"x":1.50,"u":[ 1 ]}"#, r#"{"x":1.5}"#, r#"{"x":2}"#, r#"{"x":2,"u":[ 1 ]}"#),
            (r#"{"u":1,"x":2,"v":3}"#, r#"{"x":2}"#, r#"{}"#, r#"{"u":1,"v":3}"#),
            (r#"{"u":1}"#, r#"{}"#, r#"{"x":2,"y":3}"#, r#"{"u":1,"x":2,"y":3}"#),
            // A default that the closure did not change is not written.
            (r#"{"u":1}"#, r#"{"x":0}"#, r#"{"x":0}"#, r#"{"u":1}"#),
            (r#"{"u":1}"#, r#"{"x":0}"#, r#"{"x":5}"#, r#"{"u":1,"x":5}"#),
            (r#"{"x":null}"#, r#"{}"#, r#"{"x":5}"#, r#"{"x":5}"#),
            (r#"{"x":null}"#, r#"{}"#, r#"{}"#, r#"{"x":null}"#),
            // Keys are compared decoded.
            (r#"{"\u0078":1,"u":2}"#, r#"{"x":1}"#, r#"{"x":3}"#, r#"{"\u0078":3,"u":2}"#),
            // Nested objects are merged. A field that is not an object on all sides is replaced.
            (
                r#"{"o":{"u": 1,"x":2,"p":{ "v":1 }}}"#,
                r#"{"o":{"x":2,"p":{}}}"#,
                r#"{"o":{"x":3,"p":{}}}"#,
                r#"{"o":{"u":1,"x":3,"p":{ "v":1 }}}"#,
            ),
            (r#"{"o":{"u":1}}"#, r#"{"o":{}}"#, r#"{"o":null}"#, r#"{"o":null}"#),
            (r#"{"o":null}"#, r#"{"o":null}"#, r#"{"o":{"x":1}}"#, r#"{"o":{"x":1}}"#),
            (r#"{"o":{"u":1}}"#, r#"{"o":{}}"#, r#"{}"#, r#"{}"#),
            // A replaced enum variant loses all its fields.
            (
                r#"{"s":{"A":{"x":1,"u":2}}}"#,
                r#"{"s":{"A":{"x":1}}}"#,
                r#"{"s":{"B":{}}}"#,
                r#"{"s":{"B":{}}}"#,
            ),
            (r#"{"a":[{"u":1}]}"#, r#"{"a":[{}]}"#, r#"{"a":[{}]}"#, r#"{"a":[{"u":1}]}"#),
            (r#"{"a":[{"u":1}]}"#, r#"{"a":[{}]}"#, r#"{"a":[{},{}]}"#, r#"{"a":[{},{}]}"#),
        ];
        for (here, before, after, expected) in rows {
            let image = |text| Image::parse(text).expect("valid");
            let merged = image(here).merged(&image(before), &image(after)).expect("valid");
            assert_eq!(merged.as_str(), expected, "{here} {before} {after}");
        }
    }
}
