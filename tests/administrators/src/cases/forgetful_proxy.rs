//! A balancer or firewall forgets idle connections, and answers nothing on them.
//!
//! Expected: a process that keeps idle connections for a shorter time is not affected. A process
//! that keeps them longer waits for missing answers, and continues on new connections. Nothing is
//! lost.

use std::time::Duration;

use txn_es::EsConfig;
use txn_testkit::proxy::{Manners, Proxy};

use crate::server::Server;
use crate::stage::{Outcome, Service, Setup, Stage, timeouts};

/// The idle time after which the proxy forgets a connection.
const FORGETS: Duration = Duration::from_secs(1);

pub(super) async fn run(server: &Server) -> Outcome {
    let (careful, careless) = (proxy(server).await, proxy(server).await);
    let config = |proxy: &Proxy| timeouts(EsConfig::from_url(&proxy.url()).expect("an address"));
    let processes = vec![config(&careful).with_idle_timeout(FORGETS / 4), config(&careless)];
    let mut stage = Stage::open(server, |_| Setup { processes, alias: None }).await;
    for proxy in [&careful, &careless] {
        proxy.set_manners(Manners::default().with_idle_limit(FORGETS));
    }
    for _ in 0..3 {
        stage.during(Service::GoesOn, async |stage| stage.load.acknowledges(40).await).await;
        // Only the janitor sends requests.
        tokio::time::sleep(2 * FORGETS).await;
    }
    let (met, forgotten) = (careful.counts().forgotten, careless.counts().forgotten);
    stage.check(met == 0, format!("the careful process sent {met} requests on idle connections"));
    stage.check(forgotten > 0, "the careless process met no connection that was forgotten");
    stage.end().await
}

async fn proxy(server: &Server) -> Proxy {
    Proxy::start(&server.url).await.expect("a proxy listens")
}
