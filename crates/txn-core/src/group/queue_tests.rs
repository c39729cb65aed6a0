use std::collections::BTreeMap;

use tracing::Span;

use super::*;
use crate::attempt::AttemptMode;
use crate::config::{Config, Options};
use crate::engine::SharedEngine;
use txn_protocol::document::View;
use txn_protocol::rules::testing::tid;
use txn_store::MemoryStore;

/// A queue with its transactions by age: a smaller age is older.
struct Scene {
    engine: SharedEngine,
    queue: Queue,
    /// Keeps the channels of the waiting transactions open.
    replies: Vec<mpsc::UnboundedReceiver<CallerMessage>>,
    ages: BTreeMap<Age, u8>,
}

fn keys(ids: &str) -> BTreeSet<Key> {
    ids.chars().map(|id| Key::new("c", id.to_string())).collect()
}

impl Scene {
    fn new() -> Self {
        let engine = Engine::build(Arc::new(MemoryStore::new()), "d", Config::default());
        let engine = engine.expect("valid");
        Self { engine, queue: Queue::default(), replies: Vec::new(), ages: BTreeMap::new() }
    }

    /// A transaction that uses documents, each named by a letter.
    ///
    /// `left`: the time until its deadline.
    fn waiter(&mut self, age: u8, read: &str, written: &str, left: Duration) -> Waiter {
        let (engine, ends_at) = (self.engine.clone(), self.engine.context.now() + left);
        let mode = AttemptMode::default();
        let attempt =
            Attempt::begin(engine, tid(age, 0), Options::default(), mode, ends_at, &Span::none());
        self.ages.insert(attempt.tid.age(), age);
        let (reply_to, replies) = mpsc::unbounded_channel();
        self.replies.push(replies);
        let uses = Uses { read: keys(read), written: keys(written) };
        Waiter {
            attempt,
            attempts: AttemptNumbers::default(),
            collections: uses.collections(),
            uses,
            max_members: usize::MAX,
            returns: 0,
            waits_since: Duration::ZERO,
            passed_over: false,
            _wanted: None,
            membership: SharedMembership::default(),
            reply_to,
            runtime: Handle::current(),
            served_in: Handle::current().id(),
        }
    }

    fn enter(&mut self, age: u8, read: &str, written: &str) {
        let waiter = self.waiter(age, read, written, Duration::from_secs(60));
        self.queue.enter(waiter);
    }

    /// The members of the next group.
    fn take(&mut self) -> Vec<u8> {
        self.take_of("c")
    }

    /// The members of the next group of a collection.
    fn take_of(&mut self, collection: &str) -> Vec<u8> {
        let (here, now) = (Handle::current().id(), self.engine.context.now());
        let permit = GrantedPermit {
            collections: [Arc::from(collection)].into(),
            since: now,
            forming_in: Some(here),
        };
        self.queue.permits.insert(0, permit);
        let taken = self.queue.take_members(0, here, now, &self.engine);
        taken.iter().map(|(_, next)| self.ages[&next.age()]).collect()
    }

    /// These documents are acknowledged and applied.
    fn end(&mut self, read: &str, written: &str) {
        self.queue.free(&Uses { read: keys(read), written: keys(written) });
    }

    /// A queue with documents that are committed and not applied.
    fn with_handoffs(ids: &str) -> Self {
        let scene = Self::new();
        let views = keys(ids).into_iter().map(|key| (key, View::Absent)).collect();
        scene.engine.hot.handoffs.publish(views, 1);
        scene
    }
}

#[tokio::test]
async fn blocked_transaction_blocks_younger_ones() {
    let mut scene = Scene::new();
    scene.enter(1, "", "a");
    assert_eq!(scene.take(), [1]);
    scene.enter(2, "", "ab");
    scene.enter(3, "b", "c");
    scene.enter(4, "", "d");
    assert_eq!(scene.take(), [4]);
    scene.end("", "a");
    assert_eq!(scene.take(), [2, 3], "in their order");
}

#[tokio::test]
async fn transactions_of_other_collections_share_no_group() {
    let mut scene = Scene::new();
    let mut other = scene.waiter(1, "", "ab", Duration::from_secs(60));
    other.collections = ["other".into()].into();
    scene.queue.enter(other);
    scene.enter(2, "", "cd");
    scene.enter(3, "", "bc");
    assert_eq!(scene.take(), [2], "an older one of another group wants the document of the third");
    assert_eq!(scene.take_of("other"), [1]);
}

