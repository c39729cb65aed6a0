//! Tests of the board.

use std::time::Duration;

use proptest::prelude::*;
use txn_store::Version;

use super::*;

const ROUND_TRIP: Duration = Duration::from_millis(1);
const ME: Node = Node(7);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn hash(document: u32) -> KeyHash {
    KeyHash::from_bits(document)
}

fn set(documents: &[u32]) -> DocumentSet {
    documents.iter().copied().map(hash).collect()
}

fn entry(ticket: Ticket, documents: &[u32]) -> Entry {
    Entry { ticket, stride: 20_000, clients: 8, round_trip: ROUND_TRIP, set: set(documents) }
}

fn version(seq_no: u64) -> Version {
    Version { incarnation: 0, term: 1, seq_no }
}

fn look(wishes: &[(Node, Entry)], sent_at: Duration) -> Look {
    let slot = |(number, wish): (usize, &(Node, Entry))| {
        (Slot { wish: Some(wish.clone()) }, Some(version(number as u64 + 1)))
    };
    Look { slots: wishes.iter().enumerate().map(slot).collect(), sent_at }
}

fn work(documents: &[u32]) -> Work {
    Work { wanted: set(documents), clients: 8, ..Work::default() }
}

/// A process that met another one, and polled an empty board.
fn engaged() -> Policy {
    let mut policy = Policy::new(ME, ROUND_TRIP, Numbers::default());
    policy.met_another(ms(0));
    policy.observe(look(&[], ms(0)), ms(1));
    policy
}

/// An engaged process with a wish for documents 1 and 2.
fn wishing(now: Duration) -> Policy {
    let mut policy = engaged();
    policy.update(Work { passed_over_since: Some(ms(0)), ..work(&[1, 2]) }, now);
    assert!(policy.ticket().is_some());
    policy
}

#[test]
fn dormant_process_does_nothing() {
    let mut policy = Policy::new(ME, ROUND_TRIP, Numbers::default());
    policy.update(work(&[1]), ms(1));
    assert!(policy.is_dormant() && policy.may_lock(hash(1), ms(1)) && !policy.must_yield());
    assert_eq!((policy.next_look(ms(1)), policy.next_change(ms(1))), (None, None));
    assert_eq!((policy.take_write(ms(1)), policy.ticket()), (None, None));
}

/// How many polls a process with work sends within a second. `look_at` handles a poll.
fn looks_in_a_second(mut look_at: impl FnMut(&mut Policy, Duration)) -> usize {
    let mut policy = wishing(ms(20));
    let (mut now, mut looks) = (ms(20), 0);
    while now < ms(1_020) {
        policy.update(Work { passed_over_since: Some(ms(0)), ..work(&[1, 2]) }, now);
        if policy.take_write(now).is_some() {
            policy.written(Written::Unknown, now);
        }
        match policy.next_look(now) {
            Some(at) if at <= now => {
                policy.look_sent();
                look_at(&mut policy, now);
                looks += 1;
            }
            _ => now += Duration::from_micros(100),
        }
        assert!(looks < 10_000, "time stands still");
    }
    looks
}

#[test]
fn unreachable_board_is_asked_with_pauses() {
    assert!(looks_in_a_second(Policy::look_failed) <= 21);
}

#[test]
fn board_that_refuses_writes_is_asked_with_pauses() {
    let empty = |policy: &mut Policy, now| policy.observe(look(&[], now), now);
    assert!(looks_in_a_second(empty) <= 30);
}

#[test]
fn board_in_memory_is_asked_with_pauses() {
    let head = [(Node(1), entry(1, &[1]))];
    let looks = looks_in_a_second(|policy, now| {
        policy.measure(Duration::ZERO);
        policy.observe(look(&head, now), now);
    });
    assert!(looks <= 1_001, "{looks}");
}

#[test]
fn dormant_process_looks_while_it_hands_over() {
    let mut policy = Policy::new(ME, ROUND_TRIP, Numbers::default());
    for at in (0..300).step_by(10) {
        policy.handed_over(ms(at));
    }
    assert!(policy.next_look(ms(300)).is_some_and(|at| at <= ms(300)));
    policy.observe(look(&[(Node(1), entry(1, &[1]))], ms(300)), ms(301));
    assert!(!policy.is_dormant());
}

#[test]
fn rare_handoffs_need_no_look() {
    let mut policy = Policy::new(ME, ROUND_TRIP, Numbers::default());
    for at in (0..3_000).step_by(100) {
        policy.handed_over(ms(at));
        assert!(policy.next_look(ms(at)).is_none_or(|look| look > ms(at)));
    }
}

