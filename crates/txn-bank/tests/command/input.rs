//! What the command is given, and what it says to it.

use std::process::Stdio;

use super::{Desk, Ran, command};

#[test]
fn from_the_first_account_to_the_audit() {
    let desk = Desk::with_accounts();
    let ran = desk.run("transfer alice:-30 bob:+20 carol:+10 --id rent").done();
    assert!(ran.out.contains("Done: rent") && ran.out.contains("+20"), "{}", ran.out);
    let again = desk.run("transfer carol:10 alice:-30 bob:20 --id rent").done();
    assert!(again.out.contains("Already done: rent"), "{}", again.out);
    assert_eq!((desk.balance("alice"), desk.balance("bob"), desk.balance("carol")), (70, 20, 10));
    let shown = desk.run("show transfer rent").done();
    assert!(shown.out.contains("Transfer rent"), "{}", shown.out);
    let shown = desk.run("show carol").done();
    assert!(shown.out.contains("Carol") && shown.out.contains("allowed"), "{}", shown.out);
    desk.run("transfer carol:-1000 bob:+1000").done();
    let audit = desk.run("audit").done();
    assert!(audit.out.contains("3 accounts, 3 deposits, 2 transfers"), "{}", audit.out);
    let help = desk.run("--help").done();
    assert!(help.out.contains("Exit codes") && !help.out.contains("demo-worker"), "{}", help.out);
}

#[test]
fn json_for_programs() {
    let desk = Desk::new();
    let ran = desk.run("--json init").done();
    assert_eq!(ran.json()[0]["accounts"], "bank-accounts");
    desk.run("--json open alice --owner Alice --balance 100 --currency USD").done();
    let ran = desk.run("--json open bob --owner Bob --currency USD").done();
    assert_eq!(ran.json()[0]["currency"], "USD");
    for status in ["done", "already done"] {
        let ran = desk.run("--json transfer alice:-30 bob:30 --id k").done();
        assert_eq!(ran.json()[0]["status"], status);
        assert_eq!(ran.json()[0]["legs"][1]["amount"], 30);
    }
    let ran = desk.run("--json balance bob alice").done();
    let names: Vec<_> = ran.json().iter().map(|line| line["account"].clone()).collect();
    assert_eq!(names, ["bob", "alice"]);
    assert_eq!(desk.run("--json show transfer k").done().json()[0]["kind"], "transfer");
    let audit = desk.run("--json audit").done().json();
    assert_eq!((&audit[0]["clean"], &audit[0]["totals"][0]["found"]), (&true.into(), &100.into()));
    let ran = desk.run("--json load --accounts 6 --legs 3 --workers 3 --seconds 1").done();
    let report = &ran.json()[0];
    assert!(report["committed"].as_u64() > Some(0) && report["latency_ms"]["p99"].is_number());
    assert_eq!(desk.run("--json audit").done().json()[0]["accounts"], 8);
    let refused = desk.run("--json balance zoe");
    assert_eq!((refused.code, refused.err.lines().count()), (1, 1));
    assert_eq!(refused.json()[0]["exit"], 1);
}

