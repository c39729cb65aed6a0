//! Encoding and decoding: contents, documents with reserved fields, and records.

use std::fmt::Debug;
use std::str::FromStr;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use txn_core::{json::Image, record::Op, record::State};
use txn_protocol::document::Stored;
use txn_protocol::record::{Participant, Record};

/// Returns an id for each number.
fn id<Id: FromStr<Err: Debug>>(number: usize) -> Id {
    format!("{number:08x}-1dd2-11b2-8001-0123456789ab").parse().expect("an id")
}

fn image(bytes: usize) -> Image {
    let text = serde_json::json!({ "balance": 1_000, "text": "x".repeat(bytes) }).to_string();
    Image::parse(&text).expect("valid")
}

fn images(criterion: &mut Criterion) {
    let mut benchmarks = criterion.benchmark_group("content");
    for bytes in [200, 20_000] {
        let one = image(bytes).as_str().to_owned();
        let fields: serde_json::Map<_, _> =
            (0..bytes / 20).map(|at| (format!("field{at:05}"), at.into())).collect();
        let many = serde_json::Value::Object(fields).to_string();
        for (name, text) in [("one field", one), ("many fields", many)] {
            benchmarks.throughput(Throughput::Bytes(text.len() as u64));
            let parse = BenchmarkId::new(format!("parse, {name}"), bytes);
            benchmarks.bench_with_input(parse, &text, |b, text| {
                b.iter(|| Image::parse(text).expect("valid"));
            });
        }
    }
    benchmarks.finish();
}

/// Locked documents with the recent commits of two documents.
///
/// The first document is quiet, and the second one is hot.
fn documents(criterion: &mut Criterion) {
    let mut benchmarks = criterion.benchmark_group("document");
    for commits in [1, 64] {
        let stored = Stored {
            lock: Some(id(commits + 1)),
            commit_version: Some(id(commits)),
            recent: (1..=commits).map(id).collect(),
            absent: false,
            image: image(200),
        };
        let source = stored.encode();
        benchmarks.throughput(Throughput::Bytes(source.len() as u64));
        benchmarks.bench_with_input(BenchmarkId::new("encode", commits), &stored, |b, stored| {
            b.iter(|| stored.encode());
        });
        benchmarks.bench_with_input(BenchmarkId::new("parse", commits), &source, |b, source| {
            b.iter(|| Stored::parse(source).expect("a document"));
        });
    }
    benchmarks.finish();
}

/// Records, by the number of documents that they name.
fn records(criterion: &mut Criterion) {
    let mut benchmarks = criterion.benchmark_group("record");
    for documents in [2, 20, 100] {
        let participant = |at: usize| Participant {
            collection: "bank-accounts".into(),
            id: format!("account-{at:05}").into(),
            routing: None,
            op: Op::Write,
            expected: None,
            placeholder: None,
            before: Some(id(at)),
        };
        let record = Record {
            state: State::Committed,
            tid: id(documents),
            aborted: None,
            commit_version: Some(id(documents + 1)),
            participants: (0..documents).map(participant).collect(),
            images: vec![Some(image(200)); documents],
            metadata: None,
            coordinator: "a coordinator".to_owned(),
            application: None,
            label: None,
            created_at: 1_800_000_000_000,
            heartbeat_at: None,
            modified_at: 1_800_000_000_000,
        };
        let source = record.encode().expect("a record");
        benchmarks.throughput(Throughput::Bytes(source.len() as u64));
        benchmarks.bench_with_input(BenchmarkId::new("encode", documents), &record, |b, record| {
            b.iter(|| record.encode().expect("a record"));
        });
        benchmarks.bench_with_input(BenchmarkId::new("parse", documents), &source, |b, source| {
            b.iter(|| Record::parse(source).expect("a record"));
        });
    }
    benchmarks.finish();
}

criterion_group!(benches, images, documents, records);
criterion_main!(benches);
