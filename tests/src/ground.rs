//! The ground of one test on one server: names of its own, and everything dropped in the end.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use txn_core::store::Store;
use txn_core::{Config, Domain};
use txn_es::{EsConfig, EsStore};

use crate::plain::Plain;

/// How long anything may take that is not meant to fail: machines of tests are slow and busy.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// One test on one server.
///
/// All its collections and its domain begin with one name. [`Ground::clear`] drops them; after a panic they stay,
/// to be looked at.
#[derive(Debug)]
pub struct Ground {
    /// A plain client of the same server.
    pub plain: Plain,
    /// The store.
    pub store: Arc<EsStore>,
    prefix: String,
}

impl Ground {
    /// A ground on the server at an address.
    ///
    /// # Panics
    /// If it does not answer.
    pub async fn at(url: &str) -> Self {
        let config = EsConfig::from_url(url).expect("an address");
        Self::of(url, config).await
    }

    /// A ground on a server that is reached by a configuration of the caller's.
    ///
    /// # Panics
    /// If it does not answer.
    pub async fn of(url: &str, config: EsConfig) -> Self {
        Self::with(Plain::new(url), config).await
    }

    /// A ground with a plain client of the caller's.
    ///
    /// # Panics
    /// If the server does not answer.
    pub async fn with(plain: Plain, config: EsConfig) -> Self {
        let store = Arc::new(EsStore::connect(config).await.expect("a server that answers"));
        Self { plain, store, prefix: crate::unique("t") }
    }

    /// The name of a collection of this test.
    #[must_use]
    pub fn name(&self, what: &str) -> String {
        format!("{}-{what}", self.prefix)
    }

    /// The name of the domain of this test.
    #[must_use]
    pub fn domain_name(&self) -> &str {
        &self.prefix
    }

    /// The store, as the engine wants it.
    #[must_use]
    pub fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    /// Settings for tests: no janitor that comes in between, and patience.
    #[must_use]
    pub fn config() -> Config {
        Config::default().with_janitor_interval(None).with_deadline(PATIENCE)
    }

    /// The domain of this test, on its server.
    ///
    /// # Panics
    /// If it can not be opened.
    pub async fn domain(&self) -> Domain {
        self.domain_on(self.store(), Self::config()).await
    }

    /// The domain of this test, through another store and with other settings.
    ///
    /// # Panics
    /// If it can not be opened.
    pub async fn domain_on(&self, store: Arc<dyn Store>, config: Config) -> Domain {
        Domain::create(store, &self.prefix, config).await.expect("opens")
    }

    /// A handle shuts down with all its work done, and nothing is left over in the domain.
    ///
    /// # Panics
    /// If anything is left over.
    pub async fn settle(&self, domain: &Domain) {
        assert!(domain.shutdown(PATIENCE).await, "drained");
        let report = domain.inspect().await.expect("looks");
        assert!(report.is_clean(), "left over: {report:?}");
    }

    /// Drops everything that the test made.
    ///
    /// # Panics
    /// If that fails.
    pub async fn clear(self) {
        self.drop_domain(&self.prefix).await;
    }

    /// Drops the collections that begin with a domain's name, its transaction table, and its documents in the
    /// registry.
    ///
    /// # Panics
    /// If that fails.
    pub async fn drop_domain(&self, prefix: &str) {
        let path = format!("/{prefix}-*,txn-{prefix}-*?expand_wildcards=all");
        let indices = self.plain.ok("GET", &path, None).await;
        for (index, about) in indices.as_object().into_iter().flatten() {
            if let Some(uid) = about["settings"]["index"]["uuid"].as_str() {
                self.forget(&format!("collection:{uid}")).await;
            }
            self.plain.ok("DELETE", &format!("/{index}"), None).await;
        }
        self.forget(&format!("domain:{prefix}")).await;
    }

    async fn forget(&self, id: &str) {
        let (status, text) =
            self.plain.text("DELETE", &format!("/txn-registry/_doc/{id}"), None).await;
        assert!(matches!(status, 200 | 404), "{status} {text}");
    }

    /// Makes an index of this test, as an application would, with mappings of its own.
    ///
    /// # Panics
    /// If that fails.
    pub async fn make(&self, what: &str, mappings: Value) -> String {
        let name = self.name(what);
        let settings = json!({"number_of_shards": 3, "number_of_replicas": 0});
        self.plain.make(&name, &json!({"settings": settings, "mappings": mappings})).await;
        name
    }
}
