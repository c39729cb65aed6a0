//! The engine where a request costs nothing: transfers by one client and by 64 on a store in memory, with and without groups; and
//! documents that are parsed.

use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use futures::future::join_all;
use txn_benches::accounts::{Bank, ids};
use txn_core::store::MemoryStore;
use txn_core::{Config, Image, Options};

fn transfers(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let mut benchmarks = criterion.benchmark_group("memory");
    let options = Options::default();
    for groups in [false, true] {
        let config = Config::default().with_groups(Some(groups)).with_shared_requests(Some(groups));
        let opened = Bank::on(Arc::new(MemoryStore::new()), "memory", config);
        let bank = runtime.block_on(opened).expect("a domain");
        let all = ids(1_000);
        for part in all.chunks(500) {
            runtime.block_on(bank.put(part)).expect("accounts");
        }
        let name = if groups { "groups" } else { "alone" };
        for n in [1, 2, 5, 10, 20, 100] {
            benchmarks.throughput(Throughput::Elements(1));
            benchmarks.bench_with_input(BenchmarkId::new(name, n), &all[..n], |b, ids| {
                b.to_async(&runtime)
                    .iter(|| async { bank.transact(ids, &options).await.expect("committed") });
            });
        }
        // Of ten accounts, two for each client.
        benchmarks.throughput(Throughput::Elements(64));
        benchmarks.bench_function(BenchmarkId::new(name, "64 clients, 10 accounts"), |b| {
            b.to_async(&runtime).iter(|| async {
                let at = |client: usize| client % 5 * 2;
                let transfers =
                    (0..64).map(|client| bank.transact(&all[at(client)..][..2], &options));
                for committed in join_all(transfers).await {
                    committed.expect("committed");
                }
            });
        });
        runtime.block_on(bank.leave());
    }
    benchmarks.finish();
}

fn images(criterion: &mut Criterion) {
    let mut benchmarks = criterion.benchmark_group("parse");
    for bytes in [200, 20_000] {
        let text = serde_json::json!({ "balance": 1_000, "text": "x".repeat(bytes) }).to_string();
        benchmarks.throughput(Throughput::Bytes(text.len() as u64));
        benchmarks.bench_with_input(BenchmarkId::new("one field", bytes), &text, |b, text| {
            b.iter(|| Image::parse(text.as_str()).expect("valid"));
        });
        let fields: serde_json::Map<_, _> =
            (0..bytes / 20).map(|at| (format!("field{at:05}"), at.into())).collect();
        let text = serde_json::Value::Object(fields).to_string();
        benchmarks.throughput(Throughput::Bytes(text.len() as u64));
        benchmarks.bench_with_input(BenchmarkId::new("many fields", bytes), &text, |b, text| {
            b.iter(|| Image::parse(text.as_str()).expect("valid"));
        });
    }
    benchmarks.finish();
}

criterion_group!(benches, transfers, images);
criterion_main!(benches);
