//! A shop that sells tickets.
//!
//! A sale is two transactions with eleven documents. The first transaction reserves a seat. The
//! second one pays, and emits an event, from which a mail is written.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use txn_core::store::Store;
use txn_core::{Collection, Config, Domain, Transaction, Typed};
use txn_outbox::{Event, Outbox, OutboxConfig, OutboxError, Processor, ProcessorConfig, Topics};

use super::{PATIENCE, in_turn, new_id, rate_since};
use crate::pair::Rate;
use crate::{Failure, drop_all};

/// The number of events with tickets, each with its own organiser.
pub const EVENTS: usize = 50;

/// The number of customers, each with a wallet.
const CUSTOMERS: usize = 1_000;

const TOPIC: &str = "sold";

/// The price of a ticket.
const PRICE: i64 = 25;

/// The first amount of a wallet: enough for every sale.
const MONEY: i64 = 1 << 40;

/// A counter or an account.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Amount {
    amount: i64,
}

/// A seat, an order, a ticket or a mail.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Paper {
    customer: String,
    state: String,
}

impl Paper {
    fn new(customer: &str, state: &str) -> Self {
        Self { customer: customer.to_owned(), state: state.to_owned() }
    }
}

/// A shop with one or several processes.
#[derive(Debug)]
pub struct Shop {
    branches: Vec<Branch>,
    /// The number of paid sales.
    paid: AtomicU64,
    refused: AtomicU64,
}

/// One process of a shop.
#[derive(Debug)]
struct Branch {
    store: Arc<dyn Store>,
    domain: Domain,
    /// The numbers of sold seats, by event.
    events: Collection<Typed<Amount>>,
    /// The accounts of customers and organisers.
    accounts: Collection<Typed<Amount>>,
    /// Seats, orders and tickets.
    papers: Collection<Typed<Paper>>,
    outbox: Option<(Outbox, Processor)>,
}

/// The result of a round of sales.
#[derive(Clone, Copy, Debug)]
pub struct Sold {
    /// Sales per second, and the duration of each.
    pub sales: Rate,
    /// The delay of the last mail after the end of the sales.
    pub behind: Duration,
}

/// The demand for events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// All buyers want the first event.
    Popular,
    /// All events are equally popular.
    Spread,
}

impl Shop {
    /// Opens a shop with one process for each of these stores.
    ///
    /// All stores are on one server or in one file.
    ///
    /// # Errors
    /// As the store.
    pub async fn open(
        stores: Vec<Arc<dyn Store>>,
        name: &str,
        config: &Config,
        has_outbox: bool,
    ) -> Result<Arc<Self>, Failure> {
        let mut branches = Vec::new();
        for store in stores {
            branches.push(Branch::open(store, name, config.clone(), has_outbox).await?);
        }
        let this = Self { branches, paid: AtomicU64::new(0), refused: AtomicU64::new(0) };
        let accounts = (0..CUSTOMERS).map(customer).chain((0..EVENTS).map(organiser));
        let accounts: Vec<String> = accounts.collect();
        if let Some(first) = this.branches.first() {
            for some in accounts.chunks(500) {
                let opened = first.domain.transact::<_, txn_core::Error, _>(async |tx| {
                    for id in some {
                        tx.put(&first.accounts, id.as_str(), &Amount { amount: MONEY })?;
                    }
                    Ok(())
                });
                opened.await?;
            }
        }
        this.wait_for_shards().await?;
        Ok(Arc::new(this))
    }

