//! HTTP requests after the commit.
//!
//! A transaction keeps a request with [`HttpRequests::after_commit`]: an event of the topic [`TOPIC`], there once the transaction
//! commits and never if it does not. With the feature `http` a [`Dispatcher`] is the handler that performs it, for the ordinary
//! [`Processor`](crate::Processor)s: at least once, and with the same header `Idempotency-Key` each time.
//!
//! - **Done** is an answer 2xx. No connection, no answer in time, 408, 425, 429 and 5xx are tried again, as often and with the
//!   pauses that [`ProcessorConfig`](crate::ProcessorConfig) says, or later if the answer asks for that. Everything else,
//!   redirects included, is a dead letter at once.
//! - **Not the request's fault** is that a name cannot be resolved or a secret cannot be looked up: nothing was sent. That is tried
//!   again with growing pauses and does not count, until the request is older than [`HttpConfig::longest_outage`]. From then on each
//!   try counts, so that a name which does not exist ends as a dead letter. Neither counts that there is no place for a call: a
//!   destination that does not answer holds half of them at most.
//! - **Nothing is called** that is not on the list of [`HttpConfig`]: scheme, host and port, the method, the names of headers. A name
//!   is resolved once for each call, every address that it has is checked, and the connection goes to one of those:
//!   addresses that are not of the public internet are refused unless the [`Destination`] lists them. Proxies of the
//!   environment are not used.
//! - **Secrets** are named in a request and looked up for each call ([`Secrets`]): they are never stored, logged or told. What an
//!   answer repeats of them is blotted out.
//! - **Results** are kept: [`HttpResults`] tells by the id of the event what came of it.
//!
//! What is promised to the receiver is little: it may see a request twice, and, where requests have no common key, in any
//! order. A process that dies between the answer and its commit has called without a note of it.

mod kept;
mod request;
mod requests;
mod result;

#[cfg(feature = "http")]
mod address;
#[cfg(feature = "http")]
mod answer;
#[cfg(feature = "http")]
mod call;
#[cfg(feature = "http")]
mod config;
#[cfg(feature = "http")]
mod dispatcher;
#[cfg(feature = "http")]
mod places;
#[cfg(feature = "http")]
mod secret;

#[cfg(feature = "http")]
pub use address::{Resolver, SystemResolver};
#[cfg(feature = "http")]
pub use config::{Destination, HttpConfig};
#[cfg(feature = "http")]
pub use dispatcher::Dispatcher;
pub use kept::TOPIC;
pub use request::{Body, HeaderText, HttpRequest, Method};
pub use requests::{HttpRequests, Resend, Resent};
pub(crate) use result::purge as purge_results;
pub use result::{HttpResult, HttpResults, HttpState};
#[cfg(feature = "http")]
pub use secret::{NoSecrets, SecretString, Secrets};
