//! One client: latency beside plain requests, and what each path costs in round trips and document writes.

use std::time::{Duration, Instant};

use txn_core::{Error, Options};

use super::findings::{Findings, Path, Size};
use super::scale::Scale;
use super::table::{Aim, Row};
use crate::Failure;
use crate::accounts::{Account, Bank};
use crate::statistics::median;
use crate::world::{Way, World};

/// Between two measurements: the apply of the one before goes on behind its acknowledgement.
const BETWEEN: Duration = Duration::from_millis(25);

/// Latencies of one client, plain and as transactions in turn, by the number of documents.
pub(super) async fn latencies(
    world: &World,
    scale: &Scale,
    findings: &mut Findings,
) -> Result<(), Failure> {
    let most = scale.sizes.iter().max().copied().unwrap_or_default();
    for way in [Way::Plain, Way::Groups, Way::Parallel] {
        world.prepare(way, scale.accounts.max(2 * most)).await?;
    }
    for &documents in &scale.sizes {
        let aim = match documents {
            2 => Some(1.4),
            20 => Some(1.6),
            _ => None,
        };
        // The others only draw a line.
        let samples = if aim.is_some() { scale.samples } else { scale.samples.div_ceil(4) };
        let size = size(world, (scale.accounts, samples), documents).await?;
        findings.sizes.push(size);
        let detail = |of| format!("{of:.2} ms to {:.2} ms, {samples} times", size.plain);
        let [parallel, parallel_from_memory] = size.parallel;
        if let Some(aim) = aim {
            for (how, of) in [("", size.transaction), (", parallel commit", parallel)] {
                findings.rows.push(Row::found(
                    format!("1 client, {documents} existing documents{how}: latency / plain"),
                    Aim::AtMost(aim),
                    of / size.plain,
                    detail(of),
                ));
            }
        }
        if documents == 2 {
            for (what, aim, of) in [
                ("2 documents that this process wrote last", 1.0, size.from_memory),
                ("the same, parallel commit", 1.0, parallel_from_memory),
            ] {
                findings.rows.push(Row::found(
                    format!("1 client, {what}: latency / plain"),
                    Aim::AtMost(aim),
                    of / size.plain,
                    detail(of),
                ));
            }
        }
    }
    let [plain, transaction, parallel] = back_to_back(world, scale.samples).await?;
    for (how, of) in [("", transaction), (", parallel commit", parallel)] {
        findings.rows.push(Row::found(
            format!("1 client, back to back on the same 2 documents{how}: latency / plain"),
            Aim::AtMost(1.6),
            of / plain,
            format!("{of:.2} ms to {plain:.2} ms"),
        ));
    }
    for way in [Way::Plain, Way::Groups, Way::Parallel] {
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
    let (mut parallel_fresh, mut parallel_known) = (Vec::new(), Vec::new());
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
        world.acknowledged(Way::Plain, documents, 1);
        let ([cold, warm], written) = both(world, Way::Groups, &ids(Way::Groups)).await?;
        fresh.push(cold);
        known.push(warm);
        writes = written;
        let ([cold, warm], _) = both(world, Way::Parallel, &ids(Way::Parallel)).await?;
        parallel_fresh.push(cold);
        parallel_known.push(warm);
    }
    let [plain, transaction, from_memory] = [plain, fresh, known].map(median);
    let parallel = [parallel_fresh, parallel_known].map(median);
    Ok(Size { documents, plain, transaction, from_memory, parallel, writes })
}

/// A transfer of documents that are read from the server, and one of what this process wrote last: ms until each was acknowledged, and
/// the document writes of the first, counted.
async fn both(world: &World, way: Way, of: &[String]) -> Result<([f64; 2], u64), Failure> {
    let bank = match way {
        Way::Parallel => world.parallel(),
        _ => world.bank(),
    };
    let options = Options::default();
    tokio::time::sleep(BETWEEN).await;
    let before = bank.counts().documents_written;
    let began = Instant::now();
    bank.transfer(of, &options).await?;
    let fresh = millis(began);
    world.acknowledged(way, of.len(), 1);
    tokio::time::sleep(BETWEEN).await;
    let written = bank.counts().documents_written - before;
    let began = Instant::now();
    bank.transact(of, &options).await?;
    let known = millis(began);
    world.acknowledged(way, of.len(), 1);
    Ok(([fresh, known], written))
}

