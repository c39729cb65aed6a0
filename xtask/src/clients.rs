//! `cargo xtask clients`: the thin clients and the official ones, against the gateway.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::Failure;
use crate::cargo::{cargo, forget_xtask, root, target};
use crate::steps::{self, Step};
use crate::times::Times;

/// The duration of a step that no run has measured.
const GUESS: Duration = Duration::from_secs(30);

/// The tests of one language: the folder below `clients`, and its commands.
struct Suite {
    folder: &'static str,
    commands: &'static [&'static [&'static str]],
}

/// The tests of the thin clients.
const THIN: [Suite; 3] = [
    Suite { folder: "python", commands: &[&["python3", "-m", "unittest"]] },
    Suite { folder: "typescript", commands: &[&["npm", "ci"], &["npm", "test"]] },
    Suite { folder: "java", commands: &[&["mvn", "-q", "test"]] },
];

/// The comparisons of the official clients, and described requests.
///
/// The OpenAPI document describes these requests.
///
/// Python uses virtual environments.
const OFFICIAL: [Suite; 4] = [
    Suite {
        folder: "conformance/python",
        commands: &[
            &["python3", "-m", "venv", "build/venv"],
            &["build/venv/bin/pip", "install", "-q", "-r", "requirements-8.txt"],
            &["build/venv/bin/python", "-m", "unittest"],
        ],
    },
    Suite { folder: "conformance/javascript", commands: &[&["npm", "ci"], &["npm", "test"]] },
    Suite {
        folder: "conformance/java",
        commands: &[&["mvn", "-q", "test"], &["mvn", "-q", "test", "-Pversion-9"]],
    },
    Suite {
        folder: "conformance/openapi",
        commands: &[
            &["python3", "-m", "venv", "build/venv"],
            &["build/venv/bin/pip", "install", "-q", "-r", "requirements.txt"],
            &["build/venv/bin/python", "-m", "unittest"],
        ],
    },
];

/// Builds the gateway, and runs the tests of each language.
///
/// The comparisons also ask the servers that the environment names. A test that kills a node starts
/// its own server by this program.
pub(crate) fn test() -> Result<(), Failure> {
    let program = target().join("debug/txn");
    let mut steps =
        vec![Step::command("build of the gateway", GUESS, cargo("build -p txn-cli --bin txn"))];
    for Suite { folder, commands } in THIN.iter().chain(&OFFICIAL) {
        for words in *commands {
            let name = format!("{folder}: {}", words.join(" "));
            steps.push(Step::command(name, GUESS, command(folder, words, &program)));
        }
    }
    steps::run(steps, &mut Times::of_this_machine())
}

fn command(folder: &str, words: &[&str], program: &Path) -> Command {
    let folder = root().join("clients").join(folder);
    let (name, arguments) = words.split_first().unwrap_or((&"true", &[]));
    // A program of the folder itself has a path.
    let name = if name.contains('/') { folder.join(name) } else { name.into() };
    let mut command = Command::new(name);
    forget_xtask(&mut command);
    command.args(arguments).current_dir(folder).env("TXN_GATEWAY_PROGRAM", program);
    if let Ok(xtask) = std::env::current_exe() {
        command.env("TXN_XTASK", xtask);
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_folder_of_a_suite_exists() {
        for Suite { folder, .. } in THIN.iter().chain(&OFFICIAL) {
            assert!(root().join("clients").join(folder).is_dir(), "{folder}");
        }
    }
}
