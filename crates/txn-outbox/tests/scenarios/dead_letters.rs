//! Dead letters, and the events behind them.

use super::*;

pub(crate) async fn queue_continues_after_a_dead_letter(world: &World) {
    let desk = world.desk().await;
    for number in [1, -2, 3] {
        desk.place("a", number).await;
    }
    desk.place("b", 1).await;
    let config = world.config().with_max_failures(2).with_first_pause(Duration::from_millis(5));
    let processor = desk.start(config).await;
    desk.seen("a", &[1, 3]).await;
    desk.seen("b", &[1]).await;
    let source = desk.outbox.source();
    let dead = source.dead_letters().await.expect("lists").letters;
    let [letter] = &dead[..] else { panic!("{dead:?}") };
    assert_eq!((letter.event.payload::<i64>().expect("a number"), letter.event.failures), (-2, 2));
    assert!(letter.error.contains("-2 is negative"), "{}", letter.error);
    assert_eq!(source.backlog().await.expect("counts").dead, 1);
    let figures = processor.figures();
    assert_eq!((figures.failed, figures.set_aside), (2, 1));
    // A retried event goes to the end of its queue, and keeps its id.
    let id = letter.event.id.clone();
    desk.forgiving.store(true, Ordering::Release);
    desk.place("a", 4).await;
    desk.seen("a", &[1, 3, 4]).await;
    source.retry(&id).await.expect("there");
    desk.seen("a", &[1, 3, 4, -2]).await;
    let gone = source.retry(&id).await.expect_err("gone");
    assert!(matches!(gone, OutboxError::NotFound(_)), "{gone}");
    // A discarded event never returns.
    desk.forgiving.store(false, Ordering::Release);
    desk.place("a", -9).await;
    desk.place("a", 10).await;
    desk.seen("a", &[1, 3, 4, -2, 10]).await;
    let dead = source.dead_letters().await.expect("lists").letters;
    source.discard(&dead[0].event.id).await.expect("there");
    assert!(source.dead_letters().await.expect("lists").letters.is_empty());
    assert!(processor.stop(PATIENCE).await);
}

pub(crate) async fn queue_waits_for_a_dead_letter(world: &World) {
    let desk = world.desk().await;
    for number in [-1, 2, 3] {
        desk.place("a", number).await;
    }
    desk.place("b", 1).await;
    let config = world.config().with_max_failures(1).with_after_dead_letter(AfterDeadLetter::Wait);
    let processor = desk.start(config).await;
    desk.seen("b", &[1]).await;
    let source = desk.outbox.source();
    until_dead(&*source).await;
    let backlog = source.backlog().await.expect("counts");
    assert_eq!((backlog.events, backlog.blocked, backlog.dead), (2, 1, 1));
    desk.place("a", 4).await;
    desk.place("b", 2).await;
    desk.seen("b", &[1, 2]).await;
    assert_eq!(desk.read("a").await, [0; 0], "later events of the key wait");
    // A retried event keeps its old position.
    desk.forgiving.store(true, Ordering::Release);
    source.retry("orders/1/a").await.expect("there");
    desk.seen("a", &[-1, 2, 3, 4]).await;
    desk.forgiving.store(false, Ordering::Release);
    desk.place("a", -5).await;
    desk.place("a", 6).await;
    let dead = until_dead(&*source).await;
    source.discard(&dead.event.id).await.expect("there");
    desk.seen("a", &[-1, 2, 3, 4, 6]).await;
    assert!(processor.stop(PATIENCE).await);
}

pub(crate) async fn retried_dead_letters_keep_their_order(world: &World) {
    let desk = world.desk().await;
    let processor = desk.start(world.config().with_max_failures(1)).await;
    let numbers: Vec<i64> = (1..=12).map(|number: i64| -number).collect();
    for key in ["k10", "k9"] {
        for number in &numbers {
            desk.place(key, *number).await;
        }
    }
    let source = desk.outbox.source();
    let letters = async || source.dead_letters().await.expect("lists").letters;
    let patience = std::time::Instant::now() + PATIENCE;
    while letters().await.len() < 24 {
        assert!(std::time::Instant::now() < patience, "not all are set aside");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let found = letters().await;
    let places: Vec<(&str, u64)> =
        found.iter().map(|letter| (letter.event.queue.key(), letter.event.sequence)).collect();
    let expected = ["k9", "k10"].into_iter().flat_map(|key| (1..=12).map(move |at| (key, at)));
    assert_eq!(places, expected.collect::<Vec<_>>(), "1, 2, … 10, and not 1, 10, 11, 2");
    assert!(processor.stop(PATIENCE).await);
    desk.forgiving.store(true, Ordering::Release);
    for letter in &found {
        source.retry(&letter.event.id).await.expect("sent again");
    }
    let processor = desk.start(world.config()).await;
    for key in ["k9", "k10"] {
        desk.seen(key, &numbers).await;
    }
    assert!(processor.stop(PATIENCE).await);
}
