//! Verbs on transactions, locks and documents.

use serde_json::Value;

use super::desk::Desk;
use super::owners::{Names, body, collections, overwrite};
use super::ran::codes;

#[test]
fn sound_domain_is_well() {
    let desk = Desk::new();
    desk.run("status").says(0, &["The domain \"shop\" is well", "0 committed"]);
    let status = desk.run("--json status").json(0);
    assert_eq!((&status["well"], &status["open"]["oldest_ms"]), (&true.into(), &0.into()));
    assert_eq!(status["collections"], serde_json::json!(["orders", "stock"]));
    assert!(codes(&status).is_empty(), "{status}");
    assert_eq!((&status["processes"]["registered"], &status["probe"]), (&0.into(), &Value::Null));
    desk.run("ls").says(0, &["No transaction is open."]);
    desk.run("locks").says(0, &["No document is locked."]);
    desk.run("hanging --older 0").says(0, &["Nothing hangs"]);
    desk.run("verify").says(0, &["Each lock has an owner"]);
    desk.run("doctor").says(0, &["ok  collection stock", "ok  domain document"]);
    desk.run("why stock shelf").says(0, &["stock/shelf exists", "Last commit: ", "No lock."]);
    desk.run("why stock nowhere").says(0, &["stock/nowhere does not exist."]);
    desk.run("why nowhere a").fails(2, "nowhere");
}

#[test]
fn probe_measures_locks_and_commits() {
    let desk = Desk::new();
    for _ in 0..2 {
        desk.run("status --probe").says(0, &["is well", "a lock took ", "a commit "]);
    }
    let status = desk.run("--json status --probe").json(0);
    let probe = &status["probe"];
    assert!(probe["lock_ms"].is_u64() && probe["commit_ms"].is_u64(), "{status}");
    assert_eq!(status["collections"], serde_json::json!(["orders", "shop-probe", "stock"]));
    desk.run("verify").says(0, &["Each lock has an owner"]);
}

#[test]
fn unapplied_commit_is_found_by_each_verb() {
    let desk = Desk::new();
    let tid = desk.die_after_commit().to_string();
    let status = desk.run("status");
    status.says(1, &["NOT WELL [commit_unapplied]", &tid, "till-7", "Do: `txn recover`"]);
    let status = desk.run("status --json").json(1);
    assert_eq!((codes(&status), &status["well"]), (vec!["commit_unapplied"], &false.into()));
    assert_eq!(status["open"]["committed"], 1);

    desk.run("ls").says(0, &[&tid, "committed", "tills in till-7", "10 min"]);
    let list = desk.run("--json ls --state committed --older 300").json(0);
    let row = &list["transactions"][0];
    assert_eq!((&row["tid"], &row["process"]), (&tid.clone().into(), &"till-7".into()));
    assert_eq!((&row["participants"], &row["locks"]), (&2.into(), &1.into()));
    desk.run("ls --state pending").says(0, &["No transaction is open."]);
    desk.run("ls --older 3600").says(0, &["No transaction is open."]);
    desk.run("ls --label checkout").says(0, &[&tid, "┆ checkout ┆"]);
    let list = desk.run("--json ls --label checkout").json(0);
    assert_eq!(list["transactions"][0]["label"], "checkout");
    desk.run("ls --label check").says(0, &["No transaction is open."]);

    let shown = desk.run(&format!("show {tid}"));
    shown.says(
        0,
        &[
            "(checkout): committed",
            "Verdict: unapplied: 1 of 2",
            "stock/shelf",
            "locked",
            "applied",
            "Next: ",
        ],
    );
    let shown = desk.run(&format!("--json show {tid}")).json(0);
    assert_eq!(shown["verdict"], "unapplied");
    assert_eq!(shown["participants"].as_array().map(Vec::len), Some(2));

    desk.run("why stock shelf").says(0, &[&tid, "the lock is unapplied", "tills in till-7"]);
    let story = desk.run("--json why stock shelf").json(0);
    assert_eq!(story["lock"]["standing"], "unapplied");
    desk.run("why stock shelf").says(0, &["(checkout) (committed"]);
    desk.run("locks").says(0, &["stock/shelf", "unapplied", "label", "checkout"]);
    let locks = desk.run("--json locks").json(0);
    assert_eq!(locks["locks"][0]["holder"], tid);

    let by = format!("{tid} (checkout) of tills in till-7 is committed and not applied");
    desk.run("hanging").says(1, &["commit_unapplied", &by]);
    desk.run("hanging --older 3600").says(0, &["Nothing hangs for 3600 s"]);
    let hanging = desk.run("--json hanging").json(1);
    assert_eq!(hanging["hanging"][0]["code"], "commit_unapplied");
    desk.run("verify").says(1, &["2 participants of 1 commits", "commit_unapplied"]);
    desk.run("doctor").says(1, &["commit_unapplied"]);

    desk.run(&format!("abort {tid}")).says(1, &["a committed transaction cannot be aborted"]);
    desk.run(&format!("outcome {tid} --dry-run")).says(0, &["committed now"]);
    let outcome = desk.run(&format!("--json outcome {tid}")).json(0);
    assert_eq!((&outcome["outcome"], &outcome["final"]), (&"committed".into(), &true.into()));

    desk.run("recover --dry-run").says(0, &["1 documents are locked, and 1 transactions"]);
    let pass = desk.run("--json recover --dry-run").json(0);
    assert_eq!((&pass["open"], &pass["dry_run"]), (&1.into(), &true.into()));
    desk.run("recover").says(0, &["Left: 0 locked documents, 0 open"]);
    desk.run("status").says(0, &["is well"]);
    desk.run(&format!("show {tid}")).says(0, &["Verdict: finished"]);
    assert_eq!(desk.run("--json verify").json(0)["well"], true);
}

