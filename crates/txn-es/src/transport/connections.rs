//! Creates and keeps connections to nodes.

use std::time::Duration;

use reqwest::{Client, ClientBuilder, Url};
use rustls::ClientConfig;
use txn_store::{StoreError, StoreErrorKind};

use super::tls;
use crate::config::EsConfig;

/// The idle time before TCP keep-alive probes a connection.
///
/// A connection whose peer has forgotten it is closed after three probes.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEP_ALIVE_PROBES: u32 = 3;

/// The settings of new connections.
#[derive(Clone)]
pub(super) struct Connections {
    tls: ClientConfig,
    compression: bool,
    proxy_from_environment: bool,
    connect_timeout: Duration,
    idle_timeout: Duration,
    request_timeout: Duration,
}

impl Connections {
    pub(super) fn new(config: &EsConfig) -> Result<Self, StoreError> {
        Ok(Self {
            tls: tls::client(config)?,
            compression: config.compression,
            proxy_from_environment: config.proxy_from_environment,
            connect_timeout: config.connect_timeout,
            idle_timeout: config.idle_timeout,
            request_timeout: config.request_timeout,
        })
    }

    /// Creates a client that keeps connections for later requests.
    pub(super) fn pooled(&self, url: &Url) -> Result<Client, StoreError> {
        build(self.builder(url).pool_idle_timeout(self.idle_timeout))
    }

    /// Creates a client with a new connection for each request.
    pub(super) fn unpooled(&self, url: &Url) -> Result<Client, StoreError> {
        build(self.builder(url).pool_max_idle_per_host(0))
    }

    fn builder(&self, url: &Url) -> ClientBuilder {
        let mut builder = Client::builder()
            .user_agent(concat!("txn-es/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .referer(false)
            .use_preconfigured_tls(self.tls.clone())
            .gzip(self.compression)
            .connect_timeout(self.connect_timeout)
            .tcp_keepalive(KEEP_ALIVE)
            .tcp_keepalive_interval(KEEP_ALIVE_INTERVAL)
            .tcp_keepalive_retries(KEEP_ALIVE_PROBES);
        // A peer that does not acknowledge sent bytes has forgotten the connection, or is dead.
        #[cfg(target_os = "linux")]
        {
            builder = builder.tcp_user_timeout(self.request_timeout / 2);
        }
        if !self.proxy_from_environment || is_local(url.host_str()) {
            builder = builder.no_proxy();
        }
        builder
    }
}

fn build(builder: ClientBuilder) -> Result<Client, StoreError> {
    builder.build().map_err(|_| {
        StoreError::new(StoreErrorKind::Misconfigured, "the HTTP client cannot be built")
    })
}

fn is_local(host: Option<&str>) -> bool {
    let host = host.unwrap_or_default().trim_matches(['[', ']']);
    let ip = host.parse::<std::net::IpAddr>();
    host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_on_this_machine_are_never_reached_by_proxy() {
        for host in ["127.0.0.1", "127.1.2.3", "[::1]", "localhost"] {
            assert!(is_local(Some(host)), "{host}");
        }
        assert!(!is_local(Some("db.example")) && !is_local(None));
    }
}
