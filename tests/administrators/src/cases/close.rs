//! An index is closed, and opened again.
//!
//! Expected: meanwhile transactions that need the index end by an error that names it or passes by itself; afterwards they
//! go on, and none is lost.

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
                // The shards come back.
                tokio::time::sleep(Duration::from_millis(200)).await;
                stage.load.acknowledges(40).await?;
            }
            Ok(())
        })
        .await;
    stage.end().await
}
