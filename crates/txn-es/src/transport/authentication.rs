//! The headers that authenticate requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures::FutureExt;
use parking_lot::Mutex;
use reqwest::Request;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, InvalidHeaderValue};
use secrecy::{ExposeSecret, SecretString};
use txn_store::{StoreError, StoreErrorKind};

use crate::config::{CredentialProvider, EsAuth, EsConfig, Login, RequestSigner, UnsignedRequest};
use crate::secrets::Secrets;

/// Headers that the transport sets.
const RESERVED: [&str; 7] = [
    "accept",
    "connection",
    "content-length",
    "content-type",
    "host",
    "transfer-encoding",
    "upgrade",
];

pub(super) struct Authentication {
    /// The headers of every request.
    headers: HeaderMap,
    way: Way,
    secrets: Secrets,
}

enum Way {
    /// The fixed headers are enough.
    Fixed,
    Provided(Provided),
    Signed(Arc<dyn RequestSigner>),
}

struct Provided {
    provider: Arc<dyn CredentialProvider>,
    current: Mutex<Option<Current>>,
    /// Held while the provider is asked.
    asking: tokio::sync::Mutex<()>,
    /// The number of answers of the provider.
    answers: AtomicU64,
}

/// The current login.
#[derive(Clone)]
struct Current {
    number: u64,
    header: Option<HeaderValue>,
}

/// The login of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Used(u64);

impl Authentication {
    pub(super) fn new(config: &EsConfig, secrets: Secrets) -> Result<Self, StoreError> {
        let mut headers = HeaderMap::new();
        for (name, value) in &config.headers {
            let fault = |what| misconfigured(format!("the header {name:?} {what}"));
            let name = HeaderName::try_from(name).map_err(|_| fault("has no name of a header"))?;
            if RESERVED.contains(&name.as_str()) {
                return Err(fault("is set by the store itself"));
            }
            let value =
                sensitive(value).map_err(|_| fault("has a value that no header can have"))?;
            headers.append(name, value);
        }
        secrets.learn(config.headers.iter().map(|(_, value)| value.clone()));
        let way = match &config.login {
            Login::Fixed(auth) => {
                secrets.learn(auth.secrets());
                if let Some(header) = header(auth)? {
                    headers.insert(AUTHORIZATION, header);
                }
                Way::Fixed
            }
            Login::Provided(provider) => Way::Provided(Provided {
                provider: provider.clone(),
                current: Mutex::default(),
                asking: tokio::sync::Mutex::default(),
                answers: AtomicU64::new(0),
            }),
            Login::Signed(signer) => Way::Signed(signer.clone()),
        };
        Ok(Self { headers, way, secrets })
    }

    /// Adds the login to a request, and returns it for [`Self::refused`].
    pub(super) async fn admit(
        &self,
        request: &mut Request,
        body: Option<&Bytes>,
    ) -> Result<Used, StoreError> {
        for (name, value) in &self.headers {
            request.headers_mut().append(name, value.clone());
        }
        match &self.way {
            Way::Fixed => Ok(Used(0)),
            Way::Provided(provided) => {
                let current = provided.current.lock().clone();
                let current = match current {
                    Some(current) => current,
                    None => provided.ask(&self.secrets, 0).await?,
                };
                if let Some(header) = current.header {
                    request.headers_mut().insert(AUTHORIZATION, header);
                }
                Ok(Used(current.number))
            }
            Way::Signed(signer) => {
                sign(&**signer, request, body).await?;
                Ok(Used(0))
            }
        }
    }

    /// Returns whether a refused request may succeed when it is sent again.
    pub(super) async fn refused(
        &self,
        status: u16,
        used: Used,
        repeatable: bool,
    ) -> Result<bool, StoreError> {
        match &self.way {
            Way::Provided(provided) if status == 401 => {
                let renewed = provided.ask(&self.secrets, used.0).await?;
                Ok(renewed.number > used.0)
            }
            Way::Signed(signer) if matches!(status, 401 | 403) => {
                signer.refused().await;
                Ok(repeatable)
            }
            Way::Fixed | Way::Provided(_) | Way::Signed(_) => Ok(false),
        }
    }

    /// Returns a body without secrets, for answers without documents.
    pub(super) fn hide(&self, body: &Bytes, sent: &HeaderMap) -> Bytes {
        let sensitive = sent.values().filter(|value| value.is_sensitive());
        self.secrets.hide_in_body(body, sensitive.filter_map(|value| value.to_str().ok()))
    }

    pub(super) fn hide_in_error(&self, error: StoreError) -> StoreError {
        self.secrets.hide_in_error(error)
    }
}

impl Provided {
    /// Asks for a newer login, unless there is one already.
    ///
    /// Requests that wait for the provider share its answer. A login that comes back unchanged
    /// keeps its number.
    async fn ask(&self, secrets: &Secrets, known: u64) -> Result<Current, StoreError> {
        let answers = self.answers.load(Ordering::Relaxed);
        let _one_at_a_time = self.asking.lock().await;
        let current = self.current.lock().clone();
        if let Some(current) = &current
            && (current.number > known || self.answers.load(Ordering::Relaxed) > answers)
        {
            return Ok(current.clone());
        }
        let auth = self.provider.credentials().await?;
        self.answers.fetch_add(1, Ordering::Relaxed);
        secrets.learn(auth.secrets());
        let header = header(&auth)?;
        if let Some(current) = current
            && current.header == header
        {
            return Ok(current);
        }
        let current = Current { number: known + 1, header };
        *self.current.lock() = Some(current.clone());
        Ok(current)
    }
}

async fn sign(
    signer: &dyn RequestSigner,
    request: &mut Request,
    body: Option<&Bytes>,
) -> Result<(), StoreError> {
    let headers: Vec<(&str, &str)> = request
        .headers()
        .iter()
        .filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)))
        .collect();
    let unsigned = UnsignedRequest {
        method: request.method().as_str(),
        url: request.url().as_str(),
        headers: &headers,
        body: body.map_or(&[], |body| body),
    };
    let signed = signer.sign(unsigned).boxed().await?;
    for (name, value) in signed {
        let fault =
            || misconfigured(format!("the signer made a header {name:?} that cannot be sent"));
        let header = HeaderName::try_from(&name).map_err(|_| fault())?;
        let value = sensitive(&value).map_err(|_| fault())?;
        request.headers_mut().insert(header, value);
    }
    Ok(())
}

fn header(auth: &EsAuth) -> Result<Option<HeaderValue>, StoreError> {
    let header = auth.header().map(|header| sensitive(&header)).transpose();
    header.map_err(|_| {
        misconfigured("the API key or the token has characters that none has".to_owned())
    })
}

fn sensitive(text: &SecretString) -> Result<HeaderValue, InvalidHeaderValue> {
    let mut value = HeaderValue::try_from(text.expose_secret())?;
    value.set_sensitive(true);
    Ok(value)
}

fn misconfigured(text: String) -> StoreError {
    StoreError::new(StoreErrorKind::Misconfigured, text)
}
