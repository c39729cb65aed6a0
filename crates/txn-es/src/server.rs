//! The kind and version of the server, and the supported ones.

use std::fmt;
use std::time::Duration;

use futures::future::BoxFuture;
use reqwest::Method;
use serde_json::Value;
use txn_store::{StoreError, StoreErrorKind};

use crate::answers::classify;
use crate::transport::{ADMIN_ROOM, Answer, Failure, Request, RequestClass, Transport};

/// A server: its kind and its version.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Server {
    /// `elasticsearch` or `opensearch`.
    pub distribution: String,
    /// The version, such as `8.19.21`.
    pub version: String,
    /// A managed service without administrative requests.
    serverless: bool,
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.distribution, self.version)
    }
}

impl Server {
    pub(crate) fn is_opensearch(&self) -> bool {
        self.distribution == "opensearch"
    }

    fn is_supported(&self) -> bool {
        let mut parts = self.version.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
        let version = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
        match self.is_opensearch() {
            true => version >= (2, 0),
            false => version >= (7, 17),
        }
    }
}

/// Asks the nodes until one names its product.
///
/// A node with a wrong address does not prevent the use of the other nodes.
///
/// Boxed, so that the HTTP client is compiled with this crate and not with the application.
pub(crate) fn detect(transport: &Transport) -> BoxFuture<'_, Result<Server, StoreError>> {
    Box::pin(ask_nodes(transport))
}

async fn ask_nodes(transport: &Transport) -> Result<Server, StoreError> {
    let misconfigured = |text| StoreError::new(StoreErrorKind::Misconfigured, text);
    let mut failure = None;
    for _ in 0..transport.nodes() {
        let error = match ask(transport).await {
            Ok(Some(server)) if server.serverless => misconfigured(format!(
                "{transport} is a serverless service (build_flavor: serverless), which is not supported: it does not take \
                 the requests and settings of indices that transactions need; use a deployment with nodes of its own"
            )),
            Ok(Some(server)) if server.is_supported() => {
                tracing::debug!(%server, "connected");
                return Ok(server);
            }
            Ok(Some(server)) => misconfigured(format!(
                "{server} is not supported: use Elasticsearch 7.17 or newer, or OpenSearch 2 or newer"
            )),
            Ok(None) => misconfigured(format!(
                "what answers at {transport} is neither Elasticsearch nor OpenSearch; correct the address"
            )),
            Err(error) => error,
        };
        // An error with a remedy is more useful.
        let is_better = |known: &StoreError| known.kind == StoreErrorKind::Unavailable;
        if failure.as_ref().is_none_or(is_better) {
            failure = Some(error);
        }
    }
    Err(failure.unwrap_or_else(|| misconfigured("no server address is given".to_owned())))
}

async fn ask(transport: &Transport) -> Result<Option<Server>, StoreError> {
    let get = |path| {
        let (method, class, room) = (Method::GET, RequestClass::Read, ADMIN_ROOM);
        transport.send(Request { method, path, query: &[], body: None, items: 0, room, class })
    };
    // Some packages do not serve the root.
    let root = get("/").await.map_err(Failure::into_error)?;
    if let Some(server) = by_root(&root) {
        return Ok(Some(server));
    }
    let nodes = get("/_nodes/_local/http").await.map_err(Failure::into_error)?;
    match by_nodes(&nodes) {
        Some(server) => Ok(Some(server)),
        None if nodes.status == 200 => Ok(None),
        None => {
            let mut error = classify::error("connecting", &nodes);
            if error.kind == StoreErrorKind::Denied {
                error
                    .message
                    .push_str("; check the login, and grant it the cluster privilege monitor");
            }
            Err(error)
        }
    }
}

/// Returns the answering node's clock, as time since the Unix epoch.
pub(crate) async fn time(transport: &Transport) -> Result<Option<Duration>, StoreError> {
    // The smallest request that returns the time, because the servers send no `Date`.
    let path = "/_nodes/_local/stats/process";
    let query = [("filter_path", "nodes.*.timestamp")];
    let (method, class) = (Method::GET, RequestClass::Read);
    let request =
        Request { method, path, query: &query, body: None, items: 0, room: ADMIN_ROOM, class };
    let answer = transport.send(request).await.map_err(Failure::into_error)?;
    if answer.status != 200 {
        return Err(classify::error("asking for the time", &answer));
    }
    Ok(timestamp(&answer))
}

fn timestamp(answer: &Answer) -> Option<Duration> {
    let body: Value = serde_json::from_slice(&answer.body).ok()?;
    let node = body.get("nodes")?.as_object()?.values().next()?;
    node.get("timestamp")?.as_u64().map(Duration::from_millis)
}

