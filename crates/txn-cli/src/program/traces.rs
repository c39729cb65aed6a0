//! Traces for a collector of OpenTelemetry.
//!
//! Only spans are sent. Log lines may have ids of documents, and spans have none.

use std::env;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use opentelemetry::trace::TracerProvider;
use opentelemetry::{Key, Value};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, filter, fmt};

/// The variables that name a collector.
const ENDPOINTS: [&str; 2] =
    [opentelemetry_otlp::OTEL_EXPORTER_OTLP_ENDPOINT, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"];

/// The path of traces below the address of a collector.
const PATH: &str = "/v1/traces";

/// How long one request to the collector may take.
const SEND: Duration = Duration::from_secs(10);

/// How long the end of the program waits for the last traces.
const END: Duration = Duration::from_secs(5);

/// The name of a resource that sets no name.
const NAMELESS: &str = "unknown_service";

/// Sends spans until its end.
#[derive(Debug)]
pub struct Traces(SdkTracerProvider);

impl Traces {
    /// Sends the last spans, and waits for the answer.
    pub fn end(self) {
        if let Err(error) = self.0.shutdown_with_timeout(END) {
            tracing::warn!(%error, "the last traces were not sent");
        }
    }
}

/// Sends logs to standard error, and spans to a collector.
///
/// `variable`: the filter of the logs, as for [`init_logging`](super::init_logging). `endpoint`: the
/// address of the collector. Without an address the variables `OTEL_EXPORTER_OTLP_ENDPOINT` and
/// `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` count; without these, no spans are sent and `None` is
/// returned. `name`: the name of the service unless the environment sets one.
///
/// # Errors
/// If the address is no URL, or the environment has an invalid setting.
pub fn init_logging_and_traces(
    (variable, level): (&str, &str),
    endpoint: Option<&str>,
    name: &'static str,
) -> Result<Option<Traces>, ExporterBuildError> {
    let is_set = |variable: &str| env::var(variable).is_ok_and(|value| !value.is_empty());
    if endpoint.is_none() && !ENDPOINTS.into_iter().any(is_set) {
        super::init_logging(variable, level);
        return Ok(None);
    }
    let exporter = SpanExporter::builder().with_http().with_http_client(Client::new());
    let exporter = match endpoint {
        Some(base) => exporter.with_endpoint(format!("{}{PATH}", base.trim_end_matches('/'))),
        None => exporter,
    };
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter.build()?)
        .with_resource(resource(name))
        .build();
    let spans =
        filter::filter_fn(|metadata| metadata.is_span() && metadata.target().starts_with("txn_"));
    let traces = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer(name))
        .with_location(false)
        .with_threads(false)
        .with_filter(spans.with_max_level_hint(LevelFilter::DEBUG));
    let lines = fmt::layer().with_ansi(super::has_colors()).with_writer(io::stderr);
    let lines = lines.with_filter(super::log_filter(variable, level));
    tracing_subscriber::registry().with(traces).with(lines).init();
    Ok(Some(Traces(provider)))
}

/// The resource of all spans, as the environment describes it.
fn resource(name: &'static str) -> Resource {
    let resource = Resource::builder().build();
    let named = resource.get(&Key::from_static_str("service.name"));
    match named {
        Some(Value::String(named)) if !named.as_str().starts_with(NAMELESS) => resource,
        _ => Resource::builder().with_service_name(name).build(),
    }
}

/// Sends requests on the thread of the exporter, which needs no runtime.
#[derive(Debug)]
struct Client {
    agent: ureq::Agent,
    /// Whether the last request failed. Only the first of several failures is logged.
    failing: AtomicBool,
}

impl Client {
    fn new() -> Self {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(SEND))
            .build();
        Self { agent: config.into(), failing: AtomicBool::new(false) }
    }

    fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, ureq::Error> {
        let (parts, body) = request.into_parts();
        let response = self.agent.run(Request::from_parts(parts, body.as_ref()))?;
        let (parts, mut body) = response.into_parts();
        Ok(Response::from_parts(parts, body.read_to_vec()?.into()))
    }

    fn note(&self, failed: Option<&dyn std::fmt::Display>) {
        let before = self.failing.swap(failed.is_some(), Ordering::Relaxed);
        if let (false, Some(why)) = (before, failed) {
            tracing::warn!(%why, "the collector takes no traces");
        }
    }
}

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        match self.send(request) {
            Ok(response) => {
                let refused = (!response.status().is_success()).then(|| response.status());
                self.note(refused.as_ref().map(|status| status as &dyn std::fmt::Display));
                Ok(response)
            }
            Err(error) => {
                self.note(Some(&error));
                Err(error.into())
            }
        }
    }
}
