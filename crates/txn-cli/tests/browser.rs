//! The console in a browser during a load.
//!
//! The gateway is killed in between.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::desk::Desk;
use super::driver::Browser;
use super::gateway::Gateway;

/// The screens of the pictures.
const WIDE: (u32, u32) = (1280, 860);
const SMALL: (u32, u32) = (390, 844);

/// The code of the tabulator key in the WebDriver protocol.
const TAB: &str = "\u{e004}";

/// The number of clients of the load. The second number is that of the documents that they share.
const CLIENTS: usize = 16;
const HOT: usize = 3;

/// The maximum number of kills until one leaves an uncommitted transaction.
const KILLS: usize = 30;

/// How long the other site waits for a request on a connection.
const SILENCE: Duration = Duration::from_millis(200);

/// A domain in a file, with two tokens.
struct Console {
    directory: TempDir,
    operator: String,
    load: String,
}

impl Console {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let made = |words: &str| Desk::run_alone(&format!("serve token {words} --json")).json(0);
        let operator = made("--name operator --verb operate --verb act");
        let load = made("--name load --collection * --verb read --verb write --verb create");
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let entries = text(&operator["entry"]) + &text(&load["entry"]);
        std::fs::write(directory.path().join("tokens.toml"), entries).expect("writes");
        let [operator, load] = [operator, load].map(|made| text(&made["token"]));
        Self { directory, operator, load }
    }

    fn start(&self) -> Arc<Gateway> {
        let options = ["--tokens", "tokens.toml", "--lease", "30"];
        Arc::new(Gateway::start_with(self.directory.path(), &options))
    }

    /// Asks as the operator, and returns the body of the answer.
    fn ask(&self, gateway: &Gateway, path: &str) -> Value {
        let login = format!("Authorization: Bearer {}\r\n", self.operator);
        let answer = gateway.ask_with(&login, "GET", path, "");
        let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
    }
}

/// Clients that write a few documents until they are stopped.
struct Load {
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    fn start(gateway: &Arc<Gateway>, token: &str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let client = |number: usize| {
            let (gateway, stop) = (gateway.clone(), stop.clone());
            let login = format!("Authorization: Bearer {token}\r\n");
            thread::spawn(move || {
                for round in number.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let add = |n: usize| {
                        let id = format!("item-{}", n % HOT);
                        let target = json!({ "collection": "stock", "id": id });
                        json!({ "add": { "target": target, "path": "/n", "amount": 1 } })
                    };
                    let body = json!({ "operations": [add(round), add(round + 1)] });
                    // A killed gateway answers no more.
                    let _ = gateway.try_ask(&login, "POST", "/_txn", &body.to_string());
                }
            })
        };
        Self { clients: (0..CLIENTS).map(client).collect(), stop }
    }

    fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.join().expect("no panic");
        }
    }
}

/// Kills gateways under load until one leaves an undecided transaction. Returns its successor.
fn kill_in_a_transaction(console: &Console) -> (Arc<Gateway>, String) {
    let mut gateway = console.start();
    let login = format!("Authorization: Bearer {}\r\n", console.load);
    for n in 0..HOT {
        let path = format!("/stock/_doc/item-{n}");
        let written = gateway.ask_with(&login, "PUT", &path, r#"{"n":0}"#);
        assert!(written.starts_with("HTTP/1.1 201"), "{written}");
    }
    for kill in 1..=KILLS {
        let load = Load::start(&gateway, &console.load);
        thread::sleep(Duration::from_millis(300 + 37 * u64::try_from(kill).expect("small")));
        gateway.kill();
        load.stop();
        Arc::into_inner(gateway).expect("no client is left").wait();
        gateway = console.start();
        let locks = console.ask(&gateway, "/_txn/locks");
        let dead = locks["locks"].as_array().into_iter().flatten();
        let mut dead = dead.filter(|lock| lock["standing"] == "undecided");
        if let Some(holder) = dead.next().and_then(|lock| lock["holder"].as_str()) {
            return (gateway, holder.to_owned());
        }
    }
    panic!("{KILLS} killed gateways left no undecided transaction");
}

/// The pages with pictures, and the folder for them.
struct Album<'a> {
    browser: &'a Browser,
    address: &'a str,
    folder: PathBuf,
}

