//! Traces for OpenTelemetry: one tree of spans for each transaction.
//!
//! ```sh
//! cargo run -p txn-examples --example traces
//! ```

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::trace::{SpanId, TracerProvider};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use tracing_subscriber::filter::{LevelFilter, filter_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, fmt};
use txn_core::{Config, Domain, Error, Options, Raw};
use txn_redb::RedbStore;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A program takes the exporter of opentelemetry-otlp instead.
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    // Only spans: log lines may have ids of documents.
    let spans = filter_fn(|metadata| metadata.is_span() && metadata.target().starts_with("txn_"));
    let traces = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer("shop"))
        .with_filter(spans.with_max_level_hint(LevelFilter::DEBUG));
    let lines = fmt::layer().with_filter(EnvFilter::new("warn"));
    tracing_subscriber::registry().with(traces).with(lines).init();

    let folder = tempfile::tempdir()?;
    let store = Arc::new(RedbStore::open(folder.path().join("shop.redb"))?);
    let domain = Domain::open_or_create(store, "shop", Config::default()).await?;
    let stock = domain.create_collection::<Raw>("stock", None).await?;
    let options = Options::default().with_label("delivery");
    let delivered = domain.run(&options, async |tx| {
        tx.insert(&stock, "apple", &Raw::new(r#"{"left": 3}"#))?;
        tx.insert(&stock, "pear", &Raw::new(r#"{"left": 4}"#))?;
        Ok::<_, Error>(())
    });
    delivered.await?;
    domain.shutdown(Duration::from_secs(5)).await;

    let spans = exporter.get_finished_spans()?;
    let root = spans.iter().find(|span| span.name == "transaction").ok_or("no transaction")?;
    print(&spans, root, 0);
    let names = children(&spans, root.span_context.span_id()).map(|span| &*span.name);
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    assert_eq!(names, ["apply", "attempt", "commit", "lock"]);
    Ok(())
}

/// Prints a span, and the spans below it.
fn print(spans: &[SpanData], span: &SpanData, depth: usize) {
    let fields = span.attributes.iter();
    let fields: Vec<String> =
        fields.map(|field| format!("{}={}", field.key, field.value)).collect();
    println!("{:indent$}{} {}", "", span.name, fields.join(" "), indent = 2 * depth);
    children(spans, span.span_context.span_id()).for_each(|child| print(spans, child, depth + 1));
}

fn children(spans: &[SpanData], parent: SpanId) -> impl Iterator<Item = &SpanData> {
    spans.iter().filter(move |span| span.parent_span_id == parent)
}

#[test]
fn runs() -> Result<(), Box<dyn std::error::Error>> {
    main()
}
