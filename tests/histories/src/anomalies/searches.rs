//! The guarantees of searches, on servers only, with a plain client.
//!
//! The index of these schedules is refreshed only on request, so that the visible content is
//! certain.

use serde_json::{Value, json};
use txn_core::{Options, WaitFor};
use txn_fixtures::plain_client::PlainClient;

use crate::fixture::Fixture;

/// Searches of a plain client.
#[derive(Debug)]
pub struct Searches<'a> {
    plain: &'a PlainClient,
    index: &'a str,
}

impl<'a> Searches<'a> {
    /// Searches of an index.
    #[must_use]
    pub fn new(plain: &'a PlainClient, index: &'a str) -> Self {
        Self { plain, index }
    }

    /// The body of an index that is refreshed only on demand.
    #[must_use]
    pub fn index_body() -> Value {
        json!({
            "settings": {"number_of_shards": 1, "number_of_replicas": 0, "refresh_interval": -1},
            "mappings": {"properties": {"n": {"type": "long"}}}
        })
    }

    async fn refresh(&self) {
        self.plain.ok("POST", &format!("/{}/_refresh", self.index), None).await;
    }

    /// The id and number of each found document, ordered by id.
    async fn find(&self, target: &str, query: Value) -> Vec<(String, Option<i64>)> {
        let body = json!({"size": 100, "query": query}).to_string();
        let answer = self.plain.ok("POST", &format!("/{target}/_search"), Some(body)).await;
        let hits = answer["hits"]["hits"].as_array().expect("a list");
        let mut found: Vec<_> = hits
            .iter()
            .map(|hit| {
                (hit["_id"].as_str().expect("an id").to_owned(), hit["_source"]["n"].as_i64())
            })
            .collect();
        found.sort();
        found
    }

    /// All documents.
    async fn all(&self) -> Vec<(String, Option<i64>)> {
        self.find(self.index, json!({"match_all": {}})).await
    }

    /// The documents with at least this number.
    async fn at_least(&self, n: i64) -> Vec<(String, Option<i64>)> {
        self.find(self.index, json!({"range": {"n": {"gte": n}}})).await
    }
}

fn documents(expected: &[(&str, i64)]) -> Vec<(String, Option<i64>)> {
    expected.iter().map(|(id, n)| ((*id).to_owned(), Some(*n))).collect()
}

/// A search during locks shows committed content, also after a rollback.
pub async fn a_search_sees_only_what_was_committed(fixture: &Fixture, search: &Searches<'_>) {
    fixture.put(&[("x", 10), ("y", 20)]).await;
    search.refresh().await;
    let before = documents(&[("x", 10), ("y", 20)]);
    assert_eq!(search.all().await, before);
    let writer = fixture.a.begin_locking();
    assert_eq!((writer.get("x").await, writer.get("y").await), (Some(10), Some(20)));
    writer.put("x", 11);
    writer.delete("y");
    search.refresh().await;
    assert_eq!(search.all().await, before, "locked, and nothing else");
    writer.rollback().await;
    search.refresh().await;
    assert_eq!(search.all().await, before);
}

/// A search may miss a commit until a later refresh.
///
/// The commit has to be applied before the refresh.
///
/// `WaitFor::Refresh` waits for the apply and the refresh.
pub async fn a_search_may_miss_what_was_just_committed(fixture: &Fixture, search: &Searches<'_>) {
    fixture.put(&[("x", 10), ("y", 20)]).await;
    search.refresh().await;
    fixture.gate.close();
    let writer = fixture.a.begin();
    writer.put("x", 11);
    writer.put("y", 21);
    writer.commits().await;
    fixture.gate.reached().await;
    search.refresh().await;
    assert_eq!(search.all().await, documents(&[("x", 10), ("y", 20)]), "not applied");
    assert_eq!(fixture.b.look(&["x", "y"]).await, [Some(11), Some(21)], "a reader sees it");
    fixture.gate.open();
    let applied = Options::default().with_wait_for(WaitFor::Apply);
    let next = fixture.a.begin_with(&applied);
    next.put("x", 12);
    next.put("y", 22);
    next.commits().await;
    assert_eq!(search.all().await, documents(&[("x", 10), ("y", 20)]), "not refreshed");
    let searchable = Options::default().with_wait_for(WaitFor::Refresh);
    let last = fixture.b.begin_with(&searchable);
    last.put("x", 13);
    last.insert("z", 33);
    last.commits().await;
    assert_eq!(search.all().await, documents(&[("x", 13), ("y", 22), ("z", 33)]));
}

/// A search within a transaction is not validated.
///
/// Two transactions search for the same content. Each inserts a document that the other would have
/// found, and both commit. If both read and write a guard document, one of them is refused.
pub async fn a_phantom_is_possible_and_a_guard_prevents_it(
    fixture: &Fixture,
    search: &Searches<'_>,
) {
    fixture.put(&[("guard", 0)]).await;
    search.refresh().await;
    let (first, second) = (fixture.a.begin(), fixture.b.begin());
    for (session, id) in [(&first, "p"), (&second, "q")] {
        assert_eq!(search.at_least(30).await, []);
        session.insert(id, 30);
    }
    first.commits().await;
    second.commits().await;
    assert_eq!(fixture.state(&["p", "q"]).await, [Some(30), Some(30)], "the phantom");

    let (first, second) = (fixture.a.begin(), fixture.b.begin());
    for (session, id) in [(&first, "r"), (&second, "s")] {
        let turn = session.get("guard").await.expect("exists");
        assert_eq!(search.at_least(40).await, []);
        session.put("guard", turn + 1);
        session.insert(id, 40);
    }
    first.commits().await;
    second.conflicts().await;
    assert_eq!(fixture.state(&["r", "s", "guard"]).await, [Some(40), None, Some(1)]);
}

/// Searches find the lock of an absent document, a document without content.
///
/// Queries of the alias of committed documents, and of any field, do not find it.
pub async fn a_placeholder_is_hidden_by_the_alias(fixture: &Fixture, search: &Searches<'_>) {
    fixture.put(&[("x", 10)]).await;
    let writer = fixture.a.begin_locking();
    assert_eq!(writer.get("new").await, None);
    writer.insert("new", 30);
    search.refresh().await;
    let placeholder = vec![("new".to_owned(), None), ("x".to_owned(), Some(10))];
    assert_eq!(search.all().await, placeholder);
    let committed = format!("{}-committed", search.index);
    let all = || json!({"match_all": {}});
    assert_eq!(search.find(&committed, all()).await, documents(&[("x", 10)]));
    assert_eq!(search.at_least(0).await, documents(&[("x", 10)]));
    writer.rollback().await;
    search.refresh().await;
    assert_eq!(search.all().await, documents(&[("x", 10)]));
}
