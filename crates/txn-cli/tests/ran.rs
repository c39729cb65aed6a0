//! Runs of the command, and checks of their output.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::LazyLock;

use serde_json::{Value, json};

/// A text in all document bodies that no output may repeat.
pub(crate) const CANARY: &str = "canary-in-a-body";

/// The result of a run of the command.
#[derive(Debug)]
pub(crate) struct Ran {
    /// The verb with its subverb, as in the published schema.
    verb: String,
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// Runs the command with these words.
    pub(crate) fn of(mut command: Command, words: &str) -> Self {
        let output: Output =
            command.args(words.split_whitespace()).output().expect("the command starts");
        Self {
            verb: verb_of(words),
            code: output.status.code().expect("ended by itself"),
            out: String::from_utf8(output.stdout).expect("UTF-8"),
            err: String::from_utf8(output.stderr).expect("UTF-8"),
        }
    }
}

impl Ran {
    /// Checks the exit code and words of the output. No output repeats a body.
    #[track_caller]
    pub(crate) fn says(self, code: i32, words: &[&str]) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        for word in words {
            assert!(self.out.contains(word), "{word:?} is missing: {}{}", self.out, self.err);
        }
        let all = format!("{}{}", self.out, self.err);
        assert!(!all.contains(CANARY), "{all}");
        self
    }

    /// Checks the exit code and the schema, and returns the JSON.
    ///
    /// The schema is the published one.
    #[track_caller]
    pub(crate) fn json(self, code: i32) -> Value {
        let ran = self.says(code, &[]);
        assert_eq!(ran.out.lines().count(), 1, "{}", ran.out);
        let value = serde_json::from_str(&ran.out).expect("JSON");
        check_schema(&ran.verb, &value);
        value
    }

    /// A failure: one line on standard error, with the remedy.
    #[track_caller]
    pub(crate) fn fails(self, code: i32, words: &str) {
        assert_eq!(self.code, code, "{self:?}");
        assert_eq!(self.err.lines().count(), 1, "{}", self.err);
        assert!(self.err.starts_with("error: ") && self.err.contains(words), "{}", self.err);
        assert!(self.err.contains("Do: "), "{}", self.err);
    }
}

impl Ran {
    /// A wrong command line.
    #[track_caller]
    pub(crate) fn fails_by_usage(self, words: &str) {
        assert_eq!(self.code, 2, "{self:?}");
        assert!(self.err.contains(words), "{}", self.err);
    }
}

/// The messages of an answer, by their codes.
#[track_caller]
pub(crate) fn codes(json: &Value) -> Vec<&str> {
    let messages = json["messages"].as_array().expect("a list");
    for message in messages {
        assert!(message["remedy"].as_str().is_some_and(|remedy| !remedy.is_empty()), "{json}");
    }
    messages.iter().filter_map(|message| message["code"].as_str()).collect()
}

/// The published schema.
static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../schema.json")).expect("the schema is JSON")
});

/// The words of the verb in a command line.
///
/// The schema names the verb by these words.
fn verb_of(words: &str) -> String {
    let definitions = SCHEMA["$defs"].as_object().expect("definitions");
    let words: Vec<&str> = words.split_whitespace().collect();
    let known =
        |words: &[&str]| Some(words.join(" ")).filter(|verb| definitions.contains_key(verb));
    let pairs = words.windows(2).find_map(known);
    pairs.or_else(|| words.iter().find_map(|word| known(&[*word]))).unwrap_or_default()
}

/// Checks an answer against the schema.
///
/// The definition is that of the verb, or that of a failure.
#[track_caller]
pub(crate) fn check_schema(verb: &str, value: &Value) {
    assert!(!verb.is_empty(), "the schema does not know the verb of {value}");
    let pointer = |name: &str| json!({ "$ref": format!("#/$defs/{}", name.replace(' ', "%20")) });
    let schema = json!({
        "$schema": SCHEMA["$schema"],
        "anyOf": [pointer(verb), pointer("failure")],
        "$defs": SCHEMA["$defs"],
    });
    let schema = jsonschema::validator_for(&schema).expect("a schema");
    let errors: Vec<String> = schema.iter_errors(value).map(|error| format!("{error:?}")).collect();
    assert!(errors.is_empty(), "{verb}: {value}\n{}", errors.join("\n"));
}

/// The command without the environment of the caller. `home`: the folder of the configuration.
pub(crate) fn command(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_txn"));
    for variable in [
        "TXN_STORE",
        "TXN_DOMAIN",
        "TXN_LEASE",
        "TXN_LOG",
        "TXN_API_KEY",
        "TXN_BEARER_TOKEN",
        "TXN_HEADERS",
        "TXN_CONFIG",
    ] {
        command.env_remove(variable);
    }
    command.env("XDG_CONFIG_HOME", home).current_dir(home);
    command
}
