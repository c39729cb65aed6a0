//! What an operator may ask of the janitor.

use super::domain::Domain;
use crate::engine::attempt_error::AttemptError;
use crate::engine::janitor::Report;
use crate::error::Result;

impl Domain {
    /// Cleans up once, as the janitor does by itself: recovers what stands unchanged for its lease, drops old partitions, and reports what is left
    /// over afterwards. Takes at least one lease if anything is found. A collection that cannot be looked at is
    /// reported, and keeps nobody from looking at the others.
    ///
    /// # Errors
    /// As the store says of the domain document.
    ///
    /// # Cancel safety
    /// Dropped, what was done is done; every step stands for itself.
    pub async fn janitor_pass(&self) -> Result<Report> {
        self.engine.complete_pass().await.map_err(AttemptError::into_error)
    }

    /// Looks for locks, open records and lost parts, and changes nothing. What is under way at the moment shows up too.
    ///
    /// # Errors
    /// As the store says of the domain document.
    pub async fn inspect(&self) -> Result<Report> {
        self.engine.inspect().await.map_err(AttemptError::into_error)
    }
}
