//! Requests that are passed through to the servers.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::http::request::Parts;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use txn_core::Raw;
use txn_core::store::MemoryStore;
use txn_es::{EsConfig, EsStore};
use txn_serve::ServeConfig;

use super::desk::{Desk, text};

/// The size of a large answer.
const LARGE: usize = 100_000;

/// The requests that a server has received, except looks at indices.
pub(crate) type Received = Arc<Mutex<Vec<String>>>;

/// Describes the indices behind a name.
fn described(name: &str) -> Option<Value> {
    let index = |pipeline: Option<&str>| json!({ "aliases": {}, "settings": { "index": { "uuid": "u", "default_pipeline": pipeline } } });
    let of = |domain: &str| json!({ "mappings": { "_meta": { "txn": { "domain": domain } } } });
    Some(match name {
        "logs" | "metrics" | "lost" | "large" => json!({ (name): index(None) }),
        "piped" => json!({ "piped": index(Some("p")) }),
        "aliased" => json!({ "logs": index(None), "stock": index(None) }),
        "hidden" => json!({ "hidden": of("shop") }),
        "bank" => json!({ "bank": of("bank") }),
        "copy" => json!({ "copy": { "aliases": { "stock-txn-0123": {} } } }),
        _ => return None,
    })
}

/// The templates of the server.
fn templates(target: &str) -> Option<Value> {
    let template = json!({ "index_patterns": ["templated*"], "priority": 1 });
    let settings = json!({ "index": { "default_pipeline": "p" } });
    Some(match target {
        "/_template" => json!({}),
        "/_index_template" => {
            json!({ "index_templates": [{ "name": "t", "index_template": template }] })
        }
        _ if target.starts_with("/_index_template/_simulate_index/templated") => {
            json!({ "template": { "settings": settings } })
        }
        _ => return None,
    })
}

fn header(parts: &Parts, name: &str) -> Option<String> {
    parts.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

/// Answers with the request, as JSON.
async fn echo(request: Request<Incoming>, received: Received) -> io::Result<Response<Full<Bytes>>> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let (path, target) = (parts.uri.path(), parts.uri.to_string());
    let response = Response::builder()
        .header("content-type", "application/vnd.elasticsearch+json;compatible-with=9")
        .header("x-elastic-product", "Elasticsearch");
    if target.contains("filter_path=error.type") {
        let missing = json!({ "error": { "type": "index_not_found_exception" }, "status": 404 });
        let (status, answer) = match described(path.trim_start_matches('/')) {
            Some(indices) => (200, indices),
            None if path == "/denied" => (403, json!({ "error": { "type": "security" } })),
            None => (404, missing),
        };
        let answer = Full::new(answer.to_string().into());
        return Ok(response.status(status).body(answer).expect("a response"));
    }
    if let Some(templates) = templates(&target) {
        return Ok(response.body(Full::new(templates.to_string().into())).expect("a response"));
    }
    if target != "/" {
        received.lock().push(format!("{} {target}", parts.method));
    }
    if path.starts_with("/lost/") {
        return Err(io::Error::other("the answer is lost"));
    }
    if path.ends_with("/gone") {
        let response = response.status(504).header("retry-after", "7").header("warning", "299 old");
        return Ok(response.body(Full::default()).expect("a response"));
    }
    let answer = json!({
        "version": { "number": "8.19.0" },
        "method": parts.method.as_str(),
        "target": target,
        "accept": header(&parts, "accept"),
        "content_type": header(&parts, "content-type"),
        "authorization": header(&parts, "authorization"),
        "body": String::from_utf8_lossy(&body),
        "filler": "x".repeat(if path.starts_with("/large/") { LARGE } else { 0 }),
    });
    let status = if path.contains("missing") { 404 } else { 200 };
    Ok(response.status(status).body(Full::new(answer.to_string().into())).expect("a response"))
}

