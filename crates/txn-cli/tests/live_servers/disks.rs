//! Disks that count as too full.
//!
//! Watermarks hold for all indices of a server, so each test has a server of its own. The servers
//! look at their disks every ten seconds, so a test takes two minutes. The nightly run has them:
//! `cargo test -p txn-cli --features live --test live_servers disks:: -- --ignored`.

use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};
use txn_testkit::servers::{ServerKind, up_private};

use super::desk::{ServerDesk, wait_until};
use super::faults::message;
use super::ran::codes;

/// One server at a time, because two concurrent starts are slow.
static ONE: Mutex<()> = Mutex::new(());

/// Free space that each disk has.
const LITTLE: &str = "1b";

/// Free space that no disk has.
const TOO_MUCH: &str = "1pb";

/// Sets the free space that the servers ask for.
fn set_watermarks(desk: &ServerDesk, [low, high, flood_stage]: [Option<&str>; 3]) {
    let disk = "cluster.routing.allocation.disk";
    let watermark = format!("{disk}.watermark");
    let settings = json!({
        // The servers of tests ignore their disks otherwise.
        format!("{disk}.threshold_enabled"): true,
        // The servers look at their disks in this interval.
        "cluster.info.update.interval": "10s",
        format!("{watermark}.low"): low,
        format!("{watermark}.high"): high,
        format!("{watermark}.flood_stage"): flood_stage,
    });
    desk.ask("PUT", "/_cluster/settings", json!({ "persistent": settings }));
}

/// Whether a node takes a new index.
fn is_taken(desk: &ServerDesk, name: &str) -> bool {
    let index = format!("{}-{name}", desk.names.domain);
    let settings = json!({ "settings": { "index.number_of_replicas": 0 } });
    desk.ask("PUT", &format!("/{index}?wait_for_active_shards=0"), settings);
    let health = format!("/_cluster/health/{index}?wait_for_status=green&timeout=3s");
    let (_, text) = desk.wait(desk.plain.text("GET", &health, None));
    desk.ask("DELETE", &format!("/{index}"), Value::Null);
    text.contains("\"status\":\"green\"")
}

/// Raises the watermarks above the free space, one after the other.
fn full_disk_is_found(kind: ServerKind) {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let server = up_private(kind).expect("starts");
    let desk = ServerDesk::new(server.url());
    // OpenSearch ignores the first two watermarks on a single data node.
    let ignores = kind == ServerKind::OpenSearch;
    let disks = "disks of the nodes";
    set_watermarks(&desk, [Some(LITTLE); 3]);
    let doctor = desk.run("--json doctor").json(0);
    assert_eq!(codes(&doctor), [""; 0]);

    set_watermarks(&desk, [Some(TOO_MUCH), Some(LITTLE), Some(LITTLE)]);
    desk.run("doctor").says(0, &[&format!("ok  {disks}")]);
    let doctor = desk.run("--json doctor").json(0);
    assert_eq!(codes(&doctor).contains(&"disk_low"), !ignores, "{doctor}");
    assert!(is_taken(&desk, "low"), "a new partition has its primary shard");

    set_watermarks(&desk, [Some(TOO_MUCH), Some(TOO_MUCH), Some(LITTLE)]);
    let doctor = desk.run("--json doctor").json(i32::from(!ignores));
    assert_eq!(codes(&doctor).contains(&"disk_high"), !ignores, "{doctor}");
    // The servers know the space of their disks after one interval.
    wait_until("the choice of the server", || is_taken(&desk, "high") == ignores);

    set_watermarks(&desk, [Some(TOO_MUCH); 3]);
    let line = format!("BAD {disks}: NOT WELL [disk_full]: the disk of the node ");
    desk.run("doctor").says(1, &[&line, "Do: delete data, or add disk space"]);
    let is_blocked = || codes(&desk.run("--json doctor").json(1)).contains(&"index_blocked");
    wait_until("a block by the server", is_blocked);
    let doctor = desk.run("--json doctor").json(1);
    assert!(codes(&doctor).contains(&"disk_full"), "{doctor}");
    let remedy = message(&doctor, "index_blocked")["remedy"].to_string();
    assert!(remedy.contains("by themselves"), "{doctor}");

    // The default watermarks, below which the disk of a test is. The server lifts the block.
    set_watermarks(&desk, [None; 3]);
    wait_until("a well domain", || desk.run("doctor").code == 0);
    let doctor = desk.run("--json doctor").json(0);
    assert_eq!(codes(&doctor), [""; 0], "{doctor}");
}

#[test]
#[ignore = "two minutes"]
fn full_disk_of_elasticsearch_is_found() {
    full_disk_is_found(ServerKind::Elasticsearch);
}

#[test]
#[ignore = "two minutes"]
fn full_disk_of_opensearch_is_found() {
    full_disk_is_found(ServerKind::OpenSearch);
}
