//! An index is closed, and opened again.
//!
//! Expected: in the meantime transactions on the index end with an error that names it or is
//! transient. Afterwards transactions continue without a loss.

use std::time::Duration;

use txn_core::ErrorKind;

use super::send;
use crate::server::Server;
use crate::stage::{Outcome, Service, Setup, Stage};

pub(super) async fn run(server: &Server) -> Outcome {
    let mut stage = Stage::open(server, |_| Setup::plain(server)).await;
    let service =
        Service::Refused(&[ErrorKind::Unavailable, ErrorKind::Misconfigured], &["closed"]);
    stage
        .during(service, async |stage| {
            for index in stage.indices() {
                send(stage.plain(), "POST", &format!("/{index}/_close"), None).await?;
                stage.complains().await?;
                send(stage.plain(), "POST", &format!("/{index}/_open"), None).await?;
                // Wait for the shards.
                tokio::time::sleep(Duration::from_millis(200)).await;
                stage.load.acknowledges(40).await?;
            }
            Ok(())
        })
        .await;
    stage.end().await
}
