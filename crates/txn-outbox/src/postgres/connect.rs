//! One connection to the database, made again when it is gone.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use tokio_postgres::{Client, NoTls};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use txn_core::clock::Clock;

use crate::error::{OutboxError, Result};

/// A client, and what has to run for as long as it is used.
pub type Connection = (Client, BoxFuture<'static, Result<(), tokio_postgres::Error>>);

/// Makes connections to the database: [`Plain`], or your own with TLS.
#[async_trait]
pub trait Connector: fmt::Debug + Send + Sync + 'static {
    /// Makes a connection.
    ///
    /// # Errors
    /// As the driver says.
    async fn connect(&self) -> Result<Connection, tokio_postgres::Error>;
}

/// Connections without TLS: over a socket of this machine, or within a network that is trusted.
#[derive(Clone)]
pub struct Plain(pub tokio_postgres::Config);

/// What a configuration holds stays out of logs.
impl fmt::Debug for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plain").finish_non_exhaustive()
    }
}

#[async_trait]
impl Connector for Plain {
    async fn connect(&self) -> Result<Connection, tokio_postgres::Error> {
        let (client, connection) = self.0.connect(NoTls).await?;
        Ok((client, Box::pin(connection)))
    }
}

/// The connection of a source.
#[derive(Debug)]
pub(crate) struct Link {
    connector: Arc<dyn Connector>,
    client: tokio::sync::Mutex<Option<Arc<Client>>>,
    clock: Arc<dyn Clock>,
    /// How long the database may take for anything.
    limit: Duration,
    pub(crate) tasks: TaskTracker,
    pub(crate) closing: CancellationToken,
}

impl Link {
    pub(crate) fn new(
        connector: Arc<dyn Connector>,
        clock: Arc<dyn Clock>,
        limit: Duration,
    ) -> Self {
        Self {
            connector,
            client: tokio::sync::Mutex::default(),
            clock,
            limit,
            tasks: TaskTracker::new(),
            closing: CancellationToken::new(),
        }
    }

    /// Asks the database something, over a connection that stands.
    pub(crate) async fn ask<T, R>(
        &self,
        doing: &str,
        ask: impl FnOnce(Arc<Client>) -> R,
    ) -> Result<T>
    where
        R: Future<Output = Result<T, tokio_postgres::Error>>,
    {
        let asked = async {
            let client = self.client().await?;
            ask(client).await
        };
        tokio::select! {
            biased;
            answer = asked => answer.map_err(|error| told(doing, error)),
            () = self.clock.sleep(self.limit) => {
                // Whatever is under way there: the next question has a connection of its own.
                *self.client.lock().await = None;
                let what = format!("cannot {doing}: it did not answer within {:?}", self.limit);
                Err(OutboxError::Database { what, source: None })
            }
        }
    }

    async fn client(&self) -> Result<Arc<Client>, tokio_postgres::Error> {
        let mut known = self.client.lock().await;
        if let Some(client) = known.as_ref().filter(|client| !client.is_closed()) {
            return Ok(client.clone());
        }
        let (client, connection) = self.connector.connect().await?;
        let closing = self.closing.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                biased;
                () = closing.cancelled() => {}
                ended = connection => {
                    if let Err(error) = ended {
                        tracing::warn!(%error, "the connection to the database of the outbox ended");
                    }
                }
            }
        });
        // What is not waited for any more is to end there, too.
        let limit = (self.limit * 9 / 10).as_millis();
        client.batch_execute(&format!("SET statement_timeout = {limit}")).await?;
        let client = Arc::new(client);
        *known = Some(client.clone());
        Ok(client)
    }
}

/// Dropped, its connection ends.
impl Drop for Link {
    fn drop(&mut self) {
        self.closing.cancel();
    }
}

fn told(doing: &str, error: tokio_postgres::Error) -> OutboxError {
    let why = match error.as_db_error() {
        Some(said) => said.message().to_owned(),
        None => error.to_string(),
    };
    let what = format!("cannot {doing}: {why}");
    OutboxError::Database { what, source: Some(Box::new(error)) }
}
