//! Metrics for Prometheus: counted by an observer, printed as text.
//!
//! ```sh
//! cargo run -p txn-examples --example metrics
//! ```

use std::sync::Arc;
use std::time::Duration;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use txn_core::{Config, Domain, Error, Raw, Transaction};
use txn_metrics::Metrics;
use txn_redb::RedbStore;

/// Bounds of buckets, in seconds.
///
/// Without bounds the exporter shows quantiles, which cannot be summed over processes.
const SECONDS: [f64; 9] = [0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0];

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // First the recorder, one per process; then the metrics.
    let seconds = Matcher::Suffix("_seconds".to_owned());
    let group = Matcher::Full(txn_metrics::figures::GROUP_TRANSACTIONS.to_owned());
    let recorder = PrometheusBuilder::new()
        .set_buckets_for_metric(seconds, &SECONDS)?
        .set_buckets_for_metric(group, &[2.0, 4.0, 8.0, 16.0, 32.0, 64.0])?
        .build_recorder();
    let exposition = recorder.handle();
    metrics::set_global_recorder(recorder)?;

    let folder = tempfile::tempdir()?;
    let store = Arc::new(RedbStore::open(folder.path().join("shop.redb"))?);
    let metrics = Arc::new(Metrics::new("shop"));
    let config = Config::default().with_observer(Some(metrics.clone()));
    let domain = Domain::open_or_create(store, "shop", config).await?;
    let stock = domain.create_collection::<Raw>("stock", None).await?;

    let both = async |tx: &Transaction| {
        tx.insert(&stock, "apple", &Raw::new(r#"{"left": 3}"#))?;
        tx.insert(&stock, "pear", &Raw::new(r#"{"left": 4}"#))
    };
    // The second insert fails, because the documents exist.
    for _ in 0..2 {
        let result: Result<(), Error> = domain.transact(both).await;
        // No event carries the result of the caller.
        metrics.result(&result);
    }
    domain.shutdown(Duration::from_secs(5)).await;

    // A handler of `GET /metrics` returns this text. The upkeep is due every few seconds, even
    // without requests.
    exposition.run_upkeep();
    let text = exposition.render();
    println!("{text}");
    for line in [
        r#"txn_commits_total{domain="shop",label="none"} 1"#,
        r#"txn_documents_written_total{domain="shop"} 2"#,
        r#"txn_results_total{domain="shop",result="exists"} 1"#,
        r#"txn_commit_seconds_count{domain="shop"} 1"#,
        "# TYPE txn_finished_seconds histogram",
    ] {
        assert!(text.lines().any(|found| found == line), "no line {line}");
    }
    Ok(())
}

#[test]
fn runs() -> Result<(), Box<dyn std::error::Error>> {
    main()
}
