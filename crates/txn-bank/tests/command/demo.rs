//! The demo, as a new user runs it.

use super::{Desk, Ran};

fn check(ran: &Ran) {
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert_eq!(ran.err, "", "programs are not told what goes on");
    let report = &ran.json()[0];
    let kills = report["kills"].as_array().expect("a list");
    assert!(!kills.is_empty());
    let left: Vec<_> = kills.iter().flat_map(|k| k["left"].as_array().expect("a list")).collect();
    assert!(!left.is_empty(), "a worker was killed with locks");
    for left in left {
        let fate = left["fate"].as_str();
        match left["record"].as_str() {
            Some("aborted") => assert_ne!(fate, Some("rolled_forward"), "{left}"),
            Some("committed") => assert!(!matches!(fate, Some("voided" | "wounded")), "{left}"),
            other => panic!("{other:?}: {left}"),
        }
        if !left["committed"].is_null() {
            assert_eq!(left["record"], "committed", "an acknowledged commit stands: {left}");
        }
    }
    assert_eq!(report["failed"], 0, "{report}");
    assert_eq!(report["audit"]["findings"], serde_json::json!([]));
    let total = &report["audit"]["totals"][0];
    assert_eq!((&total["found"], &total["expected"]), (&320_000.into(), &320_000.into()));
}

#[test]
fn demo_runs_on_a_temporary_file() {
    let desk = Desk::new();
    check(&desk.run("--json demo"));
    assert!(!desk.file().exists());
}

#[test]
fn demo_runs_on_a_given_file() {
    let desk = Desk::new();
    let ran = desk.run("--store redb:kept.redb --domain kept demo");
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert!(ran.out.lines().count() <= 50, "{}", ran.out);
    let said: Vec<&str> = ran.err.lines().collect();
    let is_killed = |line: &&str| line.contains("is killed");
    assert!(said.len() >= 5 && said.iter().any(is_killed), "told as it runs: {}", ran.err);
    assert!(ran.out.contains("kill -9") && ran.out.contains("Audit: 32 accounts"), "{}", ran.out);
    desk.run("--store redb:kept.redb --domain kept audit --no-recover").done();
}

#[test]
fn demo_runs_in_memory() {
    check(&Desk::new().run("--json --store memory: demo"));
}
