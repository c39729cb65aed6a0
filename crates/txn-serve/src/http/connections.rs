//! Connections: accepted up to a limit, and drained at the end.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::site::Peer;
use super::slow_client::SlowClient;
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
        let on_loopback = listener.local_addr().is_ok_and(|address| address.ip().is_loopback());
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
            let connection = self.connection(stream, on_loopback);
            self.tasks.spawn(async move {
                connection.await;
                drop(place);
            });
        }
    }

    fn connection(
        &self,
        stream: TcpStream,
        on_loopback: bool,
    ) -> impl Future<Output = ()> + Send + 'static {
        let marks = (self.draining.clone(), self.cut.clone());
        let gateway = self.gateway.clone();
        async move {
            let client = stream.peer_addr().ok().map(|address| address.ip());
            let peer = Peer { client, on_loopback };
            // A small answer must not wait for more bytes.
            let _ = stream.set_nodelay(true);
            let stream = SlowClient::new(stream, gateway.config().write_timeout);
            let Some(tls) = gateway.config().tls.clone() else {
                return serve(gateway, stream, peer, marks).await;
            };
            let timeout = gateway.config().head_timeout;
            let greeted = tokio::time::timeout(timeout, tls.acceptor().accept(stream));
            let greeted = tokio::select! {
                biased;
                () = marks.0.cancelled() => return,
                greeted = greeted => greeted,
            };
            if let Ok(Ok(stream)) = greeted {
                serve(gateway, stream, peer, marks).await;
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
    peer: Peer,
    (draining, cut): (CancellationToken, CancellationToken),
) where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(gateway.config().head_timeout);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        let gateway = gateway.clone();
        async move { Ok::<_, Infallible>(Box::pin(gateway.answer(request)).await) }
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
