//! What can go wrong with a server, in words that say what to do.

use std::io;
use std::path::{Path, PathBuf};

/// Why a server could not be installed, started or stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or folder could not be used.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system answered.
        source: io::Error,
    },
    /// Something that must be installed on this machine is not.
    #[error("{what} is missing: {remedy}")]
    Missing {
        /// What is missing.
        what: String,
        /// How to get it.
        remedy: String,
    },
    /// A command failed.
    #[error("`{command}` failed ({outcome}):\n{output}")]
    Command {
        /// The command.
        command: String,
        /// Its exit status, or why it could not be run.
        outcome: String,
        /// The end of what it printed.
        output: String,
    },
    /// A server did not become healthy.
    #[error("{server}: {reason}; its log is {}:\n{tail}", log.display())]
    NotHealthy {
        /// Which server.
        server: String,
        /// What was seen.
        reason: String,
        /// Its log.
        log: PathBuf,
        /// The end of the log.
        tail: String,
    },
    /// Certificates could not be made.
    #[error("cannot make certificates: {0}")]
    Certificate(#[from] rcgen::Error),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

/// A result of this module.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Says on which file an I/O error happened.
pub(crate) trait OnPath<T> {
    fn on(self, action: &'static str, path: &Path) -> Result<T>;
}

impl<T> OnPath<T> for io::Result<T> {
    fn on(self, action: &'static str, path: &Path) -> Result<T> {
        self.map_err(|source| Error::File { action, path: path.to_owned(), source })
    }
}

/// The last `count` lines of a text, none of them longer than a terminal is wide, about.
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
