//! Histories: what clients asked for, and what they were told, in the order in which it happened.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use txn_core::AttemptId;

/// One operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Micro {
    /// Appends a value, unique in its history, to the list of a key.
    Append {
        /// The key.
        key: u64,
        /// The value.
        value: u64,
    },
    /// Overwrites the register of a key by a value that is unique in its history.
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
        /// What was read.
        seen: Seen,
    },
}

/// What a read returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Not known (yet); or, of a register that was read, that there is none.
    Nil,
    /// A list. One that does not exist is empty.
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

    /// What it writes: key and value.
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

/// What an entry tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A transaction begins.
    Invoke,
    /// It committed, and this is what it read.
    Ok,
    /// It changed nothing, and never will.
    Fail,
    /// It is not known what became of it. Its process number is not used again.
    Info,
}

/// What a transaction of unknown outcome turned out to be, in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It committed.
    Committed,
    /// It did not, and never will.
    Aborted,
}

/// The beginning or the end of one transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its place in the history.
    pub index: u64,
    /// What it tells.
    #[serde(rename = "type")]
    pub kind: Kind,
    /// Who: a logical process, which does one thing after the other.
    pub process: u64,
    /// Nanoseconds since the history began.
    pub time: u64,
    /// Always `txn`: what Jepsen's tools look for.
    pub f: Transactional,
    /// What is asked for or, with [`Kind::Ok`], what came of it.
    pub value: Vec<Micro>,
    /// Why it is no [`Kind::Ok`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The attempt whose outcome is unknown, if it left a record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tid: Option<AttemptId>,
    /// What became of an unknown one after all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
}

/// The word `txn`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Transactional {
    /// The only one.
    #[default]
    #[serde(rename = "txn")]
    Txn,
}

/// What is written and read: decides how a history is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// Lists to which unique values are appended. Every read shows the order of all writes before it.
    ListAppend,
    /// Registers that are overwritten by unique values.
    Register,
}

/// A recorded history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// What its transactions do.
    pub model: Model,
    /// What happened, in order.
    pub entries: Vec<Entry>,
    /// What every key held in the end, if it was settled
    /// ([`Workload::settle`](crate::Workload::settle)): lists as they are, registers as lists of at most one value.
    pub finals: Option<BTreeMap<u64, Vec<u64>>>,
}

impl History {
    /// How many transactions ended so.
    #[must_use]
    pub fn count(&self, kind: Kind) -> u64 {
        self.entries.iter().filter(|entry| entry.kind == kind).count() as u64
    }

    /// All keys that occur.
    #[must_use]
    pub fn keys(&self) -> BTreeSet<u64> {
        self.entries.iter().flat_map(|entry| &entry.value).map(Micro::key).collect()
    }

    /// One JSON object per line, as `elle-cli` reads them.
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

    /// One JSON array of all entries, as `elle-cli` reads it.
    ///
    /// # Errors
    /// As the writer's.
    pub fn write_json(&self, to: impl std::io::Write) -> std::io::Result<()> {
        Ok(serde_json::to_writer(to, &self.entries)?)
    }

    /// Reads what [`History::write_json_lines`] wrote. What the keys held in the end is not in it.
    ///
    /// # Errors
    /// The text is something else.
    pub fn from_json_lines(model: Model, text: &str) -> Result<Self, serde_json::Error> {
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        let entries = lines.map(serde_json::from_str).collect::<Result<_, _>>()?;
        Ok(Self { model, entries, finals: None })
    }

    /// One EDN map per line, as Jepsen's tools read them (`elle`, `history.edn`).
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
    fn edn_is_what_jepsen_writes() {
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
