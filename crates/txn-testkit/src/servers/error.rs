//! The errors of servers, with remedies.

use std::io;
use std::path::{Path, PathBuf};

/// The reason why a server could not be installed, started or stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or folder could not be used.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// The verb of the failed action, such as `read`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A required program is missing on this machine.
    #[error("{what} is missing: {remedy}")]
    Missing {
        /// The name of the program.
        what: String,
        /// The remedy, a sentence for the user.
        remedy: String,
    },
    /// A command failed.
    #[error("`{command}` failed ({outcome}):\n{output}")]
    Command {
        /// The command with its arguments.
        command: String,
        /// Its exit status, or the reason why it could not run.
        outcome: String,
        /// The end of its output.
        output: String,
    },
    /// A server did not become healthy.
    #[error("{server}: {reason}; its log is {}:\n{tail}", log.display())]
    NotHealthy {
        /// The name of the server.
        server: String,
        /// The observed state.
        reason: String,
        /// The path of its log.
        log: PathBuf,
        /// The end of the log.
        tail: String,
    },
    /// Certificates could not be created.
    #[error("cannot make certificates: {0}")]
    Certificate(#[from] rcgen::Error),
    /// Any other error.
    #[error("{0}")]
    Other(String),
}

/// A result of this module.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Adds the action and the file to an I/O error.
pub(crate) trait OnPath<T> {
    fn on(self, action: &'static str, path: &Path) -> Result<T>;
}

impl<T> OnPath<T> for io::Result<T> {
    fn on(self, action: &'static str, path: &Path) -> Result<T> {
        self.map_err(|source| Error::File { action, path: path.to_owned(), source })
    }
}

/// Returns the last lines of a text, cut to terminal width.
///
/// `count` is the number of lines.
pub(crate) fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let shorten = |line: &&str| line.chars().take(200).collect::<String>();
    lines[lines.len().saturating_sub(count)..].iter().map(shorten).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_of_a_short_text_is_the_text() {
        assert_eq!(last_lines("a\n\nb\n", 9), "a\nb");
        assert_eq!(last_lines("a\nb\nc", 2), "b\nc");
    }
}
