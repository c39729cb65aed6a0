//! `txn serve`, as a first user starts the gateway.
//!
//! There is no store and no domain.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::desk::Desk;
use super::ran::{Ran, check_schema, command};

/// A process that ends with the value, even if its test fails.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // A process that has ended is left alone.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A running gateway.
pub(crate) struct Gateway {
    process: Process,
    pub(crate) address: String,
    /// Reads the log. Thus the gateway never waits for a full pipe.
    log: JoinHandle<String>,
}

impl Gateway {
    fn start(directory: &Path) -> Self {
        Self::start_with(directory, &[])
    }

    pub(crate) fn start_with(directory: &Path, options: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_txn"))
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(options)
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
        let log = thread::spawn(move || {
            let mut log = String::new();
            errors.read_to_string(&mut log).expect("reads");
            log
        });
        Self { process: Process(child), address, log }
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> String {
        self.ask_with("", method, path, body)
    }

    pub(crate) fn ask_with(&self, headers: &str, method: &str, path: &str, body: &str) -> String {
        self.try_ask(headers, method, path, body).expect("answers")
    }

    /// Sends a request to a gateway that may be dead.
    pub(crate) fn try_ask(
        &self,
        headers: &str,
        method: &str,
        path: &str,
        body: &str,
    ) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(&self.address)?;
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}Connection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// Kills the gateway in the middle of its transactions.
    pub(crate) fn kill(&self) {
        let id = self.process.0.id().to_string();
        let sent = Command::new("kill").args(["-KILL", &id]).status().expect("sends a signal");
        assert!(sent.success());
    }

    /// Waits for the end of a killed gateway.
    pub(crate) fn wait(mut self) {
        self.process.0.wait().expect("ends");
        self.log.join().expect("no panic");
    }

