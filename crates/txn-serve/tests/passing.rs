//! Requests that are passed through to the servers.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use txn_core::Raw;
use txn_core::store::MemoryStore;
use txn_es::{EsConfig, EsStore};
use txn_serve::ServeConfig;

use super::desk::Desk;

/// Answers with the request, as JSON.
async fn echo(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let header = |name: &str| {
        parts.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
    };
    let answer = json!({
        "version": { "number": "8.19.0" },
        "method": parts.method.as_str(),
        "target": parts.uri.to_string(),
        "accept": header("accept"),
        "content_type": header("content-type"),
        "authorization": header("authorization"),
        "body": String::from_utf8_lossy(&body),
    });
    let status = if parts.uri.path().contains("missing") { 404 } else { 200 };
    let response = Response::builder()
        .status(status)
        .header("content-type", "application/vnd.elasticsearch+json;compatible-with=9")
        .header("x-elastic-product", "Elasticsearch");
    Ok(response.body(Full::new(answer.to_string().into())).expect("a response"))
}

async fn server() -> EsStore {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else { return };
            let serving =
                http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(echo));
            tokio::spawn(async move { drop(serving.await) });
        }
    });
    let config = EsConfig::new([format!("http://{address}")]).expect("an address");
    EsStore::connect(config.with_api_key("gateway")).await.expect("connects")
}

/// A gateway in front of a server. The domain has the collection `stock`.
async fn desk() -> Desk {
    let config = ServeConfig::default().with_servers(Some(server().await));
    let desk = Desk::with(Arc::new(MemoryStore::new()), config).await;
    desk.domain.create_collection::<Raw>("stock", None).await.expect("creates");
    desk
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

#[tokio::test]
async fn writes_are_not_passed() {
    let desk = desk().await;
    let action = |index: &str| json!({ "delete": { "_index": index, "_id": "a" } });
    for (path, index) in [
        ("/_bulk", "logs"),
        ("/_bulk", "<stock>"),
        ("/logs/_doc/../_bulk", "stock"),
        ("/logs/_bulk/", "stock"),
        ("/logs/%5Fbulk", "stock"),
        ("/%5Fbulk", "stock"),
    ] {
        let answer = desk.bulk(path, &[action(index)]).await;
        assert!(answer.status.is_client_error(), "{path} {index}: {}", answer.status);
    }
    for path in [
        "/stock/_delete_by_query",
        "/logs/_delete_by_query",
        "/%3Cstock%3E/_delete_by_query",
        "/_reindex",
        "/shop-locks/_delete_by_query",
    ] {
        desk.post(path, &json!({})).await.fails(400, "not_passed");
    }
    for path in ["/logs/_doc/a", "/%3Cstock%3E/_doc/a", "/shop-requests-x/_create/a"] {
        let answer = desk.put(path, &json!({})).await;
        assert!(answer.status.is_client_error(), "{path}: {}", answer.status);
    }
    desk.delete("/stock").await.fails(400, "not_passed");
    desk.delete("/stock/_search/a").await.fails(400, "not_passed");
    desk.get("/_security/user").await.fails(400, "not_passed");
    desk.get("/_txn").await.fails(405, "method");
    desk.get("/logs/../_security/user").await.fails(400, "invalid");
    desk.get("/logs/%2e%2e/_security/user").await.fails(400, "invalid");
}

#[tokio::test]
async fn own_answers_have_the_product_of_the_servers() {
    let desk = desk().await;
    let answer = desk.get("/stock/_doc/none").await;
    assert_eq!(answer.header("x-elastic-product"), "Elasticsearch");
    let body: Value = answer.is(404);
    assert_eq!(body["found"], false);
}
