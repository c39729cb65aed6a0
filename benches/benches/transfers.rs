//! Transfers by one client on a real node.
//!
//! Transfers have 2, 5 and 20 documents, as transactions and as plain `_mget` + `_bulk`.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use txn_benches::world::{Way, World};
use txn_core::Options;

fn transfers(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let url = txn_testkit::env::elasticsearch_url();
    let world = runtime.block_on(World::open(&url)).expect("a server");
    for way in [Way::Plain, Way::Groups] {
        runtime.block_on(world.prepare(way, 20)).expect("accounts");
    }
    let mut group = criterion.benchmark_group("transfer");
    group.sample_size(50);
    let options = Options::default();
    for n in [2, 5, 20] {
        for (name, way) in [("plain", Way::Plain), ("transaction", Way::Groups)] {
            let ids: Vec<String> = (0..n).map(|at| World::id(way, at)).collect();
            group.bench_with_input(BenchmarkId::new(name, n), &ids, |b, ids| {
                b.to_async(&runtime).iter(|| async {
                    world.transfer(way, 0, ids, &options).await.expect("committed")
                });
            });
            runtime.block_on(world.bank().settle()).expect("settled");
        }
    }
    group.finish();
    runtime.block_on(world.close()).expect("closed");
}

criterion_group!(benches, transfers);
criterion_main!(benches);
