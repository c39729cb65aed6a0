//! A domain on a server, the command on it, and a load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use txn_core::store::Store;
use txn_core::{Config, Domain, Error, Raw};
use txn_es::{EsConfig, EsStore};
use txn_fixtures::plain_client::PlainClient;

use super::owners::{self, Names, body};
use super::ran::{Ran, command};

/// The bound of a wait that must succeed. Long, because test machines are slow.
const PATIENCE: Duration = Duration::from_secs(120);

/// The number of domains of this process.
static DOMAINS: AtomicU64 = AtomicU64::new(0);

/// A domain of one test on a server. Dropped with its indices.
pub(crate) struct ServerDesk {
    pub(crate) url: String,
    pub(crate) names: Names,
    pub(crate) runtime: Runtime,
    pub(crate) store: Arc<EsStore>,
    pub(crate) plain: PlainClient,
    home: TempDir,
}

impl ServerDesk {
    /// Makes a domain with two documents.
    ///
    /// The documents are `shelf` of the stock and `one` of the orders.
    pub(crate) fn new(url: &str) -> Self {
        let desk = Self::empty(url);
        let init = format!("init {} {}", desk.names.stock, desk.names.orders);
        desk.run(&init).says(0, &["is ready"]);
        desk.wait(owners::write_first(desk.store.clone(), &desk.names));
        desk
    }

    pub(crate) fn empty(url: &str) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_micros();
        let domain = format!("cli-{now:x}-{}", DOMAINS.fetch_add(1, Ordering::SeqCst));
        let names =
            Names { stock: format!("{domain}-stock"), orders: format!("{domain}-orders"), domain };
        let runtime = Runtime::new().expect("starts");
        let store = EsStore::connect(EsConfig::from_url(url).expect("a URL"));
        let store = Arc::new(runtime.block_on(store).expect("connects"));
        Self {
            url: url.to_owned(),
            names,
            runtime,
            store,
            plain: PlainClient::new(url),
            home: tempfile::tempdir().expect("a directory"),
        }
    }

    pub(crate) fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// Runs the command on the domain.
    pub(crate) fn run(&self, words: &str) -> Ran {
        self.run_at(&self.url, words)
    }

    /// Runs the command with another address of the store.
    pub(crate) fn run_at(&self, url: &str, words: &str) -> Ran {
        let mut command = command(self.home.path());
        command.env("TXN_STORE", url).env("TXN_DOMAIN", &self.names.domain).env("TXN_LEASE", "1");
        Ran::of(command, words)
    }

    pub(crate) fn write_file(&self, name: &str, text: &str) {
        std::fs::write(self.home.path().join(name), text).expect("writes");
    }

    /// Sends a request like an administrator.
    pub(crate) fn ask(&self, method: &str, path: &str, body: Value) -> Value {
        let body = (!body.is_null()).then(|| body.to_string());
        self.wait(self.plain.ok(method, path, body))
    }

    /// Sends the request of a message, which mends its fault.
    #[track_caller]
    pub(crate) fn mend(&self, message: &Value) {
        let request =
            message["request"].as_str().unwrap_or_else(|| panic!("no request: {message}"));
        let mut parts = request.splitn(3, ' ');
        let (method, path) = (parts.next().expect("a method"), parts.next().expect("a path"));
        let body = parts.next().map(str::to_owned);
        self.wait(self.plain.ok(method, path, body));
    }

    /// Opens the domain as another process.
    pub(crate) fn domain(&self, config: Config) -> Domain {
        let config = config.with_lease(Duration::from_secs(1));
        self.wait(Domain::open(self.store.clone(), &self.names.domain, config)).expect("opens")
    }

    /// Starts a load on both collections, and waits for commits.
    ///
    /// The wait ends after the first commits.
    pub(crate) fn load(&self) -> Load<'_> {
        let stop = Arc::new(AtomicBool::new(false));
        let commits = Arc::new(AtomicU64::new(0));
        let domain = self.domain(Config::default().with_process_name("load".to_owned()));
        let (stock, orders) = self.wait(owners::collections(&domain, &self.names));
        let (stopped, counted, of) = (stop.clone(), commits.clone(), domain.clone());
        let task = self.runtime.spawn(async move {
            let mut n = 0_u64;
            while !stopped.load(Ordering::SeqCst) {
                n += 1;
                let (one, other) = (format!("load-{}", n % 7), format!("load-{}", n % 5));
                let write = of.transact::<_, Error, _>(async |tx| {
                    tx.put(&stock, &one, &body())?;
                    tx.put(&orders, &other, &Raw::new(format!("{{\"n\":{n}}}")))
                });
                // Tests plant faults, at which transactions fail.
                if write.await.is_ok() {
                    counted.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        let load = Load { desk: self, domain, stop, commits, task: Some(task) };
        load.goes_on();
        load
    }
}

/// Polls until a condition holds. Only a fault exceeds the bound.
pub(crate) fn wait_until(what: &str, mut so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// A running load. Ends when dropped.
pub(crate) struct Load<'a> {
    desk: &'a ServerDesk,
    domain: Domain,
    stop: Arc<AtomicBool>,
    commits: Arc<AtomicU64>,
    task: Option<JoinHandle<()>>,
}

impl Load<'_> {
    /// Waits for three more commits.
    pub(crate) fn goes_on(&self) {
        let before = self.commits.load(Ordering::SeqCst);
        wait_until("commits", || self.commits.load(Ordering::SeqCst) >= before + 3);
    }
}

impl Drop for Load<'_> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(task) = self.task.take() {
            let ended = self.desk.wait(task);
            assert!(ended.is_ok() || std::thread::panicking(), "{ended:?}");
        }
        self.desk.wait(self.domain.shutdown(Duration::from_secs(60)));
    }
}

/// Removes the domain, and the indices of its collections.
impl Drop for ServerDesk {
    fn drop(&mut self) {
        let (store, name) = (self.store.clone(), self.names.domain.clone());
        let names = [self.names.stock.clone(), self.names.orders.clone()];
        self.runtime.block_on(async move {
            let prefix = format!("txn-{}-", name.replace('-', "."));
            let own = format!("{}-", name.replace('-', "."));
            let config = Config::default().with_janitor_interval(None);
            let mut indices: Vec<String> = names.to_vec();
            if let Ok(domain) = Domain::open(store.clone(), &name, config).await {
                if let Ok(overview) = domain.admin().overview().await {
                    indices.extend(overview.collections);
                }
                domain.shutdown(Duration::from_secs(5)).await;
            }
            for prefix in [prefix, own] {
                let found = store.list_collections(&prefix).await.unwrap_or_default();
                indices.extend(found.iter().map(ToString::to_string));
            }
            for index in indices {
                // A test that failed may leave an index in any state.
                let _ = store.drop_collection(&index).await;
            }
        });
    }
}
