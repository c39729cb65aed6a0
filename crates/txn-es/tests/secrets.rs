//! No result and no log repeats the login.
//!
//! The server of the test repeats the login in every answer.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use txn_es::{EsConfig, EsStore};
use txn_store::{CollectionSpec, Filter, Key, Role, Store, Version, Write, WriteOp};

/// The secrets, in each form that can be sent or repeated.
const SECRETS: [&str; 4] = ["hunter2", "c2hvcDpodW50ZXIy", "c2hvcDpod", "gateway-key-1"];

const REASON: &str = "unable to authenticate user [shop:hunter2] for REST request [Basic c2hvcDpodW50ZXIy], \
                      x-key [gateway-key-1]";

/// How the server answers after the store has connected.
const MODES: [&str; 9] = ["400", "401", "403", "404", "409", "413", "429", "503", "items"];

fn error(status: &str) -> String {
    let kind = match status {
        "400" => "illegal_argument_exception",
        "404" => "resource_not_found_exception",
        "409" => "version_conflict_engine_exception",
        "429" => "circuit_breaking_exception",
        "503" => "cluster_block_exception",
        _ => "security_exception",
    };
    format!(
        r#"{{"error":{{"type":"{kind}","reason":"{REASON}","caused_by":{{"type":"x","reason":"{REASON}"}}}},"status":{status}}}"#
    )
}

