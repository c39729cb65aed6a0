//! TLS: the trusted authorities, and the client certificate.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, Resumption, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use secrecy::ExposeSecret;
use sha2::{Digest, Sha256};
use txn_store::{StoreError, StoreErrorKind};

use crate::config::{CertificateAuthority, ClientCertificate, EsConfig};
use crate::watched::{Parse, Watched};

/// Returns the TLS configuration for all nodes.
pub(super) fn client(config: &EsConfig) -> Result<ClientConfig, StoreError> {
    let provider = provider();
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|_| misconfigured("the versions of TLS are not supported"))?;
    let builder = match &config.ca_fingerprint {
        Some(fingerprint) => {
            if config.urls.iter().any(|url| url.scheme() != "https") {
                return Err(misconfigured(
                    "a fingerprint of a certificate authority is given, and an address without TLS: give each \
                     address as https://host:port",
                ));
            }
            let pinned = Pinned { fingerprint: parse(fingerprint)?, provider };
            builder.dangerous().with_custom_certificate_verifier(Arc::new(pinned))
        }
        None => match &config.certificate_authority {
            Some(CertificateAuthority::File(path)) => {
                let authorities = watch(vec![path.clone()], authorities)?;
                builder.dangerous().with_custom_certificate_verifier(Arc::new(authorities))
            }
            Some(CertificateAuthority::Text(pem)) => builder
                .with_root_certificates(roots(Some(pem)).map_err(|text| misconfigured(&text))?),
            None => {
                builder.with_root_certificates(roots(None).map_err(|text| misconfigured(&text))?)
            }
        },
    };
    let mut client = match &config.client_certificate {
        None => builder.with_no_client_auth(),
        Some(ClientCertificate::Text { certificates, key }) => {
            let certified = certified(certificates, key.expose_secret());
            let certified = certified.map_err(|text| misconfigured(&text))?;
            builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(certified)))
        }
        Some(ClientCertificate::Files { certificates, key }) => {
            let files = vec![certificates.clone(), key.clone()];
            let certified = watch(files, |pem| certified(&pem[0], &pem[1]))?;
            builder.with_client_cert_resolver(Arc::new(certified))
        }
    };
    if matches!(config.certificate_authority, Some(CertificateAuthority::File(_)))
        || matches!(config.client_certificate, Some(ClientCertificate::Files { .. }))
    {
        // A resumed session checks and shows no certificate, so it would outlive a change.
        client.resumption = Resumption::disabled();
    }
    Ok(client)
}

/// The public authorities, and those of a PEM text.
fn roots(further: Option<&[u8]>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    for authority in further.into_iter().flat_map(certificates) {
        let authority =
            authority.map_err(|()| "the certificate authority is not PEM of certificates")?;
        let added = roots.add(authority);
        added.map_err(|error| format!("the certificate authority cannot be used: {error}"))?;
    }
    Ok(roots)
}

/// The verifier for the authorities of a file.
fn authorities(pem: &[Vec<u8>]) -> Result<Arc<WebPkiServerVerifier>, String> {
    let roots = Arc::new(roots(pem.first().map(Vec::as_slice))?);
    let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider()).build();
    verifier.map_err(|error| format!("the certificate authority cannot be used: {error}"))
}

/// Parses a client certificate and its key. No text of the key is in the error.
fn certified(pem: &[u8], key: &[u8]) -> Result<CertifiedKey, String> {
    let chain: Result<Vec<_>, ()> = certificates(pem).into_iter().collect();
    let chain = chain.map_err(|()| "the client certificate is not PEM of certificates")?;
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|_| "the key of the client certificate is not PEM of a private key")?;
    CertifiedKey::from_der(chain, key, &provider())
        .map_err(|error| format!("the client certificate and its key cannot be used: {error}"))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Reads files that each new connection reads again.
fn watch<T>(paths: Vec<PathBuf>, parse: Parse<T>) -> Result<WatchedTls<T>, StoreError> {
    let watched = Watched::open(paths, parse);
    watched.map(WatchedTls).map_err(|error| misconfigured(&error.to_string()))
}

/// Certificates in files, for each new connection.
#[derive(Debug)]
struct WatchedTls<T>(Watched<T>);

impl<T> WatchedTls<T> {
    /// The content of the files, or the last content that fits.
    fn current(&self) -> Arc<T> {
        if let Err(error) = self.0.reload() {
            tracing::warn!(%error, "a changed certificate cannot be used; the former one stays");
        }
        self.0.current()
    }
}

impl ResolvesClientCert for WatchedTls<CertifiedKey> {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl ServerCertVerifier for WatchedTls<Arc<WebPkiServerVerifier>> {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verifier = self.current();
        verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.current().verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.current().verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.current().supported_verify_schemes()
    }
}

/// Parses the certificates of a PEM text.
///
/// Unreadable certificates and an empty text are errors.
fn certificates(pem: &[u8]) -> Vec<Result<CertificateDer<'static>, ()>> {
    let all: Vec<_> =
        CertificateDer::pem_slice_iter(pem).map(|each| each.map_err(|_| ())).collect();
    if all.is_empty() { vec![Err(())] } else { all }
}

fn parse(fingerprint: &str) -> Result<[u8; 32], StoreError> {
    let digits: String = fingerprint.chars().filter(|c| *c != ':' && !c.is_whitespace()).collect();
    let mut bytes = [0; 32];
    let decoded = base16ct::mixed::decode(&digits, &mut bytes).map(<[u8]>::len);
    if decoded != Ok(32) {
        return Err(misconfigured(
            "the fingerprint of the certificate authority is not SHA-256: it has 64 hexadecimal digits, as the server \
             prints them at its first start",
        ));
    }
    Ok(bytes)
}

/// Trusts one authority by its fingerprint.
///
/// The server has to send the certificate of the authority. All other checks are as usual.
#[derive(Debug)]
struct Pinned {
    fingerprint: [u8; 32],
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let is_pinned = |certificate: &&CertificateDer<'_>| {
            Sha256::digest(certificate.as_ref())[..] == self.fingerprint
        };
        let Some(authority) = intermediates.iter().find(is_pinned) else {
            let text = "no certificate authority that the server sends has the fingerprint that is trusted; the server has to \
                        send the certificate of its authority along with its own";
            return Err(Error::General(text.to_owned()));
        };
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        let usual =
            WebPkiServerVerifier::builder_with_provider(roots.into(), self.provider.clone())
                .build()
                .map_err(|error| {
                    Error::General(format!(
                        "the pinned certificate authority cannot be used: {error}"
                    ))
                })?;
        usual.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

fn misconfigured(text: &str) -> StoreError {
    StoreError::new(StoreErrorKind::Misconfigured, text)
}
