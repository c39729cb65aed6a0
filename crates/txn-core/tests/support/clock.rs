//! Clocks that a test moves.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use txn_core::clock::{Clock, SystemClock};

/// The system clock, with a wall clock that a test moves.
#[derive(Debug, Default)]
pub(crate) struct Wall {
    system: SystemClock,
    ahead: Mutex<Duration>,
    behind: Mutex<Duration>,
}

impl Wall {
    pub(crate) fn ahead(ahead: Duration) -> Arc<Self> {
        let wall = Self::default();
        wall.set_ahead(ahead);
        Arc::new(wall)
    }

    pub(crate) fn set_ahead(&self, ahead: Duration) {
        *self.ahead.lock() = ahead;
    }

    pub(crate) fn set_behind(&self, behind: Duration) {
        *self.behind.lock() = behind;
    }
}

#[async_trait]
impl Clock for Wall {
    fn wall(&self) -> Duration {
        self.system.wall() + *self.ahead.lock() - *self.behind.lock()
    }

    fn monotonic(&self) -> Duration {
        self.system.monotonic()
    }

    async fn sleep(&self, duration: Duration) {
        self.system.sleep(duration).await;
    }
}

/// The system clock, which a test moves ahead. The calendar also has the time of the process.
#[derive(Debug, Default)]
pub(crate) struct Calendar {
    system: SystemClock,
    ahead: Mutex<Duration>,
}

impl Calendar {
    pub(crate) fn advance(&self, by: Duration) {
        *self.ahead.lock() += by;
    }
}

#[async_trait]
impl Clock for Calendar {
    fn wall(&self) -> Duration {
        self.system.wall() + *self.ahead.lock()
    }

    fn monotonic(&self) -> Duration {
        self.system.monotonic() + *self.ahead.lock()
    }

    async fn sleep(&self, duration: Duration) {
        self.system.sleep(duration).await;
    }
}
