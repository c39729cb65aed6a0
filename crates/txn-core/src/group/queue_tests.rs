use std::collections::BTreeMap;

use super::*;
use crate::attempt::Manner;
use crate::config::{Config, Options};
use crate::engine::Engine;
use crate::store::MemoryStore;
use txn_protocol::rules::testing::tid;

/// A queue, and those who wait in it by their age: less is older.
struct Scene {
    engine: Arc<Engine>,
    queue: Queue,
    /// Whoever wait to be told.
    told: Vec<mpsc::UnboundedReceiver<Told>>,
    ages: BTreeMap<Age, u8>,
}

fn keys(ids: &str) -> BTreeSet<Key> {
    ids.chars().map(|id| Key::new("c", id.to_string())).collect()
}

impl Scene {
    fn new() -> Self {
        let engine = Engine::new(Arc::new(MemoryStore::new()), "d", Config::default());
        let engine = engine.expect("valid");
        Self { engine, queue: Queue::default(), told: Vec::new(), ages: BTreeMap::new() }
    }

    /// One who uses documents, each named by a letter, and has so long.
    fn applicant(&mut self, age: u8, read: &str, written: &str, left: Duration) -> Applicant {
        let (engine, ends_at) = (self.engine.clone(), self.engine.now() + left);
        let manner = Manner::default();
        let attempt = Attempt::begin(engine, tid(age, 0), Options::default(), manner, ends_at);
        self.ages.insert(attempt.tid.age(), age);
        let (tell, told) = mpsc::unbounded_channel();
        self.told.push(told);
        Applicant {
            attempt,
            attempts: Attempts::default(),
            uses: Uses { read: keys(read), written: keys(written) },
            most: usize::MAX,
            insists: false,
            returns_at_once: false,
            returns: 0,
            passed_over: false,
            standing: SharedStanding::default(),
            tell,
            runtime: Handle::current(),
            served_in: Handle::current().id(),
        }
    }

    fn enter(&mut self, age: u8, read: &str, written: &str) {
        let applicant = self.applicant(age, read, written, Duration::from_secs(60));
        self.queue.enter(applicant);
    }

    fn enter_insisting(&mut self, age: u8, written: &str) {
        let applicant = self.applicant(age, "", written, Duration::from_secs(60));
        self.queue.enter(Applicant { insists: true, ..applicant });
    }

    /// Who is taken in a turn.
    fn take(&mut self) -> Vec<u8> {
        let (here, now) = (Handle::current().id(), self.engine.now());
        let (taken, _) = self.queue.take(0, here, now, &self.engine.live_attempts);
        taken.iter().map(|(_, next)| self.ages[&next.age()]).collect()
    }

    /// They are acknowledged and applied.
    fn end(&mut self, read: &str, written: &str) {
        self.queue.free(&Uses { read: keys(read), written: keys(written) });
    }

    /// One who writes these is under way, and leaves them to the next.
    fn offered_by_one(written: &str) -> Self {
        let mut scene = Self::new();
        scene.enter(0, "", written);
        assert_eq!(scene.take(), [0]);
        scene.queue.offer(keys(written));
        scene
    }
}

#[tokio::test]
async fn whoever_is_blocked_blocks_those_behind() {
    let mut scene = Scene::new();
    scene.enter(1, "", "a");
    assert_eq!(scene.take(), [1]);
    scene.enter(2, "", "ab");
    scene.enter(3, "b", "c");
    scene.enter(4, "", "d");
    assert_eq!(scene.take(), [4]);
    scene.end("", "a");
    assert_eq!(scene.take(), [2, 3], "in their order, composed");
}

#[tokio::test]
async fn who_only_reads_goes_with_those_who_write_all_of_it() {
    let mut scene = Scene::new();
    scene.enter(1, "ab", "");
    scene.enter(2, "", "a");
    scene.enter(3, "", "b");
    assert_eq!(scene.take(), [2, 3, 1]);

    let mut scene = Scene::new();
    scene.enter(1, "ab", "");
    scene.enter_insisting(2, "ab");
    assert_eq!(scene.take(), [2], "who insists may have to wait, and a reader not with it");
}

#[tokio::test]
async fn who_is_passed_over_holds_younger_ones_up() {
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
async fn who_has_no_time_left_and_does_not_look_holds_nobody_up() {
    let mut scene = Scene::new();
    for (age, read, written) in [(1, "", "a"), (2, "b", "")] {
        let late = scene.applicant(age, read, written, Duration::ZERO);
        scene.queue.enter(Applicant { passed_over: true, ..late });
    }
    scene.enter(3, "", "a");
    scene.enter(4, "", "b");
    assert_eq!(scene.take(), [3, 4]);
}

#[tokio::test]
async fn what_somebody_waits_for_is_not_taken_along() {
    let mut scene = Scene::new();
    scene.enter(1, "", "a");
    assert_eq!(scene.take(), [1]);
    scene.enter(2, "c", "ab");
    assert_eq!(scene.queue.take_along(keys("abcd")).written, keys("d"));
    assert!(!scene.queue.is_any_written(&keys("bc")));
}

#[tokio::test]
async fn what_is_offered_is_left_to_those_who_cannot_take_it_over() {
    let mut scene = Scene::offered_by_one("abcd");
    scene.enter(1, "", "a");
    scene.enter(2, "b", "x");
    scene.enter(3, "", "cx");
    assert_eq!(scene.queue.take_offered(|key| *key.id != *"d").written, keys("c"));
    assert_eq!(scene.queue.withdraw(&keys("abcd")), keys("c"), "and it is told who keeps it");
}

#[tokio::test]
async fn nobody_is_waited_for_where_others_wait_who_cannot_take_it() {
    let offered = keys("ab");
    let mut scene = Scene::offered_by_one("ab");
    assert!(scene.queue.awaits_its_next(&offered));
    scene.enter(3, "", "bc");
    assert!(scene.queue.awaits_its_next(&offered), "it takes it");
    scene.enter(2, "", "c");
    assert!(scene.queue.awaits_its_next(&offered), "it is after something else");
    scene.enter_insisting(1, "bc");
    assert!(!scene.queue.awaits_its_next(&offered), "it waits until all is free");

    let mut scene = Scene::offered_by_one("ab");
    scene.enter(1, "", "a");
    assert!(!scene.queue.awaits_its_next(&offered), "a single document is not taken over");

    let mut scene = Scene::offered_by_one("ab");
    scene.enter(1, "", "ab");
    assert_eq!(scene.take(), [1]);
    assert!(!scene.queue.awaits_its_next(&offered), "it is taken");
    assert!(!Scene::new().queue.awaits_its_next(&keys("")), "nothing is offered");
}
