//! The receiver of requests: a scripted server that records its calls.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, StreamExt};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::task::AbortHandle;

/// A recorded call.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Call {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, text)| text.as_str())
    }

    pub(crate) fn key(&self) -> &str {
        self.header("idempotency-key").expect("it has a key")
    }
}

/// A scripted answer.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// A status, headers and a body.
    Whole(u16, Vec<(&'static str, String)>, String),
    /// 200, and a body without an end.
    Endless,
    /// 200, the beginning of a body, and nothing more.
    Stalls,
    /// No answer.
    Never,
}

impl Reply {
    pub(crate) fn status(status: u16) -> Self {
        Self::Whole(status, Vec::new(), String::new())
    }

    pub(crate) fn with(status: u16, header: &'static str, text: &str) -> Self {
        Self::Whole(status, vec![(header, text.to_owned())], String::new())
    }
}

type Script = dyn Fn(&Call, usize) -> Reply + Send + Sync;

/// A server that receives calls until the drop.
pub(crate) struct Receiver {
    address: SocketAddr,
    shared: Arc<Shared>,
    listening: AbortHandle,
}

struct Shared {
    script: Box<Script>,
    calls: Mutex<Vec<Call>>,
    /// The number of concurrent calls, and its maximum.
    under_way: Mutex<(usize, usize)>,
}

impl Receiver {
    /// Starts a server with a script.
    ///
    /// The script receives the call, and the number of earlier calls of the path.
    pub(crate) async fn start(
        script: impl Fn(&Call, usize) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("listens");
        let address = listener.local_addr().expect("an address");
        let (calls, under_way) = (Mutex::default(), Mutex::default());
        let shared = Arc::new(Shared { script: Box::new(script), calls, under_way });
        let serving = shared.clone();
        let task = tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else { continue };
                let shared = serving.clone();
                tokio::spawn(async move {
                    let service = service_fn(|request| answer(shared.clone(), request));
                    let connection = hyper::server::conn::http1::Builder::new();
                    // A caller that disconnects is not an error of the test.
                    let _ = connection.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Self { address, shared, listening: task.abort_handle() }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// The calls of a path.
    pub(crate) fn calls(&self, path: &str) -> Vec<Call> {
        self.shared.calls.lock().iter().filter(|call| call.path == path).cloned().collect()
    }

    pub(crate) fn most_under_way(&self) -> usize {
        self.shared.under_way.lock().1
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

type Content =
    StreamBody<Pin<Box<dyn futures::Stream<Item = Result<Frame<Bytes>, Infallible>> + Send>>>;

async fn answer(
    shared: Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<Content>, Infallible> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let header = |(name, text): (&hyper::header::HeaderName, &hyper::header::HeaderValue)| {
        (name.as_str().to_owned(), String::from_utf8_lossy(text.as_bytes()).into_owned())
    };
    let call = Call {
        method: parts.method.to_string(),
        path: parts.uri.to_string(),
        headers: parts.headers.iter().map(header).collect(),
        body: String::from_utf8_lossy(&body).into_owned(),
    };
    let before = {
        let mut calls = shared.calls.lock();
        calls.push(call.clone());
        calls.iter().filter(|other| other.path == call.path).count() - 1
    };
    {
        let mut under_way = shared.under_way.lock();
        under_way.0 += 1;
        under_way.1 = under_way.1.max(under_way.0);
    }
    // Long enough for concurrent calls to arrive, if the limit allows them.
    tokio::time::sleep(Duration::from_millis(20)).await;
    shared.under_way.lock().0 -= 1;
    let frame = |bytes: Bytes| Ok(Frame::data(bytes));
    let (status, headers, body): (u16, _, Pin<Box<dyn futures::Stream<Item = _> + Send>>) =
        match (shared.script)(&call, before) {
            Reply::Whole(status, headers, body) => {
                (status, headers, Box::pin(stream::iter([frame(Bytes::from(body))])))
            }
            Reply::Endless => {
                let bytes = Bytes::from_static(&[b'x'; 1_000]);
                let endless =
                    stream::repeat_with(move || frame(bytes.clone())).then(|frame| async {
                        tokio::task::yield_now().await;
                        frame
                    });
                (200, Vec::new(), Box::pin(endless))
            }
            Reply::Stalls => {
                let first = stream::iter([frame(Bytes::from_static(b"first"))]);
                (200, Vec::new(), Box::pin(first.chain(stream::pending())))
            }
            Reply::Never => std::future::pending().await,
        };
    let mut response = Response::new(StreamBody::new(body));
    *response.status_mut() = hyper::StatusCode::from_u16(status).expect("a status");
    for (name, text) in headers {
        response.headers_mut().insert(name, text.parse().expect("a text"));
    }
    Ok(response)
}