impl Album<'_> {
    /// Takes pictures of a page, and checks its form.
    ///
    /// The pictures are on both screens in both schemes.
    fn take(&self, name: &str, path: &str) {
        self.browser.open(&format!("http://{}{path}", self.address));
        for (screen, size) in [("wide", WIDE), ("small", SMALL)] {
            for scheme in ["light", "dark"] {
                self.browser.show_as(size, scheme);
                let file = self.folder.join(format!("{name}-{screen}-{scheme}.png"));
                self.browser.save_picture(&file);
                let fits = "document.documentElement.scrollWidth <= window.innerWidth";
                assert_eq!(self.browser.value(fits), true, "{path} scrolls sideways as a whole");
            }
        }
        self.browser.show_as(WIDE, "light");
    }
}

#[test]
#[ignore = "needs Chromium: cargo xtask console"]
fn console_works_in_a_browser() {
    let console = Console::new();
    let (gateway, dead) = kill_in_a_transaction(&console);
    let browser = Browser::start();
    log_in(&browser, &gateway.address, &console.operator);
    let load = Load::start(&gateway, &console.load);
    let folder = std::env::var_os("TXN_PICTURES").map(PathBuf::from);
    let folder = folder.unwrap_or_else(|| console.directory.path().join("pictures"));
    std::fs::create_dir_all(&folder).expect("makes the folder");
    let album = Album { browser: &browser, address: &gateway.address, folder };

    // The load waits for the transaction of the killed gateway.
    until(
        &browser,
        &gateway.address,
        "/_console/waits",
        "document.querySelector('.holder') != null",
    );
    album.take("waits", "/_console/waits");
    album.take("stuck", "/_console/stuck");
    album.take("documents", "/_console/documents");
    album.take("dead", &format!("/_console/transaction?tid={dead}"));
    album.take("abort", &format!("/_console/abort?tid={dead}"));
    foreign_form_is_refused(&browser, &gateway.address, &dead);
    abort(&browser, &gateway.address, &dead);
    let after = console.ask(&gateway, &format!("/_txn/transactions/{dead}"));
    assert_eq!(after["verdict"], "aborted", "{after}");

    let is_drawn = "document.querySelectorAll('.chart path.line.second[d*=L]').length == 2";
    until(&browser, &gateway.address, "/_console", is_drawn);
    thread::sleep(load_time());
    album.take("overview", "/_console");
    album.take("transactions", "/_console/transactions");
    album.take("processes", "/_console/processes");
    album.take("ended-waits", "/_console/waits");
    album.take("hot", "/_console/documents");
    load.stop();
    album.take("partitions", "/_console/partitions");
    recover(&browser, &gateway.address);
    keyboard_reaches_the_content(&browser, &gateway.address);
    let complaints: Vec<String> = browser.messages();
    let expected = |message: &&String| !message.contains("403") && !message.contains("401");
    let complaints: Vec<&String> = complaints.iter().filter(expected).collect();
    assert!(complaints.is_empty(), "{complaints:?}");
    drop(browser);
    let gateway = Arc::into_inner(gateway).expect("no client is left");
    let (code, log) = gateway.end();
    assert_eq!(code, Some(0), "{log}");
    let acted: Vec<&str> = log.lines().filter(|line| line.contains("reason=")).collect();
    let [abort, recover] = acted[..] else { panic!("{acted:?}") };
    assert!(abort.contains(&dead) && abort.contains("the gateway was killed"), "{abort}");
    assert!(abort.contains("token=\"operator\"") && recover.contains("tidying up"), "{recover}");
}

