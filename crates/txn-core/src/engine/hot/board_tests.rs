//! Tests of the counts in the board of a process.

use super::*;
use txn_protocol::board::{Entry, Slot};
use txn_store::Version;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn key(id: &str) -> Key {
    Key::new("c", id)
}

fn age() -> Age {
    let id = "5c5ec8f9-e59d-11f1-8000-3f2f2a5fb796";
    id.parse::<txn_protocol::ids::AttemptId>().expect("an id").age()
}

fn empty(now: Duration) -> Option<Look> {
    Some(Look { slots: Vec::new(), sent_at: now })
}

/// A process that lost document `hot`, and has polled the board.
fn looking() -> (Arc<Board>, Driving, Wanted, Contender) {
    let board = Arc::new(Board::new(7, true));
    let contender = board.contend(age());
    let wanted = board.want([&key("hot")]);
    board.lost(age(), ms(0));
    let driver = board.new_driver(ms(0)).expect("has to look");
    assert!(board.step(&driver, ms(0)).expect("goes on").look.is_some());
    (board, driver, wanted, contender)
}

/// A process that has its turn at document `hot`.
fn with_turn() -> (Arc<Board>, Driving, Wanted, Contender) {
    let (board, driver, wanted, contender) = looking();
    board.observe(0, empty(ms(20)), ms(20));
    let step = board.step(&driver, ms(20)).expect("goes on");
    assert!(step.refresh.is_some(), "the turn begins");
    (board, driver, wanted, contender)
}

#[test]
fn next_driver_polls_after_a_lost_poll() {
    let (board, driver, _wanted, _contender) = looking();
    assert!(board.new_driver(ms(1)).is_none(), "one is enough");
    drop(driver);
    let driver = board.new_driver(ms(2)).expect("has to look");
    assert!(board.step(&driver, ms(2)).expect("goes on").look.is_some());
}

#[test]
fn resting_driver_is_replaced() {
    let (board, resting, _wanted, _contender) = with_turn();
    let other = board.new_driver(ms(5_000)).expect("no driver looks");
    assert!(board.step(&resting, ms(5_001)).is_none(), "it ends");
    drop(resting);
    assert!(board.step(&other, ms(5_002)).is_some());
}

#[test]
fn driver_waits_for_its_poll_before_it_ends() {
    let board = Arc::new(Board::new(7, true));
    board.lost(age(), ms(0));
    let wanted = board.want([&key("hot")]);
    let driver = board.new_driver(ms(0)).expect("has to look");
    assert!(board.step(&driver, ms(0)).expect("goes on").look.is_some());
    drop(wanted);
    assert!(board.step(&driver, ms(20_000)).is_some(), "a look is under way");
    board.observe(0, None, ms(20_001));
    assert!(board.step(&driver, ms(20_002)).is_none());
}

#[test]
fn refresh_delays_only_documents_of_the_turn() {
    let (board, _driver, _wanted, _contender) = with_turn();
    assert!(!board.may_lock([&key("hot")], ms(20)));
    assert!(!board.is_turn_of_another([&key("hot")], ms(20)));
    assert!(board.may_lock([&key("cold")], ms(20)));
    assert!(board.may_lock([&key("hot")], ms(60)), "nothing waits for a store that hangs");
}

#[test]
fn other_documents_do_not_use_the_turn() {
    let (board, driver, _wanted, _contender) = with_turn();
    board.refreshed(1);
    let mut cold = board.begin();
    let cold_keys = [key("cold")];
    cold.add(&cold_keys);
    board.locked(&cold_keys, ms(21));
    board.committed(&cold_keys, ms(22));
    cold.recorded();
    let entry = Entry {
        ticket: 1_000_000,
        stride: 1_000,
        clients: 1,
        round_trip: ms(1),
        set: [hash(&key("hot"))].into_iter().collect(),
    };
    let slot = (Slot { wish: Some((Node(1), entry)) }, Some(Version::new(1, 1)));
    board.observe(0, Some(Look { slots: vec![slot], sent_at: ms(40) }), ms(41));
    board.step(&driver, ms(42));
    assert!(board.may_lock([&key("hot")], ms(42)), "the turn goes on");
    let hot = [key("hot")];
    board.locked(&hot, ms(43));
    board.committed(&hot, ms(44));
    let ticket = board.state.lock().policy.ticket();
    board.step(&driver, ms(100));
    let next = board.state.lock().policy.ticket();
    assert!(next > ticket, "cold documents under way do not keep the process from its next");
}

#[test]
fn loss_of_a_dropped_caller_is_ignored() {
    let board = Arc::new(Board::new(7, true));
    drop(board.contend(age()));
    board.lost(age(), ms(1));
    assert_eq!(board.state.lock().work(ms(2)).passed_over_since, None);
}

#[test]
fn slow_answer_barely_moves_round_trip_estimate() {
    let board = Board::new(7, true);
    (0..50).for_each(|_| board.measure(ms(2)));
    board.measure(ms(10_000));
    assert!(board.round_trip() < ms(4), "{:?}", board.round_trip());
    let slow = Board::new(7, true);
    slow.measure(ms(300));
    assert_eq!(slow.round_trip(), ms(300), "the first sample replaces the guess");
    (0..50).for_each(|_| slow.measure(ms(2)));
    assert!(slow.round_trip() < ms(4), "{:?}", slow.round_trip());
}

#[test]
fn applied_documents_are_no_longer_under_way() {
    let (board, _driver, _wanted, _contender) = with_turn();
    let (hot, cold) = (key("hot"), key("cold"));
    let mut under_way = board.begin();
    under_way.add([&hot, &cold]);
    under_way.recorded();
    assert!(board.state.lock().work(ms(30)).is_under_way);
    under_way.release_turn([&hot]);
    assert!(!board.state.lock().work(ms(30)).is_under_way, "the wish names only this document");
    drop(under_way);
    assert!(board.state.lock().under_way.0.is_empty());
}

#[test]
fn locks_on_other_documents_do_not_slow_the_turn() {
    let (board, _driver, _wanted, _contender) = with_turn();
    board.measure_locks([&key("hot")], ms(2));
    let before = board.round_trip();
    (0..50).for_each(|_| board.measure_locks([&key("cold")], ms(900)));
    assert_eq!(board.round_trip(), before);
    (0..50).for_each(|_| board.measure_locks([&key("cold"), &key("hot")], ms(900)));
    assert!(board.round_trip() > before);
}
