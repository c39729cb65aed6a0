//! The example of the README: an order takes pieces from the stock.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use txn_core::store::MemoryStore;
use txn_core::{Config, Domain, Error, Typed};

#[derive(Serialize, Deserialize)]
struct Stock {
    left: u32,
}

#[derive(Serialize, Deserialize)]
struct Order {
    article: String,
    pieces: u32,
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let domain =
        Domain::open_or_create(Arc::new(MemoryStore::new()), "shop", Config::default()).await?;
    let stock = domain.create_collection::<Typed<Stock>>("stock", None).await?;
    let orders = domain.create_collection::<Typed<Order>>("orders", None).await?;
    domain.transact(async |tx| tx.put(&stock, "apple", &Stock { left: 10 })).await?;

    let taken = domain
        .transact(async |tx| {
            let Some(shelf) = tx.get(&stock, "apple").await? else { return Ok(false) };
            if shelf.left < 3 {
                return Ok(false);
            }
            // Other fields of the document stay as they are; a `put` would replace it whole.
            tx.update(&stock, "apple", |shelf| shelf.left -= 3).await?;
            tx.insert(&orders, "order-1", &Order { article: "apple".into(), pieces: 3 })?;
            Ok::<_, Error>(true)
        })
        .await?;
    println!("taken: {taken}");

    domain.shutdown(std::time::Duration::from_secs(5)).await;
    Ok(())
}

#[test]
fn runs() -> Result<(), Error> {
    main()
}
