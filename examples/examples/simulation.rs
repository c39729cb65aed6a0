//! A shop in simulated runs: bugs in its transactions, and the seeds that find them.
//!
//! ```sh
//! cargo run -p txn-examples --example simulation
//! TXN_SIM_SEED=3 cargo run -p txn-examples --example simulation
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use txn_core::{Collection, Domain, Error, ErrorKind, Raw, Transaction, Typed};
use txn_sim::{BoxError, Failure, Report, Simulation, Worker};

const PIECES: u32 = 100;
const ORDERS: u32 = 4;

#[derive(Serialize, Deserialize)]
struct Stock {
    left: u32,
}

/// A planted bug of the shop.
#[derive(Clone, Copy, PartialEq)]
enum Bug {
    None,
    /// The closure sends the mail. A second attempt sends a second mail, and an attempt that does
    /// not commit sends one, too.
    MailInClosure,
    /// The stock is read before the transaction, so that no other order conflicts.
    ReadBefore,
}

/// The post office, outside of the transactions: the number of mails for each order.
#[derive(Default)]
struct Post(Mutex<BTreeMap<String, u32>>);

impl Post {
    fn send(&self, order: &str) {
        let mut mails = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *mails.entry(order.to_owned()).or_default() += 1;
    }
}

/// The application under test.
struct Shop {
    domain: Domain,
    stock: Collection<Typed<Stock>>,
    orders: Collection<Raw>,
    mails: Collection<Raw>,
    bug: Bug,
}

impl Shop {
    async fn create(domain: &Domain, bug: Bug) -> Result<Self, Error> {
        let stock = domain.create_collection("stock", None).await?;
        let orders = domain.create_collection("orders", None).await?;
        let mails = domain.create_collection("mails", None).await?;
        Ok(Self { domain: domain.clone(), stock, orders, mails, bug })
    }

    async fn open(domain: &Domain, bug: Bug) -> Result<Self, Error> {
        let stock = domain.collection("stock").await?;
        let orders = domain.collection("orders").await?;
        let mails = domain.collection("mails").await?;
        Ok(Self { domain: domain.clone(), stock, orders, mails, bug })
    }

    async fn left(&self) -> Result<u32, Error> {
        let found = self.domain.reader().verified().get(&self.stock, "apple").await?;
        Ok(found.map_or(0, |shelf| shelf.left))
    }

    /// Takes a piece from the stock, and sends a mail about the order.
    async fn order(&self, id: &str, post: &Post) -> Result<(), Error> {
        let seen = if self.bug == Bug::ReadBefore { Some(self.left().await?) } else { None };
        self.domain
            .transact(async |tx: &Transaction| {
                let left = match seen {
                    Some(left) => left,
                    None => tx.get(&self.stock, "apple").await?.map_or(0, |shelf| shelf.left),
                };
                tx.put(&self.stock, "apple", &Stock { left: left.saturating_sub(1) })?;
                tx.insert(&self.orders, id, &Raw::new("{}"))?;
                if self.bug == Bug::MailInClosure {
                    post.send(id);
                    return Ok(());
                }
                // The mail commits with the order. Another process may send it.
                tx.insert(&self.mails, id, &Raw::new("{}"))
            })
            .await
    }
}

/// The expectations, outside of all processes.
#[derive(Default)]
struct Expected {
    post: Post,
    tried: Mutex<BTreeSet<String>>,
    acknowledged: Mutex<BTreeSet<String>>,
}

/// Places the orders of one process.
async fn place_orders(worker: &Worker, expected: &Expected, bug: Bug) -> Result<(), BoxError> {
    let shop = Shop::open(worker.domain(), bug).await?;
    let note = |ids: &Mutex<BTreeSet<String>>, id: &str| {
        ids.lock().unwrap_or_else(PoisonError::into_inner).insert(id.to_owned());
    };
    for n in 0..ORDERS {
        let id = format!("order-{}-{}-{n}", worker.number(), worker.restarts());
        note(&expected.tried, &id);
        match shop.order(&id, &expected.post).await {
            Ok(()) => note(&expected.acknowledged, &id),
            // The check decides whether the order exists.
            Err(error) if error.kind() == ErrorKind::Unknown => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Compares the final documents with the expectations.
async fn compare(domain: &Domain, expected: &Expected, bug: Bug) -> Result<(), BoxError> {
    let shop = Shop::open(domain, bug).await?;
    let acknowledged = expected.acknowledged.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let tried = expected.tried.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let sent = expected.post.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut orders = 0;
    for id in tried {
        let reader = domain.reader().verified();
        let is_order = reader.get(&shop.orders, &*id).await?.is_some();
        let in_outbox = u32::from(reader.get(&shop.mails, &*id).await?.is_some());
        let mails = in_outbox + sent.get(&id).copied().unwrap_or(0);
        orders += u32::from(is_order);
        if acknowledged.contains(&id) && !is_order {
            return Err(format!("{id} was acknowledged, and is lost").into());
        }
        if mails != u32::from(is_order) {
            return Err(format!("{mails} mails about {id}, which exists: {is_order}").into());
        }
    }
    let left = shop.left().await?;
    if left + orders != PIECES {
        return Err(format!("{left} pieces are left after {orders} orders of {PIECES}").into());
    }
    Ok(())
}

/// Runs the shop with this bug in simulated runs.
fn simulate(bug: Bug, seeds: u64) -> Result<Report, Failure> {
    Simulation::new("shop").with_seeds(0..seeds).try_run(
        async |domain| {
            let shop = Shop::create(domain, bug).await?;
            let put =
                async |tx: &Transaction| tx.put(&shop.stock, "apple", &Stock { left: PIECES });
            domain.transact(put).await?;
            Ok(Expected::default())
        },
        async |worker, expected| place_orders(worker, expected, bug).await,
        async |domain, expected| compare(domain, expected, bug).await,
    )
}

fn main() {
    for (name, bug) in [
        ("mail in the closure", Bug::MailInClosure),
        ("read before the transaction", Bug::ReadBefore),
        ("no bug", Bug::None),
    ] {
        match simulate(bug, 50) {
            Ok(report) => println!("{name}: {report}"),
            Err(failure) => println!("{name}: seed {}: {}", failure.seed(), failure.reason()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn correct_shop_passes_all_seeds() {
        let report = simulate(Bug::None, 100).unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(report.runs(), 100);
        assert!(report.deaths() > 10 && report.faults() > 1_000, "{report}");
    }

    #[test]
    fn repeated_side_effect_is_found() {
        let failure = simulate(Bug::MailInClosure, 20).expect_err("a mail is sent twice");
        assert!(failure.reason().contains(" mails about order-"), "{failure}");
        assert!(failure.is_repeatable(), "{failure}");
    }

    #[test]
    fn lost_update_is_found() {
        let failure = simulate(Bug::ReadBefore, 20).expect_err("an order takes no piece");
        assert!(failure.reason().contains("pieces are left"), "{failure}");
        assert!(failure.is_repeatable(), "{failure}");
    }
}
