//! TLS: the trusted authorities, and the client certificate.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use secrecy::ExposeSecret;
use sha2::{Digest, Sha256};
use txn_store::{StoreError, StoreErrorKind};

use crate::config::{ClientCertificate, EsConfig};

/// Returns the TLS configuration for all nodes.
pub(super) fn client(config: &EsConfig) -> Result<ClientConfig, StoreError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
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
        None => {
            let mut roots = RootCertStore::empty();
            roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
            for authority in config.certificate_authority.iter().flat_map(|pem| certificates(pem)) {
                let authority = authority.map_err(|()| {
                    misconfigured("the certificate authority is not PEM of certificates")
                })?;
                roots.add(authority).map_err(|error| {
                    misconfigured(&format!("the certificate authority cannot be used: {error}"))
                })?;
            }
            builder.with_root_certificates(roots)
        }
    };
    match &config.client_certificate {
        None => Ok(builder.with_no_client_auth()),
        Some(ClientCertificate { certificates: pem, key }) => {
            let chain: Result<Vec<_>, ()> = certificates(pem).into_iter().collect();
            let chain = chain
                .map_err(|()| misconfigured("the client certificate is not PEM of certificates"))?;
            let key = PrivateKeyDer::from_pem_slice(key.expose_secret()).map_err(|_| {
                misconfigured("the key of the client certificate is not PEM of a private key")
            })?;
            builder.with_client_auth_cert(chain, key).map_err(|error| {
                misconfigured(&format!(
                    "the client certificate and its key cannot be used: {error}"
                ))
            })
        }
    }
}

/// Parses the certificates of a PEM text; errors for unreadable ones or an empty text.
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
