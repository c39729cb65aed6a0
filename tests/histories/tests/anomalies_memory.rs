//! The named anomalies on the store in memory.

use std::sync::Arc;

use txn_core::store::MemoryStore;
use txn_histories::fixture::{Fixture, Processes};
use txn_histories::{in_one_process_and_in_two, schedules};

schedules!(in_one_process_and_in_two);

async fn fixture(processes: Processes) -> Fixture {
    Fixture::open(Arc::new(MemoryStore::new()), "anomalies", "items", processes).await
}

macro_rules! names {
    ($($family:ident::$name:ident;)*) => { [$((stringify!($family), stringify!($name))),*] };
}

#[test]
fn isolation_page_names_every_schedule() {
    let promises = include_str!("../../../docs/isolation.md");
    for (family, name) in schedules!(names) {
        let (whole, short) = (format!("`{family}::{name}`"), format!("`{name}`"));
        let named = promises.contains(&whole) || promises.contains(&short);
        assert!(named, "docs/isolation.md does not name {family}::{name}");
    }
    for word in promises.split('`') {
        let Some((family, name)) = word.split_once("::") else { continue };
        let families = ["writes", "reads", "skews", "lifetimes", "locks"];
        let known = schedules!(names).contains(&(family, name));
        assert!(
            !families.contains(&family) || known,
            "docs/isolation.md names {word}, which is not there"
        );
    }
}
