//! A store of one's own: a wrapper that prints every request on its way to another store. It passes the
//! conformance suite, and it shows what a transaction does.
//!
//! ```sh
//! cargo run -p txn-examples --example custom_store
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use txn_core::store::{Key, Layer, MemoryStore, Outcome, Read, Store, Write, WriteOp};
use txn_core::{Acknowledge, Config, Domain, Error, Options, Raw};
use txn_store::conformance;

/// Passes every request on, once, and prints it with its answer. Bodies of documents are not printed.
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

// A wrapper writes out every method: a method that it forgot to pass on would not compile.
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
        // Sent once, whatever comes of it: a retried write would turn its own success into a conflict.
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

    // One call for the whole contract. It panics with the rule that is broken. In a project of one's own
    // this is a test; less of a race than by default, to be quick here.
    let options = conformance::Options::new("mine").with_race(4, 5);
    conformance::run(store.clone(), options).await;
    println!("the store passes the conformance suite\n");

    let domain = Domain::create(store.clone(), "traced", Config::default()).await?;
    let documents = domain.create_collection::<Raw>("documents", None).await?;
    // Returns when the commit is applied, so that the two do not mix.
    let options = Options::default().with_acknowledge(Acknowledge::Applied);
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
