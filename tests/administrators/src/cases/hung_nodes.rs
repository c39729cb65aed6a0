//! Nodes that hang and return: they accept requests, and answer nothing.
//!
//! Expected: with another live node, transactions continue. A few end with an error, because the
//! hung node received their request. Without a live node transactions end with a transient error,
//! and continue after a node returns. Nothing is lost.

use txn_es::EsConfig;
use txn_testkit::proxy::{Outage, Proxy};

use crate::server::Server;
use crate::stage::{Outcome, Service, Setup, Stage, WORKERS, timeouts};

/// The number of acknowledged transactions while nodes hang.
const BESIDE: u64 = 300;

/// One of three nodes hangs, and then two of them.
pub(super) async fn some(server: &Server) -> Outcome {
    let (first, second) = (proxy(server).await, proxy(server).await);
    let addresses = [server.url.clone(), first.url(), second.url()];
    let config = timeouts(EsConfig::new(addresses).expect("addresses"));
    let setup = Setup { processes: vec![config.clone(), config], alias: None };
    let mut stage = Stage::open(server, |_| setup).await;
    for hangs in [&[&first][..], &[&first, &second]] {
        let mut failed = 0;
        stage
            .during(Service::GoesOn, async |stage| {
                let before = stage.complaints_during();
                hangs.iter().for_each(|proxy| proxy.begin_outage(Outage::Hangs));
                let result = stage.load.acknowledges(BESIDE).await;
                failed = stage.complaints_during() - before;
                hangs.iter().for_each(|proxy| proxy.end_outage());
                result
            })
            .await;
        let why = format!("{failed} errors among {BESIDE} acknowledged transactions");
        stage.check(failed <= BESIDE / 10, format!("{} of 3 nodes hung: {why}", hangs.len()));
    }
    stage.end().await
}

/// The only node hangs.
pub(super) async fn all(server: &Server) -> Outcome {
    let proxy = proxy(server).await;
    let config = timeouts(EsConfig::from_url(&proxy.url()).expect("an address"));
    let setup = Setup { processes: vec![config.clone(), config], alias: None };
    let mut stage = Stage::open(server, |_| setup).await;
    stage
        .during(Service::GoesOn, async |stage| {
            proxy.begin_outage(Outage::Hangs);
            let told = stage.complains().await;
            proxy.end_outage();
            told?;
            stage.load.acknowledges(u64::try_from(4 * WORKERS).unwrap_or(u64::MAX)).await
        })
        .await;
    stage.end().await
}

async fn proxy(server: &Server) -> Proxy {
    Proxy::start(&server.url).await.expect("a proxy listens")
}
