//! The number of stored requests, as far as this process knows.

use std::time::Duration;

/// The number of requests that this process knows.
///
/// The requests are either open or scheduled.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    counted: Option<usize>,
    /// The number of submissions in this process since the count.
    submitted: usize,
    /// The time of the count, on the monotonic clock.
    at: Duration,
}

impl Backlog {
    /// A count at this time of the monotonic clock.
    pub(crate) fn counted(counted: usize, at: Duration) -> Self {
        Self { counted: Some(counted), submitted: 0, at }
    }

    /// Notes a submission of this process.
    pub(crate) fn add_submitted(&mut self) {
        self.submitted += 1;
    }

    /// The approximate number, if the count is recent enough.
    ///
    /// `None` if other processes may have submitted many requests since the count.
    pub(crate) fn known(&self, most: usize) -> Option<usize> {
        let counted = self.counted?;
        let is_current = self.submitted < most.saturating_sub(counted) / 4 + 1;
        is_current.then_some(counted + self.submitted)
    }

    /// The approximate number, if the count is not older than `age`.
    pub(crate) fn recent(&self, now: Duration, age: Duration) -> Option<usize> {
        let is_recent = now.saturating_sub(self.at) < age;
        self.counted.filter(|_| is_recent).map(|counted| counted + self.submitted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_is_repeated_after_a_quarter_of_the_room() {
        let mut backlog = Backlog::default();
        assert_eq!(backlog.known(100), None);
        backlog = Backlog::counted(60, Duration::from_secs(5));
        for _ in 0..10 {
            backlog.add_submitted();
        }
        assert_eq!(backlog.known(100), Some(70));
        backlog.add_submitted();
        assert_eq!(backlog.known(100), None);
        let second = Duration::from_secs(1);
        assert_eq!(backlog.recent(Duration::from_millis(5_999), second), Some(71));
        assert_eq!(backlog.recent(Duration::from_secs(6), second), None);
    }
}
