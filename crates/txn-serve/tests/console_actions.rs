//! The actions of the console.

use std::sync::Arc;

use hyper::Method;
use serde_json::{Value, json};
use txn_core::admin::Verdict;
use txn_core::store::MemoryStore;
use txn_core::{AttemptId, Raw};
use txn_serve::ServeConfig;

use super::access::{File, ask};
use super::console::holder;
use super::desk::{Answer, Desk};

/// The headers of a form that a page of the gateway sends.
const OWN: [(&str, &str); 2] =
    [("content-type", "application/x-www-form-urlencoded"), ("sec-fetch-site", "same-origin")];

async fn post(desk: &Desk, path: &str, form: &str) -> Answer {
    desk.send(Method::POST, path, &OWN, form.to_owned()).await
}

async fn verdict(desk: &Desk, tid: AttemptId) -> Verdict {
    desk.domain.admin().transaction(tid, 10).await.expect("a report").verdict
}

/// A gateway with an open transaction.
async fn desk() -> (Desk, AttemptId) {
    let desk = Desk::memory().await;
    desk.put("/stock/_doc/apple", &json!({ "n": 1 })).await.is(201);
    let (tx, tid) = holder(&desk.domain, "apple", "checkout").await;
    // The transaction stays open while the test runs.
    std::mem::forget(tx);
    (desk, tid)
}

#[tokio::test]
async fn transaction_is_aborted_for_a_reason() {
    let (desk, tid) = desk().await;
    let asks = desk.get(&format!("/_console/abort?tid={tid}")).await.page(200);
    assert!(asks.contains("<form class=\"action\" method=\"post\" action=\"/_console/abort\">"));
    assert!(asks.contains(&format!("type=\"hidden\" name=\"tid\" value=\"{tid}\"")), "{asks}");
    assert_eq!(verdict(&desk, tid).await, Verdict::Running, "the question changes nothing");
    for reason in ["", "reason=", "reason=+++", "reason=a%0D%0Ab"] {
        let form = format!("tid={tid}&{reason}");
        let refused = post(&desk, "/_console/abort", &form).await.page(400);
        assert!(refused.contains("aria-invalid=\"true\""), "{reason}: {refused}");
    }
    let long = format!("tid={tid}&reason={}", "x".repeat(201));
    assert!(post(&desk, "/_console/abort", &long).await.page(400).contains("at most 200"));
    assert_eq!(verdict(&desk, tid).await, Verdict::Running);
    let form = format!("tid={tid}&reason=hung+%3Cb%3E");
    let done = post(&desk, "/_console/abort", &form).await.page(200);
    assert!(done.contains("aborted for good"), "{done}");
    let report = desk.domain.admin().transaction(tid, 10).await.expect("a report");
    assert_eq!(report.verdict, Verdict::Aborted);
    let because = report.record.and_then(|record| record.aborted_because).expect("a reason");
    assert_eq!(because, "aborted by an operator: hung <b> (console)");
    let story = desk.get(&format!("/_console/transaction?tid={tid}")).await.page(200);
    assert!(story.contains("hung &lt;b&gt;") && !story.contains("Abort this"), "{story}");
    let again = post(&desk, "/_console/abort", &form).await.page(200);
    assert!(again.contains("aborted before"), "{again}");
}

#[tokio::test]
async fn unknown_tid_leaves_no_record() {
    let (desk, _) = desk().await;
    let tid: AttemptId = "3db4dc0b-ea02-11f1-8001-6dd9f108c5aa".parse().expect("a tid");
    let form = format!("tid={tid}&reason=mistyped");
    let done = post(&desk, "/_console/abort", &form).await.page(404);
    assert!(done.contains("Nothing was done"), "{done}");
    assert_eq!(verdict(&desk, tid).await, Verdict::Unknown);
}

#[tokio::test]
async fn janitor_pass_needs_a_reason() {
    let desk = Desk::memory().await;
    desk.put("/stock/_doc/apple", &json!({ "n": 1 })).await.is(201);
    let (tx, tid) = holder(&desk.domain, "apple", "dead").await;
    desk.domain.admin().abort(tid, "a void lock is left", false).await.expect("aborts");
    std::mem::forget(tx);
    let locked = async || desk.domain.admin().locks(10).await.expect("locks").locks.len();
    assert_eq!(locked().await, 1);
    let asks = desk.get("/_console/recover").await.page(200);
    assert!(asks.contains("<dt>Locked documents</dt><dd>1</dd>"), "{asks}");
    post(&desk, "/_console/recover", "reason=").await.page(400);
    assert_eq!(locked().await, 1);
    let done = post(&desk, "/_console/recover", "reason=cleaning+up").await.page(200);
    assert!(done.contains("<dt>Locked documents</dt><dd>0</dd>"), "{done}");
    assert_eq!(locked().await, 0);
}