    /// Waits until the processors share all shards.
    async fn wait_for_shards(&self) -> Result<(), Failure> {
        let outboxes = || self.branches.iter().filter_map(|branch| branch.outbox.as_ref());
        let all = usize::from(OutboxConfig::default().shards);
        let until = Instant::now() + PATIENCE;
        let held = || outboxes().map(|(_, processor)| processor.shards().len());
        let fair = all / self.branches.len().max(1);
        while outboxes().count() > 0 && (held().sum::<usize>() < all || held().any(|n| n < fair)) {
            if Instant::now() > until {
                return Err("the processors did not get their shards".into());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// Sells for `span` with this many buyers per process.
    ///
    /// Then waits until all mails are written.
    ///
    /// # Errors
    /// As the store. Refused sales are counted.
    pub async fn sell(
        self: &Arc<Self>,
        demand: Demand,
        buyers: usize,
        span: Duration,
    ) -> Result<Sold, Failure> {
        let this = self.clone();
        let (times, began) = in_turn(buyers * self.branches.len(), span, move |buyer| {
            let this = this.clone();
            async move {
                let branch = &this.branches[buyer % this.branches.len()];
                let began = Instant::now();
                let counter = match branch.sale(demand).await {
                    Ok(()) => &this.paid,
                    Err(_) => &this.refused,
                };
                counter.fetch_add(1, Ordering::Relaxed);
                Ok(began.elapsed())
            }
        })
        .await?;
        let sales = rate_since(began, &times);
        let ended = Instant::now();
        self.wait_for_mails().await?;
        Ok(Sold { sales, behind: ended.elapsed() })
    }

    async fn wait_for_mails(&self) -> Result<(), Failure> {
        let processors = || self.branches.iter().filter_map(|branch| branch.outbox.as_ref());
        if processors().count() == 0 {
            return Ok(());
        }
        let until = Instant::now() + PATIENCE;
        let handled =
            || processors().map(|(_, processor)| processor.figures().handled).sum::<u64>();
        while handled() < self.paid.load(Ordering::Relaxed) {
            if Instant::now() > until {
                return Err("mails were not written".into());
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    }

    /// Returns the number of refused sales so far.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Compares the ledger with the acknowledged sales.
    ///
    /// # Errors
    /// If the ledger does not balance, or as the store.
    pub async fn audit(&self) -> Result<(), Failure> {
        let Some(branch) = self.branches.first() else { return Ok(()) };
        let accounts = async |ids: Vec<String>| {
            let read = branch.domain.reader().verified().get_many(&branch.accounts, &ids).await?;
            Ok::<_, Failure>(read.into_iter().flatten().map(|one| one.amount - MONEY).sum::<i64>())
        };
        let spent = accounts((0..CUSTOMERS).map(customer).collect()).await?;
        let earned = accounts((0..EVENTS).map(organiser).collect()).await?;
        let ids = (0..EVENTS).map(|at| at.to_string());
        let sold = branch.domain.reader().verified().get_many(&branch.events, ids).await?;
        let sold: i64 = sold.into_iter().flatten().map(|event| event.amount).sum();
        let paid = i64::try_from(self.paid.load(Ordering::Relaxed))?;
        let refused = i64::try_from(self.refused())?;
        // A refused sale may have reserved a seat, and an unknown one may have been paid.
        let is_sound = spent + earned == 0
            && (paid..=paid + refused).contains(&(earned / PRICE))
            && (paid..=paid + refused).contains(&sold);
        match is_sound {
            true => Ok(()),
            false => {
                let books = format!("sold {sold}, paid {paid}, refused {refused}");
                Err(format!("{books}: spent {spent}, earned {earned}").into())
            }
        }
    }

    /// Closes the shop, and drops it unless its store ends with it.
    ///
    /// # Errors
    /// As the store.
    pub async fn close(self: Arc<Self>) -> Result<(), Failure> {
        let this = Arc::into_inner(self).ok_or("the shop is still open")?;
        let mut last = None;
        for branch in this.branches {
            if let Some((_, processor)) = branch.outbox {
                processor.stop(PATIENCE).await;
            }
            branch.domain.shutdown(PATIENCE).await;
            last = Some((branch.store, branch.domain));
        }
        match last {
            Some((store, domain)) => drop_all(&*store, domain.name()).await,
            None => Ok(()),
        }
    }
}

impl Branch {
    async fn open(
        store: Arc<dyn Store>,
        name: &str,
        config: Config,
        has_outbox: bool,
    ) -> Result<Self, Failure> {
        let domain = Domain::open_or_create(store.clone(), name, config).await?;
        let index = |what: &str| format!("{name}-{what}");
        let mappings = Some(r#"{"dynamic":false}"#);
        let mails = domain.create_collection(&index("mails"), mappings).await?;
        let outbox = match has_outbox {
            true => Some(start(&domain, mails).await?),
            false => None,
        };
        Ok(Self {
            store,
            events: domain.create_collection(&index("events"), mappings).await?,
            accounts: domain.create_collection(&index("accounts"), mappings).await?,
            papers: domain.create_collection(&index("papers"), mappings).await?,
            outbox,
            domain,
        })
    }

    async fn sale(&self, demand: Demand) -> Result<(), OutboxError> {
        let event = if demand == Demand::Popular { 0 } else { fastrand::usize(0..EVENTS) };
        let (customer, id) = (customer(fastrand::usize(0..CUSTOMERS)), new_id());
        let (order, seat, ticket) =
            (format!("order-{id}"), format!("seat-{id}"), format!("ticket-{id}"));
        let (event_id, organiser) = (event.to_string(), organiser(event));
        let reserve = self.domain.transact::<_, OutboxError, _>(async |tx| {
            let sold = tx.get(&self.events, event_id.as_str()).await?.unwrap_or_default();
            let wallet = tx.get(&self.accounts, customer.as_str()).await?.unwrap_or_default();
            if wallet.amount < PRICE {
                return Ok(());
            }
            tx.put(&self.events, event_id.as_str(), &Amount { amount: sold.amount + 1 })?;
            tx.put(&self.accounts, customer.as_str(), &wallet)?;
            tx.insert(&self.papers, seat.as_str(), &Paper::new(&customer, "reserved"))?;
            tx.insert(&self.papers, order.as_str(), &Paper::new(&customer, "open"))?;
            Ok(())
        });
        reserve.await?;
        let pay = self.domain.transact::<_, OutboxError, _>(async |tx| {
            let Some(mut open) = tx.get(&self.papers, order.as_str()).await? else { return Ok(()) };
            let wallet = tx.get(&self.accounts, customer.as_str()).await?.unwrap_or_default();
            let earned = tx.get(&self.accounts, organiser.as_str()).await?.unwrap_or_default();
            open.state = "paid".to_owned();
            tx.put(&self.papers, order.as_str(), &open)?;
            tx.put(&self.papers, seat.as_str(), &Paper::new(&customer, "sold"))?;
            let less = Amount { amount: wallet.amount - PRICE };
            let more = Amount { amount: earned.amount + PRICE };
            tx.put(&self.accounts, customer.as_str(), &less)?;
            tx.put(&self.accounts, organiser.as_str(), &more)?;
            tx.insert(&self.papers, ticket.as_str(), &Paper::new(&customer, "valid"))?;
            if let Some((outbox, _)) = &self.outbox {
                outbox.emit(tx, TOPIC, &customer, &id).await?;
            }
            Ok(())
        });
        pay.await
    }
}

async fn start(
    domain: &Domain,
    mails: Collection<Typed<Paper>>,
) -> Result<(Outbox, Processor), Failure> {
    let outbox = Outbox::open(domain, OutboxConfig::default()).await?;
    let send = async |mails: &Collection<Typed<Paper>>, tx: &Transaction, event: &Event| {
        let id = event.payload::<String>()?;
        Ok(tx.insert(mails, id.as_str(), &Paper::new(event.queue.key(), "sent"))?)
    };
    let topics = Topics::new().with_transaction(TOPIC, mails, send);
    let processor = outbox.start(ProcessorConfig::default(), topics).await?;
    Ok((outbox, processor))
}

fn customer(at: usize) -> String {
    format!("customer-{at}")
}

fn organiser(at: usize) -> String {
    format!("organiser-{at}")
}