async fn server() -> (EsStore, Received) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let address = listener.local_addr().expect("an address");
    let received = Received::default();
    let log = received.clone();
    tokio::spawn(async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else { return };
            let log = log.clone();
            let service = service_fn(move |request| echo(request, log.clone()));
            let serving = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            tokio::spawn(async move { drop(serving.await) });
        }
    });
    let config = EsConfig::new([format!("http://{address}")]).expect("an address");
    let store = EsStore::connect(config.with_api_key("gateway")).await.expect("connects");
    (store, received)
}

/// A gateway in front of a server, and the server's requests.
///
/// The domain has the collection `stock`.
pub(crate) async fn desk_with(config: ServeConfig) -> (Desk, Received) {
    let (server, received) = server().await;
    let config = config.with_servers(Some(server));
    let desk = Desk::with(Arc::new(MemoryStore::new()), config).await;
    desk.domain.create_collection::<Raw>("stock", None).await.expect("creates");
    (desk, received)
}

async fn desk() -> Desk {
    desk_with(ServeConfig::default()).await.0
}

#[tokio::test]
async fn search_is_passed_without_the_login_of_the_caller() {
    let desk = desk().await;
    let headers = [
        ("authorization", "Basic Y2FsbGVyOnNlY3JldA=="),
        ("accept", "application/vnd.elasticsearch+json; compatible-with=9"),
        ("content-type", "application/vnd.elasticsearch+json; compatible-with=9"),
    ];
    let path = "/stock/_search?q=a%20b&size=1";
    let answer = desk.send(Method::POST, path, &headers, r#"{"query":{}}"#).await;
    assert_eq!(answer.header("x-elastic-product"), "Elasticsearch");
    assert_eq!(
        answer.header("content-type"),
        "application/vnd.elasticsearch+json;compatible-with=9"
    );
    let body = answer.is(200);
    assert_eq!(
        (&body["method"], &body["target"], &body["body"]),
        (&json!("POST"), &json!("/stock/_search?q=a+b&size=1"), &json!(r#"{"query":{}}"#))
    );
    assert_eq!(body["authorization"], "ApiKey gateway");
    for name in ["accept", "content_type"] {
        assert_eq!(body[name], "application/vnd.elasticsearch+json; compatible-with=9");
    }
    let missing = desk.get("/missing/_search").await;
    assert_eq!(missing.status, 404);
}

#[tokio::test]
async fn reads_of_other_indices_are_passed() {
    let desk = desk().await;
    let got = desk.get("/logs/_doc/a%2Fb?preference=p").await.is(200);
    assert_eq!(
        (&got["method"], &got["target"]),
        (&json!("GET"), &json!("/logs/_doc/a%2Fb?preference=p"))
    );
    assert_eq!(desk.get("/").await.is(200)["version"]["number"], "8.19.0");
    // The collection stays with the gateway.
    let put = desk.put("/stock/_doc/a", &json!({ "n": 1 })).await.is(201);
    assert_eq!(put["result"], "created");
    assert_eq!(desk.content("/stock/_doc/a").await, json!({ "n": 1 }));
}

/// Most clients repeat these statuses at once, and the first write may have been carried out.
#[tokio::test]
async fn write_behind_a_broken_proxy_is_not_repeated() {
    let desk = desk().await;
    desk.put("/logs/_doc/gone", &json!({})).await.fails(500, "unknown");
    // A read has no effect.
    let gone = desk.get("/logs/_doc/gone").await;
    assert_eq!(gone.status.as_u16(), 504);
    assert_eq!((gone.header("retry-after"), gone.header("warning")), ("7", "299 old"));
}

fn deletion(index: &str) -> Value {
    json!({ "delete": { "_index": index, "_id": "a" } })
}

#[tokio::test]
async fn writes_to_other_indices_are_passed() {
    let (desk, received) = desk_with(ServeConfig::default()).await;
    let got = desk.put("/logs/_doc/a%2Fb?refresh=true&routing=r", &json!({ "n": 1 })).await.is(200);
    assert_eq!(got["body"], r#"{"n":1}"#);
    let lines = [deletion("logs"), json!({ "index": { "_index": "new" } }), json!({ "n": 2 })];
    let got = desk.bulk("/_bulk", &lines).await.is(200);
    assert_eq!(
        (&got["body"], &got["content_type"]),
        (&json!(text(&lines)), &json!("application/x-ndjson"))
    );
    desk.bulk("/logs/_bulk", &[json!({ "delete": { "_id": "a" } })]).await.is(200);
    desk.post("/new/_doc", &json!({})).await.is(200);
    desk.post("/logs/_update/a", &json!({ "script": "s" })).await.is(200);
    desk.put("/new", &json!({ "settings": {} })).await.is(200);
    desk.put("/logs/_mapping", &json!({})).await.is(200);
    desk.put("/piped/_settings", &json!({})).await.is(200);
    desk.delete("/logs").await.is(200);
    assert_eq!(
        *received.lock(),
        [
            "PUT /logs/_doc/a%2Fb?refresh=true&routing=r",
            "POST /_bulk",
            "POST /logs/_bulk",
            "POST /new/_doc",
            "POST /logs/_update/a",
            "PUT /new",
            "PUT /logs/_mapping",
            "PUT /piped/_settings",
            "DELETE /logs",
        ]
    );
}

#[tokio::test]
async fn write_by_another_name_is_not_passed() {
    let (desk, received) = desk_with(ServeConfig::default()).await;
    for (path, index) in [
        ("/_bulk", "<stock>"),
        ("/_bulk", "<stock-{now/d}>"),
        ("/_bulk", "sto*"),
        ("/_bulk", "logs,stock"),
        ("/_bulk", "aliased"),
        ("/_bulk", "hidden"),
        ("/_bulk", "bank"),
        ("/_bulk", "copy"),
        ("/_bulk", "piped"),
        ("/_bulk", "denied"),
        ("/_bulk", "templated-1"),
        ("/_bulk", "stock-committed"),
        ("/_bulk", "txn-registry"),
        ("/_bulk?pipeline=p", "logs"),
        ("/_bulk?source=x", "logs"),
        ("/logs/_doc/../_bulk", "stock"),
        ("/logs/_bulk/", "stock"),
        ("/logs/%5Fbulk", "stock"),
        ("/%5Fbulk", "stock"),
        ("/logs/_doc/_bulk", "stock"),
    ] {
        let answer = desk.bulk(path, &[deletion(index)]).await;
        assert!(
            answer.status.is_client_error(),
            "{path} {index}: {} {}",
            answer.status,
            answer.text
        );
    }
    for path in [
        "/stock/_delete_by_query",
        "/logs/_delete_by_query",
        "/%3Cstock%3E/_delete_by_query",
        "/_reindex",
        "/_aliases",
        "/shop-locks/_delete_by_query",
    ] {
        desk.post(path, &json!({})).await.fails(400, "not_passed");
    }
    for path in [
        "/%3Cstock%3E/_doc/a",
        "/aliased/_doc/a",
        "/hidden/_doc/a",
        "/copy/_create/a",
        "/piped/_doc/a",
        "/l%6Fgs/_doc/a",
        "/shop-requests/_create/a",
        "/shop-locks",
        "/stock-committed",
        "/aliased/_mapping",
        "/stock/_mapping",
        "/stock/_settings",
        "/_ingest/pipeline/p",
    ] {
        let answer = desk.put(path, &json!({})).await;
        assert!(answer.status.is_client_error(), "{path}: {} {}", answer.status, answer.text);
    }
    let aliases = json!({ "aliases": { "stock": { "is_write_index": true } } });
    desk.put("/new", &aliases).await.fails(400, "not_passed");
    for path in ["/stock", "/aliased", "/hidden", "/bank", "/stock/_search/a"] {
        desk.delete(path).await.fails(400, "not_passed");
    }
    desk.get("/_security/user").await.fails(400, "not_passed");
    desk.delete("/_txn").await.fails(405, "method");
    desk.get("/logs/../_security/user").await.fails(400, "invalid");
    desk.get("/logs/%2e%2e/_security/user").await.fails(400, "invalid");
    desk.keyed("/logs/_doc", "k", &json!({})).await.fails(400, "unsupported");
    assert_eq!(*received.lock(), [""; 0], "a request reached the server");
}

#[tokio::test]
async fn mixed_bulk_is_refused_by_name() {
    let (desk, received) = desk_with(ServeConfig::default()).await;
    let lines =
        [json!({ "index": { "_index": "stock", "_id": "a" } }), json!({}), deletion("logs")];
    let problem = desk.bulk("/_bulk", &lines).await.fails(400, "mixed");
    let items = &problem["items"];
    assert_eq!(
        (&items[0]["index"]["status"], &items[1]["delete"]["status"]),
        (&json!(424), &json!(400))
    );
    assert_eq!(
        (&items[1]["delete"]["_index"], &items[1]["delete"]["_id"]),
        (&json!("logs"), &json!("a"))
    );
    let detail = problem["error"]["reason"].as_str().unwrap_or_default();
    assert!(detail.contains("stock") && detail.contains("logs"), "{detail}");
    assert_eq!(desk.get("/stock/_doc/a").await.status, 404);
    assert_eq!(*received.lock(), [""; 0]);
}

#[tokio::test]
async fn gateway_for_reads_passes_no_write() {
    let (desk, received) = desk_with(ServeConfig::default().with_pass_writes(false)).await;
    desk.bulk("/_bulk", &[deletion("logs")]).await.fails(404, "no_collection");
    desk.put("/logs/_doc/a", &json!({})).await.fails(404, "no_collection");
    desk.put("/logs/_mapping", &json!({})).await.fails(400, "not_passed");
    desk.delete("/logs").await.fails(400, "not_passed");
    assert_eq!(*received.lock(), [""; 0]);
    desk.get("/logs/_search").await.is(200);
}

#[tokio::test]
async fn lost_answer_of_a_read_is_passing() {
    let desk = desk().await;
    desk.post("/lost/_search", &json!({})).await.fails(503, "unavailable");
    desk.get("/lost/_search").await.fails(503, "unavailable");
    desk.put("/lost/_doc/a", &json!({})).await.fails(500, "unknown");
}

#[tokio::test]
async fn large_answer_is_a_problem_of_its_own() {
    let config = ServeConfig::default().with_max_answer(LARGE);
    let (desk, _) = desk_with(config).await;
    desk.post("/large/_search", &json!({})).await.fails(413, "large_answer");
    desk.put("/large/_doc/a", &json!({})).await.fails(500, "unknown");
}

#[tokio::test]
async fn answers_count_until_the_client_has_taken_them() {
    let bytes = LARGE * 3 / 2;
    let config = ServeConfig::default().with_max_body(1 << 10).with_max_buffered(bytes);
    let (desk, _) = desk_with(config).await;
    let ask = || async {
        let request = Request::get("/large/_search").body(Full::<Bytes>::default());
        desk.server.answer(request.expect("a request")).await
    };
    let first = ask().await;
    assert_eq!(first.status(), 200);
    desk.get("/large/_search").await.fails(429, "overloaded");
    // A write is answered in any case.
    desk.put("/large/_doc/a", &json!({})).await.is(200);
    drop(first);
    desk.get("/large/_search").await.is(200);
}

#[tokio::test]
async fn own_answers_have_the_product_of_the_servers() {
    let desk = desk().await;
    let answer = desk.get("/stock/_doc/none").await;
    assert_eq!(answer.header("x-elastic-product"), "Elasticsearch");
    let body: Value = answer.is(404);
    assert_eq!(body["found"], false);
}
