//! One client, plain requests and transactions in turn, as a ratio of medians; and what each path
//! costs in round trips and document writes.

use std::time::{Duration, Instant};

use txn_benches::{Bench, Failure, ids, unique};
use txn_core::Options;

const ROUNDS: usize = 300;

/// Between two measurements.
const BETWEEN: Duration = Duration::from_millis(25);

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let bench = Bench::open(&txn_testkit::env::elasticsearch_url(), &unique("side"), 40).await?;
    latencies(&bench).await?;
    bench.settle().await?;
    costs(&bench).await?;
    bench.close().await
}

async fn latencies(bench: &Bench) -> Result<(), Failure> {
    println!(
        "one client, {ROUNDS} rounds each, in turn; transactions on other documents each time"
    );
    println!("{:>9} {:>12} {:>15} {:>7}", "documents", "plain", "transaction", "ratio");
    for n in [2, 5, 20] {
        let all = ids(40);
        let (mut plain, mut transaction) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            let half = &all[(round % 2) * 20..][..n];
            // The apply of the last round went on behind its acknowledgement: let it end.
            tokio::time::sleep(BETWEEN).await;
            let start = Instant::now();
            bench
                .plain_transfer(&ids(n).iter().map(|id| format!("plain-{id}")).collect::<Vec<_>>())
                .await?;
            plain.push(start.elapsed());
            let start = Instant::now();
            bench.transfer(half, &Options::default()).await?;
            transaction.push(start.elapsed());
        }
        let (plain, transaction) = (median(plain), median(transaction));
        let ratio = transaction.as_secs_f64() / plain.as_secs_f64();
        println!("{n:>9} {plain:>12.2?} {transaction:>15.2?} {ratio:>7.2}");
    }
    Ok(())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

async fn costs(bench: &Bench) -> Result<(), Failure> {
    println!();
    println!(
        "{:<44} {:>16} {:>15} {:>13}",
        "path (uncontended)", "round trips", "round trips", "document"
    );
    println!("{:<44} {:>16} {:>15} {:>13}", "", "to acknowledge", "in all", "writes");
    let plain = Options::default();
    let pessimistic = plain.clone().with_pessimistic(true);
    for (what, n, options) in [
        ("read and write 1 document", 1, &plain),
        ("read and write 2 documents", 2, &plain),
        ("read and write 5 documents", 5, &plain),
        ("read and write 20 documents", 20, &plain),
        ("read and write 2 documents, pessimistic", 2, &pessimistic),
    ] {
        let ids = ids(n);
        measure(bench, what, async |bench| Ok(bench.transfer(&ids, options).await?)).await?;
    }
    let fresh = |what: &str| [format!("{what}-1"), format!("{what}-2")];
    measure(bench, "insert 2 documents", async |bench| {
        let tx = bench.domain.begin(&Options::default())?;
        for id in fresh("new") {
            tx.insert(&bench.accounts, id, &txn_benches::Account { balance: 0 })?;
        }
        tx.commit().await?;
        Ok(())
    })
    .await?;
    measure(bench, "delete 2 documents", async |bench| {
        let tx = bench.domain.begin(&Options::default())?;
        for id in fresh("new") {
            tx.delete(&bench.accounts, id)?;
        }
        tx.commit().await?;
        Ok(())
    })
    .await?;
    measure(bench, "write 2 documents unread", async |bench| {
        Ok(bench.put(&ids(2), &Options::default()).await?)
    })
    .await?;
    for (what, options) in [
        ("read 1, write 1 other", plain.clone()),
        ("read 1, write 1 other, lock_reads", plain.clone().with_lock_reads(true)),
    ] {
        measure(bench, what, async |bench| {
            let tx = bench.domain.begin(&options)?;
            let [a, b] = [&ids(2)[0], &ids(2)[1]].map(String::clone);
            let read = tx.get_many(&bench.accounts, [a, b.clone()]).await?;
            let balance = read.iter().flatten().map(|account| account.balance).sum();
            tx.put(&bench.accounts, b, &txn_benches::Account { balance })?;
            tx.commit().await?;
            Ok(())
        })
        .await?;
    }
    for (what, options) in [
        ("read 2 (read-only)", plain.clone()),
        ("read 2 (read-only), lock_reads", plain.clone().with_lock_reads(true)),
    ] {
        measure(bench, what, async |bench| {
            let tx = bench.domain.begin(&options)?;
            tx.get_many(&bench.accounts, ids(2)).await?;
            tx.commit().await?;
            Ok(())
        })
        .await?;
    }
    measure(bench, "lock-free read of 2, verified", async |bench| {
        bench.domain.reader().verified().get_many(&bench.accounts, ids(2)).await?;
        Ok(())
    })
    .await
}

async fn measure(
    bench: &Bench,
    what: &str,
    run: impl AsyncFn(&Bench) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let _ = bench.counts_at_commit();
    let before = bench.counts();
    run(bench).await?;
    let returned = bench.counts();
    // What commits nothing is acknowledged when it returns.
    let acknowledged = bench.counts_at_commit().unwrap_or(returned).since(before);
    let mut last = returned.since(before);
    // The apply goes on behind the acknowledgement: wait until nothing more is asked of the store.
    loop {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let now = bench.counts().since(before);
        if now == last {
            break;
        }
        last = now;
    }
    let (trips, all, writes) = (acknowledged.requests(), last.requests(), last.documents_written);
    println!("{what:<44} {trips:>16} {all:>15} {writes:>13}");
    Ok(())
}
