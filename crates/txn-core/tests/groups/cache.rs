//! The cache of documents that a process has read lately.

use std::time::Duration;

use tokio::time::sleep;
use txn_core::{Error, Options};

use super::Bank;

/// Reads two accounts in a read-only transaction.
async fn look(bank: &Bank) -> i64 {
    let options = Options::default().with_read_only(true);
    let looked = bank.domain.run::<_, Error, _>(&options, async |tx| {
        let found = tx.get_many(&bank.accounts, ["0", "1"]).await?;
        Ok(found.into_iter().flatten().map(|account| account.balance).sum())
    });
    looked.await.expect("reads").value
}

#[tokio::test(start_paused = true)]
async fn document_that_was_read_is_not_read_again() {
    let bank = Bank::open(2).await;
    bank.settle().await;
    let other = Bank::beside(bank.store.clone()).await;
    assert_eq!(look(&other).await, 200);
    let before = bank.store.counts();
    assert_eq!(other.transfer(0, 1, 1).await.expect("commits"), 1);
    sleep(Duration::from_millis(50)).await;
    let counts = bank.store.counts().since(before);
    assert_eq!(counts.documents_read, 0, "{counts}");
}

#[tokio::test(start_paused = true)]
async fn prefetch_asks_for_uncached_documents_only() {
    let bank = Bank::open(3).await;
    bank.settle().await;
    let other = Bank::beside(bank.store.clone()).await;
    assert_eq!(look(&other).await, 200);
    let before = bank.store.counts();
    let options = Options::default().with_read_only(true);
    let looked = other.domain.run::<_, Error, _>(&options, async |tx| {
        tx.prefetch(["0", "1", "2"].map(|id| other.accounts.key(id))).await?;
        let counts = bank.store.counts().since(before);
        let found = tx.get_many(&other.accounts, ["0", "1", "2"]).await?;
        Ok((counts.documents_read, found.len()))
    });
    assert_eq!(looked.await.expect("reads").value, (1, 3));
}

#[tokio::test(start_paused = true)]
async fn stale_document_is_found_by_its_lock() {
    let bank = Bank::open(2).await;
    let other = Bank::beside(bank.store.clone()).await;
    for _ in 0..10 {
        assert_eq!(look(&other).await, 200);
        bank.transfer(0, 1, 1).await.expect("commits");
        bank.settle().await;
        let attempts = other.transfer(0, 1, 1).await.expect("commits");
        other.settle().await;
        assert!(attempts <= 2, "{attempts}");
    }
    assert_eq!(bank.balances(2).await, [80, 120]);
}
