//! Time that counts while the machine is suspended, too.

use std::time::Duration;

/// The time since the machine was started, suspended or not. `None` on systems that do not tell it.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn boottime() -> Option<Duration> {
    use rustix::time::{ClockId, clock_gettime};
    Duration::try_from(clock_gettime(ClockId::Boottime)).ok()
}

/// The time since the machine was started, suspended or not. `None` on systems that do not tell it.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) fn boottime() -> Option<Duration> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn time_since_the_start_of_the_machine_goes_on() {
        let before = boottime().expect("Linux tells it");
        assert!(before > Duration::ZERO && boottime().expect("Linux tells it") >= before);
    }
}
