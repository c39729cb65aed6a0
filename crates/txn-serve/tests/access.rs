//! Logins by token, and rights on each path of the gateway.

use std::path::PathBuf;
use std::sync::Arc;

use hyper::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use txn_core::Raw;
use txn_core::store::MemoryStore;
use txn_serve::{NewToken, ServeConfig, Tokens};

use super::desk::{Answer, Desk, add, text, told};

/// A file of tokens. The tokens have the order of their entries.
pub(crate) struct File {
    directory: TempDir,
    pub(crate) tokens: Vec<String>,
    entries: String,
}

impl File {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        Self { directory, tokens: Vec::new(), entries: String::new() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("tokens.toml")
    }

    /// Adds a token, and returns it.
    pub(crate) fn add(&mut self, name: &str, collections: &[&str], verbs: &[&str]) -> String {
        let texts = |of: &[&str]| of.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        let made = NewToken::new(name, &texts(collections), &texts(verbs)).expect("a token");
        self.entries += &made.entry;
        self.tokens.push(made.token.clone());
        std::fs::write(self.path(), &self.entries).expect("writes");
        made.token
    }

    pub(crate) fn open(&self) -> Tokens {
        Tokens::open(self.path()).expect("tokens")
    }
}

/// A gateway whose callers need tokens. The domain has `stock`, `orders` and `secret`.
async fn desk(file: &File, config: ServeConfig) -> Desk {
    let config = config.with_tokens(Some(file.open()));
    let desk = Desk::with(Arc::new(MemoryStore::new()), config).await;
    for name in ["stock", "orders", "secret"] {
        desk.domain.create_collection::<Raw>(name, None).await.expect("creates");
    }
    desk
}

/// Sends a request with a token. A list of values is a bulk.
pub(crate) async fn ask(
    desk: &Desk,
    token: &str,
    method: Method,
    path: &str,
    body: &Value,
) -> Answer {
    let login = format!("Bearer {token}");
    let headers = [("authorization", &*login), ("content-type", "application/json")];
    let body = match body {
        Value::Null => String::new(),
        Value::Array(lines) => text(lines),
        body => body.to_string(),
    };
    desk.send(method, path, &headers, body).await
}

/// A refusal for lack of a right. It names the verb, and the collection if there is one.
#[track_caller]
pub(crate) fn lacks(answer: Answer, verb: &str, collection: Option<&str>) {
    let answer = answer.fails(403, "forbidden");
    assert_eq!(*told(&answer, "verb"), verb, "{answer}");
    assert_eq!(told(&answer, "collection").as_str(), collection, "{answer}");
    let detail = answer["error"]["reason"].as_str().expect("a detail");
    assert!(detail.contains(verb) && detail.contains(collection.unwrap_or("")), "{detail}");
}

#[tokio::test]
async fn request_without_a_known_token_is_401() {
    let mut file = File::new();
    let token = file.add("shop", &["*"], &["read", "write"]);
    let desk = desk(&file, ServeConfig::default()).await;
    let wrong = format!("{}0", &token[..token.len() - 1]);
    let wrong = if wrong == token { format!("{}1", &token[..token.len() - 1]) } else { wrong };
    let encoded = |text: String| base64(&text);
    for login in [
        None,
        Some(String::new()),
        Some("Bearer".to_owned()),
        Some(format!("Bearer {wrong}")),
        Some(token.clone()),
        Some(format!("Basic {}", encoded(format!("other:{token}")))),
        Some(format!("ApiKey {}", encoded(format!("shop:{wrong}")))),
        Some(format!("Bearer {token}, Bearer {token}")),
    ] {
        for path in ["/stock/_doc/a", "/_txn/x", "/openapi.json", "/", "/no/such/path", "/metrics"]
        {
            let headers: Vec<(&str, &str)> =
                login.iter().map(|login| ("authorization", &**login)).collect();
            let answer = desk.send(Method::GET, path, &headers, "").await;
            assert_eq!(answer.header("www-authenticate"), "Bearer realm=\"txn\"");
            assert!(!answer.text.contains(&token) && !answer.text.contains(&wrong));
            answer.fails(401, "login");
        }
    }
    let twice = format!("Bearer {token}");
    let headers = [("authorization", &*twice), ("authorization", &*twice)];
    desk.send(Method::GET, "/stock/_doc/a", &headers, "").await.fails(401, "login");
    for path in ["/healthz", "/readyz"] {
        desk.get(path).await.is(200);
    }
}

