//! The outbox, compared with plain clients that write the consequences themselves.
//!
//! A plain client writes the consequence after its first write. If the client dies or is overtaken
//! in between, the consequence is lost.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use txn_core::{Collection, Typed};
use txn_outbox::{Delivery, Outbox, OutboxConfig, OutboxError, Processor, ProcessorConfig, Topics};

use super::{PATIENCE, Place, in_turn, new_id, rate_since};
use crate::pair::Rate;
use crate::seed::wire::Wire;
use crate::{Failure, unique};

const TOPIC: &str = "written";

type Documents = Collection<Typed<Value>>;

/// Both systems on one server.
#[derive(Debug)]
pub struct Events {
    place: Place,
    outbox: Outbox,
    entities: Documents,
    handled: Arc<Handled>,
    wire: Wire,
    /// The collections of the peer.
    plain: [String; 2],
}

/// The waiting caller of each event, or the time of its handling.
#[derive(Debug, Default)]
struct Handled {
    waiting: Mutex<BTreeMap<String, Waiting>>,
}

#[derive(Debug)]
enum Waiting {
    For(oneshot::Sender<Instant>),
    Since(Instant),
}

impl Handled {
    fn note(&self, event: String) {
        let (now, mut waiting) =
            (Instant::now(), self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        match waiting.remove(&event) {
            // An error means that the caller no longer waits.
            Some(Waiting::For(caller)) => drop(caller.send(now)),
            _ => drop(waiting.insert(event, Waiting::Since(now))),
        }
    }

    async fn when(&self, event: &str) -> Result<Instant, Failure> {
        let (sender, receiver) = oneshot::channel();
        {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(Waiting::Since(at)) = waiting.remove(event) {
                return Ok(at);
            }
            waiting.insert(event.to_owned(), Waiting::For(sender));
        }
        Ok(tokio::time::timeout(PATIENCE, receiver).await??)
    }
}

impl Events {
    /// Opens both systems, with a processor in the same process.
    ///
    /// The processor writes a document in the transaction of each event.
    ///
    /// # Errors
    /// As the server.
    pub async fn open(url: &str) -> Result<(Arc<Self>, Processor), Failure> {
        let name = unique("events");
        let place = Place::open(url, &name).await?;
        let made = async |what: &str| {
            let name = format!("{name}-{what}");
            place.domain.create_collection(&name, Some(r#"{"dynamic":false}"#)).await
        };
        let (entities, derived): (Documents, Documents) =
            (made("entities").await?, made("derived").await?);
        let plain = ["plain-entities", "plain-derived"];
        for what in plain {
            made(what).await.map(|_: Documents| ())?;
        }
        let plain = plain.map(|what| format!("{name}-{what}"));
        let outbox = Outbox::open(&place.domain, OutboxConfig::default()).await?;
        let handled = Arc::new(Handled::default());
        let noting = handled.clone();
        let handler = move |delivery: Delivery| {
            let (derived, handled) = (derived.clone(), noting.clone());
            async move {
                let event = delivery.event().clone();
                let (key, written) = (event.queue.key().to_owned(), event.payload::<Value>()?);
                delivery
                    .transact::<_, txn_outbox::Failure, _>(async |tx| {
                        Ok(tx.put(&derived, &key, &written)?)
                    })
                    .await?;
                handled.note(event.id);
                Ok(())
            }
        };
        let processor =
            outbox.start(ProcessorConfig::default(), Topics::new().with(TOPIC, handler)).await?;
        let (until, shards) =
            (Instant::now() + PATIENCE, usize::from(OutboxConfig::default().shards));
        while processor.shards().len() < shards {
            if Instant::now() > until {
                return Err("the processor did not get its shards".into());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let wire = Wire::new(url, None)?;
        Ok((Arc::new(Self { place, outbox, entities, handled, wire, plain }), processor))
    }

    /// Measures rounds of both systems in turn, as medians.
    ///
    /// Counts pairs of a write and its consequence, and times from the commit of the first write.
    /// Each client writes its next document after the event of the last one was handled.
    ///
    /// # Errors
    /// As the server.
    pub async fn measure(
        self: &Arc<Self>,
        (clients, keys): (usize, usize),
        rounds: usize,
        span: Duration,
    ) -> Result<[Rate; 2], Failure> {
        let mut each: [Vec<Rate>; 2] = Default::default();
        for _ in 0..rounds {
            for (plain, rounds) in each.iter_mut().enumerate() {
                let this = self.clone();
                let (lags, began) = in_turn(clients, span, move |_| {
                    let (this, key) = (this.clone(), format!("k{}", fastrand::usize(0..keys)));
                    async move {
                        if plain == 1 {
                            this.write_plain(&key).await
                        } else {
                            this.emit(&key).await
                        }
                    }
                })
                .await?;
                rounds.push(rate_since(began, &lags));
            }
        }
        Ok(each.map(|rounds| Rate::median(&rounds)))
    }

    async fn emit(&self, key: &str) -> Result<Duration, Failure> {
        let id = new_id();
        let content = json!({"of": key});
        let emitted = self.place.domain.transact::<_, OutboxError, _>(async |tx| {
            tx.put(&self.entities, &id, &content)?;
            self.outbox.emit(tx, TOPIC, key, &content).await
        });
        let event = emitted.await?;
        let committed = Instant::now();
        Ok(self.handled.when(&event).await?.saturating_duration_since(committed))
    }

    async fn write_plain(&self, key: &str) -> Result<Duration, Failure> {
        let [entities, derived] = &self.plain;
        let (id, content) = (new_id(), json!({"of": key}));
        self.wire.ask(Method::PUT, &format!("{entities}/_doc/{id}"), Some(&content)).await?;
        let written = Instant::now();
        self.wire.ask(Method::PUT, &format!("{derived}/_doc/{key}"), Some(&content)).await?;
        Ok(written.elapsed())
    }

    /// Drops all collections.
    ///
    /// # Errors
    /// As the server.
    pub async fn close(&self, processor: Processor) -> Result<(), Failure> {
        processor.stop(PATIENCE).await;
        self.place.close().await
    }
}
