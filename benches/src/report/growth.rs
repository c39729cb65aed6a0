//! The growth of a process's processor time, on a store in memory.
//!
//! The time by open transactions, by kept records, and by locks of a dead process.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use txn_core::store::MemoryStore;
use txn_core::{Config, Domain, LockMode, Options, Raw, Typed, WaitFor};

use super::findings::Findings;
use super::scale::Scale;
use super::table::{Aim, Row, number};
use crate::Failure;
use crate::accounts::{Account, Bank, ids};
use crate::statistics::median;
use crate::usage::thread_time;

/// Transfers of one round, and rounds of each variant, in turn.
const TRANSFERS: usize = 2_000;
const ROUNDS: usize = 7;

/// The allowed ratio of a flat cost. Searches in more memory cost some time.
const FLAT: f64 = 1.25;

/// The numbers of recovered locks.
const LOCKS: [usize; 2] = [1_000, 10_000];

/// The time without a heartbeat after which a process counts as dead.
const LEASE: Duration = Duration::from_millis(200);

/// Longer than each of the measurements.
const AN_HOUR: Duration = Duration::from_secs(3_600);

/// Measures all three kinds of growth.
pub(super) async fn growth(scale: &Scale, findings: &mut Findings) -> Result<(), Failure> {
    let quick = scale.quick;
    // On its own thread, whose processor time is only that of its runtime.
    let rows = tokio::task::spawn_blocking(move || rows(quick)).await??;
    findings.rows.extend(rows);
    Ok(())
}

fn rows(quick: bool) -> Result<[Row; 3], Failure> {
    let runtime = here()?;
    let (few, open) = (10, if quick { 10_000 } else { 100_000 });
    let with_open = runtime.block_on(with_open(few, open))?;
    let (kept, records) = (1_000, if quick { 50_000 } else { 1_000_000 });
    let with_records = runtime.block_on(with_records(kept, records))?;
    drop(runtime);
    let none = median_recovery(0)?;
    let less = median_recovery(LOCKS[0])? - none;
    let more = recovery(LOCKS[1])? - none;
    let times = LOCKS[1] as f64 / LOCKS[0] as f64;
    Ok([
        flat("open transactions", open, few, with_open),
        flat("records", records, kept, with_records),
        Row::found(
            format!("processor time for each of {} locks recovered / of {}", LOCKS[1], LOCKS[0]),
            Aim::Bound(FLAT, "linear".to_owned()),
            more / less / times,
            format!("{} ms to {} ms, in all", number(more), number(less)),
        ),
    ])
}

fn flat(what: &str, many: usize, few: usize, [less, more]: [f64; 2]) -> Row {
    Row::found(
        format!("processor time of a transfer beside {many} {what} / beside {few}"),
        Aim::Bound(FLAT, "flat".to_owned()),
        more / less,
        format!("{} µs to {} µs, the store in memory included", number(more), number(less)),
    )
}

fn here() -> Result<Runtime, Failure> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

fn patient() -> Config {
    Config::default().with_attempt_timeout(AN_HOUR).with_timeout(AN_HOUR)
}

/// Returns a bank with this many accounts.
async fn bank(accounts: usize) -> Result<Bank, Failure> {
    let bank = Bank::on(Arc::new(MemoryStore::new()), "growth", patient()).await?;
    for part in ids(accounts).chunks(500) {
        bank.put(part).await?;
    }
    Ok(bank)
}

/// Measures a transfer with this many open transactions.
///
/// Each open transaction has read one account.
async fn with_open(few: usize, many: usize) -> Result<[f64; 2], Failure> {
    let banks = [bank(1_000).await?, bank(1_000).await?];
    let all = ids(1_000);
    let mut open = Vec::with_capacity(few + many);
    for (bank, count) in banks.iter().zip([few, many]) {
        for at in 0..count {
            let tx = bank.domain.begin(&Options::default())?;
            tx.get(&bank.accounts, all[at % all.len()].as_str()).await?;
            open.push(tx);
        }
    }
    in_turn(&banks).await
}

/// Measures a transfer on a store with this many records.
async fn with_records(few: usize, many: usize) -> Result<[f64; 2], Failure> {
    let banks = [bank(100).await?, bank(100).await?];
    for (bank, count) in banks.iter().zip([few, many]) {
        transfers(bank, count).await?;
    }
    in_turn(&banks).await
}

/// Returns the median time of a transfer of each bank, in µs.
async fn in_turn(banks: &[Bank; 2]) -> Result<[f64; 2], Failure> {
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (bank, times) in banks.iter().zip(&mut times) {
            let before = thread_time()?;
            transfers(bank, TRANSFERS).await?;
            let took = thread_time()? - before;
            times.push(took.as_secs_f64() * 1e6 / TRANSFERS as f64);
        }
    }
    Ok(times.map(median))
}

async fn transfers(bank: &Bank, count: usize) -> Result<(), Failure> {
    let all = ids(100);
    for at in 0..count {
        let at = at * 2 % all.len();
        bank.transact(&all[at..at + 2], &Options::default()).await?;
    }
    Ok(())
}

/// Returns the median of three runs.
///
/// A time of a few milliseconds varies.
fn median_recovery(locks: usize) -> Result<f64, Failure> {
    Ok(median([recovery(locks)?, recovery(locks)?, recovery(locks)?]))
}

/// Returns the processor time to recover a dead process's locks.
///
/// The time is in ms.
///
/// The process died with one transaction.
fn recovery(locks: usize) -> Result<f64, Failure> {
    let store = Arc::new(MemoryStore::new());
    let config = patient().with_lease(LEASE).with_max_documents(LOCKS[1]);
    let dead = {
        let (store, config) = (store.clone(), config.clone().with_janitor_interval(None));
        std::thread::spawn(move || die_with(store, config, locks))
    };
    dead.join().map_err(|_| "the process that was to die panicked")??;
    let runtime = here()?;
    let taken_off = async {
        let before = thread_time()?;
        let config = config.with_janitor_interval(Some(LEASE / 2));
        let domain = Domain::open_or_create(store, "growth", config).await?;
        domain.collection::<Raw>("growth-accounts").await?;
        loop {
            tokio::time::sleep(3 * LEASE).await;
            let took = thread_time()? - before;
            if domain.admin().inspect().await?.is_clean() {
                domain.shutdown(Duration::from_secs(10)).await;
                return Ok(took.as_secs_f64() * 1e3);
            }
        }
    };
    runtime.block_on(taken_off)
}

/// Locks documents by a transaction, and ends like a killed process.
///
/// The tasks of the transaction end midway.
fn die_with(store: Arc<MemoryStore>, config: Config, locks: usize) -> Result<(), Failure> {
    let runtime = here()?;
    let left = runtime.block_on(async {
        let domain = Domain::open_or_create(store, "growth", config).await?;
        let accounts = domain.create_collection::<Typed<Account>>("growth-accounts", None).await?;
        let all = ids(locks);
        let applied = Options::default().with_wait_for(WaitFor::Apply);
        for part in all.chunks(500) {
            let tx = domain.begin(&applied)?;
            for id in part {
                tx.put(&accounts, id.as_str(), &Account::default())?;
            }
            tx.commit().await?;
        }
        let tx = domain.begin(&Options::default().with_lock_mode(LockMode::AtRead))?;
        tx.get_many(&accounts, all.iter().map(String::as_str)).await?;
        Ok::<_, Failure>((domain, tx))
    })?;
    drop(runtime);
    std::mem::forget(left);
    Ok(())
}