#[test]
fn dead_owner_without_record_is_aborted() {
    let desk = Desk::new();
    let tid = desk.die_before_commit().to_string();
    desk.run("status").says(1, &["lock_without_record", "stock/shelf", "`txn recover`"]);
    desk.run("ls").says(0, &[&tid, "no_record (overdue)", "process "]);
    desk.run(&format!("show {tid}")).says(0, &["Verdict: overdue", "locks stock/shelf"]);
    let dry = desk.run(&format!("--json abort {tid} --dry-run")).json(0);
    assert_eq!((&dry["aborts"], &dry["after"]), (&true.into(), &"no_record".into()));
    desk.run(&format!("abort {tid} --dry-run")).says(0, &["would be aborted", "--dry-run"]);
    desk.run(&format!("abort {tid} --why stuck")).says(0, &["is aborted for good"]);
    desk.run(&format!("abort {tid}")).says(0, &["was aborted before"]);
    desk.run(&format!("show {tid}")).says(0, &["Verdict: aborted", "stuck"]);
    // A void lock harms nothing.
    desk.run("status").says(0, &["note [void_lock]"]);
    desk.run("why stock shelf").says(0, &["the lock is void"]);
    let outcome = desk.run(&format!("outcome {tid}"));
    outcome.says(0, &["aborted for good"]);
    desk.run("recover").says(0, &["Left: 0 locked documents"]);
    desk.run("locks").says(0, &["No document is locked."]);
}

#[test]
fn overwritten_participant_is_damaged() {
    let desk = Desk::new();
    let tid = desk.die_after_commit().to_string();
    desk.change("stock", "shelf", overwrite);
    let status = desk.run("status");
    status.says(1, &["NOT WELL [participant_damaged]: stock/shelf", "docs/failures.md#damage"]);
    assert_eq!(codes(&desk.run("--json status").json(1)), ["participant_damaged"]);
    desk.run(&format!("show {tid}")).says(0, &["Verdict: damaged", "docs/failures.md"]);
    desk.run("verify").says(1, &["participant_damaged", "stock/shelf", "docs/failures.md"]);
    let verified = desk.run("--json verify").json(1);
    assert!(codes(&verified).contains(&"participant_damaged"), "{verified}");
}

#[test]
fn lost_commits_are_found_by_verify() {
    let desk = Desk::new();
    let mut first = Value::Null;
    desk.change("stock", "shelf", |value| first = value.clone());
    let tid = desk.die_after_commit().to_string();
    desk.run("recover").says(0, &["Left: 0 locked documents, 0 open"]);
    desk.run("verify").says(0, &["No loss of a recent commit was found"]);
    desk.change("stock", "shelf", |value| *value = first);
    let words = ["[commit_lost]: stock/shelf has older content", &tid, "#damage"];
    desk.run("verify").says(1, &words);
    let verified = desk.run("--json verify --minutes 5").json(1);
    assert_eq!(codes(&verified), ["commit_lost"]);
    let lost = &verified["finished"]["lost"];
    assert_eq!((&lost[0]["kind"], lost.as_array().map(Vec::len)), (&"put_back".into(), Some(1)));
    // Plain clients may write unlocked documents.
    desk.change("stock", "shelf", |value| {
        let object = value.as_object_mut().expect("an object");
        object.retain(|name, _| !name.starts_with("transaction_"));
    });
    let words = ["note [changed_by_other_client]: stock/shelf was replaced", &tid];
    desk.run("verify").says(0, &words);
    desk.run("verify --minutes 0").fails_by_usage("--minutes");
}

#[test]
fn lost_commit_under_a_later_one_is_found() {
    let desk = Desk::new();
    let mut first = Value::Null;
    desk.change("stock", "shelf", |value| first = value.clone());
    let tid = desk.die_after_commit().to_string();
    desk.run("recover").says(0, &["Left: 0 locked documents, 0 open"]);
    desk.change("stock", "shelf", |value| *value = first);
    desk.beside(async |domain| {
        let names = Names { domain: "shop".into(), stock: "stock".into(), orders: "orders".into() };
        let (stock, orders) = collections(&domain, &names).await;
        let both = domain.transact::<_, txn_core::Error, _>(async |tx| {
            tx.put(&stock, "shelf", &body())?;
            tx.put(&orders, "one", &body())
        });
        both.await.expect("commits");
    });
    let words =
        ["[commit_lost]: stock/shelf lost the commit of", &tid, "older content was put back"];
    desk.run("verify").says(1, &words);
    let verified = desk.run("--json verify").json(1);
    assert_eq!(codes(&verified), ["commit_lost"]);
    let lost = &verified["finished"]["lost"][0];
    assert_eq!((&lost["tid"], &lost["document"]["id"]), (&tid.as_str().into(), &"shelf".into()));
}

