//! Processors that know different topics.

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

/// How many shards of a topic a processor holds.
fn held(processor: &Processor, topic: &str) -> usize {
    processor.shards().iter().filter(|shard| &*shard.topic == topic).count()
}

/// Each holds shards of what it knows alone: nothing waits for a handler that its processor does not have.
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
    // What nobody knows waits, and is counted.
    let backlog = one.outbox.backlog().await.expect("counts");
    assert_eq!((backlog.events, backlog.topics.get("unheard-of")), (4, Some(&4)));
    assert!(one.read("unheard-of-a").await.is_empty());
    // No processor without a topic, and none with a name that no topic has.
    for topics in [Topics::new(), Topics::new().with("a/b", one.handler())] {
        let refused = one.outbox.start(world.config(), topics).await.expect_err("refused");
        let is_told =
            matches!(refused, OutboxError::InvalidConfig(_) | OutboxError::InvalidName { .. });
        assert!(is_told, "{refused}");
    }
    assert!(first.stop(PATIENCE).await && second.stop(PATIENCE).await);
    // What was assigned is so of each topic.
    let config = world.config().with_assignment(Assignment::Static(BTreeSet::from([1])));
    let topics = Topics::new().with("mails", one.handler()).with("bills", one.handler());
    let third = one.outbox.start(config, topics).await.expect("starts");
    until(|| third.shards().len() == 2).await;
    assert!(third.stop(PATIENCE).await);
}

/// Processes of a new version know a topic more. Their shards of the others are shared with those of the old one, and no key is
/// handled by two at once.
pub(crate) async fn a_new_topic_is_deployed_while_others_go_on(world: &World) {
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
    // Whoever leaves leaves no lock that is looked at for ever.
    let name = one.domain.collection_name("locks");
    let locks = txn_lock::LockRepository::open(&one.domain, &name).await.expect("opens");
    let locks = locks.list().await.expect("lists");
    let members = locks.iter().filter(|lock| lock.category == "outbox-member").count();
    assert_eq!(members, 0);
}
