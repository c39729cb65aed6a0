//! Processes that die, and documents as they leave them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use txn_core::store::{Layer, Outcome, Store, StoreError, Write, WriteOp};
use txn_core::{AttemptId, Collection, Config, Domain, Error, Options, Raw, WaitFor};

use txn_fixtures::clock::MovedClock;
use txn_fixtures::plain_store::change;

use super::ran::CANARY;

/// The names of a domain and of its collections.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    pub(crate) domain: String,
    pub(crate) stock: String,
    pub(crate) orders: String,
}

/// The settings of a process that worked some time ago.
pub(crate) fn past(by: Duration) -> Config {
    let behind_ms = i64::try_from(by.as_millis()).expect("a short time");
    let clock = MovedClock::new(-behind_ms);
    Config::default().with_janitor_interval(None).with_clock(Arc::new(clock))
}

/// The age of the work of a dead process.
pub(crate) const AGE: Duration = Duration::from_secs(600);

/// A store that tells no time. The clock of a process counts instead.
///
/// With a collection, writes to the collection are refused after the first commit.
#[derive(Debug)]
pub(crate) struct Untimed {
    inner: Arc<dyn Store>,
    dies_at: Option<String>,
    is_dead: AtomicBool,
}

impl Untimed {
    pub(crate) fn over(inner: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self { inner, dies_at: None, is_dead: AtomicBool::new(false) })
    }

    fn dying(inner: Arc<dyn Store>, at: &str) -> Arc<Self> {
        Arc::new(Self { inner, dies_at: Some(at.to_owned()), is_dead: AtomicBool::new(false) })
    }
}

#[async_trait]
impl Layer for Untimed {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn write_many(&self, writes: &[Write]) -> Vec<Outcome> {
        let commits = |write: &Write| {
            matches!(&write.op, WriteOp::Create(source) | WriteOp::Replace(source, _)
                if source.contains("\"state\":\"committed\""))
        };
        let mut outcomes = Vec::new();
        for write in writes {
            let dies = self.dies_at.as_deref() == Some(&*write.key.collection);
            outcomes.push(match dies && self.is_dead.load(Ordering::SeqCst) {
                true => Outcome::RejectedInDoubt("dead".to_owned()),
                false => self.inner.write_many(std::slice::from_ref(write)).await.swap_remove(0),
            });
            self.is_dead.fetch_or(commits(write), Ordering::SeqCst);
        }
        outcomes
    }

    async fn server_time(&self) -> Result<Option<Duration>, StoreError> {
        Ok(None)
    }
}

pub(crate) async fn collections(
    domain: &Domain,
    names: &Names,
) -> (Collection<Raw>, Collection<Raw>) {
    let stock = domain.collection::<Raw>(&names.stock).await.expect("opens");
    let orders = domain.collection::<Raw>(&names.orders).await.expect("opens");
    (stock, orders)
}

pub(crate) fn body() -> Raw {
    Raw::new(format!("{{\"text\":\"{CANARY}\"}}"))
}

/// Writes two documents as a process in the past. The documents are `shelf` of the stock and `one`
/// of the orders.
pub(crate) async fn write_first(store: Arc<dyn Store>, names: &Names) {
    let domain = Domain::open(Untimed::over(store), &names.domain, past(AGE)).await.expect("opens");
    let (stock, orders) = collections(&domain, names).await;
    let wait = Options::default().with_wait_for(WaitFor::Apply);
    let write = domain.run::<_, Error, _>(&wait, async |tx| {
        tx.put(&stock, "shelf", &body())?;
        tx.put(&orders, "one", &body())
    });
    write.await.expect("writes");
    domain.shutdown(Duration::from_secs(60)).await;
}

/// Commits a write of both documents as the process `till-7`. The label is `checkout`. The process
/// dies before the apply to the stock.
pub(crate) async fn die_after_commit(store: Arc<dyn Store>, names: &Names) -> AttemptId {
    let store = Untimed::dying(store, &names.stock);
    let config = past(AGE)
        .with_process_name("till-7".to_owned())
        .with_application_name(Some("tills".to_owned()));
    let domain = Domain::open(store, &names.domain, config).await.expect("opens");
    let (stock, orders) = collections(&domain, names).await;
    let tx = domain
        .begin(&Options::default().with_label("checkout").with_own_record(true))
        .expect("begins");
    let tid = tx.tid().expect("has its own record");
    tx.put(&stock, "shelf", &body()).expect("buffers");
    tx.put(&orders, "one", &body()).expect("buffers");
    tx.commit().await.expect("commits");
    domain.shutdown(Duration::from_millis(300)).await;
    tid
}

/// Locks `shelf` of the stock for a dead process. The process died before its commit. Returns the
/// tid.
pub(crate) async fn die_before_commit(store: Arc<dyn Store>, names: &Names) -> AttemptId {
    let domain =
        Domain::open(Untimed::over(store.clone()), &names.domain, past(AGE)).await.expect("opens");
    let begun = domain.begin(&Options::default().with_own_record(true)).expect("begins");
    let tid = begun.tid().expect("has its own record");
    domain.shutdown(Duration::from_secs(5)).await;
    let lock = |value: &mut Value| value["transaction_tid"] = tid.to_string().into();
    change(&*store, &names.stock, "shelf", lock).await;
    tid
}

/// Writes over a locked document like a client without the library.
pub(crate) fn overwrite(value: &mut Value) {
    value.as_object_mut().expect("an object").remove("transaction_tid");
    value["text"] = "by a rogue client".into();
}
