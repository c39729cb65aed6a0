//! `txn serve`, as a first user starts it: without a store and without a domain.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A running gateway.
struct Gateway {
    child: Child,
    address: String,
    errors: BufReader<std::process::ChildStderr>,
}

impl Gateway {
    fn start(directory: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_txn"))
            .args(["serve", "--listen", "127.0.0.1:0"])
            .current_dir(directory)
            .env_remove("TXN_STORE")
            .env_remove("TXN_DOMAIN")
            .env("TXN_LOG", "txn_serve::audit=info")
            .env("NO_COLOR", "1")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut errors = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut line = String::new();
        errors.read_line(&mut line).expect("reads");
        let (_, address) = line.trim().rsplit_once("http://").expect("an address");
        let address = address.to_owned();
        Self { child, address, errors }
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("connects");
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .expect("sends");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answers");
        answer
    }

    /// Ends the gateway by a signal. Returns its exit code and its output.
    fn end(mut self) -> (Option<i32>, String) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &id]).status().expect("sends a signal");
        assert!(sent.success());
        let status = self.child.wait().expect("ends");
        let mut text = String::new();
        self.child.stdout.take().expect("a pipe").read_to_string(&mut text).expect("reads");
        self.errors.read_to_string(&mut text).expect("reads");
        (status.code(), text)
    }
}

#[test]
fn gateway_starts_without_options_and_keeps_documents() {
    let directory = tempfile::tempdir().expect("a directory");
    let gateway = Gateway::start(directory.path());
    let written = gateway.ask("PUT", "/stock/_doc/apple", r#"{"left":10}"#);
    assert!(written.starts_with("HTTP/1.1 201"), "{written}");
    let metrics = gateway.ask("GET", "/metrics", "");
    for metric in ["txn_commits_total{domain=\"main\",", "txn_http_requests_total{"] {
        assert!(metrics.contains(metric), "{metrics}");
    }
    let search = gateway.ask("GET", "/stock/_search", "");
    assert!(search.starts_with("HTTP/1.1 501"), "{search}");
    let (code, text) = gateway.end();
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("All running requests were answered"), "{text}");
    let audit: Vec<&str> = text.lines().filter(|line| line.contains("txn_serve::audit")).collect();
    let [write, search] = audit.as_slice() else { panic!("{text}") };
    for part in ["127.0.0.1", "PUT", "/{index}/_doc/{id}", "stock", "documents=1", "status=201"] {
        assert!(write.contains(part), "{part}: {write}");
    }
    assert!(search.contains("status=501") && search.contains("needs_server"), "{search}");
    assert!(!text.contains("apple") && !text.contains("left"), "{text}");
    let gateway = Gateway::start(directory.path());
    let found = gateway.ask("GET", "/stock/_doc/apple", "");
    assert!(found.contains(r#""_source":{"left":10}"#), "{found}");
    assert_eq!(gateway.end().0, Some(0));
}

#[test]
fn taken_address_is_a_failure_with_a_remedy() {
    let directory = tempfile::tempdir().expect("a directory");
    let gateway = Gateway::start(directory.path());
    let second = Command::new(env!("CARGO_BIN_EXE_txn"))
        .args(["serve", "--listen", &gateway.address])
        .current_dir(directory.path())
        .env_remove("TXN_STORE")
        .env_remove("TXN_DOMAIN")
        .output()
        .expect("runs");
    let errors = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!(second.status.code(), Some(2), "{errors}");
    assert!(errors.contains("cannot listen") && errors.contains("Do: "), "{errors}");
    assert_eq!(gateway.end().0, Some(0));
}
