//! The top level of a JSON object as spans of raw text.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use serde::de::{Deserialize, DeserializeOwned, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// An error: the text is not a storable JSON object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonError(String);

impl JsonError {
    /// An error with this message.
    #[must_use]
    pub fn new(message: String) -> Self {
        Self(message)
    }
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for JsonError {}

/// A field of the top level of an object.
pub(super) struct Field<'a> {
    /// The raw key, with quotes and escapes.
    pub(super) key: &'a str,
    /// The decoded key, for comparisons.
    pub(super) name: Cow<'a, str>,
    /// The raw value.
    pub(super) value: &'a str,
}

impl Field<'_> {
    /// Reads the value of a reserved field.
    pub(super) fn parse<T: DeserializeOwned>(&self) -> Result<T, JsonError> {
        serde_json::from_str(self.value).map_err(|e| {
            JsonError(format!("the reserved field {:?} holds no valid value: {e}", self.name))
        })
    }
}

/// Replaces raw line breaks by spaces.
///
/// JSON allows raw line breaks between tokens only. A raw line feed inside a bulk request would
/// start another action.
pub fn flatten(text: &str) -> Cow<'_, str> {
    if text.contains(['\r', '\n']) {
        Cow::Owned(text.replace(['\r', '\n'], " "))
    } else {
        Cow::Borrowed(text)
    }
}

/// Returns the fields of an object, and checks the whole text.
///
/// The text must be well formed, without a duplicate key at any depth. The servers refuse duplicate
/// keys as well.
pub(super) fn fields(text: &str) -> Result<Vec<Field<'_>>, JsonError> {
    let Top(fields) = serde_json::from_str(text)
        .map_err(|e| JsonError(format!("not a storable JSON object: {e}")))?;
    Ok(fields)
}

struct Top<'a>(Vec<Field<'a>>);

/// The number of names up to which comparisons beat a sorted set.
const FEW: usize = 8;

impl<'de: 'a, 'a> Deserialize<'de> for Top<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TopVisitor;

        impl<'de> Visitor<'de> for TopVisitor {
            type Value = Top<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Top<'de>, A::Error> {
                let mut fields: Vec<Field<'de>> = Vec::with_capacity(FEW);
                let mut seen = BTreeSet::new();
                while let Some((key, value)) = map.next_entry::<&'de RawValue, &'de RawValue>()? {
                    let Name(name) =
                        serde_json::from_str(key.get()).map_err(serde::de::Error::custom)?;
                    if fields.len() == FEW {
                        seen.extend(fields.iter().map(|field| field.name.clone()));
                    }
                    let is_new = match fields.len() < FEW {
                        true => fields.iter().all(|field| field.name != name),
                        false => seen.insert(name.clone()),
                    };
                    if !is_new {
                        return Err(duplicate(&name));
                    }
                    // Scalars have no keys; only objects, perhaps within arrays, need the walk.
                    if value.get().contains('{') {
                        let walk: Result<SingleKeys, _> = serde_json::from_str(value.get());
                        walk.map_err(serde::de::Error::custom)?;
                    }
                    fields.push(Field { key: key.get(), name, value: value.get() });
                }
                Ok(Top(fields))
            }
        }

        deserializer.deserialize_map(TopVisitor)
    }
}

fn duplicate<E: serde::de::Error>(name: &str) -> E {
    E::custom(format_args!("the key {name:?} occurs twice in one object"))
}

/// A decoded key, borrowed if the text has no escapes.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Name<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Name<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameVisitor;

        impl<'de> Visitor<'de> for NameVisitor {
            type Value = Name<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Owned(text.to_owned())))
            }
        }

        deserializer.deserialize_str(NameVisitor)
    }
}

/// Any value; fails if an object has a duplicate key.
struct SingleKeys;

impl<'de> Deserialize<'de> for SingleKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Walk;

        impl<'de> Visitor<'de> for Walk {
            type Value = SingleKeys;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON value")
            }

            fn visit_bool<E>(self, _: bool) -> Result<SingleKeys, E> {
                Ok(SingleKeys)
            }

            fn visit_i64<E>(self, _: i64) -> Result<SingleKeys, E> {
                Ok(SingleKeys)
            }

            fn visit_u64<E>(self, _: u64) -> Result<SingleKeys, E> {
                Ok(SingleKeys)
            }

            fn visit_f64<E>(self, _: f64) -> Result<SingleKeys, E> {
                Ok(SingleKeys)
            }

            fn visit_str<E>(self, _: &str) -> Result<SingleKeys, E> {
                Ok(SingleKeys)
            }

            fn visit_unit<E>(self) -> Result<SingleKeys, E> {
                Ok(SingleKeys)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<SingleKeys, A::Error> {
                while seq.next_element::<SingleKeys>()?.is_some() {}
                Ok(SingleKeys)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<SingleKeys, A::Error> {
                let mut seen = BTreeSet::new();
                while let Some(name) = map.next_key::<Name<'de>>()? {
                    if seen.contains(&name) {
                        return Err(duplicate(&name.0));
                    }
                    seen.insert(name);
                    map.next_value::<SingleKeys>()?;
                }
                Ok(SingleKeys)
            }
        }

        deserializer.deserialize_any(Walk)
    }
}