fn base64(text: &str) -> String {
    use base64::Engine;
    base64::prelude::BASE64_STANDARD.encode(text)
}

#[tokio::test]
async fn schemes_of_official_clients_log_in() {
    let mut file = File::new();
    let token = file.add("shop", &["stock"], &["read", "write"]);
    let desk = desk(&file, ServeConfig::default()).await;
    let pair = base64(&format!("shop:{token}"));
    for login in [
        format!("Bearer {token}"),
        format!("bearer {token}"),
        format!("Basic {pair}"),
        format!("ApiKey {pair}"),
        format!("apikey {pair}"),
    ] {
        let headers = [("authorization", &*login)];
        desk.send(Method::GET, "/stock/_doc/a", &headers, "").await.is(404);
        desk.send(Method::GET, "/", &headers, "").await.is(200);
        desk.send(Method::GET, "/openapi.json", &headers, "").await.is(200);
    }
}

#[tokio::test]
async fn each_document_path_needs_its_verb() {
    let mut file = File::new();
    let reader = file.add("reader", &["stock"], &["read"]);
    let writer = file.add("writer", &["stock"], &["write"]);
    let desk = desk(&file, ServeConfig::default()).await;
    let content = json!({ "n": 1 });
    let bulk = json!([{ "index": { "_index": "stock", "_id": "b" } }, content]);
    let writes = [
        (Method::PUT, "/stock/_doc/a", content.clone()),
        (Method::POST, "/stock/_doc", content.clone()),
        (Method::PUT, "/stock/_create/c", content.clone()),
        (Method::POST, "/stock/_update/a", json!({ "doc": { "n": 2 } })),
        (Method::POST, "/_bulk", bulk.clone()),
        (Method::PUT, "/stock/_bulk", bulk),
        (Method::POST, "/_txn", json!({ "operations": [add("stock", "a", 1)] })),
        (Method::POST, "/_txn/commit", json!({ "operations": [add("stock", "a", 1)] })),
        (Method::DELETE, "/stock/_doc/a", Value::Null),
    ];
    for (method, path, body) in writes {
        let refused = ask(&desk, &reader, method.clone(), path, &body).await;
        lacks(refused, "write", Some("stock"));
        let done = ask(&desk, &writer, method, path, &body).await;
        assert!(done.status.is_success(), "{path}: {}", done.text);
    }
    let target = json!({ "collection": "stock", "id": "b" });
    let read = json!({ "targets": [target] });
    let token = ask(&desk, &reader, Method::POST, "/_txn/read", &read).await.is(200);
    let token = token["documents"][0]["token"].clone();
    let commit = json!({ "reads": [{ "target": target, "token": token }] });
    let condition = json!({ "expect": { "target": target, "that": { "exists": true } } });
    let expect = json!({ "operations": [condition] });
    let reads = [
        (Method::GET, "/stock/_doc/b", Value::Null),
        (Method::HEAD, "/stock/_doc/b", Value::Null),
        (Method::GET, "/stock/_source/b", Value::Null),
        (Method::HEAD, "/stock", Value::Null),
        (Method::POST, "/_txn/read", read),
        (Method::POST, "/_txn/commit", commit),
        (Method::POST, "/_txn", expect),
    ];
    for (method, path, body) in reads {
        let refused = ask(&desk, &writer, method.clone(), path, &body).await;
        lacks(refused, "read", Some("stock"));
        let done = ask(&desk, &reader, method, path, &body).await;
        assert!(done.status.is_success(), "{path}: {}", done.text);
    }
}

