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
    assert_eq!(desk.waiting(), (5, 2, 0));
    assert!(desk.run("derive").done().out.starts_with("5 handled, 0 failed, 0 set aside"));
    assert_eq!(desk.run("owner Ann").done().out, "Ann: 120 EUR in alice, savings\n");
    assert_eq!(desk.waiting(), (0, 0, 0));
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
fn failed_owners_become_dead_letters() {
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
    assert_eq!(desk.dead_letters(), []);
    desk.run("transfer alice:-1 bob:+1").done();
    desk.run("transfer alice:-1 bob:+1").done();
    let derived = desk.run("derive").done();
    assert!(derived.out.starts_with("2 handled, "), "{}", derived.out);
    let dead = desk.dead_letters();
    let words = "the total of the owner \"Ann\" in EUR does not fit";
    assert!(dead.iter().all(|(_, error)| error.contains(words)), "{dead:?}");
    assert_eq!(
        dead.iter().map(|(id, _)| &**id).collect::<Vec<_>>(),
        ["owners/3/Ann", "owners/4/Ann"]
    );
    write(&desk, "bank-accounts", "savings", &account(50));
    desk.events(async |events| {
        events.discard("owners/3/Ann").await.expect("drops");
        events.retry("owners/4/Ann").await.expect("returns it");
    });
    assert!(desk.run("derive").done().out.starts_with("1 handled, 0 failed"));
    assert_eq!(desk.run("owner Ann").done().out, "Ann: 148 EUR in alice, savings\n");
    assert_eq!(desk.dead_letters(), []);
}
