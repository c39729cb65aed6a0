//! Processors with different topics.

use std::collections::BTreeSet;

use txn_outbox::{Assignment, EventSource, OutboxError, Processor, Topics};

use super::world::{Desk, PATIENCE, SHARDS, World, until};

impl Desk {
    pub(crate) async fn emit(&self, topic: &str, key: &str, number: i64) {
        let emitted =
            self.domain.transact(async |tx| self.outbox.emit(tx, topic, key, &number).await);
        emitted.await.expect("emitted");
    }

    async fn start_with(&self, world: &World, topics: &[&str]) -> Processor {
        let with = |all: Topics, topic: &&str| all.with(topic, self.handler());
        let topics = topics.iter().fold(Topics::new(), with);
        self.outbox.start(world.config(), topics).await.expect("starts")
    }
}

/// The number of shards of a topic that a processor holds.
fn held(processor: &Processor, topic: &str) -> usize {
    processor.shards().iter().filter(|shard| &*shard.topic == topic).count()
}

/// Each processor holds only shards of its own topics.
pub(crate) async fn processors_may_know_different_topics(world: &World) {
    let (one, two) = (world.desk().await, world.desk().await);
    for key in ["a", "b", "c", "d"] {
        for topic in ["mails", "bills", "unheard-of"] {
            one.emit(topic, &format!("{topic}-{key}"), 1).await;
        }
    }
    let first = one.start_with(world, &["mails"]).await;
    let second = two.start_with(world, &["bills", "letters"]).await;
    for key in ["a", "b", "c", "d"] {
        for topic in ["mails", "bills"] {
            one.seen(&format!("{topic}-{key}"), &[1]).await;
        }
    }
    let all = usize::from(SHARDS);
    until(|| held(&first, "mails") == all && held(&second, "letters") == all).await;
    let topics: BTreeSet<_> = first.shards().into_iter().map(|shard| shard.topic).collect();
    assert_eq!(topics.len(), 1, "{topics:?}");
    // Events of an unknown topic wait, and are counted.
    let backlog = one.outbox.backlog().await.expect("counts");
    assert_eq!((backlog.events, backlog.topics.get("unheard-of")), (4, Some(&4)));
    assert!(one.read("unheard-of-a").await.is_empty());
    // A processor needs at least one topic, and valid names.
    for topics in [Topics::new(), Topics::new().with("a/b", one.handler())] {
        let refused = one.outbox.start(world.config(), topics).await.expect_err("refused");
        let is_told =
            matches!(refused, OutboxError::InvalidConfig(_) | OutboxError::InvalidName { .. });
        assert!(is_told, "{refused}");
    }
    assert!(first.stop(PATIENCE).await && second.stop(PATIENCE).await);
    // A static assignment applies to each topic.
    let config = world.config().with_assignment(Assignment::Static(BTreeSet::from([1])));
    let topics = Topics::new().with("mails", one.handler()).with("bills", one.handler());
    let third = one.outbox.start(config, topics).await.expect("starts");
    until(|| third.shards().len() == 2).await;
    assert!(third.stop(PATIENCE).await);
}

/// A new version has one more topic.
///
/// Old and new processes share the shards of the other topics, and never handle one key at the same
/// time.
pub(crate) async fn new_topic_is_deployed_during_processing(world: &World) {
    let (one, two) = (world.desk().await, world.desk().await);
    let all = usize::from(SHARDS);
    let old = one.start_with(world, &["mails"]).await;
    until(|| held(&old, "mails") == all).await;
    one.emit("bills", "first", 1).await;
    let mut numbers = Vec::new();
    let mut place = async |number: i64| {
        for key in ["a", "b", "c", "d", "e"] {
            one.emit("mails", key, number).await;
        }
        numbers.push(number);
    };
    place(1).await;
    let new = two.start_with(world, &["mails", "bills"]).await;
    place(2).await;
    one.seen("first", &[1]).await;
    until(|| held(&old, "mails") == all / 2 && held(&new, "mails") == all / 2).await;
    assert_eq!(held(&new, "bills"), all);
    place(3).await;
    assert!(old.stop(PATIENCE).await);
    place(4).await;
    until(|| held(&new, "mails") == all).await;
    for key in ["a", "b", "c", "d", "e"] {
        one.seen(key, &numbers).await;
    }
    assert!(new.stop(PATIENCE).await);
    // A stopped processor leaves no member lock.
    let name = one.domain.collection_name("locks");
    let locks = txn_lock::LockRepository::open(&one.domain, &name).await.expect("opens");
    let locks = locks.list().await.expect("lists");
    let members = locks.iter().filter(|lock| lock.category == "outbox-member").count();
    assert_eq!(members, 0);
}
