//! A scripted server for tests.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::identity::uuid::samples::uuid;
use crate::{EsConfig, EsStore};

pub(crate) type Handler = Box<dyn Fn(&str, &str) -> (u16, String) + Send + Sync>;

/// A server that answers as its handler says, and logs the requests.
pub(crate) struct Fake {
    pub(crate) store: EsStore,
    pub(crate) asked: Arc<Mutex<Vec<String>>>,
}

pub(crate) const ROOT: &str = r#"{"version":{"number":"8.19.0"}}"#;

impl Fake {
    /// Starts a server with three indices.
    ///
    /// `handler` answers bulk requests and reads.
    ///
    /// `a` has its identity alias, `b` has none, and `d` belongs to an application.
    pub(crate) async fn new(
        handler: impl Fn(&str, &str) -> (u16, String) + Send + Sync + 'static,
    ) -> Self {
        Self::with(|config| config, handler).await
    }

    pub(crate) async fn with(
        tune: impl Fn(EsConfig) -> EsConfig,
        handler: impl Fn(&str, &str) -> (u16, String) + Send + Sync + 'static,
    ) -> Self {
        let mine = crate::identity::target::identity_alias("a", &uuid("uu"));
        let index = format!(
            r#"{{"a":{{"aliases":{{"{mine}":{{}}}},"mappings":{{}},"settings":{{"index.uuid":"{}"}}}}}}"#,
            uuid("uu").text()
        );
        let missing = r#"{"error":{"type":"index_not_found_exception","reason":"r"},"status":404}"#;
        let handler: Handler = Box::new(move |path, body| match path {
            "/" => (200, ROOT.to_owned()),
            "/a?flat_settings=true" => (200, index.clone()),
            "/b?flat_settings=true" => {
                let index = index.replace(r#"{"a":"#, r#"{"b":"#).replace(&mine, "other");
                (200, index.replace(&**uuid("uu").text(), uuid("vv").text()))
            }
            "/d?flat_settings=true" => {
                let fields = r#""mappings":{"properties":{"transaction_tid":{"type":"keyword"}}}"#;
                let index = index.replace(r#"{"a":"#, r#"{"d":"#).replace("\"a-txn-", "\"d-txn-");
                (200, index.replace(r#""mappings":{}"#, fields))
            }
            path if path.ends_with("?flat_settings=true") => (404, missing.to_owned()),
            path => handler(path, body),
        });
        Self::serving(tune, handler).await
    }

    /// Starts a server whose handler answers every request.
    pub(crate) async fn serving(tune: impl Fn(EsConfig) -> EsConfig, handler: Handler) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (handler, log) = (Arc::new(handler), asked.clone());
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(socket, handler.clone(), log.clone()));
            }
        });
        let config = EsConfig::from_url(&url).unwrap();
        let config = tune(config.with_request_timeout(Duration::from_millis(500)));
        Self { store: EsStore::connect(config).await.unwrap(), asked }
    }

    pub(crate) fn bulks(&self) -> usize {
        self.asked.lock().iter().filter(|path| path.starts_with("/_bulk")).count()
    }
}

/// Serves a connection. Status 0 closes it without an answer.
async fn serve(socket: TcpStream, handler: Arc<Handler>, log: Arc<Mutex<Vec<String>>>) {
    let mut socket = BufReader::new(socket);
    loop {
        let (mut line, mut path, mut length) = (String::new(), String::new(), 0);
        while socket.read_line(&mut line).await.unwrap_or(0) > 2 {
            let lower = line.to_ascii_lowercase();
            if let Some(value) = lower.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            } else if path.is_empty() {
                path = line.split(' ').nth(1).unwrap_or_default().to_owned();
            }
            line.clear();
        }
        if path.is_empty() {
            return;
        }
        let mut body = vec![0; length];
        socket.read_exact(&mut body).await.unwrap();
        let (status, answer) = handler(&path, std::str::from_utf8(&body).unwrap());
        log.lock().push(path);
        if status == 0 {
            return;
        }
        let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n", answer.len());
        // The client closes the connection of an answer that is too large.
        if socket.write_all(format!("{head}{answer}").as_bytes()).await.is_err() {
            return;
        }
    }
}