fn by_root(answer: &Answer) -> Option<Server> {
    let body: Value = serde_json::from_slice(&answer.body).ok()?;
    let version = body.get("version")?;
    let text = |name: &str| version.get(name).and_then(Value::as_str);
    // OpenSearch with compatibility.override_main_response_version reports a wrong version. The
    // node list reports the true version.
    let tagline = body.get("tagline").and_then(Value::as_str).unwrap_or_default();
    if text("distribution").is_none() && tagline.contains("OpenSearch") {
        return None;
    }
    Some(Server {
        distribution: text("distribution").unwrap_or("elasticsearch").to_owned(),
        version: text("number")?.to_owned(),
        serverless: is_serverless(text("build_flavor")),
    })
}

fn by_nodes(answer: &Answer) -> Option<Server> {
    let body: Value = serde_json::from_slice(&answer.body).ok()?;
    let node = body.get("nodes")?.as_object()?.values().next()?;
    // OpenSearch nodes have no flavor.
    let flavor = node.get("build_flavor");
    let distribution = if flavor.is_some() { "elasticsearch" } else { "opensearch" };
    Some(Server {
        distribution: distribution.to_owned(),
        version: node.get("version")?.as_str()?.to_owned(),
        serverless: is_serverless(flavor.and_then(Value::as_str)),
    })
}

fn is_serverless(flavor: Option<&str>) -> bool {
    flavor == Some("serverless")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(body: &'static str) -> Answer {
        Answer { status: 200, headers: Default::default(), body: body.into() }
    }

    #[test]
    fn kinds_and_versions() {
        let opensearch = by_root(&answer(
            r#"{"name":"n","version":{"distribution":"opensearch","number":"3.8.0"}}"#,
        ));
        assert_eq!(
            opensearch.as_ref().map(ToString::to_string).as_deref(),
            Some("opensearch 3.8.0")
        );
        let elasticsearch =
            by_root(&answer(r#"{"version":{"number":"7.17.29","build_flavor":"default"}}"#));
        assert!(
            elasticsearch.is_some_and(|server| server.is_supported() && !server.is_opensearch())
        );
        let package = answer(r#"{"nodes":{"x":{"version":"8.19.21","build_flavor":"default"}}}"#);
        assert_eq!(by_nodes(&package).unwrap().to_string(), "elasticsearch 8.19.21");
        for (distribution, version, supported) in [
            ("elasticsearch", "7.16.3", false),
            ("elasticsearch", "7.17.0", true),
            ("elasticsearch", "9.0.0-beta1", true),
            ("opensearch", "1.3.0", false),
            ("opensearch", "2.19.0", true),
            ("opensearch", "garbage", false),
        ] {
            let server = Server {
                distribution: distribution.to_owned(),
                version: version.to_owned(),
                serverless: false,
            };
            assert_eq!(server.is_supported(), supported, "{server}");
        }
        assert_eq!(by_root(&answer(r#"{"error":"405"}"#)), None);
    }

    #[test]
    fn disguised_opensearch_is_detected_by_its_nodes() {
        let pretends = r#"{"version":{"number":"7.10.2","build_type":"tar"},"tagline":"The OpenSearch Project: https://opensearch.org/"}"#;
        assert_eq!(by_root(&answer(pretends)), None);
        let nodes = by_nodes(&answer(r#"{"nodes":{"x":{"version":"2.19.6"}}}"#)).unwrap();
        assert_eq!(nodes.to_string(), "opensearch 2.19.6");
        assert!(nodes.is_supported());
    }

    #[test]
    fn serverless_is_detected_by_its_flavor() {
        let root = by_root(&answer(
            r#"{"version":{"number":"8.11.0","build_flavor":"serverless"},"tagline":"You Know, for Search"}"#,
        ));
        assert!(root.unwrap().serverless);
        let nodes = r#"{"nodes":{"x":{"version":"9.5.0","build_flavor":"serverless"}}}"#;
        assert!(by_nodes(&answer(nodes)).unwrap().serverless);
    }

    #[test]
    fn the_time_of_a_node() {
        let told = answer(r#"{"nodes":{"x":{"timestamp":1795285196222}}}"#);
        assert_eq!(timestamp(&told), Some(Duration::from_millis(1_795_285_196_222)));
        for untold in ["{}", r#"{"nodes":{}}"#, r#"{"nodes":{"x":{}}}"#, "odd"] {
            assert_eq!(timestamp(&answer(untold)), None, "{untold}");
        }
    }
}
