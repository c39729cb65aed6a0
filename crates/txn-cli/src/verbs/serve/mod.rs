//! The verb that runs the HTTP gateway.

mod levels;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use serde_json::json;
use tokio::net::TcpListener;
use txn_cli::Address;
use txn_core::{Config, Domain};
use txn_metrics::Metrics;
use txn_outbox::OutboxError;
use txn_outbox::http::{Destination, HttpConfig, SecretFiles};
use txn_serve::{NewToken, ServeConfig, Server, Tls, Tokens};

use crate::answer::{Answer, Exit, Failure};
use crate::args::{self, Global, Pass, Serve, ServeVerb};
use crate::session;
use levels::Levels;

/// The embedded file of a gateway without --store.
const FILE: &str = "txn.redb";

/// The domain of that file.
const DOMAIN: &str = "main";

/// The upper bounds of measured times, in seconds.
const BUCKETS: [f64; 12] = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0, 20.0];

/// How long the gateway waits at its end for unapplied commits.
const MAX_APPLY_WAIT: Duration = Duration::from_secs(10);

pub(super) async fn serve(mut global: Global, options: Serve) -> Result<Answer, Failure> {
    if let Some(ServeVerb::Token(new)) = &options.what {
        return token(new);
    }
    check_address(&options)?;
    let secured = secured(&options)?;
    let http_requests = http_requests(&options)?;
    let store = global.store.get_or_insert_with(|| Address::Redb(PathBuf::from(FILE)));
    let embedded = matches!(store, Address::Redb(_));
    if embedded {
        global.domain.get_or_insert_with(|| DOMAIN.to_owned());
    }
    // The address is free or not before the store is opened.
    let listener = listen(options.listen).await?;
    let name = session::name(&global)?.to_owned();
    let recorder = metrics()?;
    let open = session::store(&global, embedded).await?;
    let labels = options.metric_labels.iter().map(String::as_str);
    let metrics = Arc::new(Metrics::new(&name).with_labels(labels));
    let config = of_domain(&global, &options).with_observer(Some(metrics.clone()));
    let domain = match embedded {
        true => Domain::open_or_create(open.store.clone(), &name, config).await,
        false => Domain::open(open.store.clone(), &name, config).await,
    };
    let served = match domain {
        Ok(domain) => {
            let create = embedded || options.create_collections;
            let rendering = recorder.clone();
            let max_requests = usize::try_from(options.max_requests).unwrap_or(usize::MAX);
            let config = secured
                .with_create_collections(create)
                .with_processor(options.processor)
                .with_http_requests(http_requests)
                .with_elastic_product(options.elastic_product)
                .with_max_requests(max_requests)
                .with_servers(open.servers().cloned().filter(|_| options.pass != Pass::None))
                .with_pass_writes(options.pass == Pass::All)
                .with_metrics(Some(Arc::new(move || rendering.render())))
                .with_results(Some(metrics.clone()));
            let pause = Some(Duration::from_secs(options.count_every)).filter(|it| !it.is_zero());
            let levels = Levels::new(&domain, metrics, &recorder, open.servers(), pause);
            let ran = run(&domain, config, listener, &levels, &open.what).await;
            levels.end().await;
            if !domain.shutdown(MAX_APPLY_WAIT).await {
                tracing::warn!("not everything is applied yet: another process does the rest");
            }
            ran
        }
        Err(error) => Err(error.into()),
    };
    open.close().await;
    let drained = served?;
    let text = match drained {
        true => "The gateway has ended. All running requests were answered.",
        false => {
            "The gateway has ended. Some requests were cut: ask for their outcome by tid or key."
        }
    };
    Ok(Answer::new(Exit::well_if(drained), text, json!({ "drained": drained })))
}

async fn listen(at: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(at).await.map_err(|error| Failure::address(at, &error))
}

/// The settings of the domain.
fn of_domain(global: &Global, options: &Serve) -> Config {
    let lease = Duration::from_secs(global.lease);
    let config = Config::default()
        .with_application_name(Some("txn serve".to_owned()))
        .with_lease(lease)
        .with_attempt_timeout(Config::default().attempt_timeout().max(lease))
        .with_write_contention(options.write_contention)
        .with_metrics_address(options.metrics_address.clone());
    match options.no_janitor {
        true => config.with_janitor_interval(None),
        false => config,
    }
}

