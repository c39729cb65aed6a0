//! The systems on top of transactions: locks, events, HTTP requests and submitted requests.

mod errors;
pub(crate) mod events;
pub(crate) mod http_requests;
pub(crate) mod locks;
pub(crate) mod opened;
pub(crate) mod requests;
