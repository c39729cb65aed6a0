//! A wall clock that can be set.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use txn_core::clock::{Clock, SystemClock};

/// The system clock, moved by a test.
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