/// Makes a token. Only this answer has it.
fn token(new: &args::NewToken) -> Result<Answer, Failure> {
    let args::NewToken { name, collections, verbs } = new;
    let made = NewToken::new(name, collections, verbs).map_err(Failure::invalid)?;
    let NewToken { token, entry, .. } = made;
    let text = format!(
        "The token, which is shown only once:\n\n{token}\n\nThe entry for the file of --tokens:\n\n{entry}"
    );
    let json = json!({ "name": name, "token": token, "entry": entry });
    Ok(Answer::new(Exit::Well, text, json))
}

/// Refuses an address that other machines reach.
///
/// Such an address is fit if callers log in over TLS.
fn check_address(options: &Serve) -> Result<(), Failure> {
    let Serve { listen, tokens, tls_certificate, insecure_listen, .. } = options;
    let missing = match tokens {
        None => "--tokens",
        Some(_) => "--tls-certificate",
    };
    let is_secure = tokens.is_some() && tls_certificate.is_some();
    match listen.ip().is_loopback() || is_secure || *insecure_listen {
        true => Ok(()),
        false => Err(Failure::invalid(format!(
            "other machines reach {listen}, and the gateway has no {missing}: add it, or add --insecure-listen if a \
             proxy in front of the gateway has logins and TLS"
        ))),
    }
}

/// The settings with the files of tokens and of the certificate.
fn secured(options: &Serve) -> Result<ServeConfig, Failure> {
    let tokens = options.tokens.as_ref().map(Tokens::open).transpose();
    let tokens = tokens.map_err(|error| Failure::file("--tokens", &error))?;
    let tls = options.tls_certificate.as_ref().zip(options.tls_key.as_ref());
    let tls = tls.map(|(certificate, key)| Tls::open(certificate, key)).transpose();
    let tls = tls.map_err(|error| Failure::file("--tls-certificate and --tls-key", &error))?;
    Ok(ServeConfig::default().with_tokens(tokens).with_tls(tls))
}

/// The settings of HTTP requests after commits. `None` without a destination.
fn http_requests(options: &Serve) -> Result<Option<HttpConfig>, Failure> {
    let Serve { destinations, secrets, .. } = options;
    if destinations.is_empty() {
        return Ok(None);
    }
    let destinations: Result<Vec<_>, _> =
        destinations.iter().map(|text| destination(text)).collect();
    let destinations = destinations.map_err(|error| Failure::invalid(error.to_string()))?;
    let config = HttpConfig::default().with_destinations(destinations);
    match secrets {
        None => Ok(Some(config)),
        Some(folder) if folder.is_dir() => {
            Ok(Some(config.with_secrets(Arc::new(SecretFiles::new(folder)))))
        }
        Some(folder) => Err(Failure::unfit(format!("{} is no folder", folder.display()))),
    }
}

/// Reads a destination with its networks, as `--destination` has it.
fn destination(text: &str) -> Result<Destination, OutboxError> {
    let (origin, networks) = text.split_once('=').unwrap_or((text, ""));
    let mut networks = networks.split(',').filter(|network| !network.is_empty());
    networks.try_fold(Destination::new(origin)?, Destination::with_address)
}

/// Serves until a signal. Returns whether all running requests were answered.
async fn run(
    domain: &Domain,
    config: ServeConfig,
    listener: TcpListener,
    levels: &Levels<'_>,
    what: &str,
) -> Result<bool, Failure> {
    let unfit = |error: io::Error| Failure::unfit(error.to_string());
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    let server = Server::new(domain, config).map_err(unfit)?;
    let stop = stop().map_err(unfit)?;
    let address = listener.local_addr().map_err(unfit)?;
    // A closed standard error must not end the gateway.
    let _ = writeln!(
        io::stderr(),
        "The domain {:?} in {what} is served on {scheme}://{address}",
        domain.name()
    );
    tokio::select! {
        drained = server.serve(listener, stop) => Ok(drained),
        () = levels.run() => Ok(false),
    }
}

/// Records the metrics of this process.
fn metrics() -> Result<PrometheusHandle, Failure> {
    let builder = PrometheusBuilder::new().set_buckets(&BUCKETS);
    let recorder = builder.and_then(PrometheusBuilder::install_recorder);
    recorder.map_err(|error| Failure::unfit(format!("cannot record metrics: {error}")))
}

/// Ends at the first signal to end.
fn stop() -> io::Result<impl Future<Output = ()>> {
    #[cfg(unix)]
    let terminated = {
        use tokio::signal::unix::{SignalKind, signal};
        let mut terminate = signal(SignalKind::terminate())?;
        async move { terminate.recv().await.unwrap_or_default() }
    };
    #[cfg(not(unix))]
    let terminated = std::future::pending::<()>();
    Ok(async move {
        tokio::select! {
            () = terminated => {}
            _ = tokio::signal::ctrl_c() => {}
        }
    })
}
