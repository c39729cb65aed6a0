//! Scenarios for every store, each an `async fn(&World)`.
#![allow(dead_code, unused_imports, unused_macros, reason = "each suite uses a part of it")]

mod dependents;
mod hostile;
mod outbox;
mod timers;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use txn_core::store::Store;
use txn_core::{Collection, CommitVersion, Config, Domain, Error, Raw, Typed};
use txn_fixtures::process::Process;
use txn_requests::{
    Heartbeat, Operation, Reason, Request, RequestError, Requests, RequestsConfig, Selection,
    State, Stuck, Target, Why,
};

pub(crate) use dependents::*;
pub(crate) use hostile::*;
pub(crate) use outbox::*;
pub(crate) use timers::*;

/// Passes all scenarios to a macro that declares them as tests.
macro_rules! all {
    ($($on:ident)::+) => {
        $($on)::+! {
            a_request_goes_through_its_states;
            a_request_under_one_id_happens_once;
            operations_do_what_they_say;
            a_refused_request_rolls_back_with_its_reason;
            uncommitted_is_cancelled_and_committed_reversed;
            failing_request_is_quarantined;
            request_is_not_executed_before_its_time;
            far_requests_are_not_read;
            request_is_validated_before_the_first_write;
            a_newer_format_is_refused_by_name;
            requests_happen_once_despite_kills;
            paused_processor_repeats_no_effect;
            events_of_a_request_commit_atomically;
            waiting_request_delays_no_other_request;
            requests_cannot_change_protected_collections;
            purge_includes_the_keys_of_the_outbox;
            events_without_an_outbox_are_refused;
            impossible_events_are_refused;
            requests_of_the_previous_format_are_executed;
            request_emits_once_despite_kills;
            updates_follow_their_write;
            failed_condition_writes_nothing;
            updates_of_a_document_keep_their_order;
            updates_happen_once_despite_kills;
            failing_update_delays_its_own_document_only;
            patch_that_multiplies_a_document_is_refused;
            request_that_kills_processes_is_quarantined;
            panic_counts_as_a_failure;
            unreadable_request_delays_no_other_request;
            requests_differ_to_the_last_digit;
        }
    };
}
pub(crate) use all;

/// The bound of a wait that must succeed. Long, because test machines are slow.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A store, and the name of a domain in the store.
pub(crate) struct World {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) name: String,
    /// Short enough to wait for. Long enough to renew on a busy machine.
    pub(crate) lease: Duration,
}

impl World {
    pub(crate) async fn domain(&self) -> Domain {
        let config = Config::default().with_janitor_interval(None).with_timeout(PATIENCE);
        Domain::open_or_create(self.store.clone(), &self.name, config).await.expect("opens")
    }

    pub(crate) fn accounts_name(&self) -> String {
        format!("{}-accounts", self.name)
    }

