//! The server: a gateway that listens.

use std::fmt;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Body;
use hyper::{Request, Response};
use tokio::net::TcpListener;
use txn_core::Domain;

use crate::config::ServeConfig;
use crate::gateway::Gateway;
use crate::http::connections::Connections;

/// The HTTP gateway of one domain. Cheap to clone.
#[derive(Clone)]
pub struct Server {
    gateway: Arc<Gateway>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("gateway", &self.gateway).finish()
    }
}

impl Server {
    /// Creates a gateway. The caller shuts the domain down after the gateway.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for settings that cannot work.
    pub fn new(domain: &Domain, config: ServeConfig) -> io::Result<Self> {
        config.check().map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))?;
        Ok(Self { gateway: Arc::new(Gateway::new(domain.clone(), config)) })
    }

    /// Answers requests of a listener until `stop` ends, and then drains.
    ///
    /// A drain accepts no connection, and waits for the running requests for at most
    /// [`ServeConfig::drain`]. Returns whether all running requests were answered.
    ///
    /// While the gateway runs, it reads changed files of tokens and certificates again. It also
    /// deletes the answers whose [`ServeConfig::idempotency_ttl`] has passed, carries out the roles
    /// of [`ServeConfig::processor`] and [`ServeConfig::http_requests`], and samples its requests
    /// for the plots of the console.
    ///
    /// A listener on a loopback address answers only requests to `localhost` or a loopback address.
    ///
    /// # Cancel safety
    /// If the returned future is dropped, running requests continue until their connections end.
    pub async fn serve(&self, listener: TcpListener, stop: impl Future<Output = ()>) -> bool {
        let connections = Connections::new(self.gateway.clone());
        tokio::select! {
            () = connections.accept(listener, stop) => {}
            () = self.gateway.purge_answers() => {}
            () = self.gateway.watch_files() => {}
            () = self.gateway.process_requests() => {}
            () = self.gateway.send_http_requests() => {}
            () = self.gateway.take_samples() => {}
        }
        let drained = connections.drain().await;
        if !self.gateway.shut_down_systems().await {
            tracing::warn!(
                "some submitted or HTTP requests still run: another process finishes them"
            );
        }
        drained
    }

    /// Answers one request, without a connection.
    pub async fn answer<B>(&self, request: Request<B>) -> Response<Full<Bytes>>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.gateway.answer(request).await
    }
}
