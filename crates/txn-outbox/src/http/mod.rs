//! HTTP requests after the commit.
//!
//! A transaction keeps a request with [`HttpRequests::after_commit`]: an event of the topic [`TOPIC`], there once the transaction
//! commits and never if it does not. With the feature `http` a [`Dispatcher`] is the handler that performs it, for the ordinary
//! [`Processor`](crate::Processor)s: at least once, and with the same header `Idempotency-Key` each time.
//!
//! - **Done** is an answer 2xx. [`HttpConfig::retries`] says for each other status whether and for how long the request is called
//!   again: by default one day for 401, 403, 408, 425, 429 and 5xx, one hour for 404, 409 and 423. Everything else, redirects
//!   included, is a dead letter at once. Pauses grow as [`ProcessorConfig`](crate::ProcessorConfig) says, and are longer if the
//!   answer asks for that by `Retry-After`.
//! - **An outage** does not count: a connection that is refused or breaks, an answer that comes too late
//!   ([`HttpConfig::unanswered`]), a name that cannot be resolved, a secret that cannot be looked up
//!   ([`HttpConfig::longest_outage`]). The request is called again for one day, and is a dead letter then. Neither counts that
//!   there is no place for a call: a destination that does not answer holds half of them at most.
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
mod retries;
#[cfg(feature = "http")]
mod secret;
#[cfg(feature = "http")]
mod tls;

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
pub use retries::{Retries, Retry};
#[cfg(feature = "http")]
pub use secret::{NoSecrets, SecretString, Secrets};
