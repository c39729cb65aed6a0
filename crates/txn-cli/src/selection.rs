//! Conditions that select dead letters.

use std::fmt;
use std::str::FromStr;

use txn_outbox::{DeadLetter, DeadLetters};

/// A condition of `--where`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    /// The topic is this one.
    Topic(String),
    /// The key is this one.
    Key(String),
    /// The last error contains this text.
    Error(String),
    /// The event was set aside at least this number of seconds ago.
    Older(u64),
}

impl Condition {
    fn holds(&self, letter: &DeadLetter, now_ms: u64) -> bool {
        match self {
            Self::Topic(topic) => letter.event.queue.topic() == topic,
            Self::Key(key) => letter.event.queue.key() == key,
            Self::Error(part) => letter.error.contains(part),
            Self::Older(seconds) => {
                now_ms.saturating_sub(letter.died_ms) >= seconds.saturating_mul(1_000)
            }
        }
    }
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (field, value) = text.split_once('=').unwrap_or((text, ""));
        match (field, value) {
            ("topic" | "key" | "error" | "older", "") => Err(format!("{field} needs a value")),
            ("topic", topic) => Ok(Self::Topic(topic.to_owned())),
            ("key", key) => Ok(Self::Key(key.to_owned())),
            ("error", part) => Ok(Self::Error(part.to_owned())),
            ("older", seconds) => seconds
                .parse()
                .map(Self::Older)
                .map_err(|_| format!("{seconds:?} is no number of seconds")),
            _ => Err("expected topic=TOPIC, key=KEY, error=TEXT or older=SECONDS".to_owned()),
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Topic(topic) => write!(f, "topic is {topic:?}"),
            Self::Key(key) => write!(f, "key is {key:?}"),
            Self::Error(part) => write!(f, "error contains {part:?}"),
            Self::Older(seconds) => write!(f, "age is at least {seconds} s"),
        }
    }
}

/// All conditions of a command. An empty selection selects everything.
#[derive(Debug)]
pub(crate) struct Selection {
    conditions: Vec<Condition>,
    now_ms: u64,
}

impl Selection {
    /// Creates a selection by conditions, at the server's time.
    pub(crate) fn new(conditions: Vec<Condition>, now_ms: u64) -> Self {
        Self { conditions, now_ms }
    }

    /// Whether all dead letters are selected.
    pub(crate) fn is_empty(&self) -> bool {
        self.conditions.is_empty()
    }

    /// Whether a dead letter meets all conditions.
    pub(crate) fn holds(&self, letter: &DeadLetter) -> bool {
        self.conditions.iter().all(|condition| condition.holds(letter, self.now_ms))
    }

    /// Removes the dead letters that are not selected.
    ///
    /// A dead letter of a newer format shows only its topic, so other conditions may hold.
    pub(crate) fn apply(&self, dead: &mut DeadLetters) {
        for condition in &self.conditions {
            match condition {
                Condition::Topic(topic) => dead.retain_topic(Some(topic)),
                Condition::Key(_) | Condition::Error(_) | Condition::Older(_) => {
                    dead.letters.retain(|letter| condition.holds(letter, self.now_ms));
                }
            }
        }
    }
}

/// ` where …`, or nothing for an empty selection.
impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let conditions: Vec<String> = self.conditions.iter().map(ToString::to_string).collect();
        match conditions.is_empty() {
            true => Ok(()),
            false => write!(f, " where {}", conditions.join(" and ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_parsed_and_shown() {
        let shown = |text: &str| text.parse::<Condition>().map(|condition| condition.to_string());
        assert_eq!(shown("topic=mails").as_deref(), Ok("topic is \"mails\""));
        assert_eq!(shown("key=a=b").as_deref(), Ok("key is \"a=b\""));
        assert_eq!(shown("error=no such").as_deref(), Ok("error contains \"no such\""));
        assert_eq!(shown("older=60").as_deref(), Ok("age is at least 60 s"));
        for wrong in ["topic", "topic=", "older=1h", "id=7", ""] {
            assert!(shown(wrong).is_err(), "{wrong}");
        }
    }
}