#[tokio::test]
async fn rights_hold_for_no_other_collection() {
    let mut file = File::new();
    let token = file.add("shop", &["stock", "order*"], &["read", "write", "create"]);
    let desk = desk(&file, ServeConfig::default().with_create_collections(true)).await;
    for path in ["/secret/_doc/a", "/%73ecret/_doc/a", "/secret%20/_doc/a", "/stock,secret/_doc/a"]
    {
        let answer = ask(&desk, &token, Method::GET, path, &Value::Null).await;
        assert_eq!(answer.status, 403, "{path}: {}", answer.text);
        let answer = ask(&desk, &token, Method::PUT, path, &json!({})).await;
        assert_eq!(answer.status, 403, "{path}: {}", answer.text);
    }
    // An encoded name has the rights of the decoded one.
    ask(&desk, &token, Method::PUT, "/%73tock/_doc/a", &json!({ "n": 1 })).await.is(201);
    ask(&desk, &token, Method::PUT, "/orders-2/_doc/a", &json!({})).await.is(201);
    let item = |index: &str| json!({ "index": { "_index": index, "_id": "m" } });
    let mixed = json!([item("stock"), {}, item("secret"), {}]);
    lacks(ask(&desk, &token, Method::POST, "/_bulk", &mixed).await, "write", Some("secret"));
    // An action without an id is no exception.
    let new = json!([item("stock"), {}, { "create": { "_index": "secret" } }, {}]);
    lacks(ask(&desk, &token, Method::POST, "/_bulk", &new).await, "write", Some("secret"));
    let delete = json!([item("stock"), {}, { "delete": { "_index": "secret", "_id": "m" } }]);
    lacks(ask(&desk, &token, Method::POST, "/_bulk", &delete).await, "write", Some("secret"));
    let new = ask(&desk, &token, Method::POST, "/secret/_doc", &json!({})).await;
    lacks(new, "write", Some("secret"));
    // The index of an action takes precedence over the path.
    let inner = json!([item("secret"), {}]);
    lacks(ask(&desk, &token, Method::POST, "/stock/_bulk", &inner).await, "write", Some("secret"));
    let operations = json!({ "operations": [add("stock", "a", 1), add("secret", "a", 1)] });
    lacks(ask(&desk, &token, Method::POST, "/_txn", &operations).await, "write", Some("secret"));
    let target = |name: &str| json!({ "collection": name, "id": "a" });
    let read = json!({ "targets": [target("stock"), target("secret")] });
    lacks(ask(&desk, &token, Method::POST, "/_txn/read", &read).await, "read", Some("secret"));
    let reads = json!([{ "target": target("secret"), "token": "absent" }]);
    let commit = json!({ "reads": reads, "operations": [add("stock", "a", 1)] });
    lacks(ask(&desk, &token, Method::POST, "/_txn/commit", &commit).await, "read", Some("secret"));
    // No refused request has changed anything.
    ask(&desk, &token, Method::GET, "/stock/_doc/m", &Value::Null).await.is(404);
    let content = ask(&desk, &token, Method::GET, "/stock/_doc/a", &Value::Null).await.is(200);
    assert_eq!(content["_source"], json!({ "n": 1 }));
}

