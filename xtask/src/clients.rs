//! `cargo xtask clients`: the thin clients and the official ones, against the gateway.

use std::cell::RefCell;
use std::path::PathBuf;
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use txn_testkit::servers::ServerKind;

use crate::cargo::{cargo, forget_xtask, root, target};
use crate::servers::Borrowed;
use crate::steps::{self, Step};
use crate::times::Times;
use crate::{Failure, prerequisites};

/// The duration of a step that no run has measured.
const GUESS: Duration = Duration::from_secs(30);

/// The servers that the official clients compare with the gateway.
const SERVERS: [ServerKind; 3] =
    [ServerKind::Elasticsearch, ServerKind::Elasticsearch9, ServerKind::OpenSearch];

/// The tests of one language: the folder below `clients`, and its commands.
struct Suite {
    folder: &'static str,
    commands: &'static [&'static [&'static str]],
}

/// The tests of the thin clients.
const THIN: [Suite; 3] = [
    Suite {
        folder: "python",
        commands: &[
            &["python3", "-m", "venv", "build/venv"],
            &["build/venv/bin/pip", "install", "-q", "mypy==1.18.2"],
            &["build/venv/bin/mypy", "txn_gateway", "examples", "tests"],
            &["python3", "-m", "unittest"],
        ],
    },
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
            &["python3", "-m", "venv", "build/venv-9"],
            &["build/venv-9/bin/pip", "install", "-q", "-r", "requirements-9.txt"],
            &["build/venv-9/bin/python", "-m", "unittest"],
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

/// The servers of the comparisons, while their steps run.
type Servers = Rc<RefCell<Option<Borrowed>>>;

/// Builds the gateway, and runs the tests of each language.
///
/// `thin`: only the tests of the thin clients, without servers. A test that kills a node starts its
/// own server by this program.
pub(crate) fn test(thin: bool) -> Result<(), Failure> {
    let build = |name: &str, arguments| Step::command(name, GUESS, cargo(arguments));
    let mut steps = vec![build("build of the gateway", "build -p txn-cli --bin txn")];
    let servers = Servers::default();
    steps.extend(THIN.iter().flat_map(|suite| suite.steps(&servers)));
    if !thin {
        steps.push(build("build of failing gateways", "build -p txn-serve --example counted"));
        let started = servers.clone();
        steps.push(Step::work("start of the servers", 2 * GUESS, move |_| {
            prerequisites::for_servers(&SERVERS)?;
            *started.borrow_mut() = Some(Borrowed::up(&SERVERS)?);
            Ok(())
        }));
        steps.extend(OFFICIAL.iter().flat_map(|suite| suite.steps(&servers)));
    }
    steps::run(steps, &mut Times::of_this_machine())
}

impl Suite {
    fn steps<'a>(&'a self, servers: &'a Servers) -> impl Iterator<Item = Step> + 'a {
        self.commands.iter().map(|&words| {
            let name = format!("{}: {}", self.folder, words.join(" "));
            let (folder, servers) = (root().join("clients").join(self.folder), servers.clone());
            Step::work(name, GUESS, move |notes| {
                let mut command = command(folder, words);
                if let Some(servers) = &*servers.borrow() {
                    command.envs(servers.variables().iter().cloned());
                }
                steps::watch(command, notes.results)
            })
        })
    }
}

fn command(folder: PathBuf, words: &[&str]) -> Command {
    let (name, arguments) = words.split_first().unwrap_or((&"true", &[]));
    // A program of the folder itself has a path.
    let name = if name.contains('/') { folder.join(name) } else { name.into() };
    let mut command = Command::new(name);
    forget_xtask(&mut command);
    command.args(arguments).current_dir(folder);
    command.env("TXN_GATEWAY_PROGRAM", target().join("debug/txn"));
    command.env("TXN_COUNTED_PROGRAM", target().join("debug/examples/counted"));
    if let Ok(xtask) = std::env::current_exe() {
        command.env("TXN_XTASK", xtask);
    }
    command
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn each_folder_of_a_suite_exists() {
        for Suite { folder, .. } in THIN.iter().chain(&OFFICIAL) {
            assert!(root().join("clients").join(folder).is_dir(), "{folder}");
        }
    }

    #[test]
    fn counts_of_requests_are_documented() {
        let text = |path: &str| std::fs::read_to_string(root().join(path)).expect("a file");
        let counts: Value =
            serde_json::from_str(&text("clients/conformance/counts.json")).expect("JSON");
        let page = text("docs/gateway.md");
        let columns = [
            "invalid",
            "refused",
            "unknown",
            "overloaded",
            "unavailable",
            "keyed_unknown",
            "closed",
            "slow",
        ];
        for (client, counts) in counts["requests"].as_object().expect("an object") {
            let counts = columns.map(|kind| counts[kind].to_string());
            assert_eq!(counts[..2], [counts[2].clone(), counts[2].clone()], "{client}");
            let row = format!("| {client} | {} |", counts[2..].join(" | "));
            assert!(page.contains(&row), "docs/gateway.md has no row {row}");
        }
    }
}
