//! A store with an outbox, and the effects of its events.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use txn_core::store::Store;
use txn_core::{Collection, Config, Domain, Typed};
use txn_outbox::{
    DeadLetter, Delivery, EventSource, Failure, Handler, Heartbeat, Outbox, OutboxConfig,
    OutboxError, Processor, ProcessorConfig, Topics,
};

/// The bound of a wait that must succeed. Long, because test machines are slow.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// The number of shards of the outbox.
pub(crate) const SHARDS: u16 = 8;

/// A store, and the name of a domain in the store.
pub(crate) struct World {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) name: String,
    /// Short enough to wait for. Long enough to renew on a busy machine.
    pub(crate) lease: Duration,
}

/// A process with its own domain and its own outbox.
pub(crate) struct Desk {
    pub(crate) domain: Domain,
    pub(crate) outbox: Outbox,
    /// The numbers of handled events by key, in their order.
    pub(crate) log: Collection<Typed<Value>>,
    counters: Collection<Typed<Value>>,
    /// Whether the handler accepts negative numbers, too.
    pub(crate) forgiving: Arc<AtomicBool>,
}

impl World {
    pub(crate) async fn desk(&self) -> Desk {
        self.desk_with(OutboxConfig::default()).await
    }

    pub(crate) async fn desk_with(&self, config: OutboxConfig) -> Desk {
        self.desk_of(Config::default(), config).await
    }

    pub(crate) async fn desk_of(&self, of_domain: Config, config: OutboxConfig) -> Desk {
        let of_domain = of_domain.with_janitor_interval(None).with_timeout(PATIENCE);
        let domain =
            Domain::open_or_create(self.store.clone(), &self.name, of_domain).await.expect("opens");
        let collection = async |what: &str| {
            let name = format!("{}-{what}", self.name);
            let mappings = r#"{"dynamic":false}"#;
            domain.create_collection(&name, Some(mappings)).await.expect("opens")
        };
        let (log, counters) = (collection("log").await, collection("counters").await);
        let outbox = Outbox::open(&domain, config.with_shards(SHARDS)).await.expect("opens");
        Desk { domain, outbox, log, counters, forgiving: Arc::default() }
    }

    pub(crate) fn config(&self) -> ProcessorConfig {
        ProcessorConfig::default()
            .with_lease(self.lease)
            .with_balance(Some(Duration::from_millis(100)))
            .with_delay(Duration::from_millis(50))
            // Tests pause their processes, and a paused process must miss its heartbeats.
            .with_heartbeat(Heartbeat::CallersRuntime)
    }
}

