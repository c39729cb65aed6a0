//! Output of a command: texts, tables, JSON, and the redaction of logins.

mod redact;
mod text;

pub use redact::without_logins;
pub use text::{print, print_json, table, time_of, visible};
