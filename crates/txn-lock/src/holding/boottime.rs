//! A clock that advances while the machine is suspended.

use std::time::Duration;

/// The time since the start of the machine, including suspensions.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn boottime() -> Option<Duration> {
    use rustix::time::{ClockId, clock_gettime};
    Duration::try_from(clock_gettime(ClockId::Boottime)).ok()
}

/// The time since the start of the machine. `None`, because this system has no such clock.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) fn boottime() -> Option<Duration> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn boot_time_advances() {
        let before = boottime().expect("Linux tells it");
        assert!(before > Duration::ZERO && boottime().expect("Linux tells it") >= before);
    }
}
