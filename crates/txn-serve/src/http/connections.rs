//! Connections: accepted up to a limit, and drained at the end.

use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{HOST, ORIGIN};
use hyper::http::uri::Authority;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::problem::{Code, Problem};
use super::reply::response;
use super::shape::Shape;
use super::slow_client::SlowClient;
use crate::audit::Client;
use crate::gateway::Gateway;

/// The pause after a failed accept. Usually all file handles are in use.
const PAUSE: Duration = Duration::from_millis(10);

/// The connections of a listener.
pub(crate) struct Connections {
    gateway: Arc<Gateway>,
    tasks: TaskTracker,
    /// No request begins after this mark.
    draining: CancellationToken,
    /// No request continues after this mark.
    cut: CancellationToken,
}

impl Connections {
    pub(crate) fn new(gateway: Arc<Gateway>) -> Self {
        let (draining, cut) = (CancellationToken::new(), CancellationToken::new());
        Self { gateway, tasks: TaskTracker::new(), draining, cut }
    }

    /// Accepts connections until `stop` ends.
    pub(crate) async fn accept(&self, listener: TcpListener, stop: impl Future<Output = ()>) {
        let mut stop = pin!(stop);
        let most = self.gateway.config().max_connections.min(Semaphore::MAX_PERMITS);
        let places = Arc::new(Semaphore::new(most));
        let loopback = listener.local_addr().is_ok_and(|address| address.ip().is_loopback());
        loop {
            let accepted = async {
                let place = places.clone().acquire_owned().await;
                (place, listener.accept().await)
            };
            let (place, accepted) = tokio::select! {
                biased;
                () = &mut stop => return,
                accepted = accepted => accepted,
            };
            let (Ok(place), Ok((stream, _))) = (place, accepted) else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            let connection = self.connection(stream, loopback);
            self.tasks.spawn(async move {
                connection.await;
                drop(place);
            });
        }
    }

    fn connection(
        &self,
        stream: TcpStream,
        loopback: bool,
    ) -> impl Future<Output = ()> + Send + 'static {
        let marks = (self.draining.clone(), self.cut.clone());
        let gateway = self.gateway.clone();
        async move {
            let client = stream.peer_addr().ok().map(Client);
            // A small answer must not wait for more bytes.
            let _ = stream.set_nodelay(true);
            let stream = SlowClient::new(stream, gateway.config().write_timeout);
            let Some(tls) = gateway.config().tls.clone() else {
                return serve(gateway, stream, client, loopback, marks).await;
            };
            let timeout = gateway.config().head_timeout;
            let greeted = tokio::time::timeout(timeout, tls.acceptor().accept(stream));
            let greeted = tokio::select! {
                biased;
                () = marks.0.cancelled() => return,
                greeted = greeted => greeted,
            };
            if let Ok(Ok(stream)) = greeted {
                serve(gateway, stream, client, loopback, marks).await;
            }
        }
    }

    /// Waits for the running requests. Returns whether all have ended in time.
    pub(crate) async fn drain(&self) -> bool {
        self.gateway.stop_admission();
        self.draining.cancel();
        self.tasks.close();
        let drain = self.gateway.config().drain;
        let drained = tokio::time::timeout(drain, self.tasks.wait()).await.is_ok();
        self.cut.cancel();
        self.tasks.wait().await;
        drained
    }
}

/// Answers the requests of a connection.
///
/// The connection ends by itself, or at one of the marks.
async fn serve<S>(
    gateway: Arc<Gateway>,
    stream: S,
    client: Option<Client>,
    loopback: bool,
    (draining, cut): (CancellationToken, CancellationToken),
) where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(gateway.config().head_timeout);
    let service = service_fn(move |mut request: Request<Incoming>| {
        client.map(|client| request.extensions_mut().insert(client));
        let gateway = gateway.clone();
        async move { Ok::<_, Infallible>(answer(&gateway, request, loopback).await) }
    });
    let mut serving = pin!(builder.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        biased;
        () = cut.cancelled() => return,
        // An error means that the client cut the connection.
        _ = serving.as_mut() => return,
        () = draining.cancelled() => {}
    }
    serving.as_mut().graceful_shutdown();
    tokio::select! {
        () = cut.cancelled() => {}
        _ = serving => {}
    }
}

async fn answer(
    gateway: &Gateway,
    request: Request<Incoming>,
    loopback: bool,
) -> Response<Full<Bytes>> {
    if loopback && !is_local(&request) {
        let detail = "send the request from no other site, and to localhost or a loopback address";
        let elastic_product = gateway.config().sends_product();
        let problem = Err(Problem::new(Code::Host, detail));
        let shape = Shape::of_path(request.uri().path());
        return response(problem, shape, request.headers(), elastic_product);
    }
    Box::pin(gateway.answer(request)).await
}

/// Whether the request names this machine, and no other site sent it.
///
/// The host of the request must be this machine.
///
/// A page of another site can reach a loopback address, even under a name of its own.
fn is_local(request: &Request<Incoming>) -> bool {
    let text = |name| request.headers().get(name).map(|value| value.to_str().unwrap_or_default());
    let host = text(HOST).or_else(|| request.uri().authority().map(Authority::as_str));
    let origin = text(ORIGIN).map(|origin| origin.split("://").nth(1).unwrap_or_default());
    host.is_none_or(names_loopback) && origin.is_none_or(names_loopback)
}

fn names_loopback(host: &str) -> bool {
    let bare = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let address = bare.parse::<IpAddr>();
    bare.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_local() {
        for host in ["localhost", "LocalHost:9280", "127.0.0.1:9280", "127.1.2.3", "[::1]:9280"] {
            assert!(names_loopback(host), "{host}");
        }
        for host in ["example.com", "localhost.example.com:9280", "10.0.0.1", "[::2]", ""] {
            assert!(!names_loopback(host), "{host}");
        }
    }
}
