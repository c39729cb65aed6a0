//! Requests that wait at a gate until the test decides.

use std::sync::{Arc, Weak};

use tokio::sync::watch;

/// Where a request is held up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// Before the server gets it.
    Before,
    /// After the server carried it out, before the client gets the answer.
    After,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// No request came.
    Armed,
    /// A request waits.
    Reached,
    Decided(Verdict),
}

/// What becomes of a request that was held up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    GoesOn,
    /// It is lost where it stands.
    Lost,
}

/// A request that is held up, or the next one that will be.
///
/// Dropped, it lets the request go on.
#[derive(Debug)]
pub struct Hold {
    gate: Arc<Gate>,
}

#[derive(Debug)]
pub(crate) struct Gate {
    stage: watch::Sender<Stage>,
}

impl Default for Gate {
    fn default() -> Self {
        Self { stage: watch::Sender::new(Stage::Armed) }
    }
}

impl Hold {
    pub(crate) fn new(gate: Arc<Gate>) -> Self {
        Self { gate }
    }

    /// Returns once a request waits here, or has been here. Put a bound on it.
    pub async fn reached(&self) {
        // The sender lives as long as this does.
        drop(self.gate.stage.subscribe().wait_for(|stage| *stage != Stage::Armed).await);
    }

    /// Whether a request waits here, or has been here.
    #[must_use]
    pub fn is_reached(&self) -> bool {
        *self.gate.stage.borrow() != Stage::Armed
    }

    /// Lets the request go on.
    pub fn release(self) {
        self.gate.stage.send_replace(Stage::Decided(Verdict::GoesOn));
    }

    /// Cuts the connection: at [`Point::Before`] the server never gets the request, at [`Point::After`] the client
    /// never gets the answer.
    pub fn discard(self) {
        self.gate.stage.send_replace(Stage::Decided(Verdict::Lost));
    }
}

/// What a request is handed that is to be held up.
#[derive(Clone)]
pub(crate) struct Ticket {
    gate: Weak<Gate>,
    pub(crate) point: Point,
}

impl Gate {
    pub(crate) fn ticket(self: &Arc<Self>, point: Point) -> Ticket {
        Ticket { gate: Arc::downgrade(self), point }
    }
}

impl Ticket {
    pub(crate) fn is_wanted(&self) -> bool {
        self.gate.strong_count() > 0
    }

    pub(crate) async fn wait(&self) -> Verdict {
        let Some(gate) = self.gate.upgrade() else { return Verdict::GoesOn };
        let mut stage = gate.stage.subscribe();
        gate.stage.send_if_modified(|stage| {
            let first = *stage == Stage::Armed;
            if first {
                *stage = Stage::Reached;
            }
            first
        });
        // The test alone holds the gate from here on.
        drop(gate);
        match stage.wait_for(|stage| matches!(stage, Stage::Decided(_))).await {
            Ok(stage) => match *stage {
                Stage::Decided(verdict) => verdict,
                _ => Verdict::GoesOn,
            },
            Err(_) => Verdict::GoesOn,
        }
    }
}