#[tokio::test]
async fn busy_collection_takes_no_permit_of_another() {
    let mut scene = Scene::new();
    let call = |scene: &mut Scene| {
        let now = scene.engine.context.now();
        scene.queue.grant_permit(now, None, &scene.engine).map(|(number, _)| number)
    };
    for age in 0..6 {
        let mut cold = scene.waiter(age, "", "", Duration::from_secs(60));
        cold.uses.written = [Key::new("cold", age.to_string())].into();
        cold.collections = ["cold".into()].into();
        scene.queue.enter(cold);
        while let Some(number) = call(&mut scene) {
            scene.queue.permits.get_mut(&number).expect("given").forming_in = None;
        }
    }
    assert_eq!(scene.queue.permits.len(), MOST_GROUPS);
    scene.enter(9, "", "a");
    assert!(call(&mut scene).is_some());
}

#[tokio::test]
async fn reader_joins_group_that_writes_all_its_reads() {
    let mut scene = Scene::new();
    scene.enter(1, "ab", "");
    scene.enter(2, "", "a");
    scene.enter(3, "", "b");
    assert_eq!(scene.take(), [2, 3, 1]);
}

#[tokio::test]
async fn passed_over_reader_blocks_younger_writers() {
    let mut scene = Scene::new();
    scene.enter(2, "aq", "");
    scene.enter(1, "", "a");
    assert_eq!(scene.take(), [1], "others may hold the rest of what is read");
    scene.enter(3, "", "a");
    assert_eq!(scene.take(), [] as [u8; 0], "the reader is before it");
    scene.end("", "a");
    assert_eq!(scene.take(), [2], "and apart from those who write what it reads");
    scene.end("aq", "");
    assert_eq!(scene.take(), [3]);
}

#[tokio::test]
async fn expired_transaction_blocks_no_other() {
    let mut scene = Scene::new();
    for (age, read, written) in [(1, "", "a"), (2, "b", "")] {
        let late = scene.waiter(age, read, written, Duration::ZERO);
        scene.queue.enter(Waiter { passed_over: true, ..late });
    }
    scene.enter(3, "", "a");
    scene.enter(4, "", "b");
    assert_eq!(scene.take(), [3, 4]);
}

#[tokio::test]
async fn handoff_is_free_for_multi_document_writer() {
    let mut scene = Scene::with_handoffs("abc");
    scene.enter(1, "", "a");
    scene.enter(2, "b", "x");
    assert_eq!(scene.take(), [] as [u8; 0], "one document, and a read");
    let mut scene = Scene::with_handoffs("abc");
    scene.enter(1, "", "ax");
    scene.enter(2, "", "bc");
    assert_eq!(scene.take(), [1, 2]);
}

#[tokio::test]
async fn empty_group_refuses_no_later_start() {
    let mut scene = Scene::with_handoffs("a");
    scene.enter(1, "", "a");
    scene.enter(2, "", "ab");
    let now = scene.engine.context.now();
    let (permit, runtime) = scene.queue.grant_permit(now, None, &scene.engine).expect("free");
    let taken = scene.queue.take_members(permit, runtime.id(), now, &scene.engine);
    assert_eq!(taken.len(), 0, "the older transaction waits for the apply");
    // The document is applied before the task of the empty group ends.
    scene.engine.hot.handoffs.decline(&keys("a"));
    assert!(scene.queue.grant_permit(now, None, &scene.engine).is_some());
}

#[tokio::test]
async fn only_unused_documents_are_reclaimed() {
    let mut scene = Scene::with_handoffs("ab");
    scene.enter(1, "", "ax");
    assert_eq!(scene.take(), [1]);
    assert_eq!(scene.queue.reclaim(keys("ab")).written, keys("b"));
    scene.enter(2, "", "bx");
    assert_eq!(scene.take(), [] as [u8; 0], "it is being applied");
}

#[tokio::test]
async fn documents_of_one_transaction_stay_together() {
    let mut scene = Scene::new();
    scene.enter(3, "", "h");
    scene.enter(1, "a", "bcx");
    scene.enter(2, "de", "");
    scene.enter(4, "f", "g");
    let but_x = |key: &Key| &*key.id != "x";
    let documents = |enough| scene.queue.documents(enough, &but_x);
    // The oldest transaction has more documents than are asked for.
    assert_eq!(documents(2), keys("abc"));
    // The second transaction only reads.
    assert_eq!(documents(4), keys("abch"));
    assert_eq!(documents(9), keys("abchfg"));
}

#[tokio::test]
async fn document_in_use_is_named_first() {
    let mut scene = Scene::new();
    scene.enter(1, "", "b");
    assert_eq!(scene.take(), [1]);
    let uses = Uses { read: keys("a"), written: keys("bc") };
    assert_eq!(scene.queue.one_in_use(&uses), Some(&Key::new("c", "b")));
    scene.end("", "b");
    assert_eq!(scene.queue.one_in_use(&uses), Some(&Key::new("c", "a")));
}