    pub(crate) async fn accounts(&self, domain: &Domain) -> Collection<Typed<Value>> {
        // Servers map a new field by its first value, and refuse numbers that a `long` cannot hold.
        let mapping = Some(r#"{"dynamic":false}"#);
        domain.create_collection(&self.accounts_name(), mapping).await.expect("opens")
    }

    /// Requests with their own domain, like those of another process.
    pub(crate) async fn requests(&self) -> Requests {
        let domain = self.domain().await;
        self.accounts(&domain).await;
        Requests::open(&domain, self.config()).await.expect("opens")
    }

    pub(crate) fn config(&self) -> RequestsConfig {
        RequestsConfig::default()
            .with_lease(self.lease)
            .with_recover_after(Duration::ZERO)
            .with_poll(Duration::from_millis(50))
            .with_recover_every(Duration::from_millis(500))
            // Tests pause their processes, and a paused process must miss its heartbeats.
            .with_heartbeat(Heartbeat::CallersRuntime)
    }

    pub(crate) async fn fund(&self, accounts: &[(&str, i64)]) -> Domain {
        let domain = self.domain().await;
        let collection = self.accounts(&domain).await;
        domain
            .transact::<_, Error, _>(async |tx| {
                for (account, balance) in accounts {
                    tx.put(&collection, *account, &json!({"balance": balance, "owner": account}))?;
                }
                Ok(())
            })
            .await
            .expect("funded");
        domain
    }

    pub(crate) async fn read(&self, domain: &Domain, id: &str) -> Option<Value> {
        let accounts = self.accounts(domain).await;
        domain.reader().verified().get(&accounts, id).await.expect("reads")
    }

    pub(crate) async fn balance(&self, domain: &Domain, id: &str) -> i64 {
        let account = self.read(domain, id).await.expect("exists");
        account["balance"].as_i64().expect("a number")
    }

    pub(crate) fn target(&self, id: &str) -> Target {
        Target::new(self.accounts_name(), id)
    }

    pub(crate) fn transfer(&self, from: &str, to: &str, amount: i64) -> Request {
        Request::new(vec![
            Operation::add_down_to(self.target(from), "/balance", -amount, 0),
            Operation::add_down_to(self.target(to), "/balance", amount, 0),
        ])
    }

    /// A request from JSON. `C` is the collection of the accounts.
    pub(crate) fn parse(&self, operations: Value) -> Request {
        let text = json!({"operations": operations}).to_string();
        let named = format!("{:?}", self.accounts_name());
        serde_json::from_str(&text.replace("\"C\"", &named)).expect("a request")
    }
}

pub(crate) async fn a_request_goes_through_its_states(world: &World) {
    let domain = world.fund(&[("alice", 100), ("bob", 0)]).await;
    let requests = world.requests().await;
    let rent = world
        .transfer("alice", "bob", 30)
        .with_application_name("rent")
        .with_metadata(json!({"month": 5}));
    let created = requests.submit(&rent, "rent-may").await.expect("stored");
    assert_eq!((created.state, created.times.pending_ms), (State::Created, None));
    assert_eq!(world.balance(&domain, "alice").await, 100, "nothing happened yet");
    let error =
        requests.wait("rent-may", Duration::from_millis(20)).await.expect_err("it is not taken");
    assert!(matches!(error, RequestError::Timeout { state: State::Created, .. }), "{error}");
    // Another process than that of the submission.
    let other = world.requests().await;
    assert_eq!(other.process_open(Some("food")).await.expect("looks").committed, 0);
    assert_eq!(other.process_open(Some("rent")).await.expect("looks").committed, 1);
    let status = requests.wait("rent-may", PATIENCE).await.expect("decided");
    assert!(status.state.is_committed());
    assert_eq!(
        [world.balance(&domain, "alice").await, world.balance(&domain, "bob").await],
        [70, 30]
    );
    other.recover(None).await.expect("looks");
    let status = requests.status("rent-may").await.expect("known");
    assert_eq!(status.state, State::Finished);
    let times = status.times;
    let of = |time: Option<u64>| time.expect("it has a time");
    assert!(
        times.created_ms <= of(times.pending_ms) && of(times.pending_ms) <= of(times.committed_ms)
    );
    assert!(of(times.committed_ms) <= of(times.finished_ms));
    assert_eq!((times.terminating_ms, times.rolled_back_ms), (None, None));
    assert_eq!(status.request, rent);
    let version: CommitVersion = status.commit_version.expect("it is committed");
    let accounts = world.accounts(&domain).await;
    let written = domain.reader().verified().read(&accounts, "alice").await.expect("reads");
    assert_eq!(written.commit_version(), Some(version));
    let listed = requests
        .list(
            &Selection::default()
                .with_states([State::Finished])
                .with_application_name(Some("rent")),
        )
        .await
        .expect("lists");
    assert_eq!(listed, [status]);
    let others = Selection::default().with_application_name(Some("food"));
    assert!(requests.list(&others).await.expect("lists").is_empty());
    assert_eq!(requests.purge(Duration::from_secs(3600)).await.expect("looks").requests, 0);
    assert_eq!(requests.purge(Duration::ZERO).await.expect("purges").requests, 1);
    let gone = requests.status("rent-may").await.expect_err("gone");
    assert!(matches!(gone, RequestError::NotFound(_)), "{gone}");
}

pub(crate) async fn a_request_under_one_id_happens_once(world: &World) {
    let domain = world.fund(&[("alice", 100), ("bob", 0)]).await;
    let requests = world.requests().await;
    let transfer = world.transfer("alice", "bob", 10);
    for _ in 0..2 {
        requests.submit(&transfer, "a").await.expect("the same one");
    }
    // Each `execute` brings an earlier submission to its end.
    let executed = requests.execute(&transfer, "a").await.expect("done");
    assert!(executed.state.is_committed(), "{executed:?}");
    for _ in 0..2 {
        assert!(requests.execute(&transfer, "a").await.expect("done").state.is_committed());
        assert!(requests.submit(&transfer, "a").await.expect("done").state.is_committed());
        assert!(requests.execute(&transfer, "b").await.expect("done").state.is_committed());
    }
    assert_eq!(requests.process_open(None).await.expect("looks").committed, 0);
    assert_eq!(world.balance(&domain, "bob").await, 20);
    let other = world.transfer("alice", "bob", 11);
    for refused in [requests.submit(&other, "a").await, requests.execute(&other, "a").await] {
        assert!(matches!(refused, Err(RequestError::IdReused(id)) if id == "a"));
    }
    assert_eq!(world.balance(&domain, "bob").await, 20);
    assert!(requests.shutdown(PATIENCE).await);
}

pub(crate) async fn operations_do_what_they_say(world: &World) {
    let domain = world.fund(&[("alice", 100), ("bob", 5)]).await;
    let requests = world.requests().await;
    let alice = json!({"collection": "C", "id": "alice"});
    let carol = json!({"collection": "C", "id": "carol"});
    let all = world.parse(json!([
        {"expect": {"target": alice, "that": {"exists": true}}},
        {"expect": {"target": carol, "that": {"exists": false}}},
        {"expect": {"target": alice, "that": {"field": {"path": "/owner", "equals": "alice"}}}},
        {"expect": {"target": alice, "that": {"field": {"path": "/closed", "equals": null}}}},
        {"add": {"target": alice, "path": "/balance", "amount": -40, "min": 60, "max": 60}},
        // Each operation sees the effects of the earlier ones.
        {"add": {"target": alice, "path": "/balance", "amount": 1}},
        {"merge": {"target": alice, "patch": {"owner": null, "tags": {"a": 1}}}},
        {"patch": {"target": alice, "patch": [
            {"op": "test", "path": "/tags/a", "value": 1}, {"op": "add", "path": "/tags/b", "value": [2]}]}},
        {"insert": {"target": carol, "document": {"balance": 1.5}}},
        {"add": {"target": carol, "path": "/balance", "amount": 1}},
        {"delete": {"collection": "C", "id": "bob"}},
        {"delete": {"collection": "C", "id": "stranger"}},
    ]));
    let done = requests.execute(&all, "all").await.expect("done");
    assert!(done.state.is_committed());
    let tags = json!({"a": 1, "b": [2]});
    assert_eq!(world.read(&domain, "alice").await, Some(json!({"balance": 61, "tags": tags})));
    assert_eq!(world.read(&domain, "carol").await, Some(json!({"balance": 2.5})));
    assert_eq!(world.read(&domain, "bob").await, None);

    let accounts = world.accounts(&domain).await;
    let version =
        domain.reader().verified().read(&accounts, "alice").await.expect("reads").commit_version();
    let version = version.expect("a transaction wrote it").to_string();
    let expect_version =
        |version: &str| json!({"expect": {"target": alice, "that": {"version": version}}});
    let touched = world.parse(json!([
        expect_version(&version), {"merge": {"target": alice, "patch": {"seen": true}}}]));
    requests.execute(&touched, "touched").await.expect("it did not change since");
    // Each refusal has the operation and the current content.
    let before = world.read(&domain, "alice").await;
    let add = |path: &str, amount: Value, min: Value, max: Value| json!({"add": {"target": alice, "path": path, "amount": amount, "min": min, "max": max}});
    let none = Value::Null;
    let refusals = [
        (add("/balance", json!(-62), json!(0), none.clone()), Why::BelowMinimum, Some(json!(61))),
        (add("/balance", json!(1), none.clone(), json!(61)), Why::AboveMaximum, Some(json!(61))),
        (
            json!({"add": {"target": {"collection": "C", "id": "bob"}, "path": "/x", "amount": 1}}),
            Why::Missing,
            None,
        ),
        (
            add("/tags", json!(1), none.clone(), none.clone()),
            Why::NotANumber,
            Some(json!({"a": 1, "b": [2]})),
        ),
        (add("/other", json!(1), none.clone(), none.clone()), Why::NotANumber, None),
        (json!({"insert": {"target": carol, "document": {}}}), Why::Exists, None),
        (
            json!({"merge": {"target": {"collection": "C", "id": "bob"}, "patch": {}}}),
            Why::Missing,
            None,
        ),
        (
            json!({"patch": {"target": alice, "patch": [{"op": "test", "path": "/balance", "value": 1}]}}),
            Why::PatchFails,
            Some(json!(61)),
        ),
        (
            json!({"patch": {"target": alice, "patch": [{"op": "replace", "path": "", "value": 1}]}}),
            Why::NoDocument,
            None,
        ),
        (json!({"expect": {"target": carol, "that": {"exists": false}}}), Why::Exists, None),
        (
            json!({"expect": {"target": alice, "that": {"field": {"path": "/balance", "equals": 1}}}}),
            Why::FieldDiffers,
            Some(json!(61)),
        ),
    ];
    for (at, (refused, why, current)) in refusals.into_iter().enumerate() {
        let both =
            world.parse(json!([add("/balance", json!(0), none.clone(), none.clone()), refused]));
        let error = requests.execute(&both, &format!("refused-{at}")).await.expect_err("refused");
        let RequestError::Refused(refusal) = error else { panic!("{at}: {error}") };
        assert_eq!((refusal.operation, refusal.why, &refusal.current), (1, why, &current), "{at}");
    }
    let stale = world.parse(json!([expect_version(&version)]));
    let error = requests.execute(&stale, "stale").await.expect_err("it was written since");
    let RequestError::Refused(refusal) = error else { panic!("{error}") };
    assert_eq!(refusal.why, Why::VersionDiffers);
    assert!(refusal.current.is_some() && refusal.current != Some(json!(version)));
    assert_eq!(world.read(&domain, "alice").await, before);
    // A refused request is not stored: its id is free.
    let free = requests.status("stale").await.expect_err("never stored");
    assert!(matches!(free, RequestError::NotFound(_)));
}

pub(crate) async fn a_refused_request_rolls_back_with_its_reason(world: &World) {
    let domain = world.fund(&[("alice", 7_654_321), ("bob", 0)]).await;
    let requests = world.requests().await;
    requests.submit(&world.transfer("alice", "bob", 7_654_322), "much").await.expect("stored");
    assert_eq!(requests.process_open(None).await.expect("looks").rolled_back, 1);
    let status = requests.wait("much", PATIENCE).await.expect("decided");
    assert_eq!(status.state, State::RolledBack);
    assert!(status.times.rolled_back_ms.is_some());
    let Some(Reason::Refused(refusal)) = &status.reason else { panic!("{status:?}") };
    assert_eq!((refusal.operation, refusal.why), (0, Why::BelowMinimum));
    assert_eq!(refusal.current, Some(json!(7_654_321)));
    assert!(
        !format!("{refusal} {refusal:?}").contains("7654321"),
        "a value of a document is told: {refusal}"
    );
    assert_eq!(world.balance(&domain, "bob").await, 0);
}

pub(crate) async fn uncommitted_is_cancelled_and_committed_reversed(world: &World) {
    let domain = world.fund(&[("alice", 100), ("bob", 0)]).await;
    let requests = world.requests().await;
    requests.submit(&world.transfer("alice", "bob", 1), "a").await.expect("stored");
    let cancelled = requests.cancel("a", "a mistake").await.expect("cancelled");
    assert_eq!(cancelled.state, State::RolledBack);
    assert_eq!(cancelled.reason, Some(Reason::Cancelled("a mistake".to_owned())));
    assert_eq!(requests.cancel("a", "again").await.expect("it is").reason, cancelled.reason);
    assert_eq!(requests.process_open(None).await.expect("looks").committed, 0);
    for error in [requests.reverse("a", "a-back").await, requests.release("a").await] {
        assert!(matches!(error, Err(RequestError::WrongState { state: State::RolledBack, .. })));
    }

    let carol = json!({"collection": "C", "id": "carol"});
    let bob = json!({"collection": "C", "id": "bob"});
    let mixed = world.parse(json!([
        {"insert": {"target": carol, "document": {"balance": 0}}},
        {"add": {"target": carol, "path": "/balance", "amount": 7}},
        {"merge": {"target": bob, "patch": {"owner": "robert"}}},
        {"add": {"target": {"collection": "C", "id": "alice"}, "path": "/balance", "amount": -30, "min": 0}},
    ]));
    requests.execute(&mixed, "b").await.expect("done");
    let error = requests.cancel("b", "too late").await.expect_err("it is committed");
    assert!(matches!(error, RequestError::WrongState { .. }), "{error}");
    // Other requests change the same account in the meantime. A reversal of a sum still succeeds.
    let fee = world.parse(json!([
        {"add": {"target": {"collection": "C", "id": "alice"}, "path": "/balance", "amount": -1}}]));
    requests.execute(&fee, "fee").await.expect("done");
    for _ in 0..2 {
        let reversal = requests.reverse("b", "b-back").await.expect("submitted");
        assert_eq!(reversal.reverses.as_deref(), Some("b"));
    }
    let error = requests.reverse("b", "b-other").await.expect_err("once only");
    assert!(matches!(error, RequestError::AlreadyReversed { by, .. } if by == "b-back"));
    let error = requests.reverse("b", "a").await.expect_err("another request");
    assert!(matches!(error, RequestError::IdReused(_)), "{error}");
    assert_eq!(requests.process_open(None).await.expect("looks").committed, 1);
    let error = requests.reverse("b", "b-other").await.expect_err("once only");
    assert!(matches!(error, RequestError::AlreadyReversed { .. }), "{error}");
    assert_eq!(world.balance(&domain, "alice").await, 99);
    assert_eq!(world.read(&domain, "carol").await, None);
    assert_eq!(world.read(&domain, "bob").await, Some(json!({"balance": 0, "owner": "bob"})));
    assert_eq!(requests.status("b").await.expect("known").reversed_by.as_deref(), Some("b-back"));

    // A reversal does not overwrite later writes of other requests.
    for (id, owner) in [("c", "x"), ("d", "y")] {
        let renamed = world.parse(json!([{"merge": {"target": bob, "patch": {"owner": owner}}}]));
        requests.execute(&renamed, id).await.expect("done");
    }
    requests.reverse("c", "c-back").await.expect("submitted");
    assert_eq!(requests.process_open(None).await.expect("looks").rolled_back, 1);
    let refused = requests.status("c-back").await.expect("known");
    let Some(Reason::Refused(refusal)) = refused.reason else { panic!("{refused:?}") };
    assert_eq!(refusal.why, Why::VersionDiffers);
    // A reversal that was rolled back does not count.
    requests.reverse("d", "d-back").await.expect("submitted");
    assert_eq!(requests.process_open(None).await.expect("looks").committed, 1);
    requests.reverse("c", "c-again").await.expect("submitted");
}

pub(crate) async fn failing_request_is_quarantined(world: &World) {
    let domain = world.fund(&[("alice", 1), ("bob", 0)]).await;
    let gone = format!("{}-gone", world.name);
    let collection = domain.create_collection::<Raw>(&gone, None).await.expect("opens");
    let requests =
        Requests::open(&domain, world.config().with_max_failures(1)).await.expect("opens");
    let doomed = Request::new(vec![
        Operation::add(world.target("alice"), "/balance", 5),
        Operation::Delete(Target::new(&gone, "x")),
        Operation::insert(
            Target::new(&gone, "y"),
            txn_requests::Document::parse("{}").expect("JSON"),
        ),
    ]);
    requests.submit(&doomed, "doomed").await.expect("stored");
    requests.submit(&world.transfer("alice", "bob", 1), "sound").await.expect("stored");
    world.store.drop_collection(collection.name()).await.expect("dropped");
    let tally = requests.process_open(None).await.expect("looks");
    assert_eq!((tally.quarantined, tally.committed), (1, 1), "it blocks the rest: {tally:?}");
    let status = requests.wait("doomed", PATIENCE).await.expect("settled");
    assert_eq!((status.state, status.failures), (State::Quarantined, 1));
    assert!(matches!(status.reason, Some(Reason::Failed(_))), "{status:?}");
    assert!(status.times.quarantined_ms.is_some());
    let stuck = requests.stuck(Duration::ZERO).await.expect("lists");
    let why = stuck.iter().find(|(status, _)| status.id == "doomed").map(|(_, why)| why.clone());
    assert!(matches!(why, Some(Stuck::Quarantined(Some(Reason::Failed(_))))), "{stuck:?}");
    let later = requests.stuck(Duration::from_secs(3600)).await.expect("lists");
    // Only an operator ends a quarantine, however young it is.
    assert_eq!(later.iter().map(|(status, _)| &*status.id).collect::<Vec<_>>(), ["doomed"]);
    let counts = requests.counts().await.expect("counts");
    assert_eq!((counts.count(State::Quarantined), counts.oldest_ms), (1, None));
    assert_eq!(requests.process_open(None).await.expect("looks"), txn_requests::Tally::default());
    // A released request is tried again. A request that was rolled back never is.
    assert_eq!(requests.release("doomed").await.expect("released").state, State::Created);
    assert_eq!(requests.process_open(None).await.expect("looks").quarantined, 1);
    assert_eq!(requests.cancel("doomed", "no use").await.expect("ends").state, State::RolledBack);
    assert_eq!(world.balance(&domain, "alice").await, 0);
}

pub(crate) async fn request_is_validated_before_the_first_write(world: &World) {
    let domain = world.fund(&[("alice", 100)]).await;
    let config = world.config().with_max_operations(3).with_max_bytes(2_000).with_max_open(2);
    let requests = Requests::open(&domain, config).await.expect("opens");
    let sound = json!({"add": {"target": {"collection": "C", "id": "alice"}, "path": "/balance", "amount": 1}});
    let target = json!({"collection": "C", "id": "alice"});
    let long = "x".repeat(2_000);
    for (at, unsound) in [
        json!([]),
        json!([sound, sound, sound, sound]),
        json!([sound, {"put": {"target": target, "document": {"a": long}}}]),
        json!([sound, {"put": {"target": target, "document": {"transaction_tid": "x"}}}]),
        json!([sound, {"put": {"target": target, "document": [1]}}]),
        json!([sound, {"merge": {"target": target, "patch": {"transaction_version": "x"}}}]),
        json!([sound, {"patch": {"target": target, "patch": [{"op": "remove", "path": "/transaction_version"}]}}]),
        json!([sound, {"patch": {"target": target, "patch": []}}]),
        json!([sound, {"add": {"target": target, "path": "balance", "amount": 1}}]),
        json!([sound, {"add": {"target": target, "path": "/balance", "amount": 1, "min": 2, "max": 1}}]),
        json!([sound, {"add": {"target": target, "path": "/balance", "amount": i64::MIN}}]),
        json!([sound, {"expect": {"target": target, "that": {"version": "yesterday"}}}]),
        json!([sound, {"delete": {"collection": "C", "id": ""}}]),
        json!([sound, {"delete": {"collection": "", "id": "x"}}]),
        json!([{"delete": {"collection": "txn-registry", "id": "x"}}]),
    ]
    .into_iter()
    .enumerate()
    {
        let request = world.parse(unsound);
        for refused in [requests.submit(&request, "x").await, requests.execute(&request, "x").await] {
            assert!(matches!(refused, Err(RequestError::Invalid(_))), "{at}: {refused:?}");
        }
    }
    let unknown =
        Request::new(vec![Operation::Delete(Target::new(format!("{}-no", world.name), "x"))]);
    let refused = requests.submit(&unknown, "x").await.expect_err("no such collection");
    assert!(matches!(refused, RequestError::Engine(_)), "{refused}");
    let one = world.parse(json!([sound]));
    for id in ["", "a\nb", &"x".repeat(257)] {
        let refused = requests.submit(&one, id).await.expect_err("no id");
        assert!(matches!(refused, RequestError::InvalidId(_)), "{refused}");
    }
    assert!(requests.list(&Selection::default()).await.expect("lists").is_empty());
    // The number of open requests reaches its limit.
    requests.submit(&one, "1").await.expect("there is room");
    requests.submit(&one, "2").await.expect("there is room");
    let refused = requests.submit(&one, "3").await.expect_err("there is none");
    assert!(matches!(refused, RequestError::Busy { open: 2, most: 2 }), "{refused}");
    requests.submit(&one, "1").await.expect("it is there already");
    requests.process_open(None).await.expect("looks");
    requests.submit(&one, "3").await.expect("there is room again");
    assert_eq!(world.balance(&domain, "alice").await, 102);
}

pub(crate) async fn a_newer_format_is_refused_by_name(world: &World) {
    let domain = world.fund(&[("alice", 1)]).await;
    let requests = world.requests().await;
    let raw = domain.collection::<Raw>(&domain.collection_name("requests")).await.expect("opens");
    let newer = Raw::new(r#"{"format":3,"id":"new","state":"created"}"#);
    domain.transact::<_, Error, _>(async |tx| tx.put(&raw, "new", &newer)).await.expect("written");
    let one = Request::new(vec![Operation::add(world.target("alice"), "/balance", 1)]);
    for refused in [
        requests.status("new").await,
        requests.submit(&one, "new").await,
        requests.execute(&one, "new").await,
        requests.cancel("new", "why").await,
        requests.reverse("new", "back").await,
    ] {
        assert!(
            matches!(&refused, Err(RequestError::NewerFormat { id, format: 3 }) if id == "new"),
            "{refused:?}"
        );
    }
    let refused = requests.list(&Selection::default()).await.expect_err("not all can be read");
    assert!(matches!(refused, RequestError::NewerFormat { .. }), "{refused}");
    // The unreadable request blocks no other request.
    requests.submit(&one, "old").await.expect("stored");
    assert_eq!(requests.process_open(None).await.expect("looks").committed, 1);
    requests.recover(None).await.expect("looks");
    let kept = domain.reader().verified().get(&raw, "new").await.expect("reads");
    assert!(kept == Some(newer), "it was changed");
}

/// Processors are killed at different moments.
///
/// Each request has one effect and one result.
pub(crate) async fn requests_happen_once_despite_kills(world: &World) {
    kills_at(world, &[0, 400, 900, 1_700, 3_000, 6_000, 12_000]).await;
}

pub(crate) async fn kills_at(world: &World, moments: &[u64]) {
    let domain = world.fund(&[("alice", 1_000), ("bob", 0)]).await;
    let client = world.requests().await;
    let mut submitted = 0;
    for moment in moments {
        for _ in 0..4 {
            let request = world.transfer("alice", "bob", 1);
            client.submit(&request, &format!("r{submitted}")).await.expect("stored");
            submitted += 1;
        }
        let process = Process::new();
        process
            .run(async {
                let requests = world.requests().await;
                let processor = requests.start(None);
                tokio::time::sleep(Duration::from_micros(*moment)).await;
                std::mem::forget((processor, requests));
            })
            .await;
        drop(process);
    }
    let survivor = world.requests().await;
    let processor = survivor.start(None);
    for at in 0..submitted {
        let status = survivor.wait(&format!("r{at}"), PATIENCE).await.expect("decided");
        assert!(status.state.is_committed(), "{status:?}");
    }
    let moved = [world.balance(&domain, "alice").await, world.balance(&domain, "bob").await];
    assert_eq!(moved, [1_000 - submitted, submitted], "each transfer happens once");
    // Requests that dead processors committed are marked as finished.
    let finished = Selection::default().with_states([State::Finished]);
    let until = std::time::Instant::now() + PATIENCE;
    while survivor.list(&finished).await.expect("lists").len()
        < usize::try_from(submitted).expect("few")
    {
        assert!(std::time::Instant::now() < until, "not all are finished");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(processor.stop(PATIENCE).await);
    assert!(survivor.shutdown(PATIENCE).await);
}

/// A processor that is paused during a request wakes after the takeover.
pub(crate) async fn paused_processor_repeats_no_effect(world: &World) {
    a_processor_is_paused(world, &[200, 800, 1_500, 2_500]).await;
}

pub(crate) async fn a_processor_is_paused(world: &World, moments: &[u64]) {
    let domain = world.fund(&[("alice", 100), ("bob", 0)]).await;
    let client = world.requests().await;
    let process = Process::new();
    let paused = process.run(async { world.requests().await }).await;
    for moment in moments {
        let id = format!("at-{moment}");
        client.submit(&world.transfer("alice", "bob", 1), &id).await.expect("stored");
        let processor = process
            .run(async {
                let processor = paused.start(None);
                tokio::time::sleep(Duration::from_micros(*moment)).await;
                processor
            })
            .await;
        // The processor is paused from here on, at any step.
        let other = world.requests().await;
        let others = other.start(None);
        let status = other.wait(&id, PATIENCE).await.expect("decided");
        assert!(status.state.is_committed(), "{status:?}");
        assert!(others.stop(PATIENCE).await && other.shutdown(PATIENCE).await);
        process.run(async { processor.stop(PATIENCE).await }).await;
    }
    let moved = i64::try_from(moments.len()).expect("few");
    assert_eq!(world.balance(&domain, "bob").await, moved);
}
