//! Output of a command: tables for operators, JSON for programs.

use std::io::{self, Write};

use comfy_table::{CellAlignment, Table, presets};
use txn_lock::name::is_deceptive;
pub use txn_serve::operator::{time_of, visible};

/// Writes a text to standard output, with deceptive characters escaped.
///
/// # Errors
/// The error of standard output: the reader is gone, or the disk is full.
pub fn print(text: &str) -> io::Result<()> {
    write(&visible(text))
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    if !text.ends_with('\n') {
        out.write_all(b"\n")?;
    }
    out.flush()
}

/// Prints one line of JSON.
///
/// # Errors
/// As [`print()`].
pub fn print_json(value: &impl serde::Serialize) -> io::Result<()> {
    write(&json_line(value)?)
}

/// A line of JSON, with deceptive characters in strings as JSON escapes.
fn json_line(value: &impl serde::Serialize) -> io::Result<String> {
    let text = serde_json::to_string(value)?;
    let escaped =
        |c: char| if is_deceptive(c) { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() };
    Ok(if text.contains(is_deceptive) { text.chars().map(escaped).collect() } else { text })
}

/// Creates a table with a header. The columns in `right` are aligned to the right.
#[must_use]
pub fn table<const N: usize>(header: [&str; N], right: &[usize]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED).set_header(header);
    for column in right {
        if let Some(column) = table.column_mut(*column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn deceptive_characters_are_escaped() {
        let text = "eve\u{202e}ecila\u{2066}\u{200f}\u{1b}[31m\ta\nb";
        let shown = visible(text);
        assert_eq!(shown, "eve\\u{202e}ecila\\u{2066}\\u{200f}\\u{1b}[31m\\ta\nb");
        let plain = "Zoë Ⅷ שלום ┌─┐";
        assert_eq!(visible(plain), plain);
        let line = json_line(&json!({ "owner": text })).expect("JSON");
        assert!(line.contains("eve\\u202eecila\\u2066\\u200f"), "{line}");
        let read: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(read, json!({ "owner": text }));
    }

    #[test]
    fn times_are_shown_in_whole_seconds() {
        assert_eq!(time_of(0), "1970-01-01T00:00:00Z");
        assert_eq!(time_of(951_827_696_789), "2000-02-29T12:34:56Z");
        assert_eq!(time_of(u64::MAX), "18446744073709551615 ms after 1970");
    }
}
