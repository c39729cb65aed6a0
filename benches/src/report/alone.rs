//! One client: latency compared with plain requests, and costs of paths.
//!
//! The cost is the number of round trips and document writes.

use std::time::{Duration, Instant};

use txn_core::{Error, LockMode, Options, ReadMode};

use super::findings::{Findings, Path, Size};
use super::scale::Scale;
use super::table::{Aim, Row};
use crate::Failure;
use crate::accounts::{Account, Bank};
use crate::statistics::median;
use crate::world::{Way, World};

/// The pause between two measurements, because an apply continues after its acknowledgement.
const BETWEEN: Duration = Duration::from_millis(25);

/// Latencies of one client, by number of documents.
///
/// Plain requests and transactions take turns.
pub(super) async fn latencies(
    world: &World,
    scale: &Scale,
    findings: &mut Findings,
) -> Result<(), Failure> {
    let most = scale.sizes.iter().max().copied().unwrap_or_default();
    for way in [Way::Plain, Way::Groups] {
        world.prepare(way, scale.accounts.max(2 * most)).await?;
    }
    for &documents in &scale.sizes {
        let aim = match documents {
            2 => Some(1.4),
            20 => Some(1.6),
            _ => None,
        };
        // A size without an aim is only a point of the plot.
        let samples = if aim.is_some() { scale.samples } else { scale.samples.div_ceil(4) };
        let size = size(world, (scale.accounts, samples), documents).await?;
        findings.sizes.push(size);
        let detail = |of| format!("{of:.2} ms to {:.2} ms, {samples} times", size.plain);
        if let Some(aim) = aim {
            findings.rows.push(Row::found(
                format!("1 client, {documents} existing documents: latency / plain"),
                Aim::AtMost(aim),
                size.transaction / size.plain,
                detail(size.transaction),
            ));
            for (what, ours, bare) in [
                ("existing documents", size.transaction, size.steps[0]),
                ("documents that this process wrote last", size.from_memory, size.steps[1]),
            ] {
                findings.rows.push(Row::found(
                    format!("1 client, {documents} {what}: latency / bare requests in turn"),
                    Aim::AtMost(1.15),
                    ours / bare,
                    format!("{ours:.2} ms to {bare:.2} ms, {samples} times"),
                ));
            }
        }
        if documents == 2 {
            findings.rows.push(Row::found(
                "1 client, 2 documents that this process wrote last: latency / plain",
                Aim::AtMost(1.0),
                size.from_memory / size.plain,
                detail(size.from_memory),
            ));
        }
    }
    let [plain, steps, transaction] = back_to_back(world, scale.samples).await?;
    for (than, other, aim) in [("plain", plain, 1.6), ("bare requests in turn", steps, 1.25)] {
        findings.rows.push(Row::found(
            format!("1 client, back to back on the same 2 documents: latency / {than}"),
            Aim::AtMost(aim),
            transaction / other,
            format!("{transaction:.2} ms to {other:.2} ms"),
        ));
    }
    for way in [Way::Plain, Way::Groups] {
        world.audit(way).await?.none_after(way.name())?;
    }
    Ok(())
}

async fn size(
    world: &World,
    (accounts, samples): (usize, usize),
    documents: usize,
) -> Result<Size, Failure> {
    let mut random = fastrand::Rng::with_seed(documents as u64);
    let (mut plain, mut fresh, mut known) = (Vec::new(), Vec::new(), Vec::new());
    let mut steps = [Vec::new(), Vec::new()];
    let mut writes = 0;
    for _ in 0..samples {
        let first = random.usize(..accounts - documents);
        let ids = |way| -> Vec<String> {
            (first..first + documents).map(|at| World::id(way, at)).collect()
        };
        tokio::time::sleep(BETWEEN).await;
        let (began, of) = (Instant::now(), ids(Way::Plain));
        world.plain().transfer(&of).await?;
        plain.push(millis(began));
        tokio::time::sleep(BETWEEN).await;
        let began = Instant::now();
        world.plain().transfer_in_steps(&of).await?;
        steps[0].push(millis(began));
        let without_read = world.plain().write_what_is_known(&of, BETWEEN).await?;
        steps[1].push(without_read.as_secs_f64() * 1e3);
        world.acknowledged(Way::Plain, documents, 3);
        let ([cold, warm], written) = both(world, &ids(Way::Groups)).await?;
        fresh.push(cold);
        known.push(warm);
        writes = written;
    }
    let [plain, transaction, from_memory] = [plain, fresh, known].map(median);
    Ok(Size { documents, plain, steps: steps.map(median), transaction, from_memory, writes })
}

