//! Connections to a database: a pool, with or without TLS.
//!
//! No statement depends on the session of a connection. A pooler such as PgBouncer in transaction
//! mode may therefore use another session for each transaction. No prepared statement has a name,
//! and no setting outlives its transaction. The server ends a slow statement itself
//! (`statement_timeout`). The pool sends no cancel requests, because `tokio-postgres` closes their
//! connection early. PgBouncer 1.18 then fails with "bad client state".

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{Client, Manager, ManagerConfig, Pool, PoolError, RecyclingMethod};
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres::config::SslMode;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{NoTls, Row};
use tokio_postgres_rustls::MakeRustlsConnect;
use txn_core::clock::Clock;

use crate::error::{OutboxError, Result};
use crate::tls;

/// The default number of connections for single events.
const CONNECTIONS: usize = 4;

/// The address and the credentials of a database.
#[derive(Clone)]
pub struct Database {
    config: tokio_postgres::Config,
    tls: Option<MakeRustlsConnect>,
    connections: usize,
}

/// Leaves the configuration out of logs.
impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (tls, connections) = (self.tls.is_some(), self.connections);
        f.debug_struct("Database")
            .field("tls", &tls)
            .field("connections", &connections)
            .finish_non_exhaustive()
    }
}

impl Database {
    /// A database without TLS: a local socket, or a trusted network.
    #[must_use]
    pub fn new(config: tokio_postgres::Config) -> Self {
        Self { config, tls: None, connections: CONNECTIONS }
    }

    /// Requires TLS with these certificate authorities (PEM).
    ///
    /// The certificate of the server must be for its host.
    ///
    /// # Errors
    /// [`OutboxError::InvalidConfig`] if the text is not a certificate.
    pub fn with_certificate_authorities(self, pem: &[u8]) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        tls::trust(&mut roots, pem)?;
        Ok(self.with_tls(tls::client(roots)?))
    }

    /// Requires TLS with this configuration, for example with a client certificate.
    #[must_use]
    pub fn with_tls(mut self, tls: ClientConfig) -> Self {
        // The default mode prefers TLS, and continues without it.
        self.config.ssl_mode(SslMode::Require);
        self.tls = Some(MakeRustlsConnect::new(tls));
        self
    }

    /// Sets the maximum number of connections for single events. Default: 4.
    ///
    /// The source has one more connection for scans.
    #[must_use]
    pub fn with_connections(mut self, connections: usize) -> Self {
        self.connections = connections.max(1);
        self
    }

    fn pool(&self, connections: usize) -> Result<Pool> {
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = match self.tls.clone() {
            None => Manager::from_config(self.config.clone(), NoTls, recycling),
            Some(tls) => Manager::from_config(self.config.clone(), tls, recycling),
        };
        let pool = Pool::builder(manager).max_size(connections).build();
        pool.map_err(|_| OutboxError::InvalidConfig("the pool of connections cannot be made"))
    }
}

/// A parameter with its type, so that a statement needs no preparation.
pub(super) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// The connections of a source.
pub(crate) struct Connections {
    pool: Pool,
    clock: Arc<dyn Clock>,
    /// The time limit of each request, including the wait for a connection.
    limit: Duration,
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections").field("limit", &self.limit).finish_non_exhaustive()
    }
}

impl Connections {
    /// Creates a pool for single events. The pool connects at its first use.
    pub(super) fn new(database: &Database, clock: Arc<dyn Clock>, limit: Duration) -> Result<Self> {
        Self::with_connections(database, database.connections, clock, limit)
    }

    /// Creates a pool with one connection, for scans.
    pub(super) fn for_scans(
        database: &Database,
        clock: Arc<dyn Clock>,
        limit: Duration,
    ) -> Result<Self> {
        Self::with_connections(database, 1, clock, limit)
    }

    fn with_connections(
        database: &Database,
        connections: usize,
        clock: Arc<dyn Clock>,
        limit: Duration,
    ) -> Result<Self> {
        Ok(Self { pool: database.pool(connections)?, clock, limit })
    }

    /// Runs one statement in its own transaction, and returns its rows.
    pub(super) async fn rows(
        &self,
        doing: &str,
        statement: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>> {
        let begin = self.begin();
        let send = async |client: &Client| {
            // The client sends all three at once, in this order.
            let (begun, rows, committed) = tokio::join!(
                biased;
                client.batch_execute(&begin),
                client.query_typed(statement, parameters),
                client.batch_execute("COMMIT"),
            );
            let rows = rows?;
            begun.and(committed).map(|()| rows)
        };
        self.send(doing, send).await
    }

    /// Runs several statements in one transaction.
    pub(super) async fn run(&self, doing: &str, statements: &str) -> Result<()> {
        let all = format!("{}; {statements}; COMMIT", self.begin());
        self.send(doing, async |client| client.batch_execute(&all).await).await
    }

    /// Begins a transaction with a statement limit shorter than the client's.
    ///
    /// The error of the server then arrives before the client gives up.
    fn begin(&self) -> String {
        let limit = i32::try_from((self.limit * 9 / 10).as_millis()).unwrap_or(i32::MAX);
        format!("BEGIN; SET LOCAL statement_timeout = {limit}")
    }

    /// Sends a request over a connection of the pool.
    async fn send<T>(
        &self,
        doing: &str,
        send: impl AsyncFnOnce(&Client) -> Result<T, tokio_postgres::Error>,
    ) -> Result<T> {
        let sent = async {
            let client = self.pool.get().await.map_err(|error| no_connection(doing, error))?;
            let mut running = RunningRequest(Some(client));
            let Some(client) = &running.0 else { unreachable!("it was just put there") };
            let answer = send(client).await.map_err(|error| database_error(doing, error))?;
            // The connection returns to the pool. A connection with an error does not, because its
            // transaction may still be open.
            drop(running.0.take());
            Ok(answer)
        };
        tokio::select! {
            biased;
            answer = sent => answer,
            () = self.clock.sleep(self.limit) => {
                let what = format!("cannot {doing}: it did not answer within {:?}", self.limit);
                Err(OutboxError::Database { what, source: None })
            }
        }
    }

    /// Closes the connections.
    pub(super) fn close(&self) {
        self.pool.close();
    }
}

/// A request under way. A dropped request closes its connection.
struct RunningRequest(Option<Client>);

impl Drop for RunningRequest {
    fn drop(&mut self) {
        if let Some(client) = self.0.take() {
            drop(Client::take(client));
        }
    }
}

fn no_connection(doing: &str, error: PoolError) -> OutboxError {
    match error {
        PoolError::Backend(error) => database_error(doing, error),
        error => {
            let what = format!("cannot {doing}: {error}");
            OutboxError::Database { what, source: Some(Box::new(error)) }
        }
    }
}

fn database_error(doing: &str, error: tokio_postgres::Error) -> OutboxError {
    let why = match error.as_db_error() {
        Some(error) => error.message().to_owned(),
        None => chain(&error),
    };
    let what = format!("cannot {doing}: {why}");
    OutboxError::Database { what, source: Some(Box::new(error)) }
}

/// An error with its sources: they have the reason of a failure.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_certificate_is_refused_without_its_text() {
        let mut config = tokio_postgres::Config::new();
        config.host("a.example").password("sesame");
        let database = Database::new(config);
        for pem in
            [&b""[..], b"nothing", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"]
        {
            let refused = database.clone().with_certificate_authorities(pem);
            assert!(matches!(refused, Err(OutboxError::InvalidConfig(_))), "{pem:?}");
        }
        let shown = format!("{database:?}");
        assert!(!shown.contains("sesame") && !shown.contains("a.example"), "{shown}");
    }
}
