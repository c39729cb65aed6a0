//! The pages of the console.

use std::sync::Arc;
use std::time::Duration;

use hyper::Method;
use serde_json::{Value, json};
use txn_core::store::{MemoryStore, Store};
use txn_core::{AttemptId, Domain, LockMode, Options, Raw, Transaction};
use txn_serve::ServeConfig;

use super::access::{File, ask, lacks};
use super::desk::{Answer, Desk, add, config};

/// The pages without parameters.
pub(crate) const PAGES: [&str; 8] = [
    "/_console",
    "/_console/transactions",
    "/_console/stuck",
    "/_console/waits",
    "/_console/documents",
    "/_console/processes",
    "/_console/partitions",
    "/_console/recover",
];

/// An id that is a script on a page without escapes.
const HOSTILE: &str = "<script>alert(1)</script>\"'&\u{202e}";

impl Answer {
    /// Checks the status and form of a page, and returns its text.
    #[track_caller]
    pub(crate) fn page(self, status: u16) -> String {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        assert_eq!(self.header("content-type"), "text/html; charset=utf-8");
        let policy = self.header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'; style-src 'self';"), "{policy}");
        assert!(policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"));
        assert_eq!(self.header("x-content-type-options"), "nosniff");
        assert_eq!(self.header("cache-control"), "no-store");
        let text = self.text;
        for part in
            ["<!DOCTYPE html>", "<html lang=\"en\">", "<main", "<header>", "<nav", "</title><link "]
        {
            assert_eq!(text.matches(part).count(), 1, "{part}: {text}");
        }
        for inline in ["<script", " style=", " onclick=", "javascript:", "\u{202e}"] {
            assert!(!text.contains(inline), "{inline}: {text}");
        }
        text
    }
}

/// A transaction that locks a document, with its tid.
pub(crate) async fn holder(domain: &Domain, id: &str, label: &str) -> (Transaction, AttemptId) {
    let stock = domain.collection::<Raw>("stock").await.expect("opens");
    let options =
        Options::default().with_lock_mode(LockMode::AtRead).with_own_record(true).with_label(label);
    let tx = domain.begin(&options).expect("begins");
    tx.get(&stock, id).await.expect("locks");
    let tid = tx.tid().expect("has its own record");
    (tx, tid)
}

#[tokio::test]
async fn each_page_answers_on_an_empty_domain() {
    let desk = Desk::memory().await;
    for path in PAGES {
        let text = desk.get(path).await.page(200);
        assert!(text.contains("<h1>") && text.contains("· shop · txn</title>"), "{text}");
        assert!(text.contains(&format!("href=\"{path}\" aria-current=\"page\"")), "{path}: {text}");
    }
    let style = desk.get("/_console/style.css?v=0").await;
    assert_eq!(style.header("content-type"), "text/css; charset=utf-8");
    assert!(style.status.is_success() && style.text.contains("prefers-color-scheme: dark"));
}

#[tokio::test]
async fn pages_show_holders_and_their_locks() {
    let desk = Desk::memory().await;
    desk.put("/stock/_doc/apple", &json!({ "secret_field": 17 })).await.is(201);
    let (tx, tid) = holder(&desk.domain, "apple", "checkout").await;
    let story = format!("/_console/transaction?tid={tid}");
    let link = format!("href=\"{story}\"");
    for path in ["/_console", "/_console/transactions", "/_console/documents"] {
        let text = desk.get(path).await.page(200);
        assert!(text.contains(&link), "{path}: {text}");
        assert!(!text.contains("secret_field"), "{text}");
    }
    let text = desk.get(&story).await.page(200);
    let document = "/_console/document?collection=stock&amp;id=apple";
    assert!(text.contains(">running<") && text.contains(document), "{text}");
    assert!(text.contains("Abort this transaction"), "{text}");
    let text = desk.get("/_console/document?collection=stock&id=apple").await.page(200);
    assert!(text.contains(&link) && text.contains("undecided") && !text.contains("secret_field"));
    let open = |text: &str| text.contains(&link);
    let list =
        async |query: &str| desk.get(&format!("/_console/transactions?{query}")).await.page(200);
    assert!(open(&list("state=&older=&label=").await));
    assert!(!open(&list("older=3600").await));
    let committed = list("state=committed&label=").await;
    assert!(!open(&committed) && committed.contains("value=\"committed\" selected"));
    tx.rollback().await;
    assert!(!open(&desk.get("/_console").await.page(200)));
}

#[tokio::test]
async fn present_waits_have_a_picture() {
    let desk = Desk::memory().await;
    desk.put("/stock/_doc/apple", &json!({ "n": 1 })).await.is(201);
    let (tx, tid) = holder(&desk.domain, "apple", "checkout").await;
    let domain = desk.domain.clone();
    let waiting = tokio::spawn(async move {
        let desk = Desk::of(domain, ServeConfig::default());
        desk.post("/_txn", &json!({ "operations": [add("stock", "apple", 1)] })).await
    });
    // The engine announces the wait after its first attempt to lock.
    while desk.domain.admin().present_waits(1).is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let text = desk.get("/_console/waits").await.page(200);
    for part in [
        "<title id=\"graph-title\">Who waits for whom</title>",
        "Transactions: 2. Present waits: 1. Ended waits: 0.",
        "class=\"node waiter\"",
        "class=\"node holder\"",
        "stock/apple",
        "checkout",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.contains(&format!("/_console/transaction?tid={tid}")), "{text}");
    assert!(
        desk.get("/_console")
            .await
            .page(200)
            .contains("<span class=\"value\">1</span><span class=\"name\">Waits in this gateway")
    );
    tx.rollback().await;
    waiting.await.expect("answers").is(200);
    assert!(desk.domain.admin().present_waits(1).is_empty());
    let text = desk.get("/_console/waits").await.page(200);
    assert!(text.contains("Present waits: 0. Ended waits: 1."), "{text}");
    let hot = desk.get("/_console/documents").await.page(200);
    assert!(hot.contains("aria-label=\"Hot documents\""), "{hot}");
}

#[tokio::test]
async fn hostile_names_are_escaped() {
    let desk = Desk::memory().await;
    let target = json!({ "collection": "stock", "id": HOSTILE });
    let put = json!({ "operations": [{ "put": { "target": target, "document": {} } }] });
    desk.post("/_txn", &put).await.is(200);
    let (tx, tid) = holder(&desk.domain, HOSTILE, "checkout").await;
    let escaped = "&lt;script&gt;alert(1)&lt;/script&gt;";
    let id = "%3Cscript%3Ealert(1)%3C/script%3E%22'%26%E2%80%AE";
    for path in [
        "/_console/documents".to_owned(),
        format!("/_console/transaction?tid={tid}"),
        format!("/_console/abort?tid={tid}"),
        format!("/_console/document?collection=stock&id={id}"),
    ] {
        let text = desk.get(&path).await.page(200);
        assert!(text.contains(escaped), "{path}: {text}");
    }
    // A query of the caller comes back in the links that refresh the page, and in the form.
    let label = id.trim_end_matches("%E2%80%AE");
    let list = desk.get(&format!("/_console/transactions?label={label}")).await.page(200);
    assert!(list.contains("&lt;script&gt;"), "{list}");
    for (path, status) in [
        (format!("/_console/document?collection={id}&id=a"), 404),
        (format!("/_console/transaction?tid={id}"), 400),
        (format!("/_console/{id}"), 404),
        (format!("/_console?{id}=1"), 400),
        (format!("/_console/transactions?state={id}"), 400),
    ] {
        desk.get(&path).await.page(status);
    }
    tx.rollback().await;
}

#[tokio::test]
async fn page_refreshes_itself_only_if_asked() {
    let desk = Desk::memory().await;
    let path = "/_console/transactions?label=a%26b";
    let text = desk.get(path).await.page(200);
    assert!(!text.contains("http-equiv"), "{text}");
    let again = "/_console/transactions?label=a%26b&amp;refresh=5";
    assert!(text.contains(&format!("href=\"{again}\"")), "{text}");
    let text = desk.get(&again.replace("&amp;", "&")).await.page(200);
    assert!(text.contains("<meta http-equiv=\"refresh\" content=\"5\">"), "{text}");
    assert!(text.contains(&format!("href=\"{path}\">Stop")), "{text}");
    assert!(text.contains("href=\"/_console/waits?refresh=5\""), "{text}");
    for bad in ["0", "1", "3601", "x", ""] {
        desk.get(&format!("/_console?refresh={bad}")).await.page(400);
    }
}

#[tokio::test(start_paused = true)]
async fn requests_of_the_gateway_are_drawn() {
    let desk = Desk::memory().await;
    let socket = desk.listen().await;
    for _ in 0..2 {
        for n in 0..10 {
            desk.put(&format!("/stock/_doc/{n}"), &json!({})).await;
            desk.get("/stock/_doc/none").await.is(404);
            // The look of an operator must not change the plots.
            desk.get("/_console").await.page(200);
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    // The sample ends at the same moment as the pause.
    tokio::time::sleep(Duration::from_millis(1)).await;
    let text = desk.get("/_console").await.page(200);
    for part in ["Requests: last 4, highest 4<", "Commits: last 2, highest 2<", "Failures: last 0"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.contains("<path class=\"line second\" d=\"M"), "{text}");
    socket.stop.send(()).expect("serves");
    assert!(socket.served.await.expect("no panic"), "all tasks have ended");
}

#[tokio::test]
async fn errors_are_pages() {
    let desk = Desk::memory().await;
    for (method, path, status, code) in [
        (Method::GET, "/_console/", 404, "not_found"),
        (Method::GET, "/_console/other", 404, "not_found"),
        (Method::POST, "/_console", 405, "method"),
        (Method::DELETE, "/_console/abort", 405, "method"),
        (Method::GET, "/_console/transaction", 400, "invalid"),
        (Method::GET, "/_console/document?collection=stock", 400, "invalid"),
        (Method::GET, "/_console/document?collection=none&id=a", 404, "no_collection"),
        (Method::GET, "/_console/waits?limit=0", 400, "invalid"),
        (Method::GET, "/_console/stuck?other=1", 400, "unsupported"),
    ] {
        let text = desk.send(method, path, &[], "").await.page(status);
        assert!(text.contains(&format!("Code: <code>{code}</code>")), "{path}: {text}");
    }
}

#[tokio::test]
async fn unreadable_parts_are_on_the_page() {
    let store = Arc::new(MemoryStore::new());
    let domain = Domain::open_or_create(store.clone(), "shop", config()).await.expect("opens");
    for name in ["stock", "lost"] {
        domain.create_collection::<Raw>(name, None).await.expect("creates");
    }
    let desk = Desk::of(domain, ServeConfig::default());
    assert!(!desk.get("/_console").await.page(200).contains("may not be complete"));
    store.drop_collection("lost").await.expect("drops");
    for path in
        PAGES.iter().filter(|path| !["/_console/waits", "/_console/processes"].contains(path))
    {
        let text = desk.get(path).await.page(200);
        let told = if *path == "/_console/stuck" { "not well" } else { "may not be complete" };
        let told = if *path == "/_console/recover" { "Faults" } else { told };
        assert!(text.contains(told) && text.contains("lost"), "{path}: {text}");
    }
}

#[tokio::test]
async fn browser_logs_in_with_name_and_token() {
    let mut file = File::new();
    let token = file.add("ops", &[], &["operate"]);
    let other = file.add("shop", &["*"], &["read", "write", "pass-reads"]);
    let tokens = ServeConfig::default().with_tokens(Some(file.open()));
    let desk = Desk::with(Arc::new(MemoryStore::new()), tokens).await;
    for path in PAGES.iter().chain(&["/_console/none"]) {
        let refused = desk.get(path).await;
        let scheme = "Basic realm=\"txn console\", charset=\"UTF-8\"";
        assert_eq!(refused.header("www-authenticate"), scheme, "{path}");
        assert!(refused.page(401).contains("<code>login</code>"), "{path}");
    }
    assert_eq!(desk.get("/_txn").await.header("www-authenticate"), "Bearer realm=\"txn\"");
    // The page of the refusal has its style.
    assert!(desk.get("/_console/style.css").await.status.is_success());
    let basic = |pair: String| {
        use base64::Engine;
        format!("Basic {}", base64::prelude::BASE64_STANDARD.encode(pair))
    };
    let login = basic(format!("ops:{token}"));
    let text =
        desk.send(Method::GET, "/_console", &[("authorization", &login)], "").await.page(200);
    assert!(text.contains("Token <b>ops</b>") && !text.contains(&token), "{text}");
    assert!(!text.contains("/_console/recover"), "the action needs another right");
    let wrong = basic(format!("shop:{token}"));
    desk.send(Method::GET, "/_console", &[("authorization", &wrong)], "").await.page(401);
    for path in PAGES {
        let text = ask(&desk, &other, Method::GET, path, &Value::Null).await.page(403);
        assert!(text.contains("no right <code>operate</code>"), "{path}: {text}");
    }
    lacks(ask(&desk, &other, Method::GET, "/_txn", &Value::Null).await, "operate", None);
}
