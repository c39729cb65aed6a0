//! Schedules that chance makes too rarely.

#[test]
fn every_schedule_holds() {
    for (name, schedule) in txn_simulation::schedules::OF_GUARDS {
        assert_eq!(schedule(), Vec::<String>::new(), "{name}");
    }
}
