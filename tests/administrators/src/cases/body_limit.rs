//! A proxy refuses large bodies with 413.
//!
//! Expected: a transaction with a larger body is refused with an error about the size, which is not
//! transient. The transaction leaves nothing. Smaller transactions continue.

use txn_core::{Error, ErrorKind, Options};
use txn_testkit::proxy::{Manners, Proxy};

use crate::load::{Entry, Process};
use crate::server::Server;
use crate::stage::{Outcome, Service, Setup, Stage, config};

/// The proxy's limit, in bytes.
const LIMIT: usize = 64 * 1024;

pub(super) async fn run(server: &Server) -> Outcome {
    let proxy = Proxy::start(&server.url).await.expect("a proxy listens");
    proxy.set_manners(Manners::default().with_body_limit(LIMIT));
    let config = config(&proxy.url());
    let setup = Setup { processes: vec![config.clone(), config], alias: None };
    let mut stage = Stage::open(server, |_| setup).await;
    let mut wrong = Vec::new();
    stage
        .during(Service::GoesOn, async |stage| {
            for (name, documents, size) in
                [("one", 1, 2 * LIMIT), ("two", 2, 2 * LIMIT), ("many", 40, LIMIT / 10)]
            {
                let told = Box::pin(insert(stage, name, documents, size)).await;
                wrong.extend(judge(name, told));
            }
            stage.load.acknowledges(60).await
        })
        .await;
    for why in wrong {
        stage.violation(why);
    }
    stage.end().await
}

/// Returns the fault of the answer to an oversized transaction.
fn judge(name: &str, told: Result<(), Error>) -> Option<String> {
    match told {
        Err(error)
            if matches!(error.kind(), ErrorKind::Invalid | ErrorKind::Misconfigured)
                && ["bytes", "limit", "413"]
                    .iter()
                    .any(|word| error.to_string().contains(word)) =>
        {
            None
        }
        other => Some(format!("the transaction `{name}` was told {other:?}")),
    }
}

/// Inserts documents that are large together.
async fn insert(stage: &Stage, name: &str, documents: usize, size: usize) -> Result<(), Error> {
    let Process { domain, entries, .. } = stage.load.process(0);
    // The numbers only make the document large: a longer list is a larger document.
    let moves = (0..size / 6).map(|number| (number % 10, 0)).collect();
    let entry = Entry { kind: "large".to_owned(), moves };
    domain
        .run::<_, Error, _>(&Options::default(), async |tx| {
            (0..documents).try_for_each(|number| {
                tx.insert(&entries, format!("large-{name}-{number}"), &entry)
            })
        })
        .await
        .map(drop)
}
