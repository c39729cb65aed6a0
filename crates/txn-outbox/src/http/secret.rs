//! Secrets: named in a request, looked up for each call.

use std::fmt;

use async_trait::async_trait;
pub use secrecy::SecretString;

/// What knows the secrets of an application. It is asked for each call, so that a secret can be changed at any time. Its
/// `Debug` must not show them.
#[async_trait]
pub trait Secrets: fmt::Debug + Send + Sync + 'static {
    /// The secret of this name, as the whole text of a header that is sent `to` somewhere, such as `https://api.example.com:443`;
    /// `None` if there is none for it. Whoever may write requests may name any secret, and any destination that is listed: say
    /// here which belong together.
    ///
    /// # Errors
    /// It cannot be told now: the request waits, as long as [`HttpConfig::longest_outage`](crate::http::HttpConfig::longest_outage)
    /// says. The error itself is shown to nobody, for what it may hold.
    async fn secret(
        &self,
        name: &str,
        to: &str,
    ) -> Result<Option<SecretString>, Box<dyn std::error::Error + Send + Sync>>;
}

/// No secrets.
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
