//! A plain rewrite of all documents, as after a mapping change.
//!
//! The rewrite changes no content and moves every version. Expected: transactions continue without
//! a loss, through the index and through `<index>-committed`.

use serde_json::json;

use super::beside;
use super::scan::{Change, Through, once};
use crate::server::Server;
use crate::stage::{Outcome, Service, Setup, Stage};

pub(super) async fn run(server: &Server, through: Through) -> Outcome {
    let mut stage = Stage::open(server, |_| Setup::plain(server)).await;
    stage
        .during(Service::GoesOn, async |stage| {
            let query = json!({"match_all": {}});
            beside(stage, 10, 400, async || {
                for index in stage.indices() {
                    once(stage, &through.name(index), &query, Change::Rewrite).await?;
                }
                Ok(())
            })
            .await
        })
        .await;
    stage.end().await
}
