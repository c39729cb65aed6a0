//! The command that rebuilds a domain with a lost part.

use txn_core::store::{Key, Outcome, Read, Store, Write, WriteOp};

use super::Desk;
use super::audit::beside;

/// Deletes the domain document, like an operator by mistake.
fn lose_the_domain(desk: &Desk) {
    beside(desk, |store| async move {
        let key = Key::new("txn-registry", "domain:bank");
        let read = store.read_primary(std::slice::from_ref(&key)).await.remove(0);
        let Read::Found { version, .. } = read else { panic!("{read:?}") };
        let outcome =
            store.write_many(&[Write::new(key, WriteOp::Delete(version))]).await.remove(0);
        assert!(matches!(outcome, Outcome::Applied(_)), "{outcome:?}");
    });
}

#[test]
fn lost_domain_document_is_shown_and_rebuilt() {
    let desk = Desk::with_accounts();
    desk.run("transfer alice:-30 bob:30").done();
    lose_the_domain(&desk);
    desk.run("balance alice").refused(3, "lost");
    // Repeated inspections change nothing.
    for _ in 0..2 {
        let ran = desk.run("rebuild-domain");
        assert_eq!(ran.code, 3, "{}{}", ran.out, ran.err);
        assert!(ran.out.contains("FOUND: ") && ran.out.contains("lost"), "{}", ran.out);
        assert!(ran.out.contains("--processes-stopped"), "{}", ran.out);
    }
    let ran = desk.run("--json rebuild-domain");
    assert_eq!((ran.code, ran.json()[0]["lost"].as_array().map(Vec::len)), (3, Some(1)));
    desk.run("balance alice").refused(3, "lost");
    let ran = desk.run("rebuild-domain --processes-stopped").done();
    let collections = "Collections: bank-accounts, bank-transfers";
    assert!(ran.out.contains("Partitions: 20") && ran.out.contains(collections), "{}", ran.out);
    assert!(ran.out.contains("Every balance is what the ledger says."), "{}", ran.out);
    assert_eq!((desk.balance("alice"), desk.balance("bob")), (70, 30));
    let ran = desk.run("rebuild-domain").done();
    assert!(ran.out.contains("There is nothing to rebuild."), "{}", ran.out);
}

#[test]
fn intact_domain_is_not_rebuilt() {
    let desk = Desk::with_accounts();
    let ran = desk.run("--json rebuild-domain --processes-stopped").done();
    let [rebuilt, audit] = &ran.json()[..] else { panic!("{}", ran.out) };
    assert_eq!(rebuilt["given_up"], serde_json::json!([]));
    assert_eq!(audit["clean"], true);
    desk.run("transfer alice:-1 bob:1").done();
    desk.run("--domain other rebuild-domain --processes-stopped").refused(4, "other");
}
