//! A small shop with serde types, with concurrent orders and reads.
//!
//! A reader sees a whole order or none.
//!
//! ```sh
//! cargo run -p txn-examples --example typed
//! ```

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use txn_core::store::MemoryStore;
use txn_core::{
    Collection, CompareAndSet, Config, Domain, Error, ErrorKind, Options, ReadMode, Typed, WaitFor,
};

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Stock {
    left: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Placed,
    Paid,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Order {
    lines: Vec<(String, u32)>,
    state: State,
}

/// The application's own error.
///
/// `From<Error>` lets `?` return the engine's errors, which the engine needs to run the closure
/// again.
#[derive(Debug)]
enum ShopError {
    NotEnough(String),
    Engine(Error),
}

impl From<Error> for ShopError {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}

impl fmt::Display for ShopError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotEnough(article) => write!(f, "not enough of {article}"),
            Self::Engine(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ShopError {}

#[derive(Clone)]
struct Shop {
    domain: Domain,
    stock: Collection<Typed<Stock>>,
    orders: Collection<Typed<Order>>,
}

impl Shop {
    async fn open() -> Result<Self, Error> {
        let config = Config::default().with_application_name(Some("shop".to_owned()));
        let domain = Domain::open_or_create(Arc::new(MemoryStore::new()), "shop", config).await?;
        let stock = domain.create_collection("stock", None).await?;
        let orders = domain.create_collection("orders", None).await?;
        Ok(Self { domain, stock, orders })
    }

    /// Takes articles from the stock, and writes the order.
    ///
    /// Both happen in one transaction.
    async fn place(&self, id: &str, lines: &[(&str, u32)]) -> Result<(), ShopError> {
        self.domain
            .transact(async |tx| {
                let articles = lines.iter().map(|(article, _)| *article);
                let shelves = tx.get_many(&self.stock, articles).await?;
                for ((article, pieces), shelf) in lines.iter().zip(shelves) {
                    if shelf.is_none_or(|shelf| shelf.left < *pieces) {
                        return Err(ShopError::NotEnough((*article).to_owned()));
                    }
                    // Fields that `Stock` does not know stay.
                    tx.update(&self.stock, *article, |shelf| shelf.left -= pieces).await?;
                }
                let lines = lines.iter().map(|(article, n)| ((*article).to_owned(), *n)).collect();
                // Fails with `ErrorKind::Exists` if the order exists.
                tx.insert(&self.orders, id, &Order { lines, state: State::Placed })?;
                Ok(())
            })
            .await
    }
}

#[tokio::main]
async fn main() -> Result<(), ShopError> {
    let shop = Shop::open().await?;
    let Shop { domain, stock, orders } = &shop;
    domain
        .transact(async |tx| {
            for article in ["apple", "pear", "plum"] {
                tx.insert(stock, article, &Stock { left: 10 })?;
            }
            Ok::<_, Error>(())
        })
        .await?;

    shop.place("order-1", &[("apple", 3), ("pear", 2)]).await?;
    println!("order-1 is placed");
    match shop.place("order-2", &[("plum", 1), ("apple", 8)]).await {
        Err(ShopError::NotEnough(article)) => println!("order-2: not enough of {article}"),
        other => println!("order-2: {other:?}"),
    }
    match shop.place("order-1", &[("plum", 1)]).await {
        Err(ShopError::Engine(error)) if error.kind() == ErrorKind::Exists => {
            println!("order-1 is placed once only");
        }
        other => println!("order-1: {other:?}"),
    }

    // Eleven concurrent customers want the last ten plums. The engine handles the conflicts.
    let customers: Vec<_> = (0..11)
        .map(|n| {
            let shop = shop.clone();
            tokio::spawn(async move { shop.place(&format!("rush-{n}"), &[("plum", 1)]).await })
        })
        .collect();
    let mut served = 0;
    for customer in customers {
        match customer.await {
            Ok(Ok(())) => served += 1,
            Ok(Err(ShopError::NotEnough(_))) => {}
            other => println!("unexpected: {other:?}"),
        }
    }
    println!("eleven customers wanted one of ten plums: {served} got one");

    // A snapshot over several documents: a read-only transaction, which locks nothing at first.
    let options = Options::default().with_read_only(true);
    let seen = domain
        .run::<_, Error, _>(&options, async |tx| {
            tx.get_many(stock, ["apple", "pear", "plum"]).await
        })
        .await?;
    let left: Vec<u32> = seen.value.into_iter().flatten().map(|shelf| shelf.left).collect();
    println!("left, all at one moment: {left:?} (read in {} attempt)", seen.receipt.attempts);

    // Options of one transaction: lock reads, too; return when plain searches see the writes.
    let options = Options::default()
        .with_read_mode(ReadMode::Lock)
        .with_wait_for(WaitFor::Refresh)
        .with_timeout(Some(Duration::from_secs(3)))
        .with_metadata(Some(r#"{"clerk":"carol"}"#.to_owned()));
    let paid = domain
        .run::<_, Error, _>(&options, async |tx| {
            let paid = tx.update(orders, "order-1", |order| order.state = State::Paid).await?;
            Ok(paid.is_some())
        })
        .await?;
    println!("order-1 is paid: {}, applied: {}", paid.value, paid.receipt.applied);

    // A single document needs no transaction. A verified read asks the primary, and the write
    // happens only if the document has not changed.
    let snapshot = domain.reader().verified().read(stock, "pear").await?;
    let more = Stock { left: snapshot.value.as_ref().map_or(0, |shelf| shelf.left) + 20 };
    for attempt in ["first", "second"] {
        match domain.compare_and_set(stock, &snapshot, &more).await? {
            CompareAndSet::Written(_) => println!("{attempt} write: {} pears", more.left),
            CompareAndSet::Mismatch => println!("{attempt} write: the document has changed since"),
        }
    }

    domain.shutdown(Duration::from_secs(5)).await;
    println!("nothing is left behind: {}", domain.admin().inspect().await?.is_clean());
    Ok(())
}

#[test]
fn runs() -> Result<(), ShopError> {
    main()
}
