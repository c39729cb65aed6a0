//! Schedules for courses that random seeds rarely produce.

use txn_protocol::rule::Rules;
use txn_simulation::schedules;

#[test]
fn every_schedule_holds() {
    let all = schedules::OF_RULES.into_iter().chain(schedules::OF_BAD_WORLDS);
    for (name, schedule) in all {
        assert_eq!(schedule(&Rules::all()), Vec::<String>::new(), "{name}");
    }
}
