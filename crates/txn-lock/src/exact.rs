//! JSON without a loss of digits.
//!
//! A reader refuses numbers that 64 bits or a double cannot hold. A comparison of two texts
//! compares all digits.

use std::collections::BTreeMap;

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// The maximum number of digits of a double. A double cannot hold more.
const MOST_DIGITS: usize = 17;

/// The maximum nesting depth that [`same`] compares as JSON, and of pointers. Deeper texts are
/// compared by their bytes.
const MOST_DEPTH: usize = 127;

/// Reads a value like `serde_json`, and refuses numbers that would be rounded.
///
/// Use: `#[serde(deserialize_with = "txn_lock::exact::deserialize")]`.
///
/// # Errors
/// Any error of the type. Also an error: an integer beyond 64 bits, or another number with more
/// than 17 digits.
pub fn deserialize<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let text = Box::<RawValue>::deserialize(deserializer)?;
    if !is_exact(text.get()) {
        let why = "a number has more digits than 64 bits or a double keep: send it as a string";
        return Err(D::Error::custom(why));
    }
    serde_json::from_str(text.get()).map_err(D::Error::custom)
}

/// Whether 64 bits or a double can hold all numbers of `text`.
///
/// Integers need 64 bits, all other numbers a double.
#[must_use]
pub fn is_exact(text: &str) -> bool {
    numbers(text).all(is_kept)
}

/// Whether two texts are the same JSON, digit by digit.
///
/// White space and the order of fields do not matter.
#[must_use]
pub fn same(a: &str, b: &str) -> bool {
    a == b || same_within(a, b, MOST_DEPTH)
}

/// Returns the text at a JSON pointer (RFC 6901), as [`serde_json::Value::pointer`] does.
///
/// `None` for a pointer deeper than any [`serde_json::Value`].
#[must_use]
pub fn pointer<'a>(text: &'a str, path: &str) -> Option<&'a str> {
    let mut found = text.trim();
    if path.is_empty() {
        return Some(found);
    }
    let tokens = path.strip_prefix('/')?.split('/');
    // Each token reads the rest of the text again.
    if tokens.clone().count() > MOST_DEPTH {
        return None;
    }
    for token in tokens {
        let token = token.replace("~1", "/").replace("~0", "~");
        found = match found.starts_with('[') {
            true => {
                let at = token.parse::<usize>().ok().filter(|at| at.to_string() == token)?;
                serde_json::from_str::<Vec<&RawValue>>(found).ok()?.get(at)?.get()
            }
            false => {
                serde_json::from_str::<BTreeMap<String, &RawValue>>(found).ok()?.get(&token)?.get()
            }
        };
    }
    Some(found)
}

/// Returns `text` with `new` in place of `part`, a slice of `text` that [`pointer()`] returned.
#[must_use]
pub fn replaced(text: &str, part: &str, new: &str) -> String {
    let start = (part.as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
    let (before, rest) = text.split_at(start);
    [before, new, &rest[part.len()..]].concat()
}

fn same_within(a: &str, b: &str, depth: usize) -> bool {
    let (a, b) = (a.trim(), b.trim());
    if depth == 0 {
        return a == b;
    }
    let same = |a: &RawValue, b: &RawValue| same_within(a.get(), b.get(), depth - 1);
    match (a.bytes().next(), b.bytes().next()) {
        (Some(b'{'), Some(b'{')) => {
            both::<BTreeMap<String, &RawValue>>(a, b).is_some_and(|(a, b)| {
                let found =
                    |(key, a): (&String, &&RawValue)| b.get(key).is_some_and(|b| same(a, b));
                a.len() == b.len() && a.iter().all(found)
            })
        }
        (Some(b'['), Some(b'[')) => both::<Vec<&RawValue>>(a, b)
            .is_some_and(|(a, b)| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))),
        (Some(b'"'), Some(b'"')) => both::<String>(a, b).is_some_and(|(a, b)| a == b),
        (Some(b'-' | b'0'..=b'9'), Some(b'-' | b'0'..=b'9')) => {
            let number = Decimal::parse(a);
            number.is_some() && number == Decimal::parse(b)
        }
        _ => a == b,
    }
}

fn both<'a, T: Deserialize<'a>>(a: &'a str, b: &'a str) -> Option<(T, T)> {
    Some((serde_json::from_str(a).ok()?, serde_json::from_str(b).ok()?))
}

/// The numbers in a JSON text, as written.
fn numbers(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        loop {
            let at = rest.find(|c: char| c == '"' || c == '-' || c.is_ascii_digit())?;
            rest = &rest[at..];
            if let Some(inside) = rest.strip_prefix('"') {
                rest = behind_string(inside);
                continue;
            }
            let of_number =
                |c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.' | 'e' | 'E');
            let end = rest.find(|c: char| !of_number(c)).unwrap_or(rest.len());
            let number;
            (number, rest) = rest.split_at(end);
            return Some(number);
        }
    })
}

/// The rest of a text after a string. The first quote is already gone.
fn behind_string(inside: &str) -> &str {
    let mut escaped = false;
    let end = inside.find(|c| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    });
    end.map_or("", |end| &inside[end + 1..])
}

/// Whether 64 bits or a double can hold a number.
fn is_kept(number: &str) -> bool {
    let whole = !number.contains(['.', 'e', 'E']);
    if whole {
        return number.parse::<i64>().is_ok() || number.parse::<u64>().is_ok();
    }
    Decimal::parse(number).is_some_and(|decimal| decimal.digits.len() <= MOST_DIGITS)
}

