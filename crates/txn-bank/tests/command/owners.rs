//! Owners that one run of the command derives for another run.

use std::sync::Arc;

use txn_core::{Config, Domain, Error, Raw};
use txn_redb::RedbStore;

use super::Desk;

fn desk() -> Desk {
    let desk = Desk::new();
    desk.run("init --owners").done();
    desk.run("open alice --owner Ann --balance 100").done();
    desk.run("open savings --owner Ann --balance 50").done();
    desk.run("open bob --owner Ben").done();
    desk
}

/// Writes a document without the bank.
fn write(desk: &Desk, collection: &str, id: &str, text: &str) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("starts");
    let file = RedbStore::open(desk.file()).expect("opens");
    runtime.block_on(async {
        let domain =
            Domain::open(Arc::new(file.clone()), "bank", Config::default()).await.expect("opens");
        let raw = domain.collection::<Raw>(collection).await.expect("opens");
        let text = Raw::new(text);
        domain.transact::<_, Error, _>(async |tx| tx.put(&raw, id, &text)).await.expect("written");
        domain.shutdown(std::time::Duration::from_secs(60)).await;
    });
    file.close();
}

#[test]
fn owners_are_derived_from_changed_accounts() {
    let desk = desk();
    desk.run("transfer alice:-30 bob:+30").done();
    desk.run("owner Ann").refused(1, "nothing was derived yet");
    let waiting = desk.run("--json events").done().json().remove(0);
    assert_eq!((&waiting["events"], &waiting["queues"]), (&5.into(), &2.into()), "{waiting}");
    assert!(desk.run("derive").done().out.starts_with("5 handled, 0 failed, 0 set aside"));
    assert_eq!(desk.run("owner Ann").done().out, "Ann: 120 EUR in alice, savings\n");
    assert!(desk.run("events").done().out.starts_with("0 events of 0 keys wait"));
    desk.run("submit bob:-5 savings:+5 --id tip").done();
    desk.run("process").done();
    desk.run("derive --seconds 1").done();
    let owner = desk.run("--json owner Ann").done().json().remove(0);
    assert_eq!(owner["totals"][0]["total"], 125);
    desk.run("audit").done();
}

#[test]
fn owners_may_have_the_maximum_length() {
    let desk = Desk::new();
    desk.run("init --owners").done();
    let long = "\u{1f98a}".repeat(200);
    desk.run(&format!("open fox --owner {long} --balance 100")).done();
    desk.run("open bob --owner Ben").done();
    desk.run("transfer fox:-30 bob:+30").done();
    desk.run("derive").done();
    assert_eq!(desk.run(&format!("owner {long}")).done().out, format!("{long}: 70 EUR in fox\n"));
    for _ in 0..2 {
        let rebuilt = desk.run("rebuild-owners").done();
        assert!(rebuilt.out.starts_with("2 owners written, 0 deleted"), "{}", rebuilt.out);
    }
    assert_eq!(desk.run(&format!("owner {long}")).done().out, format!("{long}: 70 EUR in fox\n"));
    // Long names with a common prefix are different owners.
    let other = format!("{}z", "\u{1f98a}".repeat(199));
    desk.run(&format!("owner {other}")).refused(1, "nothing was derived yet");
}

#[test]
fn owners_are_rebuilt() {
    let desk = Desk::with_accounts();
    desk.run("owner Alice").refused(4, "keeps no owners");
    desk.run("derive").refused(4, "txn-bank init --owners");
    desk.run("init --owners").done();
    assert!(desk.run("rebuild-owners").done().out.starts_with("3 owners written, 0 deleted"));
    assert_eq!(desk.run("owner Alice").done().out, "Alice: 100 EUR in alice\n");
    desk.run("transfer alice:-30 bob:+30").done();
    desk.run("derive").done();
    assert_eq!(desk.run("owner Bob").done().out, "Bob: 30 EUR in bob\n");
}

#[test]
fn failed_owners_are_listed_retried_and_dropped() {
    let desk = desk();
    desk.run("derive").done();
    // An account with an overflowing total.
    let much = i64::MAX;
    let account = |balance| {
        format!(
            r#"{{"owner":"Ann","balance":{balance},"currency":"EUR","overdraft":false,"opened_at":1}}"#
        )
    };
    write(&desk, "bank-accounts", "savings", &account(much));
    assert_eq!(desk.run("dead-letters").done().out, "");
    desk.run("transfer alice:-1 bob:+1").done();
    desk.run("transfer alice:-1 bob:+1").done();
    let derived = desk.run("derive").done();
    assert!(derived.out.starts_with("2 handled, "), "{}", derived.out);
    let listed = desk.run("dead-letters");
    assert_eq!((listed.code, listed.out.lines().count()), (3, 2), "{}", listed.out);
    assert!(
        listed.out.contains("the total of the owner \"Ann\" in EUR does not fit"),
        "{}",
        listed.out
    );
    let id = desk.run("--json dead-letters").json()[0]["id"].as_str().expect("an id").to_owned();
    assert_eq!(id, "owners/3/Ann");
    for dry in ["retry --all --dry-run", "drop --all --dry-run"] {
        let dry = desk.run(&format!("dead-letters {dry}")).done();
        assert_eq!(dry.out.lines().filter(|line| line.starts_with("would be ")).count(), 2);
    }
    assert_eq!(desk.run("dead-letters").out.lines().count(), 2, "nothing was changed");
    assert!(
        desk.run(&format!("dead-letters drop {id}"))
            .done()
            .out
            .starts_with("dropped: owners/3/Ann")
    );
    desk.run(&format!("dead-letters drop {id}")).refused(1, "no dead letter");
    assert_eq!(desk.run("dead-letters retry").code, 2);
    write(&desk, "bank-accounts", "savings", &account(50));
    assert!(
        desk.run("dead-letters retry --all")
            .done()
            .out
            .starts_with("to be tried again: owners/4/Ann")
    );
    assert!(desk.run("derive").done().out.starts_with("1 handled, 0 failed"));
    assert_eq!(desk.run("owner Ann").done().out, "Ann: 148 EUR in alice, savings\n");
    assert_eq!(desk.run("dead-letters").done().out, "");
}

/// An unreadable queue does not block the dead letters of other queues.
#[test]
fn dead_letter_stays_if_the_retry_fails() {
    let desk = desk();
    desk.run("open more --owner Ben").done();
    desk.run("derive").done();
    let much = |owner| {
        let of = format!(r#""owner":"{owner}","balance":{}"#, i64::MAX);
        format!(r#"{{{of},"currency":"EUR","overdraft":true,"opened_at":1}}"#)
    };
    write(&desk, "bank-accounts", "savings", &much("Ann"));
    write(&desk, "bank-accounts", "more", &much("Ben"));
    desk.run("transfer alice:-1 bob:+1").done();
    desk.run("derive").done();
    assert_eq!(desk.run("dead-letters").out.lines().count(), 2);
    let newer = r#"{"kind":"queue","format":9,"topic":"owners","key":"Ann"}"#;
    write(&desk, "bank-outbox", "queue:owners/Ann", newer);
    let retried = desk.run("dead-letters retry --all");
    assert_eq!((retried.code, retried.err.as_str()), (3, ""), "{}", retried.out);
    let mut lines: Vec<&str> = retried.out.lines().collect();
    lines.sort_unstable();
    assert!(lines[0].starts_with("left: owners/3/Ann: "), "{lines:?}");
    assert!(lines[0].contains("newer"), "{lines:?}");
    assert!(lines[1].starts_with("to be tried again: owners/"), "{lines:?}");
    assert_eq!(desk.run("dead-letters").out.lines().count(), 1);
}
