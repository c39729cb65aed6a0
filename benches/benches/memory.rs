//! The engine on a store in memory, where a request costs nothing.
//!
//! Transfers by one client and by 64 clients: with own requests, with shared requests, and merged
//! into groups.

use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use futures::future::join_all;
use txn_benches::accounts::{Bank, ids};
use txn_core::store::MemoryStore;
use txn_core::{Config, Options};

fn transfers(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let mut benchmarks = criterion.benchmark_group("memory");
    let options = Options::default();
    for (name, shared, groups) in
        [("own requests", false, false), ("shared requests", true, false), ("groups", true, true)]
    {
        let config =
            Config::default().with_group_commit(Some(groups)).with_request_batching(Some(shared));
        let opened = Bank::on(Arc::new(MemoryStore::new()), "memory", config);
        let bank = runtime.block_on(opened).expect("a domain");
        let all = ids(1_000);
        for part in all.chunks(500) {
            runtime.block_on(bank.put(part)).expect("accounts");
        }
        for n in [1, 2, 5, 10, 20, 100] {
            benchmarks.throughput(Throughput::Elements(1));
            benchmarks.bench_with_input(BenchmarkId::new(name, n), &all[..n], |b, ids| {
                b.to_async(&runtime)
                    .iter(|| async { bank.transact(ids, &options).await.expect("committed") });
            });
        }
        benchmarks.throughput(Throughput::Elements(64));
        for (load, accounts) in [("64 clients, 10 accounts", 10), ("64 clients, 128 accounts", 128)]
        {
            benchmarks.bench_function(BenchmarkId::new(name, load), |b| {
                b.to_async(&runtime).iter(|| async {
                    // Two accounts for each client.
                    let at = |client: usize| client * 2 % accounts;
                    let transfers =
                        (0..64).map(|client| bank.transact(&all[at(client)..][..2], &options));
                    for committed in join_all(transfers).await {
                        committed.expect("committed");
                    }
                });
            });
        }
        runtime.block_on(bank.leave());
    }
    benchmarks.finish();
}

criterion_group!(benches, transfers);
criterion_main!(benches);
