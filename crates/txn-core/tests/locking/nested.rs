//! Transactions inside the closure of another transaction, in virtual time.

use txn_core::{Collection, Domain, Error, ErrorKind, LockMode, Options, Raw};

use crate::support::{Setup, World};

type Items = Collection<Raw>;

async fn open() -> (Domain, Items) {
    let World { domain, items, .. } = Setup::default().open().await;
    let first = domain.transact::<_, Error, _>(async |tx| {
        ["a", "b"].iter().try_for_each(|id| tx.put(&items, *id, &Raw::new("{\"n\":0}")))
    });
    first.await.expect("puts");
    (domain, items)
}

async fn put(domain: &Domain, items: &Items, id: &str) -> Result<(), Error> {
    domain.transact(async |tx| tx.put(items, id, &Raw::new("{\"n\":1}"))).await
}

async fn get(domain: &Domain, items: &Items, id: &str) -> Result<(), Error> {
    domain.transact(async |tx| tx.get(items, id).await.map(drop)).await
}

fn refused(items: &Items, outcome: Result<(), Error>) {
    let error = outcome.expect_err("refused");
    assert_eq!((error.kind(), error.document()), (ErrorKind::Invalid, Some(&items.key("a"))));
    assert!(error.to_string().contains("nested"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn nested_transaction_on_outer_locks_is_invalid() {
    let (domain, items) = open().await;
    let options = Options::default().with_lock_mode(LockMode::AtRead);
    let outer = domain.run::<_, Error, _>(&options, async |tx| {
        tx.get(&items, "a").await?;
        refused(&items, put(&domain, &items, "a").await);
        refused(&items, get(&domain, &items, "a").await);
        let by_hand = domain.begin(&options)?;
        refused(&items, by_hand.get(&items, "a").await.map(drop));
        // The third level is refused as well. Documents without a holder can be read and written.
        let middle = domain.transact::<_, Error, _>(async |inner| {
            inner.get(&items, "b").await?;
            refused(&items, put(&domain, &items, "a").await);
            Ok(())
        });
        middle.await?;
        put(&domain, &items, "b").await?;
        tx.put(&items, "a", &Raw::new("{\"n\":2}"))
    });
    Box::pin(outer).await.expect("the outer transaction commits");
    let found = domain.reader().get_many(&items, ["a", "b"]).await.expect("reads");
    assert_eq!(found, [Some(Raw::new("{\"n\":2}")), Some(Raw::new("{\"n\":1}"))]);
}

#[tokio::test(start_paused = true)]
async fn outer_transaction_overtaken_by_nested_is_invalid() {
    let (domain, items) = open().await;
    let outer = domain.transact::<(), Error, _>(async |tx| {
        tx.get(&items, "a").await?;
        put(&domain, &items, "a").await?;
        tx.put(&items, "a", &Raw::new("{\"n\":2}"))
    });
    refused(&items, outer.await);
}

#[tokio::test(start_paused = true)]
async fn spawned_transaction_waits_for_the_outer_one() {
    let (domain, items) = open().await;
    let options = Options::default().with_lock_mode(LockMode::AtRead);
    let outer = domain.run::<_, Error, _>(&options, async |tx| {
        tx.get(&items, "a").await?;
        // The closure does not await the spawned task, so the task may wait.
        let task = {
            let (domain, items) = (domain.clone(), items.clone());
            tokio::spawn(async move { put(&domain, &items, "a").await })
        };
        tx.put(&items, "a", &Raw::new("{\"n\":2}"))?;
        Ok(task)
    });
    let task = outer.await.expect("commits").value;
    task.await.expect("no panic").expect("commits after the outer transaction");
    let found = domain.reader().get(&items, "a").await.expect("reads");
    assert_eq!(found, Some(Raw::new("{\"n\":1}")));
}
