//! HTTP requests after the commit of a transaction.
//!
//! [`HttpRequests::after_commit`] stores a request in a transaction, as an event of the topic
//! [`TOPIC`]. The event exists only if the transaction commits. With the feature `http` a
//! [`Dispatcher`] is the handler of these events for a [`Processor`](crate::Processor). The
//! dispatcher sends a request at least once, with the same header `Idempotency-Key` each time.
//!
//! - **Done** is an answer 2xx. [`HttpConfig::retries`] has the retries of each other status.
//!   Default: one day for 401, 403, 408, 425, 429 and 5xx (except 501 and 505), one hour for 404,
//!   409 and 423. Any other status, including redirects, makes a dead letter at once.
//!   [`ProcessorConfig`](crate::ProcessorConfig) has the growing pauses, and `Retry-After` extends
//!   them.
//! - **An outage** does not count as a failure. Outages are refused and broken connections, late
//!   answers ([`HttpConfig::unanswered`]), unresolved names, and failed lookups of secrets
//!   ([`HttpConfig::longest_outage`]). The dispatcher retries for one day, and then the request
//!   becomes a dead letter. A wait for a free call does not count, either. A destination that does
//!   not answer occupies at most half of the calls.
//! - **Allowed requests** are listed in [`HttpConfig`]: scheme, host, port, method and header
//!   names. The dispatcher resolves a name once per call, checks all its addresses, and connects to
//!   one of them. Addresses outside of the public internet are refused unless the [`Destination`]
//!   lists them. The dispatcher ignores proxies of the environment.
//! - **Secrets** are named in a request, and looked up for each call ([`Secrets`]). The dispatcher
//!   never stores or logs them, and removes them from stored answers.
//! - **Results** are stored by event id ([`HttpResults`]).
//!
//! A receiver may see a request twice, and sees requests without a common key in any order. A
//! process that dies between the answer and its commit leaves no note of the call.

#[cfg(feature = "http")]
mod delivery;
mod request;
mod requests;
mod result;
mod stored_request;

#[cfg(feature = "http")]
mod config;
#[cfg(feature = "http")]
mod dispatcher;
#[cfg(feature = "http")]
mod secret;
#[cfg(feature = "http")]
mod secret_files;

#[cfg(feature = "http")]
pub use config::{Destination, HttpConfig};
#[cfg(feature = "http")]
pub use delivery::address::{Resolver, SystemResolver};
#[cfg(feature = "http")]
pub use delivery::retries::{Retries, Retry};
#[cfg(feature = "http")]
pub use dispatcher::Dispatcher;
pub use request::{Body, HeaderText, HttpRequest, Method};
pub use requests::{HttpRequests, Resend, Resent};
pub(crate) use result::purge as purge_results;
pub use result::{HttpResult, HttpResults, HttpState};
#[cfg(feature = "http")]
pub use secret::{NoSecrets, SecretString, Secrets};
#[cfg(feature = "http")]
pub use secret_files::SecretFiles;
pub use stored_request::TOPIC;
