//! Transfers of 2, 5 and 20 documents by one client on a real node, as transactions and as plain
//! `_mget` + `_bulk`.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use txn_benches::{Bench, ids, unique};
use txn_core::Options;

fn transfers(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let url = txn_testkit::env::elasticsearch_url();
    let bench = runtime.block_on(Bench::open(&url, &unique("bench"), 20)).expect("a server");
    let mut group = criterion.benchmark_group("transfer");
    group.sample_size(50);
    for n in [2, 5, 20] {
        let ids = ids(n);
        group.bench_with_input(BenchmarkId::new("plain", n), &ids, |b, ids| {
            b.to_async(&runtime)
                .iter(|| async { bench.plain_transfer(ids).await.expect("written") });
        });
        runtime.block_on(bench.settle()).expect("settled");
        group.bench_with_input(BenchmarkId::new("transaction", n), &ids, |b, ids| {
            let options = Options::default();
            b.to_async(&runtime)
                .iter(|| async { bench.transfer(ids, &options).await.expect("committed") });
        });
        runtime.block_on(bench.settle()).expect("settled");
    }
    group.finish();
    runtime.block_on(bench.close()).expect("closed");
}

criterion_group!(benches, transfers);
criterion_main!(benches);
