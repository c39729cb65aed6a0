//! Output of a command: texts, tables, JSON, progress, and the redaction of logins.

mod progress;
mod redact;
mod text;

pub use progress::Progress;
pub use redact::without_logins;
pub use text::{print, print_json, table, time_of, visible};
