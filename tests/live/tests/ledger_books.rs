//! The ledger of other suites agrees with a correct store under faults.
//!
//! A lost unit makes the ledger disagree.

use std::sync::Arc;
use std::time::Duration;

use txn_core::Config;
use txn_core::store::{Key, MemoryStore, Read, Store, Write, WriteOp};
use txn_fixtures::ledger::{Ledger, Plan};

fn plan() -> Plan {
    let config = Config::default()
        .with_lease(Duration::from_millis(300))
        .with_timeout(Duration::from_secs(60));
    Plan::new("bank").with_accounts(5).with_config(config)
}

async fn runs(store: &Arc<dyn Store>) -> Ledger {
    let stores = vec![store.clone(), store.clone()];
    let ledger = Ledger::open(plan(), stores, store.clone()).await;
    let enough = tokio::time::timeout(Duration::from_secs(120), ledger.acknowledges(300));
    ledger.run(3, async { enough.await.expect("goes on") }).await;
    ledger
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ledger_agrees_with_a_correct_store() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let ledger = runs(&store).await;
    assert_eq!(ledger.verify().await, Vec::<String>::new());
    let counts = ledger.counts();
    assert!(counts.acknowledged >= 300 && counts.ticks > 0 && counts.looks > 0, "{counts:?}");
    // The load can continue.
    ledger.run(2, ledger.acknowledges(100)).await;
    assert_eq!(ledger.verify().await, Vec::<String>::new());
    ledger.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ledger_detects_foreign_changes() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let ledger = runs(&store).await;
    assert_eq!(ledger.verify().await, Vec::<String>::new());
    let key = Key::new(ledger.collection(), "a0");
    let read = store.get_many(std::slice::from_ref(&key)).await.remove(0);
    let Read::Found { version, source } = read else { panic!("{read:?}") };
    let balance = ledger.balances().await[0].expect("exists");
    let field = |balance: i64| format!(r#""balance":{balance}"#);
    let less = source.replace(&field(balance), &field(balance - 1));
    assert_ne!(&*less, &*source);
    store.write_many(&[Write::new(key, WriteOp::Replace(less.into(), version))]).await;
    let stranger = Key::new(ledger.collection(), "stranger");
    store.write_many(&[Write::new(stranger, WriteOp::Create("{}".into()))]).await;
    let wrong = ledger.verify().await;
    assert_eq!(wrong.len(), 2, "{wrong:?}");
    assert!(wrong[0].starts_with("a0 holds") && wrong[1].contains("stranger"), "{wrong:?}");
    ledger.close().await;
}
