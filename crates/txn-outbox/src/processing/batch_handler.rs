//! Handlers with all effects in a transaction, which may take several events.

use std::sync::Arc;

use async_trait::async_trait;
use txn_core::Transaction;

use crate::handler::{Delivery, Failure, Handler};
use crate::queue::event::Event;

/// A closure that handles an event in a transaction: `async |state, tx, event| { … }`.
///
/// Every such closure and function implements this trait. The trait spells out what the compiler
/// needs to spawn the closure.
pub trait EventFn<'t, S: 't>:
    AsyncFn(&'t S, &'t Transaction, &'t Event) -> Result<(), Failure>
    + Fn(&'t S, &'t Transaction, &'t Event) -> Self::Future
{
    /// The future of a call.
    type Future: Future<Output = Result<(), Failure>> + Send;
}

impl<'t, S: 't, F, R> EventFn<'t, S> for F
where
    F: AsyncFn(&'t S, &'t Transaction, &'t Event) -> Result<(), Failure>
        + Fn(&'t S, &'t Transaction, &'t Event) -> R,
    R: Future<Output = Result<(), Failure>> + Send,
{
    type Future = R;
}

/// Handles an event in the transaction that takes the event.
#[async_trait]
pub(crate) trait BatchHandler: Send + Sync {
    async fn handle(&self, tx: &Transaction, event: &Event) -> Result<(), Failure>;
}

/// A closure with its state.
pub(crate) struct WithState<S, F> {
    pub(crate) state: S,
    pub(crate) handle: F,
}

#[async_trait]
impl<S, F> BatchHandler for WithState<S, F>
where
    S: Send + Sync,
    F: for<'t> EventFn<'t, S> + Send + Sync,
{
    async fn handle(&self, tx: &Transaction, event: &Event) -> Result<(), Failure> {
        (self.handle)(&self.state, tx, event).await
    }
}

/// Handles one event in its own transaction.
pub(crate) struct SingleEvent(pub(crate) Arc<dyn BatchHandler>);

#[async_trait]
impl Handler for SingleEvent {
    async fn handle(&self, delivery: Delivery) -> Result<(), Failure> {
        let (handler, event) = (&self.0, delivery.event().clone());
        delivery.transact(async |tx| handler.handle(tx, &event).await).await
    }
}