#[test]
fn lock_without_owner_is_found_by_verify() {
    let desk = Desk::new();
    let tid = desk.die_before_commit().to_string();
    desk.run("verify").says(1, &["NOT WELL [lock_without_record]", "stock/shelf", &tid]);
    let verified = desk.run("--json verify").json(1);
    assert_eq!((codes(&verified), &verified["locks"]), (vec!["lock_without_record"], &1.into()));
    desk.run(&format!("abort {tid}")).says(0, &["is aborted for good"]);
    // The lock of an aborted transaction binds no process.
    desk.run("verify").says(0, &["Each lock has an owner", "note [void_lock]"]);
}

#[test]
fn work_that_is_piped_shows_no_progress() {
    let desk = Desk::new();
    desk.die_after_commit();
    for verb in ["verify", "doctor", "recover", "--json verify", "--json doctor"] {
        let ran = desk.run(verb);
        assert_eq!(ran.err, "", "{verb}");
    }
}

#[test]
fn deleted_participant_is_told_from_a_missing_one() {
    let desk = Desk::new();
    let tid = desk.die_after_commit().to_string();
    let states = |desk: &Desk| -> Vec<String> {
        let shown = desk.run(&format!("--json show {tid}")).json(0);
        let list = shown["participants"].as_array().expect("a list").clone();
        list.iter().map(|one| format!("{} {}", one["document"]["id"], one["state"])).collect()
    };
    // `orders/one` was applied. A transaction deletes it.
    desk.beside(async |domain| {
        let orders = domain.collection::<txn_core::Raw>("orders").await.expect("opens");
        let delete = domain.transact::<_, txn_core::Error, _>(async |tx| tx.delete(&orders, "one"));
        delete.await.expect("deletes");
    });
    let known = states(&desk);
    assert!(
        known.iter().any(|one| one.contains("one") && one.contains("deleted_since")),
        "{known:?}"
    );
    desk.run(&format!("show {tid}")).says(0, &["Verdict: unapplied: 1 of 2"]);
    // A plain client deletes `stock/shelf`, which was not applied.
    desk.delete("stock", "shelf");
    let known = states(&desk);
    assert!(known.iter().any(|one| one.contains("shelf") && one.contains("missing")), "{known:?}");
    desk.run("status").says(1, &["participant_damaged", "another client deleted the document"]);
}

#[test]
fn lock_with_an_unreadable_record_is_listed() {
    let desk = Desk::new();
    let tid = desk.die_after_commit().to_string();
    let partition = {
        let status = desk.run("--json status").json(1);
        let day = tid_day(&desk, &tid);
        let names = status["partitions"].as_array().expect("a list").clone();
        let named = names.iter().find(|one| one["day"] == day.as_str()).expect("the day");
        named["name"].as_str().expect("a name").to_owned()
    };
    desk.change(&partition, &tid, |value| value["state"] = "odd".into());
    let locks = desk.run("--json locks").json(1);
    let lock = &locks["locks"][0];
    assert_eq!((&lock["holder"], &lock["state"]), (&tid.as_str().into(), &"unreadable".into()));
    assert_eq!(lock["standing"], "unknown");
    assert!(
        lock["unreadable"]["message"].as_str().is_some_and(|why| why.contains("record")),
        "{lock}"
    );
    desk.run("locks").says(1, &["stock/shelf", "unreadable", "damaged: "]);
    desk.run("ls").says(1, &[&tid, "unreadable"]);
    desk.run("status").says(1, &["NOT WELL [damaged]", &tid]);
    desk.run("verify").says(1, &["NOT WELL [damaged]", &tid]);
    let verified = desk.run("--json verify").json(1);
    assert_eq!((codes(&verified), &verified["well"]), (vec!["damaged"], &false.into()));
}

/// The day of a transaction, as in the names of partitions.
fn tid_day(desk: &Desk, tid: &str) -> String {
    let shown = desk.run(&format!("--json show {tid}")).json(0);
    let started = std::time::Duration::from_millis(shown["started_ms"].as_u64().expect("a time"));
    txn_core::ids::Day::of_unix_time(started).to_string()
}

#[test]
fn limit_bounds_each_list() {
    let desk = Desk::new();
    let tid = desk.die_after_commit();
    let shown = desk.run(&format!("--limit 1 --json show {tid}")).json(0);
    assert_eq!(shown["truncated"], true);
    assert_eq!(shown["participants"].as_array().map(Vec::len), Some(1));
    desk.run(&format!("--limit 1 show {tid}")).says(0, &["raise --limit"]);
    assert_eq!(desk.run("--limit 0 ls").code, 2);
}
