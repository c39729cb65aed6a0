//! Transfers that one run of the command submits, and another run executes.

use super::Desk;

/// The state of a decided transfer.
#[track_caller]
fn state(desk: &Desk, key: &str) -> String {
    let status = desk.run(&format!("--json wait {key}")).done().json().remove(0);
    status["state"].as_str().expect("a state").to_owned()
}

#[test]
fn transfer_is_submitted_executed_and_reversed() {
    let desk = Desk::with_accounts();
    let submitted = desk.run("submit alice:-30 bob:+20 carol:+10 --id rent").done();
    assert!(submitted.out.starts_with("rent: created at "), "{}", submitted.out);
    // The same legs in another order are the same transfer.
    desk.run("submit carol:10 alice:-30 bob:20 --id rent").done();
    desk.run("submit alice:-30 bob:30 --id rent")
        .refused(1, "another transfer was made under the key");
    assert_eq!(desk.balance("alice"), 100, "nothing was made yet");
    desk.run("wait rent --seconds 0").refused(4, "it is created");
    let made = desk.run("process").done();
    assert!(made.out.starts_with("1 committed, 0 rolled back"), "{}", made.out);
    assert!(desk.run("process").done().out.starts_with("0 committed"));
    assert_eq!((desk.balance("alice"), desk.balance("bob"), desk.balance("carol")), (70, 20, 10));
    assert_eq!(state(&desk, "rent"), "finished");
    assert!(desk.run("wait rent").done().out.starts_with("rent: finished"));
    let again = desk.run("transfer alice:-30 bob:+20 carol:+10 --id rent").done();
    assert!(again.out.contains("Already done"), "{}", again.out);

    for _ in 0..2 {
        let reversal = desk.run("reverse rent").done();
        assert!(reversal.out.contains("reverse-rent") && reversal.out.contains("it reverses rent"));
    }
    desk.run("reverse rent --id other").refused(1, "reversed already");
    desk.run("process").done();
    assert_eq!((desk.balance("alice"), desk.balance("bob"), desk.balance("carol")), (100, 0, 0));
    // The ledger keeps both transfers.
    let audit = desk.run("audit").done();
    assert!(audit.out.contains("3 accounts, 3 deposits, 2 transfers"), "{}", audit.out);
    assert!(desk.run("show transfer reverse-rent").done().out.contains("+30"));
}

#[test]
fn refused_transfer_has_a_reason() {
    let desk = Desk::with_accounts();
    desk.run("submit alice:-300 bob:+300 --id much").done();
    let made = desk.run("process").done();
    assert!(made.out.starts_with("0 committed, 1 rolled back"), "{}", made.out);
    let status = desk.run("wait much").done();
    let words = "the sum would be below the minimum (it is 100)";
    assert!(status.out.contains("rolled-back") && status.out.contains(words), "{}", status.out);
    // An account with an overdraft has no lower bound.
    desk.run("submit carol:-300 bob:+300 --id loan").done();
    desk.run("process").done();
    assert_eq!(desk.balance("carol"), -300);
    assert_eq!(desk.balance("alice"), 100);
    desk.run("reverse much").refused(1, "it cannot be reversed");
    desk.run("wait nothing").refused(1, "no request \"nothing\"");
    desk.run("submit alice:-1 stranger:+1").refused(1, "no account \"stranger\"");
    desk.run("submit alice:-1 bob:+2").refused(1, "sum to +1");
    desk.run("submit alice:-1").refused(1, "at least two legs");
}

#[test]
fn submitted_transfers_are_recovered() {
    let desk = Desk::with_accounts();
    desk.run("submit alice:-5 bob:+5 --id left").done();
    assert!(desk.run("recover").done().out.starts_with("0 committed"), "it is too young");
    assert!(desk.run("recover --older-than 0").done().out.starts_with("1 committed"));
    assert_eq!(desk.balance("bob"), 5);
    desk.run("submit alice:-5 bob:+5 --id worker").done();
    desk.run("process --seconds 1").done();
    assert!(desk.run("wait worker").done().out.starts_with("worker: finished"));
    desk.run("audit").done();
}