/// Measures a transfer that reads the server, and one without.
///
/// The other transfer reads from the memory of the process.
///
/// Returns the times to the acknowledgement in ms, and the number of document writes of the first.
async fn both(world: &World, of: &[String]) -> Result<([f64; 2], u64), Failure> {
    let (bank, options) = (world.bank(), Options::default());
    tokio::time::sleep(BETWEEN).await;
    let before = bank.counts().documents_written;
    let began = Instant::now();
    bank.transfer(of, &options).await?;
    let fresh = millis(began);
    world.acknowledged(Way::Groups, of.len(), 1);
    tokio::time::sleep(BETWEEN).await;
    let written = bank.counts().documents_written - before;
    let began = Instant::now();
    bank.transact(of, &options).await?;
    let known = millis(began);
    world.acknowledged(Way::Groups, of.len(), 1);
    Ok(([fresh, known], written))
}

/// Returns the medians of three kinds of transfers, without pauses.
///
/// The kinds are plain requests, the requests of a transaction in turn without their read, and
/// transactions.
///
/// The kinds take turns, in blocks of ten.
async fn back_to_back(world: &World, samples: usize) -> Result<[f64; 3], Failure> {
    const BLOCK: usize = 10;
    let ids = |way| [World::id(way, 0), World::id(way, 1)];
    let bank = world.bank();
    let (mut plain, mut steps, mut transactions) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..samples.div_ceil(BLOCK) {
        for _ in 0..BLOCK {
            let of = ids(Way::Plain);
            let without_read = world.plain().write_what_is_known(&of, Duration::ZERO).await?;
            steps.push(without_read.as_secs_f64() * 1e3);
        }
        for _ in 0..BLOCK {
            let began = Instant::now();
            world.plain().transfer(&ids(Way::Plain)).await?;
            plain.push(millis(began));
        }
        world.acknowledged(Way::Plain, 2, 2 * BLOCK);
        for _ in 0..BLOCK {
            let began = Instant::now();
            bank.transact(&ids(Way::Groups), &Options::default()).await?;
            transactions.push(millis(began));
        }
        world.acknowledged(Way::Groups, 2, BLOCK);
        bank.settle().await?;
    }
    Ok([plain, steps, transactions].map(median))
}

