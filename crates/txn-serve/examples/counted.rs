//! Gateways that fail, for tests of official clients. Each gateway counts its requests.
//!
//! Prints the addresses as JSON, by the kind of the answer, and runs until its input ends. `GET
//! /_counted` returns and forgets the statuses that the gateway has answered; 0 is a closed
//! connection. Each request meets a domain and a gateway of its own, so an answer depends on no
//! earlier request. All answers are those of the gateway itself.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::header::HeaderValue;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use txn_core::store::{MemoryStore, Outcome, Write, WriteOp};
use txn_core::{Config, Domain};
use txn_serve::{ServeConfig, Server};
use txn_sim::{Fate, Scripted};

type Failure = Box<dyn Error + Send + Sync>;

/// The time of a transaction whose store does not answer.
const TIMEOUT: Duration = Duration::from_millis(300);

/// The kind of the answer to each bulk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The bulk is carried out.
    Committed,
    /// The bulk is refused, because it has a pipeline.
    Invalid,
    /// An action is refused, because the document exists.
    Refused,
    /// All permits are in use.
    Overloaded,
    /// The store does not answer.
    Unavailable,
    /// The store does not answer to the commit.
    Unknown,
    /// As `Unknown`, under an `Idempotency-Key`.
    KeyedUnknown,
    /// The connection ends before the answer.
    Closed,
}

impl Kind {
    const ALL: [(&str, Self); 8] = [
        ("committed", Self::Committed),
        ("invalid", Self::Invalid),
        ("refused", Self::Refused),
        ("overloaded", Self::Overloaded),
        ("unavailable", Self::Unavailable),
        ("unknown", Self::Unknown),
        ("keyed_unknown", Self::KeyedUnknown),
        ("closed", Self::Closed),
    ];

    /// Answers a request by a gateway in this state.
    async fn answer(self, request: Request<Full<Bytes>>) -> Result<Response<Full<Bytes>>, Failure> {
        let store = Arc::new(Scripted::new(Arc::new(MemoryStore::new())));
        let config = Config::default().with_janitor_interval(None).with_lease(TIMEOUT);
        let domain = Domain::open_or_create(store.clone(), "shop", config).await?;
        let server = self.server(&domain)?;
        if self == Self::Refused {
            server.answer(existing()?).await;
        }
        // Later requests must find the collection open.
        server.answer(request_of("PUT", "/counted/_doc/other", Full::from("{}"))?).await;
        let request = self.adapt(request)?;
        let held = request_of("PUT", "/counted/_doc/held", Stalled)?;
        let response = match self {
            Self::Overloaded => {
                let mut held = pin!(server.answer(held));
                tokio::select! {
                    biased;
                    response = &mut held => response,
                    response = server.answer(request) => response,
                }
            }
            Self::Unavailable => {
                store.set_down(true);
                server.answer(request).await
            }
            Self::Unknown | Self::KeyedUnknown => {
                let down = store.clone();
                store.play(move |write| match commits(write) {
                    true => {
                        down.set_down(true);
                        Fate::AnswerWith(Outcome::Unknown("no answer".to_owned()))
                    }
                    false => Fate::Pass,
                });
                server.answer(request).await
            }
            _ => server.answer(request).await,
        };
        store.set_down(false);
        domain.shutdown(Duration::ZERO).await;
        Ok(response)
    }

    fn server(self, domain: &Domain) -> io::Result<Server> {
        let config = ServeConfig::default()
            .with_create_collections(true)
            .with_elastic_product(true)
            .with_timeout(TIMEOUT)
            .with_max_requests(if self == Self::Overloaded { 1 } else { 512 });
        Server::new(domain, config)
    }

    /// Adds the part of the request on which the answer depends.
    fn adapt(self, mut request: Request<Full<Bytes>>) -> Result<Request<Full<Bytes>>, Failure> {
        match self {
            Self::Invalid => {
                let path = request.uri().path().to_owned();
                *request.uri_mut() = format!("{path}?pipeline=other").parse()?;
            }
            Self::KeyedUnknown => {
                let key = HeaderValue::from_static("key");
                request.headers_mut().insert("idempotency-key", key);
            }
            _ => {}
        }
        Ok(request)
    }
}

/// The insertion of the document that the clients create.
fn existing() -> Result<Request<Full<Bytes>>, Failure> {
    request_of("PUT", "/counted/_doc/1", Full::from("{}"))
}

fn request_of<B>(method: &str, path: &str, body: B) -> Result<Request<B>, Failure> {
    let request = Request::builder().method(method).uri(path);
    Ok(request.header("content-type", "application/json").body(body)?)
}

/// Whether a write commits a record.
fn commits(write: &Write) -> bool {
    let text = "\"state\":\"committed\"";
    match &write.op {
        WriteOp::Create(source) | WriteOp::Replace(source, _) => {
            write.require_alias && source.contains(text)
        }
        _ => false,
    }
}

/// A body that never comes.
struct Stalled;

impl Body for Stalled {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Pending
    }
}

/// A listener in front of the gateways of one kind.
#[derive(Debug)]
struct Counted {
    kind: Kind,
    /// The statuses of the answers, in order.
    statuses: Mutex<Vec<u16>>,
}

impl Counted {
    async fn listen(self: Arc<Self>, listener: TcpListener) {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(self.clone().serve(stream));
        }
    }

    async fn serve(self: Arc<Self>, stream: TcpStream) {
        let service = service_fn(|request| Box::pin(self.answer(request)));
        let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        // An error ends the connection.
        drop(connection.await);
    }

    async fn answer(&self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Failure> {
        if request.uri().path() == "/_counted" {
            let statuses = std::mem::take(&mut *self.statuses.lock());
            return Ok(Response::new(serde_json::to_vec(&statuses)?.into()));
        }
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        if self.kind == Kind::Closed {
            self.statuses.lock().push(0);
            return Err("closed".into());
        }
        let response = self.kind.answer(Request::from_parts(parts, body.into())).await?;
        self.statuses.lock().push(response.status().as_u16());
        Ok(response)
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut addresses = BTreeMap::new();
    for (name, kind) in Kind::ALL {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        addresses.insert(name, format!("http://{}", listener.local_addr()?));
        let counted = Arc::new(Counted { kind, statuses: Mutex::default() });
        tokio::spawn(counted.listen(listener));
    }
    println!("{}", serde_json::to_string(&addresses)?);
    tokio::task::spawn_blocking(|| io::copy(&mut io::stdin(), &mut io::sink())).await??;
    Ok(())
}
