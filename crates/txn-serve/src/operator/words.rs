//! Words that the command and the console share.

use std::borrow::Cow;

use jiff::Timestamp;
use txn_core::AttemptId;
use txn_lock::name::is_deceptive;

/// A duration in milliseconds, for operators.
#[must_use]
pub fn duration(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..120_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        120_000..7_200_000 => format!("{} min", ms / 60_000),
        7_200_000..172_800_000 => format!("{} h", ms / 3_600_000),
        _ => format!("{} d", ms / 86_400_000),
    }
}

/// The process of an attempt with its application, for operators.
///
/// Without a name only the number of the process is known, which its commits have, too.
#[must_use]
pub fn process_of(tid: AttemptId, process: Option<&str>, application: Option<&str>) -> String {
    match (process, application) {
        (Some(process), Some(application)) => format!("{application} in {process}"),
        (Some(process), None) => process.to_owned(),
        (None, _) => format!("process {}", tid.process()),
    }
}

/// An attempt with its label, for operators.
#[must_use]
pub fn labelled(tid: AttemptId, label: Option<&str>) -> String {
    match label {
        Some(label) => format!("{tid} ({label})"),
        None => tid.to_string(),
    }
}

/// Escapes control characters, except line breaks, and characters of another writing direction.
#[must_use]
pub fn visible(text: &str) -> Cow<'_, str> {
    let hides = |c: char| c != '\n' && (c.is_control() || is_deceptive(c));
    if !text.contains(hides) {
        return Cow::Borrowed(text);
    }
    let shown = |c: char| if hides(c) { c.escape_default().to_string() } else { c.to_string() };
    Cow::Owned(text.chars().map(shown).collect())
}

/// Returns milliseconds since the epoch as an ISO time, in whole seconds.
#[must_use]
pub fn time_of(millis: u64) -> String {
    let seconds = i64::try_from(millis / 1_000).ok();
    let at = seconds.and_then(|seconds| Timestamp::from_second(seconds).ok());
    at.map_or_else(|| format!("{millis} ms after 1970"), |at| at.to_string())
}
