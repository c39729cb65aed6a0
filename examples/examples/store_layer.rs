//! A layer around a store: prints every request to it.
//!
//! The wrapper passes the conformance suite, and shows the requests of a transaction.
//!
//! ```sh
//! cargo run -p txn-examples --example store_layer
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use txn_core::store::{Key, Layer, MemoryStore, Outcome, Read, Store, Write, WriteOp};
use txn_core::{Config, Domain, Error, Options, Raw, WaitFor};
use txn_store::conformance;

/// Passes requests on, and prints each with its answer.
///
/// Each request is sent once. No document bodies are printed.
#[derive(Debug)]
struct Traced<S> {
    inner: S,
    loud: AtomicBool,
    origin: Instant,
}

impl<S: Store> Traced<S> {
    fn new(inner: S) -> Self {
        Self { inner, loud: AtomicBool::new(false), origin: Instant::now() }
    }

    fn set_loud(&self, loud: bool) {
        self.loud.store(loud, Ordering::Relaxed);
    }

    fn print(&self, request: &str, lines: impl IntoIterator<Item = String>) {
        if self.loud.load(Ordering::Relaxed) {
            println!("{:>7.1?} {request}", self.origin.elapsed());
            lines.into_iter().for_each(|line| println!("{:8}{line}", ""));
        }
    }
}

fn name(op: &WriteOp) -> &'static str {
    match op {
        WriteOp::Create(_) => "create",
        WriteOp::Replace(..) => "replace",
        WriteOp::Delete(_) => "delete",
        WriteOp::Check(_) => "check",
        WriteOp::Verify(_) => "verify",
    }
}

fn answer(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Applied(_) => "applied",
        Outcome::Holds => "holds",
        Outcome::Conflict => "conflict",
        _ => "not done",
    }
}

// A layer overrides only the methods that it changes, and passes the rest on.
#[async_trait]
impl<S: Store> Layer for Traced<S> {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    async fn get_many(&self, keys: &[Key]) -> Vec<Read> {
        let reads = self.inner.get_many(keys).await;
        self.print("get_many", keys.iter().map(ToString::to_string));
        reads
    }

    async fn read_primary(&self, keys: &[Key]) -> Vec<Read> {
        let reads = self.inner.read_primary(keys).await;
        self.print("read_primary", keys.iter().map(ToString::to_string));
        reads
    }

    async fn write_many(&self, writes: &[Write]) -> Vec<Outcome> {
        // Sent once, even after a failure: a retried write would turn its own success into a
        // conflict.
        let outcomes = self.inner.write_many(writes).await;
        let line = |(write, outcome): (&Write, &Outcome)| {
            format!("{} {}: {}", name(&write.op), write.key, answer(outcome))
        };
        self.print("write_many", writes.iter().zip(&outcomes).map(line));
        outcomes
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let store = Arc::new(Traced::new(MemoryStore::new()));

    // One call checks the whole contract, and panics with a broken rule. In your project this is a
    // test. The race is smaller than the default, to be fast here.
    let options = conformance::Options::new("mine").with_race(4, 5);
    conformance::run(store.clone(), options).await;
    println!("the store passes the conformance suite\n");

    let domain = Domain::open_or_create(store.clone(), "traced", Config::default()).await?;
    let documents = domain.create_collection::<Raw>("documents", None).await?;
    // Returns after the apply, so that the output of two transactions does not mix.
    let options = Options::default().with_wait_for(WaitFor::Apply);
    let write = async |text: &str| {
        let image = Raw::new(text);
        domain
            .run(&options, async |tx| {
                tx.get_many(&documents, ["a", "b"]).await?;
                tx.put(&documents, "a", &image)?;
                tx.put(&documents, "b", &image)
            })
            .await
    };
    write(r#"{"n":1}"#).await?;
    println!(
        "a transaction that reads and writes two documents (the last two requests are the apply):"
    );
    store.set_loud(true);
    write(r#"{"n":2}"#).await?;
    domain.shutdown(Duration::from_secs(5)).await;
    Ok(())
}

#[test]
fn runs() -> Result<(), Error> {
    main()
}