#[test]
fn engaged_process_becomes_dormant() {
    let mut policy = engaged();
    policy.update(Work::default(), ms(10_001));
    assert!(policy.is_dormant());
}

#[test]
fn wish_needs_grace_after_a_loss() {
    let mut policy = engaged();
    let lost = Work { passed_over_since: Some(ms(10)), ..work(&[1]) };
    policy.update(lost.clone(), ms(17));
    assert_eq!(policy.ticket(), None);
    policy.update(lost, ms(18));
    assert!(policy.ticket().is_some());
}

#[test]
fn wish_follows_another_wish_at_once() {
    let mut policy = engaged();
    policy.observe(look(&[(Node(1), entry(50_000, &[1]))], ms(1)), ms(2));
    policy.update(work(&[2]), ms(2));
    assert_eq!(policy.ticket(), None);
    policy.update(work(&[1]), ms(2));
    assert!(policy.ticket().is_some_and(|ticket| ticket > 50_000));
    assert!(!policy.may_lock(hash(1), ms(2)));
}

#[test]
fn waiting_wish_blocks_all_its_documents() {
    let mut policy = wishing(ms(10));
    let earlier = look(&[(Node(1), entry(1, &[2]))], ms(10));
    policy.observe(earlier, ms(11));
    policy.update(work(&[1, 2]), ms(11));
    assert!(!policy.may_lock(hash(1), ms(11)) && !policy.may_lock(hash(2), ms(11)));
    assert!(policy.may_lock(hash(3), ms(11)));
}

#[test]
fn later_wish_blocks_nothing() {
    let mut policy = wishing(ms(10));
    policy.observe(look(&[(Node(1), entry(LAST_TICKET, &[1]))], ms(10)), ms(11));
    policy.update(work(&[1, 2]), ms(11));
    assert!(policy.may_lock(hash(1), ms(11)) && policy.take_arrival() && !policy.take_arrival());
}

/// A process that has used its turn. The result has the policy, the ticket, and the work under way.
fn used_turn() -> (Policy, Option<Ticket>, Work) {
    let mut policy = wishing(ms(10));
    let ticket = policy.ticket();
    policy.observe(look(&[(Node(1), entry(1_000_000_000, &[1]))], ms(10)), ms(11));
    policy.locked(ms(12));
    policy.committed(ms(13));
    (policy, ticket, Work { is_under_way: true, ..work(&[1, 2]) })
}

#[test]
fn new_ticket_waits_for_the_apply() {
    let (mut policy, ticket, under_way) = used_turn();
    policy.update(under_way.clone(), ms(20));
    assert!(!policy.must_yield());
    policy.update(under_way, ms(33));
    assert!(policy.must_yield() && policy.ticket() == ticket && !policy.may_lock(hash(1), ms(33)));
    policy.update(work(&[1, 2]), ms(34));
    assert!(!policy.must_yield() && policy.ticket() > ticket);
}

#[test]
fn slow_process_waits_for_its_locks_alone() {
    let (mut policy, ticket, under_way) = used_turn();
    policy.measure(ms(6));
    let locking = Work { is_locking: true, ..under_way.clone() };
    policy.update(locking, ms(33));
    assert!(policy.must_yield() && policy.ticket() == ticket);
    policy.update(under_way, ms(34));
    assert!(!policy.must_yield() && policy.ticket() > ticket);
}

#[test]
fn turn_ends_though_an_attempt_stays_under_way() {
    let (mut policy, ticket, under_way) = used_turn();
    policy.update(under_way.clone(), ms(33));
    policy.update(under_way.clone(), ms(130));
    assert!(policy.must_yield() && policy.ticket() == ticket);
    policy.update(under_way, ms(134));
    assert!(!policy.must_yield() && policy.ticket() > ticket);
}

#[test]
fn head_that_stays_is_skipped_by_looks_alone() {
    let mut policy = wishing(ms(10));
    let stays = [(Node(1), entry(1, &[1]))];
    policy.observe(look(&stays, ms(10)), ms(11));
    policy.update(work(&[1]), ms(11));
    // The last poll counts, not the time since.
    policy.update(work(&[1]), ms(150));
    assert!(!policy.may_lock(hash(1), ms(150)));
    policy.observe(look(&stays, ms(150)), ms(151));
    policy.update(work(&[1]), ms(151));
    assert!(policy.may_lock(hash(1), ms(151)));
    // A new ticket counts again.
    policy.observe(look(&[(Node(1), entry(2, &[1]))], ms(152)), ms(153));
    policy.update(work(&[1]), ms(153));
    assert!(!policy.may_lock(hash(1), ms(153)));
}

