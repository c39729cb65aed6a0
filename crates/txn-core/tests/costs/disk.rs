//! The size of the record that a transaction leaves until its day is dropped.

use txn_core::record::State;

use crate::support::{Item, Plain, World, record_key};

/// The maximum number of bytes of a record as JSON without documents. Found: 257.
const FIXED: usize = 300;
/// The maximum number of bytes of a record for each small document. Found: 151.
const EACH: usize = 175;

async fn record_of(world: &World, ids: &[&str]) -> String {
    let receipt = world.put(&world.items, ids, &Item { n: 2 }).await.expect("commits");
    world.drained().await;
    let tid = receipt.tid.expect("a record");
    assert!(world.memory.is_in_state(tid, State::Finished).await, "not finished");
    world.memory.text(&record_key(tid)).await
}

#[tokio::test(start_paused = true)]
async fn record_of_n_documents_has_bounded_size() {
    let ids = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
    let world = World::of(&ids).await;
    for n in [2, 10] {
        let record = record_of(&world, &ids[..n]).await;
        println!("{n} documents: {} bytes", record.len());
        assert!(record.len() < FIXED + n * EACH, "{n} documents: {} bytes", record.len());
    }
}