/// The medians of plain requests, of transactions and of those that commit in parallel, each on the heels of the one before, in blocks
/// of ten in turn.
async fn back_to_back(world: &World, samples: usize) -> Result<[f64; 3], Failure> {
    const BLOCK: usize = 10;
    let ids = |way| [World::id(way, 0), World::id(way, 1)];
    let mut plain = Vec::new();
    let mut transactions = [Vec::new(), Vec::new()];
    for _ in 0..samples.div_ceil(BLOCK) {
        for _ in 0..BLOCK {
            let began = Instant::now();
            world.plain().transfer(&ids(Way::Plain)).await?;
            plain.push(millis(began));
        }
        world.acknowledged(Way::Plain, 2, BLOCK);
        let ways = [(Way::Groups, world.bank()), (Way::Parallel, world.parallel())];
        for ((way, bank), times) in ways.into_iter().zip(&mut transactions) {
            for _ in 0..BLOCK {
                let began = Instant::now();
                bank.transact(&ids(way), &Options::default()).await?;
                times.push(millis(began));
            }
            world.acknowledged(way, 2, BLOCK);
            bank.settle().await?;
        }
    }
    let [transaction, parallel] = transactions.map(median);
    Ok([median(plain), transaction, parallel])
}

fn millis(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

/// What each path costs, counted.
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
        ("read and write 2 documents, pessimistic", 2, plain.clone().with_pessimistic(true)),
    ] {
        paths.push(count(bank, what, async || bank.transfer(&twenty[..n], &options).await).await?);
    }
    let what = "read from memory and write 2 documents";
    let recalled = async || bank.transact(&twenty[..2], &plain).await.map(drop);
    paths.push(count(bank, what, recalled).await?);
    let parallel = world.parallel();
    let what = "read and write 2 documents, parallel commit";
    let staged = async || parallel.transfer(&twenty[2..4], &plain).await;
    paths.push(count(parallel, what, staged).await?);
    let what = "read from memory and write 2 documents, parallel commit";
    let recalled = async || parallel.transact(&twenty[2..4], &plain).await.map(drop);
    paths.push(count(parallel, what, recalled).await?);
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
        ("read 1, write 1 other, `lock_reads`", plain.clone().with_lock_reads(true)),
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
        ("read 2, read-only, `lock_reads`", plain.with_lock_reads(true)),
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

/// The counted rows of the table.
fn rows(paths: &[Path], rows: &mut Vec<Row>) {
    let trips: [(&str, &str, f64); 7] = [
        ("existing documents", "read and write 2 documents", 3.0),
        ("the same, parallel commit", "read and write 2 documents, parallel commit", 2.0),
        ("read from memory", "read from memory and write 2 documents", 2.0),
        (
            "read from memory, parallel commit",
            "read from memory and write 2 documents, parallel commit",
            1.0,
        ),
        ("inserts", "read and insert 2 documents", 3.0),
        ("blind inserts", "insert 2 documents", 2.0),
        ("read-only", "read 2, read-only", 2.0),
    ];
    for (name, path, most) in trips {
        let what = format!("sequential round trips from first read to acknowledgement: {name}");
        rows.push(counted(paths, path, what, most, |path| path.to_acknowledge));
    }
    let path = "read and write 2 documents, parallel commit";
    let what = "document writes of one transaction of 2, alone, parallel commit".to_owned();
    rows.push(counted(paths, path, what, 7.0, |path| path.writes));
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
    // What commits nothing is acknowledged when it returns.
    let acknowledged = bank.counts_at_commit().unwrap_or(returned).since(before);
    let mut last = returned.since(before);
    // The apply goes on behind the acknowledgement: wait until nothing more is asked of the store.
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
