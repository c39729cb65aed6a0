//! Input of the command, and its errors.

use std::process::Stdio;
use std::time::Duration;

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
fn bad_input_is_refused_and_changes_nothing() {
    let desk = Desk::with_accounts();
    let cases = [
        ("transfer alice:-300 bob:+300", "holds 100 EUR: not enough for -300"),
        ("transfer alice:-3 bob:+2", "the legs in EUR sum to -1"),
        ("transfer alice:-3 stranger:+3", "no account \"stranger\""),
        ("transfer alice:-3", "at least two legs"),
        ("transfer", "at least two legs"),
        ("transfer alice:-3 alice:3", "more than one leg"),
        ("transfer alice:0 bob:0", "moves nothing"),
        ("transfer alice bob:3", "is no leg"),
        ("transfer alice:-x bob:3", "is no leg"),
        ("transfer alice:-99999999999999999999 bob:1", "does not fit"),
        ("transfer alice:-9223372036854775808 bob:9223372036854775807", "sum to -1"),
        ("transfer alice:-1 bob:1 --id open:bob", "cannot be the key"),
        ("open alice --owner Alice --balance 5", "open already"),
        ("open dave --owner Dave --balance -5", "is a deposit"),
        ("open dave --owner Dave --balance 1.5", "no whole number"),
        ("open dave --owner Dave --balance 9223372036854775808", "does not fit"),
        ("open dave --owner Dave --currency euro", "no currency"),
        ("open a:b --owner Dave", "cannot name an account"),
        ("balance alice stranger", "no account \"stranger\""),
        ("show transfer nothing", "no transfer \"nothing\""),
        ("show alice bob", "show one account"),
        ("load --legs 1", "at least two legs"),
        ("load --accounts 2 --legs 3", "3 legs over 2 accounts"),
        ("--domain NOT-A-DOMAIN init", "cannot name a domain"),
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
        // The error does not repeat the password.
        if words.contains("ftp") {
            assert!(ran.err.contains("http(s)://host:port"), "{}", ran.err);
        }
    }
}

#[test]
fn stores_that_are_not_there() {
    let desk = Desk::new();
    desk.run("balance alice").refused(4, "there is no file bank.redb");
    assert!(!desk.file().exists(), "looking makes nothing");
    desk.run("init").done();
    desk.run("--domain other balance alice").refused(4, "there is no bank \"other\"");
    desk.run("--store redb:no/such/directory/x init").refused(4, "does not exist");
    std::fs::write(desk.directory.path().join("text"), "not a store").expect("writes");
    desk.run("--store redb:text balance alice").refused(4, "text");
    // No server listens on port 1.
    let closed: Ran = command()
        .env("TXN_BANK_STORE", "http://user:hunter2@127.0.0.1:1")
        .env("TXN_API_KEY", "hunter3")
        .args(["balance", "alice"])
        .output()
        .expect("runs")
        .into();
    closed.refused(4, "http://127.0.0.1:1");
    assert!(!closed.err.contains("hunter"), "{}", closed.err);
    for login in [
        "--bearer-token hunter3",
        "--bearer-token-file no-such-file",
        "--api-key-file no-such-file",
        "--header x-key:hunter3",
        "--header hunter3",
        "--ca-fingerprint hunter3",
        "--api-key hunter2 --bearer-token hunter3",
    ] {
        let ran = desk.run(&format!("--store https://127.0.0.1:1 {login} balance x"));
        assert!(matches!(ran.code, 2 | 4), "{login}: {}", ran.err);
        assert!(!ran.err.contains("hunter"), "{login}: {}", ran.err);
    }
    let help: Ran = command()
        .env("TXN_BANK_STORE", "http://user:hunter2@127.0.0.1:1")
        .env("TXN_API_KEY", "hunter3")
        .env("TXN_BEARER_TOKEN", "hunter4")
        .env("TXN_HEADERS", "x: hunter5")
        .arg("--help")
        .output()
        .expect("runs")
        .into();
    assert!(!help.done().out.contains("hunter"));
    desk.run("--ca-cert no-such-file --store https://127.0.0.1:1 balance x")
        .refused(4, "no-such-file");
}

#[test]
fn failed_output_is_reported() {
    let desk = Desk::with_accounts();
    let transfer = "transfer alice:-30 bob:30 --id pipe";
    for words in [transfer, "--json show alice", "audit", "balance bob", "--json audit", "init"] {
        let mut child = desk.command(words);
        let mut child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("runs");
        drop(child.stdout.take());
        Ran::from(child.wait_with_output().expect("ends")).refused(6, "could not be written");
    }
    // The transfer itself was made.
    assert_eq!(desk.balance("bob"), 30);
    #[cfg(target_os = "linux")]
    for words in [transfer, "audit", "load --accounts 4 --workers 1 --seconds 1"] {
        let full = std::fs::File::options().write(true).open("/dev/full").expect("a full disk");
        let ran = desk.command(words).stdout(full).output().expect("runs");
        Ran::from(ran).refused(6, "could not be written");
    }
}

#[test]
fn a_load_that_commits_nothing_is_a_failure() {
    let desk = Desk::new();
    desk.run("init").done();
    for name in ["load-0001", "load-0002"] {
        desk.run(&format!("open {name} --owner load --balance 0")).done();
    }
    let load = "load --accounts 2 --legs 2 --workers 1";
    for (words, say) in [
        (format!("{load} --seconds 1"), "no transfer was committed: the account \"load-"),
        (format!("{load} --seconds 0"), "no transfer was committed: the time was over"),
    ] {
        let ran = desk.run(&words);
        assert_eq!((ran.code, ran.err.lines().count()), (4, 1), "{}{}", ran.out, ran.err);
        assert!(ran.err.contains(say), "{}", ran.err);
        // The report is printed all the same.
        assert!(ran.out.contains("committed"), "{}", ran.out);
    }
}

