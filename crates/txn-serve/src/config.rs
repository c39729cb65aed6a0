//! Settings of the gateway.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use txn_es::EsStore;
use txn_metrics::Metrics;
use txn_outbox::OutboxError;
use txn_outbox::http::HttpConfig;

use crate::access::Tokens;
use crate::http::tls::Tls;

/// Renders the metrics of the process, in the text format of Prometheus.
pub type RenderMetrics = Arc<dyn Fn() -> String + Send + Sync>;

/// Settings of a [`Server`](crate::Server).
#[derive(Clone)]
#[non_exhaustive]
pub struct ServeConfig {
    /// The maximum size of the body of a request, in bytes. Default: 16 MiB.
    ///
    /// The largest document also depends on the store.
    pub max_body: usize,
    /// The maximum number of bytes of all bodies and answers together.
    ///
    /// The bodies are those of running requests.
    ///
    /// The contents that bulks, reads and `reads` of commits load count, too, and are checked after
    /// each 500 documents. An answer above 16 KiB counts until the client has taken it. Beyond this
    /// number a request is refused with 429. A body without a known length counts as `max_body`.
    /// The answer of a write is sent in any case. Default: 256 MiB.
    pub max_buffered: usize,
    /// The maximum number of actions, operations or keys of a request. Default: 5,000.
    pub max_documents: usize,
    /// The maximum number of requests that run at the same time.
    ///
    /// Beyond this number a request is refused with 429 and `Retry-After`. At most half of these
    /// requests are reads for update that wait for a reservation, and at most a quarter wait for a
    /// lock. Default: 512.
    pub max_requests: usize,
    /// The maximum number of connections. Further clients wait until a connection ends.
    /// Default: 1,024.
    pub max_connections: usize,
    /// The time limit for the head of a request. The time includes the idle time of the connection.
    /// Default: 60 s.
    pub head_timeout: Duration,
    /// How long a client may take for the body of a request. Default: 30 s.
    pub body_timeout: Duration,
    /// How long a client may take no bytes of its answer. Default: 30 s.
    ///
    /// After this time the gateway closes the connection. A waiting client has to take 16 KiB
    /// within this time.
    pub write_timeout: Duration,
    /// How long the transaction of a request may take. Default: 20 s.
    ///
    /// Keep it shorter than the timeout of the clients, which is 30 s for most of them. Otherwise
    /// a client repeats a request whose first run still works. The time begins after the body has
    /// arrived and the collections are open.
    pub timeout: Duration,
    /// How long a read for update reserves its documents. Default: 50 ms.
    ///
    /// The time begins with the answer of the read, and again when the commit arrives. It has to
    /// exceed the time in which most clients compute and send the commit. Other reads for update of
    /// the documents wait for a client that does not come back. A reservation guards nothing.
    pub reservation: Duration,
    /// How long the gateway waits at its end for running requests. Default: 30 s.
    pub drain: Duration,
    /// How long the answer under an `Idempotency-Key` is kept. Default: 24 hours.
    pub idempotency_ttl: Duration,
    /// Whether the gateway carries out submitted requests. Default: no.
    ///
    /// Otherwise another process has to run a processor. Any number of processors may run.
    pub processor: bool,
    /// The HTTP requests that transactions may store, and that the gateway sends.
    ///
    /// The gateway also sends the requests of other processes of the domain. A request for no
    /// listed destination then becomes a dead letter. Each caller with the right `call` can make
    /// the gateway call a destination. Default: none, and such transactions are refused.
    pub http_requests: Option<HttpConfig>,
    /// Whether a write to a missing collection creates it. Default: no.
    pub create_collections: bool,
    /// Whether each answer has the header `X-Elastic-Product`.
    ///
    /// The official clients of Elasticsearch refuse a server without this header. In front of
    /// Elasticsearch the gateway sends it in any case. Default: no.
    pub elastic_product: bool,
    /// The tokens that callers need. Default: none, and each caller may send each request.
    ///
    /// Probes need no token.
    pub tokens: Option<Tokens>,
    /// The certificate of the gateway. Default: none, and connections are not encrypted.
    pub tls: Option<Tls>,
    /// The servers that carry out requests for other indices.
    ///
    /// The requests have the login of this store.
    ///
    /// Without [`tokens`](Self::tokens), each caller of the gateway can read what this login can
    /// read. Default: none.
    pub servers: Option<EsStore>,
    /// Whether writes to indices that are no collections pass through.
    ///
    /// The writes go to the servers.
    ///
    /// Each caller can then write to indices of applications that this login can write to, and can
    /// create and delete such indices. Default: yes.
    pub pass_writes: bool,
    /// The size limit of answers, in bytes. The limit holds for answers that are passed through,
    /// and for answers with documents. Default: 64 MiB.
    pub max_answer: usize,
    /// Renders the answer of `GET /metrics`. Default: none, and the path does not exist.
    pub metrics: Option<RenderMetrics>,
    /// Counts the results of transactions, as `txn_results_total`. Default: none.
    pub results: Option<Arc<Metrics>>,
}

