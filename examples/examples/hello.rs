//! Raw JSON in, raw JSON out.
//!
//! The engine keeps the bytes of every key and value.
//!
//! ```sh
//! cargo run -p txn-examples --example hello
//! ```

use std::sync::Arc;
use std::time::Duration;

use txn_core::store::MemoryStore;
use txn_core::{Config, Domain, Error, Options, Raw};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let store = Arc::new(MemoryStore::new());
    let domain = Domain::open_or_create(store, "hello", Config::default()).await?;
    let documents = domain.create_collection::<Raw>("documents", None).await?;

    // Two new documents, or none. No write is sent before the closure returns.
    domain
        .transact(async |tx| {
            tx.insert(
                &documents,
                "a",
                &Raw::new(r#"{"price": 1.50, "id": 12345678901234567890}"#),
            )?;
            tx.insert(&documents, "b", &Raw::new(r#"{"says": "hello"}"#))
        })
        .await?;

    // A reader takes no locks. The reader shows only committed content, as it was written: 1.50
    // stays 1.50.
    let reader = domain.reader();
    for id in ["a", "b", "c"] {
        match reader.get(&documents, id).await? {
            Some(raw) => println!("{id}: {}", raw.as_str()),
            None => println!("{id}: there is no such document"),
        }
    }

    // An error from the closure discards all writes.
    let refused: Result<(), Error> = domain
        .transact(async |tx| {
            tx.delete(&documents, "a")?;
            tx.insert(&documents, "c", &Raw::new("no JSON at all"))
        })
        .await;
    if let Err(error) = refused {
        println!("refused, {:?}: {error}", error.kind());
    }
    println!("a is still there: {}", reader.get(&documents, "a").await?.is_some());

    // Without a closure, the caller commits and handles conflicts.
    let tx = domain.begin(&Options::default().with_own_record(true))?;
    let b = tx.get(&documents, "b").await?;
    tx.delete(&documents, "b")?;
    if let Some(b) = b {
        tx.put(&documents, "c", &b)?;
    }
    let tid = tx.tid()?;
    tx.commit().await?;
    println!("b is called c, by the transaction {tid}");

    // Waits until all commits are applied.
    let drained = domain.shutdown(Duration::from_secs(5)).await;
    println!("nothing is left to do: {}", drained && domain.admin().inspect().await?.is_clean());
    Ok(())
}

#[test]
fn runs() -> Result<(), Error> {
    main()
}