#[test]
fn head_without_a_lock_renews_its_ticket() {
    let mut policy = wishing(ms(10));
    let ticket = policy.ticket();
    policy.update(work(&[1]), ms(11));
    // A lock that was requested is no lock.
    let locking = Work { is_locking: true, ..work(&[1]) };
    policy.update(locking.clone(), ms(50));
    policy.update(locking.clone(), ms(60));
    assert_eq!(policy.ticket(), ticket);
    policy.update(locking.clone(), ms(62));
    assert!(policy.ticket() > ticket);
    let ticket = policy.ticket();
    policy.locked(ms(100));
    policy.update(locking, ms(180));
    assert_eq!(policy.ticket(), ticket);
}

#[test]
fn conflict_of_a_claim_takes_another_slot() {
    let mut policy = wishing(ms(10));
    let write = policy.take_write(ms(10)).expect("a write");
    assert_eq!((write.number, write.over), (0, None));
    policy.written(Written::Conflict, ms(11));
    assert_eq!((policy.take_write(ms(11)), policy.next_look(ms(11))), (None, Some(ms(11))));
    policy.observe(look(&[(Node(1), entry(1, &[9]))], ms(11)), ms(12));
    let write = policy.take_write(ms(12)).expect("a write");
    assert_eq!((write.number, write.over), (1, None));
    policy.written(Written::At(version(5)), ms(13));
    assert_eq!(policy.take_write(ms(13)), None);
}

#[test]
fn write_without_an_answer_is_found_by_a_look() {
    let mut policy = wishing(ms(10));
    let write = policy.take_write(ms(10)).expect("a write");
    policy.written(Written::Unknown, ms(11));
    let (node, wish) = write.slot.wish.expect("a wish");
    policy.observe(look(&[(node, wish)], ms(11)), ms(12));
    assert_eq!(policy.take_write(ms(12)), None);
}

#[test]
fn slot_of_a_dead_process_is_taken_over() {
    let mut policy = wishing(ms(10));
    let dead = [(Node(1), entry(1, &[9]))];
    policy.observe(look(&dead, ms(10)), ms(11));
    assert_eq!(policy.take_write(ms(11)).map(|write| write.number), Some(1));
    policy.written(Written::Conflict, ms(12));
    policy.observe(look(&dead, ms(10_100)), ms(10_101));
    let write = policy.take_write(ms(10_101)).expect("a write");
    assert_eq!((write.number, write.over), (0, Some(version(1))));
}

#[test]
fn emptied_board_gets_the_wish_again() {
    let mut policy = wishing(ms(10));
    policy.take_write(ms(10)).expect("a write");
    policy.written(Written::At(version(1)), ms(11));
    policy.observe(
        Look { slots: vec![(Slot::default(), Some(version(2)))], sent_at: ms(12) },
        ms(13),
    );
    let write = policy.take_write(ms(13)).expect("a write");
    assert_eq!((write.number, write.over), (0, Some(version(2))));
}

#[test]
fn lost_write_of_a_ticket_is_repeated() {
    let mut policy = wishing(ms(10));
    let write = policy.take_write(ms(10)).expect("a write");
    policy.written(Written::At(version(1)), ms(11));
    policy.update(work(&[1]), ms(12));
    policy.update(work(&[1]), ms(100));
    let ticket = policy.ticket();
    assert_eq!(policy.take_write(ms(100)).map(|write| write.over), Some(Some(version(1))));
    // The board lost the write and shows the first ticket with another version.
    policy.written(Written::Conflict, ms(101));
    let old = Look { slots: vec![(write.slot, Some(version(3)))], sent_at: ms(102) };
    policy.observe(old, ms(103));
    let again = policy.take_write(ms(103)).expect("a write");
    assert_eq!((again.over, policy.ticket()), (Some(version(3)), ticket));
}

#[test]
fn idle_process_removes_its_wish() {
    let mut policy = wishing(ms(10));
    policy.take_write(ms(10)).expect("a write");
    policy.written(Written::At(version(1)), ms(11));
    policy.update(Work::default(), ms(12));
    policy.update(Work::default(), ms(13));
    assert_eq!(policy.ticket(), None);
    assert_eq!(policy.take_write(ms(13)).map(|write| write.slot), Some(Slot::default()));
}

