//! An index is closed, and opened again.
//!
//! Expected: in the meantime transactions on the index end with an error that names it or is
//! transient. Afterwards transactions continue without a loss.

use txn_core::ErrorKind;
use txn_fixtures::administrator::{close, open};

use crate::server::Server;
use crate::stage::{Outcome, Service, Setup, Stage};

pub(super) async fn run(server: &Server) -> Outcome {
    let mut stage = Stage::open(server, |_| Setup::plain(server)).await;
    let service =
        Service::Refused(&[ErrorKind::Unavailable, ErrorKind::Misconfigured], &["closed"]);
    stage
        .during(service, async |stage| {
            for index in stage.indices() {
                close(stage.plain(), index).await?;
                stage.complains().await?;
                open(stage.plain(), index).await?;
                stage.load.acknowledges(40).await?;
            }
            Ok(())
        })
        .await;
    stage.end().await
}
