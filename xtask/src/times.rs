//! The last durations of steps on this machine.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use crate::cargo::target;

/// The seconds of each completed step, by its name.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Times {
    /// The file with the times; `None` in tests.
    file: Option<PathBuf>,
    seconds: BTreeMap<String, f64>,
}

impl Times {
    /// Reads the times of the last run. A missing or unreadable file gives none.
    pub(crate) fn of_this_machine() -> Self {
        let file = target().join("xtask/steps.json");
        let text = fs::read_to_string(&file).unwrap_or_default();
        Self { file: Some(file), ..Self::parse(&text) }
    }

    fn parse(text: &str) -> Self {
        let value: Value = serde_json::from_str(text).unwrap_or_default();
        let entries = value.as_object().into_iter().flatten();
        let sound = |seconds: &f64| Duration::try_from_secs_f64(*seconds).is_ok();
        let seconds = entries
            .filter_map(|(name, seconds)| Some((name.clone(), seconds.as_f64().filter(sound)?)));
        Self { file: None, seconds: seconds.collect() }
    }

    fn text(&self) -> String {
        format!("{:#}\n", serde_json::json!(self.seconds))
    }

    /// Returns the last duration.
    pub(crate) fn last(&self, name: &str) -> Option<Duration> {
        self.seconds.get(name).map(|seconds| Duration::from_secs_f64(*seconds))
    }

    /// Records a duration. An unwritable file only costs the next run its estimates.
    pub(crate) fn note(&mut self, name: &str, took: Duration) {
        let tenths = (took.as_secs_f64() * 10.0).round() / 10.0;
        self.seconds.insert(name.to_owned(), tenths);
        if let Some(file) = &self.file {
            let _ = file.parent().map(fs::create_dir_all);
            let _ = fs::write(file, self.text());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_round_trip() {
        let mut times = Times::default();
        times.note("lints", Duration::from_millis(12_345));
        times.note("tests", Duration::from_secs(600));
        assert_eq!(Times::parse(&times.text()), times);
        assert_eq!(times.last("lints"), Some(Duration::from_millis(12_300)));
        assert_eq!(times.last("format"), None);
    }

    #[test]
    fn invalid_times_are_ignored() {
        for text in ["", "no json", "[1]", r#"{"lints": "long"}"#, r#"{"lints": -1}"#] {
            assert_eq!(Times::parse(text), Times::default(), "{text}");
        }
    }
}