#[test]
fn hash_of_a_key_is_part_of_the_format() {
    assert_eq!(KeyHash::of("accounts", "1"), KeyHash::of("accounts", "1"));
    assert_ne!(KeyHash::of("accounts", "1"), KeyHash::of("account", "s1"));
    let slot = Slot { wish: Some((Node(0xab), entry(5, &[3, 1]))) };
    assert_eq!(
        slot.encode(),
        serde_json::json!({
            "node": "00000000000000ab", "ticket": 5, "stride": 20_000, "clients": 8, "rtt": 1_000, "set": [1, 3],
        })
    );
}

#[test]
fn unknown_fields_of_a_slot_are_ignored() {
    let mut json = Slot { wish: Some((ME, entry(5, &[1]))) }.encode();
    json["later"] = serde_json::json!({ "a": [1] });
    assert_eq!(Slot::decode(json.to_string().as_bytes()).wish, Some((ME, entry(5, &[1]))));
}

#[test]
fn damaged_slot_is_empty() {
    let sound = Slot { wish: Some((ME, entry(5, &[1]))) }.encode();
    for (field, value) in [
        ("node", serde_json::json!("x")),
        ("ticket", serde_json::json!(LAST_TICKET + 1)),
        ("ticket", serde_json::json!(-1)),
        ("stride", serde_json::json!(u64::MAX)),
        ("rtt", serde_json::json!(u64::MAX)),
        ("set", serde_json::json!("AAAA")),
        ("set", serde_json::json!(vec![1; MOST_HASHES + 1])),
    ] {
        let mut json = sound.clone();
        json[field] = value;
        assert_eq!(Slot::decode(json.to_string().as_bytes()), Slot::default(), "{json}");
    }
    let long = format!("{sound}{}", " ".repeat(MOST_BYTES));
    assert_eq!(Slot::decode(long.as_bytes()), Slot::default());
}

fn sets() -> impl Strategy<Value = DocumentSet> {
    // Few bits: hashes collide. Many hashes: a bitmap.
    let hashes = prop_oneof![
        proptest::collection::vec(0u32..6, 0..4),
        proptest::collection::vec(any::<u32>(), 0..200),
    ];
    hashes.prop_map(|hashes| set(&hashes))
}

fn entries() -> impl Strategy<Value = Entry> {
    let tickets = prop_oneof![0u64..100, 0u64..1_000_000_000, LAST_TICKET - 3..=LAST_TICKET];
    let round_trips = prop_oneof![0u64..10, 500u64..5_000, 0u64..3_600_000_000];
    let strides = prop_oneof![0u64..10, 1_000u64..100_000, 0u64..3_600_000_000];
    let clients = prop_oneof![0u32..40, any::<u32>()];
    (tickets, strides, clients, round_trips, sets()).prop_map(|fields| Entry {
        ticket: fields.0,
        stride: fields.1,
        clients: fields.2,
        round_trip: Duration::from_micros(fields.3),
        set: fields.4,
    })
}

fn boards() -> impl Strategy<Value = Vec<(Slot, Option<Version>)>> {
    let slot = (proptest::option::of((0u64..9, entries())), proptest::option::of(0u64..5));
    let slot = slot.prop_map(|(wish, number)| {
        let wish = wish.map(|(node, entry)| (Node(node), entry));
        (Slot { wish }, number.map(version))
    });
    proptest::collection::vec(slot, 0..8)
}

#[derive(Clone, Debug)]
enum Event {
    Look(Vec<(Slot, Option<Version>)>, u64),
    Update(Work),
    Met,
    Locked,
    Committed,
    HandedOver,
    Write(u8),
    Measure(u64),
}

fn events() -> impl Strategy<Value = Event> {
    let work = (sets(), 0u32..50, proptest::option::of(0u64..100), any::<bool>(), any::<bool>());
    let work = work.prop_map(|(wanted, clients, since, is_locking, is_under_way)| Work {
        wanted,
        clients,
        passed_over_since: since.map(ms),
        is_locking,
        is_under_way,
    });
    prop_oneof![
        4 => (boards(), 0u64..300).prop_map(|(board, age)| Event::Look(board, age)),
        4 => work.prop_map(Event::Update),
        1 => Just(Event::Met),
        1 => Just(Event::Locked),
        1 => Just(Event::Committed),
        1 => Just(Event::HandedOver),
        2 => (0u8..3).prop_map(Event::Write),
        1 => (0u64..400_000).prop_map(Event::Measure),
    ]
}

