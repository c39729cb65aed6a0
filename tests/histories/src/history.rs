//! Histories: requests and answers of clients, in order.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use txn_core::AttemptId;

/// An operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Micro {
    /// Appends a value to the list of a key. The value is unique in its history.
    Append {
        /// The key.
        key: u64,
        /// The value.
        value: u64,
    },
    /// Overwrites the register of a key by a unique value.
    Write {
        /// The key.
        key: u64,
        /// The value.
        value: u64,
    },
    /// Reads a key.
    Read {
        /// The key.
        key: u64,
        /// The result of the read.
        seen: Seen,
    },
}

/// The result of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Unknown (yet); or, in a register that was read, no value.
    Nil,
    /// A list. A missing list is empty.
    List(Vec<u64>),
    /// The value of a register.
    Value(u64),
}

impl Micro {
    /// The key.
    #[must_use]
    pub fn key(&self) -> u64 {
        match *self {
            Self::Append { key, .. } | Self::Write { key, .. } | Self::Read { key, .. } => key,
        }
    }

    /// The key and the value that the operation writes.
    #[must_use]
    pub fn written(&self) -> Option<(u64, u64)> {
        match *self {
            Self::Append { key, value } | Self::Write { key, value } => Some((key, value)),
            Self::Read { .. } => None,
        }
    }
}

/// `["append", k, v]`, `["w", k, v]`, `["r", k, null | [v, …] | v]`.
impl Serialize for Micro {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Append { key, value } => ("append", key, value).serialize(serializer),
            Self::Write { key, value } => ("w", key, value).serialize(serializer),
            Self::Read { key, seen } => match seen {
                Seen::Nil => ("r", key, ()).serialize(serializer),
                Seen::List(list) => ("r", key, list).serialize(serializer),
                Seen::Value(value) => ("r", key, value).serialize(serializer),
            },
        }
    }
}

impl<'de> Deserialize<'de> for Micro {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Third {
            Nil(()),
            Value(u64),
            List(Vec<u64>),
        }
        let (what, key, third) = <(String, u64, Third)>::deserialize(deserializer)?;
        match (&*what, third) {
            ("append", Third::Value(value)) => Ok(Self::Append { key, value }),
            ("w", Third::Value(value)) => Ok(Self::Write { key, value }),
            ("r", Third::Nil(())) => Ok(Self::Read { key, seen: Seen::Nil }),
            ("r", Third::List(list)) => Ok(Self::Read { key, seen: Seen::List(list) }),
            ("r", Third::Value(value)) => Ok(Self::Read { key, seen: Seen::Value(value) }),
            _ => Err(D::Error::custom(format!("{what:?} is no operation of this form"))),
        }
    }
}

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A transaction begins.
    Invoke,
    /// The transaction committed. The entry has its reads.
    Ok,
    /// The transaction changed nothing, and never will.
    Fail,
    /// The outcome is unknown. The process number is not used again.
    Info,
}

/// The outcome of a transaction that was unknown at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The transaction committed.
    Committed,
    /// The transaction did not commit, and never will.
    Aborted,
}

/// The beginning or the end of one transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The position in the history.
    pub index: u64,
    /// The kind of the entry.
    #[serde(rename = "type")]
    pub kind: Kind,
    /// A logical process, which runs one transaction after the other.
    pub process: u64,
    /// Nanoseconds since the start of the history.
    pub time: u64,
    /// Always `txn`, as Jepsen's tools expect.
    pub f: Transactional,
    /// The requested operations or, with [`Kind::Ok`], their results.
    pub value: Vec<Micro>,
    /// The reason, if the entry is not [`Kind::Ok`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The attempt with an unknown outcome, if it left a record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tid: Option<AttemptId>,
    /// The outcome that was found out later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
}

impl Entry {
    /// Whether the outcome is still unknown.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.kind == Kind::Info && self.outcome.is_none()
    }
}

/// The word `txn`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Transactional {
    /// The only value.
    #[default]
    #[serde(rename = "txn")]
    Txn,
}

/// The type of the data, which decides the check of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// Lists with unique appended values. Every read shows the order of all earlier writes.
    ListAppend,
    /// Registers that are overwritten by unique values.
    Register,
}

/// A recorded history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// The type of the data.
    pub model: Model,
    /// The entries, in order.
    pub entries: Vec<Entry>,
    /// The final content of every key, if the history was settled
    /// ([`Workload::settle`](crate::Workload::settle)).
    ///
    /// Lists are as they are, registers are lists of at most one value.
    pub finals: Option<BTreeMap<u64, Vec<u64>>>,
}

impl History {
    /// The number of entries of this kind.
    #[must_use]
    pub fn count(&self, kind: Kind) -> u64 {
        self.entries.iter().filter(|entry| entry.kind == kind).count() as u64
    }

    /// All keys that occur.
    #[must_use]
    pub fn keys(&self) -> BTreeSet<u64> {
        self.entries.iter().flat_map(|entry| &entry.value).map(Micro::key).collect()
    }

    /// Writes a JSON object per line, as `elle-cli` reads them.
    ///
    /// # Errors
    /// As the writer's.
    pub fn write_json_lines(&self, mut to: impl std::io::Write) -> std::io::Result<()> {
        for entry in &self.entries {
            serde_json::to_writer(&mut to, entry)?;
            to.write_all(b"\n")?;
        }
        Ok(())
    }

