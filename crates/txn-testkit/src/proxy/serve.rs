//! Connections of clients.

use std::sync::Arc;
use std::time::Instant;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};

use super::Shared;
use super::exchange::{Answer, Cut, exchange};

/// Accepts connections until the proxy stops.
pub(crate) async fn listen(shared: Arc<Shared>, listener: TcpListener) {
    loop {
        let accepted = tokio::select! {
            () = shared.stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                shared.connections.spawn(connection(shared.clone(), stream));
            }
            // Usually all file handles are in use, and some will be free again.
            Err(_) => tokio::time::sleep(std::time::Duration::from_millis(10)).await,
        }
    }
}

async fn connection(shared: Arc<Shared>, stream: TcpStream) {
    // A small answer must not wait for more bytes.
    let _ = stream.set_nodelay(true);
    // The time of the last answer; `None` on a new connection.
    let last: Mutex<Option<Instant>> = Mutex::default();
    let service = service_fn(|request| {
        let idle = last.lock().map(|last| last.elapsed()).unwrap_or_default();
        let (shared, last) = (shared.clone(), &last);
        async move {
            if shared.manners().idle_limit.is_some_and(|limit| idle > limit) {
                shared.tally.forgotten();
                return std::future::pending().await;
            }
            let answer = answer(shared, request).await;
            *last.lock() = Some(Instant::now());
            answer
        }
    });
    let serving = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        () = shared.stop.cancelled() => {}
        // An error means that the client or the proxy cut the connection.
        _ = serving => {}
    }
}

/// Answers one request.
///
/// A separate task forwards the request, and continues after the client is gone.
async fn answer(shared: Arc<Shared>, request: Request<Incoming>) -> Result<Answer, Cut> {
    let stop = shared.stop.clone();
    let (parts, body) = request.into_parts();
    let body = http_body_util::BodyExt::collect(body).await.map_err(|_| Cut)?.to_bytes();
    let tracker = shared.exchanges.clone();
    let on_its_way = tracker.spawn(async move {
        tokio::select! {
            () = stop.cancelled() => Err(Cut),
            answer = exchange(&shared, parts, body) => answer,
        }
    });
    on_its_way.await.unwrap_or(Err(Cut))
}
