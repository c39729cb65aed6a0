//! Logins: fixed, provided, or by signature.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use secrecy::{ExposeSecret, SecretString};
use txn_store::StoreError;

/// A login.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum EsAuth {
    /// No login.
    #[default]
    None,
    /// A user and a password (HTTP basic).
    Basic {
        /// The name of the user.
        user: String,
        /// The password of the user.
        password: SecretString,
    },
    /// An API key in its encoded form: `base64(id:key)`. The server issues this form.
    ApiKey(SecretString),
    /// A bearer token, for example of a service account or OAuth.
    ///
    /// Elasticsearch also accepts a JSON Web Token.
    Bearer(SecretString),
}

impl fmt::Debug for EsAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Basic { user, .. } => write!(f, "Basic({user:?}, ***)"),
            Self::ApiKey(_) => f.write_str("ApiKey(***)"),
            Self::Bearer(_) => f.write_str("Bearer(***)"),
        }
    }
}

impl EsAuth {
    /// Creates a login with a user and a password.
    pub fn basic(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self::Basic { user: user.into(), password: password.into().into() }
    }

    /// Creates a login with an API key in its encoded form.
    pub fn api_key(key: impl Into<String>) -> Self {
        Self::ApiKey(key.into().into())
    }

    /// Creates a login with a bearer token.
    pub fn bearer(token: impl Into<String>) -> Self {
        Self::Bearer(token.into().into())
    }

    /// Returns the value of the `authorization` header.
    pub(crate) fn header(&self) -> Option<SecretString> {
        let text = match self {
            Self::None => return None,
            Self::Basic { user, password } => format!("Basic {}", pair(user, password)),
            Self::ApiKey(key) => format!("ApiKey {}", key.expose_secret()),
            Self::Bearer(token) => format!("Bearer {}", token.expose_secret()),
        };
        Some(text.into())
    }

    /// Returns the secrets of the login, in each of their forms.
    pub(crate) fn secrets(&self) -> Vec<SecretString> {
        match self {
            Self::None => Vec::new(),
            Self::Basic { user, password } => vec![pair(user, password).into(), password.clone()],
            Self::Bearer(token) => vec![token.clone()],
            Self::ApiKey(key) => {
                let decoded = BASE64.decode(key.expose_secret()).ok();
                let decoded = decoded.and_then(|text| String::from_utf8(text).ok());
                let secret = decoded.and_then(|text| Some(text.split_once(':')?.1.to_owned()));
                std::iter::once(key.clone()).chain(secret.map(Into::into)).collect()
            }
        }
    }
}

fn pair(user: &str, password: &SecretString) -> String {
    BASE64.encode(format!("{user}:{}", password.expose_secret()))
}

/// Provides a login that may change, such as a rotated key.
///
/// The store asks before its first request, and again after the servers refused the login (401).
/// Requests that were refused with the same login share one call. The store sends a refused request
/// again with the new login. The repetition is safe: with 401 a server says that it has not carried
/// the request out (RFC 9110, section 15.5.2). So keep the old login valid for a moment only if
/// other clients need it.
///
/// The future runs on the store's own threads and counts against the time of the request.
#[async_trait]
pub trait CredentialProvider: fmt::Debug + Send + Sync + 'static {
    /// Returns the current login.
    ///
    /// # Errors
    /// [`StoreErrorKind::Unavailable`](txn_store::StoreErrorKind::Unavailable) if another try may
    /// succeed, [`StoreErrorKind::Denied`](txn_store::StoreErrorKind::Denied) or
    /// [`StoreErrorKind::Misconfigured`](txn_store::StoreErrorKind::Misconfigured) if not.
    async fn credentials(&self) -> Result<EsAuth, StoreError>;
}

/// A request before the signature.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct UnsignedRequest<'a> {
    /// The method, such as `POST`.
    pub method: &'a str,
    /// The full address, with scheme, host, path and query.
    pub url: &'a str,
    /// Names (in lower case) and values of the headers, except `host`.
    pub headers: &'a [(&'a str, &'a str)],
    /// The body, as it is sent.
    pub body: &'a [u8],
}

impl fmt::Debug for UnsignedRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { method, url, headers: _, body } = self;
        write!(f, "{method} {url} ({} bytes)", body.len())
    }
}

/// Signs each request, for example for the managed OpenSearch of a cloud.
///
/// The future runs on the store's own threads and counts against the time of the request.
#[async_trait]
pub trait RequestSigner: fmt::Debug + Send + Sync + 'static {
    /// Returns names and values of the headers that sign the request.
    ///
    /// These headers replace headers of the same name.
    ///
    /// # Errors
    /// As [`CredentialProvider::credentials`].
    async fn sign(
        &self,
        request: UnsignedRequest<'_>,
    ) -> Result<Vec<(String, SecretString)>, StoreError>;

    /// Notes that the servers refused a signed request (401 or 403).
    ///
    /// The signer should drop cached credentials. The store signs refused reads again and sends
    /// them.
    async fn refused(&self) {}
}

/// The kind of login.
#[derive(Clone, Debug)]
pub(crate) enum Login {
    Fixed(EsAuth),
    Provided(Arc<dyn CredentialProvider>),
    Signed(Arc<dyn RequestSigner>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_a_header() {
        for (auth, header) in [
            (EsAuth::basic("shop", "p@ss/w:rd"), Some("Basic c2hvcDpwQHNzL3c6cmQ=")),
            (EsAuth::api_key("k"), Some("ApiKey k")),
            (EsAuth::bearer("AAEAAWVs"), Some("Bearer AAEAAWVs")),
            (EsAuth::None, None),
        ] {
            let text = auth.header();
            assert_eq!(text.as_ref().map(ExposeSecret::expose_secret), header);
        }
    }

    #[test]
    fn logins_are_not_printed() {
        for auth in
            [EsAuth::basic("u", "hunter2"), EsAuth::api_key("hunter2"), EsAuth::bearer("hunter2")]
        {
            let printed = format!("{auth:?} {auth:#?}");
            assert!(!printed.contains("hunter2"), "{printed}");
        }
    }
}
