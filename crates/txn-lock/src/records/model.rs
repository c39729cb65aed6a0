//! The stored documents: locks, instances, and the floor of the fencing tokens.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::stored::{Format, Versioned};

/// The newest format of the documents of this crate.
const NEWEST: u32 = 1;

/// The shortest reservation of a free lock for a waiting instance.
const LEAST_PATIENCE: Duration = Duration::from_millis(200);

/// Field mappings of locks and instances, for stores with mappings.
pub const MAPPINGS: &str = r#"{"dynamic":"strict","properties":{
    "kind":{"type":"keyword"},"format":{"type":"integer"},
    "category":{"type":"keyword"},"id":{"type":"keyword"},"token":{"type":"long"},
    "holder":{"dynamic":"strict","properties":{"instance":{"type":"keyword"},"name":{"type":"keyword"},
        "grant":{"type":"keyword"},"since_ms":{"type":"date","format":"epoch_millis"},"lease_ms":{"type":"long"}}},
    "released_ms":{"type":"date","format":"epoch_millis"},"abandoned":{"type":"boolean"},
    "waiting":{"dynamic":"strict","properties":{"instance":{"type":"keyword"},"pause_ms":{"type":"long"}}},
    "instance":{"type":"keyword"},"name":{"type":"keyword"},"beats":{"type":"long"},"lease_ms":{"type":"long"},
    "started_ms":{"type":"date","format":"epoch_millis"}}}"#;

/// The name of a lock: a category and an id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockName {
    pub(crate) category: String,
    pub(crate) id: String,
}

impl LockName {
    /// The category, which separates the ids of different uses.
    #[must_use]
    pub fn category(&self) -> &str {
        &self.category
    }

    /// The id within the category.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The id of the lock's document.
    pub(crate) fn document(&self) -> String {
        format!("lock:{}/{}", self.category, self.id)
    }

    /// The lock of a document. `None` if no lock can have this document.
    pub(crate) fn of_document(document: &str) -> Option<Self> {
        let (category, id) = document.strip_prefix("lock:")?.split_once('/')?;
        Self::new(category, id).ok()
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.category, self.id)
    }
}

/// The holder of a lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The id of the instance.
    pub instance: String,
    /// The name of the instance, for operators.
    pub name: String,
    /// The unique id of the grant.
    pub grant: String,
    /// The time of the grant, in milliseconds since the Unix epoch.
    ///
    /// The wall clock of the holder supplies the time.
    pub since_ms: u64,
    /// How long the instance may miss heartbeats, in milliseconds.
    pub lease_ms: u64,
}

impl Holder {
    /// How long the instance may miss heartbeats until it counts as dead.
    #[must_use]
    pub fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms)
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, instance, since_ms, .. } = self;
        write!(f, "{name} (instance {instance}), since {since_ms} ms of the Unix epoch,")
    }
}

/// A stored lock. A free lock keeps its document, because the document has the token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Lock {
    kind: LockKind,
    format: Format<NEWEST>,
    /// The category, which separates the ids of different uses.
    pub category: String,
    /// The id within the category.
    pub id: String,
    /// The token of the last grant. Each grant has a larger token.
    pub token: u64,
    /// The holder. `None` if the lock is free.
    pub holder: Option<Holder>,
    /// The time of the last release, in milliseconds since the Unix epoch.
    pub released_ms: Option<u64>,
    /// Whether the last holder did not release the lock.
    ///
    /// The process of this holder died, its lease expired, or the lock was broken.
    #[serde(default)]
    pub abandoned: bool,
    /// The waiting instances, in the order in which they receive the lock.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<Waiter>,
}

/// An instance that waits for a lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Waiter {
    /// The id of the instance.
    pub instance: String,
    /// The longest pause between two polls of the instance, in milliseconds.
    pub pause_ms: u64,
}

impl Waiter {
    pub(crate) fn new(instance: String, pause: Duration) -> Self {
        Self { instance, pause_ms: u64::try_from(pause.as_millis()).unwrap_or(u64::MAX) }
    }

    /// How long a free lock stays reserved for this instance.
    pub(crate) fn patience(&self) -> Duration {
        Duration::from_millis(self.pause_ms).saturating_mul(4).max(LEAST_PATIENCE)
    }
}

impl Lock {
    pub(crate) fn new(name: &LockName, token: u64, holder: Option<Holder>) -> Self {
        let LockName { category, id } = name.clone();
        Self {
            kind: LockKind::Lock,
            format: Format,
            category,
            id,
            token,
            holder,
            released_ms: None,
            abandoned: false,
            waiting: Vec::new(),
        }
    }

    /// The name of the lock.
    #[must_use]
    pub fn name(&self) -> LockName {
        LockName { category: self.category.clone(), id: self.id.clone() }
    }

    /// Whether this grant holds the lock.
    pub(crate) fn is_held_by(&self, grant: &str) -> bool {
        self.holder.as_ref().is_some_and(|holder| holder.grant == grant)
    }
}

/// A running lock service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Instance {
    pub(crate) kind: InstanceKind,
    pub(crate) format: Format<NEWEST>,
    pub(crate) instance: String,
    pub(crate) name: String,
    /// Grows with each heartbeat.
    pub(crate) beats: u64,
    pub(crate) lease_ms: u64,
    pub(crate) started_ms: u64,
}

/// The largest token of all deleted lock documents. New documents begin above it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Floor {
    pub(crate) kind: FloorKind,
    pub(crate) format: Format<NEWEST>,
    pub(crate) token: u64,
}

impl Floor {
    /// The id of the document.
    pub(crate) const ID: &str = "floor";

    pub(crate) fn new(token: u64) -> Self {
        Self { kind: FloorKind::Floor, format: Format, token }
    }
}

crate::document_kinds! {
    LockKind: Lock;
    InstanceKind: Instance;
    FloorKind: Floor;
}

pub(crate) type Locks = Versioned<Lock, NEWEST>;
pub(crate) type InstanceDocuments = Versioned<Instance, NEWEST>;
pub(crate) type Floors = Versioned<Floor, NEWEST>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mappings_know_every_field() {
        let holder = Holder {
            instance: "i".into(),
            name: "n".into(),
            grant: "g".into(),
            since_ms: 1,
            lease_ms: 2,
        };
        let name = LockName::new("c", "i").unwrap();
        let instance = Instance {
            kind: InstanceKind::Instance,
            format: Format,
            instance: "i".into(),
            name: "n".into(),
            beats: 1,
            lease_ms: 2,
            started_ms: 3,
        };
        let mut lock = Lock::new(&name, 1, Some(holder));
        lock.waiting.push(Waiter::new("i".into(), Duration::ZERO));
        let mappings: serde_json::Value = serde_json::from_str(MAPPINGS).unwrap();
        let written = [
            serde_json::to_value(lock).unwrap(),
            serde_json::to_value(instance).unwrap(),
            serde_json::to_value(Floor::new(1)).unwrap(),
        ];
        for document in written {
            for (field, value) in document.as_object().unwrap() {
                let mapping = &mappings["properties"][field];
                assert!(mapping.is_object(), "{field} is not mapped");
                let value = value.get(0).unwrap_or(value);
                for inner in value.as_object().into_iter().flatten().map(|(inner, _)| inner) {
                    assert!(
                        mapping["properties"][inner].is_object(),
                        "{field}.{inner} is not mapped"
                    );
                }
            }
        }
    }
}