fn millis(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

/// Counts the cost of each path.
pub(super) async fn paths(world: &World, findings: &mut Findings) -> Result<(), Failure> {
    let bank = world.bank();
    let all = ["a", "b"].map(|name| format!("path-{name}"));
    let twenty: Vec<String> = (0..20).map(|at| format!("path-{at}")).collect();
    bank.put(&twenty).await?;
    bank.put(&all).await?;
    bank.settle().await?;
    let plain = Options::default();
    let mut paths = Vec::new();
    for (what, n, options) in [
        ("read and write 1 document", 1, plain.clone()),
        ("read and write 2 documents", 2, plain.clone()),
        ("read and write 5 documents", 5, plain.clone()),
        ("read and write 20 documents", 20, plain.clone()),
        (
            "read and write 2 documents, pessimistic",
            2,
            plain.clone().with_lock_mode(LockMode::AtRead),
        ),
    ] {
        paths.push(count(bank, what, async || bank.transfer(&twenty[..n], &options).await).await?);
    }
    let what = "read from memory and write 2 documents";
    let recalled = async || bank.transact(&twenty[..2], &plain).await.map(drop);
    paths.push(count(bank, what, recalled).await?);
    let fresh = |name: &str| ["1", "2"].map(|at| format!("path-new-{name}-{at}"));
    paths.push(
        count(bank, "read and insert 2 documents", async || {
            let tx = bank.domain.begin(&plain)?;
            tx.get_many(&bank.accounts, fresh("read")).await?;
            for id in fresh("read") {
                tx.insert(&bank.accounts, id, &Account::default())?;
            }
            tx.commit().await.map(drop)
        })
        .await?,
    );
    paths.push(
        count(bank, "insert 2 documents", async || {
            let tx = bank.domain.begin(&plain)?;
            for id in fresh("blind") {
                tx.insert(&bank.accounts, id, &Account::default())?;
            }
            tx.commit().await.map(drop)
        })
        .await?,
    );
    paths.push(
        count(bank, "delete 2 documents", async || {
            let tx = bank.domain.begin(&plain)?;
            for id in fresh("blind") {
                tx.delete(&bank.accounts, id)?;
            }
            tx.commit().await.map(drop)
        })
        .await?,
    );
    paths.push(count(bank, "write 2 documents unread", async || bank.put(&all).await).await?);
    for (what, options) in [
        ("read 1, write 1 other", plain.clone()),
        ("read 1, write 1 other, `ReadMode::Lock`", plain.clone().with_read_mode(ReadMode::Lock)),
    ] {
        paths.push(
            count(bank, what, async || {
                let tx = bank.domain.begin(&options)?;
                let read = tx.get_many(&bank.accounts, all.clone()).await?;
                let balance = read.iter().flatten().map(|account| account.balance).sum();
                tx.put(
                    &bank.accounts,
                    all[1].as_str(),
                    &Account { balance, ..Account::default() },
                )?;
                tx.commit().await.map(drop)
            })
            .await?,
        );
    }
    for (what, options) in [
        ("read 2, read-only", plain.clone()),
        ("read 2, read-only, `ReadMode::Lock`", plain.with_read_mode(ReadMode::Lock)),
    ] {
        paths.push(
            count(bank, what, async || {
                let tx = bank.domain.begin(&options)?;
                tx.get_many(&bank.accounts, all.clone()).await?;
                tx.commit().await.map(drop)
            })
            .await?,
        );
    }
    paths.push(
        count(bank, "lock-free read of 2, verified", async || {
            let reader = bank.domain.reader().verified();
            reader.get_many(&bank.accounts, all.clone()).await.map(drop)
        })
        .await?,
    );
    rows(&paths, &mut findings.rows);
    findings.paths = paths;
    Ok(())
}

/// Adds the counted rows of the table.
fn rows(paths: &[Path], rows: &mut Vec<Row>) {
    let trips: [(&str, &str, f64); 5] = [
        ("existing documents", "read and write 2 documents", 3.0),
        ("read from memory", "read from memory and write 2 documents", 2.0),
        ("inserts", "read and insert 2 documents", 3.0),
        ("blind inserts", "insert 2 documents", 2.0),
        ("read-only", "read 2, read-only", 2.0),
    ];
    for (name, path, most) in trips {
        let what = format!("sequential round trips from first read to acknowledgement: {name}");
        rows.push(counted(paths, path, what, most, |path| path.to_acknowledge));
    }
    for (n, most) in [(1, 1), (2, 6), (5, 12), (20, 42)] {
        let path = format!("read and write {n} document{}", if n == 1 { "" } else { "s" });
        let what = format!("document writes of one transaction of {n}, alone");
        rows.push(counted(paths, &path, what, f64::from(most), |path| path.writes));
    }
}

fn counted(paths: &[Path], path: &str, what: String, most: f64, of: fn(&Path) -> u64) -> Row {
    match paths.iter().find(|found| found.what == path) {
        Some(found) => Row::found(what, Aim::AtMost(most), of(found) as f64, "counted"),
        None => Row::missing(what, Aim::AtMost(most), "this path was not run"),
    }
}

async fn count(
    bank: &Bank,
    what: &str,
    run: impl AsyncFn() -> Result<(), Error>,
) -> Result<Path, Failure> {
    let _ = bank.counts_at_commit();
    let before = bank.counts();
    run().await?;
    let returned = bank.counts();
    // A transaction without a commit is acknowledged when it returns.
    let acknowledged = bank.counts_at_commit().unwrap_or(returned).since(before);
    let mut last = returned.since(before);
    // The apply continues after the acknowledgement: wait until the store gets no more requests.
    loop {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let now = bank.counts().since(before);
        if now == last {
            break;
        }
        last = now;
    }
    Ok(Path {
        what: what.to_owned(),
        to_acknowledge: acknowledged.requests(),
        in_all: last.requests(),
        writes: last.documents_written,
    })
}