/// A number as `±0.digits × 10^exponent`. The first and the last digit are not zero. Zero has no
/// digits.
#[derive(PartialEq, Eq)]
struct Decimal {
    negative: bool,
    digits: String,
    exponent: i64,
}

impl Decimal {
    /// Parses a number in JSON syntax.
    fn parse(number: &str) -> Option<Self> {
        let (mantissa, power) = match number.split_once(['e', 'E']) {
            Some((mantissa, power)) => (mantissa, power.parse::<i64>().ok()?),
            None => (number, 0),
        };
        let unsigned = mantissa.trim_start_matches('-');
        let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        let all = format!("{whole}{fraction}");
        let significant = all.trim_start_matches('0');
        let zeros = i64::try_from(all.len() - significant.len()).ok()?;
        let digits = significant.trim_end_matches('0').to_owned();
        if digits.is_empty() {
            return Some(Self { negative: false, digits, exponent: 0 });
        }
        let exponent = power.checked_add(i64::try_from(whole.len()).ok()? - zeros)?;
        Some(Self { negative: mantissa.len() > unsigned.len(), digits, exponent })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[derive(Deserialize)]
    struct Held {
        #[serde(deserialize_with = "deserialize")]
        value: Value,
    }

    fn read(value: &str) -> Option<Value> {
        let held = serde_json::from_str::<Held>(&format!(r#"{{"value": {value}}}"#));
        held.ok().map(|held| held.value)
    }

    #[test]
    fn number_that_would_be_rounded_is_refused() {
        for kept in [
            "-9223372036854775808",
            "18446744073709551615",
            "0",
            "-0",
            "0.1",
            "1.0",
            "-1.50",
            "1e22",
            "0.10000000000000001",
            "2.2250738585072014E-308",
            r#""123456789012345678901 \" 123456789012345678901""#,
            "[1, {\"a\": [2.5]}, true, null]",
        ] {
            assert_eq!(read(kept), serde_json::from_str(kept).ok(), "{kept}");
            assert!(read(kept).is_some(), "{kept}");
        }
        for lost in [
            "123456789012345678901",
            "18446744073709551616",
            "-9223372036854775809",
            "0.123456789012345678",
            "123456789012345678901e0",
            "1e400",
            r#"["\\", 123456789012345678901]"#,
            r#"{"a": {"b": 123456789012345678901}}"#,
        ] {
            assert_eq!(read(lost), None, "{lost}");
        }
    }

    #[test]
    fn pointer_matches_the_pointer_of_values() {
        let text = r#" {"a": [1, {"b/c": 12345678901234567890123}], "~": {"": null}, "d": "x"} "#;
        let value: Value = serde_json::from_str(text).unwrap();
        for path in [
            "",
            "/",
            "/a",
            "/a/0",
            "/a/00",
            "/a/2",
            "/a/-",
            "/a/1/b~1c",
            "/~0",
            "/~0/",
            "/d",
            "/d/x",
            "/x",
            "a",
            "/a/1/b/c",
        ] {
            let found = pointer(text, path).map(|text| serde_json::from_str(text).unwrap());
            assert_eq!(found.as_ref(), value.pointer(path), "{path}");
        }
        assert_eq!(pointer(text, "/a/1/b~1c"), Some("12345678901234567890123"));
        let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(pointer(&deep, &"/0".repeat(100_000)), None);
    }

    #[test]
    fn replacement_keeps_all_other_bytes() {
        let text = r#" {"a" : [1, {"b": 0.10}], "ü": 1e2, "a": [7,  {"b":1}]} "#;
        for (path, expected) in [
            ("/a/1/b", r#" {"a" : [1, {"b": 0.10}], "ü": 1e2, "a": [7,  {"b":-5}]} "#),
            ("/ü", r#" {"a" : [1, {"b": 0.10}], "ü": -5, "a": [7,  {"b":1}]} "#),
            ("", " -5 "),
        ] {
            assert_eq!(replaced(text, pointer(text, path).unwrap(), "-5"), expected, "{path}");
        }
    }

    #[test]
    fn texts_are_the_same_json_or_not() {
        for (a, b) in [
            (r#"{"a": 1, "b": [2, "x"]}"#, r#"{"b":[2,"x"],"a":1}"#),
            ("123456789012345678901", "1.23456789012345678901e20"),
            ("0.10", "1e-1"),
            ("0", "-0.0"),
            (r#""\u0061""#, r#""a""#),
            (" true ", "true"),
        ] {
            assert!(same(a, b), "{a} {b}");
        }
        for (a, b) in [
            ("123456789012345678901", "123456789012345678902"),
            (r#"{"a":{"b":123456789012345678901}}"#, r#"{"a":{"b":123456789012345678902}}"#),
            ("[0.1]", "[0.10000000000000001]"),
            ("1", "-1"),
            ("1", "10"),
            ("[1,2]", "[2,1]"),
            ("[1]", "[1,1]"),
            (r#"{"a":1}"#, r#"{"a":1,"b":1}"#),
            (r#"{"a":1}"#, r#"{"b":1}"#),
            (r#""1""#, "1"),
            ("null", "false"),
            ("[]", "{}"),
        ] {
            assert!(!same(a, b) && !same(b, a), "{a} {b}");
        }
        // Nested deeper than any stack: compared by bytes.
        let deep = |end: &str| format!("{}{end}{}", "[".repeat(10_000), "]".repeat(10_000));
        assert!(same(&deep("1"), &deep("1")) && !same(&deep("1"), &deep("2")));
    }
}