impl fmt::Debug for ServeConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { max_body, max_buffered, max_documents, max_requests, .. } = self;
        let Self { max_connections, timeout, drain, create_collections, .. } = self;
        f.debug_struct("ServeConfig")
            .field("max_body", max_body)
            .field("max_buffered", max_buffered)
            .field("max_documents", max_documents)
            .field("max_requests", max_requests)
            .field("max_connections", max_connections)
            .field("timeout", timeout)
            .field("drain", drain)
            .field("create_collections", create_collections)
            .finish_non_exhaustive()
    }
}

impl Default for ServeConfig {
    fn default() -> Self {
        Self {
            max_body: 16 << 20,
            max_buffered: 256 << 20,
            max_documents: 5_000,
            max_requests: 512,
            max_connections: 1_024,
            head_timeout: Duration::from_secs(60),
            body_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
            timeout: Duration::from_secs(20),
            reservation: Duration::from_millis(50),
            drain: Duration::from_secs(30),
            idempotency_ttl: Duration::from_secs(24 * 3_600),
            processor: false,
            http_requests: None,
            create_collections: false,
            elastic_product: false,
            tokens: None,
            tls: None,
            servers: None,
            pass_writes: true,
            max_answer: 64 << 20,
            metrics: None,
            results: None,
        }
    }
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $field:ident: $type:ty;)*) => {
        impl ServeConfig {$(
            $(#[$doc])*
            #[must_use]
            pub fn $name(mut self, $field: $type) -> Self {
                self.$field = $field;
                self
            }
        )*}
    };
}

setters! {
    /// Sets [`ServeConfig::max_body`].
    with_max_body: max_body: usize;
    /// Sets [`ServeConfig::max_buffered`].
    with_max_buffered: max_buffered: usize;
    /// Sets [`ServeConfig::max_documents`].
    with_max_documents: max_documents: usize;
    /// Sets [`ServeConfig::max_requests`].
    with_max_requests: max_requests: usize;
    /// Sets [`ServeConfig::max_connections`].
    with_max_connections: max_connections: usize;
    /// Sets [`ServeConfig::head_timeout`].
    with_head_timeout: head_timeout: Duration;
    /// Sets [`ServeConfig::body_timeout`].
    with_body_timeout: body_timeout: Duration;
    /// Sets [`ServeConfig::write_timeout`].
    with_write_timeout: write_timeout: Duration;
    /// Sets [`ServeConfig::timeout`].
    with_timeout: timeout: Duration;
    /// Sets [`ServeConfig::reservation`].
    with_reservation: reservation: Duration;
    /// Sets [`ServeConfig::drain`].
    with_drain: drain: Duration;
    /// Sets [`ServeConfig::idempotency_ttl`].
    with_idempotency_ttl: idempotency_ttl: Duration;
    /// Sets [`ServeConfig::processor`].
    with_processor: processor: bool;
    /// Sets [`ServeConfig::http_requests`].
    with_http_requests: http_requests: Option<HttpConfig>;
    /// Sets [`ServeConfig::create_collections`].
    with_create_collections: create_collections: bool;
    /// Sets [`ServeConfig::elastic_product`].
    with_elastic_product: elastic_product: bool;
    /// Sets [`ServeConfig::tokens`].
    with_tokens: tokens: Option<Tokens>;
    /// Sets [`ServeConfig::tls`].
    with_tls: tls: Option<Tls>;
    /// Sets [`ServeConfig::servers`].
    with_servers: servers: Option<EsStore>;
    /// Sets [`ServeConfig::pass_writes`].
    with_pass_writes: pass_writes: bool;
    /// Sets [`ServeConfig::max_answer`].
    with_max_answer: max_answer: usize;
    /// Sets [`ServeConfig::metrics`].
    with_metrics: metrics: Option<RenderMetrics>;
    /// Sets [`ServeConfig::results`].
    with_results: results: Option<Arc<Metrics>>;
}

impl ServeConfig {
    /// Whether the clients of Elasticsearch find the product header.
    pub(crate) fn sends_product(&self) -> bool {
        let behind = self.servers.as_ref();
        self.elastic_product
            || behind.is_some_and(|servers| servers.server().distribution == "elasticsearch")
    }

    /// The reason why these settings cannot work.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let bounds = [self.max_body, self.max_documents, self.max_requests, self.max_connections];
        if bounds.contains(&0) {
            return Err("a bound is zero");
        }
        if self.max_buffered < self.max_body {
            return Err("max_buffered is smaller than max_body");
        }
        if let Some(http) = &self.http_requests
            && let Err(OutboxError::InvalidConfig(why)) = http.check()
        {
            return Err(why);
        }
        let times = [self.head_timeout, self.body_timeout, self.write_timeout];
        let times = times.into_iter().chain([self.timeout, self.reservation, self.idempotency_ttl]);
        if times.into_iter().any(|time| time.is_zero()) {
            return Err("a time is zero");
        }
        Ok(())
    }
}
