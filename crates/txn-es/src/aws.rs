//! AWS Signature Version 4, for Amazon OpenSearch Service.

use std::fmt;
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use aws_config::{BehaviorVersion, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider};
use aws_sigv4::http_request::{
    PayloadChecksumKind, SignableBody, SignableRequest, SigningSettings,
};
use aws_sigv4::sign::v4::SigningParams;
use aws_smithy_http_client::tls::Provider as TlsProvider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use parking_lot::Mutex;
use secrecy::SecretString;
use tokio::sync::OnceCell;
use txn_store::{StoreError, StoreErrorKind};

use crate::config::{RequestSigner, UnsignedRequest};

/// Signs requests with AWS Signature Version 4, for Amazon OpenSearch Service.
///
/// The signer fetches credentials for its first request, five minutes before they expire, and after
/// a refusal. A role needs `es:ESHttp*` on the domain. With fine-grained access control the role
/// also has to be mapped to a role of OpenSearch. OpenSearch Serverless is not supported, because
/// it has no conditional writes.
///
/// ```no_run
/// # use std::sync::Arc;
/// # use txn_es::{AwsSigner, EsConfig, EsStore};
/// # async fn demo() -> Result<(), txn_store::StoreError> {
/// let config = EsConfig::from_url("https://search-shop-abc.eu-central-1.es.amazonaws.com")?;
/// let signer = AwsSigner::from_environment();
/// let store = EsStore::connect(config.with_request_signer(Arc::new(signer))).await?;
/// # Ok(())
/// # }
/// ```
pub struct AwsSigner {
    given: Option<SharedCredentialsProvider>,
    region: Option<String>,
    service: String,
    source: OnceCell<Source>,
    cached: Mutex<Option<Cached>>,
    /// Held while the signer fetches credentials.
    asking: tokio::sync::Mutex<()>,
    /// When the signer last dropped refused credentials.
    refused: Mutex<Option<Instant>>,
}

impl fmt::Debug for AwsSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { region, service, .. } = self;
        f.debug_struct("AwsSigner").field("region", region).field("service", service).finish()
    }
}

/// The provider of credentials, and the region.
struct Source {
    provider: SharedCredentialsProvider,
    region: String,
}

#[derive(Clone)]
struct Cached {
    credentials: Credentials,
    since: SystemTime,
}

/// The signer renews credentials that expire sooner.
const RENEWAL: Duration = Duration::from_secs(5 * 60);

/// The minimum pause between renewals of refused credentials.
///
/// After a fresh renewal the server refuses the role, not the credentials.
const RENEWAL_PAUSE: Duration = Duration::from_secs(10);

impl AwsSigner {
    /// Takes credentials and region from the environment, by AWS's default chain.
    ///
    /// The chain: environment variables, profiles, web identity (EKS), the container (ECS, EKS),
    /// and the instance (EC2).
    #[must_use]
    pub fn from_environment() -> Self {
        Self::of(None, None)
    }

    /// Signs with the credentials of a provider, for a region.
    pub fn new(provider: impl ProvideCredentials + 'static, region: impl Into<String>) -> Self {
        Self::of(Some(SharedCredentialsProvider::new(provider)), Some(region.into()))
    }

    fn of(given: Option<SharedCredentialsProvider>, region: Option<String>) -> Self {
        let service = "es".to_owned();
        let (source, cached, asking, refused) = Default::default();
        Self { given, region, service, source, cached, asking, refused }
    }

    /// Sets the region of the domain (default: the region of the environment).
    #[must_use]
    pub fn with_region(mut self, region: impl Into<String>) -> Self {
        self.region = Some(region.into());
        self
    }

    /// Sets the name of the service in the signature (default: `es`).
    #[must_use]
    pub fn with_service(mut self, service: impl Into<String>) -> Self {
        self.service = service.into();
        self
    }

    async fn source(&self) -> Result<&Source, StoreError> {
        self.source.get_or_try_init(|| self.find_source()).await
    }

    async fn find_source(&self) -> Result<Source, StoreError> {
        if let (Some(provider), Some(region)) = (&self.given, &self.region) {
            return Ok(Source { provider: provider.clone(), region: region.clone() });
        }
        let config = environment().await;
        let region = self.region.clone().or_else(|| config.region().map(ToString::to_string));
        let region = region.ok_or_else(|| {
            misconfigured(
                "no region of AWS is known: set AWS_REGION, or give it to AwsSigner::with_region",
            )
        })?;
        let provider = self.given.clone().or_else(|| config.credentials_provider());
        let provider =
            provider.ok_or_else(|| misconfigured("no credentials of AWS are configured"))?;
        Ok(Source { provider, region })
    }

