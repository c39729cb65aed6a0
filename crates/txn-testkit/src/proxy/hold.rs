//! Requests that wait at a gate until the test decides.

use std::sync::{Arc, Weak};

use tokio::sync::watch;

/// The point at which a request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// Before the server receives the request.
    Before,
    /// After the server carried it out, before the client gets the answer.
    After,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// No request has come.
    Armed,
    /// A request waits.
    Reached,
    Decided(Delivery),
}

/// How a held request is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    GoesOn,
    /// The request is lost at its point.
    Lost,
}

/// A held request, or the next matching one.
///
/// Dropping the hold releases the request.
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

    /// Returns after a request has reached the gate, now or before. Add a timeout.
    pub async fn reached(&self) {
        // The sender lives as long as the hold.
        drop(self.gate.stage.subscribe().wait_for(|stage| *stage != Stage::Armed).await);
    }

    /// Whether a request has reached the gate, now or before.
    #[must_use]
    pub fn is_reached(&self) -> bool {
        *self.gate.stage.borrow() != Stage::Armed
    }

    /// Releases the request.
    pub fn release(self) {
        self.gate.stage.send_replace(Stage::Decided(Delivery::GoesOn));
    }

    /// Cuts the connection.
    ///
    /// At [`Point::Before`] the server never receives the request, at [`Point::After`] the client
    /// never gets the answer.
    pub fn discard(self) {
        self.gate.stage.send_replace(Stage::Decided(Delivery::Lost));
    }
}

/// The gate of a request that will be held.
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

    pub(crate) async fn wait(&self) -> Delivery {
        let Some(gate) = self.gate.upgrade() else { return Delivery::GoesOn };
        let mut stage = gate.stage.subscribe();
        gate.stage.send_if_modified(|stage| {
            let first = *stage == Stage::Armed;
            if first {
                *stage = Stage::Reached;
            }
            first
        });
        // From here on only the test holds the gate.
        drop(gate);
        match stage.wait_for(|stage| matches!(stage, Stage::Decided(_))).await {
            Ok(stage) => match *stage {
                Stage::Decided(delivery) => delivery,
                _ => Delivery::GoesOn,
            },
            Err(_) => Delivery::GoesOn,
        }
    }
}