#[tokio::test]
async fn refused_request_creates_no_collection() {
    let mut file = File::new();
    let token = file.add("shop", &["new-a", "new-b"], &["write"]);
    let creator = file.add("creator", &["new-a"], &["write", "create"]);
    let desk = desk(&file, ServeConfig::default().with_create_collections(true)).await;
    let put = ask(&desk, &token, Method::PUT, "/new-a/_doc/a", &json!({})).await;
    lacks(put, "create", Some("new-a"));
    lacks(ask(&desk, &token, Method::PUT, "/new-a", &Value::Null).await, "create", Some("new-a"));
    let item = |index: &str| json!({ "index": { "_index": index, "_id": "m" } });
    let bulk = json!([item("new-a"), {}, item("new-b"), {}]);
    lacks(ask(&desk, &creator, Method::POST, "/_bulk", &bulk).await, "write", Some("new-b"));
    let put = |name: &str| json!({ "put": { "target": { "collection": name, "id": "a" }, "document": {} } });
    let operations = json!({ "operations": [put("new-a"), put("new-b")] });
    lacks(ask(&desk, &creator, Method::POST, "/_txn", &operations).await, "write", Some("new-b"));
    // Without an upsert, an update creates nothing.
    let update = json!([{ "update": { "_index": "new-a", "_id": "m" } }, { "doc": {} }]);
    ask(&desk, &token, Method::POST, "/_bulk", &update).await.fails(404, "no_collection");
    let overview = desk.domain.admin().overview().await.expect("an overview");
    assert!(!overview.collections.iter().any(|name| name.starts_with("new-")));
    ask(&desk, &creator, Method::PUT, "/new-a/_doc/a", &json!({})).await.is(201);
}

#[tokio::test]
async fn metrics_and_outcomes_need_rights() {
    let mut file = File::new();
    let reader = file.add("reader", &["*"], &["read", "pass-reads"]);
    let writer = file.add("writer", &["stock"], &["write"]);
    let probe = file.add("probe", &[], &["metrics"]);
    let render = Arc::new(|| "txn_commits_total 1\n".to_owned());
    let desk = desk(&file, ServeConfig::default().with_metrics(Some(render))).await;
    for token in [&reader, &writer] {
        lacks(ask(&desk, token, Method::GET, "/metrics", &Value::Null).await, "metrics", None);
    }
    let answer = ask(&desk, &probe, Method::GET, "/metrics", &Value::Null).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    for token in [&reader, &probe] {
        let answer = ask(&desk, token, Method::GET, "/_txn/some-tid", &Value::Null).await;
        lacks(answer, "write", None);
    }
    ask(&desk, &writer, Method::GET, "/_txn/some-tid", &Value::Null).await.fails(400, "invalid");
}

#[tokio::test]
async fn changed_file_holds_and_broken_one_does_not() {
    let mut file = File::new();
    let old = file.add("old", &["stock"], &["read"]);
    let tokens = file.open();
    let config = ServeConfig::default().with_tokens(Some(tokens.clone()));
    let desk = Desk::with(Arc::new(MemoryStore::new()), config).await;
    let is_known =
        async |token: &str| ask(&desk, token, Method::GET, "/", &Value::Null).await.status == 200;
    let new = file.add("new", &["stock"], &["read"]);
    assert!(!is_known(&new).await);
    assert!(tokens.reload().expect("fits"));
    assert!(is_known(&old).await && is_known(&new).await);
    std::fs::write(file.path(), "[[token]]\nname = \"").expect("writes");
    tokens.reload().expect_err("broken");
    assert!(!tokens.reload().expect("the broken file is known"));
    assert!(is_known(&old).await && is_known(&new).await);
    std::fs::write(file.path(), "").expect("writes");
    assert!(tokens.reload().expect("fits"));
    assert!(!is_known(&old).await && !is_known(&new).await);
}

#[tokio::test]
async fn token_gets_no_answer_of_another_token() {
    let mut file = File::new();
    let first = file.add("first", &["stock"], &["write"]);
    let second = file.add("second", &["stock"], &["write"]);
    let desk = desk(&file, ServeConfig::default()).await;
    let create = async |token: &str| {
        let login = format!("Bearer {token}");
        let headers = [
            ("authorization", &*login),
            ("content-type", "application/json"),
            ("idempotency-key", "one"),
        ];
        desk.send(Method::PUT, "/stock/_create/a", &headers, "{}").await
    };
    create(&first).await.is(201);
    create(&first).await.is(201);
    create(&second).await.fails(409, "refused");
}
