//! Secrets: named in a request, and looked up for each call.

use std::fmt;

use async_trait::async_trait;
pub use secrecy::SecretString;

/// The source of an application's secrets.
///
/// The dispatcher asks for each call, so a secret may change at any time. The `Debug`
/// implementation must not show secrets.
#[async_trait]
pub trait Secrets: fmt::Debug + Send + Sync + 'static {
    /// Returns the secret of this name: the whole text of a header.
    ///
    /// `to` is the origin of the request, such as `https://api.example.com:443`. Return `None` if
    /// the secret is unknown, or not for this origin. An author of requests can name any secret and
    /// any listed destination, so this method must check that both belong together.
    ///
    /// # Errors
    /// The lookup failed for now. The request waits for up to
    /// [`HttpConfig::longest_outage`](crate::http::HttpConfig::longest_outage). The dispatcher does
    /// not show the error, because it may contain secrets.
    async fn secret(
        &self,
        name: &str,
        to: &str,
    ) -> Result<Option<SecretString>, Box<dyn std::error::Error + Send + Sync>>;
}

/// A source of secrets for requests that need none.
#[derive(Clone, Copy, Debug)]
pub struct NoSecrets;

#[async_trait]
impl Secrets for NoSecrets {
    async fn secret(
        &self,
        _: &str,
        _: &str,
    ) -> Result<Option<SecretString>, Box<dyn std::error::Error + Send + Sync>> {
        Ok(None)
    }
}
