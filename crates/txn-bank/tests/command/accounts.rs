//! Statements, pending transfers, closed accounts, and accounts by owner.

use super::Desk;

fn desk() -> Desk {
    let desk = Desk::new();
    desk.run("init --statements").done();
    desk.run("open alice --owner Alice --balance 100").done();
    desk.run("open bob --owner Bob").done();
    desk
}

#[test]
fn a_statement_shows_every_change() {
    let desk = desk();
    desk.run("transfer alice:-30 bob:+30 --id rent").done();
    desk.run("submit alice:-5 bob:+5 --id tip").done();
    let pending = desk.run("pending alice").done();
    assert!(pending.out.starts_with("tip: -5 EUR, created since "), "{}", pending.out);
    assert!(pending.out.ends_with("alice holds 70 EUR; 65 if all 1 are made\n"), "{}", pending.out);
    assert_eq!(desk.run("--json pending bob").done().json()[0]["amount"], 5);
    desk.run("process").done();
    assert!(desk.run("--json pending alice").done().json().is_empty());
    let shown = desk.run("statement alice").done();
    assert!(shown.out.starts_with("alice of Alice: 0 EUR before"), "{}", shown.out);
    assert!(shown.out.ends_with("65 EUR behind\n") && shown.out.contains("rent"), "{}", shown.out);
    let json = desk.run("--json statement alice").done().json();
    assert_eq!((&json[0]["closing"], json.len()), (&65.into(), 4));
    let balances: Vec<i64> = json[1..].iter().filter_map(|line| line["balance"].as_i64()).collect();
    assert_eq!(balances, [100, 70, 65]);
    let none = desk.run("--json statement alice --from 2100-01-01").done().json();
    assert_eq!((&none[0]["opening"], none.len()), (&65.into(), 1));
    let none = desk.run("--json statement alice --to 2001-01-01T00:00:00Z").done().json();
    assert_eq!((&none[0]["closing"], none.len()), (&0.into(), 1));
    desk.run("statement alice --from yesterday").refused(1, "is no time");
    desk.run("statement zoe").refused(1, "no account \"zoe\"");
    desk.run("pending zoe").refused(1, "no account \"zoe\"");
    desk.run("audit").done();
    let without = Desk::with_accounts();
    without.run("statement alice").refused(4, "keeps no statements");
}

#[test]
fn closed_account_is_reported_as_closed() {
    let desk = desk();
    desk.run("submit alice:-5 bob:+5 --id late").done();
    desk.run("close alice").refused(1, "holds 100 EUR");
    let closed = desk.run("close alice --to bob").done();
    assert!(closed.out.starts_with("Closed: alice, by close:alice"), "{}", closed.out);
    assert!(desk.run("close alice").done().out.starts_with("Already closed: alice, at 20"));
    let json = desk.run("--json close alice").done().json();
    assert_eq!(json[0]["status"], "already closed");
    assert!(json[0]["account"]["closed_at"].is_number());
    desk.run("transfer bob:-1 alice:+1").refused(1, "the account \"alice\" is closed");
    desk.run("submit bob:-1 alice:+1").refused(1, "the account \"alice\" is closed");
    desk.run("open alice --owner Zoe").refused(1, "the account \"alice\" is closed");
    assert!(desk.run("process").done().out.starts_with("0 committed, 1 rolled back"));
    let late = desk.run("wait late").done();
    let words = "late: rolled-back at 20";
    assert!(
        late.out.starts_with(words) && late.out.contains("\"alice\" is closed"),
        "{}",
        late.out
    );
    assert_eq!(desk.balance("bob"), 100);
    desk.run("audit").done();
}

#[test]
fn accounts_are_listed_by_owner() {
    let desk = desk();
    desk.run("transfer alice:-30 bob:+10 dan:+20 --open dan=Bob").done();
    desk.run("transfer alice:-1 zoe:+1").refused(1, "no account \"zoe\"");
    let opening = "transfer alice:-1 eve:+1 --open eve=Eve --id eve";
    desk.run(opening).done();
    assert!(desk.run(opening).done().out.starts_with("Already done"));
    desk.run("transfer alice:-1 eve:+1 --id eve").refused(1, "accounts to open");
    desk.run("transfer alice:+1 eve:-1").done();
    desk.run("transfer alice:-1 bob:+1 --open bob=Bob").refused(1, "is open already");
    desk.run("transfer alice:-1 bob:+1 --open zoe").refused(1, "NAME=OWNER");
    desk.run("transfer alice:-1 usd:+1 --open usd=Bob --currency USD").refused(1, "sum to");
    let listed = desk.run("--json accounts --owner Bob").done().json();
    let names: Vec<_> = listed.iter().map(|account| account["account"].clone()).collect();
    assert_eq!(names, ["bob", "dan"]);
    assert!(desk.run("accounts --owner Alice").done().out.contains("70"));
    assert_eq!(desk.run("accounts --owner Zoe").done().out, "");
    assert_eq!(desk.run("--json statement dan").done().json().len(), 3);
    let load = "--json load --submit --accounts 6 --legs 3 --workers 3 --seconds 1";
    let report = desk.run(load).done().json().remove(0);
    assert!(report["finished"].as_u64() > Some(0) && report["committed_ms"]["p95"].is_number());
    let shown = desk.run("load --submit --accounts 6 --legs 3 --workers 3 --seconds 1").done();
    assert!(shown.out.contains("accepted") && shown.out.contains("undecided"), "{}", shown.out);
    desk.run("process").done();
    desk.run("audit").done();
}
