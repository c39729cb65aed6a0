//! Dependent documents: a renamed article, and the carts that hold it.
//!
//! The writer writes the article as it was read. The carts get the new name later, and the writer
//! does not wait for them.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use txn_core::store::MemoryStore;
use txn_core::{Config, Domain, Typed};
use txn_outbox::{Outbox, OutboxConfig, ProcessorConfig, Topics};
use txn_requests::dependent::{self, DependentWrite, Dependents};
use txn_requests::{Condition, Merge, Operation, Target};

/// Returns the operation that changes the name in a document.
fn rename(collection: &str, id: &str, name: &str) -> Operation {
    let patch = [("name".to_owned(), json!(name))].into_iter().collect();
    Operation::Merge(Merge { target: Target::new(collection, id), patch })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let domain =
        Domain::open_or_create(Arc::new(MemoryStore::new()), "shop", Config::default()).await?;
    let articles = domain.create_collection::<Typed<Value>>("articles", None).await?;
    let carts = domain.create_collection::<Typed<Value>>("carts", None).await?;
    domain
        .transact::<_, txn_core::Error, _>(async |tx| {
            tx.put(&articles, "a1", &json!({"name": "apple"}))?;
            tx.put(&carts, "anna", &json!({"article": "a1", "name": "apple"}))?;
            tx.put(&carts, "ben", &json!({"article": "a1", "name": "apple"}))
        })
        .await?;
    let outbox = Outbox::open(&domain, OutboxConfig::default()).await?;
    let dependents = Dependents::new(&domain, &outbox)?;
    // Any process may run a processor. Other topics have their own handlers, here or in another
    // process.
    let topics = Topics::new().with(dependent::TOPIC, dependents.clone());
    let processor = outbox.start(ProcessorConfig::default(), topics).await?;

    let read = domain.reader().verified().read(&articles, "a1").await?;
    let version = read.commit_version().ok_or("no transaction wrote it")?;
    let write = DependentWrite::new(
        Condition::Version(version.to_string()),
        rename("articles", "a1", "Apple"),
    )
    .with_update(rename("carts", "anna", "Apple"))
    .with_update(rename("carts", "ben", "Apple"));
    let written = dependents.write(&write).await?;
    println!("{} updates follow", written.events.len());
    // A writer that read the old version gets an error, and no update follows.
    assert!(dependents.write(&write).await.is_err());

    for id in ["anna", "ben"] {
        while domain
            .reader()
            .verified()
            .get(&carts, id)
            .await?
            .is_none_or(|cart| cart["name"] != "Apple")
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    processor.stop(Duration::from_secs(5)).await;
    domain.shutdown(Duration::from_secs(5)).await;
    Ok(())
}

#[test]
fn runs() -> Result<(), Box<dyn std::error::Error>> {
    main()
}