    /// Writes a JSON array of all entries, as `elle-cli` reads it.
    ///
    /// # Errors
    /// As the writer's.
    pub fn write_json(&self, to: impl std::io::Write) -> std::io::Result<()> {
        Ok(serde_json::to_writer(to, &self.entries)?)
    }

    /// Reads the output of [`History::write_json_lines`], which lacks the final contents.
    ///
    /// # Errors
    /// The text has another form.
    pub fn from_json_lines(model: Model, text: &str) -> Result<Self, serde_json::Error> {
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        let entries = lines.map(serde_json::from_str).collect::<Result<_, _>>()?;
        Ok(Self { model, entries, finals: None })
    }

    /// Writes an EDN map per line for Jepsen's tools.
    ///
    /// The tools are `elle` and those that read a `history.edn`.
    ///
    /// # Errors
    /// As the writer's.
    pub fn write_edn(&self, mut to: impl std::io::Write) -> std::io::Result<()> {
        self.entries.iter().try_for_each(|entry| writeln!(to, "{}", edn(entry)))
    }
}

fn edn(entry: &Entry) -> String {
    let kind = match entry.kind {
        Kind::Invoke => "invoke",
        Kind::Ok => "ok",
        Kind::Fail => "fail",
        Kind::Info => "info",
    };
    let value: Vec<String> = entry.value.iter().map(edn_micro).collect();
    let mut text = format!(
        "{{:index {}, :type :{kind}, :process {}, :time {}, :f :txn, :value [{}]",
        entry.index,
        entry.process,
        entry.time,
        value.join(" ")
    );
    // Writing to a string does not fail.
    if let Some(error) = &entry.error {
        // A JSON string is an EDN string.
        let _ = write!(text, ", :error {}", serde_json::Value::from(error.as_str()));
    }
    if let Some(tid) = entry.tid {
        let _ = write!(text, ", :tid \"{tid}\"");
    }
    match entry.outcome {
        Some(Outcome::Committed) => text.push_str(", :outcome :committed"),
        Some(Outcome::Aborted) => text.push_str(", :outcome :aborted"),
        None => {}
    }
    text.push('}');
    text
}

fn edn_micro(micro: &Micro) -> String {
    match micro {
        Micro::Append { key, value } => format!("[:append {key} {value}]"),
        Micro::Write { key, value } => format!("[:w {key} {value}]"),
        Micro::Read { key, seen: Seen::Nil } => format!("[:r {key} nil]"),
        Micro::Read { key, seen: Seen::Value(value) } => format!("[:r {key} {value}]"),
        Micro::Read { key, seen: Seen::List(list) } => {
            let list: Vec<String> = list.iter().map(u64::to_string).collect();
            format!("[:r {key} [{}]]", list.join(" "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(index: u64, kind: Kind, value: Vec<Micro>) -> Entry {
        Entry {
            index,
            kind,
            process: 3,
            time: 10 * index,
            f: Transactional::Txn,
            value,
            error: None,
            tid: None,
            outcome: None,
        }
    }

    fn history() -> History {
        let append = Micro::Append { key: 1, value: 7 };
        let read = |seen| Micro::Read { key: 1, seen };
        let mut last = entry(3, Kind::Info, vec![read(Seen::Nil)]);
        last.error = Some("no \"answer\"".to_owned());
        last.outcome = Some(Outcome::Aborted);
        let entries = vec![
            entry(0, Kind::Invoke, vec![append.clone(), read(Seen::Nil)]),
            entry(1, Kind::Ok, vec![append, read(Seen::List(vec![7]))]),
            entry(2, Kind::Invoke, vec![read(Seen::Nil)]),
            last,
        ];
        History { model: Model::ListAppend, entries, finals: None }
    }

    #[test]
    fn json_lines_are_read_back() {
        let mut text = Vec::new();
        history().write_json_lines(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(
            text.lines().nth(1).unwrap(),
            r#"{"index":1,"type":"ok","process":3,"time":10,"f":"txn","value":[["append",1,7],["r",1,[7]]]}"#
        );
        assert_eq!(History::from_json_lines(Model::ListAppend, &text).unwrap(), history());
    }

    #[test]
    fn a_json_array_holds_the_same_entries() {
        let mut text = Vec::new();
        history().write_json(&mut text).unwrap();
        let entries: Vec<Entry> = serde_json::from_slice(&text).unwrap();
        assert_eq!(entries, history().entries);
    }

    #[test]
    fn edn_matches_jepsen() {
        let mut text = Vec::new();
        history().write_edn(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[..2],
            [
                "{:index 0, :type :invoke, :process 3, :time 0, :f :txn, :value [[:append 1 7] [:r 1 nil]]}",
                "{:index 1, :type :ok, :process 3, :time 10, :f :txn, :value [[:append 1 7] [:r 1 [7]]]}",
            ]
        );
        let mut json = Vec::new();
        history().write_json_lines(&mut json).unwrap();
        let (from_edn, from_json) = (
            adya::History::from_edn(&text).unwrap(),
            adya::History::from_json(&String::from_utf8(json).unwrap()).unwrap(),
        );
        assert_eq!(format!("{:?}", from_edn.ops), format!("{:?}", from_json.ops));
    }
}