impl Desk {
    /// A handler that appends each number to the log of its key.
    ///
    /// The append is a transaction. Negative numbers fail.
    pub(crate) fn handler(
        &self,
    ) -> impl Fn(Delivery) -> futures::future::BoxFuture<'static, Result<(), Failure>>
    + Clone
    + Send
    + Sync
    + 'static {
        let (log, forgiving) = (self.log.clone(), self.forgiving.clone());
        move |delivery: Delivery| {
            let (log, forgiving) = (log.clone(), forgiving.clone());
            Box::pin(async move {
                let number: i64 = delivery.event().payload()?;
                if number < 0 && !forgiving.load(Ordering::Acquire) {
                    return Err(std::io::Error::other(format!("{number} is negative")).into());
                }
                let key = delivery.event().queue.key().to_owned();
                delivery
                    .transact::<_, Failure, _>(async |tx| {
                        let found = tx.get(&log, &key).await?;
                        let mut seen = found.unwrap_or_else(|| json!({"seen": []}));
                        seen["seen"].as_array_mut().expect("a list").push(json!(number));
                        Ok(tx.put(&log, &key, &seen)?)
                    })
                    .await
            })
        }
    }

    pub(crate) async fn start(&self, config: ProcessorConfig) -> Processor {
        self.outbox.start(config, orders(self.handler())).await.expect("starts")
    }

    pub(crate) async fn try_place(&self, key: &str, number: i64) -> Result<String, OutboxError> {
        self.domain.transact(async |tx| self.outbox.emit(tx, "orders", key, &number).await).await
    }

    pub(crate) async fn place(&self, key: &str, number: i64) {
        self.try_place(key, number).await.expect("emitted");
    }

    /// Increments the counter of a key, and emits the number.
    ///
    /// Both are in one transaction.
    pub(crate) async fn count(&self, key: &str) {
        self.try_count(key).await.expect("emitted");
    }

    pub(crate) async fn try_count(&self, key: &str) -> Result<(), OutboxError> {
        self.domain
            .transact(async |tx| {
                let found = tx.get(&self.counters, key).await?;
                let number = found.and_then(|found| found["n"].as_i64()).unwrap_or(0) + 1;
                tx.put(&self.counters, key, &json!({"n": number}))?;
                self.outbox.emit(tx, "orders", key, &number).await.map(drop)
            })
            .await
    }

    /// The counter of a key.
    pub(crate) async fn counted(&self, key: &str) -> i64 {
        let found = self.domain.reader().verified().get(&self.counters, key).await.expect("reads");
        found.and_then(|found| found["n"].as_i64()).unwrap_or(0)
    }

    /// Emits in a transaction that aborts.
    pub(crate) async fn abort(&self, key: &str) {
        let aborted = self
            .domain
            .transact::<(), OutboxError, _>(async |tx| {
                self.outbox.emit(tx, "orders", key, &-1).await?;
                Err(OutboxError::NotFound("the application's own".to_owned()))
            })
            .await;
        assert!(matches!(aborted, Err(OutboxError::NotFound(_))), "{aborted:?}");
    }

    pub(crate) async fn read(&self, key: &str) -> Vec<i64> {
        let found = self.domain.reader().verified().get(&self.log, key).await.expect("reads");
        let seen = found.and_then(|found| found["seen"].as_array().cloned()).unwrap_or_default();
        seen.iter().filter_map(Value::as_i64).collect()
    }

    /// Waits until these numbers were handled, in this order.
    #[track_caller]
    pub(crate) fn seen<'a>(
        &'a self,
        key: &'a str,
        numbers: &'a [i64],
    ) -> impl Future<Output = ()> + 'a {
        let at = std::panic::Location::caller();
        async move {
            let until = std::time::Instant::now() + PATIENCE;
            loop {
                let seen = self.read(key).await;
                assert!(numbers.starts_with(&seen), "{at}: {key}: {seen:?} for {numbers:?}");
                if seen == numbers {
                    return;
                }
                assert!(std::time::Instant::now() < until, "{at}: {key}: only {seen:?}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

/// A handler of the desk's topic.
pub(crate) fn orders(handler: impl Handler) -> Topics {
    Topics::new().with("orders", handler)
}

/// The numbers of the shards that a processor holds.
pub(crate) fn numbers(processor: &Processor) -> BTreeSet<u16> {
    processor.shards().iter().map(|shard| shard.number).collect()
}

/// Waits for a dead letter, and returns it.
pub(crate) async fn until_dead(source: &dyn EventSource) -> DeadLetter {
    let until = std::time::Instant::now() + PATIENCE;
    loop {
        if let Some(letter) = source.dead_letters().await.expect("lists").letters.pop() {
            return letter;
        }
        assert!(std::time::Instant::now() < until, "nothing is set aside");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until a condition holds.
pub(crate) async fn until(mut holds: impl FnMut() -> bool) {
    until_some(|| holds().then_some(())).await;
}

/// Waits until `ask` returns a value.
pub(crate) async fn until_some<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    let until = std::time::Instant::now() + PATIENCE;
    loop {
        if let Some(found) = ask() {
            return found;
        }
        assert!(std::time::Instant::now() < until, "it did not come about");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