#[test]
fn bad_input_is_refused_in_one_line_and_changes_nothing() {
    let desk = Desk::with_accounts();
    let cases = [
        ("transfer alice:-300 bob:+300", "holds 100 EUR: not enough for -300"),
        ("transfer alice:-3 bob:+2", "the legs in EUR sum to -1"),
        ("transfer alice:-3 nobody:+3", "no account \"nobody\""),
        ("transfer alice:-3", "at least two legs"),
        ("transfer", "at least two legs"),
        ("transfer alice:-3 alice:3", "more than one leg"),
        ("transfer alice:0 bob:0", "moves nothing"),
        ("transfer alice bob:3", "is no leg"),
        ("transfer alice:-x bob:3", "is no leg"),
        ("transfer alice:-99999999999999999999 bob:1", "does not fit"),
        ("transfer alice:-9223372036854775808 bob:9223372036854775807", "sum to -1"),
        ("transfer alice:-1 bob:1 --id open:bob", "can not be the key"),
        ("open alice --owner Alice --balance 5", "open already"),
        ("open dave --owner Dave --balance -5", "is a deposit"),
        ("open dave --owner Dave --balance 1.5", "no whole number"),
        ("open dave --owner Dave --balance 9223372036854775808", "does not fit"),
        ("open dave --owner Dave --currency euro", "no currency"),
        ("open a:b --owner Dave", "can not name an account"),
        ("balance alice nobody", "no account \"nobody\""),
        ("show transfer nothing", "no transfer \"nothing\""),
        ("show alice bob", "show one account"),
        ("load --legs 1", "at least two legs"),
        ("load --accounts 2 --legs 3", "3 legs over 2 accounts"),
        ("--domain NOT-A-DOMAIN init", "can not name a domain"),
        ("--store memory: balance alice", "memory: holds nothing between two commands"),
    ];
    for (words, say) in cases {
        desk.run(words).refused(1, say);
    }
    assert_eq!((desk.balance("alice"), desk.balance("bob")), (100, 0));
    let audit = desk.run("--json audit").done().json();
    assert_eq!((&audit[0]["accounts"], &audit[0]["transfers"]), (&3.into(), &0.into()));
}

#[test]
fn wrong_usage() {
    let desk = Desk::new();
    for words in [
        "",
        "fly",
        "open alice",
        "balance",
        "--store ftp://u:hunter2@h balance x",
        "load --seconds x",
    ] {
        let ran = desk.run(words);
        assert_eq!(ran.code, 2, "{words}: {}", ran.err);
        // The words of a password are not repeated.
        if words.contains("ftp") {
            assert!(ran.err.contains("http(s)://host:port"), "{}", ran.err);
        }
    }
}

#[test]
fn stores_that_are_not_there() {
    let desk = Desk::new();
    desk.run("balance alice").refused(4, "make it with `txn-bank init`");
    assert!(!desk.file().exists(), "looking makes nothing");
    desk.run("init").done();
    desk.run("--domain other balance alice").refused(4, "there is no bank \"other\"");
    desk.run("--store redb:no/such/directory/x init").refused(4, "does not exist");
    std::fs::write(desk.directory.path().join("text"), "not a store").expect("writes");
    desk.run("--store redb:text balance alice").refused(4, "text");
    // Nobody listens on port 1.
    let closed: Ran = command()
        .env("TXN_BANK_STORE", "http://user:hunter2@127.0.0.1:1")
        .env("TXN_API_KEY", "hunter3")
        .args(["balance", "alice"])
        .output()
        .expect("runs")
        .into();
    closed.refused(4, "http://127.0.0.1:1");
    assert!(!closed.err.contains("hunter"), "{}", closed.err);
    let help: Ran = command()
        .env("TXN_BANK_STORE", "http://user:hunter2@127.0.0.1:1")
        .env("TXN_API_KEY", "hunter3")
        .arg("--help")
        .output()
        .expect("runs")
        .into();
    assert!(!help.done().out.contains("hunter"));
    desk.run("--ca-cert no-such-file --store https://127.0.0.1:1 balance x")
        .refused(4, "no-such-file");
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let desk = Desk::with_accounts();
    let mut child = desk
        .command("transfer alice:-30 bob:30 --id pipe")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("runs");
    drop(child.stdout.take());
    let ran: Ran = child.wait_with_output().expect("ends").into();
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert_eq!(desk.balance("bob"), 30);
}

#[test]
fn a_file_belongs_to_one_process_at_a_time() {
    let desk = Desk::with_accounts();
    let mut load = desk
        .command("load --accounts 4 --legs 2 --workers 1 --seconds 20")
        .stdout(Stdio::null())
        .spawn()
        .expect("runs");
    let mut refused = None;
    for _ in 0..100 {
        let ran = desk.run("balance alice");
        if ran.code != 0 {
            refused = Some(ran);
            break;
        }
    }
    // Killed in the middle, it leaves the file for the next one.
    load.kill().expect("kills");
    load.wait().expect("ends");
    refused.expect("in use").refused(4, "open already");
    desk.run("audit").done();
}
