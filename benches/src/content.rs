//! The content of accounts in addition to their balance.

use serde_json::{Map, Value, json};

/// The content of an account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Content {
    /// A balance.
    #[default]
    Balance,
    /// 200 bytes, of which only the balance is indexed.
    Small,
    /// 20 kB, of which only the balance is indexed.
    Large,
    /// 20 kB of searchable text.
    Text,
    /// 50 indexed fields, keywords and numbers.
    Fields,
}

impl Content {
    /// All contents except the plain balance.
    pub const SIZES: [Self; 4] = [Self::Small, Self::Large, Self::Text, Self::Fields];

    /// Returns the name for reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Balance => "a balance",
            Self::Small => "200 bytes",
            Self::Large => "20 kB, not indexed",
            Self::Text => "20 kB of text",
            Self::Fields => "50 indexed fields",
        }
    }

    /// Returns the mappings of the index.
    #[must_use]
    pub fn mappings(self) -> String {
        let long = json!({"type": "long"});
        let rest = match self {
            Self::Balance | Self::Small | Self::Large => {
                json!({"type": "object", "enabled": false})
            }
            Self::Text => json!({"properties": {"text": {"type": "text"}}}),
            Self::Fields => {
                let field = |at| match at % 2 {
                    0 => json!({"type": "keyword"}),
                    _ => long.clone(),
                };
                json!({"properties": fields(field)})
            }
        };
        json!({"properties": {"balance": long, "changes": long, "rest": rest}}).to_string()
    }

    /// Returns the content of one account without its balance.
    #[must_use]
    pub fn rest(self) -> Option<Value> {
        match self {
            Self::Balance => None,
            Self::Small => Some(json!({"text": words(150)})),
            Self::Large | Self::Text => Some(json!({"text": words(20_000)})),
            Self::Fields => {
                let value = |at| match at % 2 {
                    0 => words(16).into(),
                    _ => fastrand::u32(..).into(),
                };
                Some(fields(value))
            }
        }
    }
}

fn fields(of: impl Fn(usize) -> Value) -> Value {
    let fields: Map<_, _> = (0..50).map(|at| (format!("field-{at:02}"), of(at))).collect();
    fields.into()
}

/// Returns this many characters of words, from a vocabulary of some thousands.
fn words(length: usize) -> String {
    let mut text = String::with_capacity(length + 8);
    while text.len() < length {
        text.push_str(&format!("w{:04} ", fastrand::u32(..5_000)));
    }
    text.truncate(length);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_have_their_stated_size() {
        let bytes = |content: Content| content.rest().map(|rest| rest.to_string().len());
        assert_eq!(bytes(Content::Balance), None);
        assert!(bytes(Content::Small).is_some_and(|bytes| (150..200).contains(&bytes)));
        assert!(bytes(Content::Text).is_some_and(|bytes| (20_000..20_100).contains(&bytes)));
        let fields = Content::Fields.rest();
        assert_eq!(fields.and_then(|rest| rest.as_object().map(Map::len)), Some(50));
    }
}
