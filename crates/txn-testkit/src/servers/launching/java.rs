//! Finds the Java that runs a server.

use std::collections::BTreeSet;
use std::env;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::geteuid;

use crate::servers::error::{Error, Result};
use crate::servers::home::is_reachable;

/// The variable with the home of a Java 21 or newer.
///
/// Needed only outside of the usual folders.
const JAVA21_VARIABLE: &str = "TXN_JAVA21_HOME";

/// The Java versions that a server runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Versions {
    /// The oldest version.
    pub oldest: u32,
    /// The newest version, if newer ones are known to fail.
    pub newest: Option<u32>,
}

impl Versions {
    /// Whether a server runs on this version.
    #[must_use]
    pub fn contain(self, version: u32) -> bool {
        version >= self.oldest && self.newest.is_none_or(|newest| version <= newest)
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.newest {
            Some(newest) => write!(f, "Java {} to {newest}", self.oldest),
            None => write!(f, "Java {} or newer", self.oldest),
        }
    }
}

/// Returns the home of the oldest suitable Java of this machine.
///
/// Servers are best tested on old versions.
///
/// # Errors
/// If there is none. The message names the searched folders and the remedy.
pub fn find_java(versions: Versions) -> Result<PathBuf> {
    let found = candidates().into_iter().filter_map(|home| Some((version_of(&home)?, home)));
    found
        .filter(|(version, _)| versions.contain(*version))
        .min_by_key(|(version, _)| *version)
        .map(|(_, home)| home)
        .ok_or_else(|| Error::Missing {
            what: versions.to_string(),
            remedy: format!(
                "install one (on Debian or Ubuntu `apt-get install openjdk-{oldest}-jre-headless` \
                 where that exists, else a build from https://adoptium.net unpacked below \
                 /usr/lib/jvm), or point JAVA_HOME or {JAVA21_VARIABLE} to one; looked at those, \
                 at /usr/lib/jvm and at `java` on the PATH",
                oldest = versions.oldest,
            ),
        })
}

fn candidates() -> BTreeSet<PathBuf> {
    let named = [JAVA21_VARIABLE, "JAVA_HOME"].into_iter().filter_map(env::var_os);
    let installed = fs::read_dir("/usr/lib/jvm").into_iter().flatten().flatten();
    let on_path = env::var_os("PATH")
        .map(|path| env::split_paths(&path).collect::<Vec<_>>())
        .unwrap_or_default()
        .into_iter()
        .filter_map(|folder| Some(folder.join("java").canonicalize().ok()?.parent()?.join("..")));
    named
        .map(PathBuf::from)
        .chain(installed.map(|entry| entry.path()))
        .chain(on_path)
        .filter_map(|home| home.canonicalize().ok())
        .filter(|home| home.join("bin/java").is_file())
        // Servers that root starts run under another account.
        .filter(|home| !geteuid().is_root() || is_reachable(&home.join("bin")))
        .collect()
}

fn version_of(home: &Path) -> Option<u32> {
    let output = Command::new(home.join("bin/java")).arg("-version").output().ok()?;
    parse_version(&String::from_utf8_lossy(&output.stderr))
}

/// Parses a version, such as `openjdk version "17.0.15" 2025-04-15`.
fn parse_version(text: &str) -> Option<u32> {
    let number = text.lines().find_map(|line| line.split_once("version \"").map(|(_, n)| n))?;
    let mut parts = number.split(|c: char| !c.is_ascii_digit());
    match parts.next()?.parse().ok()? {
        // Up to Java 8 the format was 1.8.0.
        1 => parts.next()?.parse().ok(),
        version => Some(version),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        assert_eq!(parse_version("openjdk version \"17.0.15\" 2025-04-15"), Some(17));
        assert_eq!(parse_version("openjdk version \"25\" 2025-09-16 LTS"), Some(25));
        assert_eq!(parse_version("Picked up X\njava version \"1.8.0_412\""), Some(8));
        assert_eq!(parse_version("openjdk version \"24-ea\""), Some(24));
        assert_eq!(parse_version("no such file"), None);
    }

    #[test]
    fn a_range_holds_its_ends() {
        let versions = Versions { oldest: 17, newest: Some(23) };
        assert_eq!([16, 17, 23, 24].map(|v| versions.contain(v)), [false, true, true, false]);
        assert_eq!(versions.to_string(), "Java 17 to 23");
    }
}
