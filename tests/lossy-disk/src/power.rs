//! The power supply of one or several disks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A switch for the power of disks. Clones are the same switch.
///
/// Without power each call of the file system fails with `EIO`.
#[derive(Clone, Debug, Default)]
pub struct Power(Arc<State>);

#[derive(Debug, Default)]
struct State {
    is_off: AtomicBool,
    /// The number of changes until the power fails; 0 without a limit.
    remaining: AtomicU64,
    /// All changes since the creation of the switch.
    changes: AtomicU64,
}

impl Power {
    /// Cuts the power of all disks at once.
    pub fn cut(&self) {
        self.0.is_off.store(true, Ordering::SeqCst);
    }

    /// Cuts the power instead of the change after `changes` further ones.
    ///
    /// A change is a write, a sync, or a change of a folder, on any of the disks.
    pub fn cut_after(&self, changes: u64) {
        self.0.remaining.store(changes + 1, Ordering::SeqCst);
    }

    /// Restores the power, without a limit.
    pub fn restore(&self) {
        self.0.remaining.store(0, Ordering::SeqCst);
        self.0.is_off.store(false, Ordering::SeqCst);
    }

    /// Whether the power is on.
    #[must_use]
    pub fn is_on(&self) -> bool {
        !self.0.is_off.load(Ordering::SeqCst)
    }

    /// Returns the number of changes so far, on all disks.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.0.changes.load(Ordering::SeqCst)
    }

    /// Counts a change; `false` if the power is off or fails now.
    pub(crate) fn allows_change(&self) -> bool {
        let state = &self.0;
        let step = |remaining: u64| (remaining > 0).then(|| remaining - 1);
        let before = state.remaining.fetch_update(Ordering::SeqCst, Ordering::SeqCst, step);
        if before == Ok(1) {
            self.cut();
        }
        let is_on = self.is_on();
        state.changes.fetch_add(u64::from(is_on), Ordering::SeqCst);
        is_on
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn power_fails_after_changes() {
        let power = Power::default();
        power.cut_after(2);
        let allowed = [0; 4].map(|_| power.allows_change());
        assert_eq!(allowed, [true, true, false, false]);
        assert!(!power.is_on());
        power.restore();
        assert!(power.allows_change() && power.changes() == 3);
    }
}