#[test]
#[cfg(unix)]
fn load_on_a_full_disk_ends_with_an_error() {
    let desk = Desk::new();
    let load = "load --accounts 20 --legs 2 --workers 4 --seconds";
    desk.run(&format!("{load} 1")).done();
    let size = desk.file().metadata().expect("a file").len();
    // The file cannot grow any more. Blocks have 512 bytes, by POSIX; some shells count 1,024.
    let script = format!("trap '' XFSZ; ulimit -f {}; exec \"$@\"", size / 1024);
    let mut limited = std::process::Command::new("sh");
    limited.args(["-c", &script, "sh", env!("CARGO_BIN_EXE_txn-bank")]);
    let limited = limited.current_dir(&desk.directory).args(format!("{load} 2").split(' '));
    let ran = Ran::from(limited.output().expect("runs"));
    assert!([4, 5].contains(&ran.code), "{}: {}{}", ran.code, ran.out, ran.err);
    // With free space again, no money is lost.
    desk.run("audit").done();
}

#[test]
fn damaged_file_is_reported_in_one_line() {
    let desk = Desk::with_accounts();
    let whole = std::fs::read(desk.file()).expect("reads");
    for command in ["balance alice", "audit", "transfer alice:-1 bob:1"] {
        std::fs::write(desk.file(), &whole[..whole.len() / 2]).expect("writes");
        desk.run(command).refused(3, "restore the file from a copy");
        let mut overwritten = whole.clone();
        overwritten[4_096..].fill(0xff);
        std::fs::write(desk.file(), &overwritten).expect("writes");
        desk.run(command).refused(3, "restore the file from a copy");
    }
    // A byte of a document in all copies: redb considers the page sound.
    let mut flipped = whole.clone();
    let name = b"\"owner\":\"Alice";
    let copies: Vec<usize> = (0..whole.len()).filter(|at| whole[*at..].starts_with(name)).collect();
    assert!(!copies.is_empty(), "a document is stored as it is");
    for at in copies {
        flipped[at + name.len() - 1] = 0xff;
    }
    std::fs::write(desk.file(), &flipped).expect("writes");
    for command in ["balance alice", "audit", "transfer alice:-1 bob:1"] {
        let ran = desk.run(command);
        assert_eq!(ran.code, 3, "{command}: {}{}", ran.out, ran.err);
        assert!(format!("{}{}", ran.out, ran.err).contains("damaged"), "{}{}", ran.out, ran.err);
    }
}

#[test]
fn errors_do_not_repeat_passwords() {
    let desk = Desk::new();
    let addresses = [
        "http://shop:p@ss/w:rd@host:9200",
        "ftp://shop:hunter2@host",
        "shop:hunter2@host:9200",
        "http://shop:hunter2@host:port",
        "http://shop:hunter2@host:9200/path?key",
        "http://shop:hunter,2@host:9200",
    ];
    let secret = |text: &str| ["p@ss", "w:rd", "//ss", "hunter"].iter().any(|s| text.contains(s));
    for address in addresses {
        let given = desk.run(&format!("balance alice --store {address}"));
        let joined = desk.run(&format!("--store={address} balance alice"));
        let environment = desk.command("balance alice").env("TXN_BANK_STORE", address).output();
        let environment = Ran::from(environment.expect("runs"));
        for ran in [given, joined, environment] {
            assert_eq!(ran.code, 2, "{}", ran.err);
            assert!(ran.err.starts_with("error: --store is no address"), "{}", ran.err);
            assert!(!secret(&ran.err) && ran.out.is_empty(), "{}{}", ran.out, ran.err);
        }
        // The secret is in the wrong argument.
        for words in [
            "A",
            "init A",
            "balance A",
            "--stroe A init",
            "--stroe=A init",
            "show A",
            "show transfer A",
            "--domain A init",
            "open A --owner x",
            "open x --owner x --currency A",
            "open x --owner x --balance A",
            "transfer A:1 b:-1",
            "transfer A b:-1",
            "transfer a:1 b:-1 --id A",
            "load --seconds A",
            "--json=A init",
            "--ca-cert A --store https://127.0.0.1:1 init",
        ] {
            let ran = desk.run(&words.replace('A', address));
            assert_ne!(ran.code, 0, "{words}");
            assert!(!secret(&ran.err) && !secret(&ran.out), "{words}: {}{}", ran.out, ran.err);
        }
    }
}

#[test]
fn a_file_belongs_to_one_process_at_a_time() {
    let desk = Desk::with_accounts();
    let start = || {
        let mut load = desk.command("load --accounts 4 --legs 2 --workers 1 --seconds 36000");
        load.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("runs")
    };
    let mut load = start();
    let mut refused = None;
    // Waits until the load has opened the file.
    for _ in 0..600 {
        std::thread::sleep(Duration::from_secs(1));
        // A probe that had the file open made the load fail.
        if load.try_wait().expect("waits").is_some() {
            load = start();
            continue;
        }
        let ran = desk.run("balance alice");
        if ran.code != 0 {
            refused = Some(ran);
            break;
        }
    }
    // After the kill the next process can open the file.
    load.kill().expect("kills");
    load.wait().expect("ends");
    refused.expect("in use").refused(4, "open already");
    desk.run("audit").done();
}
