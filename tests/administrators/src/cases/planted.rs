//! At rest, a plain client deletes half of an acknowledged pair.
//!
//! The client also changes a balance. No library can prevent or notice this. The judge has to
//! report both.

use serde_json::json;

use crate::book::{self, Role, Told};
use crate::found::Found;
use crate::server::Server;
use crate::stage::{Outcome, Service, Setup, Stage};

pub(super) async fn run(server: &Server) -> Outcome {
    let mut stage = Stage::open(server, |_| Setup::plain(server)).await;
    stage.during(Service::GoesOn, async |stage| stage.load.acknowledges(60).await).await;
    stage.drain().await;
    let book = stage.load.book();
    let standing = book
        .pairs
        .iter()
        .find(|(_, pair)| pair.inserted == Told::Acknowledged && pair.deleted.is_none())
        .map(|(key, _)| book::pair(key));
    let [left, _] = standing.expect("a pair was inserted");
    let found = Found::read(stage.plain(), stage.accounts(), stage.entries()).await;
    let balance = found.visible(Role::Accounts, "a0").and_then(|a0| a0.field("balance").as_i64());
    let other = json!({"balance": balance.unwrap_or_default() + 1}).to_string();
    stage.plain().put(stage.accounts(), "a0", &other).await;
    stage.plain().ok("DELETE", &format!("/{}/_doc/{left}", stage.entries()), None).await;
    stage.end().await
}
