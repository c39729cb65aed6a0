//! A worker of the demo: concurrent transfers of two to eight legs.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use txn_bank::{Bank, BankError, Leg, TransferOptions};
use txn_core::clock::{Entropy, SystemEntropy};
use txn_core::{Config, LockMode, Options};

use crate::console::args::Global;
use crate::console::failure::{Exit, Failure};
use crate::console::{address_of, config, open_store};
use crate::demo::line::{Line, LineObserver};

/// The accounts of the demo.
pub(crate) const NAMES: [&str; 32] = [
    "alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi", "ivan", "judy", "kim",
    "lena", "mike", "nina", "oscar", "peggy", "quinn", "rosa", "sam", "tina", "ugo", "vera",
    "walt", "xena", "yuri", "zoe", "anna", "ben", "cleo", "dora", "emil", "fay",
];

/// The number of concurrent transfers per worker.
pub(crate) const AT_ONCE: usize = 4;

/// The pause of every other transfer while it holds its locks.
pub(crate) const THINK_MS: u64 = 30;

/// The configuration of a worker, without a janitor.
///
/// Leftovers are then recovered by transactions that conflict with them.
pub(crate) fn worker_config(send: impl Fn(Line) + Send + Sync + 'static) -> Config {
    config().with_janitor_interval(None).with_observer(Some(Arc::new(LineObserver(send))))
}

/// Runs the worker as a process. Ends with its standard input.
///
/// The worker prints its lines on standard output.
pub(crate) async fn process(global: &Global, worker: usize) -> Result<Exit, Failure> {
    let send = |line: Line| {
        if let Ok(text) = serde_json::to_string(&line) {
            // If the reader is gone, standard input has ended, too.
            let _ = writeln!(std::io::stdout().lock(), "{text}");
        }
    };
    let open = open_store(&address_of(global), global, false).await?;
    let bank = Bank::open(open.store.clone(), &global.domain, worker_config(send)).await?;
    let (stop, stopped) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let mut rest = Vec::new();
        let _ = std::io::stdin().lock().read_to_end(&mut rest);
        let _ = stop.send(());
    });
    work(&bank, worker, send, async {
        let _ = stopped.await;
    })
    .await;
    open.close().await;
    Ok(Exit::Done)
}

/// Makes transfers until `stop` returns, and then waits for their apply.
pub(crate) async fn work(
    bank: &Bank,
    worker: usize,
    send: impl Fn(Line) + Clone + Send + Sync + 'static,
    stop: impl Future<Output = ()> + Send,
) {
    send(Line::Ready { pid: std::process::id() });
    let stopping = Arc::new(AtomicBool::new(false));
    let committed = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for task in 0..AT_ONCE {
        let (bank, send) = (bank.clone(), send.clone());
        let (stopping, committed) = (stopping.clone(), committed.clone());
        tasks.spawn(async move {
            let mut number = 0;
            while !stopping.load(Ordering::Relaxed) {
                number += 1;
                let key = format!("w{worker}-{task}-{number}");
                let legs = legs();
                let options = match task % 2 {
                    0 => TransferOptions::default(),
                    // Like an application that locks its reads, and calls another service before
                    // its writes.
                    _ => TransferOptions::default()
                        .with_transaction(Options::default().with_lock_mode(LockMode::AtRead))
                        .with_pause(Duration::from_millis(THINK_MS)),
                };
                match bank.transfer_with(Some(&key), &legs, &options).await {
                    Ok(_) => {
                        committed.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(BankError::InsufficientFunds { .. }) => {}
                    Err(error) => {
                        send(Line::Failed { why: error.to_string() });
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                }
            }
        });
    }
    stop.await;
    stopping.store(true, Ordering::Relaxed);
    while tasks.join_next().await.is_some() {}
    bank.shutdown(Duration::from_secs(10)).await;
    send(Line::Done { committed: committed.load(Ordering::Relaxed) });
}

/// Two to eight random accounts. The first pays all the rest.
fn legs() -> Vec<Leg> {
    let below = |n: usize| usize::try_from(SystemEntropy.next_u64() % n as u64).unwrap_or(0);
    let mut names = NAMES;
    let count = 2 + below(7);
    for at in 0..count {
        let from = at + below(NAMES.len() - at);
        names.swap(at, from);
    }
    let mut legs = Vec::with_capacity(count);
    let mut paid = 0;
    for name in &names[1..count] {
        let amount = i64::try_from(below(50)).unwrap_or(0) + 1;
        paid += amount;
        legs.push(Leg::new(*name, amount));
    }
    legs.push(Leg::new(names[0], -paid));
    legs
}