#[tokio::test]
async fn form_of_another_site_changes_nothing() {
    let (desk, tid) = desk().await;
    let form = format!("tid={tid}&reason=attack");
    let typed = ("content-type", "application/x-www-form-urlencoded");
    let host = ("host", "localhost:9280");
    for headers in [
        &[typed, host][..],
        &[typed, host, ("origin", "https://evil.example")],
        &[typed, host, ("origin", "null")],
        &[typed, host, ("origin", "http://localhost:9280"), ("sec-fetch-site", "cross-site")],
        &[typed, host, ("sec-fetch-site", "same-site")],
    ] {
        for path in ["/_console/abort", "/_console/recover"] {
            let refused = desk.send(Method::POST, path, headers, form.clone()).await.page(403);
            assert!(refused.contains("<code>host</code>"), "{headers:?}: {refused}");
        }
    }
    // Pages of other sites can send these types, too.
    for content_type in ["text/plain", "multipart/form-data; boundary=a", ""] {
        let headers = [("content-type", content_type), ("sec-fetch-site", "same-origin")];
        desk.send(Method::POST, "/_console/abort", &headers, form.clone()).await.page(415);
    }
    // No other path takes forms.
    let taken = desk.send(Method::POST, "/stock/_doc/pear", &OWN, "n=1").await;
    assert_eq!(taken.status, 415);
    assert_eq!(verdict(&desk, tid).await, Verdict::Running);
    let own = [typed, host, ("origin", "http://localhost:9280")];
    desk.send(Method::POST, "/_console/abort", &own, form).await.page(200);
    assert_eq!(verdict(&desk, tid).await, Verdict::Aborted);
}

#[tokio::test]
async fn no_get_changes_anything() {
    let (desk, tid) = desk().await;
    for path in [
        format!("/_console/abort?tid={tid}&reason=x"),
        format!("/_console/abort?tid={tid}"),
        "/_console/recover?reason=x".to_owned(),
        "/_console/recover".to_owned(),
    ] {
        for method in [Method::GET, Method::HEAD] {
            desk.send(method, &path, &OWN, "").await;
        }
    }
    assert_eq!(verdict(&desk, tid).await, Verdict::Running);
    // The parameters of a form stand in its body alone.
    let path = format!("/_console/abort?tid={tid}&reason=x");
    post(&desk, &path, "").await.page(400);
    post(&desk, &path, &format!("tid={tid}&reason=x")).await.page(400);
    assert_eq!(verdict(&desk, tid).await, Verdict::Running);
}

#[tokio::test]
async fn actions_need_a_right_of_their_own() {
    let mut file = File::new();
    let viewer = file.add("viewer", &[], &["operate"]);
    let blind = file.add("blind", &[], &["act"]);
    let operator = file.add("operator", &[], &["operate", "act"]);
    let config = ServeConfig::default().with_tokens(Some(file.open()));
    let desk = Desk::with(Arc::new(MemoryStore::new()), config).await;
    desk.domain.create_collection::<Raw>("stock", None).await.expect("creates");
    let (tx, tid) = holder(&desk.domain, "apple", "checkout").await;
    let form = format!("tid={tid}&reason=hung");
    let send = async |token: &str| {
        let login = format!("Bearer {token}");
        let headers = [OWN[0], OWN[1], ("authorization", &login)];
        desk.send(Method::POST, "/_console/abort", &headers, form.clone()).await
    };
    let story = format!("/_console/transaction?tid={tid}");
    let get =
        async |token: &str, path: &str| ask(&desk, token, Method::GET, path, &Value::Null).await;
    for (token, verb) in [(&viewer, "act"), (&blind, "operate")] {
        let refused = send(token).await.page(403);
        assert!(refused.contains(&format!("no right <code>{verb}</code>")), "{refused}");
        for path in [format!("/_console/abort?tid={tid}"), "/_console/recover".to_owned()] {
            get(token, &path).await.page(403);
        }
    }
    post(&desk, "/_console/abort", &form).await.page(401);
    assert_eq!(verdict(&desk, tid).await, Verdict::Running);
    assert!(!get(&viewer, &story).await.page(200).contains("Abort this transaction"));
    assert!(get(&operator, &story).await.page(200).contains("Abort this transaction"));
    send(&operator).await.page(200);
    let report = desk.domain.admin().transaction(tid, 10).await.expect("a report");
    let because = report.record.and_then(|record| record.aborted_because).expect("a reason");
    assert!(because.ends_with("hung (operator)"), "{because}");
    drop(tx);
}