/// The time of the load before the picture of the plots.
fn load_time() -> Duration {
    let seconds = std::env::var("TXN_LOAD_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(0))
}

/// Opens the console without a login, and then with one.
///
/// The login has the name and the token.
fn log_in(browser: &Browser, address: &str, token: &str) {
    browser.open(&format!("http://{address}/_console"));
    let refused = browser.text();
    assert!(!refused.contains("Open transactions"), "{refused}");
    browser.open(&format!("http://operator:{token}@{address}/_console"));
    // The browser sends the login by itself from now on.
    browser.open(&format!("http://{address}/_console"));
    let text = browser.text();
    assert!(text.contains("Token operator") && text.contains("Open transactions"), "{text}");
}

/// Reads a page again until an expression is true.
fn until(browser: &Browser, address: &str, path: &str, expression: &str) {
    for _ in 0..600 {
        browser.open(&format!("http://{address}{path}"));
        if browser.value(expression) == true {
            return;
        }
        thread::sleep(Duration::from_millis(100));
    }
    panic!("{path} never has {expression}: {}", browser.text());
}

/// A page of another site, with a form to the gateway.
struct Foreign {
    port: u16,
    server: Option<JoinHandle<()>>,
}

impl Foreign {
    fn serve(page: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
        let port = listener.local_addr().expect("an address").port();
        let server = thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("connects");
                // A browser opens connections in advance, and sends nothing there.
                stream.set_read_timeout(Some(SILENCE)).expect("a bound");
                let mut line = String::new();
                if BufReader::new(&stream).read_line(&mut line).is_err() {
                    continue;
                }
                if line.starts_with("END") {
                    return;
                }
                let length = page.len();
                let head = format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {length}\r\n\
                     Connection: close\r\n\r\n"
                );
                let _ = stream.write_all((head + &page).as_bytes());
            }
        });
        Self { port, server: Some(server) }
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        let ended = TcpStream::connect(("127.0.0.1", self.port))
            .and_then(|mut stream| stream.write_all(b"END\n"));
        if let (Ok(()), Some(server)) = (ended, self.server.take()) {
            let _ = server.join();
        }
    }
}

/// Sends the form from another site's page.
///
/// The browser knows the login.
fn foreign_form_is_refused(browser: &Browser, address: &str, tid: &str) {
    let foreign = Foreign::serve(format!(
        "<!DOCTYPE html><form method=post action=http://{address}/_console/abort>\
         <input name=tid value={tid}><input name=reason value=attack><button>Send</button></form>"
    ));
    // The first host is another origin of the same site, the second one is another site.
    for host in ["127.0.0.1", "localhost"] {
        browser.open(&format!("http://{host}:{}/", foreign.port));
        browser.click("button");
        browser.shows("403 Forbidden");
        browser.shows("Code: host");
    }
}

/// Aborts the transaction by the links and the form of the pages.
fn abort(browser: &Browser, address: &str, tid: &str) {
    browser.open(&format!("http://{address}/_console/transaction?tid={tid}"));
    browser.click("a.danger");
    browser.shows("The abort is final");
    browser.write("#reason", "the gateway was killed");
    browser.click("button.danger");
    browser.shows("aborted for good");
}

fn recover(browser: &Browser, address: &str) {
    browser.open(&format!("http://{address}/_console/recover"));
    browser.write("#reason", "tidying up");
    browser.click("button.danger");
    browser.shows("The janitor pass has ended");
}

/// The first keyboard stop is the link to the content.
///
/// The link works.
fn keyboard_reaches_the_content(browser: &Browser, address: &str) {
    browser.open(&format!("http://{address}/_console"));
    browser.press(TAB);
    assert_eq!(browser.value("document.activeElement.className"), "skip");
    assert_eq!(browser.value("document.activeElement.getBoundingClientRect().top >= 0"), true);
    browser.press("\u{e007}");
    assert_eq!(browser.value("document.activeElement.id"), "content");
    browser.press(TAB);
    assert_eq!(browser.value("document.activeElement.closest('main') != null"), true);
    let outline = browser.value("getComputedStyle(document.activeElement).outlineStyle");
    assert_eq!(outline, "solid", "the focus is visible");
}
