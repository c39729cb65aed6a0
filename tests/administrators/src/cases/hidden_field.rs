//! Field-level security, or a proxy, hides a field from reads.
//!
//! Expected: a process that would see documents without the field is refused at the opening of the
//! collection. The error names the cause: a lock would write the documents back without the field.
//! Processes that see all fields continue.

use serde_json::json;
use txn_core::ErrorKind;
use txn_testkit::proxy::{Manners, Proxy};

use crate::server::Server;
use crate::stage::{Outcome, Service, Setup, Stage, config};

pub(super) async fn run(server: &Server) -> Outcome {
    let proxy = Proxy::start(&server.url).await.expect("a proxy listens");
    let mut stage = Stage::prepared(server, async |fixture| {
        let index = fixture.name("accounts");
        fixture.plain.make(&index, &json!({})).await;
        let secret = json!({"balance": 1, "secret": "kept"}).to_string();
        for number in 0..3 {
            fixture.plain.put(&index, &format!("with-secret-{number}"), &secret).await;
        }
        Setup::plain(server)
    })
    .await;
    for number in 0..3 {
        stage.owns(&format!("with-secret-{number}"));
    }
    proxy.set_manners(Manners::default().with_hidden_field("secret"));
    let mut told = None;
    stage
        .during(Service::GoesOn, async |stage| {
            told = Some(stage.process_at(config(&proxy.url())).await.map(drop));
            stage.load.acknowledges(60).await
        })
        .await;
    let is_refused = matches!(&told, Some(Err(error))
        if error.kind() == ErrorKind::Misconfigured && error.to_string().contains("field"));
    stage.check(is_refused, format!("a process that sees not all fields was told {told:?}"));
    stage.end().await
}