fn happen(policy: &mut Policy, event: Event, now: Duration) {
    match event {
        Event::Look(slots, age) => {
            policy.look_sent();
            let slots = slots.into_iter().take(policy.slots()).collect();
            policy.observe(Look { slots, sent_at: now.saturating_sub(ms(age)) }, now);
        }
        Event::Update(work) => policy.update(work, now),
        Event::Met => policy.met_another(now),
        Event::Locked => policy.locked(now),
        Event::Committed => policy.committed(now),
        Event::HandedOver => policy.handed_over(now),
        Event::Write(answer) => {
            if let Some(write) = policy.take_write(now) {
                assert!(write.number < MOST_SLOTS);
                let answers = [Written::At(version(9)), Written::Conflict, Written::Unknown];
                policy.written(answers[usize::from(answer)], now);
            }
        }
        Event::Measure(micros) => policy.measure(Duration::from_micros(micros)),
    }
}

proptest! {
    #[test]
    fn slot_survives_encoding(node in any::<u64>(), entry in entries()) {
        let slot = Slot { wish: Some((Node(node), entry)) };
        let json = slot.encode().to_string();
        prop_assert!(json.len() <= 1_600, "{} bytes", json.len());
        prop_assert_eq!(Slot::decode(json.as_bytes()), slot);
    }

    #[test]
    fn arbitrary_bytes_decode(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Slot::decode(&bytes);
    }

    #[test]
    fn sets_have_no_false_no(a in proptest::collection::vec(any::<u32>(), 0..150), b in sets()) {
        let one = set(&a);
        for document in &a {
            prop_assert!(one.may_contain(hash(*document)));
            if b.may_contain(hash(*document)) {
                prop_assert!(one.may_intersect(&b) && b.may_intersect(&one));
            }
        }
        let mut united = one.clone();
        united.unite(&b);
        prop_assert!(united.covers(&one) && united.covers(&b));
    }

    #[test]
    fn document_has_one_head(wishes in proptest::collection::vec(entries(), 0..12)) {
        let wishes = || wishes.iter().enumerate().map(|(node, entry)| (Node(node as u64), entry));
        let heads = heads(wishes());
        for (position, (_, one)) in heads.iter().enumerate() {
            for (_, other) in &heads[position + 1..] {
                prop_assert!(!one.set.may_intersect(&other.set));
            }
        }
        // The first wish always has its turn, even if hashes collide: no deadlock.
        let first = wishes().min_by_key(|(node, entry)| (entry.ticket, *node));
        prop_assert_eq!(heads.first().map(|(node, _)| *node), first.map(|(node, _)| node));
    }

    #[test]
    fn arbitrary_boards_do_no_harm(events in proptest::collection::vec((0u64..150, events()), 1..40)) {
        let mut policy = Policy::new(ME, ROUND_TRIP, Numbers::default());
        let (mut now, mut last) = (Duration::ZERO, 0);
        for (pause, event) in events {
            now += ms(pause);
            happen(&mut policy, event, now);
            match policy.ticket() {
                Some(ticket) => {
                    prop_assert!(ticket >= last && ticket <= LAST_TICKET);
                    last = ticket;
                }
                // A damaged slot has led to the last tickets.
                None if last > LAST_TICKET / 2 => last = 0,
                None => {}
            }
            prop_assert!(policy.next_change(now).is_none_or(|at| at >= now));
            prop_assert!((2..=MOST_SLOTS).contains(&policy.slots()));
        }
        // Without another poll the process waits no longer than this.
        let blind = ms(200).max(policy.round_trip() * 8) + Duration::from_micros(1);
        let later = now + blind;
        prop_assert!((0..6).all(|document| policy.may_lock(hash(document), later)));
    }

    #[test]
    fn unchanged_board_is_overcome(board in boards(), wanted in sets()) {
        let mut policy = engaged();
        let patience = Numbers::default().longest_patience;
        let work = Work { wanted, clients: 8, passed_over_since: Some(ms(0)), ..Work::default() };
        let mut now = ms(10);
        // A process that does not use its turn takes a new ticket, and may wait again for each
        // other process.
        let mut last_permitted = [0; 6];
        for round in 0..40 {
            now += patience;
            policy.observe(Look { slots: board.clone(), sent_at: now }, now);
            policy.update(work.clone(), now);
            for (document, last) in (0..).zip(&mut last_permitted) {
                if policy.may_lock(hash(document), now) {
                    *last = round;
                }
            }
        }
        let waits = 2 * board.len() + 2;
        prop_assert!(last_permitted.iter().all(|last| last + waits >= 40), "{last_permitted:?}");
    }
}