    async fn credentials(&self) -> Result<Credentials, StoreError> {
        let now = SystemTime::now();
        let cached = self.cached.lock().clone();
        if let Some(Cached { credentials, .. }) = &cached
            && expires_after(credentials, now + RENEWAL)
        {
            return Ok(credentials.clone());
        }
        let valid = cached.filter(|cached| expires_after(&cached.credentials, now));
        // One request renews the credentials. The other requests continue with the old ones.
        let asking = match &valid {
            Some(Cached { credentials, .. }) => match self.asking.try_lock() {
                Ok(asking) => asking,
                Err(_) => return Ok(credentials.clone()),
            },
            None => self.asking.lock().await,
        };
        let renewed = self.cached.lock().clone();
        if let Some(Cached { credentials, since }) = renewed
            && since > now
            && expires_after(&credentials, now)
        {
            return Ok(credentials);
        }
        let asked = self.source().await?.provider.provide_credentials().await;
        drop(asking);
        match (asked, valid) {
            (Ok(credentials), _) => {
                let since = SystemTime::now();
                *self.cached.lock() = Some(Cached { credentials: credentials.clone(), since });
                Ok(credentials)
            }
            (Err(error), Some(Cached { credentials, .. })) => {
                tracing::warn!(%error, "the credentials of AWS are not renewed yet");
                Ok(credentials)
            }
            (Err(error), None) => Err(no_credentials(&error)),
        }
    }
}

/// Loads the default chain on the store's thread.
///
/// The chain has its own HTTP client.
async fn environment() -> SdkConfig {
    let client = aws_smithy_http_client::Builder::new();
    let client = client.tls_provider(TlsProvider::Rustls(CryptoMode::Ring)).build_https();
    aws_config::defaults(BehaviorVersion::v2026_01_12()).http_client(client).load().await
}

fn expires_after(credentials: &Credentials, time: SystemTime) -> bool {
    credentials.expiry().is_none_or(|expiry| expiry > time)
}

fn no_credentials(error: &CredentialsError) -> StoreError {
    let mut text = format!("there are no credentials of AWS: {error}");
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    let kind = match error {
        CredentialsError::CredentialsNotLoaded(_) | CredentialsError::InvalidConfiguration(_) => {
            StoreErrorKind::Misconfigured
        }
        _ => StoreErrorKind::Unavailable,
    };
    StoreError::new(kind, text)
}

fn misconfigured(text: &str) -> StoreError {
    StoreError::new(StoreErrorKind::Misconfigured, text)
}

#[async_trait]
impl RequestSigner for AwsSigner {
    async fn sign(
        &self,
        request: UnsignedRequest<'_>,
    ) -> Result<Vec<(String, SecretString)>, StoreError> {
        let region = &self.source().await?.region;
        let identity = self.credentials().await?.into();
        let fault = |error: &dyn fmt::Display| {
            misconfigured(&format!("a request cannot be signed: {error}"))
        };
        let mut settings = SigningSettings::default();
        settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
        let params = SigningParams::builder()
            .identity(&identity)
            .region(region)
            .name(&self.service)
            .time(SystemTime::now())
            .settings(settings)
            .build()
            .map_err(|error| fault(&error))?;
        // Proxies add and change other headers.
        let headers = request.headers.iter().copied().filter(|(name, _)| *name == "content-type");
        let body = SignableBody::Bytes(request.body);
        let signable = SignableRequest::new(request.method, request.url, headers, body);
        let signable = signable.map_err(|error| fault(&error))?;
        let signed = aws_sigv4::http_request::sign(signable, &params.into());
        let (instructions, _) = signed.map_err(|error| fault(&error))?.into_parts();
        let headers = instructions.headers();
        Ok(headers.map(|(name, value)| (name.to_owned(), value.to_owned().into())).collect())
    }

    async fn refused(&self) {
        let now = Instant::now();
        let mut refused = self.refused.lock();
        if refused.is_none_or(|before| now.duration_since(before) >= RENEWAL_PAUSE) {
            *refused = Some(now);
            *self.cached.lock() = None;
        }
    }
}