    /// Ends the gateway by a signal. Returns its exit code and its output.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let id = self.process.0.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &id]).status().expect("sends a signal");
        assert!(sent.success());
        let status = self.process.0.wait().expect("ends");
        let mut text = String::new();
        self.process.0.stdout.take().expect("a pipe").read_to_string(&mut text).expect("reads");
        text += &self.log.join().expect("no panic");
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
    let result = r#"txn_results_total{domain="main",result="committed"} 1"#;
    for metric in ["txn_commits_total{domain=\"main\",", "txn_http_requests_total{", result] {
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

/// A client that closes its connection must not hide what its request does.
#[test]
fn request_of_a_gone_client_leaves_a_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let gateway = Gateway::start(directory.path());
    let taken = gateway.ask("POST", "/_locks/jobs/a", r#"{"owner":"one"}"#);
    assert!(taken.starts_with("HTTP/1.1 200"), "{taken}");
    let mut stream = TcpStream::connect(&gateway.address).expect("connects");
    let body = r#"{"owner":"two","wait_ms":20000}"#;
    write!(
        stream,
        "POST /_locks/jobs/a HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .expect("sends");
    let has = |text: &str| gateway.ask("GET", "/metrics", "").contains(text);
    let within = |is_so: &dyn Fn() -> bool| {
        (0..200).any(|_| {
            thread::sleep(Duration::from_millis(20));
            is_so()
        })
    };
    assert!(within(&|| has("txn_http_requests_running{domain=\"main\"} 1")));
    drop(stream);
    assert!(within(&|| has("status=\"cut\"")));
    let (code, text) = gateway.end();
    assert_eq!(code, Some(0), "{text}");
    let cut: Vec<&str> = text.lines().filter(|line| line.contains("code=\"cut\"")).collect();
    let [line] = cut.as_slice() else { panic!("{text}") };
    assert!(line.contains("POST") && line.contains("/_locks/{category}/{id}"), "{line}");
}

#[test]
fn new_token_is_printed_once_with_its_entry() {
    let made = Desk::run_alone(
        "serve token --name shop --collection stock --collection order-* --verb read --verb metrics --json",
    );
    let made = made.json(0);
    let (token, entry) = (made["token"].as_str().expect("a text"), &made["entry"]);
    let entry = entry.as_str().expect("a text");
    assert!(token.starts_with("txn_") && !entry.contains(&token[4..]), "{entry}");
    let lines = [
        "name = \"shop\"",
        "  { collections = [\"stock\",\"order-*\"], verbs = [\"read\"] },",
        "  { verbs = [\"metrics\"] },",
    ];
    for line in lines {
        assert!(entry.lines().any(|it| it == line), "{line}: {entry}");
    }
    let text = "serve token --name shop --collection stock --verb read";
    Desk::run_alone(text).says(0, &["txn_", "[[token]]", "only once"]);
    let unknown = "serve token --name shop --collection stock --verb delete";
    Desk::run_alone(unknown).fails(2, "delete");
}

#[test]
fn tokens_admit_their_holders_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let made = "serve token --name shop --collection stock --verb write --verb metrics --json";
    let made = Desk::run_alone(made).json(0);
    let (token, entry) = (made["token"].as_str().expect("a text"), made["entry"].as_str());
    let file = directory.path().join("tokens.toml");
    std::fs::write(&file, entry.expect("a text")).expect("writes");
    let gateway = Gateway::start_with(directory.path(), &["--tokens", "tokens.toml"]);
    let refused = gateway.ask("PUT", "/stock/_doc/apple", "{}");
    assert!(refused.starts_with("HTTP/1.1 401"), "{refused}");
    let login = format!("Authorization: Bearer {token}\r\n");
    let refused = gateway.ask_with(&login, "PUT", "/stock/_doc/apple", "{}");
    assert!(refused.starts_with("HTTP/1.1 403") && refused.contains("create"), "{refused}");
    let next = directory.path().join("next.toml");
    std::fs::write(&next, "[[token]]\nname = 1").expect("writes");
    std::fs::rename(&next, &file).expect("replaces");
    let is_noticed = (0..200).any(|_| {
        thread::sleep(Duration::from_millis(50));
        let metrics = gateway.ask_with(&login, "GET", "/metrics", "");
        metrics.contains("txn_http_broken_files_total{")
    });
    assert!(is_noticed, "the gateway has not read the broken file");
    let (code, text) = gateway.end();
    assert!(text.contains("WARN") && text.contains("its former content holds"), "{text}");
    assert_eq!(code, Some(0), "{text}");
    let audit: Vec<&str> = text.lines().filter(|line| line.contains("txn_serve::audit")).collect();
    assert!(audit[0].contains("token=\"\"") && audit[0].contains("status=401"), "{text}");
    assert!(audit[1].contains("token=\"shop\"") && audit[1].contains("status=403"), "{text}");
    assert!(!text.contains(&token[4..]), "{text}");
}

#[test]
fn open_gateway_listens_for_this_machine_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    for (options, missing) in [("", "--tokens"), (" --tokens tokens.toml", "--tls-certificate")] {
        std::fs::write(directory.path().join("tokens.toml"), "").expect("writes");
        let mut command = command(directory.path());
        command.current_dir(directory.path());
        let ran = Ran::of(command, &format!("serve --listen 0.0.0.0:0{options}"));
        ran.fails(2, missing);
    }
    let broken = directory.path().join("tokens.toml");
    std::fs::write(&broken, "[[token]]\nname = 1").expect("writes");
    let mut command = command(directory.path());
    command.current_dir(directory.path());
    Ran::of(command, "serve --tokens tokens.toml").fails(2, "line 2");
}

#[test]
fn operators_see_what_the_command_prints() {
    let directory = tempfile::tempdir().expect("a directory");
    let gateway = Gateway::start(directory.path());
    gateway.ask("PUT", "/stock/_doc/apple", r#"{"left":10}"#);
    let tid = "3db4dc0b-ea02-11f1-8001-6dd9f108c5aa";
    for (verb, path) in [
        ("status", "/_txn/status?limit=10"),
        ("hanging", "/_txn/hanging?older=5"),
        ("ls", "/_txn?older=1&state=pending"),
        ("locks", "/_txn/locks?limit=10"),
        ("processes", "/_txn/processes"),
        ("locks", "/_txn/locks?waiting=true"),
        ("history", "/_txn/history"),
        ("history", "/_txn/history?minutes=5&against=10"),
        ("hot", "/_txn/hot?minutes=5&limit=10"),
        ("show", &format!("/_txn/transactions/{tid}")),
        ("why", "/_txn/documents/stock/apple"),
    ] {
        let answer = gateway.ask("GET", path, "");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a body");
        assert!(head.starts_with("HTTP/1.1 200"), "{path}: {answer}");
        check_schema(verb, &serde_json::from_str(body).expect("JSON"));
    }
    assert_eq!(gateway.end().0, Some(0));
}

/// Only a process with a janitor registers itself.
#[test]
fn janitor_runs_unless_another_process_has_it() {
    let processes = |gateway: &Gateway| {
        let answer = gateway.ask("GET", "/_txn/processes", "");
        let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
        let list: serde_json::Value = serde_json::from_str(body).expect("JSON");
        list["processes"].as_array().expect("an array").len()
    };
    let directory = tempfile::tempdir().expect("a directory");
    let gateway = Gateway::start(directory.path());
    while processes(&gateway) == 0 {
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(gateway.end().0, Some(0));
    let directory = tempfile::tempdir().expect("a directory");
    let gateway = Gateway::start_with(directory.path(), &["--no-janitor"]);
    thread::sleep(Duration::from_secs(1));
    assert_eq!(processes(&gateway), 0);
    assert_eq!(gateway.end().0, Some(0));
}

#[test]
fn end_of_the_gateway_is_told_as_json() {
    let directory = tempfile::tempdir().expect("a directory");
    let gateway = Gateway::start_with(directory.path(), &["--json"]);
    gateway.ask("PUT", "/stock/_doc/apple", r#"{"left":10}"#);
    let (code, text) = gateway.end();
    assert_eq!(code, Some(0), "{text}");
    let line = text.lines().find(|line| line.starts_with('{')).expect("a line of JSON");
    let json = serde_json::from_str(line).expect("JSON");
    check_schema("serve", &json);
    assert_eq!(json["drained"], true);
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
    assert!(errors.contains("cannot listen") && errors.contains("by --listen"), "{errors}");
    assert_eq!(gateway.end().0, Some(0));
}

/// Asks for the metrics until a line appears.
#[track_caller]
fn wait_for_metric(gateway: &Gateway, line: &str) {
    let mut metrics = String::new();
    for _ in 0..100 {
        metrics = gateway.ask("GET", "/metrics", "");
        if metrics.lines().any(|found| found.starts_with(line)) {
            return;
        }
        thread::sleep(Duration::from_millis(100));
    }
    panic!("no {line:?} in {metrics}");
}

#[test]
fn gateway_counts_waiting_requests_and_events() {
    let directory = tempfile::tempdir().expect("a directory");
    let address = "http://gateway:9280/metrics";
    let options = ["--count-every", "1", "--write-contention", "--metrics-address", address];
    let gateway = Gateway::start_with(directory.path(), &options);
    assert!(gateway.ask("PUT", "/stock/_doc/apple", "{}").starts_with("HTTP/1.1 201"));
    // Events wait, because no process has a handler for them.
    let request = r#"{"operations":[{"put":{"target":{"collection":"stock","id":"pear"},"document":{}}}],
        "events":[{"topic":"mails","key":"pear","payload":{}}]}"#;
    let submitted = gateway.ask("POST", "/_requests/late", request);
    assert!(submitted.starts_with("HTTP/1.1 202"), "{submitted}");
    wait_for_metric(&gateway, r#"txn_requests{domain="main",state="created"} 1"#);
    let lag = |metrics: String| {
        let value = metrics.lines().find_map(|line| {
            line.strip_prefix("txn_requests_lag_seconds{domain=\"main\"} ")?.parse::<f64>().ok()
        });
        value.expect("the metric")
    };
    assert!(lag(gateway.ask("GET", "/metrics", "")) < 60.0);
    let processes = gateway.ask("GET", "/_txn/processes", "");
    for part in [address, r#""writes_contention":true"#] {
        assert!(processes.contains(part), "{part}: {processes}");
    }
    assert_eq!(gateway.end().0, Some(0));

    let options = ["--count-every", "1", "--processor"];
    let gateway = Gateway::start_with(directory.path(), &options);
    wait_for_metric(&gateway, r#"txn_outbox_events{domain="main"} 1"#);
    wait_for_metric(&gateway, r#"txn_requests{domain="main",state="created"} 0"#);
    assert_eq!(gateway.end().0, Some(0));
}

#[test]
fn label_of_a_gateway_has_its_own_series() {
    let directory = tempfile::tempdir().expect("a directory");
    let gateway = Gateway::start_with(directory.path(), &["--metric-label", "checkout"]);
    let metrics = gateway.ask("GET", "/metrics", "");
    let series = r#"txn_commits_total{domain="main",label="checkout"} 0"#;
    assert!(metrics.contains(series), "{metrics}");
    // The load of the process is a sample, and the writes of the start shared requests.
    wait_for_metric(&gateway, r#"txn_running_transactions{domain="main"} 0"#);
    assert_eq!(gateway.end().0, Some(0));
}

/// Receives one request on a local address. The thread returns its head and its body.
fn receive() -> (SocketAddr, JoinHandle<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    (address, thread::spawn(move || collect(&listener)))
}

fn collect(listener: &TcpListener) -> (String, Vec<u8>) {
    let (stream, _) = listener.accept().expect("a connection");
    let mut reader = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).expect("reads");
        if let Some((_, value)) =
            line.split_once(':').filter(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        {
            length = value.trim().parse().expect("a number");
        }
        if line.trim().is_empty() {
            break;
        }
        head += &line;
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("reads");
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    reader.get_mut().write_all(answer.as_bytes()).expect("answers");
    (head, body)
}

#[cfg(feature = "opentelemetry")]
#[test]
fn gateway_sends_the_spans_of_transactions() {
    let (address, collected) = receive();
    let endpoint = format!("http://{address}");
    let directory = tempfile::tempdir().expect("a directory");
    let gateway = Gateway::start_with(directory.path(), &["--otlp-endpoint", &endpoint]);
    let written = gateway.ask("PUT", "/stock/_doc/apple", r#"{"left":4815162342}"#);
    assert!(written.starts_with("HTTP/1.1 201"), "{written}");
    // The end sends the spans that wait.
    assert_eq!(gateway.end().0, Some(0));
    // Ends the collector even if no span was sent.
    let _connected = TcpStream::connect(address);
    let (head, body) = collected.join().expect("no panic");
    assert!(head.starts_with("POST /v1/traces HTTP/1.1"), "{head}");
    let has = |text: &str| body.windows(text.len()).any(|part| part == text.as_bytes());
    let spans = ["transaction", "attempt", "lock", "commit", "apply"];
    let fields = ["txn-serve", "db.namespace", "main", "outcome", "committed", "tid"];
    for text in spans.iter().chain(&fields) {
        assert!(has(text), "{text} is missing");
    }
    for canary in ["apple", "4815162342"] {
        assert!(!has(canary), "{canary} is sent");
    }
}

#[test]
fn requests_carry_the_secret_of_their_destination() {
    let (address, received) = receive();
    let origin = format!("http://{address}");
    let directory = tempfile::tempdir().expect("a directory");
    let secrets = directory.path().join("secrets");
    std::fs::create_dir_all(secrets.join(address.to_string())).expect("creates");
    std::fs::write(secrets.join(address.to_string()).join("hook"), "Bearer 4815162342\n")
        .expect("writes");
    let folder = secrets.to_str().expect("UTF-8");
    let options = ["--destination", &origin, "--secrets", folder];
    let gateway = Gateway::start_with(directory.path(), &options);
    let headers = serde_json::json!({ "authorization": { "secret": "hook" } });
    let call = serde_json::json!({
        "method": "POST", "url": format!("{origin}/sale"), "headers": headers,
    });
    let body = serde_json::json!({ "after_commit": [call] }).to_string();
    let stored = gateway.ask("POST", "/_txn/commit", &body);
    assert!(stored.starts_with("HTTP/1.1 200") && stored.contains("http-requests/"), "{stored}");
    let (head, _) = received.join().expect("no panic");
    assert!(head.starts_with("POST /sale HTTP/1.1"), "{head}");
    assert!(head.contains("authorization: Bearer 4815162342"), "{head}");
    let (code, log) = gateway.end();
    assert_eq!(code, Some(0));
    assert!(!log.contains("4815162342"), "{log}");
}

#[test]
fn unfit_destinations_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let refused = |options: &[&str], told: &str| {
        let mut command = command(directory.path());
        let output = command.args(["serve", "--listen", "127.0.0.1:0"]).args(options).output();
        let output = output.expect("the command starts");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains(told), "{options:?}: {text}");
    };
    refused(&["--destination", "hooks.example.com"], "no origin");
    refused(&["--destination", "http://a.example=10.0.0.0/99"], "network");
    refused(&["--destination", "http://a.example", "--secrets", "none-such"], "no folder");
    refused(&["--secrets", "."], "--destination");
}