/// A hostile server that spoils most answers.
///
/// The server finds the index, and adds aliases.
fn answer(mode: &str, path: &str) -> (String, String) {
    let ok = |text: String| ("200".to_owned(), text);
    if mode != "items" {
        return (mode.to_owned(), error(mode));
    }
    let inner = &error("403")[1..];
    let inner = &inner[..inner.rfind(",\"status\"").expect("a status")];
    match path {
        path if path.starts_with("/_bulk") => {
            let item = |action| {
                format!(r#"{{"{action}":{{"_index":"a","_id":"1","status":403,{inner}}}}}"#)
            };
            ok(format!(r#"{{"items":[{},{}]}}"#, item("create"), item("update")))
        }
        path if path.starts_with("/_mget") => {
            ok(format!(r#"{{"docs":[{{"_index":"a","_id":"1",{inner}}}]}}"#))
        }
        "/_aliases" => ok(r#"{"acknowledged":true}"#.to_owned()),
        path if path.starts_with("/a?") => {
            let settings = r#""settings":{"index.uuid":"uMz0YBdmS5i9vKTh9RA3_g"}"#;
            ok(format!(r#"{{"a":{{"aliases":{{}},"mappings":{{}},{settings}}}}}"#))
        }
        _ => ("403".to_owned(), error("403")),
    }
}

fn serve(socket: TcpStream, mode: &AtomicUsize) -> Option<()> {
    let mut reader = BufReader::new(socket.try_clone().ok()?);
    let mut writer = socket;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let path = line.split(' ').nth(1)?.to_owned();
        let mut length = 0;
        loop {
            let mut header = String::new();
            reader.read_line(&mut header).ok()?;
            let header = header.trim().to_lowercase();
            if header.is_empty() {
                break;
            }
            if let Some(value) = header.strip_prefix("content-length: ") {
                length = value.parse().ok()?;
            }
        }
        reader.read_exact(&mut vec![0; length]).ok()?;
        let (status, body) = match mode.load(Ordering::SeqCst) {
            0 => ("200".to_owned(), r#"{"version":{"number":"8.19.0"}}"#.to_owned()),
            n => answer(MODES[n - 1], &path),
        };
        let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n", body.len());
        writer.write_all((head + &body).as_bytes()).ok()?;
    }
}

/// Returns the results of each method of the contract.
async fn told(store: &EsStore) -> BTreeMap<&'static str, String> {
    let key = Key::new("a", "1");
    let keys = std::slice::from_ref(&key);
    let write = |op| Write::new(key.clone(), op);
    let version = Version::new(1, 1);
    let writes = [write(WriteOp::Create("{}".into())), write(WriteOp::Verify(Some(version)))];
    let spec = |role, create| CollectionSpec { name: "a".to_owned(), role, create, mappings: None };
    let specs =
        [spec(Role::Data { owner: Some("shop".to_owned()) }, true), spec(Role::Partition, false)];
    let mut opened = String::new();
    for spec in &specs {
        opened += &format!("{:?}", store.open_collection(spec).await);
    }
    BTreeMap::from([
        ("limits", format!("{:?}", store.limits())),
        ("request_timeout", format!("{:?}", store.request_timeout())),
        ("get_many", format!("{:?}", store.get_many(keys).await)),
        ("read_primary", format!("{:?}", store.read_primary(keys).await)),
        ("write_many", format!("{:?}", store.write_many(&writes).await)),
        ("refresh", format!("{:?}", store.refresh("a").await)),
        ("scan", format!("{:?}", store.scan("a", &Filter::All, 9, None).await.err())),
        ("open_collection", opened),
        ("identify", format!("{:?}", store.identify("a").await)),
        ("drop_collection", format!("{:?}", store.drop_collection("a").await)),
        ("add_alias", format!("{:?}", store.add_alias("b", "a").await)),
        ("block_writes", format!("{:?}", store.block_writes("a", true).await)),
        ("list_collections", format!("{:?}", store.list_collections("a").await)),
        ("release_collection", format!("{:?}", store.release_collection("a").await)),
        ("server_time", format!("{:?}", store.server_time().await)),
    ])
}

/// Returns the methods of the contract, from its source.
fn methods() -> BTreeSet<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../txn-store/src/lib.rs");
    let source = std::fs::read_to_string(path).expect("the contract is beside this crate");
    let contract = source.split("pub trait Store").nth(1).expect("the contract");
    let contract = contract.split("\n}\n").next().expect("its end");
    let names = contract.split("fn ").skip(1).filter_map(|rest| rest.split('(').next());
    names.map(str::to_owned).collect()
}

/// All log lines, at every level.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("not poisoned").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn no_method_repeats_the_login_in_results_or_logs() {
    let log = Log::default();
    let writer = log.clone();
    tracing_subscriber::fmt()
        .with_env_filter("trace")
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .init();
    let mut hidden: BTreeMap<&str, usize> = BTreeMap::new();
    for mode in 1..=MODES.len() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://shop:hunter2@{}", listener.local_addr().expect("its address"));
        let now = Arc::new(AtomicUsize::new(0));
        let shared = now.clone();
        std::thread::spawn(move || {
            while let Ok((socket, _)) = listener.accept() {
                let mode = shared.clone();
                std::thread::spawn(move || serve(socket, &mode));
            }
        });
        let config = EsConfig::from_url(&url).expect("an address");
        let config = config.with_header("x-key", "gateway-key-1");
        let store = EsStore::connect(config.clone()).await.expect("connects");
        now.store(mode, Ordering::SeqCst);
        let mut all = told(&store).await;
        let asked: BTreeSet<String> = all.keys().map(|name| (*name).to_owned()).collect();
        assert_eq!(asked, methods(), "a method of the contract is not asked here");
        all.insert("connect", format!("{:?}", EsStore::connect(config).await.err()));
        all.insert("Debug", format!("{store:?} {store:#?}"));
        for (method, text) in all {
            for secret in SECRETS {
                assert!(!text.contains(secret), "{method}, {}: {text}", MODES[mode - 1]);
            }
            *hidden.entry(method).or_default() += usize::from(text.contains("***"));
        }
    }
    // Each method that asks a server had a login to hide.
    hidden.retain(|method, times| {
        *times == 0 && !matches!(*method, "limits" | "request_timeout" | "Debug")
    });
    assert!(hidden.is_empty(), "no answer repeated the login to {hidden:?}");
    let log = String::from_utf8_lossy(&log.0.lock().expect("not poisoned")).into_owned();
    assert!(log.contains("answered"), "nothing is logged");
    for secret in SECRETS {
        let line = log.lines().find(|line| line.contains(secret));
        assert!(line.is_none(), "logged: {line:?}");
    }
}
